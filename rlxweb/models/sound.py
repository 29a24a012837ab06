"""Sound for a model: one channel at the rate it was trained for, in stretches.

From a file, a recording or an array; channels are averaged. Only the stretch that is
asked for is held.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number
from rlxweb.errors import DTypeError, NotFinite, ShapeError, UsageError
from rlxweb.given import array_of
from rlxweb.io.dispatch import open_recording
from rlxweb.io.recording import Group, Recording, check_finite
from rlxweb.models.resampling import Resampler

Array = npt.NDArray[Any]
Rate = float | Callable[[float], float]
"""Hz that is wanted, or what says it of the Hz that are given."""

LEAST_HZ, MOST_HZ = 1000.0, 1e6


class Sound:
    """One channel, read in stretches. Made by `sound_of`.

    fs         Hz of what was given
    rate       Hz of what is read
    n_samples  at that rate
    """

    def __init__(self, given: Array | Group, fs: float, rate: float) -> None:
        self._given, self.fs, self.rate = given, fs, rate
        own = given.n_samples if isinstance(given, Group) else given.shape[-1]
        self._own = own
        self._change = None if fs == rate else Resampler(fs, rate)
        self.n_samples = own if self._change is None else self._change.length(own)

    @property
    def seconds(self) -> float:
        return self._own / self.fs

    def read(self, start: int, stop: int) -> Array:
        """Samples [start, stop), float32; silence outside the sound.

        Errors   NotFinite; those of the file
        """
        if self._change is None:
            return self._padded(start, stop)
        made = np.zeros(stop - start, np.float32)
        a, b = max(0, start), min(self.n_samples, stop)
        if a < b:
            x = self._padded(*self._change.needs(a, b))
            made[a - start : b - start] = self._change.made(x, a, b)
        return made

    def _padded(self, start: int, stop: int) -> Array:
        """Of what was given."""
        made = np.zeros(stop - start, np.float32)
        a, b = max(0, start), min(self._own, stop)
        if a < b:
            made[a - start : b - start] = self._mixed(a, b)
        return made

    def _mixed(self, start: int, stop: int) -> Array:
        given = self._given
        if isinstance(given, Group):
            x: Any = given.read(start, stop)
            check_finite(x, given, start)
        else:
            x = given[:, start:stop]
            x = scaled(x)
            if not np.isfinite(x).all():
                at = start + int(np.argmin(np.isfinite(x).all(axis=0)))
                problem = f"the sound is not finite at sample {at}"
                raise NotFinite("reading sound", problem, "every sample must be finite")
        mixed: Array = x[0] if len(x) == 1 else x.mean(axis=0)
        return mixed


@contextmanager
def sound_of(given: Any, fs: float | None, rate: Rate, doing: str) -> Iterator[Sound]:
    """A sound, open within the block.

    given    path of a sound file; a Recording or a Group; samples (n,) or (channels, n)
             float in [-1, 1], or integers, of which the full scale is 1
    fs       Hz of an array, and of files that carry none
    rate     Hz that is wanted
    Errors   UsageError for an array without a rate, and for what is no sound; those of
    `open_recording`
    """
    if isinstance(given, str | os.PathLike):
        with open_recording(given, fs=fs) as recording:
            yield _of_group(_one_group(recording, doing), rate, doing)
    elif isinstance(given, Recording):
        yield _of_group(_one_group(given, doing), rate, doing)
    elif isinstance(given, Group):
        yield _of_group(given, rate, doing)
    else:
        yield _of_array(given, fs, rate, doing)


def _one_group(recording: Recording, doing: str) -> Group:
    if len(recording.signals) != 1:
        rates = ", ".join(f"{one.fs:g}" for one in recording.groups)
        raise UsageError(
            doing,
            f"the recording has channels of {len(recording.groups)} rates: {rates} Hz",
            "one is wanted",
            "give one of its groups: recording.groups[0]",
        )
    return recording.groups[0]


def _of_group(group: Group, rate: Rate, doing: str) -> Sound:
    if group.gaps:
        problem = f"{len(group.gaps)} gaps lie in the recording"
        hint = "give one of the group's `pieces`"
        raise UsageError(doing, problem, "a sound has none", hint)
    check_rate(group.fs, doing)
    return Sound(group, group.fs, _rate(rate, group.fs))


def _of_array(given: Any, fs: float | None, rate: Rate, doing: str) -> Sound:
    x = array_of(given, doing)
    if x.ndim not in (1, 2) or not x.size:
        rule = "(n,) or (channels, n)"
        raise ShapeError(doing, f"the samples are {list(x.shape)}", rule)
    if x.dtype.kind not in "iuf":
        raise DTypeError(doing, f"the samples are {x.dtype}", "numbers are wanted")
    if fs is None:
        hint = Advice("give {}", fs=Blank("HZ"))
        raise UsageError(doing, "an array has no rate of its own", hint=hint)
    own = number("fs", fs, doing)
    check_rate(own, doing)
    return Sound(np.atleast_2d(x), own, _rate(rate, own))


def _rate(rate: Rate, fs: float) -> float:
    return rate(fs) if callable(rate) else rate


def check_rate(fs: float, doing: str) -> None:
    """Errors  UsageError for what is no rate of sound."""
    if not LEAST_HZ <= fs <= MOST_HZ:
        rule = f"sound has {LEAST_HZ:g} to {MOST_HZ:g}"
        raise UsageError(doing, f"the rate is {fs:g} Hz", rule)


def scaled(x: Array) -> Array:
    """Integers so that their full scale is 1, as in a sound file."""
    if x.dtype.kind == "f":
        return x
    bits = 8 * x.dtype.itemsize
    middle = 1 << (bits - 1)
    wide = x.astype(np.float64)
    return (wide - middle if x.dtype.kind == "u" else wide) / middle
