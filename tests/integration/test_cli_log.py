"""The files of logs from the command line: dumped, verified, and asked for at a broker."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from conformance.actions import create_topic, produce_ok
from conformance.batches import batch as produced_batch
from conformance.wire import Wire
from headwater.log.checkpoints import RECOVERY_POINTS, write_offsets
from headwater.log.filesystem import FileSystem
from headwater.log.log_dirs import LogDirs
from headwater.types import TopicPartition
from peers.apache import ApacheKafka
from peers.headwater import HeadwaterProcess
from unit.log.building import NOW_MS, append, batch, marker, topic_config

from .cli_runner import Cli, Done

NOWHERE = Cli("127.0.0.1:1")
SMALL = topic_config(segment_bytes=1500, index_interval_bytes=200)
EVENTS = TopicPartition("events", 0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data dir after a clean stop: several segments, producers, an aborted transaction, two leader epochs."""
    data = tmp_path_factory.mktemp("sound") / "data"
    dirs = LogDirs.open(FileSystem(), [str(data)], node_id=1)
    dirs.load(lambda topic: SMALL, now_ms=NOW_MS)
    for partition in (EVENTS, TopicPartition("events", 1)):
        log = dirs.create(partition, topic_id=None, config=SMALL, now_ms=NOW_MS)
        for number in range(30):
            values = [b"%d" % number, bytes(50)]
            content = batch(values, timestamp_ms=NOW_MS + 10 * number, producer=(7, 0, 2 * number))
            append(log, content, leader_epoch=number // 20)
        append(log, batch([b"undone"], producer=(8, 0, 0), transactional=True), leader_epoch=1)
        append(log, marker(8, 0, commit=False), leader_epoch=1)
        append(log, batch([b"last"]), leader_epoch=1)
    dirs.close({partition: log.log_end_offset for partition, log in dirs.logs.items()})
    return data


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(sound, tmp_path / "data"))


def segment_files(data: Path, suffix: str) -> list[Path]:
    return sorted((data / "events-0").glob(f"*{suffix}"))


def verify(path: Path) -> Done:
    return NOWHERE("log", "verify", str(path))


