"""JSON that was harmed by chance, in memory of exactly its size: both lanes and both forms must say the same of it.

`check_lanes(Random(seed))` is one round. Under a sanitizer (`make sanitize`) a read behind the end of the memory ends
the process; without one, only a wrong answer is found.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from both_forms import load_plain
from headwater.lake.shapes import inference, parsing
from headwater.lake.shapes.inference import count_plainly, count_quickly, shape_of_json
from headwater.lake.shapes.parsing import parse_plainly, parse_quickly, user_fields
from headwater.lake.shapes.planning import plan_schema
from headwater.lake.shapes.policies import POLICIES, Policies
from headwater.lake.shapes.shape import Shape
from unit.lake.shapes.generated_json import KEYS, NUMBERS, STRINGS

LANES = tuple(
    f"headwater.lake.shapes.{part}" for part in ("json_reading", "json_column", "json_columns", "json_counting")
)
TOKENS = (
    b'"', b"\\", b"\\u", b"\\ud83d", b"\\ude00", b"\\u00", b'\\"', b"{", b"}", b"[", b"]", b":", b",", b"-", b"0", b".",
    b"e", b"E+", b"null", b"tru", b"false", b"\x00", b"\x1f", b"\xc3", b"\xf0\x9f", b" ", b'"a":', b"[" * 101,
    b"9" * 25,
)  # fmt: skip
SCALARS = (pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC"))


def check_lanes(random: Random) -> None:
    """One round: an AssertionError says where lanes or forms differ."""
    whole = [_record(random) for _ in range(random.randint(1, 4))]
    policies = Policies(default=random.choice(POLICIES))
    values = exactly([_harmed(random, each) for each in random.choices(whole, k=random.randint(1, 4))], random)
    fields = plan_schema(shape_of_json(pa.array(whole, pa.binary())), None, policies).schema
    schema = user_fields(fields if random.random() < 0.7 else _schema(random))
    counted = _counted(values)
    parsed = _parsed(values, schema, policies)
    plain_root, plain_corrupt = count_plainly(values)
    assert counted == (Shape(root=plain_root).to_json(), plain_corrupt), values
    assert parsed == str(parse_plainly(values, schema, policies).to_pylist()), (values, schema)
    if random.random() < 0.1:
        plain = load_plain(LANES)
        with (
            patch.object(inference, "RecordCounter", plain["headwater.lake.shapes.json_counting"].RecordCounter),
            patch.object(parsing, "ColumnReader", plain["headwater.lake.shapes.json_columns"].ColumnReader),
        ):
            assert (counted, parsed) == (_counted(values), _parsed(values, schema, policies)), (values, schema)


def exactly(records: list[bytes | None], random: Random) -> pa.Array:
    """Records in memory that ends with the last of them, some of them null, and maybe some cut off in front."""
    return exact_values(records)[random.choice((0, 0, 1)) :]


def exact_values(records: Sequence[bytes | None]) -> pa.Array:
    """Records in memory that ends with the last of them."""
    data = b"".join(each or b"" for each in records)
    # Of all that Python has, only an array that is made longer by `*` has not a byte of room behind its end.
    room = array("B", [0]) * len(data)
    memoryview(room)[:] = data
    ends = array("q", [0])
    for each in records:
        ends.append(ends[-1] + len(each or b""))
    valid = sum(1 << place for place, each in enumerate(records) if each is not None)
    bits = valid.to_bytes((len(records) + 7) // 8, "little")
    buffers = [pa.py_buffer(bits), pa.py_buffer(ends), pa.py_buffer(room)]
    return pa.Array.from_buffers(pa.large_binary(), len(records), buffers)


def _counted(values: pa.Array) -> tuple[str, int]:
    root, corrupt = count_quickly(values)
    return Shape(root=root).to_json(), corrupt


def _parsed(values: pa.Array, schema: pa.Schema, policies: Policies) -> str:
    batch = parse_quickly(values, schema, policies)
    batch.validate(full=True)
    return str(batch.to_pylist())


def _record(random: Random) -> bytes:
    return _object(random, 0).encode()


def _object(random: Random, depth: int) -> str:
    members = (f"{_text(random, KEYS)}:{_value(random, depth + 1)}" for _ in range(random.randint(0, 4)))
    return "{" + random.choice((",", ", ", "\n,")).join(members) + "}"


def _value(random: Random, depth: int) -> str:
    match random.randint(0, 9 if depth < 4 else 6):
        case 0:
            return random.choice(("null", "true", "false"))
        case 1 | 2 | 3:
            return random.choice((random.choice(NUMBERS), repr(random.random()), str(random.getrandbits(70))))
        case 4 | 5 | 6:
            return _text(random, STRINGS)
        case 7:
            return "[" + ",".join(_value(random, depth + 1) for _ in range(random.randint(0, 3))) + "]"
        case _:
            return _object(random, depth)


def _text(random: Random, texts: list[str]) -> str:
    return json.dumps(random.choice(texts), ensure_ascii=random.random() < 0.5)


def _harmed(random: Random, record: bytes) -> bytes | None:
    if random.random() < 0.05:
        return None
    harmed = bytearray(record)
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        at = random.randrange(len(harmed) + 1)
        match random.randint(0, 5):
            case 0 | 1:
                # Most of what may go wrong in C goes wrong at the end.
                del harmed[at:]
            case 2:
                harmed[at:at] = random.choice(TOKENS)
            case 3:
                del harmed[at : at + random.randint(1, 5)]
            case 4:
                harmed[at : at + 1] = bytes([random.randrange(256)])
            case _:
                other = random.randrange(len(harmed) + 1)
                harmed[at:at] = harmed[other : other + random.randint(1, 20)]
    return bytes(harmed)


def _schema(random: Random) -> pa.Schema:
    names = random.sample(KEYS, random.randint(0, 4))
    return pa.schema([(name, _type(random, 0)) for name in names])


def _type(random: Random, depth: int) -> Any:
    match random.randint(0, 6 if depth < 3 else 3):
        case 4:
            return pa.list_(_type(random, depth + 1))
        case 5:
            return pa.map_(pa.string(), _type(random, depth + 1))
        case 6:
            return pa.struct([(name, _type(random, depth + 1)) for name in random.sample(KEYS, 2)])
        case _:
            return random.choice(SCALARS)
