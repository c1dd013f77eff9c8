"""The fetcher: what a broker's answers make it do, how much it lets wait, and one fetch at a time for each broker."""

import asyncio
import dataclasses
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.corrupt_batches import CorruptBatch
from headwater.client.errors import RecordError, RefusedError
from headwater.protocol.kafka_types import BrokerId, ErrorCode
from headwater.types import TopicPartition
from scripted_cluster import TOPIC, Fetch, Leader, ScriptedCluster, scripted_cluster

from kio.schema.fetch.v17.response import FetchResponse  # isort: skip

PLACE = TopicPartition(TOPIC, 0)
OTHER = TopicPartition(TOPIC, 1)
PATIENCE_S = 5


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return run


@asynccontextmanager
async def reader(cluster: ScriptedCluster, **settings: Any) -> AsyncIterator[Consumer]:
    """A consumer of all partitions, from their beginning on; it fetches before it is polled."""
    quick: dict[str, Any] = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "fetch_max_wait_ms": 30}
    async with Consumer(cluster.bootstrap, **{"auto_offset_reset": "earliest", **quick, **settings}) as consumer:
        consumer.assign(TopicPartition(TOPIC, number) for number in cluster.leaders)
        yield consumer


async def values(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [record.value for record in await consumer.poll(5.0)]
    return found


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def once(answer: Callable[[Fetch], FetchResponse]) -> Callable[[Fetch], FetchResponse | None]:
    """Answers the first fetch so, and no other."""
    left = [answer]
    return lambda fetch: left.pop()(fetch) if left else None


@pytest.mark.parametrize("fetch_version", [4, 11, 12, 13, 17])
@in_a_loop
async def test_every_version_of_fetch_is_spoken(fetch_version: int) -> None:
    async with scripted_cluster(2, fetch_version=fetch_version) as cluster, reader(cluster) as consumer:
        cluster.write(0, b"a", b"b")
        assert await values(consumer, 2) == [b"a", b"b"]
        cluster.write(0, b"c")
        assert await values(consumer, 1) == [b"c"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.kafka_storage_error,
        ErrorCode.replica_not_available,
        ErrorCode.offset_not_available,
    ],
)
@in_a_loop
async def test_a_broker_that_says_that_we_are_wrong_makes_us_look_again(code: ErrorCode) -> None:
    async with scripted_cluster() as cluster, reader(cluster) as consumer:
        cluster.write(0, b"a")
        asked_before: list[int] = []

        def refuse(_: Fetch) -> FetchResponse:
            asked_before.append(cluster.metadata_requests)
            return cluster.response(cluster.refused(0, code))

        cluster.answers.append(once(refuse))
        assert await values(consumer, 1) == [b"a"]
        await until(lambda: cluster.metadata_requests > asked_before[0])


@pytest.mark.parametrize("code", [ErrorCode.unknown_leader_epoch, ErrorCode.unknown_server_error])
@in_a_loop
async def test_what_passes_by_itself_is_tried_again(code: ErrorCode) -> None:
    async with scripted_cluster() as cluster, reader(cluster) as consumer:
        cluster.write(0, b"a")
        cluster.answers.append(once(lambda _: cluster.response(cluster.refused(0, code))))
        assert await values(consumer, 1) == [b"a"]
        assert [fetch.wanted for fetch in cluster.fetches[:2]] == [{0: 0}, {0: 0}]


@in_a_loop
async def test_the_new_leader_is_read_on_from_where_the_old_one_stopped() -> None:
    async with scripted_cluster() as cluster, reader(cluster) as consumer:
        cluster.write(0, b"a")
        assert await values(consumer, 1) == [b"a"]
        cluster.leaders[0] = Leader(2, 1)
        cluster.answers.append(
            lambda fetch: (
                cluster.response(cluster.refused(0, ErrorCode.not_leader_or_follower)) if fetch.node == 1 else None
            )
        )
        cluster.write(0, b"b", epoch=1)
        assert await values(consumer, 1) == [b"b"]
        assert (cluster.fetches[-1].node, cluster.fetches[-1].request.topics[0][1][0].current_leader_epoch) == (2, 1)


