"""Groups from the command line, on headwater and on Apache Kafka alike."""

import csv
import io
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from peers.apache import run_tool
from peers.presence import require_apache

from .cli_runner import HEADWATER, Cli
from .group_members import commit, members

CONSUMER_GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
# The three kinds of member that a description has to read.
KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "static": {"group_instance_id": "counter"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=["headwater", "apache"])
def cli(request: pytest.FixtureRequest) -> Cli:
    """Each case runs once against either."""
    return Cli(request.getfixturevalue(request.param).bootstrap)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(cli: Cli) -> str:
    """A topic of two partitions with ten records in each."""
    name = cli.new_topic("--partitions", "2")
    for partition in range(2):
        cli.ok("produce", name, "--partition", str(partition), stdin="".join(f"{n}\n" for n in range(10)))
    return name


def kafkas_rows(cli: Cli, *arguments: str) -> list[list[str]]:
    """What Apache's own tool prints about the same cluster, without its heading."""
    printed = run_tool(CONSUMER_GROUP_COMMAND, "--bootstrap-server", cli.bootstrap, *arguments)
    return sorted(line.split() for line in printed.splitlines() if line and not line.startswith("GROUP"))


def committed(cli: Cli, group: str) -> dict[int, int]:
    (described,) = cli("groups", "describe", group, "--json").json
    return {row["partition"]: row["current_offset"] for row in described["partitions"]}


