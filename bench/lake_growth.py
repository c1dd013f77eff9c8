"""What a load costs before it reads anything, by how much is there already and how often was loaded: of `make bench`.

    .venv/bin/python bench/lake_growth.py           about 2 minutes, into docs/benchmarks
    .venv/bin/python bench/lake_growth.py --quick   a tenth of it, into build/benchmarks

Nothing here starts Spark: earlier loads are commits made here, without data files.
"""

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa

import lake_data
import report
import rounds
from headwater.catalog.client import CatalogClient
from headwater.catalog.positions import Position, canonical
from headwater.catalog.server import EmbeddedCatalog
from headwater.lake.sources.files import parse_files
from headwater.lake.sources.listing import FoundFile, list_files
from headwater.lake.sources.source import Source
from headwater.lake.sources.topics import TopicSource
from servers import Headwater
from shapes import topic

TABLE = "growth.events"
NEW = 10
_TOPIC = "topic:"
_FOLDERS = 100
_RECORDS = 1_000
_SUMMARY = (
    "added-data-files",
    "added-records",
    "added-files-size",
    "changed-partition-count",
    "total-records",
    "total-files-size",
    "total-data-files",
    "total-delete-files",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is there when the look is measured."""

    files: Sequence[int]
    loads: Sequence[int]
    files_of_loads: int
    samples: int = 5


FULL = Sizes(files=(1_000, 10_000, 100_000), loads=(10, 100, 1_000), files_of_loads=10_000)
QUICK = Sizes(files=(100, 1_000, 10_000), loads=(1, 10, 100), files_of_loads=1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What one size costs: the median of the samples."""

    size: int
    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One thing at several sizes."""

    title: str
    unit: str
    figures: Sequence[Figure]

    def rows(self) -> Iterator[str]:
        """The lines of the page's table."""
        for before, now in zip([None, *self.figures], self.figures, strict=False):
            ratio = "–" if before is None else f"{now.cpu_s / before.cpu_s:.2f}×"
            yield (
                f"| {self.title} | {now.size:,} {self.unit} | {now.cpu_s * 1e3:,.1f} ms | {now.wall_s * 1e3:,.1f} ms "
                f"| {ratio} |"
            )


class Ledger:
    """A warehouse of its own with one table, into which a source is loaded again and again."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self._source = source
        self._position: Position | None = None
        self._parent: int | None = None
        self._ids = itertools.count(1)

    @contextmanager
    def opened(self) -> Iterator["CatalogClient"]:
        """The catalog as a command finds it: nothing is in memory yet."""
        with EmbeddedCatalog(f"{self.folder}/catalog.db", str(self.folder)) as catalog:
            client = CatalogClient(catalog.uri)
            yield client
            client.close()

    @property
    def loads(self) -> int:
        """How many were committed."""
        return self._parent or 0

    def load(
        self, catalog: CatalogClient, http: httpx.Client, *, files: Sequence[FoundFile] = (), offset: int = 0
    ) -> None:
        """One load: of these files, or up to this offset of the topic."""
        load_id = catalog.begin_load(table=TABLE, source=self._source, before=self._position)
        after: Position = {"load": load_id}
        if self._source.startswith(_TOPIC):
            after = {"topics": {self._source.removeprefix(_TOPIC): {"0": offset}}}
        else:
            columns = zip(*files, strict=True)
            catalog.add_files(load_id, pa.table(list(map(pa.array, columns)), names=["path", "modified_ns", "size"]))
        new = next(self._ids)
        answer = http.post("/v1/namespaces/growth/tables/events", json=self._commit(new, after, load_id))
        answer.raise_for_status()
        self._position, self._parent = after, new

    def _commit(self, new: int, after: Position, load_id: str) -> dict[str, object]:
        properties = {
            "headwater.expect": canonical({self._source: self._position}),
            "headwater.offsets": canonical({self._source: after}),
            "headwater.load": load_id,
        }
        snapshot = {
            "snapshot-id": new,
            **({} if self._parent is None else {"parent-snapshot-id": self._parent}),
            "sequence-number": new,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": f"file://{self.folder}/growth/events/metadata/snap-{new}.avro",
            "schema-id": 0,
            "summary": {"operation": "append", **dict.fromkeys(_SUMMARY, "1000"), **properties},
        }
        return {
            "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": self._parent}],
            "updates": [
                {"action": "add-snapshot", "snapshot": snapshot},
                {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": new},
            ],
        }


class Run:
    """All measurements."""

    def __init__(self, sizes: Sizes, work: Path, tell: Callable[[str], None]) -> None:
        self._sizes = sizes
        self._work = work
        self._tell = tell

    def growths(self) -> list[Growth]:
        """Measures everything."""
        there = [self._files(count, count=count, loads=1) for count in self._sizes.files]
        loads = [self._files(loads, count=self._sizes.files_of_loads, loads=loads) for loads in self._sizes.loads]
        looks, commits = self._topic()
        return [
            Growth(title=f"look at a folder, {NEW} files new", unit="files", figures=there),
            Growth(
                title="only listing it", unit="files", figures=[self._listing(count) for count in self._sizes.files]
            ),
            Growth(
                title=f"look at {self._sizes.files_of_loads:,} files, {NEW} new", unit="earlier loads", figures=loads
            ),
            Growth(title=f"look at a topic, {NEW} records new", unit="earlier loads", figures=looks),
            Growth(title="begin and commit a load", unit="snapshots", figures=commits),
        ]

    def _measured(self, size: int, what: Callable[[], object]) -> Figure:
        cpu, wall = [], []
        for _ in range(self._sizes.samples):
            began_cpu, began = time.process_time(), time.perf_counter()
            what()
            cpu.append(time.process_time() - began_cpu)
            wall.append(time.perf_counter() - began)
        return Figure(size=size, cpu_s=statistics.median(cpu), wall_s=statistics.median(wall))

    def _look(self, ledger: Ledger, source: Source) -> None:
        with ledger.opened() as catalog:
            news = source.look(catalog, TABLE, catalog.position(TABLE, source.id))
        assert news is not None, f"{NEW} are new"
        assert news.words.startswith(f"{NEW} "), news.words

    def _files(self, size: int, *, count: int, loads: int) -> Figure:
        """A look at a folder whose files came in so many loads, but for the newest."""
        self._tell(f"{count:,} files, {loads:,} loads")
        source = parse_files(str(self._folder(count)))
        old = sorted(file for file in list_files(source.place) if "/new-" not in file.path)
        ledger = Ledger(self._work / f"files-{count}-{loads}", source.id)
        with ledger.opened() as catalog, _prepared(catalog) as http:
            for number in range(loads):
                ledger.load(catalog, http, files=old[number::loads])
        return self._measured(size, lambda: self._look(ledger, source))

    def _listing(self, count: int) -> Figure:
        place = parse_files(str(self._folder(count))).place
        return self._measured(count, lambda: sum(1 for _ in list_files(place)))

    def _folder(self, count: int) -> Path:
        folder = self._work / f"in-{count}"
        if not folder.exists():
            for number in range(_FOLDERS):
                (folder / f"part={number}").mkdir(parents=True)
            for number in range(count):
                (folder / f"part={number % _FOLDERS}" / f"events-{number:08}.json").write_bytes(b'{"id": 1}')
            for number in range(NEW):
                (folder / f"part={number % _FOLDERS}" / f"new-{number}.json").write_bytes(b'{"id": 2}')
        return folder

    def _topic(self) -> tuple[list[Figure], list[Figure]]:
        """Looks and commits, while one table gets more and more loads."""
        looks, commits = [], []
        broker = Headwater().start(self._work / "broker")
        try:
            broker.wait_until_it_answers()
            bootstrap = f"127.0.0.1:{broker.port}"
            with topic(broker, partitions=1) as name:
                written = lake_data.write(bootstrap, name, lake_data.plain_records, records=_RECORDS, partitions=1)
                source = TopicSource(topics=(name,), bootstrap=bootstrap, value="raw")
                ledger = Ledger(self._work / "topic", source.id)
                for count in self._sizes.loads:
                    self._tell(f"a topic, {count:,} loads")
                    with ledger.opened() as catalog, _prepared(catalog) as http:

                        def load(catalog: CatalogClient = catalog, http: httpx.Client = http) -> None:
                            ledger.load(catalog, http, offset=written.records - NEW)

                        while ledger.loads < count:
                            load()
                        commits.append(self._measured(count, load))
                    looks.append(self._measured(count, lambda: self._look(ledger, source)))
        finally:
            broker.kill()
        return looks, commits


@contextmanager
def _prepared(catalog: CatalogClient) -> Iterator[httpx.Client]:
    """A connection for commits to the table, which is there."""
    catalog.evolve(TABLE, pa.schema([("id", pa.int64())]))
    with httpx.Client(base_url=catalog.uri, trust_env=False, timeout=60) as http:
        yield http


_PAGE = """# What a load costs before it reads anything

{machine}. CPU time of the process, which has the catalog in it, and wall time; medians of
{samples}. The last column is CPU time against the line above it: each step is ten times as much.

| | there | CPU | wall | CPU per 10× |
|---|---|---:|---:|---:|
{rows}

## How it is measured

- A **look** is what decides whether there is anything to do, and what: the catalog opens with nothing in memory
  (SQLite), says the position and the known files, and the source is compared with them. No file is opened, and Spark
  does not run. After it, a load works on the {new} new files only.
- Files lie in {folders} folders, on a local disk, in the page cache, and came with one load. Listing them, which
  asks the system for the time and the size of each, has a line of its own: a folder cannot be looked at without.
- Earlier loads are made by this program: rows in the ledger and commits through the catalog's REST service, with
  neither Spark nor data files. Those of the topic all have the same offset.
- A **commit** writes the table's metadata anew with all its snapshots, as Iceberg's format has it. `headwater lake
  maintain` expires old snapshots; the files that are known stay known.

Run it yourself with `make bench`.
"""


def page(growths: Sequence[Growth], sizes: Sizes) -> str:
    """The text of the page."""
    rows = "\n".join(row for growth in growths for row in growth.rows())
    return _PAGE.format(machine=report.machine(), samples=sizes.samples, rows=rows, new=NEW, folders=_FOLDERS)


def main() -> int:
    """Runs the benchmark as asked for."""
    parser = argparse.ArgumentParser(description="what a load costs by how much is there already")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, into build/benchmarks")
    parser.add_argument("--out", type=Path, help="folder of the page")
    parser.add_argument("--work", type=Path, default=rounds.REPOSITORY / "build", help="where files and catalogs go")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else FULL
    out = asked.out or rounds.REPOSITORY / ("build" if asked.quick else "docs") / "benchmarks"
    asked.work.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="bench-", dir=asked.work))
    try:
        growths = Run(sizes, work, lambda words: print(words, flush=True)).growths()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for growth in growths:
        print(*growth.rows(), sep="\n")
    out.mkdir(parents=True, exist_ok=True)
    (out / "lake_growth.md").write_text(page(growths, sizes), encoding="utf-8")
    print(f"written: {out}/lake_growth.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
