"""Files as a source: new is what no committed load has in the ledger under its path, time and size.

Rows have `_path`, `_modified` and `_row`. `_row` is the number of a record in its file for CSV and Parquet, and the
byte at which it begins (uncompressed) for lines of JSON and text: both follow the file's order, and stay the same.
"""

import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.catalog.object_stores import SETTINGS, S3Place, is_s3
from headwater.lake.arrow_types import spark_schema
from headwater.lake.datasource.file_manifest import AUTO, FORMATS, CsvOptions, FileFormat, Manifest, ManifestFile
from headwater.lake.datasource.file_names import format_of
from headwater.lake.datasource.file_streams import ORIGIN_COLUMNS, store_for_others
from headwater.lake.datasource.options import MANIFEST
from headwater.lake.errors import LakeUsageError
from headwater.lake.leftovers import new_folder, remove_folder
from headwater.lake.shapes import Policies, Shape, merge_shapes, shape_of_arrow
from headwater.lake.shapes.csv_text import shape_of_csv
from headwater.lake.sources.file_changes import CHANGED, Changed, file_changes
from headwater.lake.sources.listing import FoundFile, Place, list_files, parse_place
from headwater.lake.sources.path_keys import path_keys
from headwater.lake.sources.source import Position
from headwater.lake.values import option_seconds
from headwater.private_files import opener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from headwater.catalog.client import CatalogClient

