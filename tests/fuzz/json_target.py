"""The lake's JSON reader over any bytes: both of its lanes say the same, and no byte is lost or read beyond the end.

Of an input the first byte chooses policies and schema; the rest is the records, one a line.
"""

import pyarrow as pa

from headwater.lake.shapes.inference import count_plainly, count_quickly, shape_of_json
from headwater.lake.shapes.parsing import parse_plainly, parse_quickly, user_fields
from headwater.lake.shapes.planning import plan_schema
from headwater.lake.shapes.policies import POLICIES, Policies
from headwater.lake.shapes.shape import Shape
from unit.lake.shapes.mutated_json import TOKENS, exact_values

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.struct([("c", pa.string()), ("d", pa.list_(pa.float64()))])),
        ("e", pa.map_(pa.string(), pa.int32())),
        ("f", pa.timestamp("us", "UTC")),
        ("g", pa.bool_()),
        ("h", pa.date32()),
    ]
)


def one_input(data: bytes) -> None:
    """Infers, plans and reads, by both lanes; `AssertionError` where they differ."""
    policies = Policies(default=POLICIES[data[0] % len(POLICIES)] if data else "corrupt")
    values = exact_values([*data[1:].split(b"\n")])
    shape = shape_of_json(values)
    root, corrupt = count_plainly(values)
    quick_root, quick_corrupt = count_quickly(values)
    assert (Shape(root=root).to_json(), corrupt) == (Shape(root=quick_root).to_json(), quick_corrupt), data
    assert Shape.from_json(shape.to_json()) == shape
    inferred = plan_schema(shape, None, policies).schema
    schema = user_fields(SCHEMA if data and data[0] & 0x80 else inferred)
    quick, plain = parse_quickly(values, schema, policies), parse_plainly(values, schema, policies)
    quick.validate(full=True)
    # As text, for no NaN is equal to another.
    assert str(quick.to_pylist()) == str(plain.to_pylist()), data


def seeds() -> list[bytes]:
    """Records as they are, and every token that has a meaning."""
    records = [
        b'{"a": 1, "b": {"c": "x", "d": [1.5, 2e3, -0.0]}, "e": {"k": 7}}',
        b'{"f": "2026-01-31T12:00:00Z", "g": true, "h": "2026-01-31", "a": null}',
        b'{"a": 12345678901234567890123, "b": "\\ud83d\\ude00 \\u00e4 \xc3\xa4", "a": "again"}',
        b'{"deep": [[[[{"x": [{}]}]]]], "": 0, "\\n": ""}\n\n[1]\n{"a": NaN}\n\xff',
        b"{" + b",".join(b'"k%d":%d' % (number, number) for number in range(40)) + b"}",
    ]
    return [
        bytes([first]) + each for each in [*records, b"\n".join(records), b"".join(TOKENS)] for first in (0, 1, 130)
    ]
