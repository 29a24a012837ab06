"""Options that several commands take, and the short way to declare one of many."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, get_args

import click

from rlxweb.devices.place import Place, parse_place
from rlxweb.errors import UsageError
from rlxweb.io.contents import Layout
from rlxweb.signal.precision import Precision

K_HELP = "Peaks to keep [16, or all bins where there are fewer]."

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


def _window(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> str | tuple[object, ...] | None:
    if value is None or "," not in value:
        return value
    name, *params = (part.strip() for part in value.split(","))
    return name, *map(_number, params)


def _number(text: str) -> float:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    raise click.BadParameter(f"{text!r} is no number; write it like kaiser,8.6")


WINDOW = click.option(
    "--window",
    callback=_window,
    help="Window name, parameters after commas (kaiser,8.6); default: the preset's.",
)


# The names of a list: in quotes, or up to the next comma.
_NAMES = re.compile(r'\s*"([^"]*)"\s*(?:,|$)|([^,]+)')


def _listed(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    parted = [quoted or bare for one in value for quoted, bare in _NAMES.findall(one)]
    names = tuple(name.strip() for name in parted if name.strip())
    if value and not names:
        raise UsageError("--channels", "no channel is named", hint="leave it out")
    return names


CHANNELS = click.option(
    "--channels",
    "-c",
    multiple=True,
    callback=_listed,
    help="Channel names or patterns ('EEG*'), repeatable or comma-separated; a name "
    "with a comma in it stands in double quotes.",
)
ARRAY = click.option("--array", help="Member of an NPZ file.")
LAYOUT = one_of(
    "--layout",
    get_args(Layout),
    "Of a 2-D NPY or NPZ array; default: channels-first.",
)


def file_path(flag: str, text: str) -> Decorator:
    """An option that names a file, as `<flag>_path`."""
    return click.option(f"--{flag}", f"{flag}_path", metavar="F", help=text)
