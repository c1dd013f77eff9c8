"""What the commands of `headwater lake` share: where the lake is, which Spark it works on, and how errors are told."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from headwater.cli.output import fail

if TYPE_CHECKING:
    from headwater.lake import Lake

DEFAULT_WAREHOUSE = "lake"
DEFAULT_MASTER = "local[*]"

Warehouse: TypeAlias = Annotated[
    str,
    typer.Option("--warehouse", "-w", metavar="DIR|URL", envvar="HEADWATER_WAREHOUSE", help="Where the tables lie."),
]
Catalog: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="URL",
        envvar="HEADWATER_CATALOG",
        help="A catalog server (http://…) or a database (sqlite:///…, postgresql+psycopg://…); "
        "without it, a file in the warehouse.",
        show_default=False,
    ),
]
Master: TypeAlias = Annotated[
    str, typer.Option("--master", metavar="URL", envvar="HEADWATER_SPARK_MASTER", help="The Spark that does the work.")
]
Conf: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting for Spark; may be repeated.", show_default=False),
]


@contextmanager
def opened_lake(
    warehouse: str,
    catalog: str | None,
    master: str = DEFAULT_MASTER,
    conf: Sequence[str] | None = None,
    *,
    create: bool = False,
    plan: bool = False,
) -> "Iterator[Lake]":
    """The lake, made if need be by those who load; what goes wrong is told in one sentence, and the exit code is 1.

    Who only makes a plan for a lake that is not there yet leaves none behind.
    """
    from headwater.cli.lake_progress import lake_progress
    from headwater.cli.options import pairs

    try:
        from headwater.catalog.client import CatalogError
        from headwater.client.errors import ClientError
        from headwater.lake import Lake, LakeError, LakeUsageError, SparkSettings
    except ImportError as error:
        fail(f'the lake is not installed ({error.name} is missing): pip install "headwater[lake]"')
    settings = SparkSettings(master=master, conf=pairs(conf or (), "--conf"))
    try:
        with (
            lake_progress() as shown,
            _catalog_for_a_plan(warehouse, catalog) if plan else nullcontext(catalog) as place,
            Lake(warehouse, catalog=place, create=create, spark=settings, tell=shown.tell, watch=shown.watch) as lake,
        ):
            yield lake
    except LakeUsageError as error:
        raise typer.BadParameter(str(error)) from None
    except (LakeError, CatalogError, ClientError) as error:
        fail(str(error))


@contextmanager
def _catalog_for_a_plan(warehouse: str, catalog: str | None) -> "Iterator[str | None]":
    """The lake's own catalog if it is there, else an empty one that is gone afterwards."""
    from headwater.catalog.places import default_database, is_there
    from headwater.lake import LakeUsageError

    try:
        exists = is_there(catalog or default_database(warehouse))
    except ValueError as error:
        raise LakeUsageError(str(error)) from None
    if exists:
        yield catalog
        return
    with TemporaryDirectory(prefix="headwater-plan-") as folder:
        yield f"{folder}/catalog.db"
