"""Columns of text (CSV) into typed ones: the same rules as for JSON, except that every value also fits a string column.

An empty text is null. `007` is no number, since nothing would tell the zeros any more; `true` and `false` are booleans.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headwater.lake.shapes.fitting import is_text, scalar_of_number
from headwater.lake.shapes.inference import shape_of_json
from headwater.lake.shapes.parsing import RESCUED_TYPE, parse_json, user_fields, with_rescued
from headwater.lake.shapes.paths import earlier, join
from headwater.lake.shapes.policies import Policies
from headwater.lake.shapes.scalars import NUMBER, Kind
from headwater.lake.shapes.shape import CSV_SOURCE, Node, Shape

_FIELD: Final = "v"
_NUMBER: Final = f"^(?:{NUMBER.pattern})$"
_NO_STRING: Final = rf"""^(?:{NUMBER.pattern}|true|false)$|["\\\x00-\x1f]"""


def shape_of_csv(table: pa.Table | pa.RecordBatch) -> Shape:
    """What is in columns of strings, as read from CSV without any conversion."""
    root = Node()
    root.counts[Kind.OBJECT] += table.num_rows
    for position, (name, column) in enumerate(zip(table.schema.names, table.columns, strict=True)):
        seen = _observed(_one_array(column))
        seen.position = position
        root.absorb_field(name, seen, 0)
    return Shape(records=table.num_rows, sources=frozenset([CSV_SOURCE]), root=root)


def _observed(texts: pa.Array) -> Node:
    """What stands in one column."""
    node = Node()
    node.counts[Kind.NULL] += texts.null_count
    for kind in (pa.float64(), pa.bool_(), pa.date32()):
        records = _as_json(texts, kind)
        seen = shape_of_json(records.drop_null()).root.fields.get(_FIELD)
        if seen is not None:
            node.absorb(seen, 1)
    # What cannot be written as it stands is no date either.
    node.counts[Kind.STRING] += len(texts) - sum(node.counts)
    return node


def _as_json(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Records of JSON with the texts that may be values of this type; nulls for the others.

    So the lanes of JSON decide, and there is one rule for both formats.
    """
    quote = ""
    if pt.is_boolean(type_):
        taken = pc.is_in(texts, pa.array(["true", "false"]))
    elif scalar_of_number(type_) is not None:
        taken = pc.match_substring_regex(texts, _NUMBER)
    else:
        quote = '"'
        taken = pc.invert(pc.match_substring_regex(texts, _NO_STRING))
    chosen = pc.if_else(taken, texts, None)
    return pc.binary_join_element_wise(f'{{"{_FIELD}":{quote}', chosen, f"{quote}}}", "")


def parse_csv(table: pa.Table | pa.RecordBatch, schema: pa.Schema, policies: Policies | None = None) -> pa.RecordBatch:
    """The user's columns of a schema, then `_rescued` (texts that do not fit) and `_corrupt_record` (always null).

    Of columns with the same name the last counts, and the earlier ones are rescued as `name#0`, `name#1`.
    """
    policies = policies or Policies()
    user = user_fields(schema)
    rescue = _Rescues(table.num_rows)
    sources = _last_of_each(table, rescue)
    found: dict[str, pa.Array] = {}
    for name, column in sources.items():
        index = user.get_field_index(name)
        if index < 0 or policies.is_spill("", name):
            rescue.take(join("", name), column)
            continue
        found[name], misfits = _fit(column, user.field(index).type)
        if misfits is not None:
            spill = policies.spill_of("", name)
            if spill is not None and spill in user.names and is_text(user.field(spill).type):
                found[spill] = misfits.cast(user.field(spill).type)
            else:
                rescue.take(join("", name), misfits)
    columns = [found[field.name] if field.name in found else pa.nulls(table.num_rows, field.type) for field in user]
    return with_rescued(user, columns, rescue.column(), pa.nulls(table.num_rows, pa.string()))


def _last_of_each(table: pa.Table | pa.RecordBatch, rescue: _Rescues) -> dict[str, pa.Array]:
    names = table.schema.names
    left = Counter(names)
    found: dict[str, pa.Array] = {}
    turns: Counter[str] = Counter()
    for name, column in zip(names, table.columns, strict=True):
        left[name] -= 1
        texts = _one_array(column)
        if left[name]:
            rescue.take(earlier(join("", name), turns[name]), texts)
            turns[name] += 1
        else:
            found[name] = texts
    return found


def _chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The texts of a column; the empty ones are null."""
    texts = _chunked(column).combine_chunks().cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _fit(texts: pa.Array, type_: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """The column of a type, and the texts that do not fit it (None: all do)."""
    if is_text(type_):
        return texts.cast(type_), None
    column = parse_json(_as_json(texts, type_), pa.schema([(_FIELD, type_)])).column(0)
    if column.null_count == texts.null_count:
        return column, None
    return column, pc.if_else(column.is_null(), texts, None)


class _Rescues:
    """What is rescued of each row."""

    def __init__(self, rows: int) -> None:
        self._rows: list[list[tuple[str, str]] | None] = [None] * rows

    def take(self, path: str, texts: pa.Array) -> None:
        """Keeps the texts of a column that are not null."""
        if texts.null_count == len(texts):
            return
        for row, text in enumerate(texts.to_pylist()):
            if text is not None:
                entries = self._rows[row]
                if entries is None:
                    entries = self._rows[row] = []
                entries.append((path, text))

    def column(self) -> pa.Array:
        """`_rescued`."""
        return pa.array(self._rows, RESCUED_TYPE)
