"""Error messages in command-line terms: one line, with flags instead of Python
keywords.

Owns what is suggested for an option that does not exist: what it means elsewhere comes
before what it merely looks like.
"""

from __future__ import annotations

import click

from rlxweb.core.argument_validation import NAMES_ELSEWHERE
from rlxweb.core.errors import RlxError, near
from rlxweb.core.message_text import Advice

OUT_OF_MEMORY_MESSAGE = "out of memory; use shorter segments, or fewer rows or channels"

_OUTPUT_FLAGS = "--out --csv --npz --json --plot"
# What other programs call a flag → the flags here; `NAMES_ELSEWHERE` has more.
_FLAG_ALIASES = {
    "-o": _OUTPUT_FLAGS,
    "--average": "--preset",
    "--cpu": "--device",
    "--fft": "--nperseg",
    "--gpu": "--device",
    "--ignore-errors": "--keep-going",
    "--nfft": "--n-fft --nperseg",
    "--out": _OUTPUT_FLAGS,
    "--output": _OUTPUT_FLAGS,
    "--picture": "--plot",
    "--scaling": "--preset",
    "--skip-errors": "--keep-going",
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
    flag = option.lower().replace("_", "-")
    name = NAMES_ELSEWHERE.get(flag.lstrip("-").replace("-", "_"), "")
    aliases = _FLAG_ALIASES.get(flag, f"--{name}").split()
    available_aliases = [flag for flag in aliases if flag in known_flags]
    # Without their dashes, in which all are alike.
    flags_by_name = {flag.lstrip("-"): flag for flag in known_flags}
    return available_aliases or [
        flags_by_name[name]
        for name in near(option.lstrip("-"), flags_by_name, least=_MIN_SIMILARITY)
    ]
