"""The coordinators' runtime in a real broker: loading, waiting, failing disks, flushing, stopping."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from conformance.raw_groups import GROUP, TRANSACTION, subscription
from conformance.wire import ConnectionClosedError, Wire
from headwater.broker.broker import Broker
from headwater.broker.services.coordination import RunningShard
from headwater.broker.services.partition import Partition
from headwater.config import BrokerConfig
from headwater.log.log import Log
from headwater.protocol.errors import ApiError
from headwater.protocol.records import encode_batch

CLIENTS = ThreadPoolExecutor(16)
"""Threads of the clients' own: the broker needs those of its loop."""
FEW_PARTITIONS = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}


@asynccontextmanager
async def running_broker(folder: Path, **overrides: str | int) -> AsyncIterator[Broker]:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    broker = Broker(
        BrokerConfig.from_values(
            {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0", **FEW_PARTITIONS, **settings}
        )
    )
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def ask(broker: Broker, api: str, **values: Any) -> Any:
    """Sends one request over a connection of its own, from a thread, while the broker runs on this loop."""

    def send() -> Any:
        with Wire(broker.bootstrap) as wire:
            return wire.send(api, **values)

    return await asyncio.get_running_loop().run_in_executor(CLIENTS, send)


async def find_coordinator(broker: Broker, key: str, key_type: int = GROUP) -> None:
    (found,) = (await ask(broker, "find_coordinator", key_type=key_type, coordinator_keys=[key])).coordinators
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.none, broker.node_id, broker.port)


async def commit(broker: Broker, group: str, offset: int) -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "how far"}
    answer = await ask(
        broker,
        "offset_commit",
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "orders", "partitions": [partition]}],
    )
    code = answer.topics[0].partitions[0].error_code
    assert isinstance(code, ErrorCode)
    return code


async def committed(broker: Broker, group: str) -> tuple[int, str | None] | ErrorCode:
    (answer,) = (await ask(broker, "offset_fetch", groups=[{"group_id": group, "topics": None}])).groups
    if answer.error_code is not ErrorCode.none:
        return ErrorCode(answer.error_code)
    return next(
        ((one.committed_offset, one.metadata) for topic in answer.topics for one in topic.partitions), (-1, None)
    )


async def make_topic(broker: Broker, name: str = "orders") -> None:
    async with broker.topics.changing:
        await broker.topics.create(name, 1, {})


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_offsets_and_groups_are_there_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            await make_topic(broker)
            await find_coordinator(broker, "billing")
            assert await commit(broker, "billing", 42) is ErrorCode.none
        async with running_broker(tmp_path) as broker:
            while (found := await committed(broker, "billing")) is ErrorCode.coordinator_load_in_progress:
                await asyncio.sleep(0.01)
            assert found == (42, "how far")
            listed = (await ask(broker, "list_groups")).groups
            assert [(group.group_id, group.group_state) for group in listed] == [("billing", "Empty")]

    run(scenario())


def test_requests_before_the_first_look_for_a_coordinator_are_sent_to_find_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            assert await committed(broker, "billing") is ErrorCode.not_coordinator
            assert (await ask(broker, "list_groups")).groups == ()

    run(scenario())


def test_while_the_log_is_replayed_requests_hear_that_it_is_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = threading.Event()
    replay_log = RunningShard.replay_log

    def replay_when_allowed(running: RunningShard[Any]) -> None:
        if threading.current_thread() is not threading.main_thread():
            assert may_load.wait(30)
        replay_log(running)

    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            await make_topic(broker)
            await find_coordinator(broker, "billing")
            assert await commit(broker, "billing", 42) is ErrorCode.none
        monkeypatch.setattr(RunningShard, "replay_log", replay_when_allowed)
        async with running_broker(tmp_path) as broker:
            try:
                assert await committed(broker, "billing") is ErrorCode.coordinator_load_in_progress
                assert await commit(broker, "billing", 43) is ErrorCode.coordinator_load_in_progress
                heartbeat = {"group_id": "billing", "generation_id": 1, "member_id": "gone"}
                assert (await ask(broker, "heartbeat", **heartbeat)).error_code is ErrorCode.none
                assert (await ask(broker, "list_groups")).error_code is ErrorCode.coordinator_load_in_progress
            finally:
                may_load.set()
            while await committed(broker, "billing") is ErrorCode.coordinator_load_in_progress:
                await asyncio.sleep(0.01)
            assert await committed(broker, "billing") == (42, "how far")

    run(scenario())


