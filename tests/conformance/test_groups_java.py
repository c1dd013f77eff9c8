"""Groups with Apache's own Java consumer, and its ConsumerGroupCommand: what it prints is the same for both brokers."""

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.apache import ToolFailedError, run_tool
from peers.presence import require_apache
from peers.telling import follow_until
from peers.verifiable import VerifiableConsumer

from .actions import Topic, create_topic, eventually, produce_ok, unique_name
from .batches import AN_HOUR_AGO_MS, Record, batch
from .confluent_members import Member, Members
from .conftest import Broker
from .raw_groups import committed, new_group, offsets_to_commit, wait_for_group_coordinator
from .side_by_side import assert_same, on_each
from .wire import Wire

pytestmark = pytest.mark.peer
BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])
# A broker makes ids of hexadecimal digits, librdkafka of 22 characters in base 64.
MADE_UP_ID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<!\S)[A-Za-z0-9_/+-]{22}(?!\S)"


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_apache()


def groups_command(broker: Broker, *arguments: str) -> list[str]:
    """What it prints, as rows of words in a settled order, with ids and ports made alike."""
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    try:
        said = run_tool(command, "--bootstrap-server", broker.bootstrap, *arguments)
    except ToolFailedError as error:
        said = str(error).partition("\n")[2]
    said = re.sub(MADE_UP_ID, "<id>", said.replace(broker.bootstrap, "<broker>"))
    # Each broker has its own words for errors.
    said = re.sub(r"(GroupIdNotFoundException): .*", r"\1", said)
    return sorted(" ".join(line.split()) for line in said.splitlines() if line.strip())


@BOTH
def test_java_consumers_share_a_topic(broker: Broker, wire: Wire, tmp_path: Path, protocol: str) -> None:
    topic, group = create_topic(wire, partitions=4), new_group(wire)
    arguments = (broker.bootstrap, group, topic.name)
    first = VerifiableConsumer(*arguments, tmp_path / "1", "--group-protocol", protocol)
    second = VerifiableConsumer(*arguments, tmp_path / "2", "--group-protocol", protocol)
    with first, second:
        follow_until(lambda: len(first.owned) == len(second.owned) == 2, "two partitions each", first, second)
        assert not first.owned & second.owned
        for partition in range(4):
            produce_ok(wire, topic, batch(*(b"%d" % number for number in range(50))), partition=partition)
        follow_until(lambda: (first.consumed, second.consumed) == (100, 100), "all records", first, second)
        first.stop()
        assert first.events[-1]["name"] == "shutdown_complete"
        follow_until(lambda: len(second.owned) == 4, "all partitions", second)
        produce_ok(wire, topic, batch(b"one more"), partition=0)
        follow_until(lambda: second.consumed == 101, "the last record", second)
        eventually(lambda: total(wire, group, topic) == 201, "the last commit")
        commits = [event for one in (first, second) for event in one.events if event["name"] == "offsets_committed"]
        assert all(event["success"] for event in commits)


def test_java_consumers_are_upgraded_one_by_one(broker: Broker, wire: Wire, tmp_path: Path) -> None:
    """Two cooperative members of a classic group make place for one of the new protocol, then leave it alone."""
    topic, group = create_topic(wire, partitions=4), new_group(wire)
    arguments = (broker.bootstrap, group, topic.name)
    cooperative = ("--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    old = [VerifiableConsumer(*arguments, tmp_path / f"old-{number}", *cooperative) for number in range(2)]
    with old[0], old[1]:
        follow_until(lambda: [len(member.owned) for member in old] == [2, 2], "two partitions each", *old)
        eventually(lambda: group_entry(wire, group) == ("classic", "Stable"), "a stable classic group")
        with VerifiableConsumer(*arguments, tmp_path / "new", "--group-protocol", "consumer") as new:
            everybody = (*old, new)
            follow_until(lambda: sorted(len(each.owned) for each in everybody) == [1, 1, 2], "a share each", *everybody)
            assert group_entry(wire, group)[0] == "consumer"
            for member in old:
                member.stop()
            follow_until(lambda: len(new.owned) == 4, "all partitions", new)
            assert group_entry(wire, group) == ("consumer", "Stable")


def group_entry(wire: Wire, group: str) -> tuple[str, str]:
    """The type and state of a group, as the list of all groups has them."""
    return next(
        (found.group_type, found.group_state) for found in wire.send("list_groups").groups if found.group_id == group
    )


def total(wire: Wire, group: str, topic: Topic) -> int:
    return sum(found.committed_offset for found in committed(wire, group, topic, range(4)).values())


def test_a_verifiable_producer_is_acknowledged_for_each_record(broker: Broker, wire: Wire) -> None:
    topic = create_topic(wire, partitions=2)
    arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic.name, "--max-messages", "300")
    said = run_tool("org.apache.kafka.tools.VerifiableProducer", *arguments)
    assert said.count('"name":"producer_send_success"') == 300
    assert '"sent":300,"acked":300' in said


@BOTH
def test_console_consumer_in_a_group_goes_on_where_it_stopped(broker: Broker, wire: Wire, protocol: str) -> None:
    topic, group = create_topic(wire), new_group(wire)
    produce_ok(wire, topic, batch(b"one", b"two", b"three"))
    arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic.name, "--group", group)
    properties = ("--consumer-property", f"group.protocol={protocol}", "--from-beginning", "--timeout-ms", "20000")

    def read(count: int) -> list[str]:
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        return run_tool(tool, *arguments, *properties, "--max-messages", str(count)).split()

    assert read(2) == ["one", "two"]
    assert committed(wire, group, topic)[0].committed_offset == 2
    assert read(1) == ["three"]