@in_a_loop
async def test_a_leader_that_a_refusal_names_is_read_at_once() -> None:
    """Before the metadata know of it, or even of the broker; and without a look at them."""
    async with scripted_cluster(2) as cluster, reader(cluster) as consumer:
        cluster.listed = {1}
        cluster.write(0, b"a")
        assert await values(consumer, 1) == [b"a"]
        await consumer.client.fresh_metadata()
        asked_before = cluster.metadata_requests
        cluster.moved[0] = Leader(2, 1)
        cluster.write(0, b"b", epoch=1)
        assert await values(consumer, 1) == [b"b"]
        cluster.write(1, b"still at the first")
        assert await values(consumer, 1) == [b"still at the first"]
        assert cluster.metadata_requests == asked_before
        last = {number: fetch.node for fetch in cluster.fetches for number in fetch.wanted}
        assert last == {0: 2, 1: 1}


@in_a_loop
async def test_a_new_leader_that_lacks_what_we_read_is_noticed_before_anything_is_skipped() -> None:
    async with scripted_cluster() as cluster, reader(cluster) as consumer:
        cluster.write(0, b"a")
        cluster.write(0, b"b", b"lost", epoch=1)
        assert await values(consumer, 3) == [b"a", b"b", b"lost"]
        cluster.cut(0, 1)
        cluster.write(0, b"x", b"y", b"z", epoch=2)
        cluster.epoch_ends[0, 1] = (0, 1)
        cluster.leaders[0] = Leader(2, 2)
        cluster.answers.append(
            lambda fetch: (
                cluster.response(cluster.refused(0, ErrorCode.not_leader_or_follower)) if fetch.node == 1 else None
            )
        )
        assert await values(consumer, 3) == [b"x", b"y", b"z"]


@pytest.mark.parametrize(
    ("code", "error"),
    [(ErrorCode.corrupt_message, RecordError), (ErrorCode.topic_authorization_failed, RefusedError)],
)
@in_a_loop
async def test_what_only_the_user_can_cure_is_raised_by_poll_and_stops_no_other_partition(
    code: ErrorCode, error: type[Exception]
) -> None:
    async with scripted_cluster(2) as cluster, reader(cluster) as consumer:
        cluster.answers.append(
            lambda fetch: (
                cluster.response(
                    *(
                        cluster.refused(0, code) if number == 0 else cluster.found(number, offset)
                        for number, offset in fetch.wanted.items()
                    )
                )
                if 0 in fetch.wanted
                else None
            )
        )
        cluster.write(1, b"a")
        found: list[bytes] = []
        errors = 0
        while not found or errors < 2:
            try:
                found += await values(consumer, 1)
            except error:
                errors += 1
                cluster.write(1, b"more")
        assert found[0] == b"a"
        assert await consumer.position(PLACE) == 0


@in_a_loop
async def test_a_damaged_batch_stops_its_partition_until_somebody_seeks_past_it() -> None:
    async with scripted_cluster() as cluster, reader(cluster) as consumer:
        cluster.write(0, b"a")
        cluster.write(0, b"damaged")
        cluster.write(0, b"c")

        def damaged(fetch: Fetch) -> FetchResponse:
            found = cluster.found(0, fetch.wanted[0])
            records: Any = (found.records or b"").replace(b"damaged", b"dAmaged")
            return cluster.response(dataclasses.replace(found, records=records))

        cluster.answers.append(lambda fetch: damaged(fetch) if fetch.wanted.get(0, 9) < 2 else None)
        assert await values(consumer, 1) == [b"a"]
        for _ in range(2):
            with pytest.raises(RecordError, match="record 1"):
                await consumer.poll(5.0)
        assert await consumer.position(PLACE) == 1
        consumer.seek(PLACE, 2)
        assert await values(consumer, 1) == [b"c"]


def damaged_from(cluster: ScriptedCluster, offset: int) -> Callable[[Fetch], FetchResponse | None]:
    damaged = cluster.response(cluster.refused(0, ErrorCode.corrupt_message))
    return lambda fetch: damaged if fetch.wanted[0] == offset else None


