"""CSV files as columns of text: by the names in the header of each file, so that their order does not matter.

A record with more or fewer values than the header has, or with bytes that are no text, is kept whole. `_row` is the
number of the record in its file, from 0, the header not counted; lines without anything are no records.
"""

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from headwater.lake.corrupt_text import record_text
from headwater.lake.datasource.file_manifest import AUTO, CsvOptions, ManifestFile
from headwater.lake.datasource.file_names import delimiter_of
from headwater.lake.datasource.file_streams import Files

BLOCK_BYTES: Final = 16 << 20
"""No record may be longer: pyarrow looks for the end of a record within two blocks."""
_HEADER_BYTES: Final = 1 << 20
_UTF8: Final = ("utf-8", "utf8", "utf-8-sig")
_ANY_BYTES: Final = "latin-1"
"""An encoding in which all bytes are text, and come back as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvBatch:
    """Columns of text with the numbers of their records; and records that were kept whole."""

    columns: pa.RecordBatch
    rows: pa.Array
    corrupt: Sequence[tuple[int, str]]


def csv_batches(files: Files, file: ManifestFile, options: CsvOptions) -> Iterator[CsvBatch]:
    """The records of a file, batch by batch."""
    delimiter = delimiter_of(file.path) if options.delimiter == AUTO else options.delimiter
    with files.opened(file) as stream:
        first = _first_record(stream, options, delimiter)
    if not first:
        return
    names = column_names(first) if options.header else [f"_c{place}" for place in range(len(first))]
    is_text = _is_readable(files, file, options)
    encoding = options.encoding if is_text else _ANY_BYTES
    ragged: list[tuple[int, str]] = []

    def keep(row: arrow_csv.InvalidRow) -> str:
        ragged.append((row.number - 1, row.text if is_text else record_text(row.text.encode(_ANY_BYTES))))
        return "skip"

    # The header is a record like others until it is here: pyarrow would count blank lines before it.
    headers = 1 if options.header else 0
    with files.opened(file) as stream:
        reader = _opened(stream, len(names), options, delimiter, encoding, keep)
        for found in _numbered_batches(reader, ragged, len(names)):
            records = found if is_text else _without_damaged(found, delimiter)
            if len(records.numbers) and records.numbers[0].as_py() < headers:
                rest = [column.slice(1) for column in records.columns]
                records = replace(records, columns=rest, numbers=records.numbers.slice(1))
            yield _batch(records, names, headers)


def column_names(header: Sequence[str]) -> list[str]:
    """The names in a header; a column without one is called by its place."""
    return [name.strip() or f"_c{place}" for place, name in enumerate(header)]


def _first_record(stream: pa.NativeFile, options: CsvOptions, delimiter: str) -> list[str]:
    text = stream.read(_HEADER_BYTES).decode(options.encoding, "replace").removeprefix("\ufeff")
    how = {"quotechar": options.quote} if options.quote else {"quotechar": None, "quoting": csv.QUOTE_NONE}
    csv.field_size_limit(max(csv.field_size_limit(), _HEADER_BYTES))
    for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, **how):
        if record:
            return record
    return []


def _opened(
    stream: pa.NativeFile, columns: int, options: CsvOptions, delimiter: str, encoding: str, keep: object
) -> arrow_csv.CSVStreamingReader:
    names = [f"c{place}" for place in range(columns)]
    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(
            column_names=names,
            use_threads=False,
            block_size=BLOCK_BYTES,
            encoding=encoding,
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=delimiter,
            quote_char=options.quote or False,
            newlines_in_values=True,
            invalid_row_handler=keep,
        ),
        convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary())),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    """Values as bytes with the numbers of their records, headers counted; and records that were kept whole."""

    columns: Sequence[pa.Array]
    numbers: pa.Array
    corrupt: Sequence[tuple[int, str]]


def _numbered_batches(
    reader: arrow_csv.CSVStreamingReader, ragged: list[tuple[int, str]], columns: int
) -> Iterator[_Records]:
    """All records. `ragged` is filled while the reader reads, which is ahead of us."""
    next_number = 0
    for batch in reader:
        numbers, next_number, passed = _numbered(batch.num_rows, next_number, ragged)
        yield _Records(columns=batch.columns, numbers=numbers, corrupt=ragged[:passed])
        del ragged[:passed]
    nothing = [pa.nulls(0, pa.binary())] * columns
    yield _Records(columns=nothing, numbers=pa.array([], pa.int64()), corrupt=ragged)


def _numbered(count: int, first: int, ragged: Sequence[tuple[int, str]]) -> tuple[pa.Array, int, int]:
    """The numbers of the next records without the ragged ones; the number behind them, and how many were ragged."""
    if not ragged:
        return pa.array(range(first, first + count), pa.int64()), first + count, 0
    taken = [number for number, _ in ragged]
    numbers: list[int] = []
    passed = 0
    while len(numbers) < count or (passed < len(taken) and taken[passed] == first):
        if passed < len(taken) and taken[passed] == first:
            passed += 1
            first += 1
            continue
        # Up to the next ragged one at once.
        stop = min(first + count - len(numbers), taken[passed] if passed < len(taken) else first + count)
        numbers.extend(range(first, stop))
        first = stop
    return pa.array(numbers, pa.int64()), first, passed


def _without_damaged(records: _Records, delimiter: str) -> _Records:
    """The records as they were in the file, and those kept whole that are no text."""
    columns = [_as_bytes(column) for column in records.columns]
    damaged = {place for column in columns for place, value in enumerate(column.to_pylist()) if not _is_text(value)}
    corrupt = list(records.corrupt)
    for place in sorted(damaged):
        raw = delimiter.encode().join(column[place].as_py() for column in columns)
        corrupt.append((records.numbers[place].as_py(), record_text(raw)))
    good = pa.array([place not in damaged for place in range(len(records.numbers))], pa.bool_())
    kept = [column.filter(good) for column in columns]
    return _Records(columns=kept, numbers=records.numbers.filter(good), corrupt=corrupt)


def _batch(records: _Records, names: Sequence[str], headers: int) -> CsvBatch:
    texts = [column.cast(pa.string()) for column in records.columns]
    return CsvBatch(
        columns=pa.RecordBatch.from_arrays(texts, names=list(names)),
        rows=pc.subtract(records.numbers, headers),
        corrupt=[(number - headers, text) for number, text in records.corrupt],
    )


def _is_readable(files: Files, file: ManifestFile, options: CsvOptions) -> bool:
    """Whether all of a file is text in its encoding; what is not UTF-8, pyarrow would stop at."""
    if options.encoding.lower().replace("_", "-") not in _UTF8:
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with files.opened(file) as stream:
            while block := stream.read(BLOCK_BYTES):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _as_bytes(column: pa.Array) -> pa.Array:
    return pa.array([value.decode().encode(_ANY_BYTES) for value in column.to_pylist()], pa.binary())


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
