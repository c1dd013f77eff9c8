"""How every Typer app of headwater is made, so that all of them look and fail alike."""

import sys
from typing import Any, Final

import typer

# Boxes and colours are for people; whoever pipes the help or an error gets plain lines.
_FOR_PEOPLE: Final = sys.stdout.isatty() and sys.stderr.isatty()


def new_app(help_text: str | None = None, *, add_completion: bool = False, **settings: Any) -> typer.Typer:
    """An app without commands yet. A group of commands has a help text, a single command its docstring."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=help_text is not None,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if _FOR_PEOPLE else None,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )
