"""Records are printed as kcat and the console consumer print them."""

import json
from dataclasses import dataclass

import pytest

from headwater.cli.record_format import Columns, columns, format_string, json_line
from headwater.client.consumer.records import TimestampType


@dataclass(frozen=True, slots=True)
class OneRecord:
    topic: str = "orders"
    partition: int = 3
    offset: int = 5
    timestamp_ms: int = 1_700_000_000_000
    timestamp_type: int = TimestampType.CREATE_TIME
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None))


def test_kcats_letters() -> None:
    formatter = format_string(r"%t [%p] @%o %T %k(%K)=%s(%S) %h 100%%\n", b"NULL")
    assert formatter(OneRecord()) == b"orders [3] @5 1700000000000 key(3)=value(5) a=1,b=NULL 100%\n"


def test_null_has_a_mark_and_the_size_minus_one() -> None:
    formatter = format_string("%k(%K) %s(%S)%R", b"NULL")
    assert formatter(OneRecord(key=None, value=None)) == b"NULL(-1) NULL(-1)\xff\xff\xff\xff"


def test_the_size_as_four_bytes_frames_raw_values() -> None:
    assert format_string("%R%s", b"")(OneRecord(value=b"\x00\xff")) == b"\x00\x00\x00\x02\x00\xff"


def test_an_unknown_letter_is_named() -> None:
    with pytest.raises(ValueError, match="%x is none of %t %p"):
        format_string("%x", b"")


def test_columns_come_in_the_console_consumers_order() -> None:
    everything = Columns(timestamp=True, partition=True, offset=True, headers=True, key=True)
    formatter = columns(everything, b"\t", b"null", b"\n")
    assert formatter(OneRecord()) == b"CreateTime:1700000000000\tPartition:3\tOffset:5\ta:1,b:null\tkey\tvalue\n"
    bare = formatter(OneRecord(headers=(), key=None, value=None, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert bare == b"LogAppendTime:1700000000000\tPartition:3\tOffset:5\tNO_HEADERS\tnull\tnull\n"


def test_json_keeps_text_as_text_and_other_bytes_as_base64() -> None:
    line = json_line(OneRecord(key="é\n".encode(), value=b"\xff\x00"))
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 5,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "CreateTime",
        "headers": [["a", "1"], ["b", None]],
        "key": "é\n",
        "value": {"base64": "/wA="},
    }
