"""What people and machines get to see: tables, JSON, and errors as one sentence with an exit code."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from headwater.client import Client

T = TypeVar("T")


def with_client(bootstrap: str, operation: "Callable[[Client], Awaitable[T]]") -> T:
    """Runs one operation on a cluster. What stops it is told in one sentence, and the exit code is 1."""
    from headwater.client import Client, ClientError

    async def run() -> T:
        async with Client(bootstrap, client_id="headwater-cli") as client:
            return await operation(client)

    try:
        return asyncio.run(run())
    except ClientError as error:
        fail(str(error))


def complain(message: str) -> None:
    """Says on stderr what went wrong."""
    print(f"headwater: {message}", file=sys.stderr)


def fail(message: str) -> NoReturn:
    """Says on stderr what went wrong and ends the command with exit code 1."""
    complain(message)
    raise typer.Exit(1)


def print_json(value: object) -> None:
    """One JSON document, indented."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, numeric: Sequence[str] = ()) -> None:
    """A table: ruled on a terminal, plain aligned columns (nothing cut, nothing wrapped) elsewhere."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_ruled(columns, cells, numeric)
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


def _print_ruled(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


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
