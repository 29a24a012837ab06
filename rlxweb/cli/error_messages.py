"""Error messages in command-line terms: one line, with flags instead of Python
keywords.

Owns what is suggested for an option that does not exist: what it means elsewhere comes
before what it merely looks like.
"""

from __future__ import annotations

import click

from rlxweb.core.errors import RlxError, near
from rlxweb.core.message_text import Advice

OUT_OF_MEMORY_MESSAGE = "out of memory; use shorter segments, or fewer rows or channels"

_OUTPUT_FLAGS = "--out --csv --npz --json --plot"
# What other programs and libraries call it → what it is called here.
_FLAG_ALIASES = {
    "-o": _OUTPUT_FLAGS,
    "--average": "--preset",
    "--channel": "--channels",
    "--cpu": "--device",
    "--fft": "--nperseg",
    "--freq-max": "--fmax",
    "--freq-min": "--fmin",
    "--gpu": "--device",
    "--highest": "--fmax",
    "--ignore-errors": "--keep-going",
    "--length": "--nperseg",
    "--lowest": "--fmin",
    "--max-freq": "--fmax",
    "--min-freq": "--fmin",
    "--n-overlap": "--noverlap",
    "--n-per-seg": "--nperseg",
    "--n-fft": "--nperseg",
    "--nfft": "--n-fft --nperseg",
    "--number": "--k",
    "--out": _OUTPUT_FLAGS,
    "--output": _OUTPUT_FLAGS,
    "--overlap": "--noverlap",
    "--peaks": "--k",
    "--picks": "--channels",
    "--picture": "--plot",
    "--rate": "--fs",
    "--sample-rate": "--fs",
    "--sampling-rate": "--fs",
    "--scaling": "--preset",
    "--sfreq": "--fs",
    "--skip-errors": "--keep-going",
    "--sr": "--fs",
    "--top": "--k",
    "--verbose": "--explain",
    "--why": "--explain",
}
# `fs` is two thirds of `fast`, and something else.
_MIN_SIMILARITY = 0.7


def format_error(error: RlxError | MemoryError) -> str:
    """Return the text of an rlxweb error or of running out of memory."""
    return error.with_flags if isinstance(error, RlxError) else OUT_OF_MEMORY_MESSAGE


def format_click_error(error: click.ClickException) -> str:
    """Return the text of a command-line error and where the options are listed."""
    ctx = getattr(error, "ctx", None)
    command_path = ctx.command_path if ctx is not None else "rlxweb"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        text = error.param.make_metavar(ctx)  # type: ignore[arg-type]
        if isinstance(error.param, click.Option):
            text = f"{error.param.opts[0]} {text}"
        text += " is missing"
    elif isinstance(error, click.NoSuchOption) and ctx is not None:
        text = f"no such option {error.option_name!r}"
        suggestions = _suggest_flags(error.option_name, ctx.command)
        if suggestions:
            text += f"; did you mean {' or '.join(suggestions)}?"
    else:
        text = error.format_message().rstrip(".")
        # The first word is no sentence's: what stands before it is.
        text = text[:1].lower() + text[1:]
    return f"{text}; see {command_path} --help"


def attach_command(
    error: click.UsageError | RlxError, command: click.Command, ctx: click.Context
) -> None:
    """Make an error refer to the command whose options it names."""
    if isinstance(error, click.UsageError):
        error.ctx = error.ctx or ctx  # the parser leaves it out
    elif isinstance(error.hint, Advice) and not isinstance(command, click.Group):
        required_flags = {
            f"--{name.replace('_', '-')}" for name in error.hint.arguments
        }
        if not required_flags.issubset(
            flag for param in command.params for flag in param.opts
        ):
            error.hint = f"with `rlxweb welch`: {error.hint.as_flags}"


def _suggest_flags(option: str, command: click.Command) -> list[str]:
    known_flags = [flag for param in command.params for flag in param.opts]
    aliases = _FLAG_ALIASES.get(option.lower().replace("_", "-"), "").split()
    available_aliases = [flag for flag in aliases if flag in known_flags]
    # Without their dashes, in which all are alike.
    flags_by_name = {flag.lstrip("-"): flag for flag in known_flags}
    return available_aliases or [
        flags_by_name[name]
        for name in near(option.lstrip("-"), flags_by_name, least=_MIN_SIMILARITY)
    ]
