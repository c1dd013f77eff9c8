"""What to read of files, as the driver writes it down for the data source: the option `manifest` names such a file.

A list of a hundred thousand paths is too long for an option. It is JSON: `{"format": "json", "files": [{"path": …,
"modified_ns": …, "size": …}]}`, and what else is told below. Pure but for reading the one file.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from headwater.lake.errors import LakeUsageError

FileFormat: TypeAlias = Literal["json", "csv", "text", "raw", "parquet"]
"""JSON lines; CSV with a header in each file; lines of text; whole files as bytes; Parquet."""

FORMATS: Final[tuple[str, ...]] = get_args(FileFormat)
AUTO: Final = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """How CSV files are written. The delimiter of `auto` is a tab in files named `.tsv` or `.tab`, else a comma."""

    delimiter: str = AUTO
    quote: str = '"'
    header: bool = True
    """Whether the first record of a file has the names of its columns; without, they are `_c0`, `_c1`, …"""
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.delimiter != AUTO and len(self.delimiter) != 1:
            raise LakeUsageError(f"the delimiter {self.delimiter!r} is not one character")
        if len(self.quote) > 1:
            raise LakeUsageError(f"the quote {self.quote!r} is not one character; an empty one means no quotes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A file as it was when the load was planned, and what its folders say about its records."""

    path: str
    modified_ns: int
    size_bytes: int
    keys: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Files of one format. `store` is the URL by which an object store is opened; without, paths are this machine's."""

    format: FileFormat
    files: Sequence[ManifestFile]
    store: str | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)

    def to_json(self) -> str:
        """The text of the file."""
        files = [_plain(each) for each in self.files]
        return json.dumps({"format": self.format, "files": files, "store": self.store, "csv": asdict(self.csv)})

    @classmethod
    def from_file(cls, path: str | Path) -> "Manifest":
        """The inverse of `to_json`, from the file that the option names."""
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
            files = [_file(each) for each in plain["files"]]
            csv = CsvOptions(**plain.get("csv", {}))
            format_ = plain["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LakeUsageError(f"{path} is no manifest of files: {error!r}") from error
        if format_ not in FORMATS:
            raise LakeUsageError(f"the format {format_!r} of {path} is unknown: there are {', '.join(FORMATS)}")
        return cls(format=format_, files=files, store=plain.get("store"), csv=csv)


def _plain(each: ManifestFile) -> dict[str, Any]:
    plain: dict[str, Any] = {"path": each.path, "modified_ns": each.modified_ns, "size": each.size_bytes}
    return {**plain, "keys": dict(each.keys)} if each.keys else plain


def _file(plain: Mapping[str, Any]) -> ManifestFile:
    return ManifestFile(
        path=plain["path"],
        modified_ns=int(plain["modified_ns"]),
        size_bytes=int(plain["size"]),
        keys=plain.get("keys", {}),
    )
