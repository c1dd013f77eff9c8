"""Reads a `lake.toml`: the lake, and the jobs that load into it.

Everything is checked before anything runs: a key that is not known, a value of another type, a load without a source.
Paths are relative to the folder of the file, wherever the command runs.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.catalog.names import BadNameError, name_of, text_of
from headwater.lake.errors import LakeUsageError
from headwater.lake.jobs import Job, LakeFile
from headwater.lake.load.request import MODES, LoadRequest
from headwater.lake.sources.parsing import parse_source
from headwater.lake.values import nearest, partitions, policies, seconds, size_bytes


def read_lake_file(path: Path) -> LakeFile:
    """The lake and the jobs of a file; a LakeUsageError names the place of what is wrong in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LakeUsageError(f"there is no file {path}: name the lake.toml whose loads are to run") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LakeUsageError(f"{path} cannot be read: {error}") from None
    try:
        return parse_lake_file(text, folder=path.absolute().parent)
    except LakeUsageError as error:
        raise LakeUsageError(f"{path}: {error}") from None


def parse_lake_file(text: str, *, folder: Path) -> LakeFile:
    """The same for a text; `folder` is what its paths are relative to."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LakeUsageError(f"this is no TOML: {error}") from None
    for name in document:
        if name not in ("lake", "load"):
            raise LakeUsageError(
                f"there is no [{name}]{nearest(name, ('lake', 'load'))}; a file has [lake] and [[load]]"
            )
    lake = _Section("[lake]", document.get("lake", {}), _LAKE)
    loads = document.get("load", [])
    if not isinstance(loads, list):
        raise LakeUsageError("loads are written as [[load]], with two brackets, because there may be several")
    if not loads:
        raise LakeUsageError(
            'there is no [[load]] in it: write one with source = "topic:…" and into = "database.table"'
        )
    bootstrap = lake.get("bootstrap")
    jobs = tuple(_job(number, each, bootstrap, folder) for number, each in enumerate(loads, 1))
    _check_twins(jobs)
    return LakeFile(
        jobs=jobs,
        warehouse=None if "warehouse" not in lake else _from(folder, lake.get("warehouse")),
        catalog=None if "catalog" not in lake else _database_from(folder, lake.get("catalog")),
        master=lake.get("master"),
        conf=lake.get("conf") or {},
    )


Reader = Callable[[object], Any]
"""Makes a value of what TOML has; ValueError says what it should have been."""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) and each.strip() for each in texts):
        raise ValueError("a text or a list of texts")
    return tuple(texts)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _options(value: object) -> dict[str, str | int | float]:
    if not isinstance(value, dict) or not all(isinstance(each, (str, int, float)) for each in value.values()):
        raise ValueError("a table of names and plain values")
    return value


def _settings(value: object) -> dict[str, str]:
    """Options as the texts that they would be on the command line."""
    options = _options(value)
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in options.items()}


def _mode(value: object) -> str:
    text = _text(value)
    if text not in MODES:
        raise LakeUsageError(f"{text!r} is no mode: it is one of {', '.join(MODES)}{nearest(text, MODES)}")
    return text


def _seconds(value: object) -> float:
    return seconds(_text(value))


def _bytes(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else size_bytes(_text(value))


_LAKE: Final[Mapping[str, Reader]] = {
    "warehouse": _text,
    "catalog": _text,
    "master": _text,
    "bootstrap": _text,
    "conf": _settings,
}
_LOAD: Final[Mapping[str, Reader]] = {
    "source": _text,
    "into": _text,
    "name": _text,
    "bootstrap": _text,
    "mode": _mode,
    "key": _texts,
    "newest_by": _text,
    "window": _seconds,
    "event_time": _text,
    "partition_by": _texts,
    "sort_by": _texts,
    "target_file_size": _bytes,
    "on_conflict": _texts,
    "rewrite": _flag,
    "skip_corrupt": _flag,
    "options": _options,
}
"""The options of `headwater lake load`, by the same names."""


_SKIP_CORRUPT: Final = {False: {}, True: {"corrupt_records": "skip"}}


class _Section:
    """The keys of one table of the file, read as they should be."""

    def __init__(self, place: str, raw: object, readers: Mapping[str, Reader]) -> None:
        self.place = place
        if not isinstance(raw, dict):
            raise LakeUsageError(f"{place} is a table of keys and values")
        unknown = [name for name in raw if name not in readers]
        if unknown:
            advice = nearest(unknown[0], readers) or f"; its keys are {', '.join(readers)}"
            raise LakeUsageError(f"{place} has no key {unknown[0]!r}{advice}")
        self._values = {name: self._read(name, readers[name], value) for name, value in raw.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a key, or the default where the file does not say."""
        return self._values.get(name, default)

    def required(self, name: str, example: str) -> Any:
        """The value of a key that must be there."""
        if name not in self._values:
            raise LakeUsageError(f'{self.place} has no {name}: add {name} = "{example}"')
        return self._values[name]

    def _read(self, name: str, reader: Reader, value: object) -> Any:
        try:
            return reader(value)
        except ValueError as error:
            raise LakeUsageError(f"{self.place}: {name} must be {error}, not {value!r}") from None
        except LakeUsageError as error:
            raise LakeUsageError(f"{self.place}: {name}: {error}") from None


