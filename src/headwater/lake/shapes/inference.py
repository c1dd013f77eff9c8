"""The Shape of JSON records."""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from headwater.lake.shapes.json_block import block_of
from headwater.lake.shapes.json_counting import RecordCounter
from headwater.lake.shapes.json_reading import COMPILED
from headwater.lake.shapes.json_text import NotJson, Value, scan_record
from headwater.lake.shapes.scalars import Kind, kind_of_number, kind_of_string
from headwater.lake.shapes.shape import JSON_SOURCE, MAX_SHAPE_DEPTH, Node, Shape


def shape_of_json(values: pa.Array) -> Shape:
    """What is in records of JSON, given as bytes or strings; nulls (tombstones) are records, and not corrupt."""
    count = count_quickly if COMPILED else count_plainly
    root, corrupt = count(values)
    return Shape(records=len(values), corrupt=corrupt, sources=frozenset([JSON_SOURCE]), root=root)


def count_plainly(values: pa.Array) -> tuple[Node, int]:
    """What is in records, and how many are no JSON object: the plain lane."""
    root = Node()
    return root, observe_records(values.cast(pa.large_binary()).to_pylist(), root)


def count_quickly(values: pa.Array) -> tuple[Node, int]:
    """The same by the quick lane, as far as it goes."""
    block = block_of(values)
    counter = RecordCounter(block.data)
    rest = counter.count(block.offsets, block.rows)
    root = counter.result()
    if root is None:
        return count_plainly(values)
    return root, observe_records(block.records(rest), root) + len(block.broken)


def observe_records(records: list[bytes | None], root: Node) -> int:
    """Counts what is in records, in plain Python; returns how many are no JSON object."""
    corrupt = 0
    for raw in records:
        if raw is None:
            continue
        try:
            _, record = scan_record(raw)
        except NotJson:
            corrupt += 1
        else:
            _observe(root, record, 0)
    return corrupt


def _observe(node: Node, value: Value, depth: int) -> None:
    tag = value.tag
    if tag == "n":
        node.counts[Kind.NULL] += 1
    elif tag == "b":
        node.counts[Kind.BOOL] += 1
    elif tag == "0":
        kind, before, after = kind_of_number(cast(str, value.held))
        node.counts[kind] += 1
        node.before = max(node.before, before)
        node.after = max(node.after, after)
    elif tag == '"':
        node.counts[kind_of_string(cast(str, value.held))] += 1
    elif tag == "{":
        _observe_object(node, cast("list[tuple[str, Value]]", value.held), depth)
    else:
        items = cast("list[Value]", value.held)
        node.counts[Kind.ARRAY if items else Kind.EMPTY_ARRAY] += 1
        if items and depth < MAX_SHAPE_DEPTH:
            element = node.element_seen()
            for item in items:
                _observe(element, item, depth + 1)


def _observe_object(node: Node, members: list[tuple[str, Value]], depth: int) -> None:
    node.counts[Kind.OBJECT if members else Kind.EMPTY_OBJECT] += 1
    if depth >= MAX_SHAPE_DEPTH:
        return
    # Of a key that is repeated the last value counts, as in parsing.
    for position, (key, value) in enumerate(dict(members).items()):
        child = node.field_seen(key, depth)
        if child is not node.values:
            child.position = max(child.position, position)
        _observe(child, value, depth + 1)
