"""`headwater lake explain` and `headwater lake rewind`: why something was loaded or not, and loading it again."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.lake_options import (
    DEFAULT_MASTER,
    DEFAULT_WAREHOUSE,
    Catalog,
    Conf,
    Master,
    Warehouse,
    opened_lake,
)
from headwater.cli.lake_status import SourceBootstrap, Table, load_json
from headwater.cli.options import Json
from headwater.cli.output import confirm, print_json, say

if TYPE_CHECKING:
    from headwater.lake.operations.explanations import Explanation


def explain(
    table: Table,
    file: Annotated[
        str | None, typer.Option("--file", metavar="PATH", help="A file, or the URL of an object.", show_default=False)
    ] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", metavar="TOPIC:PARTITION:OFFSET", help="A record.", show_default=False)
    ] = None,
    row: Annotated[
        str | None,
        typer.Option("--row", metavar="CONDITION", help='Rows of the table: "id = 7".', show_default=False),
    ] = None,
    bootstrap: SourceBootstrap = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    catalog: Catalog = None,
    as_json: Json = False,
) -> None:
    """Why a file, an offset or a row was loaded or not: when, by which load, in which snapshot, or why not yet."""
    if sum(given is not None for given in (file, offset, row)) != 1:
        raise typer.BadParameter("say what to explain by one of --file, --offset and --row")
    with opened_lake(warehouse, catalog) as lake:
        if file is not None:
            found = [lake.explain_file(table, file)]
        elif offset is not None:
            found = [lake.explain_offset(table, offset, bootstrap=bootstrap)]
        else:
            found = lake.explain_rows(table, row or "", bootstrap=bootstrap)
    if as_json:
        print_json([explanation_json(each) for each in found])
    else:
        say(*(line for each in found for line in explanation_lines(each)))


def rewind(
    table: Table,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="As `headwater lake status` calls it.", show_default=False)
    ],
    to: Annotated[
        str,
        typer.Option("--to", metavar="PLACE", help='earliest, {"0": 12}, load:ID (before it), or a time.'),
    ],
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the rows of what is loaded again, in the same commit.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: SourceBootstrap = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    catalog: Catalog = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Set a source's position back, so that the next load brings again what lies behind it."""
    with opened_lake(warehouse, catalog) as lake:
        plan = lake.plan_rewind(table, source, to, delete=delete, bootstrap=bootstrap)
    words = f"{plan.again} of {plan.source} will be loaded into {table} again; {plan.rows}"
    if not yes:
        confirm(f"{words}. Go on?", because=words)
    with opened_lake(warehouse, catalog, master, conf) as lake:
        from headwater.lake.operations.rewinding import carry_out

        load = carry_out(lake, plan)
    if as_json:
        print_json({"table": table, "source": plan.source, "again": plan.again, "rows": plan.rows, **load_json(load)})
    else:
        say(f"{words} (rewind {load.load_id})")


def explanation_lines(found: "Explanation") -> list[str]:
    """A verdict, and a line for each reason."""
    return [f"{found.subject}: {found.verdict}", *(f"  {reason}" for reason in found.reasons)]


def explanation_json(found: "Explanation") -> dict[str, Any]:
    """The same for machines."""
    return {
        "subject": found.subject,
        "verdict": found.verdict.value,
        "reasons": list(found.reasons),
        "loads": [load_json(load) for load in found.loads],
    }
