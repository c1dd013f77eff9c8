"""`headwater lake crawl`: look at a folder, a cluster or a database, and propose a lake.toml."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.options import Json
from headwater.cli.output import counted, fail, for_terminal, print_json, say, without_user

if TYPE_CHECKING:
    from headwater.lake.crawling.proposals import Crawl


def crawl(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URL|HOST:PORT",
            help="A folder (also s3://…), a PostgreSQL database (jdbc:…) or a broker.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Find what is there and propose a lake.toml, with the reasons in its comments. Nothing is loaded."""
    from headwater.cli.lake_progress import lake_progress

    if out is not None and out.exists() and not force:
        fail(f"{out} is there already: name another file, or write over it with --force")
    with lake_progress() as shown:
        shown.tell(f"looking at {without_user(place.partition('?')[0])}")
        found = _crawled(place)
    text = _lake_toml(found)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if as_json:
        print_json(crawl_json(found))
    elif out is None:
        print(for_terminal(text), end="")
    else:
        left_out = f", {len(found.left_out):,} left out" if found.left_out else ""
        say(f"{out}: {counted(len(found.proposals), 'load')} proposed{left_out}")


def crawl_json(found: "Crawl") -> dict[str, Any]:
    """The proposals for machines."""
    return {
        "place": found.place,
        "bootstrap": found.bootstrap,
        "loads": [
            {
                "source": each.source,
                "into": each.into,
                "mode": each.mode,
                "key": list(each.key),
                "newest_by": each.newest_by,
                "event_time": each.event_time,
                "options": dict(each.options),
                "reasons": list(each.reasons),
            }
            for each in found.proposals
        ],
        "left_out": list(found.left_out),
    }


def _crawled(place: str) -> "Crawl":
    try:
        from headwater.client.errors import ClientError
        from headwater.lake.crawling.places import crawl as crawl_place
        from headwater.lake.errors import LakeError, LakeUsageError
    except ImportError as error:
        fail(f'the lake is not installed ({error.name} is missing): pip install "headwater[lake]"')
    try:
        return crawl_place(place)
    except LakeUsageError as error:
        raise typer.BadParameter(str(error)) from None
    except (LakeError, ClientError, OSError) as error:
        fail(str(error))


def _lake_toml(found: "Crawl") -> str:
    from headwater.lake.crawling.proposals import lake_toml

    return lake_toml(found)
