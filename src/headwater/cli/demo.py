"""`headwater demo`: the main job end to end, on a broker of its own that leaves nothing behind."""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import Json
from headwater.cli.output import bytes_for_people, complain, counted, fail, print_json

if TYPE_CHECKING:
    from headwater.cli.demo_arrow import Added
    from headwater.cli.demo_billing import Billed
    from headwater.cli.demo_broker import DemoBroker
    from headwater.cli.demo_hostile import Withstood
    from headwater.cli.demo_interrupts import Interrupts
    from headwater.cli.demo_lake import Loaded
    from headwater.cli.demo_records import Leg, Plan
    from headwater.cli.demo_retention import Compacted
    from headwater.cli.demo_screen import Screen

T = TypeVar("T")

app = new_app()

_TOPIC: Final = "orders"
_PARTITIONS: Final = 3
_BYTES_A_RECORD_ON_DISK: Final = 120


@app.command()
def demo(
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, max=1_000_000_000, metavar="N", help="How many to write and read.")
    ] = 1_000_000,
    lake: Annotated[bool, typer.Option("--lake/--no-lake", help="Load events into a lake by Spark, too.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data dir.")] = False,
    as_json: Json = False,
) -> None:
    """Show it all: start a broker, write and read a million records, check them, look at the files."""
    from headwater.cli.demo_broker import DemoError
    from headwater.cli.demo_interrupts import InterruptedDemoError, Interrupts

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    interrupts = Interrupts()
    try:
        with interrupts.caught():
            summary = _run(records, interrupts, lake=lake, keep=keep, quiet=as_json)
    except DemoError as error:
        fail(f"the demo failed: {error}")
    except InterruptedDemoError:
        complain("interrupted; the demo's broker is stopped" + ("" if keep else " and its data removed"))
        raise typer.Exit(130) from None
    if as_json:
        print_json(summary)


def _run(records: int, interrupts: "Interrupts", *, lake: bool, keep: bool, quiet: bool) -> dict[str, Any]:
    from headwater.cli.demo_broker import data_dir, demand_space, running_broker
    from headwater.cli.demo_retention import EAGER_BROKER
    from headwater.cli.demo_screen import Screen

    screen = Screen(quiet=quiet)
    screen.title(f"headwater demo: a broker, a topic, {counted(records, 'record')} in and out")
    with data_dir(keep=keep) as data:
        demand_space(data, records * _BYTES_A_RECORD_ON_DISK)
        with running_broker(data, interrupts, EAGER_BROKER) as broker:
            # The client takes its time to load, so the title is on the screen by now.
            from headwater.cli.demo_records import VALUE_BYTES, Plan

            plan = Plan(topic=_TOPIC, records=records, partitions=_PARTITIONS)
            screen.step("broker", f"ready at {broker.bootstrap} after {broker.start_s:.2f} s")
            screen.more(f"process {broker.process.pid}, data in {data}")
            written, read = _in_and_out(screen, broker, plan)
            added = _add_up(screen, broker, plan)
            billed = _bill(screen, broker)
            compacted = _let_old_records_go(screen, broker)
            withstood = _withstand(screen, broker)
            loaded = _load_into_lake(screen, broker, data, interrupts) if lake else None
            _show_cluster(screen, broker)
            stop_s = broker.stop()
            screen.step("stop", f"the broker ended cleanly after {stop_s:.2f} s")
        _verify(screen, data)
        _show_files(screen, data)
        log_bytes = sum(file.stat().st_size for file in data.glob("*/*.log"))
    _say_what_next(screen, data if keep else None)
    return {
        "ok": True,
        "records": records,
        "partitions": _PARTITIONS,
        "value_bytes": records * VALUE_BYTES,
        "log_bytes": log_bytes,
        "start_seconds": round(broker.start_s, 6),
        "write": _as_json(written),
        "read": _as_json(read),
        "arrow_rows_per_second": added and round(added.rows_per_s, 1),
        "billed_exactly_once": billed.orders,
        "compacted": {"updates": compacted.updates, "left": compacted.left},
        "withstood": {"error": withstood.error, "end_offset": withstood.end_offset},
        "lake": loaded
        and {"rows": loaded.first.counts.rows + loaded.second.counts.rows, "rescued": loaded.second.counts.rescued},
        "stop_seconds": round(stop_s, 6),
        "data": str(data) if keep else None,
    }


