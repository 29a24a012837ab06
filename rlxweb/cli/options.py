"""Options that several commands take, and the short way to declare one of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import click

from rlxweb.devices.place import Place, parse_place
from rlxweb.signal.precision import Precision

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

AUTO_DEVICE = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="auto, or a name of `rlxweb devices`.",
)
FS = click.option("--fs", type=float, help="Rate in Hz, for files that carry none.")
MIN_SEGMENTS = click.option(
    "--min-segments", type=click.IntRange(1), help="1 allows 'ultra'."
)


def devices(default: str) -> Decorator:
    """`--device`, repeatable: places of this machine. `default` ends the help."""
    named = "A device, or device:part of an adapter's name; repeatable."
    text = f"{named} Default: {default}."
    return click.option("--device", "devices", multiple=True, metavar="D", help=text)


def places_of(named: Iterable[str]) -> list[Place]:
    """The places asked for, each once."""
    return list(dict.fromkeys(map(parse_place, named)))


def valued(flag: str, kind: Any, text: str, default: object = None) -> Decorator:
    """An option of one value; a default is shown in the help."""
    shown = default is not None
    return click.option(flag, type=kind, help=text, default=default, show_default=shown)


def one_of(
    flag: str, words: Sequence[str], text: str, default: str | None = None
) -> Decorator:
    """An option with a few words to choose from."""
    return valued(flag, click.Choice(words), text, default)


PRECISION = one_of(
    "--precision",
    get_args(Precision),
    "auto: nothing is lost; f32: narrow; f64: float64 throughout.",
    "auto",
)


def file_path(flag: str, text: str) -> Decorator:
    """An option that names a file, as `<flag>_path`."""
    return click.option(f"--{flag}", f"{flag}_path", metavar="F", help=text)
