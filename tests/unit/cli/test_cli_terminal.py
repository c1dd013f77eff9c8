"""What a terminal would obey in records is escaped there, and only there."""

import json

from headwater.cli.record_format import Columns, as_it_is, columns, format_string, json_line_for_terminals
from headwater.cli.terminal import escaped_bytes
from headwater.client.consumer.records import Record

HOSTILE = "a\x1b[2J\x07\x7f\x9b31m\u202eb\r\tc\nd é 한"
SHOWN = "a\\x1b[2J\\x07\\x7f\\x9b31m\\u202eb\\r\tc\nd é 한"


def test_line_ends_tabs_and_letters_of_all_languages_pass() -> None:
    assert escaped_bytes(HOSTILE.encode() + b"\xff\x00") == SHOWN.encode() + rb"\xff\x00"
    assert escaped_bytes(b"plain\n") == b"plain\n"


def test_parts_of_records_are_escaped_and_what_the_user_puts_between_is_not() -> None:
    record = Record("orders", 0, 5, 7, key=b"k\x1b", value=b"\xffv\x07", headers=(("h\x1b", b"\r"),))
    for clean, key, value, headers in (
        (as_it_is, b"k\x1b", b"\xffv\x07", b"h\x1b=\r"),
        (escaped_bytes, rb"k\x1b", rb"\xffv\x07", rb"h\x1b=\r"),
    ):
        assert format_string(r"%k\x1b%s\x07%h", b"-", clean)(record) == key + b"\x1b" + value + b"\x07" + headers
        assert columns(Columns(key=True), b"\x1b", b"-", b"\n", clean)(record) == key + b"\x1b" + value + b"\n"
    line = json_line_for_terminals(Record("orders", 0, 5, 7, key="k\x9b\u202e".encode(), value=b"\x1b"))
    assert (json.loads(line)["key"], json.loads(line)["value"]) == ("k\x9b\u202e", "\x1b")
    assert line.isascii()