def _in_and_out(screen: "Screen", broker: "DemoBroker", plan: "Plan") -> "tuple[Leg, Leg]":
    """The records' way into the broker and back, each step shown and checked."""
    from headwater.cli.demo_records import CLIENT_ID, VALUE_BYTES, demand_same_bytes, read_all, write_all
    from headwater.client import Client
    from headwater.client.admin.topics import NewTopic, create_topics

    async def create_topic() -> None:
        async with Client(broker.bootstrap, client_id=CLIENT_ID) as client:
            (await create_topics(client, [NewTopic(plan.topic, partitions=plan.partitions)])).or_raise()

    _while_alive(broker, create_topic())
    screen.step("topic", f"{plan.topic} with {plan.partitions} partitions")
    with screen.bar("write", plan.records, VALUE_BYTES) as progress:
        written = _while_alive(broker, write_all(broker.bootstrap, plan, progress))
    _tell_leg(screen, "write", written)
    with screen.bar("read", plan.records, VALUE_BYTES) as progress:
        read = _while_alive(broker, read_all(broker.bootstrap, plan, progress))
    _tell_leg(screen, "read", read)
    demand_same_bytes(written, read)
    screen.step("check", "all came back: each once, in order in its partition, byte for byte")
    return written, read


def _add_up(screen: "Screen", broker: "DemoBroker", plan: "Plan") -> "Added | None":
    """The same records as Arrow tables; None where pyarrow is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        screen.step("arrow", "pyarrow is not installed: pip install headwater[arrow] shows the orders as tables here")
        return None
    from headwater.cli.demo_arrow import TOTALS, add_up, send_totals

    added = _while_alive(broker, add_up(broker.bootstrap, plan))
    screen.step("arrow", f"{counted(added.rows, 'row')} as Arrow tables, {added.rows_per_s:,.0f} a second")
    sent = _while_alive(broker, send_totals(broker.bootstrap, added))
    screen.more(f"pyarrow added them up by partition; {counted(sent, 'total')} went to {TOTALS} in one call")
    return added


def _bill(screen: "Screen", broker: "DemoBroker") -> "Billed":
    """Exactly once: a transaction that fails, and one that does not."""
    from headwater.cli.demo_billing import GROUP, bill_orders

    billed = _while_alive(broker, bill_orders(broker.bootstrap, _TOPIC))
    orders = counted(billed.orders, "order")
    screen.step("once", f"exactly once: group {GROUP} billed {orders} in a transaction; a first one was aborted")
    screen.more(f"read_uncommitted sees {billed.seen_uncommitted:,} invoices, read_committed {billed.seen_committed:,}")
    return billed


def _let_old_records_go(screen: "Screen", broker: "DemoBroker") -> "Compacted":
    """Compaction and retention, each waited for."""
    from headwater.cli.demo_retention import CLICKS, PRICES, compact_prices, expire_clicks

    done = _while_alive(broker, compact_prices(broker.bootstrap))
    screen.step(
        "compact",
        f"{PRICES}: {done.updates:,} updates of {done.articles:,} prices became {counted(done.left, 'record')}",
    )
    sizes = f"{bytes_for_people(done.bytes_before)} became {bytes_for_people(done.bytes_after)}"
    screen.more(f"{sizes}; the newest of each is there")
    gone, left = _while_alive(broker, expire_clicks(broker.bootstrap))
    screen.step("retain", f"{CLICKS}: {gone:,} of last week are gone, {left:,} of today are there")
    return done


def _withstand(screen: "Screen", broker: "DemoBroker") -> "Withstood":
    """Bytes that no client would send: refused, and nothing else changes."""
    from headwater.cli.demo_hostile import CLAIM, CLAIMED_TOPICS, GARBAGE_RECORDS, send_hostile_bytes
    from headwater.types import TopicPartition

    place = TopicPartition(_TOPIC, 0)
    done = _while_alive(broker, send_hostile_bytes(broker.bootstrap, place))
    screen.step("hostile", f"{len(CLAIM)} bytes that claim {CLAIMED_TOPICS:,} topics: their connection was closed")
    screen.more(f"{GARBAGE_RECORDS} garbage records with a right checksum: {done.error}, {done.reason}")
    screen.more(f"the broker serves on, and {place} still ends at offset {done.end_offset:,}")
    return done


def _load_into_lake(screen: "Screen", broker: "DemoBroker", data: Path, interrupts: "Interrupts") -> "Loaded | None":
    """Events become a table; None where Spark is not there."""
    from headwater.cli import demo_lake

    missing = demo_lake.why_not()
    if missing is not None:
        screen.step("lake", missing)
        return None
    with demo_lake.warehouse_beside(data) as warehouse:
        loaded = demo_lake.load_events(broker.bootstrap, warehouse, interrupts.check)
    first, second = loaded.first.counts, loaded.second.counts
    screen.step(
        "lake",
        f"Spark (up after {loaded.spark_start_s:.1f} s) loaded {counted(first.rows, 'event')} into {demo_lake.TABLE}",
    )
    screen.more("then a field appeared in the stream, and another became text:")
    screen.more(
        f"{counted(second.rows, 'more event')} loaded, {second.rescued:,} values kept aside, nothing lost or doubled"
    )
    if not screen.quiet:
        demo_lake.show(screen, loaded)
    return loaded


def _verify(screen: "Screen", data: Path) -> None:
    """Every batch of every file, read and checked."""
    from headwater.cli.demo_broker import DemoError
    from headwater.cli.log_verify import verify_folder

    if screen.quiet:
        return
    screen.command(f"{_program()} log verify {data}")
    if not verify_folder(data, as_json=False):
        raise DemoError("its files have faults")


def _while_alive(broker: "DemoBroker", operation: "Coroutine[Any, Any, T]") -> T:
    """Runs one operation on the demo's broker, as long as that lives."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(broker.while_alive(operation))