_FIXED: Final = {"text": pa.schema([("value", pa.string())]), "raw": pa.schema([("value", pa.binary())])}
_CSV: Final = tuple(each.name for each in fields(CsvOptions))
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_BEHIND_THE_DATA: Final = 1 << 20
"""Columns of path keys follow those of the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSource:
    """A folder with all below it, a file, or a pattern; on this machine or in an object store."""

    place: Place
    format: str = AUTO
    changed: Changed = "append"
    settle_s: float = 0.0
    """Files that were written to within so many seconds are left for later: a writer may not be done."""
    csv: CsvOptions = field(default_factory=CsvOptions)
    clock: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("format", self.format, (AUTO, *FORMATS)),
            ("changed", self.changed, CHANGED),
        ):
            if value not in allowed:
                raise LakeUsageError(f"{name} = {value!r} is not allowed for {self.id}: use {', '.join(allowed)}")

    @property
    def id(self) -> str:
        """`files:file:///data/in`; never with the settings of a store."""
        return f"files:{self.place.url}"

    @property
    def fixed(self) -> pa.Schema | None:
        """Nothing is fixed: folders may add columns to any format."""
        return None

    @property
    def origin(self) -> pa.Schema:
        """Path, time of the last change, place in the file."""
        return ORIGIN_COLUMNS

    @property
    def event_time(self) -> str | None:
        """When a file was changed says little about when its records happened."""
        return None

    def look(self, catalog: "CatalogClient", table: str, position: Position | None) -> "FilesNews | None":
        """Compares what is there with the ledger. Nothing is opened, and no Spark is needed."""
        before_ns = self.clock() - int(self.settle_s * 1e9) if self.settle_s else (1 << 63) - 1
        known = catalog.known_files(table, self.id)
        changes = file_changes(list_files(self.place), known, self.changed, before_ns=before_ns)
        if not changes.files:
            return None
        format_, files = self._of_one_format(changes.files)
        if not files:
            return None
        paths = {file.path for file in files}
        return FilesNews(
            source=self,
            format=format_,
            files=files,
            changed=[path for path in changes.changed if path in paths],
            left_out=len(changes.files) - len(files),
        )

    def _of_one_format(self, files: Sequence[FoundFile]) -> tuple[FileFormat, Sequence[FoundFile]]:
        """The format of the files, and those that have it; names that tell none are left out, and counted."""
        for format_ in FORMATS:
            if self.format == format_:
                return format_, files  # type: ignore[return-value]
        kinds = [format_of(file.path) for file in files]
        seen = Counter(kind for kind in kinds if kind is not None)
        if not seen:
            raise LakeUsageError(
                f"the name of {files[0].path} does not tell its format: say format = {', '.join(FORMATS[:-1])} or "
                f"{FORMATS[-1]}"
            )
        if len(seen) > 1:
            words = " and ".join(f"{count:,} of {kind}" for kind, count in seen.most_common())
            raise LakeUsageError(
                f"{self.place.url} has files of several formats ({words}): load them one after the other into tables "
                "of their own, with a pattern such as '*.csv', or say which format all of them have"
            )
        wanted = next(iter(seen))
        return wanted, [file for file, kind in zip(files, kinds, strict=True) if kind == wanted]


def parse_files(text: str, **options: Any) -> FilesSource:
    """The source that a path, a pattern or a URL names, with its options.

    >>> parse_files("/data/in", format="csv", delimiter=";").csv.delimiter
    ';'
    """
    known = {each.name for each in fields(FilesSource)} - {"place", "csv", "clock"}
    for name in options:
        if name not in known and name not in (*_CSV, *SETTINGS):
            raise LakeUsageError(
                f"files have no option {name!r}; they have {', '.join(sorted(known))}; for CSV {', '.join(_CSV)}; "
                f"in S3 {', '.join(SETTINGS)}"
            )
    given = {name: _READ_AS.get(name, str)(value) for name, value in options.items()}
    csv = CsvOptions(**{name: value for name, value in given.items() if name in _CSV})
    place = _reached(parse_place(text), {name: value for name, value in given.items() if name in SETTINGS})
    return FilesSource(place=place, csv=csv, **{name: value for name, value in given.items() if name in known})


def _reached(place: Place, settings: Mapping[str, str]) -> Place:
    """The place with settings of its store, which its URL could have told as well."""
    if not settings:
        return place
    if place.store is None or not is_s3(place.store):
        raise LakeUsageError(f"{place.url} is not in S3: it has no {' and no '.join(settings)}")
    return replace(place, store=replace(S3Place.parse(place.store), **settings).whole_url)


def _flag(value: object) -> bool:
    words = {"true": True, "yes": True, "false": False, "no": False}
    found = words.get(str(value).lower())
    if found is None:
        raise LakeUsageError(f"header = {value!r} is neither true nor false")
    return found


def _delimiter(value: object) -> str:
    return "\t" if value in ("tab", "\\t") else str(value)


_READ_AS: Final[Mapping[str, Callable[[object], Any]]] = {
    "settle_s": option_seconds,
    "header": _flag,
    "delimiter": _delimiter,
}
"""Options that are no texts; on a command line they come as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesNews:
    """Files of one format that are to be loaded. `changed` are paths among them that were loaded before."""

    source: FilesSource
    format: FileFormat
    files: Sequence[FoundFile]
    changed: Sequence[str] = ()
    left_out: int = 0
    notes: "_Notes" = field(default_factory=lambda: _Notes())
    """Where the manifests are; they go when nobody needs the news any more."""

    @property
    def after(self) -> Position:
        """The load itself: its files are in the ledger."""
        return {}

    @property
    def words(self) -> str:
        """How many files of which size."""
        words = f"{len(self.files):,} file{'' if len(self.files) == 1 else 's'}, {_size(self._bytes())}"
        if self.changed:
            words += f", {len(self.changed):,} of them changed"
        return f"{words} ({self.left_out:,} of unknown format left out)" if self.left_out else words

    @property
    def details(self) -> Mapping[str, Any]:
        """What kind of files they are."""
        return {"format": self.format, "files": len(self.files), "bytes": self._bytes(), "changed": len(self.changed)}

    @property
    def replaced(self) -> Sequence[str]:
        """The paths whose rows of earlier loads go."""
        return self.changed if self.source.changed == "replace" else ()

    def shape(self, spark: "Callable[[], SparkSession]") -> Shape:
        """Each split says what it saw, or the footers do; the folders add their keys."""
        return with_path_keys(self._shape_of_data(spark), [file.keys for file in self.manifest().files])

    def read(self, spark: "SparkSession", fields: pa.Schema, policies: Policies) -> "DataFrame":
        """The records, parsed where the files are read."""
        if self.format == "parquet":
            from headwater.lake.sources.parquet_files import read_parquet

            return read_parquet(spark, self._through_pyarrow, self.manifest(), fields, policies)
        reader = self._reader(spark, self.manifest()).option("policies", policies.to_json())
        return reader.schema(spark_schema(fields)).load()

    def register(self, catalog: "CatalogClient", load_id: str) -> None:
        """The ledger knows the files once the load is committed."""
        names = ("path", "modified_ns", "size_bytes")
        columns = [[getattr(file, name) for file in self.files] for name in names]
        types = (pa.string(), pa.int64(), pa.int64())
        arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
        catalog.add_files(load_id, pa.table(arrays, names=["path", "modified_ns", "size"]))

    def manifest(self) -> Manifest:
        """What Spark is told about the files."""
        base = self.source.place.base
        files = [
            ManifestFile(
                path=file.path,
                modified_ns=file.modified_ns,
                size_bytes=file.size_bytes,
                keys=path_keys(file.path, base),
            )
            for file in self.files
        ]
        store = store_for_others(self.source.place.store)
        return Manifest(format=self.format, files=files, store=store, csv=self.source.csv)

    def _shape_of_data(self, spark: "Callable[[], SparkSession]") -> Shape:
        if self.format in _FIXED:
            return shape_of_arrow(_FIXED[self.format])
        if self.format == "parquet":
            from headwater.lake.sources.parquet_files import shape_of_parquet

            return shape_of_parquet(self.manifest())
        seen = self._reader(spark(), self.manifest()).option("value", "shape").load().collect()
        return merge_shapes(Shape.from_json(row.shape) for row in seen)

    def _reader(self, spark: "SparkSession", manifest: Manifest) -> "DataFrameReader":
        return spark.read.format("headwater").option(MANIFEST, str(self.notes.keep(manifest)))

    def _through_pyarrow(self, spark: "SparkSession", manifest: Manifest, columns: pa.Schema) -> "DataFrame":
        return self._reader(spark, manifest).schema(spark_schema(columns)).load()

    def _bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class _Notes:
    """A folder for manifests, which only this user can read: they may tell how a store is opened."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._kept = 0

    def keep(self, manifest: Manifest) -> Path:
        """The path of a file with this manifest."""
        if self._folder is None:
            self._folder, descriptor = new_folder()
            weakref.finalize(self, remove_folder, self._folder, descriptor)
        self._kept += 1
        path = self._folder / f"{self._kept}.json"
        with open(path, "x", encoding="utf-8", opener=opener) as file:
            file.write(manifest.to_json())
        return path


def with_path_keys(data: Shape, keys: Sequence[Mapping[str, str | None]]) -> Shape:
    """The shape of records with what their folders say, but for what they say themselves."""
    names = dict.fromkeys(name for each in keys for name in each if name not in data.root.fields)
    if not names:
        return data
    texts = {name: pa.array([each.get(name) for each in keys], pa.string()) for name in names}
    folders = shape_of_csv(pa.table(texts))
    for child in folders.root.fields.values():
        child.position += _BEHIND_THE_DATA
    return replace(merge_shapes((data, folders)), records=data.records, sources=data.sources)


def _size(size_bytes: int) -> str:
    power = min(max(size_bytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size_bytes} {_UNITS[0]}" if power == 0 else f"{size_bytes / (1 << 10 * power):.1f} {_UNITS[power]}"
