"""`rlxweb`: the command group, the error boundary and the exit codes.

0 good · 1 wrong numbers or a failed case · 2 usage · 3 no usable device · 4 a required
device or feature is missing · 75 device lost. Commands live in files of their own and
are imported when called, so `rlxweb --help` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click

from rlxweb.errors import RlxError

COMMANDS = {
    "welch": "rlxweb.cli.welch_command",
    "devices": "rlxweb.cli.devices_command",
    "demo": "rlxweb.cli.demo_command",
}


class LazyGroup(click.Group):
    """Loads a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("rlxweb"), prog_name="rlxweb")
def cli() -> None:
    """Spectral peaks of recordings, on the best engine this machine has."""


def main(args: list[str] | None = None) -> Any:
    """Run the command line; every error of ours becomes one line and an exit code."""
    try:
        code = cli.main(args, prog_name="rlxweb", standalone_mode=False)
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("rlxweb: stopped", err=True)
        code = 130
    except BrokenPipeError:
        # The reader of our output went away; nothing is left to tell it.
        sys.stderr.close()
        code = 0
    except RlxError as error:
        click.echo(f"rlxweb: {error}", err=True)
        code = error.exit_code
    sys.exit(code or 0)


if __name__ == "__main__":
    main()
