"""Design of decimating low-pass filters for spectra of which only the low bins are
needed.

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

MAX_TAPS_PER_SAMPLE: Final = 20
"""Maximum number of taps per sample of a step; a filter that needs more costs more than
it saves.
"""
# How much flatness counts against what falls back. A tone between two bins is seen in
# both, and their gains must not differ by more than the error that is allowed.
_PASSBAND_WEIGHT: Final = 10.0
_CHECKED_FREQUENCIES: Final = 65
# What falls back has a phase of its own, so of the power it changes twice its part of
# the amplitude, times the cosine of that phase: the root of 2 on average.
_POWER_ERROR_FACTOR: Final = math.sqrt(2.0)
# The rest is left to what a filter of samples does to a window that moves over them.
_FILTER_ERROR_SHARE: Final = 0.5

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class DecimationFilter:
    """Decimating low-pass filter: y[j] = sum over t of taps[t] * x[j * step + t -
    lead_samples], centred on `step` samples of x.

    error   what it makes of the power of white noise in the wanted band, at most,
            relative
    """

    step: int
    taps: F64
    error: float

    @property
    def lead_samples(self) -> int:
        """Number of samples of x that are read before the first of a step, and after
        the last.
        """
        return (len(self.taps) - self.step) // 2

    def gain(self, frequency: npt.ArrayLike) -> F64:
        """Return the real response at a frequency; the phase is that of the middle of a
        step.
        """
        return symmetric_response(self.taps, np.asarray(frequency, np.float64))


def symmetric_response(taps: F64, frequency: F64) -> F64:
    """Return the response of a symmetric filter about its middle."""
    offsets = np.arange(len(taps)) - (len(taps) - 1) / 2
    gains: F64 = np.cos(2 * np.pi * np.multiply.outer(frequency, offsets)) @ taps
    return gains


def _cosine_integrals(low: float, high: float, offsets: F64) -> F64:
    """Return the integral of cos(2 pi f t) over f from low to high, for each t."""
    integrals: F64 = high * np.sinc(2 * high * offsets) - low * np.sinc(
        2 * low * offsets
    )
    return integrals


def least_squares_taps(step: int, edge: float, count: int) -> F64:
    """Return the symmetric least squares taps."""
    offsets = np.arange(count) - (count - 1) / 2
    half_offsets: F64 = np.asarray(offsets[offsets >= 0], np.float64)
    multiplicity = np.where(half_offsets == 0, 1.0, 2.0)
    differences = np.subtract.outer(half_offsets, half_offsets)
    sums = np.add.outer(half_offsets, half_offsets)

    def normal_matrix(low: float, high: float) -> F64:
        integrals = _cosine_integrals(low, high, differences) + _cosine_integrals(
            low, high, sums
        )
        matrix: F64 = 0.5 * integrals * np.multiply.outer(multiplicity, multiplicity)
        return matrix

    system: F64 = _PASSBAND_WEIGHT * normal_matrix(0.0, edge)
    for image in range(1, step // 2 + 1):
        middle = image / step
        system += normal_matrix(middle - edge, min(middle + edge, 0.5))
    # Taps that change nothing where it counts are left small.
    system[np.diag_indices(len(half_offsets))] += 1e-14 * np.trace(system)
    target: F64 = (
        _PASSBAND_WEIGHT * _cosine_integrals(0.0, edge, half_offsets) * multiplicity
    )
    half_taps = np.linalg.solve(system, target)
    return np.concatenate([half_taps[::-1][: count // 2], half_taps])


def white_noise_error(taps: F64, step: int, edge: float) -> float:
    """Return the relative error of the power of white noise after the filter, at the
    worst frequency.
    """
    frequencies = np.linspace(0.0, edge, _CHECKED_FREQUENCIES)
    passband_gain = symmetric_response(taps, frequencies)
    if (passband_gain < 0.5).any():
        return math.inf
    aliases = np.add.outer(np.arange(1, step) / step, frequencies)
    aliased_power = np.square(symmetric_response(taps, aliases)).sum(
        axis=0
    ) / np.square(passband_gain)
    aliasing_error = _POWER_ERROR_FACTOR * math.sqrt(float(aliased_power.max()))
    return max(aliasing_error, 2.0 * float(np.abs(passband_gain - 1.0).max()))


@lru_cache(maxsize=256)
def design_filter(step: int, edge: float, error: float) -> DecimationFilter | None:
    """Return the shortest filter that causes at most half of the error. None if that
    takes more than `MAX_TAPS_PER_SAMPLE` taps a sample, or if the band reaches the
    middle of the new rate.
    """
    if step < 2 or edge >= 0.5 / step:
        return None

    def filter_with_taps(count: int) -> DecimationFilter:
        taps = least_squares_taps(step, edge, count)
        return DecimationFilter(step, taps, white_noise_error(taps, step, edge))

    # Lengths in steps of 2, so that the middle is that of a step of samples.
    low, high = 0, (MAX_TAPS_PER_SAMPLE - 1) * step // 2
    best = filter_with_taps(step + 2 * high)
    if best.error > _FILTER_ERROR_SHARE * error:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        shorter = filter_with_taps(step + 2 * middle)
        if shorter.error > _FILTER_ERROR_SHARE * error:
            low = middle
        else:
            high, best = middle, shorter
    return best


def common_divisors(*lengths: int) -> Iterator[int]:
    """Return an iterator over the steps of 2 and more that divide each of the
    lengths.
    """
    common = math.gcd(*lengths)
    return (step for step in range(2, common + 1) if common % step == 0)


def design_filters(
    lengths: tuple[int, ...], edge: float, error: float
) -> list[DecimationFilter]:
    """Return a filter for every step that divides the lengths and has one.

    edge   the highest frequency that is wanted, below 0.5
    error  relative, of the power
    """
    candidates: list[Any] = [
        design_filter(step, edge, error)
        for step in common_divisors(*lengths)
        if edge < 0.5 / step and step <= _MAX_STEP
    ]
    return [candidate for candidate in candidates if candidate is not None]


_MAX_STEP: Final = 64
