"""Options of the data source: what they may be, and words for what they may not."""

import pytest

from headwater.lake.datasource.options import parse_options
from headwater.lake.datasource.spots import AtOffset, AtTime, Earliest, Latest, Spot, parse_spots
from headwater.lake.errors import LakeUsageError
from headwater.types import TopicPartition

HERE = {"bootstrap": "localhost:9092", "topics": "orders"}
FIRST = TopicPartition("orders", 0)


def test_little_has_to_be_said() -> None:
    options = parse_options(HERE)
    assert (options.bootstrap, options.topics, options.value) == ("localhost:9092", ("orders",), "raw")
    assert (options.starting.of(FIRST), options.ending.of(FIRST)) == (Earliest(), Latest())
    assert (options.split_bytes, options.data_loss, dict(options.settings)) == (None, "fail", {})
    assert not options.headers
    assert options.corrupt_records == "fail"


def test_all_of_it_can_be_said() -> None:
    options = parse_options(
        {
            "bootstrap": " a:1,b:2 ",
            "topics": " orders, refunds ,orders",
            "starting": '{"orders": {"0": 12}}',
            "ending": "ts:1000",
            "value": "JSON",
            "headers": "True",
            "split.bytes": "4m",
            "data.loss": "skip",
            "corrupt.records": "Skip",
            "isolation": "read_uncommitted",
            "kafka.security.protocol": "SSL",
        }
    )
    assert (options.bootstrap, options.topics, options.value) == ("a:1,b:2", ("orders", "refunds"), "json")
    assert options.headers
    assert options.starting.of(FIRST) == AtOffset(offset=12)
    assert options.ending.of(FIRST) == AtTime(timestamp_ms=1000)
    assert (options.split_bytes, options.data_loss, options.corrupt_records) == (4 << 20, "skip", "skip")
    assert options.settings == {"security.protocol": "SSL", "isolation.level": "read_uncommitted"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"bootstrap": ""}, "the option bootstrap is missing"),
        ({"topics": " "}, "the option topics is missing"),
        ({"topic": "orders"}, "no option 'topic': did you mean topics?"),
        ({"subscribe": "orders"}, "no option 'subscribe': did you mean topics?"),
        ({"startingoffsets": "earliest"}, "did you mean starting?"),
        ({"colour": "red"}, "no option 'colour': the options are bootstrap, topics, .* and kafka"),
        ({"kafka.bootstrap.servers": "b:1"}, "is the option bootstrap here"),
        ({"value": "avro"}, "value = 'avro' is not allowed: use raw, text, json or shape"),
        ({"isolation": "serializable"}, "use read_committed or read_uncommitted"),
        ({"headers": "yes"}, "headers = 'yes' is not allowed: use true or false"),
        ({"includeheaders": "true"}, "did you mean headers?"),
        ({"data.loss": "maybe"}, "use fail or skip"),
        ({"corrupt.records": "keep"}, "corrupt.records = 'keep' is not allowed: use fail or skip"),
        ({"kafka.corrupt.records": "skip"}, "kafka.corrupt.records is the option corrupt.records here"),
        ({"split.bytes": "0"}, "no number of bytes: write it as 33554432 or 32m"),
        ({"split.bytes": "big"}, "no number of bytes"),
        ({"starting": "sometimes"}, "starting = 'sometimes' is no place in a topic: use earliest, latest, ts:"),
        ({"ending": "ts:tomorrow"}, "ending = ts:tomorrow is no time"),
        ({"starting": "ts:1969-12-31T23:00:00Z"}, "before 1970"),
        ({"starting": '{"orders"'}, "is no JSON"),
        ({"starting": '{"orders": 3}'}, "offsets of topic orders are given by partition"),
        ({"starting": '{"orders": {"first": 3}}'}, "'first' is no partition of topic orders"),
        ({"starting": '{"orders": {"0": -1}}'}, "-1 is no offset of partition orders-0"),
        ({"starting": '{"orders": {"0": true}}'}, "true is no offset of partition orders-0"),
    ],
)
def test_what_makes_no_sense_is_named(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(LakeUsageError, match=words):
        parse_options({**HERE, **wrong})


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ("Earliest", Earliest()),
        (" latest ", Latest()),
        ("ts:1700000000000", AtTime(timestamp_ms=1_700_000_000_000)),
        ("ts:2023-11-14T22:13:20Z", AtTime(timestamp_ms=1_700_000_000_000)),
        ("ts:2023-11-14T23:13:20+01:00", AtTime(timestamp_ms=1_700_000_000_000)),
        ("ts:2023-11-14 22:13:20", AtTime(timestamp_ms=1_700_000_000_000)),
        ("ts:2023-11-14T22:13:20.000001Z", AtTime(timestamp_ms=1_700_000_000_001)),
    ],
)
def test_places_in_a_topic(text: str, spot: Spot) -> None:
    assert parse_spots("starting", text, others=Earliest()).of(FIRST) == spot


def test_partitions_that_offsets_leave_out_are_read_whole() -> None:
    spots = parse_spots("ending", '{"orders": {"0": 5, "1": "earliest", "2": "ts:9"}}', others=Latest())
    places = [spots.of(TopicPartition("orders", number)) for number in range(4)]
    assert places == [AtOffset(offset=5), Earliest(), AtTime(timestamp_ms=9), Latest()]
