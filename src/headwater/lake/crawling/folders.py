"""Crawls a folder, or a place in an object store: groups its files into tables.

Files belong together when they lie in one folder (or in `key=value` and dated folders below it), have one format, and
fields that are about the same. What tells them from other files must be a pattern, because that is what a load takes.
"""

import os
import re
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from glob import escape
from typing import Final

import pyarrow as pa

from headwater.lake.crawling.event_times import event_time_of
from headwater.lake.crawling.proposals import Crawl, Proposal, column_name, with_names_apart
from headwater.lake.crawling.sniffing import PARQUET, UNSUPPORTED, Sniffed, format_by_name, sniff, suffix_of
from headwater.lake.datasource.file_manifest import ManifestFile
from headwater.lake.datasource.file_names import delimiter_of
from headwater.lake.datasource.file_streams import Files
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.lake.sources.listing import FoundFile, Place, list_files, parse_place, store_settings
from headwater.lake.spark import first_line

HEAD_BYTES: Final = 1 << 16
SAMPLED_FILES: Final = 2
"""So many files are opened of those with names that differ in numbers only."""
MOST_STEMS: Final = 20
"""A folder with more different names than this is not looked through name by name."""

_ALIKE: Final = 0.7
_PART_OF_A_TABLE: Final = re.compile(r"[^=]+=.*|\d+|\d{4}-\d{2}(-\d{2})?([T_-]?\d{2})?")
_VARIES: Final = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}|[0-9a-f]{16,}|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Files that would be one table."""

    folder: str
    format: str
    files: list[FoundFile] = field(default_factory=list)
    sniffed: list[Sniffed] = field(default_factory=list)

    @property
    def fields(self) -> dict[str, pa.Field]:
        """Fields by name, of all files that were looked at."""
        return {each.name: each for sniffed in self.sniffed for each in sniffed.schema}

    def is_like(self, other: "Group") -> bool:
        """Whether most fields of the one with fewer are in the other too. What has no fields is like anything."""
        mine, theirs = self.fields.keys(), other.fields.keys()
        fewer = min(len(mine), len(theirs))
        return fewer == 0 or len(mine & theirs) >= _ALIKE * fewer


def crawl_folder(text: str) -> Crawl:
    """Proposes loads for what lies below a folder, local or in an object store."""
    place = parse_place(text)
    # The URL of a store may have keys in it, which must not be written down.
    shown = text if place.store is None else place.url
    found = sorted(list_files(place), key=lambda each: each.path)
    if not found:
        raise LakeUsageError(f"there are no files in {shown}: nothing to propose")
    paths = [each.path for each in found]
    folders: dict[str, list[FoundFile]] = defaultdict(list)
    for each in found:
        folders[table_folder(each.path, place.base)].append(each)
    proposals: list[Proposal] = []
    left_out: list[str] = []
    for folder, files in folders.items():
        groups = _groups(folder, files, place, left_out)
        for group in groups:
            pattern = pattern_of(group, paths)
            if pattern is None:
                names = ", ".join(os.path.basename(each.path) for each in group.files[:3])
                left_out.append(
                    f"{len(group.files):,} files of {folder} ({names} …): no pattern tells them from others"
                )
            else:
                proposals.append(_proposal(group, pattern, place, alone=len(groups) == 1))
    return Crawl(place=shown, proposals=with_names_apart(proposals), left_out=tuple(left_out))


def table_folder(path: str, base: str) -> str:
    """The folder of a file's table: above the first folder that is `key=value`, a number or a date.

    >>> table_folder("/in/orders/day=2026-01-31/a.json", "/in"), table_folder("/in/a/2026/01/b.csv", "/in")
    ('/in/orders', '/in/a')
    """
    below = path[len(base) :].strip("/").split("/")[:-1]
    kept = [base.rstrip("/")]
    for part in below:
        if _PART_OF_A_TABLE.fullmatch(part):
            break
        kept.append(part)
    return "/".join(kept)


def stem_of(name: str) -> str:
    """What stays the same in names of files that were written one after the other.

    >>> stem_of("orders-2026-01-31.json"), stem_of("part-00001-c0ffee00c0ffee00.parquet")
    ('orders-#-#-#.json', 'part-#-#.parquet')
    """
    return _VARIES.sub("#", name)


def common_stem(names: Sequence[str]) -> str:
    """What all names begin with, up to the first number.

    >>> common_stem(["orders-2026-01.csv", "orders-2027-01.csv"])
    'orders-'
    """
    first, last = min(names), max(names)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return _VARIES.split(first[:same])[0]


def pattern_of(group: Group, paths: Sequence[str]) -> str | None:
    """The folder, or the first pattern below it, that takes the files of a group and no others of the sorted paths."""
    wanted = {each.path for each in group.files}
    below = group.folder + "/"
    inside = paths[bisect_left(paths, below) : bisect_left(paths, below + chr(sys.maxunicode))]
    if wanted == set(inside):
        return group.folder
    names = [os.path.basename(path) for path in sorted(wanted)]
    suffixes = {_from_suffix_on(name) for name in names}
    plain = {suffix_of(name) for name in names}
    # `.json*` where some are compressed; nothing where their names have nothing in common.
    suffix = escape(suffixes.pop()) if len(suffixes) == 1 else f"{escape(plain.pop())}*" if len(plain) == 1 else ""
    prefix = escape(common_stem(names))
    deep = "" if all("/" not in path[len(group.folder) + 1 :] for path in wanted) else "**/"
    for name in dict.fromkeys((f"*{suffix}", f"{prefix}*{suffix}", f"{prefix}*")):
        taken = {path for path in inside if _matches(path[len(group.folder) + 1 :], name, deep=bool(deep))}
        if taken == wanted:
            return f"{escape(group.folder)}/{deep}{name}"
    if len(wanted) == 1:
        return escape(next(iter(wanted)))
    return None


def _from_suffix_on(name: str) -> str:
    """`.csv.gz` of `orders.csv.gz`."""
    suffix = suffix_of(name)
    return name[name.lower().rindex(suffix) :] if suffix else ""


def _matches(below: str, name: str, *, deep: bool) -> bool:
    folder, _, last = below.rpartition("/")
    return (deep or not folder) and fnmatchcase(last, name)


def _groups(folder: str, files: Sequence[FoundFile], place: Place, left_out: list[str]) -> list[Group]:
    """The tables of one folder: by format, by name, then those with about the same fields together again."""
    stems: dict[tuple[str | None, str], list[FoundFile]] = defaultdict(list)
    for each in files:
        name = os.path.basename(each.path)
        stems[format_by_name(name), stem_of(name)].append(each)
    if len(stems) > MOST_STEMS:
        merged: dict[tuple[str | None, str], list[FoundFile]] = defaultdict(list)
        for (promised, _), some in stems.items():
            merged[promised, ""] += some
        stems = merged
    groups: list[Group] = []
    for some in stems.values():
        sniffed = [_sniffed(each, place) for each in _spread(some)]
        kind = sniffed[0].format
        if kind == UNSUPPORTED:
            left_out.append(f"{_count(some)} in {folder} ({os.path.basename(some[0].path)}): {sniffed[0].why}")
            continue
        group = Group(folder=folder, format=kind, files=list(some), sniffed=sniffed)
        like = next((other for other in groups if other.format == kind and other.is_like(group)), None)
        if like is None:
            groups.append(group)
        else:
            like.files.extend(group.files)
            like.sniffed.extend(group.sniffed)
    return groups


def _spread(files: Sequence[FoundFile]) -> Iterable[FoundFile]:
    """The first and the last of the files that hold anything: fields come and go with time."""
    full = [each for each in files if each.size_bytes] or list(files)
    return dict.fromkeys((full[0], full[-1])) if SAMPLED_FILES > 1 else full[:1]


def _sniffed(found: FoundFile, place: Place) -> Sniffed:
    name = os.path.basename(found.path)
    if format_by_name(name) == UNSUPPORTED:
        return sniff(name, b"", whole=True)
    file = ManifestFile(path=found.path, modified_ns=found.modified_ns, size_bytes=found.size_bytes)
    try:
        head = _head(file, place)
        seen = sniff(name, head, whole=len(head) < HEAD_BYTES)
        return seen if seen.format != PARQUET else replace(seen, schema=_parquet_schema(file, place))
    except (LakeError, pa.ArrowException, OSError) as error:
        return Sniffed(format=UNSUPPORTED, why=f"it cannot be read: {first_line(error)}")


def _head(file: ManifestFile, place: Place) -> bytes:
    with Files(place.store).opened(file) as stream:
        head: bytes = stream.read(HEAD_BYTES)
    return head


def _parquet_schema(file: ManifestFile, place: Place) -> pa.Schema:
    import pyarrow.parquet as pq

    with Files(place.store).opened(file, uncompressed=False) as stream:
        return pq.read_schema(stream).remove_metadata()


def _proposal(group: Group, pattern: str, place: Place, *, alone: bool) -> Proposal:
    below = group.folder[len(place.base) :].strip("/")
    database = column_name(os.path.basename(place.base.rstrip("/")) or "files")
    table = column_name(below or os.path.basename(group.folder))
    if not alone:
        names = [os.path.basename(each.path) for each in group.files]
        stem = common_stem([name.removesuffix(_from_suffix_on(name)) for name in names])
        table = column_name("_".join(filter(None, (below, stem or group.format))))
    schema = pa.schema(list(group.fields.values()))
    event_time = event_time_of(schema)
    size = sum(each.size_bytes for each in group.files)
    reasons = [f"{_count(group.files)}, {size:,} bytes, {group.format}: {group.sniffed[0].why}."]
    if group.fields:
        reasons.append(f"Fields of {len(group.sniffed)} sampled: {_names(list(group.fields))}.")
    if event_time is not None:
        reasons.append(f"{event_time} is when a row happened, by its type and name.")
    return Proposal(
        source=f"files:{pattern}",
        into=f"{database}.{table}",
        reasons=tuple(reasons),
        event_time=event_time,
        options={**_options(group), **store_settings(place)},
    )


def _options(group: Group) -> dict[str, str]:
    """What the names of the files do not tell."""
    by_name = {format_by_name(os.path.basename(each.path)) for each in group.files}
    options = {} if by_name == {group.format} else {"format": group.format}
    delimiters = {sniffed.delimiter for sniffed in group.sniffed if sniffed.delimiter}
    usual = {delimiter_of(each.path) for each in group.files}
    if len(delimiters) == 1 and delimiters != usual:
        options["delimiter"] = delimiters.pop()
    if not all(sniffed.header for sniffed in group.sniffed):
        options["header"] = "false"
    return options


def _count(files: Sequence[FoundFile]) -> str:
    return f"{len(files):,} file{'' if len(files) == 1 else 's'}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more
