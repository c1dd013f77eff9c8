"""What a run leaves behind: a table for the terminal, a Markdown page, and a plot of the ratios."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from metrics import Summary

_REACHED, _MISSED, _FREE, _INK = "#1b7f5c", "#c2410c", "#64748b", "#1e293b"

_WIDE_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
_NARROW_STEPS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.2, 1.4, 1.6, 2, 2.5, 3, 4, 5, 6, 8)

_BROKER_PAGE = """\
# The broker beside Apache Kafka

{versions}

{machine}; {rounds}.

Both brokers ran on the same disk in one run, taking turns round by round; only one was under load at a time.
A ratio is {ours}'s figure divided by {peer}'s within one round; the table gives the median over the
rounds, and the smallest and largest. Absolute figures depend on the machine and are there for
orientation only.

![Ratios per shape with their spread, against what must be reached](broker.png)

| | shape | must | ratio | spread | reached | <sub>{ours}</sub> | <sub>{peer}</sub> |
|---|---|---|---:|---:|---|---:|---:|
{rows}

{verdict}

## How it is measured

- **a, b**: librdkafka {librdkafka}, driven in batches so that no Python runs per message: acks=all, one
  producer, one partition; then the same data is fetched from the beginning. Only values count; 1 MB is
  10⁶ bytes.
- **c**: 64 connections over 8 partitions, each sends one 100 B record with acks=all and waits for the answer.
- **d**: a connection sends 1,000 records of 100 B a second, another one long-polls; from send to receipt.
- **e**: CPU time of the broker's process during the 1 KiB runs of a and b, per 10⁹ bytes of values.
- **f**: proportional set size after each round of the load.
- **g**: from process start on a fresh data folder until ApiVersions is answered.
- **h**: 5,000 partitions with a record each; stopped cleanly, then from process start until all are reported
  with a leader; memory and open files right after.
- Apache Kafka runs as a KRaft single node with the JVM options of its own start script. It is warmed
  up before the first figure counts: {warming}.
- Bulk loads run twice in a row for each broker and round, and the second one counts: the first broker of a round was
  seen to take up to four times the CPU, whichever it was. Why is not known.
