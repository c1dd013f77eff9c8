"""Config files are read as Java reads properties, or as TOML in whatever shape the names are written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config import BrokerConfig, ConfigError, parse_properties, parse_toml, read_file

KRAFT_FILE = """\
# A single node that is broker and controller, as Kafka's own package lays it out.
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/a, /var/lib/b
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_a_file_written_for_kafka_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(KRAFT_FILE)
    config = BrokerConfig.from_file(path)
    assert config.node_id == 7
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert config.advertised_listeners is not None
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.log_dirs == ("/var/lib/a", "/var/lib/b")
    assert config["log.retention.hours"] == 168
    assert "num.io.threads" in config.ignored()
    assert "num.partitions" not in config.ignored()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\nb:2\nc 3\nd\te\n", {"a": "1", "b": "2", "c": "3", "d": "e"}),
        ("  a   =   1  \n", {"a": "1  "}),
        ("# no\n! no\n   # no\n\na=#yes\n", {"a": "#yes"}),
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\n# still a\nb=2", {"a": "1# still a", "b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a : = 1", {"a": "= 1"}),
    ],
)
def test_properties_follow_javas_rules(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_a_broken_escape_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\\u12x4 is not a character"):
        parse_properties("a=\\u12x4")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_whatever_is_escaped_comes_back(values: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in values.items())
    assert parse_properties(text) == values


@pytest.mark.parametrize(
    "text",
    [
        'log.retention.hours = 24\n"log.dirs" = ["/a", "/b"]\nauto.create.topics.enable = true',
        '[log]\ndirs = "/a,/b"\n[log.retention]\nhours = 24\n[auto]\ncreate.topics.enable = true',
        '"log.retention.hours" = "24"\n"log.dirs" = "/a,/b"\n"auto.create.topics.enable" = "true"',
    ],
)
def test_toml_names_may_be_dotted_nested_or_quoted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    assert read_file(path) == {
        "log.retention.hours": "24",
        "log.dirs": "/a,/b",
        "auto.create.topics.enable": "true",
    }
    assert BrokerConfig.from_file(path).auto_create_topics_enable


def test_toml_names_that_begin_alike_can_be_quoted_and_the_error_says_so() -> None:
    with pytest.raises(ConfigError, match=r'put both in quotes: "max\.connections"'):
        parse_toml("max.connections = 5\nmax.connections.per.ip = 2")
    assert parse_toml('"max.connections" = 5\n"max.connections.per.ip" = 2') == {
        "max.connections": "5",
        "max.connections.per.ip": "2",
    }


def test_toml_refuses_a_name_given_twice_and_a_date() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions is given twice"):
        parse_toml('"num.partitions" = 1\n[num]\npartitions = 2')
    with pytest.raises(ConfigError, match=r"num\.partitions = 2026-01-01"):
        parse_toml("num.partitions = 2026-01-01")


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.properties cannot be read: No such file"):
        BrokerConfig.from_file(tmp_path / "nowhere.properties")
    path = tmp_path / "broken.toml"
    path.write_text("= 1")
    with pytest.raises(ConfigError, match=r"broken\.toml cannot be used"):
        BrokerConfig.from_file(path)


def test_older_files_in_latin_1_are_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=Zürich".encode("latin-1"))
    assert read_file(path) == {"broker.rack": "Zürich"}
