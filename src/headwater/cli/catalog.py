"""`headwater catalog`: the lake's catalog as a server for Spark, pyiceberg, DuckDB and every other engine."""

import json
from typing import Annotated

import typer

from headwater.cli.apps import new_app
from headwater.cli.lake_options import DEFAULT_WAREHOUSE, Warehouse
from headwater.cli.options import Json
from headwater.cli.output import fail, without_user

app = new_app("The lake's catalog: an Iceberg REST service whose commits are exactly once.")

DEFAULT_LISTEN = "127.0.0.1:8181"
DEFAULT_BODY_BYTES = 16 << 20


@app.callback()
def _catalog() -> None:
    pass


@app.command()
def serve(
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Where the catalog is kept: a SQLite file, or postgresql://… for several servers.",
            show_default="catalog.db in the warehouse",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PORT]",
            help="A name by which clients ask for this server, besides its address; may be repeated.",
            show_default=False,
        ),
    ] = None,
    allow_location: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR|URL",
            help="A folder besides the warehouse where tables may lie; may be repeated.",
            show_default=False,
        ),
    ] = None,
    max_body_bytes: Annotated[
        int, typer.Option(metavar="BYTES", min=1, help="The largest request that is taken.")
    ] = DEFAULT_BODY_BYTES,
    as_json: Json = False,
) -> None:
    """Serve the catalog in the foreground until Ctrl-C."""
    host, port = _address(listen)
    try:
        from sqlalchemy.exc import SQLAlchemyError

        from headwater.catalog.places import default_database, warehouse_url
        from headwater.catalog.server import serve
    except ImportError as error:
        fail(f'the catalog is not installed ({error.name} is missing): pip install "headwater[lake]"')

    def announce(uri: str) -> None:
        ready = {"uri": uri, "warehouse": warehouse_url(warehouse)}
        words = f"headwater's catalog is ready at {uri}, tables in {ready['warehouse']}"
        print(json.dumps(ready) if as_json else words, flush=True)

    try:
        serve(
            database or default_database(warehouse),
            warehouse,
            host,
            port,
            allow_hosts=allow_host or (),
            allow_locations=allow_location or (),
            most_body_bytes=max_body_bytes,
            ready=announce,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        fail(f"cannot listen on {listen}: {error.strerror or error}; choose another address with --listen")
    except SQLAlchemyError as error:
        place = without_user(database or default_database(warehouse))
        fail(f"cannot use the database {place}: {str(error).splitlines()[0]}")


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise typer.BadParameter(f"{text} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - only who leaves the host out asks for all addresses
