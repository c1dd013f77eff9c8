"""Admin with brokers that are not as usual: small pages, several log dirs, old versions, or not there at all."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from headwater.admin import CommittedOffset, ConfigChange, ConfigResource, MemberName, NewTopic, Spot
from headwater.aio import Admin
from headwater.client.errors import CannotConnectError, UnsupportedError
from headwater.config.errors import ConfigError
from headwater.testing import LocalBroker
from headwater.types import TopicPartition
from peers.headwater import HeadwaterProcess

T = TypeVar("T")

LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR, LEAVE_GROUP, LIST_GROUPS, DELETE_TOPICS = (
    2,
    3,
    9,
    10,
    13,
    16,
    20,
)
DESCRIBE_CLUSTER, LIST_TRANSACTIONS, CONSUMER_GROUP_DESCRIBE, DESCRIBE_TOPIC_PARTITIONS = 60, 66, 69, 75


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [tmp_path_factory.mktemp(name) for name in ("first", "second")]


@pytest.fixture(scope="module")
def bootstrap(log_dirs: list[Path]) -> Iterator[str]:
    """A broker that describes two partitions a page, and has two log dirs."""
    config = {"max.request.partition.size.limit": "2", "log.dirs": ",".join(map(str, log_dirs))}
    with LocalBroker(config=config) as broker:
        yield broker.bootstrap


def with_admin(
    bootstrap: str,
    use: Callable[[Admin], Awaitable[T]],
    *,
    lacking: dict[int, int] | None = None,
    patience_ms: int = 5_000,
) -> T:
    """Runs `use` with an Admin that takes the broker for an older one: `lacking` is the newest version of some APIs."""

    async def run() -> T:
        async with Admin(bootstrap, default_api_timeout_ms=patience_ms) as admin:
            connection = await admin.client.connection()
            for key, newest in (lacking or {}).items():
                connection.versions[key] = (0, newest)
            return await use(admin)

    return asyncio.run(run())


def test_a_description_of_many_pages_is_whole(bootstrap: str) -> None:
    async def use(admin: Admin) -> None:
        sizes = {"pages-a": 5, "pages-b": 1, "pages-c": 4}
        new = [NewTopic(name, partitions=partitions) for name, partitions in sizes.items()]
        (await admin.create_topics(new)).or_raise()
        found = await admin.describe_topics(["pages-c", "pages-absent", "pages-a", "pages-b"])
        assert list(found) == ["pages-c", "pages-absent", "pages-a", "pages-b"]
        assert list(found.failed) == ["pages-absent"]
        for name, partitions in sizes.items():
            assert [part.partition for part in found.one(name).partitions] == list(range(partitions))

    with_admin(bootstrap, use)


def test_a_broker_without_that_page_api_describes_the_same(bootstrap: str) -> None:
    async def use(admin: Admin) -> None:
        await admin.create_topic("older", partitions=3)
        (described,) = (await admin.describe_topics(["older"])).or_raise().values()
        assert [(part.leader, part.eligible_leaders) for part in described.partitions] == [(1, None)] * 3

    with_admin(bootstrap, use, lacking={DESCRIBE_TOPIC_PARTITIONS: -1})


def test_a_broker_without_consumer_groups_describes_classic_ones(bootstrap: str) -> None:
    async def use(admin: Admin) -> None:
        await admin.create_topic("read", partitions=1)
        (await admin.alter_group_offsets("readers", {TopicPartition("read", 0): 0})).or_raise()
        assert (await admin.describe_group("readers")).state == "Empty"

    with_admin(bootstrap, use, lacking={CONSUMER_GROUP_DESCRIBE: -1})


def test_coordinators_are_found_one_by_one_where_the_broker_is_too_old_for_more(bootstrap: str) -> None:
    async def use(admin: Admin) -> None:
        await admin.create_topic("coordinated", partitions=1)
        groups = [f"coordinated-{number}" for number in range(40)]
        for group in groups:
            (await admin.alter_group_offsets(group, {TopicPartition("coordinated", 0): 0})).or_raise()
        assert [group.state for group in (await admin.describe_groups(groups)).or_raise().values()] == ["Empty"] * 40

    with_admin(bootstrap, use)
    with_admin(bootstrap, lambda admin: admin.delete_topic("coordinated"))
    with_admin(bootstrap, use, lacking={FIND_COORDINATOR: 3})


def test_offsets_of_many_groups_are_one_request_or_one_each_where_the_broker_is_older(bootstrap: str) -> None:
    groups = {f"offsets-{number}": number for number in range(40)}
    zero, one = TopicPartition("offsets", 0), TopicPartition("offsets", 1)

    async def commit(admin: Admin) -> None:
        await admin.create_topic("offsets", partitions=2)
        for group, offset in groups.items():
            (await admin.alter_group_offsets(group, {zero: 0 if offset % 2 else offset, one: 7})).or_raise()

    async def use(admin: Admin) -> int:
        await admin.list_group_offsets("offsets-0")  # all connections are open after this
        before = requests_of(admin)
        found = (await admin.list_groups_offsets([*groups, "offsets-absent"])).or_raise()
        sent = requests_of(admin) - before
        assert {group: offsets.get(zero) for group, offsets in found.items()} == {
            **{group: CommittedOffset(0 if offset % 2 else offset) for group, offset in groups.items()},
            "offsets-absent": None,
        }
        assert (await admin.list_groups_offsets({"offsets-2": [zero], "offsets-3": [one]})).or_raise() == {
            "offsets-2": {zero: CommittedOffset(2)},
            "offsets-3": {one: CommittedOffset(7)},
        }
        return sent

    def requests_of(admin: Admin) -> int:
        return sum(one["requests"] for one in admin.statistics.snapshot()["connections"].values())

    with_admin(bootstrap, commit)
    assert with_admin(bootstrap, use) == 2  # where the coordinators are, and what is committed there
    assert with_admin(bootstrap, use, lacking={OFFSET_FETCH: 7}) > 40


UNKNOWN_ID = UUID(int=7)
UNSERVED: dict[str, tuple[dict[int, int], Callable[[Admin], Awaitable[object]]]] = {
    "does not serve DescribeCluster": ({DESCRIBE_CLUSTER: -1}, lambda admin: admin.describe_cluster()),
    "list fenced brokers: it serves DescribeCluster up to version 1": (
        {DESCRIBE_CLUSTER: 1},
        lambda admin: admin.describe_cluster(include_fenced_brokers=True),
    ),
    "select groups by their state: it serves ListGroups up to version 3": (
        {LIST_GROUPS: 3},
        lambda admin: admin.list_groups(states=["Empty"]),
    ),
    "select groups by their type: it serves ListGroups up to version 4": (
        {LIST_GROUPS: 4},
        lambda admin: admin.list_groups(types=["classic"]),
    ),
    "select transactions by duration": (
        {LIST_TRANSACTIONS: 0},
        lambda admin: admin.list_transactions(longer_than_ms=1),
    ),
    "select transactions by a pattern": ({LIST_TRANSACTIONS: 1}, lambda admin: admin.list_transactions(id_pattern="a")),
    "take members out of a group": (
        {LEAVE_GROUP: 2},
        lambda admin: admin.remove_members("readers", [MemberName("one")]),
    ),
    "delete topics by their ids": ({DELETE_TOPICS: 5}, lambda admin: admin.delete_topic(UNKNOWN_ID)),
    "describe topics by their ids": ({METADATA: 11}, lambda admin: admin.describe_topic(UNKNOWN_ID)),
}


@pytest.mark.parametrize("words", UNSERVED)
def test_what_a_broker_is_too_old_for_is_named_with_the_broker(bootstrap: str, words: str) -> None:
    lacking, use = UNSERVED[words]
    with pytest.raises(UnsupportedError, match=words) as caught:
        with_admin(bootstrap, use, lacking=lacking)
    assert bootstrap in str(caught.value)


def test_offsets_that_an_old_broker_cannot_look_up_are_not_asked_for(bootstrap: str) -> None:
    async def use(admin: Admin) -> None:
        await admin.create_topic("timed", partitions=1)
        place = TopicPartition("timed", 0)
        assert (await admin.list_offsets([place], Spot.EARLIEST)).one(place).offset == 0
        with pytest.raises(UnsupportedError, match="look up MAX_TIMESTAMP: it serves ListOffsets up to version 6"):
            await admin.list_offsets([place], Spot.MAX_TIMESTAMP)

    with_admin(bootstrap, use, lacking={LIST_OFFSETS: 6})


def test_a_replica_moves_to_another_log_dir(bootstrap: str, log_dirs: list[Path]) -> None:
    async def use(admin: Admin) -> None:
        await admin.create_topic("moving", partitions=1)
        place = TopicPartition("moving", 0)

        async def home() -> str:
            found = (await admin.describe_log_dirs(partitions=[place])).one(1)
            assert [log_dir.path for log_dir in found] == [str(path) for path in log_dirs]
            (there,) = [d.path for d in found for replica in d.replicas if not replica.is_future]
            return there

        (other,) = {str(path) for path in log_dirs} - {await home()}
        (await admin.alter_replica_log_dirs(1, other, [place])).or_raise()
        async with asyncio.timeout(10):
            while await home() != other:
                await asyncio.sleep(0.01)

    with_admin(bootstrap, use)


def test_a_broker_that_is_not_there_fails_alone_and_at_once(bootstrap: str) -> None:
    async def use(admin: Admin) -> None:
        async with asyncio.timeout(2):
            found = await admin.describe_log_dirs([1, 99])
            assert (list(found.succeeded), str(found[99])) == (
                [1],
                "broker 99 is not part of the cluster, or not running",
            )
            configs = await admin.describe_configs([ConfigResource.broker(1), ConfigResource.broker(99)])
            assert list(configs.failed) == [ConfigResource.broker(99)]
            with pytest.raises(CannotConnectError, match="broker 99"):
                await admin.alter_config(ConfigResource.broker(99), [ConfigChange.delete("log.retention.ms")])
            with pytest.raises(CannotConnectError, match="broker 99"):
                await admin.alter_replica_log_dirs(99, "/nowhere", [TopicPartition("moving", 0)])

    with_admin(bootstrap, use)


def test_calls_outlast_a_restart_of_the_broker(tmp_path: Path) -> None:
    place = TopicPartition("kept", 0)

    async def use(admin: Admin) -> None:
        await admin.create_topic(place.topic, partitions=1)
        (await admin.alter_group_offsets("readers", {place: 0})).or_raise()
        await asyncio.to_thread(broker.stop)
        calls = asyncio.gather(
            admin.list_offsets([place]),
            admin.describe_group("readers"),
            admin.create_topic("later"),
            admin.list_topics(),
        )
        await asyncio.to_thread(broker.start)
        offsets, group, created, _ = await calls
        assert (offsets.one(place).offset, group.state, created.name) == (0, "Empty", "later")

    with HeadwaterProcess(tmp_path) as broker:
        with_admin(broker.bootstrap, use, patience_ms=20_000)


def test_nothing_asked_for_is_nothing_asked(bootstrap: str) -> None:
    async def use(admin: Admin) -> None:
        assert await admin.create_topics([]) == {}
        assert await admin.describe_topics([]) == {}
        assert await admin.list_offsets([]) == {}
        assert await admin.describe_groups([]) == {}
        assert await admin.alter_group_offsets("nobody", {}) == {}
        assert await admin.delete_group_offsets("nobody", []) == {}

    with_admin(bootstrap, use)


def test_without_any_broker_the_call_fails_at_once() -> None:
    async def run() -> None:
        async with Admin("localhost:1") as admin, asyncio.timeout(5):
            with pytest.raises(CannotConnectError, match="localhost:1"):
                await admin.create_topic("orders", partitions=3)
            with pytest.raises(CannotConnectError, match="localhost:1"):
                await admin.describe_groups(["billing"])
            with pytest.raises(CannotConnectError, match="localhost:1"):
                await admin.list_offsets([TopicPartition("orders", 0)])

    asyncio.run(run())


def test_settings_have_kafkas_names_and_a_wrong_one_is_named() -> None:
    async def run() -> None:
        given = {"bootstrap.servers": "a:1,b:2", "request.timeout.ms": "2000", "client.id": "ops"}
        async with Admin.from_config(given) as admin:
            client = admin.client
            assert (client.settings.client_id, client.timeout_s, client.patience_s) == ("ops", 2.0, 60.0)
        async with Admin("a:1", default_api_timeout_ms=1500) as admin:
            assert (admin.client.patience_s, admin.client.settings.client_id) == (1.5, "headwater-admin")

    asyncio.run(run())
    with pytest.raises(ConfigError, match=r"request\.timeout\.ms"):
        Admin("a:1", request_timeout="5")
    with pytest.raises(ConfigError, match="servers is not set"):
        Admin.from_config({"client.id": "ops"})


def test_a_topic_with_assignments_needs_no_numbers() -> None:
    with pytest.raises(ValueError, match="topic orders: assignments say already"):
        NewTopic("orders", partitions=1, assignments={0: [1]})
