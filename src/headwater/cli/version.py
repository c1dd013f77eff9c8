"""`headwater version`."""

from importlib.metadata import version

from headwater.cli.apps import new_app
from headwater.cli.options import Json
from headwater.cli.output import print_json

app = new_app()


@app.command()
def show_version(as_json: Json = False) -> None:
    """Show the version of headwater and of the Python under it."""
    import platform

    found = {"headwater": version("headwater"), "python": platform.python_version()}
    if as_json:
        print_json(found)
    else:
        print(f"headwater {found['headwater']} (Python {found['python']})")
