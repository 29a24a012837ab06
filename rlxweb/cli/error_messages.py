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
        text += _option_hint(error.option_name, ctx.command)
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
        if not required_flags.issubset(_flags_of(command)):
            error.hint = f"with `rlxweb welch`: {error.hint.as_flags}"


def _option_hint(option: str, command: click.Command) -> str:
    """Return what an unknown option of a command may stand for; "" if nothing is
    known.
    """
    # Other commands do not need its modules.
    from rlxweb.cli.welch_command import command as welch_command

    known_flags = _flags_of(command)
    flag = option.lower().replace("_", "-")
    name = NAMES_ELSEWHERE.get(flag.lstrip("-").replace("-", "_"), "")
    aliases = _FLAG_ALIASES.get(flag, f"--{name}").split()
    suggestions = [flag for flag in aliases if flag in known_flags]
    if not suggestions and flag in _flags_of(welch_command):
        return "; it is an option of `rlxweb welch`"
    if not suggestions:
        # Without their dashes, in which all are alike.
        flags_by_name = {flag.lstrip("-"): flag for flag in known_flags}
        similar_names = near(option.lstrip("-"), flags_by_name, least=_MIN_SIMILARITY)
        suggestions = [flags_by_name[name] for name in similar_names]
    return f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""


def _flags_of(command: click.Command) -> list[str]:
    options = (param for param in command.params if isinstance(param, click.Option))
    return [flag for option in options for flag in option.opts]
