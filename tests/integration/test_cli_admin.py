"""Topics, configs, offsets and the cluster from the command line, on headwater and on Apache Kafka alike."""

import json
import subprocess
import uuid
from pathlib import Path

import pytest

from .cli_runner import HEADWATER, Cli


@pytest.fixture(params=["headwater", "apache"])
def cli(request: pytest.FixtureRequest) -> Cli:
    """Each case runs once against either."""
    return Cli(request.getfixturevalue(request.param).bootstrap)


def test_a_topic_is_created_listed_described_and_deleted(cli: Cli) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    options = ("--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=123456")
    created = cli.ok("topics", "create", name, *options)
    assert created.out == f"Created topic {name} with 3 partitions, replication factor 1.\n"
    assert name in cli.ok("topics", "list").out.splitlines()

    described = cli.ok("topics", "describe", name).out.splitlines()
    assert described[0].split() == ["Topic", "TopicId", "PartitionCount", "ReplicationFactor", "Configs"]
    assert described[1].split()[2:] == ["3", "1", "retention.ms=123456"]
    assert described[3].split() == ["Topic", "Partition", "Leader", "Replicas", "Isr"]
    assert [line.split() for line in described[4:]] == [[name, str(number), "1", "1", "1"] for number in range(3)]

    assert cli.ok("topics", "delete", name, "--yes").out == f"Deleted topic {name}.\n"
    assert name not in cli.ok("topics", "list").out.splitlines()


def test_describe_as_json_has_everything_a_machine_wants(cli: Cli) -> None:
    name = cli.new_topic("--partitions", "2", "--config", "cleanup.policy=compact")
    (topic,) = cli.ok("topics", "describe", name, "--json").json
    assert (topic["topic"], topic["partition_count"], topic["configs"]) == (
        name,
        2,
        {"cleanup.policy": "compact"},
    )
    assert len(topic["topic_id"]) == 22
    assert [partition["partition"] for partition in topic["partitions"]] == [0, 1]
    assert all(partition["isr"] == partition["replicas"] == [1] for partition in topic["partitions"])


def test_creating_a_topic_again_fails_unless_it_may_exist(cli: Cli) -> None:
    name = cli.new_topic()
    again = cli("topics", "create", name)
    assert (again.code, again.out) == (1, "")
    assert again.err == f"headwater: topic {name}: the topic exists already; --if-not-exists makes that no error\n"
    assert cli.ok("topics", "create", name, "--if-not-exists").out == ""


