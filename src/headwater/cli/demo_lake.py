"""The demo's lake: events into a table by Spark, also after a field has appeared and another has changed its type."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.cli.demo_broker import DemoError
from headwater.cli.demo_records import CLIENT_ID

if TYPE_CHECKING:
    from headwater.cli.demo_screen import Screen
    from headwater.lake import Lake
    from headwater.lake.load.request import LoadReport

TOPIC: Final = "events"
TABLE: Final = "shop.events"
EVENTS: Final = 20_000
"""How many are produced before each of the two loads."""
ODD: Final = 10
"""One event in so many has its amount as text, after the change."""

QUESTION: Final = (
    "select coupon.code as coupon, count(*) as events, sum(amount) as amount, count(_rescued['amount']) as rescued, "
    "min(_rescued['amount']) as for_example from shop.events group by 1 order by 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of both loads: their reports, the answer to the question, and how the schema came about."""

    spark_start_s: float
    first: "LoadReport"
    second: "LoadReport"
    answer: Sequence[dict[str, Any]]
    history: Sequence[tuple[str, str, str]]


def why_not() -> str | None:
    """What is missing for this part of the demo, in words; None when it can be shown."""
    import importlib.util

    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyiceberg") is None:
        return 'the lake is not installed: pip install "headwater[lake]" shows it here'
    from headwater.lake.java import find_java

    return None if find_java() else "Spark needs Java 17 or newer: `headwater lake setup` says how to get it"


@contextmanager
def warehouse_beside(data: Path) -> Iterator[Path]:
    """A folder for the tables that is gone in the end; not in the broker's own, where every folder is a partition."""
    with tempfile.TemporaryDirectory(prefix=f"{data.name}-lake-", dir=data.parent) as folder:
        yield Path(folder)


def show(screen: "Screen", loaded: Loaded) -> None:
    """The question with its answer, and the history of the schema, as a user would ask for them."""
    from headwater.cli.output import print_table

    screen.command(f'headwater lake sql "{QUESTION}"')
    print_table(
        list(loaded.answer[0]), [list(row.values()) for row in loaded.answer], numeric=("events", "amount", "rescued")
    )
    screen.command(f"headwater lake history {TABLE}")
    print_table(("Change", "Field", "Type"), loaded.history)


def load_events(bootstrap: str, warehouse: Path, check: Callable[[], None]) -> Loaded:
    """Produces, loads, changes the events, produces and loads again; DemoError when anything was lost or doubled.

    Spark takes its time: `check` is asked in between whether the demo goes on.
    """
    from headwater.cli.lake_progress import lake_progress
    from headwater.client.blocking.admin import Admin
    from headwater.lake import Lake

    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3)
    _produce(bootstrap, changed=False)
    with lake_progress() as shown, Lake(warehouse, tell=shown.tell, watch=shown.watch) as lake:
        started_s = time.perf_counter()
        _ = lake.spark
        spark_start_s = time.perf_counter() - started_s
        check()
        first = lake.load(f"topic:{TOPIC}", into=TABLE, bootstrap=bootstrap)
        check()
        _produce(bootstrap, changed=True)
        second = lake.load(f"topic:{TOPIC}", into=TABLE, bootstrap=bootstrap)
        check()
        _check(lake, second)
        answer = lake.sql(QUESTION).to_pylist()
        history = [(change.kind, change.path, change.new_type or "") for change in lake.catalog.schema_history(TABLE)]
    return Loaded(spark_start_s=spark_start_s, first=first, second=second, answer=answer, history=history)


def _produce(bootstrap: str, *, changed: bool) -> None:
    from headwater.client.blocking.producer import Producer

    with Producer(bootstrap, client_id=CLIENT_ID) as producer:
        for number in range(EVENTS):
            event: dict[str, Any] = {
                "id": number + EVENTS * changed,
                "amount": number % 100,
                "at": "2026-11-16T18:00:00Z",
            }
            if changed:
                event["coupon"] = {"code": f"C{number % 3}"}
                if number % ODD == 0:
                    event["amount"] = "on the house"
            producer.send(TOPIC, json.dumps(event).encode(), key=str(number))


def _check(lake: "Lake", second: "LoadReport") -> None:
    (found,) = lake.sql(
        f"select count(*) as rows, count(distinct id) as ids, sum(id) as total, count(_rescued) as rescued from {TABLE}"  # noqa: S608
    ).to_pylist()
    events = 2 * EVENTS
    wanted = {"rows": events, "ids": events, "total": events * (events - 1) // 2, "rescued": EVENTS // ODD}
    if found != wanted or second.counts.rescued != EVENTS // ODD:
        raise DemoError(f"the lake holds {found} where it should hold {wanted}")
