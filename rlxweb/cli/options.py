"""Options shared by several commands, and helpers that declare common kinds of
options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from typing import Any, get_args

import click

from rlxweb.core.device import Device
from rlxweb.core.errors import UsageError
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.engines.registry import engine_labels
from rlxweb.io.format_reader_interface import ArrayLayout
from rlxweb.io.url_parsing_and_redaction import is_url, redact_url
from rlxweb.select.device_and_adapter import DevicePlace, parse_place
from rlxweb.signal.precision import Precision

K_HELP = "Number of peaks [16, or all bins if there are fewer]."

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def complete_device_label(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str]:
    """Return the device labels that complete `incomplete` in a shell; opens no
    device.
    """
    known = dict.fromkeys((*(d.label for d in Device), *engine_labels()))
    auto_labels = ("auto",) if param.name == "device" else ()
    return [label for label in (*auto_labels, *known) if label.startswith(incomplete)]


AUTO_DEVICE = click.option(
    "--device",
    shell_complete=complete_device_label,
    default="auto",
    show_default=True,
    help="auto, or a name from `rlxweb devices`.",
)
FS = click.option(
    "--fs", type=float, help="Sampling rate in Hz, for files without one."
)
MIN_SEGMENTS = click.option(
    "--min-segments",
    type=click.IntRange(1),
    help="Minimum number of segments to average; 1 allows the strategy 'ultra', which "
    "uses only the first segment.",
)


def devices_option(default: str) -> Decorator:
    """Declare a repeatable `--device` option; `default` ends its help text."""
    description = "Device, or DEVICE:PART with a part of the adapter name; repeatable."
    help_text = f"{description} Default: {default}."
    return click.option(
        "--device",
        "devices",
        multiple=True,
        metavar="D",
        help=help_text,
        shell_complete=complete_device_label,
    )


def parse_places(labels_given: Iterable[str]) -> list[DevicePlace]:
    """Parse device labels into places and drop duplicates."""
    return list(dict.fromkeys(map(parse_place, labels_given)))


def value_option(
    flag: str, value_type: Any, help_text: str, default: object = None
) -> Decorator:
    """Declare an option with one value; a default is shown in the help."""
    show_default = default is not None
    return click.option(
        flag,
        type=value_type,
        help=help_text,
        default=default,
        show_default=show_default,
    )


def check_not_repeated(flag: str, name: str, used_names: Container[str]) -> None:
    """Raise UsageError for a name that was given to the option before."""
    if name in used_names:
        raise UsageError(flag, f"{name!r} is given twice", "each name is allowed once")


def choice_option(
    flag: str, choices: Sequence[str], help_text: str, default: str | None = None
) -> Decorator:
    """Declare an option with a few words to choose from."""
    return value_option(flag, click.Choice(choices), help_text, default)


PRECISION = choice_option(
    "--precision",
    get_args(Precision),
    "auto: the precision of the samples; f32: float32; f64: float64 throughout.",
    "auto",
)


def _parse_window(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> str | tuple[object, ...] | None:
    if value is None or "," not in value:
        return value
    name, *params = (part.strip() for part in value.split(","))
    return name, *map(_parse_number, params)


def _parse_number(text: str) -> float:
    for number_type in (int, float):
        with suppress(ValueError):
            return number_type(text)
    raise click.BadParameter(
        f"{text!r} is not a number; write a window like kaiser,8.6"
    )


WINDOW = click.option(
    "--window",
    callback=_parse_window,
    help="Window, with parameters after commas (kaiser,8.6); default: from the preset.",
)


# The names of a list: in quotes, or up to the next comma.
_NAME_PATTERN = re.compile(r'\s*"([^"]*)"\s*(?:,|$)|([^,]+)')


def _parse_names(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    raw_names = [
        quoted or bare for text in value for quoted, bare in _NAME_PATTERN.findall(text)
    ]
    names = tuple(name.strip() for name in raw_names if name.strip())
    if value and not names:
        raise UsageError(
            param.opts[0], "the channel name is empty", hint=f"omit {param.opts[0]}"
        )
    return names


CHANNELS = click.option(
    "--channels",
    "-c",
    multiple=True,
    callback=_parse_names,
    help="Channel names or patterns ('EEG*'), repeatable or comma-separated; put a "
    "name that contains a comma in double quotes.",
)
EXCLUDE = click.option(
    "--exclude",
    "-x",
    multiple=True,
    callback=_parse_names,
    help="Channels to exclude, in the syntax of --channels.",
)
_TIME_SYNTAX = "seconds, h:mm:ss, @time of day, or the text of an annotation."
START = click.option(
    "--start", metavar="T", help=f"Start of the samples: {_TIME_SYNTAX}"
)
STOP = click.option("--stop", metavar="T", help=f"End of the samples: {_TIME_SYNTAX}")


ARRAY = click.option(
    "--array",
    help="Name of the array to read from an NPZ, HDF5 or NWB file or a Zarr group.",
)
LAYOUT = choice_option(
    "--layout",
    get_args(ArrayLayout),
    "Axis order of a 2-D array (NPY, NPZ, Zarr, HDF5); default: channels-first.",
)


def output_file_option(
    flag: str, help_text: str, *, required: bool = False
) -> Decorator:
    """Declare an option that names an output file, passed as `<flag>_path`; URLs are
    refused.
    """
    return click.option(
        f"--{flag}",
        f"{flag}_path",
        metavar="F",
        required=required,
        help=help_text,
        callback=check_local_path,
    )


def check_local_path(
    ctx: click.Context, param: click.Parameter, path: str | None
) -> str | None:
    """Return the path unchanged; raise UsageError for a URL."""
    if path is not None and is_url(path):
        raise UsageError(
            f"{param.opts[0]} {redact_url(path)!r}",
            "results cannot be written to a URL",
            "results are written as local files, completely or not at all",
            "pass a local file and upload it afterwards",
        )
    return path


ADAPTER = click.option(
    "--adapter", default="", help="Use the GPU adapter whose name contains this text."
)


def _parse_jobs(ctx: click.Context, param: click.Parameter, text: str) -> int:
    if text == "auto":
        return usable_cpus()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise click.BadParameter(f"expected an integer above 0, or auto; got {text!r}")
    return int(text)


JOBS = click.option(
    "--jobs",
    "-j",
    default="1",
    metavar="N",
    callback=_parse_jobs,
    help="Process N recordings at the same time, each in a local process; auto: one "
    "per processor core.",
)
KEEP_GOING = click.option(
    "--keep-going", is_flag=True, help="Continue with the other files after an error."
)
NAN = choice_option(
    "--nan",
    ["raise", "propagate"],
    "How to handle samples that are not finite.",
    "raise",
)


def combine_options(*decorators: Decorator) -> Decorator:
    """Combine several options into one decorator, listed in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


REFERENCE = click.option(
    "--reference",
    "-r",
    multiple=True,
    callback=_parse_names,
    help="Subtract from each channel the mean of the named channels; 'average' means "
    "all channels; -c need not include the named channels.",
)
_POSITIVE = click.FloatRange(0, min_open=True)
NOTCH = click.option(
    "--notch",
    multiple=True,
    type=_POSITIVE,
    help="Remove this frequency, in Hz; repeatable.",
)
SAMPLE_OPTIONS = combine_options(
    CHANNELS,
    EXCLUDE,
    START,
    STOP,
    REFERENCE,
    value_option(
        "--highpass",
        _POSITIVE,
        "Remove frequencies below this, in Hz (zero-phase filter).",
    ),
    value_option(
        "--lowpass",
        _POSITIVE,
        "Remove frequencies above this, in Hz (zero-phase filter).",
    ),
    NOTCH,
    value_option("--resample", _POSITIVE, "Resample all channels to this rate, in Hz."),
    ARRAY,
    LAYOUT,
)
"""Options that select the samples of a recording and preprocess them."""
COMPUTE_OPTIONS = combine_options(AUTO_DEVICE, ADAPTER, PRECISION, NAN)
"""Options for where and in which precision to compute."""
