"""Channel group over an array of samples in memory.

Owns what of an array can be a recording, and the names that its channels get.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.core.argument_validation import coerce_float
from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import DTypeError, ShapeError, UsageError, shown
from rlxweb.io.format_reader_interface import Samples
from rlxweb.io.recording import Channel, Group


@dataclass(frozen=True, slots=True)
class _ArrayReader:
    """SampleReader of an array in memory."""

    data: Samples

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) of the channels; see SampleReader."""
        return self.data[list(channels), start:stop]


def array_as_group(
    array: Any,
    fs: float,
    names: Sequence[str] | None,
    units: str | Sequence[str] | None,
    context: str,
) -> Group:
    """Return an array (C, T) or (T,) as a group.

    names   one for each channel; None: ch1, ch2 …
    units   one for all, or one for each
    Errors  ShapeError, DTypeError; UsageError for a rate and names that do not fit
    """
    data = _coerce_samples(array, context)
    rate = coerce_float("fs", fs, context)
    if not 0 < rate < math.inf:
        raise UsageError(context, f"fs is {rate:g}", "must be finite and above 0")
    count = len(data)
    name_values = (
        [f"ch{index + 1}" for index in range(count)] if names is None else names
    )
    unit_values = (
        [units or ""] * count if units is None or isinstance(units, str) else units
    )
    channel_texts = (
        _channel_texts("channels", name_values, count, (str, int, np.integer), context),
        _channel_texts("units", unit_values, count, (str,), context),
    )
    if len(set(channel_texts[0])) != count:
        raise UsageError(
            context, "two channels have the same name", "channel names must be unique"
        )
    rows = zip(*channel_texts, strict=True)
    channels = tuple(
        Channel(name, "" if names is None else name, unit, index)
        for index, (name, unit) in enumerate(rows)
    )
    return Group(
        "an array", rate, channels, data.shape[1], data.dtype, _ArrayReader(data)
    )


def _coerce_samples(array: Any, context: str) -> Samples:
    """Return real samples (C, T) of a dtype that files can store."""
    data = np.atleast_2d(as_array(array, context))
    if data.ndim != 2 or 0 in data.shape:
        raise ShapeError(
            context,
            f"the array has shape {data.shape}",
            "expected (channels, samples) or (samples,), each number at least 1",
        )
    if data.dtype.kind not in "iuf":
        raise DTypeError(
            context, f"the array has dtype {data.dtype}", "expected real numbers"
        )
    if data.dtype.kind == "f" and data.dtype.itemsize not in (4, 8):
        data = data.astype(np.float32 if data.dtype.itemsize < 4 else np.float64)
    return data.astype(data.dtype.newbyteorder("="), copy=False)


def _channel_texts(
    argument_name: str,
    values: Any,
    count: int,
    allowed_types: tuple[type, ...],
    context: str,
) -> list[str]:
    """Return one text for each channel; `allowed_types` are the types that are accepted
    as text.
    """
    if not isinstance(values, Iterable):
        problem = f"{argument_name} is {shown(values)}"
        rule = "must be a list with one string per channel"
        raise UsageError(context, problem, rule, f"the array has {count} channels")
    items = [*values]
    for item in items:
        if not isinstance(item, allowed_types) or isinstance(item, bool):
            problem = f"{argument_name} contains {shown(item)}"
            hint = (
                ('use "" for an unknown unit')
                if argument_name == "units"
                else "pass a name for every channel"
            )
            raise UsageError(context, problem, "each entry must be a string", hint)
    texts = [*map(str, items)]
    if len(texts) != count:
        problem = f"the length of {argument_name} is {len(texts)}"
        hint = f"pass one entry per channel, or omit {argument_name}"
        raise UsageError(context, problem, f"the array has {count} channels", hint)
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UsageError(
                context,
                f"{argument_name} contains {shown(text)}",
                "must not contain unpaired surrogates (half of a UTF-16 pair)",
            )
    return texts
