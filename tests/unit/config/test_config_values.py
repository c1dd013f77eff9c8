"""Texts become values, and values texts, as in Kafka."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config import BROKER, TOPIC, ConfigError, ConfigValue, as_text, format_value, parse


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 2000000 ", 2_000_000),
        ("segment.bytes", "+2000000", 2_000_000),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("compression.type", " gzip ", "gzip"),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("compression.gzip.level", "-1", -1),
        ("retention.bytes", "-5", -5),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_what_kafka_takes_is_taken(name: str, text: str, value: ConfigValue) -> None:
    assert parse(TOPIC[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("segment.bytes", "1", "at least 1048576"),
        ("segment.bytes", "1.5", "whole number of 32 bits"),
        ("segment.bytes", "99999999999", "whole number of 32 bits"),
        ("segment.bytes", "2_000_000", "whole number"),
        ("segment.bytes", "٢٠٠٠٠٠٠", "whole number"),
        ("segment.bytes", "0x200000", "whole number"),
        ("segment.bytes", "", "whole number"),
        ("retention.ms", "9223372036854775808", "whole number of 64 bits"),
        ("retention.ms", "-2", "at least -1"),
        ("preallocate", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "between 0 and 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("min.cleanable.dirty.ratio", "much", "a number"),
        ("compression.gzip.level", "0", "between 1 and 9, or -1"),
        ("compression.type", "GZIP", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("cleanup.policy", "compact,", "a list of compact, delete"),
        ("leader.replication.throttled.replicas", "*:1", "partition:broker"),
        ("remote.storage.enable", "true", "no remote storage"),
    ],
)
def test_a_refusal_names_the_config_its_value_and_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse(TOPIC[name], text)
    assert str(refusal.value).startswith(f"{name} = {text!r} is not allowed")
    assert allowed in str(refusal.value)


def test_words_that_kafka_reads_in_any_case_are_read_so() -> None:
    assert parse(BROKER["group.consumer.migration.policy"], "Upgrade") == "Upgrade"
    with pytest.raises(ConfigError, match="in any case"):
        parse(BROKER["group.consumer.migration.policy"], "sometimes")


def test_a_secret_is_never_shown() -> None:
    assert format_value(BROKER["ssl.key.password"], "hunter2") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # What java.lang.Double.toString prints.
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.000123, "1.23E-4"),
        (123456789.0, "1.23456789E8"),
        (10_000_000.0, "1.0E7"),
        (9_999_999.0, "9999999.0"),
        (1e21, "1.0E21"),
        (-12345678.5, "-1.23456785E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_doubles_are_shown_as_java_shows_them(value: float, text: str) -> None:
    assert format_value(BROKER["log.cleaner.io.max.bytes.per.second"], value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_that_is_shown_reads_back_the_same(value: float) -> None:
    definition = BROKER["log.cleaner.io.max.bytes.per.second"]
    assert parse(definition, format_value(definition, value) or "") == value


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_a_long_that_is_shown_reads_back_the_same(value: int) -> None:
    definition = BROKER["log.retention.bytes"]
    assert parse(definition, format_value(definition, value) or "") == value


def test_python_values_become_the_texts_of_a_properties_file() -> None:
    assert [as_text(value) for value in (True, False, 7, 0.5, "x", ["a", "b"])] == [
        "true",
        "false",
        "7",
        "0.5",
        "x",
        "a,b",
    ]