def _job(number: int, raw: object, bootstrap: str | None, folder: Path) -> Job:
    section = _Section(_place(number, raw), raw, _LOAD)
    try:
        request = LoadRequest(
            table=_table(section.required("into", "shop.orders")),
            mode=section.get("mode", "append"),
            key=section.get("key", ()),
            newest_by=section.get("newest_by"),
            window_s=section.get("window"),
            event_time=section.get("event_time"),
            partition_by=partitions(section.get("partition_by")),
            sort_by=section.get("sort_by", ()),
            target_file_bytes=section.get("target_file_size"),
            policies=policies(section.get("on_conflict", ()), rewrite=section.get("rewrite", False)),
        )
    except LakeUsageError as error:
        raise LakeUsageError(str(error) if section.place in str(error) else f"{section.place}: {error}") from None
    job = Job(
        source=_source_from(folder, section.required("source", "topic:orders")),
        request=request,
        name=section.get("name"),
        bootstrap=section.get("bootstrap", bootstrap),
        source_options=section.get("options", {}) | _SKIP_CORRUPT[section.get("skip_corrupt", False)],
    )
    try:
        parse_source(job.source, bootstrap=job.bootstrap, **job.source_options)
    except LakeUsageError as error:
        raise LakeUsageError(f"{section.place}: {error}") from None
    return job


def _place(number: int, raw: object) -> str:
    """Which load it is, as a person finds it in the file."""
    table = raw.get("into") if isinstance(raw, dict) else None
    return f"[[load]] {number} ({table})" if isinstance(table, str) else f"[[load]] {number}"


def _table(name: str) -> str:
    try:
        return text_of(name_of(name))
    except BadNameError:
        raise LakeUsageError(f"into = {name!r} is not the name of a table: write DATABASE.TABLE") from None


def _check_twins(jobs: Sequence[Job]) -> None:
    """The same source into the same table twice would share one position, and load half each."""
    seen: dict[tuple[str, str], int] = {}
    for number, job in enumerate(jobs, 1):
        twin = seen.setdefault((job.source, job.request.table), number)
        if twin != number:
            raise LakeUsageError(
                f"[[load]] {twin} and {number} both load {job.source} into {job.request.table}: keep one"
            )


def _source_from(folder: Path, source: str) -> str:
    kind, _, rest = source.partition(":")
    return f"files:{_from(folder, rest)}" if kind == "files" and rest else source


def _database_from(folder: Path, catalog: str) -> str:
    scheme, separator, path = catalog.partition(":///")
    return f"{scheme}{separator}{_from(folder, path)}" if scheme.startswith("sqlite") and path else catalog


def _from(folder: Path, path: str) -> str:
    """A path as seen from a folder; URLs stay as they are."""
    return path if "://" in path else str(folder / Path(path).expanduser())
