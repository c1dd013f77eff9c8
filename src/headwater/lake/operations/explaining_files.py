"""Why a file is in a table, or is not: what the ledger says of it, then the folder, with the rules that loads go by."""

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from headwater.catalog.entries import COMMITTED, FileEntry, Load
from headwater.lake.datasource.file_names import format_of
from headwater.lake.errors import LakeError, LakeUsageError
from headwater.lake.operations.explanations import Explanation, Verdict, load_words, moment
from headwater.lake.operations.status import reach_of
from headwater.lake.sources.files import FilesSource, parse_files
from headwater.lake.sources.listing import FoundFile, is_hidden, list_files

if TYPE_CHECKING:
    from headwater.lake.lake import Lake

_CHANGED: Final = {
    "append": (Verdict.AGAIN, "the next load brings it again, and the rows of before stay (changed = append)"),
    "replace": (Verdict.AGAIN, "the next load brings it again in place of the rows of before (changed = replace)"),
    "ignore": (Verdict.LOADED, "the rows of before stand (changed = ignore)"),
    "fail": (Verdict.AGAIN, "the next load will refuse to go on (changed = fail)"),
}


def explain_file(lake: "Lake", table: str, path: str) -> Explanation:
    """What became of a file, and why."""
    path = _ledger_path(path)
    sources = [source for _, source in lake.catalog.sources(table) if source.startswith("files:")]
    entries = lake.catalog.find_file(table, path)
    for source in sources:
        known = _known(lake, table, source, path)
        if known is not None:
            entry = next(entry for entry in entries if entry.load.load_id == known)
            return _Told(path, _source(lake, table, source), entries).loaded(entry)
    for source in sources:
        found = _source(lake, table, source)
        if path == found.place.base or path.startswith(found.place.base.rstrip("/") + "/"):
            return _Told(path, found, entries).not_loaded()
    places = ", ".join(source.removeprefix("files:") for source in sources) or "none"
    raise LakeUsageError(f"{path} lies in no folder that is loaded into {table}; folders that are: {places}")


def _ledger_path(text: str) -> str:
    """A path as the ledger has it: absolute, or the URL of an object."""
    if text.startswith("file://"):
        return unquote(text.removeprefix("file://"))
    return text if "://" in text else os.path.abspath(os.path.expanduser(text))


def _known(lake: "Lake", table: str, source: str, path: str) -> str | None:
    """The load that the table's rows of a file come from."""
    import pyarrow.compute as pc

    known = lake.catalog.known_files(table, source)
    rows = known.filter(pc.equal(known.column("path"), path)).column("load_id").to_pylist()
    return rows[0] if rows else None


def _source(lake: "Lake", table: str, source: str) -> FilesSource:
    """The source with the options of its last load."""
    options = dict(reach_of(lake.catalog.loads(table, source)).options)
    return parse_files(source.removeprefix("files:"), **options)


@dataclass(frozen=True, slots=True)
class _Told:
    """One file, the source it belongs to, and all loads that named it, newest first."""

    path: str
    source: FilesSource
    entries: list[FileEntry]

    def loaded(self, entry: FileEntry) -> Explanation:
        """It is one that the table has."""
        reasons = [f"it was loaded by {load_words(entry.load)}, as it was {moment(entry.modified_ns // 1_000_000)}"]
        there = self._look()
        if there is None:
            return self._because(Verdict.LOADED, *reasons, "it is not there any more; its rows stay")
        if (there.modified_ns, there.size_bytes) == (entry.modified_ns, entry.size):
            return self._because(Verdict.LOADED, *reasons, "it has not changed since, so later loads pass it over")
        verdict, words = _CHANGED[self.source.changed]
        changed = f"it has changed since: {moment(there.modified_ns // 1_000_000)}, {there.size_bytes:,} bytes"
        return self._because(verdict, *reasons, f"{changed}; {words}")

    def not_loaded(self) -> Explanation:
        """It is none that the table has."""
        reasons = []
        if self.entries:
            newest = self.entries[0].load
            reasons.append(f"it was part of {load_words(newest)}")
            if newest.state == COMMITTED:
                reasons.append("the position was set back behind that load since, or the table to an earlier snapshot")
        verdict, why = self._why_not()
        if verdict is Verdict.NOT_YET and self.entries and self.entries[0].load.state == COMMITTED:
            verdict = Verdict.AGAIN
        return self._because(verdict, *reasons, why)

    def _why_not(self) -> tuple[Verdict, str]:
        place = self.source.place
        hidden = [part for part in self.path[len(place.base) :].split("/") if part and is_hidden(part)]
        if hidden:
            words = f"{hidden[0]!r} is a hidden name: what begins with . or _ is taken for no data"
            return Verdict.SKIPPED, f"{words}, nor are copies under way"
        there = self._look()
        if there is None:
            if place.store is None and os.path.exists(self.path):
                return Verdict.SKIPPED, f"it is not one of the files that {place.url} means"
            return Verdict.ABSENT, f"there is no such file in {place.url}"
        if there.size_bytes == 0:
            return Verdict.NOT_YET, "it is empty: it is left until something is in it"
        age_s = time.time() - there.modified_ns / 1e9
        if age_s < self.source.settle_s:
            words = f"it was written to {age_s:.0f} s ago, and is left to settle for {self.source.settle_s:.0f} s"
            return Verdict.NOT_YET, words
        if self.source.format == "auto" and format_of(self.path) is None:
            return Verdict.SKIPPED, "its name does not tell its format: load with the option format"
        return Verdict.NOT_YET, "it is there: the next load brings it"

    def _look(self) -> FoundFile | None:
        try:
            return next((found for found in list_files(self.source.place) if found.path == self.path), None)
        except LakeError:
            return None

    def _because(self, verdict: Verdict, *reasons: str) -> Explanation:
        loads: tuple[Load, ...] = tuple(entry.load for entry in reversed(self.entries))
        return Explanation(subject=self.path, verdict=verdict, reasons=reasons, loads=loads)