class Scene:
    """The same groups on either broker: a classic one and one of the new protocol, both in use, and an idle one."""

    def __init__(self, broker: Broker, names: dict[str, str]) -> None:
        self.broker = broker
        with Wire(broker.bootstrap) as wire:
            self.topic = create_topic(wire, partitions=2, name=names["topic"])
            records = [Record(value=b"%d" % n, timestamp_ms=AN_HOUR_AGO_MS + 1000 * n) for n in range(10)]
            produce_ok(wire, self.topic, batch(*records), partition=0)
            produce_ok(wire, self.topic, batch(*records[:4]), partition=1)
            for group in names.values():
                wait_for_group_coordinator(wire, group)
            idle = {"group_id": names["idle"], "topics": offsets_to_commit(self.topic, {0: 3, 1: 1})}
            wire.send("offset_commit", **idle)

    @contextlib.contextmanager
    def in_use(self, names: dict[str, str]) -> Iterator[None]:
        """Members that have read and committed all, each in its group."""
        range_ = {"partition.assignment.strategy": "range", "group.instance.id": "the-instance"}
        with (
            Members(self.broker, names["classic"], **range_) as classic,
            Members(self.broker, names["new"], **{"group.protocol": "consumer"}) as new,
        ):
            for members in (classic, new):
                member = members.start("ann", self.topic.name)
                members.until(functools.partial(_has_all, member), "all records")
                member.consumer.commit(asynchronous=False)
            yield


def _has_all(member: Member) -> bool:
    return len(member.received) == 14


@pytest.fixture
def names() -> dict[str, str]:
    """Names that both brokers use, so that columns are equally wide. None is as long as an id that was made up."""
    return {key: unique_name(f"{key}-with-a-long-name") for key in ("topic", "classic", "new", "idle")}


def test_consumer_group_command_lists_and_describes_the_same(
    brokers: tuple[Broker, Broker], names: dict[str, str]
) -> None:
    chosen = [part for key in ("classic", "new", "idle") for part in ("--group", names[key])]

    def story(broker: Broker) -> list[list[str]]:
        with Scene(broker, names).in_use(names):
            listed = [groups_command(broker, "--list", *more) for more in (("--state",), ("--type",))]
            described = [
                groups_command(broker, "--describe", *chosen, *more)
                for more in ((), ("--members", "--verbose"), ("--state", "--verbose"))
            ]
        return [[row for row in found if row.split()[0] in names.values()] for found in listed] + described

    states, types, offsets, members, summary = assert_same(on_each(brokers, story))
    classic, new, idle, topic = (names[key] for key in ("classic", "new", "idle", "topic"))
    assert set(states) == {f"{classic} Stable", f"{new} Stable", f"{idle} Empty"}
    assert set(types) == {f"{classic} Classic", f"{new} Consumer", f"{idle} Classic"}
    assert f"{classic} {topic} 0 10 10 0 the-instance-<id> /127.0.0.1 ann" in offsets
    assert f"{new} {topic} 1 4 4 0 <id> /127.0.0.1 ann" in offsets
    assert f"{idle} {topic} 0 3 10 7 - - -" in offsets
    assert f"{new} <id> /127.0.0.1 ann 2 1 {topic}:0,1 1 {topic}:0,1" in members
    assert f"{classic} <broker> (1) range Stable - - 1" in summary


def test_consumer_group_command_resets_the_same(
    brokers: tuple[Broker, Broker], names: dict[str, str], tmp_path: Path
) -> None:
    group = ("--group", names["idle"])
    scope = (*group, "--topic", names["topic"])

    def story(broker: Broker) -> list[list[str]]:
        scene = Scene(broker, names)
        plan = tmp_path / f"{broker.name}.csv"
        plan.write_text(f"{names['topic']},0,7\n{names['topic']},1,2\n")
        ways = [
            ("--to-earliest", *scope),
            ("--shift-by", "-2", "--export", *scope),
            ("--to-datetime", "2020-01-01T00:00:00.000", *group, "--all-topics", "--execute"),
            ("--from-file", str(plan), *group, "--execute"),
        ]
        said = [groups_command(broker, "--reset-offsets", *way) for way in ways]
        with Wire(broker.bootstrap) as wire:
            after = committed(wire, names["idle"], scene.topic, [0, 1])
        assert [after[partition].committed_offset for partition in (0, 1)] == [7, 2]
        return said

    said = assert_same(on_each(brokers, story))
    assert said[0][-1].split()[-1] == "0"


def test_consumer_group_command_refuses_and_deletes_the_same(
    brokers: tuple[Broker, Broker], names: dict[str, str]
) -> None:
    def story(broker: Broker) -> list[list[str]]:
        scene = Scene(broker, names)
        with scene.in_use(names):
            topic = ("--topic", names["topic"])
            said = [
                groups_command(broker, "--reset-offsets", "--group", names["classic"], *topic, "--to-earliest"),
                groups_command(broker, "--delete-offsets", "--group", names["classic"], *topic),
                groups_command(broker, "--delete", "--group", names["classic"], "--group", names["idle"]),
            ]
        said.append(groups_command(broker, "--describe", "--group", names["idle"]))
        return said

    said = assert_same(on_each(brokers, story))
    assert "Assignments can only be reset if the group" in " ".join(said[0])
    assert "GroupIdNotFoundException" in said[-1][0]
