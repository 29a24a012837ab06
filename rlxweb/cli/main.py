"""Command group of `rlxweb`, its error handling and the exit codes.

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

from rlxweb.cli.error_messages import attach_command, format_click_error, format_error
from rlxweb.cli.json_documents import rlxweb_version
from rlxweb.cli.termination_signals import process_signals
from rlxweb.core.errors import RlxError, RlxWarning, did_you_mean
from rlxweb.core.message_text import ESCAPE_ERROR_HANDLER, printable
from rlxweb.core.output_streams import STDOUT, discard_output

# Name → the first line of its help, so that listing loads none of their modules.
COMMANDS = {
    "welch": "Compute Welch spectra and their strongest peaks.",
    "bands": "Compute the power in frequency bands.",
    "spectrogram": "Compute spectra over time.",
    "convert": "Convert recordings to EDF+, BDF+, NPZ, WAV, FLAC or Parquet files.",
    "learn": "Train a spectral transform for your recordings and frequency band.",
    "live": "Show spectra and peaks of a live signal.",
    "info": "Show what recordings contain: channels, rates, units, annotations, times.",
    "devices": "List every device: available or not, and why.",
    "explain": "Explain where a Welch job would run.",
    "profile": "Profile the analysis of a recording, or a graph.",
    "calibrate": "Measure how fast each engine is: round trips, transfers, kernels.",
    "smoke": "Test every engine of this machine: correctness and speed.",
    "bench": "Measure the throughput of each engine.",
    "run": "Run an ONNX model or a saved graph on arrays from files.",
    "inspect": "Inspect an ONNX model: ops, unsupported ops, memory, time.",
    "export": "Export a graph or a Welch estimate for web pages without Python.",
    "demo": "Show the peaks of a generated recording, or of your own.",
}
INTERRUPTED_EXIT_CODE = 130


class LazyGroup(click.Group):
    """Command group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"rlxweb.cli.{cmd_name}_command")
        command: click.Command = module.command
        process_signals.begin_command()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            known = f"known commands: {', '.join(COMMANDS)}"
            suggestion = did_you_mean(name, COMMANDS) or known
            raise click.UsageError(f"no such command {name!r}; {suggestion}", ctx)
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
                attach_command(error, command, click.Context(command, ctx, name))
            raise
        except BrokenPipeError:
            # The reader of our output went away (`| head`); nobody is left to tell.
            discard_output(STDOUT)
            return 0


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(rlxweb_version(), prog_name="rlxweb")
def cli() -> None:
    """Find spectral peaks of recordings, on the fastest engine of this machine."""


def main(args: list[str] | None = None) -> None:
    """Run the command line; turn every rlxweb error into one line on stderr and an exit
    code.
    """
    _replace_closed_streams()
    _escape_unencodable_output()
    with warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, set())
        # Whatever PYTHONWARNINGS says: they are told, and end nothing.
        warnings.simplefilter("always", RlxWarning)
        code = _run_command(args)
    sys.exit(_flush_stdout(code))


def _run_command(args: list[str] | None) -> int:
    try:
        code = cli.main(args, prog_name="rlxweb", standalone_mode=False)
    except BaseException as error:
        return _report_error(error)
    return code if isinstance(code, int) else 0


def _report_error(error: BaseException) -> int:
    """Print the error that ended the run and return its exit code; raise unknown errors
    again.
    """
    # Native code may make something else of a KeyboardInterrupt.
    if process_signals.signal_number or isinstance(
        error, KeyboardInterrupt | click.exceptions.Abort
    ):
        return _report_interrupt()
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.ClickException):
        return _print_message(format_click_error(error), error.exit_code)
    if isinstance(error, RlxError | MemoryError):
        return _print_message(format_error(error), getattr(error, "exit_code", 1))
    if isinstance(error, OSError):
        # Files are the business of rlxweb.io; what is left is our own output.
        return _report_write_error(error)
    raise error


def _report_interrupt() -> int:
    return _print_message(
        "stopped", 128 + (process_signals.signal_number or signal.SIGINT)
    )


def _show_warning(
    shown_texts: set[str], message: Warning | str, *location: Any, **options: Any
) -> None:
    """Print a warning as one line, once, without the source location, which is of no
    use to a user.
    """
    text = message.with_flags if isinstance(message, RlxWarning) else str(message)
    if text not in shown_texts:
        shown_texts.add(text)
        _print_message(text, 0)


def _print_message(text: str, code: int) -> int:
    """Print one line on stderr, with unprintable characters from drivers or file names
    escaped; return `code`.
    """
    click.echo("rlxweb: " + printable("; ".join(text.split("\n"))), err=True)
    return code


def _replace_closed_streams() -> None:
    """Open the null device in place of standard streams that the caller closed (`>&-`).

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


def _escape_unencodable_output() -> None:
    """Escape characters that the terminal cannot encode, so that no channel name stops
    a run.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=ESCAPE_ERROR_HANDLER)


def _report_write_error(error: OSError) -> int:
    discard_output(STDOUT)
    return _print_message(f"writing the output: {error.strerror or error}", 1)


def _flush_stdout(code: int) -> int:
    """Flush stdout while an error can still be reported; return the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output(STDOUT)
    except OSError as error:
        return _report_write_error(error)
    except KeyboardInterrupt:
        discard_output(STDOUT)
        return _report_interrupt()
    return code


if __name__ == "__main__":
    main()