- Apache Kafka keeps its default socket buffers (100 KiB), headwater its own (the system's choice). [notes.md](notes.md)
  has the figures with equal buffers, and those of earlier runs: read it before quoting any of these.

Run it yourself with `make bench`.
"""


_GROUPS_PAGE = """\
# Groups and transactions beside Apache Kafka

{versions}

{machine}; {rounds}.

Both brokers ran on the same disk in one run, taking turns round by round; only one was under load at a time.
A ratio is {ours}'s figure divided by {peer}'s within one round; the table gives the median over the
rounds, and the smallest and largest. Absolute figures depend on the machine and are there for
orientation only.

![Ratios per shape with their spread, against what must be reached](groups.png)

| | shape | must | ratio | spread | reached | <sub>{ours}</sub> | <sub>{peer}</sub> |
|---|---|---|---:|---:|---|---:|---:|
{rows}

{verdict}

## How it is measured

Members and producers are light: kio's messages over plain connections, all in one process, so that the broker's work
is what takes the time. They speak the protocols as clients do, with one difference: no member waits for a timer of its
own. A member sends its heartbeat as soon as there may be news, where a client would wait up to `heartbeat.interval.ms`
(3 s) or the broker's interval (5 s, KIP-848). What clients wait on top is the same for both brokers.

- **a**: 100 members of the classic protocol (range) join at once, over the 300 partitions of one topic: until all have
  been given partitions in one generation, each partition to one of them. `group.initial.rebalance.delay.ms` is 0.
- **b**: the same with members of the consumer protocol (KIP-848, the broker's uniform assignor): until every member is
  in the newest epoch with what the target gives it.
- **c**: one more joins such a group of 100: until all 101 have their partitions. The others learn of it by a heartbeat,
  join and sync again. The median of several joins.
- **d**: the same with cooperative members: who gives up a partition joins once more, and a second rebalance hands it
  to the newcomer.
- **e**: the same with KIP-848: the others heartbeat, those who lose a partition acknowledge, the newcomer gets it.
- **f**: 64 members of a group over 192 partitions, on a connection each: every one commits the offsets of its three
  partitions, waits for the answer, and commits again. Then one consumer of librdkafka {librdkafka}, committing
  synchronously in a loop.
- **g**: 16 transactional producers, on a connection and with a partition each: Produce of 100 records of 100 B,
  EndTxn, and again (KIP-890: no AddPartitionsToTxn, a new epoch at every end). Then one producer of librdkafka with 100
  records in each transaction, which still adds its partitions by a request of its own.
- **h**: as a, with the default delay of 3 s: what a user sees who changes nothing. Mostly waiting, by design; no floor.
- Apache Kafka's group coordinator gathers records for up to 5 ms before it writes them
  (`group.coordinator.append.linger.ms`): most of what one librdkafka consumer waits for there. headwater writes at
  once.
- Both brokers run with their defaults otherwise, among them 50 partitions each for `__consumer_offsets` and
  `__transaction_state`. Apache Kafka runs as a KRaft single node with the JVM options of its own start script. It is
  warmed up before the first figure counts: {warming}.

Run it yourself with `make bench`.
"""


_LOG_LIFE_PAGE = """\
# The life of a log beside Apache Kafka

{versions}

{machine}; {rounds}.

Both brokers ran on the same disk in one run, taking turns round by round; only one had work at a time.
A ratio is {ours}'s figure divided by {peer}'s within one round; the table gives the median over the
rounds, and the smallest and largest. Absolute figures depend on the machine and are there for
orientation only.

![Ratios per shape with their spread, against what must be reached](log_life.png)

| | shape | must | ratio | spread | reached | <sub>{ours}</sub> | <sub>{peer}</sub> |
|---|---|---|---:|---:|---|---:|---:|
{rows}

{verdict}

## How it is measured

The logs are written once, in Kafka's formats, and both brokers get the same data files, in the page cache; what they
change in place is copied. 1 MB is 10⁶ bytes.

- **a**: a compacted log in segments of 64 MiB, batches of 16 KiB, values of 100 to 1,024 B, four idempotent producers;
  a tenth of the records are the newest of their key. `min.cleanable.dirty.ratio` goes from 1 to 0.01 while the broker
  runs: from the answer to that until the broker notes in `cleaner-offset-checkpoint` that all is cleaned. The bytes of
  the log by that time. One cleaner thread, 128 MiB for the map of keys, no throttle, `log.cleaner.backoff.ms` 20.
- **b**: eight partitions of the same log, without the mark of a clean stop and without recovery points, as if nothing
  had been flushed before a kill -9: from process start until ListOffsets answers with the end of all. What such a start
  takes without data, the median of several, is taken off. With one recovery thread, then with the default of both
  brokers, two.
- **c**: 10,000 segments of eight batches, 20 records each. ListOffsets with random times, one at a time, for the
  latencies, then over 16 connections for the rate; every answer is checked. The last line compares p50 with that in a
  log of 1,000 segments: by how much the number of segments makes a look-up slower.
- Apache Kafka runs as a KRaft single node with the JVM options of its own start script. It is warmed up before the
  first figure of a and c counts: {warming}; headwater gets the same. A start is cold by nature.

Run it yourself with `make bench`.
"""


_CLIENTS_PAGE = """\
# The clients beside confluent-kafka, aiokafka and kafka-python

{versions}

{machine}; {rounds}.

All clients worked on the same headwater broker in one run, one at a time, each in a process of its own, taking turns
round by round. A ratio is {ours}'s figure divided by that of the peer named behind the colon within one round; the
table gives the median over the rounds, and the smallest and largest. Absolute figures depend on the machine and are
there for orientation only. Broker and client share its cores: the broker is the same for all.

![Ratios per shape with their spread, against what must be reached](clients.png)

| | shape | must | ratio | spread | reached | <sub>{ours}</sub> | <sub>{peer}</sub> |
|---|---|---|---:|---:|---|---:|---:|
{rows}

{verdict}

## How it is measured

One topic with one partition; {warming}. Producers: acks=all, idempotent, linger.ms 20, batch.size 256 KiB, 64 MiB of
buffers (aiokafka and kafka-python have no such bound), no compression, no key; from the first send after a record that
was acknowledged until `flush` returns. Consumers: an assigned partition, no group, 500 records at a time, all of the
same log; from the first records to the last, every value looked at. What is not named is each client's default.

- **a**: `Producer.send` in a loop against `Producer.produce` of confluent-kafka (librdkafka {librdkafka}) and
  `KafkaProducer.send`.
- **b**: `Consumer.poll` against `Consumer.consume(500)` of confluent-kafka, which is faster than its `poll`, and
  `KafkaConsumer.poll`. By default librdkafka rests for a second whenever 100,000 records wait, which is most of the
  time at 100 B: what must be reached is held against `queued.min.messages` 1,000,000 and `fetch.queue.backoff.ms` 1,
  with which it is fastest; the figure with its defaults is beside it. Ours has its defaults.
- **c**: `Consumer.poll_arrow` against the same `consume(500)`: there is no other client that hands out columns.
- **d**: `Producer.send_arrow` with tables of 100,000 rows against the same `produce`.
- **e**, **f**: `headwater.aio` against aiokafka, both on uvloop; `send` and `poll` against `send` and `getmany`.
- **g**: the largest resident set of the client's process in the runs above, the interpreter and all modules included.

Run it yourself with `make bench`.
"""


_LAKE_PAGE = """\
# The lake beside Spark's own Kafka connector

{versions}

{machine}; {rounds}.

Both sides read the same topics of one headwater broker and wrote to the same catalog in one run, taking turns round by
round; only one had work at a time. A ratio is {ours}'s figure divided by that of {peer} within one round; the table
gives the median over the rounds, and the smallest and largest. Absolute figures depend on the machine and are
there for orientation only. Broker and Spark share its cores: the broker is the same for both.

![Ratios per shape with their spread, against what must be reached](lake.png)

| | shape | must | ratio | spread | reached | <sub>{ours}</sub> | <sub>{peer}</sub> |
|---|---|---|---:|---:|---|---:|---:|
{rows}

{verdict}

## How it is measured

Each side is a process with a Spark session of its own that lasts for the whole run, with the same settings: the same
cores, 2 GB for the driver, the same jars. Both are warmed up by {warming}. Before each job both heaps are
collected and the disk is at rest. A job counts only if its totals are those of what was written: the number of records,
the sum of offsets, of lengths or of fields; for loads they are asked of the table afterwards, outside the time.

- **a**: all records are read, and the lengths of keys and values and the offsets are summed up. No columns are named:
  both give what they give by default, six columns and seven, headers not among them.
- **b**: key, value, partition, offset and timestamp into a new Iceberg table. Ours is `Lake.load` with `value = raw`,
  which writes two columns more (`_rescued`, `_corrupt_record`), keeps the load in its ledger, and commits the position
  with the rows. The peer is `spark.read.format("kafka")` and `writeTo`, into a table of the same layout: partitioned
  by day, without a shuffle, fan-out writers. With Iceberg's defaults it would sort and shuffle first.
- **c**: orders of about 250 B with twelve fields, some in an object and in a list of objects, into a new table with
  typed columns. Two passes over the topic for both. Ours is `Lake.load`. The peer is `spark.read.json` over the values
  as a dataset of strings (through the JVM, as Python's way over an RDD is far slower), then `from_json` and `writeTo`;
  it leaves times as text, and nothing is kept of what does not fit.
- The connector reads a partition in one task unless told otherwise: it gets `minPartitions` 4, so that one partition
  keeps all cores busy, too. headwater splits by size by itself. What is not named is each side's default.
- With its defaults the connector's tasks mostly wait for the network (stack samples), much less so with a short
  `fetch.max.wait.ms`; why was not looked into. The tuned peer has 20 ms of that,
  `max.poll.records` 20,000, `max.partition.fetch.bytes` 4 MiB, `receive.buffer.bytes` 1 MiB,
  `fetch.max.wait.ms` 20. What must be reached is held against its defaults, as ours has its own.
- CPU is that of the side's processes, the driver, the JVM and Python's workers, per million records. Memory is the
  largest sum of their resident sets, sampled twenty times a second; what forked workers share is counted for each.

Run it yourself with `make bench`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A benchmark's page: the name of its files, and its text with places for what a run finds."""

    name: str
    template: str


BROKER = Page(name="broker", template=_BROKER_PAGE)
GROUPS = Page(name="groups", template=_GROUPS_PAGE)
LOG_LIFE = Page(name="log_life", template=_LOG_LIFE_PAGE)
CLIENTS = Page(name="clients", template=_CLIENTS_PAGE)
LAKE = Page(name="lake", template=_LAKE_PAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Under which conditions the figures were taken."""

    names: tuple[str, str]
    versions: tuple[str, str]
    rounds: str
    warming: str


def terminal_table(summaries: list[Summary], setting: Setting) -> Table:
    """The result for the person who waits."""
    table = Table(title=f"{' : '.join(setting.names)}, median over the rounds", title_style="bold")
    for name in ("", "shape", "must", "ratio", "spread", "", *setting.names):
        table.add_column(name, justify="left" if name in ("", "shape", "must") else "right")
    colours = {None: "dim", True: "green", False: "bold red"}
    for summary in summaries:
        metric = summary.metric
        table.add_row(
            metric.shape,
            metric.label,
            metric.must_text,
            summary.ratio_text,
            summary.spread_text,
            f"[{colours[summary.reached]}]{summary.verdict}[/]",
            metric.text(summary.ours),
            summary.peer_text,
        )
    return table


def write(out: Path, page: Page, summaries: list[Summary], setting: Setting) -> None:
    """Writes the page and its plot, as `broker.md` and `broker.png`."""
    out.mkdir(parents=True, exist_ok=True)
    plot(out / f"{page.name}.png", summaries, " : ".join(setting.names))
    (out / f"{page.name}.md").write_text(_text(page, summaries, setting), encoding="utf-8")


def _text(page: Page, summaries: list[Summary], setting: Setting) -> str:
    rows = "\n".join(
        f"| {s.metric.shape} | {s.metric.label} | {s.metric.must_text} | {s.ratio_text} | {s.spread_text} "
        f"| {'**missed**' if s.reached is False else s.verdict} "
        f"| <sub>{s.metric.text(s.ours)}</sub> | <sub>{s.peer_text}</sub> |"
        for s in summaries
    )
    return page.template.format(
        ours=setting.names[0],
        peer=setting.names[1],
        versions=f"{setting.versions[0]} against {setting.versions[1]}.",
        machine=machine(),
        rounds=setting.rounds,
        rows=rows,
        verdict=_verdict(summaries),
        warming=setting.warming,
        librdkafka=_librdkafka_version(),
    )


def _verdict(summaries: list[Summary]) -> str:
    held = [s for s in summaries if s.reached is not None]
    missed = [f"{s.metric.label} ({s.ratio_text}, must be {s.metric.must_text})" for s in held if not s.reached]
    if not missed:
        return f"All {len(held)} floors are reached."
    return f"{len(held) - len(missed)} of {len(held)} floors are reached; missed: {'; '.join(missed)}."


def _librdkafka_version() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])


def machine() -> str:
    """The machine in words."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} cores ({model}), {memory_gib:.0f} GiB of memory, Linux {platform.machine()}"


def plot(path: Path, summaries: list[Summary], title: str) -> None:
    """One panel where more is better, one where less is; each row a median, its spread, and its floor."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = [s for s in summaries if s.ratios]
    panels = [
        (words, rows)
        for words, better in (("more is better", "higher"), ("less is better", "lower"))
        if (rows := [s for s in drawn if s.metric.better == better])
    ]
    if not panels:
        return
    heights = [len(rows) + 1.6 for _, rows in panels]
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(9.5, 0.42 * sum(heights) + 1.5),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for axis, (words, rows) in zip(axes[:, 0], panels, strict=True):
        _panel(axis, words, rows)
    figure.suptitle(title, fontsize=15, fontweight="bold", color=_INK)
    _legend(figure)
    figure.savefig(path, dpi=160, facecolor="white")
    pyplot.close(figure)


def _panel(axis: Any, title: str, rows: list[Summary]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_xscale("log")
    low = min(min(s.ratios) for s in rows)
    high = max(max(s.ratios) for s in rows)
    floors = [s.metric.must_ratio for s in rows if s.metric.must_ratio is not None]
    left, right = min([low, 0.9, *floors]) / 1.25, max([high, 1.1, *floors]) * 1.25
    # Room on the right for the figures in words.
    axis.set_xlim(left, right * (right / left) ** 0.16)
    axis.axvline(1.0, color=_FREE, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for position, summary in enumerate(rows):
        _row(axis, position, summary)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks(range(len(rows)), [f"({s.metric.shape})  {s.metric.label}" for s in rows], fontsize=10)
    axis.set_title(title, loc="left", fontsize=10, color=_FREE, style="italic")
    # A narrow range needs more steps than a decade has.
    steps = _NARROW_STEPS if right / left < 8 else _WIDE_STEPS
    axis.xaxis.set_major_locator(FixedLocator([step for step in steps if left <= step <= right]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.tick_params(axis="both", colors=_INK, length=0)
    axis.grid(axis="x", color="#e2e8f0", linewidth=0.8, zorder=0)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axis.spines[side].set_visible(False)


def _row(axis: Any, position: int, summary: Summary) -> None:
    colour = {None: _FREE, True: _REACHED, False: _MISSED}[summary.reached]
    metric = summary.metric
    axis.axhspan(position - 0.5, position + 0.5, color="#f8fafc" if position % 2 else "white", zorder=0)
    axis.plot(
        [min(summary.ratios), max(summary.ratios)],
        [position, position],
        color=colour,
        linewidth=7,
        alpha=0.28,
        solid_capstyle="round",
        zorder=2,
    )
    axis.scatter(summary.ratios, [position] * len(summary.ratios), s=9, color=colour, alpha=0.6, zorder=3)
    axis.scatter([summary.ratio], [position], s=62, color=colour, edgecolor="white", linewidth=1.2, zorder=4)
    if metric.must_ratio is not None:
        axis.plot([metric.must_ratio] * 2, [position - 0.36, position + 0.36], color=_INK, linewidth=2.2, zorder=3)
    words = summary.ratio_text if summary.reached is not False else f"{summary.ratio_text} missed"
    axis.text(
        0.995,
        position,
        words,
        transform=axis.get_yaxis_transform(),
        ha="right",
        va="center",
        fontsize=10,
        fontweight="bold",
        color=colour,
    )


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    keys = [
        Line2D([], [], marker="o", color=_REACHED, linestyle="", markersize=8, label="median, floor reached"),
        Line2D([], [], marker="o", color=_MISSED, linestyle="", markersize=8, label="median, floor missed"),
        Line2D([], [], marker="o", color=_FREE, linestyle="", markersize=8, label="median, no floor"),
        Line2D([], [], color=_FREE, linewidth=7, alpha=0.35, label="smallest to largest round"),
        Line2D([], [], marker="|", color=_INK, linestyle="", markersize=13, markeredgewidth=2.2, label="must"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