def test_groups_are_listed_by_state_and_type(cli: Cli, topic: str, group: str) -> None:
    commit(cli.bootstrap, group, {(topic, 0): 1})
    with (
        members(cli.bootstrap, f"{group}-old", [topic], partitions=2),
        members(cli.bootstrap, f"{group}-new", [topic], partitions=2, group_protocol="consumer"),
    ):

        def listed(*options: str) -> list[list[str]]:
            return [row for row in cli.ok("groups", "list", *options).rows if row[0].startswith(group)]

        empty = [group, "Classic", "-", "Empty"]
        new = [f"{group}-new", "Consumer", "consumer", "Stable"]
        old = [f"{group}-old", "Classic", "consumer", "Stable"]
        assert listed() == [empty, new, old]
        assert listed("--state", "stable", "--type", "classic") == [old]
        assert listed("--type", "consumer") == [new]
        assert listed("--state", "empty", "--state", "dead") == [empty]
        assert cli.ok("groups", "list").out.splitlines()[0].split() == ["GROUP", "TYPE", "PROTOCOL", "STATE"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_described_with_lag_and_owner_of_each_partition(cli: Cli, topic: str, group: str, kind: str) -> None:
    with members(cli.bootstrap, group, [topic], partitions=2, **KINDS[kind]) as (consumer,):
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        heading, *rows = [line.split() for line in cli.ok("groups", "describe", group).out.splitlines()]
        assert heading == (
            ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
        )
        owner = rows[0][5:]
        assert owner[2] == "till-0"
        assert rows == [[topic, "0", "4", "10", "6", *owner], [topic, "1", "-", "10", "-", *owner]]

        state = cli.ok("groups", "describe", group, "--state")
        assert state.out.splitlines()[0].split() == [
            "GROUP",
            "COORDINATOR",
            "(ID)",
            "ASSIGNMENT-STRATEGY",
            "STATE",
            "#MEMBERS",
        ]
        strategy = "uniform" if kind == "consumer" else "range"
        assert state.rows == [[group, cli.bootstrap, "(1)", strategy, "Stable", "1"]]

        (member,) = cli.ok("groups", "members", group, "--verbose").rows
        static = ["counter"] if kind == "static" else []
        assert member == [owner[0], *static, *owner[1:], "2", f"{topic}:0,1"]


@pytest.mark.peer
@pytest.mark.parametrize("kind", KINDS)
def test_descriptions_are_those_of_kafkas_own_tool(cli: Cli, topic: str, group: str, kind: str) -> None:
    require_apache()
    with members(
        cli.bootstrap, group, [topic], partitions=2, count=1 if kind == "static" else 2, **KINDS[kind]
    ) as all_of_them:
        first = all_of_them[0].assignment()[0]
        all_of_them[0].commit(offsets=[TopicPartition(topic, first.partition, 4)], asynchronous=False)
        ours = [[group, *row] for row in cli.ok("groups", "describe", group).rows]
        assert sorted(ours) == kafkas_rows(cli, "--describe", "--group", group)

        ours = [[group, *row] for row in cli.ok("groups", "members", group).rows]
        assert sorted(ours) == kafkas_rows(cli, "--describe", "--group", group, "--members")

        ours = cli.ok("groups", "describe", group, "--state").rows
        assert ours == kafkas_rows(cli, "--describe", "--group", group, "--state")


def test_a_group_without_members_shows_its_offsets_and_says_so(cli: Cli, topic: str, group: str) -> None:
    commit(cli.bootstrap, group, {(topic, 1): 10, (topic, 0): 3})
    done = cli("groups", "describe", group)
    assert done.code == 0
    assert done.rows == [[topic, "0", "3", "10", "7", "-", "-", "-"], [topic, "1", "10", "10", "0", "-", "-", "-"]]
    assert done.err == f"headwater: group {group} has no active members\n"
    assert cli("groups", "members", group).err == done.err


def test_several_groups_are_told_apart_and_one_that_is_missing_hides_no_other(cli: Cli, topic: str, group: str) -> None:
    commit(cli.bootstrap, group, {(topic, 0): 1})
    done = cli("groups", "describe", "no-such-group", group)
    assert done.code == 1
    assert done.rows == [[group, topic, "0", "1", "10", "9", "-", "-", "-"]]
    assert "headwater: group no-such-group: no such group; `headwater groups list` shows all\n" in done.err
    everything = cli("groups", "describe", "--all", "--state", "--json")
    assert everything.code == 0
    assert (group, "Empty", 0) in [(found["group"], found["state"], found["members"]) for found in everything.json]


def test_json_has_everything_a_machine_wants(cli: Cli, topic: str, group: str) -> None:
    with members(cli.bootstrap, group, [topic], partitions=2, group_protocol="consumer") as (consumer,):
        consumer.commit(offsets=[TopicPartition(topic, 1, 10)], asynchronous=False)
        (found,) = cli.ok("groups", "describe", group, "--json").json
        (member,) = cli.ok("groups", "members", group, "--json").json
    partitions = found.pop("partitions")
    assert found == {
        "group": group,
        "type": "Consumer",
        "state": "Stable",
        "coordinator": 1,
        "coordinator_address": cli.bootstrap,
        "assignment_strategy": "uniform",
        "members": 1,
    }
    assert [(row["partition"], row["current_offset"], row["log_end_offset"], row["lag"]) for row in partitions] == [
        (0, None, 10, None),
        (1, 10, 10, 0),
    ]
    assert {row["consumer_id"] for row in partitions} == {member["consumer_id"]}
    assert member["epoch"] >= 1
    assert (
        member["assignment"]
        == member["target_assignment"]
        == [
            {"topic": topic, "partition": 0},
            {"topic": topic, "partition": 1},
        ]
    )


def test_a_group_is_deleted_only_without_members(cli: Cli, topic: str, group: str) -> None:
    with members(cli.bootstrap, group, [topic], partitions=2) as (consumer,):
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        refused = cli("groups", "delete", group, "--yes")
        assert (refused.code, refused.out) == (1, "")
        assert f"group {group}: the group has members; stop its consumers first" in refused.err
    done = cli("groups", "delete", group, "no-such-group", "--yes")
    assert (done.code, done.out) == (1, f"Deleted group {group}.\n")
    assert "group no-such-group: no such group" in done.err
    assert group not in cli.ok("groups", "list").out


@pytest.mark.parametrize(
    ("way", "new"),
    [
        (["--to-earliest"], {0: 2, 1: 0}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-current"], {0: 5, 1: 10}),
        (["--to-offset", "4"], {0: 4, 1: 4}),
        (["--to-datetime", "2020-01-01T00:00:00Z"], {0: 2, 1: 0}),
        (["--by-duration", "P365D"], {0: 2, 1: 0}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_offsets_are_reset_in_every_way_that_there_is(
    cli: Cli, topic: str, group: str, way: list[str], new: dict[int, int]
) -> None:
    cli.ok("delete-records", f"{topic}:0:2")
    commit(cli.bootstrap, group, {(topic, 0): 5})
    done = cli("groups", "reset-offsets", group, "--topic", topic, *way, "--execute", "--json")
    assert done.code == 0
    assert done.json["executed"] is True
    assert {row["partition"]: (row["current_offset"], row["new_offset"]) for row in done.json["offsets"]} == {
        0: (5, new[0]),
        1: (None, new[1]),
    }
    assert committed(cli, group) == new


def test_what_is_committed_is_shifted_within_the_log(cli: Cli, topic: str, group: str) -> None:
    commit(cli.bootstrap, group, {(topic, 0): 5, (topic, 1): 9})

    def shifted(by: int) -> dict[int, int]:
        cli("groups", "reset-offsets", group, "--all-topics", "--shift-by", str(by), "--execute")
        return committed(cli, group)

    assert shifted(-3) == {0: 2, 1: 6}
    assert shifted(5) == {0: 7, 1: 10}
    assert shifted(-8) == {0: 0, 1: 2}


def test_offsets_off_the_log_are_mended_with_a_warning(cli: Cli, topic: str, group: str) -> None:
    done = cli("groups", "reset-offsets", group, "--topic", f"{topic}:1", "--to-offset", "99", "--execute")
    assert done.code == 0
    assert done.rows == [[group, topic, "1", "-", "10"]]
    assert done.err == (
        f"headwater: group {group}, partition 1 of topic {topic}: "
        "99 is past the end of the log, so the new offset is 10\n"
    )


def test_without_execute_the_new_offsets_are_only_shown(cli: Cli, topic: str, group: str) -> None:
    commit(cli.bootstrap, group, {(topic, 0): 5})
    done = cli("groups", "reset-offsets", group, "--all-topics", "--to-earliest")
    assert done.code == 0
    assert done.out.splitlines()[0].split() == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]
    assert done.rows == [[group, topic, "0", "5", "0"]]
    assert "--execute" in done.err
    assert committed(cli, group) == {0: 5}


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_with_members_is_not_reset(cli: Cli, topic: str, group: str, kind: str) -> None:
    with members(cli.bootstrap, group, [topic], partitions=2, **KINDS[kind]) as (consumer,):
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        done = cli("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute")
        assert (done.code, done.out) == (1, "")
        assert f"group {group} is Stable with 1 member; " in done.err
        assert "stop its consumers" in done.err
        assert committed(cli, group)[0] == 5


def test_a_new_group_starts_where_its_offsets_were_put(cli: Cli, topic: str, group: str) -> None:
    cli("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "7", "--execute")
    consumer = Consumer({"bootstrap.servers": cli.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        found = {(message.partition(), message.offset()) for message in consumer.consume(6, timeout=30)}
    finally:
        consumer.close()
    assert found == {(partition, offset) for partition in range(2) for offset in range(7, 10)}


def test_an_exported_plan_is_carried_out_from_its_file(cli: Cli, topic: str, group: str, tmp_path: Path) -> None:
    other = f"{group}-other"
    commit(cli.bootstrap, group, {(topic, 0): 5})
    commit(cli.bootstrap, other, {(topic, 0): 1, (topic, 1): 2})
    exported = cli("groups", "reset-offsets", group, other, "--topic", topic, "--to-offset", "3", "--export").out
    assert list(csv.reader(io.StringIO(exported))) == [
        [name, topic, partition, "3"] for name in (group, other) for partition in ("0", "1")
    ]
    plan = tmp_path / "plan.csv"
    plan.write_text(exported)
    cli("groups", "reset-offsets", group, other, "--from-file", str(plan), "--execute")
    assert committed(cli, group) == committed(cli, other) == {0: 3, 1: 3}


@pytest.mark.peer
def test_plans_go_to_and_fro_between_our_tool_and_kafkas(cli: Cli, topic: str, group: str, tmp_path: Path) -> None:
    require_apache()
    plan = tmp_path / "plan.csv"
    plan.write_text(cli("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "3", "--export").out)
    scope = ("--bootstrap-server", cli.bootstrap, "--reset-offsets", "--group", group)
    run_tool(CONSUMER_GROUP_COMMAND, *scope, "--from-file", str(plan), "--execute")
    assert committed(cli, group) == {0: 3, 1: 3}
    plan.write_text(run_tool(CONSUMER_GROUP_COMMAND, *scope, "--all-topics", "--to-latest", "--dry-run", "--export"))
    assert cli("groups", "reset-offsets", group, "--from-file", str(plan), "--execute").code == 0
    assert committed(cli, group) == {0: 10, 1: 10}


@pytest.mark.parametrize(
    ("scope", "says"),
    [
        (["--all-topics"], "has committed nothing: say with --topic where it is to start"),
        (["--topic", "no-such-topic"], "topic no-such-topic: no such topic"),
    ],
)
def test_a_reset_that_cannot_be_is_one_sentence_and_exit_code_1(
    cli: Cli, group: str, scope: list[str], says: str
) -> None:
    done = cli("groups", "reset-offsets", group, *scope, "--to-earliest")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert says in done.err


def test_one_group_that_cannot_be_reset_keeps_the_others_as_they_are(cli: Cli, topic: str, group: str) -> None:
    commit(cli.bootstrap, group, {(topic, 0): 5})
    done = cli(
        "groups", "reset-offsets", group, f"{group}-none", "--topic", f"{topic}:0", "--shift-by", "1", "--execute"
    )
    assert (done.code, done.out) == (1, "")
    assert f"group {group}-none, partition 0 of topic {topic}: nothing is committed" in done.err
    assert committed(cli, group) == {0: 5}


def test_names_of_groups_are_completed(cli: Cli, topic: str, group: str) -> None:
    commit(cli.bootstrap, group, {(topic, 0): 1})
    environment = cli.environment() | {
        "_HEADWATER_COMPLETE": "complete_bash",
        "COMP_WORDS": f"headwater groups describe {group[:8]}",
        "COMP_CWORD": "3",
    }
    done = subprocess.run([HEADWATER], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert group in done.stdout.split()
