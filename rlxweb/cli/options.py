"""Options shared by several commands, and helpers that declare common kinds of
options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import Any, Final

import click

from rlxweb.core.device import Device
from rlxweb.core.errors import UsageError
from rlxweb.core.function_options import Option, call_arguments, options_of
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.engines.registry import engine_labels
from rlxweb.io import open_recording
from rlxweb.io.url_parsing_and_redaction import is_url, redact_url
from rlxweb.select.device_and_adapter import DevicePlace, parse_place
from rlxweb.signal.shared_options import ADAPTER_OPTION, DEVICE_OPTION

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


class FiniteFloatRange(click.FloatRange):
    """Range of numbers; click's has infinity in it, and NaN in every one."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{number} is not finite", param, ctx)
        return number


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


def combine_options(*decorators: Decorator) -> Decorator:
    """Combine several options into one decorator, listed in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


_POSITIVE = FiniteFloatRange(0, min_open=True)
_CALLBACKS: dict[str, Any] = {"window": _parse_window}
_COMPLETIONS: dict[str, Any] = {"device": complete_device_label}


def declared_options(
    function: Callable[..., Any],
    *names: str,
    without: Container[str] = (),
    prefix: str = "",
) -> Decorator:
    """Declare the options of a function that it describes with `declare_options`.

    names    which of them, in this order; none: all
    without  which are left out
    prefix   begins each help text: "FILE: " where they apply to files alone, and then
             nothing has a default, so that an option that was given can be refused
    """
    options = options_of(function)
    chosen = [options[name] for name in names or options if name not in without]
    return combine_options(*(_click_option(option, prefix) for option in chosen))


def _click_option(option: Option, prefix: str) -> Decorator:
    """Return the command-line option of a described parameter."""
    value_type: Any = option.kind
    if option.choices:
        value_type = click.Choice(option.choices)
    elif option.is_positive:
        value_type = click.IntRange(1) if option.kind is int else _POSITIVE
    elif option.below is not None:
        value_type = FiniteFloatRange(0, option.below, max_open=True)
    callback = _CALLBACKS.get(option.name)
    if option.is_list and option.kind is str:
        callback = _parse_names
    text = option.help
    if prefix:
        text = f"{prefix}{text[0].lower()}{text[1:]}"
    default = None if prefix else option.default
    return click.option(
        f"--{option.name.replace('_', '-')}",
        *option.flags,
        type=value_type,
        default=None if option.is_list else default,
        show_default=default not in (None, ""),
        multiple=option.is_list,
        metavar=option.metavar or None,
        callback=callback,
        shell_complete=_COMPLETIONS.get(option.name),
        help=text,
    )


def pop_open_arguments(option_values: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `open_recording` from `option_values` and return its
    keyword arguments.
    """
    values = {name: option_values.pop(name) for name in options_of(open_recording)}
    return {**call_arguments(values), "storage_options": option_values.pop("storage")}


AUTO_DEVICE = _click_option(replace(DEVICE_OPTION, name="device"), "")
ADAPTER = _click_option(replace(ADAPTER_OPTION, name="adapter", default=""), "")
COMPUTE_NAMES: Final = ("device", "adapter", "precision", "nan")
"""Options for where and in which precision to compute."""
