"""Low-pass filters for keeping one sample of so many, when only low bins are wanted.

Of a spectrum sampled at 1/step of the rate, what was beyond falls back onto the bins: a
filter takes that away first. It needs to be good in few places only: flat from 0 to the
band's edge, and zero that near to each multiple of the new rate, for nothing else falls
into the band (the "don't care" bands of Bellanger's multirate filters). Its taps are
the least squares solution, in closed form. Frequencies are in parts of the sampling
rate. Knows no samples and no device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MOST_TAPS: Final = 20
"""For each sample of a step: a filter that needs more costs more than it saves."""
# How much flatness counts against what falls back. A tone between two bins is seen in
# both, and their gains must not differ by more than the error that is allowed.
_FLATNESS: Final = 10.0
_SEEN: Final = 65
# What falls back has a phase of its own, so of the power it changes twice its part of
# the amplitude, times the cosine of that phase: the root of 2 on average.
_OF_POWER: Final = math.sqrt(2.0)
# The rest is left to what a filter of samples does to a window that moves over them.
_SHARE: Final = 0.5

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LowPass:
    """y[j] = sum over t of taps[t] * x[j * step + t - before], at the middle of `step`
    samples of x.

    error   what it makes of the power of white noise in the wanted band, at most,
            relative
    """

    step: int
    taps: F64
    error: float

    @property
    def before(self) -> int:
        """Samples of x that are read before the first of a step, and after the last."""
        return (len(self.taps) - self.step) // 2

    def gain(self, frequency: npt.ArrayLike) -> F64:
        """The response there, real: its phase is that of the middle of a step."""
        return response(self.taps, np.asarray(frequency, np.float64))


def response(taps: F64, frequency: F64) -> F64:
    """Of a symmetric filter about its middle."""
    places = np.arange(len(taps)) - (len(taps) - 1) / 2
    made: F64 = np.cos(2 * np.pi * np.multiply.outer(frequency, places)) @ taps
    return made


def _means(low: float, high: float, places: F64) -> F64:
    """The integral of cos(2 pi f t) from low to high, for each t."""
    made: F64 = high * np.sinc(2 * high * places) - low * np.sinc(2 * low * places)
    return made


def taps_of(step: int, edge: float, count: int) -> F64:
    """The least squares taps, symmetric."""
    places = np.arange(count) - (count - 1) / 2
    half: F64 = np.asarray(places[places >= 0], np.float64)
    twice = np.where(half == 0, 1.0, 2.0)
    less, more = np.subtract.outer(half, half), np.add.outer(half, half)

    def products(low: float, high: float) -> F64:
        both = _means(low, high, less) + _means(low, high, more)
        made: F64 = 0.5 * both * np.multiply.outer(twice, twice)
        return made

    system: F64 = _FLATNESS * products(0.0, edge)
    for image in range(1, step // 2 + 1):
        middle = image / step
        system += products(middle - edge, min(middle + edge, 0.5))
    # Taps that change nothing where it counts are left small.
    system[np.diag_indices(len(half))] += 1e-14 * np.trace(system)
    wanted: F64 = _FLATNESS * _means(0.0, edge, half) * twice
    found = np.linalg.solve(system, wanted)
    return np.concatenate([found[::-1][: count // 2], found])


def error_of(taps: F64, step: int, edge: float) -> float:
    """What the filter makes of the power of white noise, at the worst frequency."""
    seen = np.linspace(0.0, edge, _SEEN)
    own = response(taps, seen)
    if (own < 0.5).any():
        return math.inf
    others = np.add.outer(np.arange(1, step) / step, seen)
    back = np.square(response(taps, others)).sum(axis=0) / np.square(own)
    fallen = _OF_POWER * math.sqrt(float(back.max()))
    return max(fallen, 2.0 * float(np.abs(own - 1.0).max()))


@lru_cache(maxsize=256)
def low_pass(step: int, edge: float, error: float) -> LowPass | None:
    """The shortest filter whose own part of the error is half of it; None where that
    takes more than `MOST_TAPS` a sample, or the band reaches the new rate's middle.
    """
    if step < 2 or edge >= 0.5 / step:
        return None

    def tried(count: int) -> LowPass:
        taps = taps_of(step, edge, count)
        return LowPass(step, taps, error_of(taps, step, edge))

    # Lengths in steps of 2, so that the middle is that of a step of samples.
    low, high = 0, (MOST_TAPS - 1) * step // 2
    best = tried(step + 2 * high)
    if best.error > _SHARE * error:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        shorter = tried(step + 2 * middle)
        if shorter.error > _SHARE * error:
            low = middle
        else:
            high, best = middle, shorter
    return best


def steps_of(*lengths: int) -> Iterator[int]:
    """Steps of 2 and more that divide each of the lengths."""
    common = math.gcd(*lengths)
    return (step for step in range(2, common + 1) if common % step == 0)


def filters(lengths: tuple[int, ...], edge: float, error: float) -> list[LowPass]:
    """One for every step that divides the lengths and for which there is one.

    edge   the highest frequency that is wanted, below 0.5
    error  relative, of the power
    """
    found: list[Any] = [
        low_pass(step, edge, error)
        for step in steps_of(*lengths)
        if edge < 0.5 / step and step <= _MOST_STEP
    ]
    return [one for one in found if one is not None]


_MOST_STEP: Final = 64