def failing(times: int) -> Callable[..., Any]:
    """`Partition.append` that fails so many times as a full disk does."""
    append = Partition.append
    left = [times]

    def append_or_fail(partition: Partition, batch: bytearray, *, now_ms: int) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        return append(partition, batch, now_ms=now_ms)

    return append_or_fail


def test_what_could_not_be_written_did_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            await make_topic(broker)
            await find_coordinator(broker, "billing")
            assert await commit(broker, "billing", 42) is ErrorCode.none
            monkeypatch.setattr(Partition, "append", failing(1))
            assert await commit(broker, "billing", 43) is ErrorCode.coordinator_not_available
            assert await committed(broker, "billing") == (42, "how far")
            assert await commit(broker, "billing", 44) is ErrorCode.none
            assert await committed(broker, "billing") == (44, "how far")

    run(scenario())


def test_an_answer_waits_for_the_fsync_that_flush_messages_asks_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path, log_flush_interval_messages=1) as broker:
            await make_topic(broker)
            await find_coordinator(broker, "billing")
            assert await commit(broker, "billing", 42) is ErrorCode.none
            log = broker.groups.running("billing").partition.log
            assert (log.log_end_offset, log.recovery_point) == (1, 1)

    run(scenario())


def join_values(group: str, member_id: str = "") -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("orders")}],
    }


async def join(broker: Broker, group: str) -> Any:
    first = await ask(broker, "join_group", **join_values(group))
    assert first.error_code is ErrorCode.member_id_required
    return await ask(broker, "join_group", **join_values(group, first.member_id))


def test_members_that_wait_in_a_join_keep_nobody_from_working(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path, group_initial_rebalance_delay_ms=1500, queued_max_requests=2) as broker:
            await find_coordinator(broker, "billing")
            joins = [asyncio.ensure_future(join(broker, "billing")) for _ in range(6)]
            while len(broker.groups.running("billing").shard.describe("billing", 6).members) < 6:
                await asyncio.sleep(0.01)
            assert not any(waiting.done() for waiting in joins)
            created = await ask(
                broker, "create_topics", topics=[{"name": "orders", "num_partitions": 1, "replication_factor": 1}]
            )
            assert created.topics[0].error_code is ErrorCode.none
            assert not any(waiting.done() for waiting in joins)
            answers = await asyncio.gather(*joins)
            assert {answer.error_code for answer in answers} == {ErrorCode.none}
            assert sum(len(answer.members) for answer in answers) == 6, "the leader alone is told of the others"

    run(scenario())


def test_whoever_waits_when_the_broker_stops_is_told_to_look_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            await find_coordinator(broker, "billing")
            waiting = asyncio.ensure_future(join(broker, "billing"))
            while not broker.groups.running("billing").shard.describe("billing", 6).members:
                await asyncio.sleep(0.01)
        assert (await waiting).error_code is ErrorCode.not_coordinator

    run(scenario())


