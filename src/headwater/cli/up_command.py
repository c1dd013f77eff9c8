"""`headwater up` as Typer knows it: its help, its completion and its usage errors."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import up
from headwater.cli.apps import new_app

app = new_app()


@app.command()
def run_broker(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=up.DEFAULT_HOST)] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port to listen on; 0 takes a free one.", show_default=str(up.DEFAULT_PORT)
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the log.", show_default="$XDG_DATA_HOME/headwater"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Kafka's configs: .properties, or .toml.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="name=value", help="One config, over the file's.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the ready line as JSON.")] = False,
) -> None:
    """Run a broker in the foreground until Ctrl-C."""
    options = up.UpOptions(
        host=host,
        port=port,
        data=str(data) if data else None,
        config=str(config) if config else None,
        settings=tuple(settings or ()),
        json=as_json,
    )
    raise typer.Exit(up.run(options))
