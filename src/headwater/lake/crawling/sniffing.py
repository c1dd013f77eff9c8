"""What a file holds, by its name and its first bytes. Pure: it is given bytes, it opens nothing."""

import csv
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa

from headwater.lake.datasource.file_names import compression_of, format_of
from headwater.lake.shapes import Shape, plan_schema, shape_of_csv, shape_of_json
from headwater.lake.shapes.scalars import NUMBER, Kind, kind_of_string

PARQUET: Final = "parquet"
UNSUPPORTED: Final = "unsupported"

_FOREIGN: Final = {
    ".avro": "Avro",
    ".orc": "ORC",
    ".xml": "XML",
    ".xls": "Excel",
    ".xlsx": "Excel",
    ".zip": "a ZIP archive",
    ".tar": "an archive",
    ".db": "a database",
    ".sqlite": "a database",
}
_DELIMITERS: Final = ",;\t|"
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sniffed:
    """A file's format, as far as its beginning tells. `why` is for people; `schema` is empty where there is none."""

    format: str
    why: str
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    delimiter: str | None = None
    header: bool = True


def suffix_of(name: str) -> str:
    """The last suffix of a name that says what is in it; compression does not.

    >>> suffix_of("orders.CSV.gz"), suffix_of("orders")
    ('.csv', '')
    """
    return _plain_name(name).suffix.lower()


def format_by_name(name: str) -> str | None:
    """The format that a name promises, `unsupported` for one that is never loaded, None where it promises nothing."""
    suffix = suffix_of(name)
    return UNSUPPORTED if suffix in _FOREIGN else format_of(name)


def sniff(name: str, head: bytes, *, whole: bool) -> Sniffed:
    """What a file holds that begins like this; unless that is the `whole` of it, its last line is cut off somewhere."""
    promised = format_by_name(name)
    if promised == UNSUPPORTED:
        return Sniffed(format=UNSUPPORTED, why=f"{_FOREIGN[suffix_of(name)]} is not loaded")
    if promised == PARQUET or head.startswith(b"PAR1"):
        return Sniffed(format=PARQUET, why="its name says so" if promised else "it begins with PAR1")
    if not head.strip():
        return Sniffed(format=promised or "text", why="it is empty")
    lines = _lines(head, whole=whole)
    if promised in ("json", None) and (found := _json(lines, head, promised)) is not None:
        return found
    if promised in ("csv", None) and (found := _csv(lines, promised)) is not None:
        return found
    if promised not in (None, "csv"):
        return Sniffed(format=promised, why="its name says so")
    readable = is_text(b"\n".join(lines))
    return Sniffed(format="text" if readable else "raw", why="it is text" if readable else "its bytes are no text")


def is_text(value: bytes) -> bool:
    """Whether bytes are UTF-8 without control characters."""
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return _BINARY.search(value) is None


def _plain_name(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    return path if compression_of(name) is None else path.with_suffix("")


def _lines(text: bytes, *, whole: bool) -> list[bytes]:
    lines = text.split(b"\n")
    if not whole and len(lines) > 1:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines if line.strip()]


def _json(lines: list[bytes], text: bytes, promised: str | None) -> Sniffed | None:
    shape = shape_of_json(pa.array(lines, pa.large_binary()))
    if shape.corrupt * 2 < shape.records:
        why = "its lines are JSON objects" if promised is None else "its name and its lines say so"
        return Sniffed(format="json", why=why, schema=_schema(shape))
    if promised is not None and text.lstrip()[:1] in (b"[", b"{"):
        why = "it is one JSON document over several lines or an array; records are one object a line"
        return Sniffed(format=UNSUPPORTED, why=why)
    return None


def _csv(lines: list[bytes], promised: str | None) -> Sniffed | None:
    if not is_text(b"\n".join(lines)):
        return None
    rows, delimiter = _rows([line.decode("utf-8") for line in lines])
    header = rows[0]
    regular = sum(len(row) == len(header) for row in rows)
    if promised is None and (len(header) < 2 or len(rows) < 2 or regular < len(rows)):
        return None
    if not _names_columns(header):
        why = "its first line names no columns"
        return Sniffed(format="csv", why=why, delimiter=delimiter, header=False) if promised else None
    full = [row for row in rows[1:] if len(row) == len(header)]
    table = pa.table({name: pa.array([row[at] for row in full], pa.string()) for at, name in enumerate(header)})
    why = "its lines have the same number of fields" if promised is None else "its name says so"
    return Sniffed(format="csv", why=why, schema=_schema(shape_of_csv(table), table.schema), delimiter=delimiter)


def _rows(lines: list[str]) -> tuple[list[list[str]], str]:
    """The lines as rows, by the delimiter that splits the first line into most fields and the others into as many."""
    best: tuple[int, list[list[str]], str] = (0, [[line] for line in lines], ",")
    for delimiter in _DELIMITERS:
        rows = list(csv.reader(lines, delimiter=delimiter))
        if rows and rows[0]:
            score = len(rows[0]) * sum(len(row) == len(rows[0]) for row in rows)
            if len(rows[0]) > 1 and score > best[0]:
                best = (score, rows, delimiter)
    return best[1], best[2]


def _names_columns(header: list[str]) -> bool:
    """Whether the first line of a file has names: each once, none of them a number or a time."""
    if len(set(header)) < len(header) or not all(map(str.strip, header)):
        return False
    return not any(NUMBER.fullmatch(name) or kind_of_string(name) is not Kind.STRING for name in header)


def _schema(shape: Shape, names: pa.Schema | None = None) -> pa.Schema:
    """The fields with their types; a column without a value in the sample is there by its name."""
    schema = plan_schema(shape).schema
    missing = [] if names is None else [field for field in names if field.name not in schema.names]
    return pa.schema([*schema, *missing])
