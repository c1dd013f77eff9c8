"""What people and machines get to see: tables, JSON, and errors as one sentence with an exit code."""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import typer

from headwater.terminal_text import printable, printable_json

if TYPE_CHECKING:
    from headwater.client import Client

T = TypeVar("T")

CLIENT_ID: Final = "headwater-cli"
_STACKED_WIDTH: Final = 8
_USER: Final = re.compile(r"//[^/]*@")


def with_client(bootstrap: str, operation: "Callable[[Client], Awaitable[T]]") -> T:
    """Runs one operation on a cluster. What stops it is told in one sentence, and the exit code is 1."""
    from headwater.client import Client

    async def run() -> T:
        async with Client(bootstrap, client_id=CLIENT_ID) as client:
            return await operation(client)

    return run_or_fail(run())


def run_or_fail(operation: "Coroutine[Any, Any, T]") -> T:
    """The same for an operation that brings its own client."""
    from headwater.client import ClientError

    try:
        return asyncio.run(operation)
    except ClientError as error:
        fail(str(error))


def say(*lines: str, flush: bool = False) -> None:
    """Lines on stdout. Names and messages in them are somebody else's, so control characters are escaped."""
    print("".join(f"{printable(line)}\n" for line in lines), end="", flush=flush)


def for_terminal(text: str, *, keep: str = "\n\t") -> str:
    """Text of a format that programs read: as it is for those, escaped where a person sees it."""
    return printable(text, keep=keep) if sys.stdout.isatty() else text


def complain(message: str) -> None:
    """Says on stderr what went wrong."""
    print(printable(f"headwater: {message}", keep="\n\t"), file=sys.stderr)


def exit_if_failed(failures: Sequence[Exception]) -> None:
    """Says on stderr what went wrong with some of several, and ends the command with exit code 1 if anything did."""
    for failure in failures:
        complain(str(failure))
    if failures:
        raise typer.Exit(1)


def confirm(question: str, *, because: str) -> None:
    """Asks a person before something that cannot be undone; a script has to say --yes."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{because}: confirm it with --yes", param_hint="--yes")
    typer.confirm(printable(question, keep="\n\t"), abort=True, err=True)


def fail(message: str) -> NoReturn:
    """Says on stderr what went wrong and ends the command with exit code 1."""
    complain(message)
    raise typer.Exit(1)


def without_user(url: str) -> str:
    """A URL as it may be shown: without a name and a password in front of its host.

    >>> without_user("postgresql://me:secret@db.example/lake")
    'postgresql://db.example/lake'
    """
    return _USER.sub("//", url)


def print_json(value: object) -> None:
    """One JSON document, indented."""
    print(json_text(value, indent=2))


def json_text(value: object, *, indent: int | None = None) -> str:
    """A JSON document with letters as they are, but no character that does something to a terminal."""
    return printable_json(json.dumps(value, indent=indent, ensure_ascii=False))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numeric: Sequence[str] = (),
    shortened: Sequence[str] = (),
) -> None:
    """A table: ruled on a terminal, plain aligned columns (nothing cut, nothing wrapped) elsewhere.

    A terminal that is too narrow folds long cells, and cuts those of `shortened` columns.
    """
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_ruled(columns, cells, numeric, shortened)
    else:
        print("\n".join(aligned(columns, cells, numeric)))


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str]) -> list[str]:
    """Columns padded to their widest cell and two spaces apart.

    >>> aligned(["Topic", "Size"], [["a", "5"], ["bcdefg", "12"]], ["Size"])
    ['Topic   Size', 'a          5', 'bcdefg    12']
    """
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if name in numeric else cell.ljust(width)
            for cell, width, name in zip(cells, widths, columns, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return [line(columns), *map(line, rows)]


def print_fields(fields: Mapping[str, object]) -> None:
    """One thing that has too many columns for a table: a line for each."""
    width = max(map(len, fields))
    for name, value in fields.items():
        say(f"{name:{width}}  {'-' if value is None else value}")


def _print_ruled(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str], shortened: Sequence[str]
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = [max(map(len, cells), default=0) for cells in zip(*rows, strict=True)] or [0] * len(columns)
    fits = sum(max(len(column), width) + 2 for column, width in zip(columns, widths, strict=True)) <= console.width + 2
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False, collapse_padding=True)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column if fits else stacked(column, max(width, _STACKED_WIDTH)),
            justify="right" if column in numeric else "left",
            overflow="ellipsis" if column in shortened else "fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def stacked(heading: str, width: int) -> str:
    """A heading broken between its words into lines, none longer than `width` where the words allow it.

    >>> stacked("LOG-END-OFFSET", 8), stacked("ProducerEpoch", 8), stacked("ProducerId", 8)
    ('LOG-END-\\nOFFSET', 'Producer\\nEpoch', 'ProducerId')
    """
    words = re.findall(r"[A-Z][a-z]+(?:Id)?|[^-]+(?:-ID|-)?", heading)
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > max(width, *map(len, words)):
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def bytes_for_people(size_bytes: float) -> str:
    """A size with a unit that suits it.

    >>> bytes_for_people(1_500_000)
    '1.4 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size_bytes < 1024 or unit == "TiB":
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError


def counted(number: int, thing: str) -> str:
    """A number with its noun.

    >>> counted(1, "record"), counted(2000, "record")
    ('1 record', '2,000 records')
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def topic_id_text(topic_id: Any) -> str | None:
    """A topic id as Kafka's tools print it: base64 for URLs, without padding."""
    import base64

    return None if topic_id is None else base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
