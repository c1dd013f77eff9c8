"""The entry point of the `headwater` command.

Starting a broker is the one thing that must be quick, so a plain `headwater up` goes straight to it;
everything else, its own `--help` and its usage errors included, goes through Typer.
"""

import os
import sys


def main() -> None:
    """Runs the command line and exits with its code: 0 done, 1 failed, 2 used wrongly."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["up"] and "_HEADWATER_COMPLETE" not in os.environ:
        from headwater.cli import up

        options = up.parse_plain(arguments[1:])
        if options is not None:
            sys.exit(up.run(options))
    from headwater.cli.commands import run_command

    run_command()


if __name__ == "__main__":
    main()