@in_a_loop
async def test_what_arrived_before_an_error_is_handed_out_before_it() -> None:
    async with scripted_cluster() as cluster, reader(cluster, max_poll_records=1) as consumer:
        cluster.write(0, b"a", b"b")
        cluster.answers.append(damaged_from(cluster, 2))
        await until(lambda: len(cluster.fetches) >= 2)
        assert await values(consumer, 1) == [b"a"]
        assert await values(consumer, 1) == [b"b"]
        for _ in range(2):
            with pytest.raises(RecordError, match="record 2"):
                await consumer.poll(5.0)


@in_a_loop
async def test_an_error_of_a_position_that_was_left_is_none() -> None:
    async with scripted_cluster() as cluster, reader(cluster) as consumer:
        cluster.answers.append(damaged_from(cluster, 0))
        await until(lambda: cluster.fetches)
        consumer.seek(PLACE, 1)
        cluster.write(0, b"a", b"b")
        assert await values(consumer, 1) == [b"b"]


@pytest.mark.parametrize("code", [ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch])
@in_a_loop
async def test_a_session_names_only_what_changed_and_begins_anew_when_it_is_lost(code: ErrorCode) -> None:
    async with scripted_cluster(3) as cluster:
        holds: dict[int, int] = {}
        breaks = [False]

        def in_session(fetch: Fetch) -> FetchResponse:
            if breaks[0]:
                breaks[0] = False
                return cluster.response(error=code)
            if fetch.request.session_epoch == 0:
                holds.clear()
            holds.update(fetch.wanted)
            news = [cluster.found(n, offset) for n, offset in holds.items() if cluster.end_offset(n) > offset]
            return cluster.response(*news, session_id=7)

        cluster.answers.append(in_session)
        async with reader(cluster) as consumer:
            cluster.write(0, b"a")
            assert await values(consumer, 1) == [b"a"]
            await until(lambda: cluster.fetches[-1].request.session_epoch > 2)
            first, second, *later = [(fetch.request.session_id, fetch.wanted) for fetch in cluster.fetches]
            assert first == (0, {0: 0, 1: 0, 2: 0})
            assert second == (7, {0: 1})
            assert later[0] == (7, {})
            breaks[0] = True
            await until(lambda: not breaks[0])
            cluster.write(2, b"b")
            assert await values(consumer, 1) == [b"b"]
            again = next(fetch for fetch in cluster.fetches[2:] if fetch.request.session_epoch == 0)
            assert again.wanted == {0: 1, 1: 0, 2: 0}
            assert again.request.session_id == (0 if code is ErrorCode.fetch_session_id_not_found else 7)


@in_a_loop
async def test_a_paused_partition_leaves_the_requests_and_comes_back() -> None:
    async with scripted_cluster(2) as cluster, reader(cluster) as consumer:
        await until(lambda: cluster.fetches)
        consumer.pause([PLACE])
        await until(lambda: cluster.fetches[-1].wanted == {1: 0})
        cluster.write(0, b"a")
        cluster.write(1, b"b")
        assert await values(consumer, 1) == [b"b"]
        assert await consumer.poll(0.1) == []
        consumer.resume([PLACE])
        assert await values(consumer, 1) == [b"a"]


def prefers_broker_2(cluster: ScriptedCluster) -> Callable[[Fetch], FetchResponse | None]:
    def answer(fetch: Fetch) -> FetchResponse | None:
        if fetch.node == 2:
            return None
        nothing = cluster.found(0, cluster.end_offset(0))
        return cluster.response(dataclasses.replace(nothing, preferred_read_replica=BrokerId(2)))

    return answer


@in_a_loop
async def test_the_replica_that_the_leader_prefers_for_us_is_read() -> None:
    async with scripted_cluster() as cluster, reader(cluster, client_rack="rack-2") as consumer:
        cluster.answers.append(prefers_broker_2(cluster))
        cluster.write(0, b"a")
        assert await values(consumer, 1) == [b"a"]
        cluster.write(0, b"b")
        assert await values(consumer, 1) == [b"b"]
        assert [fetch.node for fetch in cluster.fetches][:3] == [1, 2, 2]


