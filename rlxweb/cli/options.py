"""Options that several commands take, and the short way to declare one of many."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from typing import Any, get_args

import click

from rlxweb.backends.registry import labels
from rlxweb.device import Device
from rlxweb.devices.place import Place, parse_place
from rlxweb.errors import UsageError
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.io.contents import Layout
from rlxweb.io.urls import is_url, shown_url
from rlxweb.signal.precision import Precision

K_HELP = "Peaks to keep [16, or all bins where there are fewer]."

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def device_labels(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """What a shell completes a device's name to; opens nothing."""
    known = dict.fromkeys((*(d.label for d in Device), *labels()))
    open_ = ("auto",) if param.name == "device" else ()
    return [label for label in (*open_, *known) if label.startswith(begun)]


AUTO_DEVICE = click.option(
    "--device",
    shell_complete=device_labels,
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
    return click.option(
        "--device",
        "devices",
        multiple=True,
        metavar="D",
        help=text,
        shell_complete=device_labels,
    )


def places_of(named: Iterable[str]) -> list[Place]:
    """The places asked for, each once."""
    return list(dict.fromkeys(map(parse_place, named)))


def valued(flag: str, kind: Any, text: str, default: object = None) -> Decorator:
    """An option of one value; a default is shown in the help."""
    shown = default is not None
    return click.option(flag, type=kind, help=text, default=default, show_default=shown)


def check_new(flag: str, name: str, taken: Container[str]) -> None:
    """Raise UsageError for a name that an option was given before."""
    if name in taken:
        raise UsageError(flag, f"{name!r} is given twice", "once is enough")


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
        raise UsageError(param.opts[0], "no channel is named", hint="leave it out")
    return names


CHANNELS = click.option(
    "--channels",
    "-c",
    multiple=True,
    callback=_listed,
    help="Channel names or patterns ('EEG*'), repeatable or comma-separated; a name "
    "with a comma in it stands in double quotes.",
)
EXCLUDE = click.option(
    "--exclude",
    "-x",
    multiple=True,
    callback=_listed,
    help="Channels to leave out of these, named alike.",
)
_MOMENT = "s, h:mm:ss, @time of day, or an annotation's words."
START = click.option("--start", metavar="T", help=f"Take samples from here: {_MOMENT}")
STOP = click.option("--stop", metavar="T", help=f"Take samples up to here: {_MOMENT}")


ARRAY = click.option(
    "--array", help="Array of an NPZ, HDF5 or NWB file or a Zarr group."
)
LAYOUT = one_of(
    "--layout",
    get_args(Layout),
    "Of a 2-D array (NPY, NPZ, Zarr, HDF5); default: channels-first.",
)


def file_path(flag: str, text: str, *, required: bool = False) -> Decorator:
    """An option that names a file to write, as `<flag>_path`; a URL is refused."""
    return click.option(
        f"--{flag}",
        f"{flag}_path",
        metavar="F",
        required=required,
        help=text,
        callback=of_here,
    )


def of_here(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """The path as it is. Errors  UsageError for a URL"""
    if path is not None and is_url(path):
        raise UsageError(
            f"{param.opts[0]} {shown_url(path)!r}",
            "results are written as files of this machine",
            "here they appear whole or not at all",
            "name one, and send it on when it is there",
        )
    return path


ADAPTER = click.option(
    "--adapter", default="", help="Part of an adapter's name; implies a GPU."
)


def _jobs(ctx: click.Context, param: click.Parameter, text: str) -> int:
    if text == "auto":
        return usable_cpus()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is neither a number above 0 nor auto")
    return int(text)


JOBS = click.option(
    "--jobs",
    "-j",
    default="1",
    metavar="N",
    callback=_jobs,
    help="Do so many recordings at once, each in a process of this machine; auto: one "
    "per processor core. Needs nothing installed.",
)
KEEP_GOING = click.option(
    "--keep-going", is_flag=True, help="A bad file costs itself alone."
)
NAN = one_of(
    "--nan",
    ["raise", "propagate"],
    "What to do about samples that are not finite.",
    "raise",
)


def all_of(*decorators: Decorator) -> Decorator:
    """Several options as one, listed in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for one in reversed(decorators):
            command = one(command)
        return command

    return decorate


REFERENCE = click.option(
    "--reference",
    "-r",
    multiple=True,
    callback=_listed,
    help="Take the mean of all channels (average), or of these, from each; named like "
    "channels, and read though -c does not take them.",
)
_ABOVE_0 = click.FloatRange(0, min_open=True)
NOTCH = click.option(
    "--notch", multiple=True, type=_ABOVE_0, help="Take this frequency out; repeatable."
)
SAMPLES = all_of(
    CHANNELS,
    EXCLUDE,
    START,
    STOP,
    REFERENCE,
    valued("--highpass", _ABOVE_0, "Filter out what is slower, in Hz, without delay."),
    valued("--lowpass", _ABOVE_0, "Filter out what is faster, in Hz."),
    NOTCH,
    valued("--resample", _ABOVE_0, "Bring all to this rate, in Hz."),
    ARRAY,
    LAYOUT,
)
"""What of a recording is taken, and how it is made ready."""
COMPUTING = all_of(AUTO_DEVICE, ADAPTER, PRECISION, NAN)
"""Where and how it is computed."""
