"""Error of an approximate spectrum relative to the exact one.

One measure, for what is planned, what is learned and what is checked while it runs: the
root mean square over all bins and rows of each bin's relative error. Bins a million
times weaker than their row's strongest are measured by that.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.adc_samples import Digital
from rlxweb.core.errors import Inexact
from rlxweb.core.message_text import Advice
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.frequency_bins import BinRange

CHECKED_SEGMENTS: Final = 4
"""Number of segments by which a row is checked, taken from its middle."""
CHECKED_ROW_STEP: Final = 64
"""Step between the rows that are checked."""
_RELATIVE_FLOOR: Final = 1e-6

PowerFunction = Callable[[Any, WelchSpec], Awaitable[NDArray[Any]]]


def spectrum_error(computed: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the relative error of power (B, F) against the exact power; 0 where there
    are no rows.
    """
    if not expected.size:
        return 0.0
    expected = expected.astype(np.float64, copy=False)
    floor = _RELATIVE_FLOOR * expected.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = (computed - expected) / (expected + floor)
    if not floor.all():  # a silent row: right where it is 0 too
        errors[computed == expected] = 0.0
    return math.sqrt(float(np.vdot(errors, errors)) / errors.size)


def checked_row_count(n_rows: int) -> int:
    """Return the number of rows that are checked."""
    return -(-n_rows // CHECKED_ROW_STEP)


async def check_accuracy(
    x: Any,
    spec: WelchSpec,
    band: BinRange,
    limit: float,
    approximate_power: PowerFunction,
    exact_power: PowerFunction | None = None,
) -> float:
    """Return the error of a few segments of a few rows against the exact answer.

    approximate_power  computes the power of the band (B, F) of rows for a spec, in the
                       short way
    exact_power  in the long way; NumPy where it is not given
    Errors  Inexact where it is over the limit.
    """
    count = min(CHECKED_SEGMENTS, spec.segments_per_row(x.shape[1]))
    start = (spec.segments_per_row(x.shape[1]) - count) // 2 * spec.hop
    stop = start + spec.nperseg + (count - 1) * spec.hop
    sampled_rows = _slice_samples(
        x, slice(None, None, CHECKED_ROW_STEP), slice(start, stop)
    )
    sampled_spec = replace(spec, n_segments=count)
    if exact_power is None:
        samples = (
            sampled_rows.physical()
            if isinstance(sampled_rows, Digital)
            else sampled_rows
        )
        expected = welch_power(samples, sampled_spec)[:, band.bins]
    else:
        expected = await exact_power(sampled_rows, sampled_spec)
    computed = await approximate_power(sampled_rows, sampled_spec)
    finite = np.isfinite(expected).all(axis=1)
    if not finite.all():
        computed, expected = computed[finite], expected[finite]
    error = spectrum_error(computed, expected)
    if error > limit:
        raise Inexact(
            "welch_peaks",
            f"the relative error of the band's power would be {error:.2g}",
            f"at most {limit:.2g} is allowed (rows compared with the exact result: "
            f"{int(finite.sum())})",
            Advice("increase max_error, or use {}", strategy="fast"),
        )
    return error


def _slice_samples(x: Any, rows: slice, samples: slice) -> Any:
    """Return some rows and samples of an array or of digital samples."""
    if isinstance(x, Digital):
        digital = x.rows(rows)
        return Digital(digital.counts[:, samples], digital.gain, digital.offset)
    return x[rows, samples]