@in_a_loop
async def test_a_follower_that_is_behind_sends_us_back_to_the_leader_and_resets_nothing() -> None:
    async with scripted_cluster() as cluster, reader(cluster, client_rack="rack-2") as consumer:
        cluster.answers.append(once(lambda fetch: prefers_broker_2(cluster)(fetch) or cluster.response()))
        cluster.answers.append(
            lambda fetch: (
                cluster.response(cluster.refused(0, ErrorCode.offset_out_of_range)) if fetch.node == 2 else None
            )
        )
        cluster.write(0, b"a", b"b")
        assert await values(consumer, 2) == [b"a", b"b"]
        assert [fetch.node for fetch in cluster.fetches][:3] == [1, 2, 1]


@pytest.mark.parametrize("setting", ["fetch_min_bytes", "fetch_max_wait_ms"])
@in_a_loop
async def test_a_broker_that_may_not_wait_is_not_asked_without_end(setting: str) -> None:
    async with scripted_cluster() as cluster:
        cluster.answers.append(lambda fetch: cluster.response() if fetch.wanted.get(0) == 0 else None)
        async with reader(cluster, **{setting: 0}):
            await until(lambda: cluster.fetches)
            await asyncio.sleep(0.2)
            assert 3 < len(cluster.fetches) < 50


@in_a_loop
async def test_an_answer_to_a_position_that_was_left_is_not_handed_out() -> None:
    async with scripted_cluster() as cluster, reader(cluster, fetch_max_wait_ms=200) as consumer:
        await until(lambda: cluster.fetches)
        consumer.seek(PLACE, 2)
        cluster.write(0, b"a", b"b", b"c", b"d")
        assert await values(consumer, 2) == [b"c", b"d"]


@in_a_loop
async def test_no_more_waits_than_the_bound_and_a_broker_has_one_fetch_at_a_time() -> None:
    size_bytes, bound_bytes, partitions = 1000, 20_000, 8
    async with scripted_cluster(partitions) as cluster:
        for partition in range(partitions):
            if partition % 2:
                cluster.leaders[partition] = Leader(2, 0)
            for _ in range(50):
                cluster.write(partition, bytes(size_bytes))

        def within_the_limit(fetch: Fetch) -> FetchResponse | None:
            # As brokers have it: the first batch whatever its size, others only where they fit.
            room = max(fetch.request.max_bytes, size_bytes + 100)
            answers = []
            for number, offset in fetch.wanted.items():
                answers.append(cluster.found(number, offset, max_bytes=room))
                room -= len(answers[-1].records or b"")
            return cluster.response(*answers) if any(answer.records for answer in answers) else None

        cluster.answers.append(within_the_limit)
        async with reader(cluster, prefetch_max_bytes=bound_bytes) as consumer:
            await consumer.position(PLACE)
            most = 0
            handed_out = 0
            while handed_out < 50 * partitions:
                await asyncio.sleep(0.01)
                records = await consumer.poll(5.0, max_records=7)
                handed_out += len(records)
                most = max(most, consumer.waiting_bytes())
            assert bound_bytes / 2 < most <= bound_bytes + 2 * (size_bytes + 100)
        assert cluster.most_at_once == 1


@in_a_loop
async def test_where_room_is_short_a_busy_broker_does_not_keep_another_from_its_turn() -> None:
    async with scripted_cluster(2) as cluster:
        cluster.leaders[1] = Leader(2, 0)
        for _ in range(200):
            cluster.write(0, bytes(1000))
        cluster.answers.append(
            lambda fetch: (
                cluster.response(cluster.found(0, fetch.wanted[0], max_bytes=2000)) if fetch.node == 1 else None
            )
        )
        async with reader(cluster, prefetch_max_bytes=5000, fetch_max_wait_ms=10) as consumer:
            seen: list[int] = []
            while 1 not in seen:
                seen += [record.partition for record in await consumer.poll(5.0, max_records=1)]
                if len(seen) == 20:
                    cluster.write(1, b"here I am")
                await asyncio.sleep(0.005)
            assert len(seen) < 40


