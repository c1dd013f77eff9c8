"""The tree of commands. Each is imported when it is called, completed or listed, not before."""

import os
import sys
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from headwater.cli.apps import new_app
from headwater.terminal_text import printable

COMMANDS: Final = {
    "up": "headwater.cli.up_command",
    "topics": "headwater.cli.topics",
    "configs": "headwater.cli.configs",
    "produce": "headwater.cli.produce",
    "consume": "headwater.cli.consume",
    "offsets": "headwater.cli.offsets",
    "delete-records": "headwater.cli.delete_records",
    "groups": "headwater.cli.groups",
    "transactions": "headwater.cli.transactions",
    "log": "headwater.cli.log",
    "cluster": "headwater.cli.cluster",
    "perf": "headwater.cli.perf",
    "lake": "headwater.cli.lake",
    "catalog": "headwater.cli.catalog",
    "demo": "headwater.cli.demo",
    "version": "headwater.cli.version",
}
"""Names in the order of the help text, and the modules whose `app` they are."""


_SHOW_TRACEBACKS: Final = "HEADWATER_TRACEBACK"


class LazyCommands(TyperGroup):
    """A group whose members are modules."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, imported now; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        """Runs a command. Complaints quote arguments and files, which may hold what a terminal obeys."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = printable(error.message, keep="\n\t")
            raise


app = new_app(
    "A Kafka that you pip install: the broker, and tools for any Kafka.",
    add_completion=True,
    cls=LazyCommands,
)


@app.callback()
def _headwater() -> None:
    pass


def run_command() -> None:
    """Runs what the command line says and exits. A mistake of ours is told in one sentence too."""
    import logging

    from headwater.cli.output import complain
    from headwater.terminal_text import PrintableFormatter

    if logging.lastResort is not None:
        # Warnings of the clients go to stderr, and may quote what a broker said.
        logging.lastResort.setFormatter(PrintableFormatter())
    try:
        app(prog_name="headwater")
    except Exception as error:
        if os.environ.get(_SHOW_TRACEBACKS):
            raise
        complain(f"internal error: {type(error).__name__}: {error}; {_SHOW_TRACEBACKS}=1 shows where")
        sys.exit(1)