def _tell_leg(screen: "Screen", name: str, leg: "Leg") -> None:
    """The rates, where no bar shows them."""
    if not screen.pretty:
        rates = f"{leg.records_per_s:,.0f} a second, {bytes_for_people(leg.bytes_per_s)}/s"
        screen.step(name, f"{counted(leg.records, 'record')} in {leg.seconds:.2f} s, {rates}")


def _show_cluster(screen: "Screen", broker: "DemoBroker") -> None:
    """The same commands as a user would type, with their own output."""
    from headwater.cli import cluster, groups, topics
    from headwater.cli.demo_billing import GROUP

    if screen.quiet:
        return
    screen.command(f"{_program()} topics describe {_TOPIC} -b {broker.bootstrap}")
    topics.describe([_TOPIC], bootstrap=broker.bootstrap)
    screen.command(f"{_program()} groups describe {GROUP} -b {broker.bootstrap}")
    with contextlib.redirect_stderr(sys.stdout):  # its remark belongs under its table
        groups.describe([GROUP], bootstrap=broker.bootstrap)
    screen.command(f"{_program()} cluster -b {broker.bootstrap}")
    cluster.show_cluster(bootstrap=broker.bootstrap)
    screen.line("")


def _show_files(screen: "Screen", data: Path) -> None:
    from headwater.cli.demo_folder import show_first_batch, show_folder, show_index

    first = f"{_TOPIC}-0"
    screen.title("On disk: partitions are kept in Apache Kafka's own format")
    show_folder(screen, data, first)
    screen.title(f"The offset index of {first}")
    show_index(screen, data / first)
    screen.title(f"The first batch in {first}, decoded")
    show_first_batch(screen, data / first)


def _say_what_next(screen: "Screen", kept: Path | None) -> None:
    program = _program()
    screen.title("Try next")
    if kept is not None:
        screen.line("  ", (f"{program} up --data {kept}", "cyan"), ("  this demo's data again\n", "dim"))
    screen.pairs(
        [
            (f"{program} up", "a broker that stays"),
            (f"{program} topics create {_TOPIC} -p 3", "in another terminal"),
            (f"seq 10 | {program} produce {_TOPIC}", ""),
            (f"{program} consume {_TOPIC} --from-beginning", "Ctrl-C ends it"),
        ]
    )
    screen.line("\n  The README shows how to do the same from Python and with any Kafka client.")


def _program() -> str:
    """How the reader of this terminal can call headwater: by name, or by the path that was used now."""
    called = sys.argv[0]
    found = shutil.which("headwater")
    if not os.path.exists(called) or (found is not None and os.path.samefile(found, called)):
        return "headwater"
    return min(os.path.relpath(called), os.path.abspath(called), key=len)


def _as_json(leg: "Leg") -> dict[str, float]:
    return {
        "seconds": round(leg.seconds, 6),
        "records_per_second": round(leg.records_per_s, 1),
        "bytes_per_second": round(leg.bytes_per_s, 1),
    }
