"""`rlxweb`: the command group, the error boundary and the exit codes.

0 good · 1 wrong numbers or a failed case · 2 usage · 3 no usable device · 4 a required
device or feature is missing · 75 device lost · 130 stopped by the user. Every error of
ours is one line on stderr; a traceback means a bug. Commands live in files of their own
and are imported when called, so `rlxweb --help` is quick.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from functools import partial
from importlib import import_module
from typing import Any

import click

from rlxweb.cli.record import rlxweb_version
from rlxweb.cli.signals import signals
from rlxweb.cli.wording import point_to, told, told_by_click
from rlxweb.errors import RlxError, RlxWarning, did_you_mean
from rlxweb.printable import WRITTEN_OUT, printable
from rlxweb.streams import STDOUT, discard

# Name → the first line of its help, so that listing loads none of their modules.
COMMANDS = {
    "welch": "Welch spectra and their strongest peaks, of recordings.",
    "bands": "Power in bands of frequency, per channel, of recordings.",
    "spectrogram": "Spectra over time, per channel, of recordings.",
    "convert": "Recordings as EDF+, BDF+, NPZ, WAV or Parquet files.",
    "learn": "A transform that is trained for your recordings and your band.",
    "live": "Spectra and peaks of a signal that is still running.",
    "info": "What recordings hold: channels, rates, units, annotations, times.",
    "devices": "List every device: available or not, and why.",
    "explain": "Say where a Welch job would run and why.",
    "profile": "Say where the time goes, of a recording or of a graph.",
    "calibrate": "Measure how fast each engine is: trips, transfers, our own kernels.",
    "smoke": "Try every engine of this machine: is it right, and how fast?",
    "bench": "Measure what each engine of this machine reaches.",
    "run": "Run a model, a file of ONNX, on arrays of files.",
    "inspect": "Look into a model, a file of ONNX: ops, what is missing, memory, time.",
    "export": "Write a graph or a Welch estimate for pages without Python.",
    "demo": "Peaks of a made recording with known rhythms, or of yours.",
}
STOPPED = 130


class LazyGroup(click.Group):
    """Loads a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"rlxweb.cli.{cmd_name}_command")
        command: click.Command = module.command
        signals.begin()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            meant = did_you_mean(name, COMMANDS) or f"known: {', '.join(COMMANDS)}"
            raise click.UsageError(f"no such command {name!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.UsageError, RlxError) as error:
            name = ctx.invoked_subcommand or ""
            command = self.get_command(ctx, name)
            if command is not None:
                point_to(error, command, click.Context(command, ctx, name))
            raise
        except BrokenPipeError:
            # The reader of our output went away (`| head`); nobody is left to tell.
            discard(STDOUT)
            return 0


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(rlxweb_version(), prog_name="rlxweb")
def cli() -> None:
    """Spectral peaks of recordings, on the best engine this machine has."""


def main(args: list[str] | None = None) -> None:
    """Run the command line; every error of ours becomes one line and an exit code."""
    _fill_closed_streams()
    _print_anything()
    with warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, set())
        # Whatever PYTHONWARNINGS says: they are told, and end nothing.
        warnings.simplefilter("always", RlxWarning)
        code = _run(args)
    sys.exit(_flushed(code))


def _run(args: list[str] | None) -> int:
    try:
        code = cli.main(args, prog_name="rlxweb", standalone_mode=False)
    except BaseException as error:
        return _told(error)
    return code if isinstance(code, int) else 0


def _told(error: BaseException) -> int:
    """Say what ended the run; its exit code. What we know nothing of is raised on."""
    # Native code may make something else of a KeyboardInterrupt.
    if signals.number or isinstance(error, KeyboardInterrupt | click.exceptions.Abort):
        return _stopped()
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.ClickException):
        return _say(told_by_click(error), error.exit_code)
    if isinstance(error, RlxError | MemoryError):
        return _say(told(error), getattr(error, "exit_code", 1))
    if isinstance(error, OSError):
        # Files are the business of rlxweb.io; what is left is our own output.
        return _unwritten(error)
    raise error


def _stopped() -> int:
    return _say("stopped", 128 + (signals.number or signal.SIGINT))


def _show_warning(
    told: set[str], message: Warning | str, *where: Any, **more: Any
) -> None:
    """One line, once, without the place in the source that is of no use to a user."""
    said = message.with_flags if isinstance(message, RlxWarning) else str(message)
    if said not in told:
        told.add(said)
        _say(said, 0)


def _say(text: str, code: int) -> int:
    """One line on stderr, whatever a driver or a file name put into the text."""
    click.echo("rlxweb: " + printable("; ".join(text.split("\n"))), err=True)
    return code


def _fill_closed_streams() -> None:
    """Whoever closed one (`>&-`) wants to hear nothing.

    Left closed, its number would go to the next file that is opened, and what is meant
    for a terminal would be written into that.
    """
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            sink = os.open(os.devnull, os.O_RDWR)
            if sink != number:
                os.dup2(sink, number)
                os.close(sink)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, closefd=False))


def _print_anything() -> None:
    """No channel name may stop a run because the terminal lacks one of its letters."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=WRITTEN_OUT)


def _unwritten(error: OSError) -> int:
    discard(STDOUT)
    return _say(f"writing the output: {error.strerror or error}", 1)


def _flushed(code: int) -> int:
    """Send the last of stdout while an error can still be told."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard(STDOUT)
    except OSError as error:
        return _unwritten(error)
    except KeyboardInterrupt:
        discard(STDOUT)
        return _stopped()
    return code


if __name__ == "__main__":
    main()
