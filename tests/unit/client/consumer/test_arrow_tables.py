"""Tables of records: the same as the rows, in one schema, over the memory that was decoded into."""

import importlib.util
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetched_logs import T0, Log, batch, logs
from headwater.client.consumer import arrow as imported_arrow

Form = Callable[[str], ModuleType]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns_of(form: Form, data: bytes, aborted: Any = None) -> Any:
    return form("records").FetchedBatches("any", 0, data, 0, len(data), 0, aborted).take_columns()


def table_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [
        (
            row["topic"],
            row["partition"],
            row["offset"],
            (row["timestamp"] - EPOCH) // timedelta(milliseconds=1),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]


def expected_rows(topic: str, partition: int, log: Log) -> list[tuple[Any, ...]]:
    return [
        (topic, partition, offset, time_ms, key, value, headers)
        for offset, time_ms, _, key, value, headers, _ in log.visible
    ]


@settings(deadline=None, max_examples=40)
@given(
    parts=st.lists(st.tuples(st.sampled_from(["orders", "bills", "é"]), st.integers(0, 9), logs()), max_size=4),
    small_bytes=st.sampled_from([0, 100, 1 << 16]),
)
def test_a_table_says_the_same_as_the_rows(form: Form, parts: list[tuple[str, int, Log]], small_bytes: int) -> None:
    arrow = form("arrow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "_SMALL_PART_BYTES", small_bytes)
        patch.setattr(arrow, "_LARGEST_JOINED_BYTES", 300)
        taken = [(topic, number, columns_of(form, log.data, log.aborted)) for topic, number, log in parts]
        table = arrow.to_table(taken)
    table.validate(full=True)
    assert table.schema == arrow.schema()
    assert table_rows(table) == [row for topic, number, log in parts for row in expected_rows(topic, number, log)]


def test_the_schema_is_what_the_docs_say() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert {field.name: field.type for field in imported_arrow.schema()} == {
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(header),
    }


def test_no_records_are_a_table_without_rows_in_the_same_schema(form: Form) -> None:
    arrow = form("arrow")
    for parts in ([], [("orders", 0, columns_of(form, b""))]):
        table = arrow.to_table(parts)
        assert (table.num_rows, table.schema) == (0, arrow.schema())
    assert pa.concat_tables([table, arrow.to_table([("orders", 0, columns_of(form, batch(0, [b"x"])))])]).num_rows == 1


def test_headers_are_empty_lists_where_there_are_none_and_never_null(form: Form) -> None:
    rows = [(None, b"v", headers, T0) for headers in ([], [("a", b"1"), ("a", None)], [])]
    parts = [("orders", 0, columns_of(form, batch(0, rows))), ("orders", 1, columns_of(form, batch(0, [b"x"])))]
    for size in (0, 1 << 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(form("arrow"), "_SMALL_PART_BYTES", size)
            headers = form("arrow").to_table(parts)["headers"]
        assert headers.null_count == 0
        assert headers.to_pylist() == [[], [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], [], []]


def test_names_of_headers_that_are_no_utf_8_are_made_so(form: Form) -> None:
    data = bytearray(batch(0, [(None, b"v", [("name", b"x"), ("né", b"y")], T0)] * 2))
    data[data.index(b"name") : data.index(b"name") + 4] = b"n\xff\xfee"
    columns = form("records").FetchedBatches("any", 0, data, 0, len(data), 0, None, False).take_columns()
    table = form("arrow").to_table([("orders", 0, columns)])
    table.validate(full=True)
    assert [[header["key"] for header in row] for row in table["headers"].to_pylist()] == [
        ["n��e", "né"],
        ["name", "né"],
    ]
    assert [name for name, _ in columns.headers(0)] == ["n��e", "né"]


def address_of(content: Any) -> int:
    address: int = pa.py_buffer(content).address
    return address


def test_a_large_part_is_a_chunk_of_its_own_over_the_very_memory_of_its_columns(form: Form) -> None:
    columns = columns_of(form, batch(0, [(b"key", bytes(100), [], T0)] * 2000))
    table = form("arrow").to_table([("orders", 0, columns), ("orders", 1, columns)])
    assert table["value"].num_chunks == 2
    chunk = table["value"].chunk(0)
    assert [buffer.address for buffer in chunk.buffers()[1:]] == [
        address_of(columns.values.offsets),
        address_of(columns.values.data),
    ]
    assert table["key"].chunk(1).buffers()[2].address == address_of(columns.keys.data)
    assert table["offset"].chunk(0).buffers()[1].address == address_of(columns.offsets)
    assert table["timestamp"].chunk(0).buffers()[1].address == address_of(columns.timestamps_ms)


def test_thousands_of_small_parts_become_few_chunks(form: Form) -> None:
    parts = [("orders", n % 3, columns_of(form, batch(n, [b"%d" % n, None]))) for n in range(3000)]
    table = form("arrow").to_table(parts)
    table.validate(full=True)
    assert table["value"].num_chunks == 1
    assert table["partition"].to_pylist() == [n % 3 for n in range(3000) for _ in range(2)]
    assert table["offset"].to_pylist() == [offset for n in range(3000) for offset in (n, n + 1)]
    assert table["value"].to_pylist() == [value for n in range(3000) for value in (b"%d" % n, None)]


def test_topics_share_one_dictionary(form: Form) -> None:
    columns = columns_of(form, batch(0, [bytes(1000)] * 100))
    table = form("arrow").to_table([("orders", 0, columns), ("bills", 0, columns), ("orders", 1, columns)])
    dictionaries = [chunk.dictionary.to_pylist() for chunk in table["topic"].chunks]
    assert dictionaries == [["orders", "bills"]] * 3
    assert table["topic"].value_counts().to_pylist() == [
        {"values": "orders", "counts": 200},
        {"values": "bills", "counts": 100},
    ]


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    spec = importlib.util.spec_from_file_location("arrow_without_pyarrow", str(imported_arrow.__file__))
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"pip install headwater\[arrow\]"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
