"""A lake under fire: two jobs race for the same sources; jobs, JVMs and catalog servers are killed; files compacted.

In the end every record of a topic, every line of the files and every row of a database is in its table exactly once.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater import Admin, LocalBroker, Producer
from headwater.catalog.client import CatalogClient, CatalogError
from peers.postgresql import Postgresql
from peers.processes import dies_with_parent, kill
from peers.readiness import free_port

TOPIC = "events"
EVENTS, FILES, LINES, ROWS = 400, 3, 50, 100
"""What each round adds: events, files with so many lines each, rows of a table."""
_WORKER = Path(__file__).with_name("lake_worker.py")
PATIENCE_S = 240.0
"""How long anything may take before it counts as hanging, on a machine that has little else to do."""


class Catalog:
    """A catalog server that dies at an armed point and is started again, until it is disarmed."""

    def __init__(self, warehouse: Path, chance: random.Random) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.deaths: list[str] = []
        self._warehouse = warehouse
        self._chance = chance
        self._armed = True
        self._change = threading.Lock()
        self._process = self._start()
        self._thread = threading.Thread(target=self._look_after, daemon=True)

    def __enter__(self) -> "Catalog":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def disarm(self) -> None:
        """From now on a server lives."""
        self._end()
        self._process = self._start()

    def _end(self) -> None:
        with self._change:
            self._armed = False
        kill(self._process)
        self._thread.join()

    def _look_after(self) -> None:
        while True:
            self._process.wait()
            with self._change:
                if not self._armed:
                    return
                self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if self._armed:
            point = f"{self._chance.choice(('before-swap', 'after-swap'))}:{self._chance.randint(1, 5)}"
            environment["HEADWATER_CATALOG_DIES_AT"] = point
            self.deaths.append(point)
        command = [str(Path(sys.executable).with_name("headwater")), "catalog", "serve"]
        command += ["--warehouse", str(self._warehouse), "--listen", f"127.0.0.1:{self.port}"]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


class Worker:
    """A job's process, started again when it was killed."""

    def __init__(self, given: dict[str, Any], log: Path, patience_s: float) -> None:
        self._given = given
        self._log = log
        self._patience_s = patience_s
        self.kills = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = dies_with_parent([sys.executable, str(_WORKER), json.dumps(self._given)])
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def words(self) -> str:
        """What it has printed so far, over all its lives."""
        return self._log.read_text()

    def kill(self) -> None:
        """Ends the job with its JVM, as a machine that is switched off would."""
        java = self._java()
        kill(self.process)
        for pid in java:
            _kill(pid)
        self._again()

    def kill_jvm(self) -> None:
        """Ends Spark under the job, which then ends too."""
        deadline = time.monotonic() + self._patience_s
        while not (java := self._java()):
            assert time.monotonic() < deadline, f"no Spark under the job:\n{self.words()[-3000:]}"
            time.sleep(0.1)
        for pid in java:
            _kill(pid)
        self.process.wait(self._patience_s)
        self._again()

    def wait(self) -> None:
        """Until it has ended by itself, started again where it failed to."""
        deadline = time.monotonic() + self._patience_s
        while self.process.wait(max(1.0, deadline - time.monotonic())) != 0:
            assert time.monotonic() < deadline, f"the job never ends well:\n{self.words()[-3000:]}"
            self._again()

    def _again(self) -> None:
        self.kills += 1
        self.process = self._start()

    def _java(self) -> list[int]:
        """The JVMs that it started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]


class LakeChaos:
    """The whole of it: `run` so many rounds, then `check`."""

    def __init__(self, folder: Path, postgresql: Postgresql, seed: int, patience_s: float = PATIENCE_S) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.patience_s = patience_s
        self.server = postgresql
        self.database = postgresql.new_database()
        self.produced = 0
        self.lines = 0
        self.rows = 0
        self.deaths = 0
        self.kills = 0
        (folder / "arrived").mkdir(parents=True)

    def run(self, rounds: int) -> None:
        """Adds data and does harm, so many times; then waits until everything is loaded."""
        with LocalBroker() as broker, Catalog(self.folder / "warehouse", self.chance) as catalog:
            with Admin(broker.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=3)
            self._prepare_database()
            given = {
                "warehouse": str(self.folder / "warehouse"),
                "catalog": catalog.uri,
                "bootstrap": broker.bootstrap,
                "topic": TOPIC,
                "folder": str(self.folder / "arrived"),
                "jdbc": self.server.jdbc(self.database, "things"),
                "stop": str(self.folder / "stop"),
            }
            workers = [Worker(given, self.folder / f"worker-{number}.log", self.patience_s) for number in range(2)]
            try:
                for number in range(rounds):
                    self._round(number, broker, catalog, workers)
                catalog.disarm()
                (self.folder / "stop").touch()
                for worker in workers:
                    worker.wait()
                self.check(catalog)
                self.deaths, self.kills = len(catalog.deaths) - 1, sum(worker.kills for worker in workers)
            finally:
                for worker in workers:
                    worker.process.kill()
                    worker.process.wait()

    def _round(self, number: int, broker: LocalBroker, catalog: Catalog, workers: list[Worker]) -> None:
        self._add(broker)
        worker = self.chance.choice(workers)
        harm = ("wait", "kill job", "wait", "kill JVM", "wait")[number % 5]
        if harm == "kill job":
            time.sleep(self.chance.random())
            worker.kill()
        elif harm == "kill JVM":
            time.sleep(self.chance.random())
            worker.kill_jvm()
        else:
            self._until(lambda: self._loaded(catalog) >= self.produced, workers)

    def _add(self, broker: LocalBroker) -> None:
        with Producer(broker.bootstrap) as producer:
            for number in range(self.produced, self.produced + EVENTS):
                producer.send(TOPIC, json.dumps({"id": number}).encode(), key=str(number))
        self.produced += EVENTS
        for _ in range(FILES):
            path = self.folder / "arrived" / f"{self.lines:08}.json"
            text = "".join(json.dumps({"id": self.lines + line}) + "\n" for line in range(LINES))
            path.with_name("." + path.name).write_text(text)
            path.with_name("." + path.name).rename(path)
            self.lines += LINES
        with self.server.connect(self.database) as connection:
            connection.execute("insert into things (note) select 'x' from generate_series(1, %s)", (ROWS,))
        self.rows += ROWS

    def check(self, catalog: Catalog) -> None:
        """Counts, distinct ids and sums: exact."""
        from pyiceberg.catalog.rest import RestCatalog

        tables = RestCatalog("lake", uri=catalog.uri)
        for table, count, first in (
            ("chaos.topic", self.produced, 0),
            ("chaos.files", self.lines, 0),
            ("chaos.jdbc", self.rows, 1),
        ):
            ids = tables.load_table(table).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
            wanted = list(range(first, first + count))
            assert sorted(ids) == wanted, f"{table}: {len(ids)} rows, {len(set(ids))} distinct, wanted {count}"

    def _prepare_database(self) -> None:
        with self.server.connect(self.database) as connection:
            connection.execute("create table things (id bigserial primary key, note text)")

    def _loaded(self, catalog: Catalog) -> int:
        """How many events the topic's table has, by its position; -1 when nobody can say."""
        try:
            with CatalogClient(catalog.uri) as client:
                position = client.position("chaos.topic", f"topic:{TOPIC}")
        except CatalogError:
            return -1
        return sum(position["topics"][TOPIC].values()) if position else 0

    def _until(self, true: Callable[[], bool], workers: list[Worker]) -> None:
        deadline = time.monotonic() + self.patience_s
        while not true():
            for worker in workers:
                assert worker.process.poll() is None, f"a job ended by itself:\n{worker.words()[-3000:]}"
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join(worker.words()[-3000:] for worker in workers))
            time.sleep(0.2)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
