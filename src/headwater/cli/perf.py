"""`headwater perf`: how fast records go in and out of a cluster, and how long they take."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Topic, pairs
from headwater.cli.output import fail, print_fields, print_json

if TYPE_CHECKING:
    from headwater.cli.perf_figures import Latency, Throughput

app = new_app("Measure what a cluster takes and gives: records a second, MiB a second, latencies.")

T = TypeVar("T")

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ACKS = ("0", "1", "all")


def _one_of(allowed: tuple[str, ...]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in allowed:
            raise typer.BadParameter(f"{value!r} is none of {', '.join(allowed)}")
        return value

    return check


Records: TypeAlias = Annotated[int, typer.Option("--records", "-n", min=1, metavar="N", help="How many records.")]
Size: TypeAlias = Annotated[int, typer.Option("--size", "-s", min=1, metavar="BYTES", help="Bytes in each value.")]
Acks: TypeAlias = Annotated[str, typer.Option("--acks", metavar="|".join(_ACKS), callback=_one_of(_ACKS))]
Compression: TypeAlias = Annotated[
    str, typer.Option("--compression", "-z", metavar="|".join(_CODECS), callback=_one_of(_CODECS))
]
Arrow: TypeAlias = Annotated[bool, typer.Option("--arrow", help="Columns instead of rows; needs pyarrow.")]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-o", metavar="name=value", help="A setting of the client, by Kafka's name.", show_default=False),
]


@app.command()
def produce(
    topic: Topic,
    records: Records = 1_000_000,
    size: Size = 100,
    throughput: Annotated[
        int | None, typer.Option("--throughput", "-t", min=1, metavar="N", help="At most N records a second.")
    ] = None,
    acks: Acks = "all",
    compression: Compression = "none",
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=0, metavar="BYTES", help="batch.size", show_default="16384")
    ] = None,
    linger_ms: Annotated[
        int | None, typer.Option("--linger-ms", min=0, metavar="MS", help="linger.ms", show_default="5")
    ] = None,
    arrow: Arrow = False,
    settings: Settings = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Produce random letters as fast as they are taken, or as fast as --throughput says, and time every delivery."""
    from headwater.cli.perf_produce import ProduceJob, run

    asked: dict[str, object] = {"acks": acks, "compression.type": compression}
    asked |= {} if batch_size is None else {"batch.size": batch_size}
    asked |= {} if linger_ms is None else {"linger.ms": linger_ms}
    job = ProduceJob(
        bootstrap=bootstrap,
        topic=topic,
        records=records,
        size_bytes=size,
        records_per_s=throughput,
        arrow=arrow,
        settings=asked | pairs(settings or (), "-o"),
    )
    account = _told(lambda: run(job))
    _show(as_json, {"topic": topic}, account.throughput, "sent", account.latency, {})
    _end(account.failed, account.error, interrupted=account.interrupted)


@app.command()
def consume(
    topic: Topic,
    records: Annotated[
        int | None,
        typer.Option("--records", "-n", min=1, metavar="N", help="How many records.", show_default="all there are"),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="The group to join.", show_default="a new one")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="S", help="Stop when S seconds bring nothing new.")
    ] = 10.0,
    arrow: Arrow = False,
    settings: Settings = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Consume a topic from its beginning as fast as it comes."""
    from headwater.cli.perf_consume import ConsumeJob, run

    job = ConsumeJob(
        bootstrap=bootstrap,
        topic=topic,
        records=records,
        group=group,
        timeout_s=timeout,
        arrow=arrow,
        settings=pairs(settings or (), "-o"),
    )
    account = _told(lambda: run(job))
    more = {"group": account.group, "join_s": round(account.join_s, 6)}
    _show(as_json, {"topic": topic}, account.throughput, "read", None, more)
    missing = 0 if records is None else records - account.throughput.records
    reason = f"nothing new for {timeout:g} s" if missing > 0 else None
    _end(missing if missing > 0 else 0, reason, interrupted=account.interrupted)


@app.command()
def latency(
    topic: Topic,
    records: Records = 10_000,
    size: Size = 100,
    acks: Acks = "all",
    compression: Compression = "none",
    settings: Settings = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Send one record after the other, and time each from its send until a consumer has it."""
    from headwater.cli.perf_latency import LatencyJob, run

    asked: dict[str, object] = {"acks": acks, "compression.type": compression}
    job = LatencyJob(
        bootstrap=bootstrap,
        topic=topic,
        records=records,
        size_bytes=size,
        settings=asked | pairs(settings or (), "-o"),
    )
    account = _told(lambda: run(job))
    _show(as_json, {"topic": topic}, account.throughput, "sent and read", account.latency, {})
    _end(0, None, interrupted=account.interrupted)


def _told(test: Callable[[], T]) -> T:
    """Runs a test; what stops it is told in one sentence, and the exit code is 1."""
    from headwater.client import ClientError
    from headwater.config.errors import ConfigError

    try:
        return test()
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="-o") from None
    except (ClientError, ImportError) as error:
        fail(str(error))


def _show(
    as_json: bool,
    subject: dict[str, Any],
    throughput: "Throughput",
    did: str,
    latency: "Latency | None",
    more: dict[str, Any],
) -> None:
    if as_json:
        print_json(subject | throughput.json() | more | ({"latency": latency.json()} if latency else {}))
        return
    lines = throughput.lines(did) | (latency.lines() if latency else {})
    if "join_s" in more:
        lines["Group"] = f"{more['group']}, joined in {more['join_s']:.2f} s, which is not counted above"
    print_fields(lines)


def _end(missing: int, reason: str | None, *, interrupted: bool) -> None:
    if missing:
        fail(f"{missing:,} records are missing: {reason}")
    if interrupted:
        raise typer.Exit(130)
