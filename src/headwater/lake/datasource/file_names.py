"""What the name of a file tells: its format, and how it is compressed. Pure."""

from typing import Final

from headwater.lake.datasource.file_manifest import FileFormat

_COMPRESSIONS: Final = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
    ".br": "brotli",
}
_FORMATS: Final[dict[str, FileFormat]] = {
    ".json": "json",
    ".jsonl": "json",
    ".jsonlines": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
}


def compression_of(path: str) -> str | None:
    """How pyarrow calls the compression of a file, if its name tells one."""
    return _COMPRESSIONS.get(_ending(path))


def format_of(path: str) -> FileFormat | None:
    """The format of a file; None when the name does not tell.

    >>> format_of("in/x.jsonl.gz"), format_of("in/x.csv"), format_of("in/part-0000")
    ('json', 'csv', None)
    """
    return _FORMATS.get(_ending(_uncompressed(path)))


def delimiter_of(path: str) -> str:
    """What stands between the values of a CSV file, by its name."""
    return "\t" if _ending(_uncompressed(path)) in (".tsv", ".tab") else ","


def _uncompressed(path: str) -> str:
    ending = _ending(path)
    return path[: -len(ending)] if ending in _COMPRESSIONS else path


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[name.rfind(".") :].lower() if "." in name else ""
