"""A disk that takes no more: producers hear of it, nothing acknowledged is lost, and it heals when there is room."""

import resource
import struct
from pathlib import Path

from integration.raw_client import RawClient, batch_of, fetch_body, fetched, produce_body, produced
from peers.headwater import HeadwaterProcess

KAFKA_STORAGE_ERROR = 56


def test_a_full_disk_refuses_what_it_cannot_keep_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    values = [b"record %06d " % number + b"x" * 1000 for number in range(100)]
    with HeadwaterProcess(tmp_path, {"auto.create.topics.enable": "true", "num.partitions": "1"}) as broker:
        with RawClient(broker.bootstrap) as client:
            client.ask(struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">ih", 1, 4) + b"full" + b"\1")
            # The largest file that this process may write: the next best thing to a full disk.
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
            acknowledged: list[bytes] = []
            refused: list[bytes] = []
            for value in values:
                error_code, base_offset = produced(client.ask(produce_body("full", batch_of(value))))
                (refused if error_code else acknowledged).append(value)
                assert error_code in (0, KAFKA_STORAGE_ERROR)
                assert error_code or base_offset == len(acknowledged) - 1
            assert acknowledged
            assert refused
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            for value in refused:
                error_code, base_offset = produced(client.ask(produce_body("full", batch_of(value))))
                acknowledged.append(value)
                assert (error_code, base_offset) == (0, len(acknowledged) - 1)
        broker.kill()
        broker.start()
        with RawClient(broker.bootstrap) as client:
            error_code, high_watermark, data = fetched(client.ask(fetch_body("full", 0, max_bytes=1 << 20)))
    assert (error_code, high_watermark) == (0, 100)
    assert [data.count(value) for value in values] == [1] * 100
    positions = [data.index(value) for value in acknowledged]
    assert positions == sorted(positions)
