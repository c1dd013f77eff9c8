"""Arrow from the wire is checked in full before use: what would make Arrow read outside its memory is a 400."""

import base64
import struct
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from catalog_parts import error_of
from headwater.catalog.arrow_input import FILES, MalformedArrowError, read_schema, read_table
from headwater.catalog.client import CatalogClient
from headwater.catalog.server import EmbeddedCatalog

ROWS = pa.table({"path": ["a", "bb", "ccc"], "modified_ns": [1, 2, 3], "size": [4, 5, 6]}, schema=FILES)
OFFSETS = struct.pack("<4i", 0, 1, 3, 6)
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def with_offsets(*offsets: int) -> bytes:
    """The honest stream, with other offsets of its strings."""
    honest = stream(ROWS)
    assert honest.count(OFFSETS) == 1
    return honest.replace(OFFSETS, struct.pack("<4i", *offsets))


def with_lengths(claimed: int) -> bytes:
    """The honest stream, whose batch claims other lengths than three rows."""
    honest = stream(ROWS)
    batch = honest.index(b"\xff\xff\xff\xff", 8)
    return honest[:batch] + honest[batch:].replace(struct.pack("<q", 3), struct.pack("<q", claimed))


CRAFTED = {
    "far": with_offsets(0, 1, 3, 2_000_000_000),
    "farther": with_offsets(2_000_000_000, 2_000_000_000, 2_000_000_000, 2_000_000_001),
    "negative": with_offsets(0, -2_000_000_000, 3, 6),
    "falling": with_offsets(0, 6, 3, 1),
    "rows": with_lengths(1 << 40),
    "few": with_lengths(4),
    "below zero": with_lengths(-1),
    "no text": stream(ROWS).replace(b"abbccc", b"a\xffbccc"),
    "packed": stream(pa.concat_tables([ROWS] * 50), "zstd"),
    "packed too": stream(pa.concat_tables([ROWS] * 50), "lz4"),
    "dictionary": stream(ROWS.set_column(0, "path", ROWS.column("path").dictionary_encode())),
    "other columns": stream(ROWS.select(["path", "size"])),
    "other order": stream(ROWS.select(["size", "path", "modified_ns"])),
    "other types": stream(ROWS.set_column(2, "size", pa.array([1, 2, 3], pa.int32()))),
    "no rows but null": stream(pa.table({"path": pa.nulls(3), "modified_ns": [1, 2, 3], "size": [4, 5, 6]})),
    "schema twice": stream(ROWS)[:-8] + stream(ROWS),
    "batch first": stream(ROWS)[stream(ROWS).index(b"\xff\xff\xff\xff", 8) :],
    "nothing": b"",
    "zeros": bytes(64),
    "a claim": b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    "json": b"{}",
}


def cut() -> list[bytes]:
    """The honest stream cut off anywhere within its batch."""
    honest = stream(ROWS)
    return [honest[:size] for size in range(len(honest) - 8, 0, -37) if size % 8]


def test_what_is_written_is_read() -> None:
    for rows in (ROWS, ROWS.slice(1), FILES.empty_table(), pa.concat_tables([ROWS, ROWS])):
        assert read_table(stream(rows), FILES).equals(rows)


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_stream_is_refused(name: str) -> None:
    with pytest.raises(MalformedArrowError):
        read_table(CRAFTED[name], FILES).to_pylist()


def test_a_stream_that_is_cut_off_is_refused() -> None:
    for part in cut():
        with pytest.raises(MalformedArrowError):
            read_table(part, FILES)


def test_a_catalog_that_is_sent_such_streams_lives_on(tmp_path: Path) -> None:
    """In a process of its own: what is not noticed ends it."""
    done = subprocess.run(
        [sys.executable, "-m", "unit.catalog.test_catalog_arrow_input", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr[-2000:]


@pytest.mark.parametrize("text", ["", "AAAA", "!", base64.b64encode(bytes(64)).decode(), 7, None, ["x"], "ä"])
def test_a_crafted_schema_is_refused(embedded: EmbeddedCatalog, text: object) -> None:
    request = {"table": "db.t", "arrow_schema": text}
    answer = httpx.post(f"{embedded.uri}/headwater/v1/evolve", json=request, trust_env=False)
    assert error_of(answer)[:2] == (400, "BadRequestException")


def test_a_schema_of_types_that_iceberg_lacks_is_refused(embedded: EmbeddedCatalog) -> None:
    deep = pa.int64()
    for _ in range(60):
        deep = pa.list_(deep)
    for kind in (pa.duration("s"), pa.uuid(), pa.decimal256(60, 2), pa.month_day_nano_interval(), deep):
        text = base64.b64encode(pa.schema([("x", kind)]).serialize()).decode()
        request = {"table": "db.t", "arrow_schema": text}
        answer = httpx.post(f"{embedded.uri}/headwater/v1/evolve", json=request, trust_env=False)
        assert answer.status_code < 500, (kind, answer.text)
    with pytest.raises(MalformedArrowError, match="at most"):
        read_schema(bytes(5 << 20))


def _serve_crafted(folder: str) -> None:
    with EmbeddedCatalog(f"{folder}/c.db", f"{folder}/w") as catalog, CatalogClient(catalog.uri) as client:
        load_id = client.begin_load(table="db.t", source="files:x")
        url = f"{catalog.uri}/headwater/v1/loads/{load_id}/files"
        for name, data in {**CRAFTED, **{str(len(part)): part for part in cut()}}.items():
            answer = httpx.post(url, content=data, headers=ARROW, trust_env=False)
            assert error_of(answer)[0] == 400, (name, answer.text)
        nulls = pa.table({"path": [None], "modified_ns": [1], "size": [4]}, schema=FILES)
        assert error_of(httpx.post(url, content=stream(nulls), headers=ARROW, trust_env=False))[0] == 400
        assert client.files_of(load_id).num_rows == 0
        client.add_files(load_id, ROWS)
        assert client.files_of(load_id).num_rows == 3
    print("alive")


if __name__ == "__main__":
    _serve_crafted(sys.argv[1])