async def begin_transaction(broker: Broker) -> tuple[int, int]:
    await make_topic(broker)
    await find_coordinator(broker, "mover", TRANSACTION)
    identity = await ask(broker, "init_producer_id", transactional_id="mover", transaction_timeout=60_000)
    assert identity.error_code is ErrorCode.none
    batch = encode_batch(
        [(None, b"paid", (), 1_700_000_000_000)],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    topic_id = broker.topics.by_name["orders"].topic_id
    partition = {"index": 0, "records": bytes(batch)}
    answer = await ask(
        broker,
        "produce",
        transactional_id="mover",
        acks=-1,
        timeout=30_000,
        topic_data=[{"topic_id": topic_id, "partition_data": [partition]}],
    )
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
    return identity.producer_id, identity.producer_epoch


async def end(broker: Broker, producer_id: int, producer_epoch: int) -> Any:
    return await ask(
        broker,
        "end_txn",
        transactional_id="mover",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=True,
    )


def test_a_marker_that_a_disk_refuses_is_written_when_it_takes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            producer = await begin_transaction(broker)
            log = broker.topics.by_name["orders"].partitions[0].log
            assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
            write_one, left = broker.markers.write_one, [2]

            def fails_twice(*target: Any, **marker: Any) -> Any:
                if left[0]:
                    left[0] -= 1
                    raise ApiError(ErrorCode.kafka_storage_error, "No space left on device")
                return write_one(*target, **marker)

            monkeypatch.setattr(broker.markers, "write_one", fails_twice)
            assert (await end(broker, *producer)).error_code is ErrorCode.none
            assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
            described = broker.transactions.running("mover").shard.describe("mover")
            assert described.transaction_state == "PrepareCommit"
            while log.last_stable_offset < 2:
                await asyncio.sleep(0.01)
            described = broker.transactions.running("mover").shard.describe("mover")
            assert described.transaction_state == "CompleteCommit"

    run(scenario())


def test_a_transaction_is_complete_when_its_markers_are_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path, log_flush_interval_messages=1) as broker:
            producer = await begin_transaction(broker)
            log = broker.topics.by_name["orders"].partitions[0].log
            flush, may_flush = Log.flush, threading.Event()

            def waits(flushed: Log, up_to: int | None = None) -> None:
                if flushed is log:
                    may_flush.wait(20)
                flush(flushed, up_to)

            monkeypatch.setattr(Log, "flush", waits)
            assert (await end(broker, *producer)).error_code is ErrorCode.none
            shard = broker.transactions.running("mover").shard
            assert (log.last_stable_offset, log.recovery_point) == (2, 1)
            assert shard.describe("mover").transaction_state == "PrepareCommit"
            may_flush.set()
            while shard.describe("mover").transaction_state != "CompleteCommit":
                await asyncio.sleep(0.01)
            assert log.recovery_point == 2

    run(scenario())


def test_the_last_record_of_a_transaction_is_written_when_the_disk_takes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            producer = await begin_transaction(broker)
            state_log = broker.transactions.running("mover").partition
            append, written = Partition.append, [0]

            def third_fails(partition: Partition, batch: bytearray, *, now_ms: int) -> Any:
                written[0] += 1
                if partition is state_log and written[0] == 3:  # the decision, the marker, then this
                    raise OSError(28, "No space left on device")
                return append(partition, batch, now_ms=now_ms)

            monkeypatch.setattr(Partition, "append", third_fails)
            assert (await end(broker, *producer)).error_code is ErrorCode.none
            shard = broker.transactions.running("mover").shard
            assert shard.describe("mover").transaction_state == "PrepareCommit"
            while shard.describe("mover").transaction_state != "CompleteCommit":
                await asyncio.sleep(0.01)

    run(scenario())


def test_a_decided_transaction_is_completed_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            producer = await begin_transaction(broker)

            def refuse(*target: Any, **marker: Any) -> None:
                raise ApiError(ErrorCode.kafka_storage_error, "Input/output error")

            monkeypatch.setattr(broker.markers, "write_one", refuse)
            assert (await end(broker, *producer)).error_code is ErrorCode.none
        async with running_broker(tmp_path) as broker:
            log = broker.topics.by_name["orders"].partitions[0].log
            while log.last_stable_offset < 2:
                await asyncio.sleep(0.01)

    run(scenario())


def test_a_stop_waits_for_the_internal_topic_that_is_being_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path, offsets_topic_num_partitions=50) as broker:
            asking = asyncio.ensure_future(find_coordinator(broker, "billing"))
            while not broker.topics.changing.locked():
                await asyncio.sleep(0)
        with contextlib.suppress(ConnectionClosedError, ConnectionError):
            await asking
        async with running_broker(tmp_path, offsets_topic_num_partitions=50) as broker:
            await find_coordinator(broker, "billing")
            assert len(broker.topics.by_name["__consumer_offsets"].partitions) == 50

    run(scenario())


def test_clients_may_not_write_to_internal_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path) as broker:
            await find_coordinator(broker, "billing")
            batch = bytes(encode_batch([(b"key", b"value", (), 1_700_000_000_000)]))
            topic_id = broker.topics.by_name["__consumer_offsets"].topic_id
            partition = {"index": 0, "records": batch}
            answer = await ask(
                broker,
                "produce",
                acks=-1,
                timeout=30_000,
                topic_data=[{"topic_id": topic_id, "partition_data": [partition]}],
            )
            assert answer.responses[0].partition_responses[0].error_code is ErrorCode.invalid_topic_exception

    run(scenario())