def test_one_bad_name_does_not_hide_the_good_ones(cli: Cli) -> None:
    good = f"cli-{uuid.uuid4().hex[:8]}"
    done = cli("topics", "create", "bad name", good, "--json")
    assert done.code == 1
    assert [topic["topic"] for topic in done.json] == [good]
    assert done.err.startswith("headwater: topic bad name: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "describe", "no-such-topic"),
        ("topics", "delete", "no-such-topic", "--yes"),
        ("topics", "alter", "no-such-topic", "--partitions", "5"),
        ("offsets", "no-such-topic"),
        ("delete-records", "no-such-topic:0:1"),
        ("configs", "describe", "topics", "no-such-topic"),
        ("consume", "no-such-topic"),
    ],
)
def test_a_topic_that_is_not_there_is_one_sentence_and_exit_code_1(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "no-such-topic" in done.err


def test_partitions_are_added_and_never_taken_away(cli: Cli) -> None:
    name = cli.new_topic("--partitions", "2")
    assert cli.ok("topics", "alter", name, "--partitions", "4").out == f"Topic {name} has 4 partitions now.\n"
    assert len(cli.ok("topics", "describe", name, "--json").json[0]["partitions"]) == 4
    less = cli("topics", "alter", name, "--partitions", "3")
    assert less.code == 1
    assert "4" in less.err


def test_topic_configs_are_set_deleted_appended_and_subtracted(cli: Cli) -> None:
    name = cli.new_topic("--config", "retention.ms=1000000")

    def configs() -> dict[str, str]:
        return {entry["name"]: entry["value"] for entry in cli.ok("configs", "describe", "topics", name, "--json").json}

    changed = cli.ok(
        "configs", "alter", "topics", name,
        "--set", "segment.bytes=2000000", "--delete", "retention.ms", "--append", "cleanup.policy=compact",
    )  # fmt: skip
    assert changed.out == f"Changed 3 configs of topic {name}.\n"
    assert configs() == {"segment.bytes": "2000000", "cleanup.policy": "delete,compact"}
    cli.ok("configs", "alter", "topics", name, "--subtract", "cleanup.policy=delete")
    assert configs()["cleanup.policy"] == "compact"

    wrong = cli("configs", "alter", "topics", name, "--set", "retention.ms=soon")
    assert (wrong.code, wrong.err.count("\n")) == (1, 1)
    assert "retention.ms" in wrong.err


def test_all_configs_come_with_their_source(cli: Cli) -> None:
    name = cli.new_topic("--config", "retention.ms=1000000")
    table = {row[0]: row[1:3] for row in cli.ok("configs", "describe", "topics", name, "--all").rows}
    assert table["retention.ms"] == ["1000000", "DYNAMIC_TOPIC_CONFIG"]
    assert table["segment.bytes"] == ["1073741824", "DEFAULT_CONFIG"]
    assert "retention.ms" not in {row[0] for row in cli.ok("configs", "describe", "brokers", "1").rows}


def test_broker_configs_change_while_it_runs(cli: Cli) -> None:
    def value() -> str:
        entries = cli.ok("configs", "describe", "brokers", "1", "--all", "--json").json
        return next(str(entry["value"]) for entry in entries if entry["name"] == "log.cleaner.threads")

    cli.ok("configs", "alter", "brokers", "1", "--set", "log.cleaner.threads=2")
    assert value() == "2"
    cli.ok("configs", "alter", "brokers", "1", "--delete", "log.cleaner.threads")
    assert value() == "1"


def test_offsets_by_place_and_by_time(cli: Cli) -> None:
    name = cli.new_topic("--partitions", "2")
    cli.ok("produce", name, "--partition", "1", stdin="a\nb\nc\n")
    assert cli.ok("offsets", name).rows == [[name, "0", "0"], [name, "1", "3"]]
    assert cli.ok("offsets", f"{name}:1", "--time", "earliest").rows == [[name, "1", "0"]]
    (last,) = cli.ok("offsets", f"{name}:1", "--time", "max-timestamp", "--json").json
    assert last["timestamp"] > 1_700_000_000_000
    (found,) = cli.ok("offsets", f"{name}:1", "--time", str(last["timestamp"]), "--json").json
    assert found["timestamp"] == last["timestamp"]
    assert cli.ok("offsets", name, "--time", "2100-01-01").rows == [
        [name, "0", "-", "-"],
        [name, "1", "-", "-"],
    ]


def test_records_are_deleted_up_to_an_offset_or_by_kafkas_file(cli: Cli, tmp_path: Path) -> None:
    name = cli.new_topic("--partitions", "2")
    cli.ok("produce", name, "--partition", "0", stdin="a\nb\nc\n")
    cli.ok("produce", name, "--partition", "1", stdin="a\nb\nc\n")
    assert cli.ok("delete-records", f"{name}:0:2").rows == [[name, "0", "2"]]
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"partitions": [{"topic": name, "partition": 1, "offset": -1}], "version": 1}))
    assert cli.ok("delete-records", "--file", str(file)).rows == [[name, "1", "3"]]
    assert cli.ok("offsets", name, "--time", "earliest").rows == [[name, "0", "2"], [name, "1", "3"]]
    beyond = cli("delete-records", f"{name}:0:99")
    assert (beyond.code, beyond.err.count("\n")) == (1, 1)


def test_the_cluster_shows_brokers_log_dirs_and_apis(cli: Cli) -> None:
    cli.new_topic()
    found = cli.ok("cluster", "--apis", "--json").json
    assert len(found["cluster_id"]) == 22
    (broker,) = found["brokers"]
    assert broker["endpoint"] == cli.bootstrap
    assert broker["log_dirs"][0]["partitions"] > 0
    assert {"key": 18, "name": "ApiVersions", "min_version": 0, "max_version": 4} in broker["apis"]
    text = cli.ok("cluster").out
    assert found["cluster_id"] in text
    assert broker["log_dirs"][0]["path"] in text


def test_topic_names_are_completed(cli: Cli) -> None:
    name = cli.new_topic()
    environment = cli.environment() | {
        "_HEADWATER_COMPLETE": "complete_bash",
        "COMP_WORDS": f"headwater consume {name[:8]}",
        "COMP_CWORD": "2",
    }
    done = subprocess.run([HEADWATER], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert name in done.stdout.split()


def test_without_a_broker_every_command_says_how_to_get_one() -> None:
    done = Cli("127.0.0.1:1")("topics", "list")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "headwater: cannot connect to 127.0.0.1:1 (connection refused): "
        "is a broker running? start one with `headwater up`\n"
    )