@in_a_loop
async def test_the_end_of_a_consumer_is_the_end_of_its_sessions() -> None:
    async with scripted_cluster() as cluster:
        cluster.write(0, b"a")
        cluster.answers.append(
            lambda fetch: cluster.response(*(cluster.found(n, o) for n, o in fetch.wanted.items()), session_id=77)
        )
        async with reader(cluster) as consumer:
            assert await values(consumer, 1) == [b"a"]
            await until(lambda: cluster.fetches[-1].request.session_id == 77)
        last = cluster.fetches[-1].request
        assert (last.session_id, last.session_epoch, last.topics) == (77, -1, [])


@in_a_loop
async def test_a_broker_that_does_not_answer_does_not_keep_a_consumer_from_its_end() -> None:
    async with scripted_cluster() as cluster:
        cluster.answers.append(lambda _: cluster.response(session_id=77))
        async with reader(cluster) as consumer:
            await consumer.poll(0.1)
            await until(lambda: cluster.fetches and cluster.fetches[-1].request.session_id == 77)
            cluster.silent.add(1)
            began_s = time.monotonic()
        assert cluster.fetches[-1].request.session_epoch == -1
        assert time.monotonic() - began_s < PATIENCE_S / 2


@in_a_loop
async def test_what_a_broker_keeps_back_as_damaged_is_skipped_on_request(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_cluster() as cluster, reader(cluster, corrupt_records="skip") as consumer:
        cluster.write(0, b"a", b"b", b"c", b"d")
        refused = cluster.response(cluster.refused(0, ErrorCode.corrupt_message))
        cluster.answers.append(lambda fetch: refused if fetch.wanted.get(0) in (0, 1, 2) else None)
        assert await values(consumer, 1) == [b"d"]
        assert consumer.statistics.corrupt_batches == 3
        assert await consumer.position(PLACE) == 4
    assert "skipped offset 1 of partition orders-0 (0 bytes): the broker finds its batch damaged" in caplog.text


@in_a_loop
async def test_nothing_is_skipped_that_was_not_written_yet() -> None:
    async with scripted_cluster() as cluster, reader(cluster, corrupt_records="skip") as consumer:
        cluster.write(0, b"a", b"b")
        assert await values(consumer, 2) == [b"a", b"b"]
        # At the end of the log it sends the old records again and again.
        cluster.answers.append(
            lambda fetch: cluster.response(cluster.found(0, 0)) if fetch.wanted.get(0) == 2 else None
        )
        await consumer.poll(0.5)
        assert (await consumer.position(PLACE), consumer.statistics.corrupt_batches) == (2, 0)
        assert len(cluster.fetches) < 200, "it is asked without a pause"
        cluster.answers.clear()
        cluster.write(0, b"c")
        assert await values(consumer, 1) == [b"c"]


@in_a_loop
async def test_a_listener_that_fails_skips_nothing_and_is_told_again() -> None:
    told: list[int] = []

    def refuse_once(batch: CorruptBatch) -> None:
        told.append(batch.first_offset)
        if len(told) == 1:
            raise OSError("the disk is full")

    settings = {"corrupt_records": "skip", "corrupt_records_listener": refuse_once}
    async with scripted_cluster() as cluster, reader(cluster, **settings) as consumer:
        cluster.write(0, b"a", b"b")
        cluster.answers.append(damaged_from(cluster, 0))
        with pytest.raises(RecordError, match=r"listener of corrupt records failed on it: OSError\('the disk is full'"):
            await consumer.poll(5.0)
        assert await values(consumer, 1) == [b"b"]
        assert told == [0, 0]


@in_a_loop
async def test_an_error_that_nobody_knows_yet_passes() -> None:
    async with scripted_cluster() as cluster, reader(cluster) as consumer:
        cluster.write(0, b"a")
        unknown: Any = 9999
        strange = dataclasses.replace(cluster.refused(0, ErrorCode.unknown_server_error), error_code=unknown)
        cluster.answers.append(once(lambda fetch: cluster.response(strange)))
        assert await values(consumer, 1) == [b"a"]
