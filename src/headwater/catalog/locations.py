"""Where tables may lie: locations that have one meaning for every engine, and the roots that must hold them.

A location comes from a request, from a table's metadata or from a file that somebody wrote, so nothing is opened,
written or deleted before `Roots` has seen it. Engines differ in how they read `..`, `//`, `%2F`, `?`, `#` and unusual
schemes; what two of them could read differently is refused, not repaired. Nothing here opens a file.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from headwater.catalog.places import warehouse_url

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_S3_SCHEMES: Final = ("s3", "s3a", "s3n")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST: Final = 2_000
"""Room is left for the names of files: a path has at most 4,096 bytes, a key in S3 1,024."""
_LONGEST_PART: Final = 255
"""What file systems take for one name."""
_TWO_MEANINGS: Final = re.compile(r"[?#\\]")
"""Some engine takes these for the end of the path, or for a separator."""
_INNER_SCHEME: Final = re.compile(r":/")
"""Who looks for `://` anywhere, or joins slashes, opens what stands behind it."""
_LEADS_ELSEWHERE: Final = re.compile(r"(?:^|[/\\])\.{1,2}(?:$|[/\\])|\x00")
_MOST_DECODINGS: Final = 3
_NOT_PRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class ForbiddenLocationError(ValueError):
    """A location where this catalog reads, writes and deletes nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """A location taken apart. Two spellings of one place are equal."""

    store: str
    """`file:` or `s3://bucket`."""
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The place in one spelling, which ends with a slash: it begins the text of every place inside."""
        return "/".join((self.store, *self.parts, ""))

    def holds(self, other: "Place") -> bool:
        """Whether the other place is this one or lies in it."""
        return self.store == other.store and other.parts[: len(self.parts)] == self.parts


def place_of(location: str) -> Place:
    """The place that a location names, with `..` and symbolic links followed where it is on this machine.

    >>> place_of("s3a://bucket/lake/t/") == place_of("s3://bucket/lake/t")
    True
    """
    if not isinstance(location, str) or not location:
        raise ForbiddenLocationError(f"a location is the URL of a folder or a file, not {location!r}")
    if len(location.encode(errors="replace")) > _LONGEST:
        raise ForbiddenLocationError(f"the location {location[:100]!r}… is longer than {_LONGEST} bytes")
    if _NOT_PRINTABLE.search(location):
        raise ForbiddenLocationError(f"the location {location!r} has control characters")
    found = _SCHEME.fullmatch(location)
    scheme, rest = found.groups() if found else ("file", location)
    if scheme == "file":
        return _local_place(location, rest)
    if scheme in _S3_SCHEMES and rest.startswith("//"):
        bucket, _, key = rest[2:].partition("/")
        if not _BUCKET.fullmatch(bucket):
            raise ForbiddenLocationError(
                f"the location {location!r} begins with the bucket {bucket!r}: name it plainly"
            )
        parts = tuple(key.removesuffix("/").split("/")) if key else ()
        if "." in parts or ".." in parts:
            raise ForbiddenLocationError(f"the location {location!r} has a part '.' or '..': write it without")
        return Place(f"s3://{bucket}", parts)
    raise ForbiddenLocationError(
        f"the location {location!r} is neither in a folder (file:///…) nor in an S3 store (s3://…)"
    )


def _local_place(location: str, rest: str) -> Place:
    # With two slashes, what follows would be a host for some engines and a folder for others.
    if not rest.startswith("/") or (rest.startswith("//") and not rest.startswith("///")):
        raise ForbiddenLocationError(f"the location {location!r} is not an absolute path: write file:///FOLDER")
    try:
        real = os.path.realpath("/" + rest.lstrip("/"))
    except (OSError, ValueError):
        raise ForbiddenLocationError(f"the location {location!r} cannot be followed to its end") from None
    return Place("file:", tuple(part for part in real.split("/") if part))


class Roots:
    """The folders below which tables may lie: the warehouse, and what the operator allows besides.

    >>> roots = Roots("s3://bucket/lake", ["s3://bucket/imported"])
    >>> roots.holds("s3://bucket/lake/db/t"), roots.holds("s3://bucket/elsewhere/t")
    (True, False)
    """

    def __init__(self, warehouse: str, allowed: Iterable[str] = ()) -> None:
        self._shown: Sequence[str] = [warehouse, *(warehouse_url(location) for location in allowed)]
        self._places = [place_of(location) for location in self._shown]

    def holds(self, location: str) -> bool:
        """Whether a location lies below one of the roots."""
        try:
            self.check(location)
        except ForbiddenLocationError:
            return False
        return True

    def check(self, location: str, what: str = "the location") -> Place:
        """The place of a location below one of the roots; ForbiddenLocationError for all others."""
        place = place_of(location)
        if not any(root.holds(place) and root != place for root in self._places):
            raise ForbiddenLocationError(
                f"{what} {location!r} does not lie below {' or '.join(self._shown)}: choose one that does, or have the "
                "catalog's operator allow another folder (`headwater catalog serve --allow-location`)"
            )
        return place

    def check_new(self, location: str, what: str = "the location") -> Place:
        """The same for a location that a request brings; it must also read the same for every engine."""
        place = self.check(location, what)
        path = _path(location)
        # The operator's own folder may be called as it is.
        own = min((path.removeprefix(_path(root)) for root in self._shown), key=len)
        if _INNER_SCHEME.search(own):
            raise ForbiddenLocationError(f"{what} {location!r} has a second scheme in its path: write it without")
        if _TWO_MEANINGS.search(own) or _LEADS_ELSEWHERE.search(_decoded(own)):
            raise ForbiddenLocationError(
                rf"{what} {location!r} has ? # \ or an encoded '..', which engines read differently: write it without"
            )
        if place.store == "file:" and any(len(os.fsencode(part)) > _LONGEST_PART for part in place.parts):
            raise ForbiddenLocationError(f"{what} {location!r} has a part of more than {_LONGEST_PART} bytes")
        if any(part in ("", ".", "..") for part in path.rstrip("/").split("/")[1:]):
            raise ForbiddenLocationError(f"{what} {location!r} has an empty part, '.' or '..': write it without")
        return place


def _path(location: str) -> str:
    """All of a location behind its scheme and host; it begins with the slash there."""
    found = _SCHEME.fullmatch(location)
    rest = found[2] if found else location
    if rest.startswith("//"):
        _, slash, path = rest[2:].partition("/")
        return slash + path
    return rest


def _decoded(path: str) -> str:
    """The path as the most forgiving reader would take it."""
    for _ in range(_MOST_DECODINGS):
        path = unquote(path)
    return path