def test_a_sound_dir_has_no_faults_and_is_not_touched(data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    done = verify(data)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("No faults in 2 partitions, ")
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    one = NOWHERE("log", "verify", str(data / "events-0"), "--json").json
    assert (one["partitions"], one["batches"], one["faults"], one["in_use"]) == (1, 33, [], False)


def change(path: Path, position: int, *, by: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[position] = (content[position] + by) % 256
    path.write_bytes(content)


def damage_a_record(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".log")[1]
    change(file, 100)
    return file, 0, "the checksum does not match the bytes"


def damage_an_offset(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".log")[0]
    size = struct.unpack_from(">i", file.read_bytes(), 8)[0] + 12
    change(file, size + 7, by=-1)
    return file, size, "offset 1 where 2 or more should follow"


def tear_the_tail(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".log")[-1]
    size = file.stat().st_size
    file.write_bytes(file.read_bytes() + b"torn")
    return file, size, "4 bytes that are no whole batch"


def put_garbage(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".log")[-1]
    size = file.stat().st_size
    file.write_bytes(file.read_bytes() + bytes(100))
    return file, size, "magic 0 is not supported, only 2; what follows is not checked"


def misplace_an_index_entry(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".index")[0]
    change(file, 7)
    return file, 0, "no batch begins there"


def misname_an_index_entry(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".index")[0]
    change(file, 3)
    return file, 0, "the batch there ends with"


def change_a_time(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".timeindex")[0]
    change(file, 7)
    return file, 0, "the batch there has"


def cut_the_time_index(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".timeindex")[0]
    file.write_bytes(file.read_bytes()[:12])
    return file, 12, "the segment's largest timestamp"


def remove_an_index(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".index")[1]
    file.unlink()
    return file, 0, "it is missing"


def forge_an_abort(data: Path) -> tuple[Path, int, str]:
    (file,) = segment_files(data, ".txnindex")
    change(file, 9)
    return file, 0, "there is no such marker"


def harm_records(data: Path) -> tuple[Path, int, str]:
    """As a broker took it that looked at checksums only."""
    file = segment_files(data, ".log")[1]
    size = struct.unpack_from(">i", file.read_bytes(), 8)[0] + 12
    content = bytearray(file.read_bytes())
    content[61] = 0xFE
    struct.pack_into(">I", content, 17, crc32c(content[21:size]))
    file.write_bytes(content)
    first = int(file.stem)
    return file, 0, f"record 0 of 2 does not parse: offsets {first} to {first + 1} cannot be read"


def claim_a_time(data: Path) -> tuple[Path, int, str]:
    file = segment_files(data, ".log")[1]
    size = struct.unpack_from(">i", file.read_bytes(), 8)[0] + 12
    content = bytearray(file.read_bytes())
    struct.pack_into(">q", content, 35, 2**63 - 1)
    struct.pack_into(">I", content, 17, crc32c(content[21:size]))
    file.write_bytes(content)
    return file, 0, "its largest timestamp is said to be 9223372036854775807, but is "


@pytest.mark.parametrize(
    "damage",
    [
        harm_records,
        claim_a_time,
        damage_a_record,
        damage_an_offset,
        tear_the_tail,
        put_garbage,
        misplace_an_index_entry,
        misname_an_index_entry,
        change_a_time,
        cut_the_time_index,
        remove_an_index,
        forge_an_abort,
    ],
)
def test_each_damage_is_found_with_file_and_position(
    data: Path, damage: Callable[[Path], tuple[Path, int, str]]
) -> None:
    file, position, words = damage(data)
    done = NOWHERE("log", "verify", str(data), "--json")
    assert done.code == 1
    found = [(fault["file"], fault["position"]) for fault in done.json["faults"] if words in fault["fault"]]
    assert found == [(str(file), position)]
    assert f"{file}:{position}: " in verify(data).out


def test_checkpoints_snapshots_and_epochs_are_compared_with_the_log(data: Path) -> None:
    write_offsets(FileSystem(), str(data / RECOVERY_POINTS), {EVENTS: 1000})
    (data / "log-start-offset-checkpoint").write_text("nonsense")
    (data / "events-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 50\n")
    snapshot = segment_files(data, ".snapshot")[0]
    change(snapshot, 20)
    lines = verify(data).out.splitlines()
    assert f"{data / RECOVERY_POINTS}: events-0 stands at 1000, but its log ends at 63" in lines
    assert f"{data / 'log-start-offset-checkpoint'}: it has no version and count" in lines
    assert f"{snapshot}: its checksum does not match" in lines
    assert any(line.endswith("leader epoch 1, but leader-epoch-checkpoint says 0") for line in lines)
    assert any(line.endswith("leader epoch 1, but leader-epoch-checkpoint says 5") for line in lines)


def test_a_running_brokers_dir_can_be_verified(headwater: HeadwaterProcess) -> None:
    with Wire(headwater.bootstrap) as wire:
        topic = create_topic(wire)
        produce_ok(wire, topic, produced_batch(b"one", b"two"))
    done = verify(headwater.data_dir / f"{topic.name}-0")
    assert (done.code, done.out) == (
        0,
        f"No faults in 1 partition, 1 segment, 1 batch, {len(produced_batch(b'one', b'two'))} B.\n",
    )
    assert "is in use by a running broker" in done.err


def test_a_dump_ends_with_what_is_wrong(data: Path) -> None:
    index = segment_files(data, ".index")[0]
    change(index, 3)
    done = NOWHERE("log", "dump", str(index))
    assert done.code == 0
    assert done.out.splitlines()[0] == f"Dumping {index}"
    assert done.err.splitlines()[0] == f"Mismatches in :{index}"
    missing = NOWHERE("log", "dump", str(data / "00000000000000000000.log"))
    assert missing.code == 1
    assert missing.err == f"headwater: cannot read {data / '00000000000000000000.log'}: No such file or directory\n"
    misnamed = NOWHERE("log", "dump", str(data / "orders.log"))
    assert misnamed.code == 1
    assert "is not named by an offset" in misnamed.err


@pytest.mark.parametrize("peer", ["headwater", "apache"])
def test_dirs_show_what_partitions_take_up(peer: str, request: pytest.FixtureRequest) -> None:
    broker: HeadwaterProcess | ApacheKafka = request.getfixturevalue(peer)
    with Wire(broker.bootstrap) as wire:
        topic = create_topic(wire, partitions=2)
        produce_ok(wire, topic, produced_batch(bytes(500)), partition=1)
    cli = Cli(broker.bootstrap)
    (entry,) = cli.ok("log", "dirs", "--topic", topic.name, "--json").json["brokers"]
    (log_dir,) = entry["log_dirs"]
    assert (entry["broker"], log_dir["path"], log_dir["error"]) == (1, str(broker.data_dir), None)
    size = len(produced_batch(bytes(500)))
    assert [(each["partition"], each["size_bytes"], each["is_future"]) for each in log_dir["partitions"]] == [
        (0, 0, False),
        (1, size, False),
    ]
    table = cli.ok("log", "dirs", "--topic", topic.name, "--broker", "1").out
    assert [line.split()[1] for line in table.splitlines() if line.startswith(topic.name)] == ["0", "1"]
    unknown = cli("log", "dirs", "--broker", "77")
    assert (unknown.code, unknown.err) == (1, "headwater: there is no broker 77; there are 1\n")
