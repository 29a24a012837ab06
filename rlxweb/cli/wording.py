"""Errors in the words of a command line: one line, and flags where Python has keywords.

Owns what is suggested for an option that does not exist: what it means elsewhere comes
before what it merely looks like.
"""

from __future__ import annotations

import click

from rlxweb.advice import Advice
from rlxweb.errors import RlxError, near

OUT_OF_MEMORY = "out of memory; use shorter segments, or fewer rows or channels"

_OUTPUTS = "--out --csv --npz --json --plot"
# What other programs and libraries call it → what it is called here.
_MEANT = {
    "-o": _OUTPUTS,
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
    "--out": _OUTPUTS,
    "--output": _OUTPUTS,
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
_LEAST_LIKE = 0.7


def told(error: RlxError | MemoryError) -> str:
    """An error of ours, or of having no memory left."""
    return error.with_flags if isinstance(error, RlxError) else OUT_OF_MEMORY


def told_by_click(error: click.ClickException) -> str:
    """A command line that makes no sense, and where its options are listed."""
    where = getattr(error, "ctx", None)
    name = where.command_path if where is not None else "rlxweb"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        text = error.param.make_metavar(where)  # type: ignore[arg-type]
        if isinstance(error.param, click.Option):
            text = f"{error.param.opts[0]} {text}"
        text += " is missing"
    elif isinstance(error, click.NoSuchOption) and where is not None:
        text = f"no such option {error.option_name!r}"
        meant = _suggested(error.option_name, where.command)
        if meant:
            text += f"; did you mean {' or '.join(meant)}?"
    else:
        text = error.format_message().rstrip(".")
        # The first word is no sentence's: what stands before it is.
        text = text[:1].lower() + text[1:]
    return f"{text}; see {name} --help"


def point_to(
    error: click.UsageError | RlxError, command: click.Command, where: click.Context
) -> None:
    """Have an error name the command whose options it speaks of."""
    if isinstance(error, click.UsageError):
        error.ctx = error.ctx or where  # the parser leaves it out
    elif isinstance(error.hint, Advice) and not isinstance(command, click.Group):
        wanted = {f"--{name.replace('_', '-')}" for name in error.hint.arguments}
        if not wanted.issubset(flag for param in command.params for flag in param.opts):
            error.hint = f"with `rlxweb welch`: {error.hint.as_flags}"


def _suggested(option: str, command: click.Command) -> list[str]:
    known = [flag for param in command.params for flag in param.opts]
    meant = _MEANT.get(option.lower().replace("_", "-"), "").split()
    here = [flag for flag in meant if flag in known]
    # Without their dashes, in which all are alike.
    bare = {flag.lstrip("-"): flag for flag in known}
    return here or [
        bare[one] for one in near(option.lstrip("-"), bare, least=_LEAST_LIKE)
    ]
