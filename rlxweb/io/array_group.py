"""An array of samples as a group of channels, for whatever takes a group.

Owns what of an array can be a recording, and the names that its channels get.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.arguments import number
from rlxweb.errors import DTypeError, ShapeError, UsageError, shown
from rlxweb.given import array_of
from rlxweb.io.contents import Samples
from rlxweb.io.recording import Channel, Group


@dataclass(frozen=True, slots=True)
class _Rows:
    """An array as a reader."""

    data: Samples

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """See SampleReader."""
        return self.data[list(channels), start:stop]


def group_of(
    given: Any,
    fs: float,
    names: Sequence[str] | None,
    units: str | Sequence[str] | None,
    doing: str,
) -> Group:
    """Return an array (C, T) or (T,) as a group.

    names   one for each channel; None: ch1, ch2 …
    units   one for all, or one for each
    Errors  ShapeError, DTypeError; UsageError for a rate and names that do not fit
    """
    data = _samples(given, doing)
    rate = number("fs", fs, doing)
    if not 0 < rate < math.inf:
        raise UsageError(doing, f"fs is {rate:g}", "above 0, and finite")
    count = len(data)
    told = [f"ch{at + 1}" for at in range(count)] if names is None else names
    every = [units or ""] * count if units is None or isinstance(units, str) else units
    own = (
        _texts("channels", told, count, (str, int, np.integer), doing),
        _texts("units", every, count, (str,), doing),
    )
    if len(set(own[0])) != count:
        raise UsageError(doing, "two channels have one name", "each has its own")
    rows = zip(*own, strict=True)
    taken = tuple(
        Channel(name, "" if names is None else name, unit, at)
        for at, (name, unit) in enumerate(rows)
    )
    return Group("an array", rate, taken, data.shape[1], data.dtype, _Rows(data))


def _samples(given: Any, doing: str) -> Samples:
    """Real numbers (C, T) of a type that files have."""
    data = np.atleast_2d(array_of(given, doing))
    if data.ndim != 2 or 0 in data.shape:
        raise ShapeError(doing, f"the array is {data.shape}", "wanted (C, T) or (T,)")
    if data.dtype.kind not in "iuf":
        raise DTypeError(doing, f"the array holds {data.dtype}", "wanted real numbers")
    if data.dtype.kind == "f" and data.dtype.itemsize not in (4, 8):
        data = data.astype(np.float32 if data.dtype.itemsize < 4 else np.float64)
    return data.astype(data.dtype.newbyteorder("="), copy=False)


def _texts(
    what: str, given: Any, count: int, kinds: tuple[type, ...], doing: str
) -> list[str]:
    """Return one text for each channel; `kinds` are the types that can be one."""
    if not isinstance(given, Iterable):
        said, rule = f"{what} is {shown(given)}", "a text for each channel, in a list"
        raise UsageError(doing, said, rule, f"the array has {count} channels")
    every = [*given]
    for one in every:
        if not isinstance(one, kinds) or isinstance(one, bool):
            said = f"one of {what} is {shown(one)}"
            hint = '"" where none is known' if what == "units" else "name it"
            raise UsageError(doing, said, "each is a text", hint)
    texts = [*map(str, every)]
    if len(texts) != count:
        said = f"{len(texts)} {what} are given"
        hint = f"give {count}, or leave {what} out"
        raise UsageError(doing, said, f"the array has {count} channels", hint)
    for text in texts:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UsageError(doing, f"one of {what} is {shown(text)}", "whole letters")
    return texts
