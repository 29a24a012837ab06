"""Plans of Welch estimates of a band from decimated samples: the low-pass filter, and
the estimate of its output.

Low bins need no more samples than a signal of a lower rate has. The rows go through a
low-pass filter that keeps one sample of `step` (`ops/welch/decimation_filters.py`),
segments and window are that much shorter, and each bin is divided by the filter's gain
there. What is left of an error is what falls back from beyond the band, and that a
window moves over the filter's samples; both are measured on white noise before a plan
is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.ops.welch.cpu.decimate_rows import decimate_rows
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.decimation_filters import DecimationFilter, design_filters
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.spectrum_accuracy import CHECKED_SEGMENTS, spectrum_error

_NOISE_ROWS: Final = 8
# A filter for a part of the error, where the window's own part turns out too large.
_ERROR_SHARES: Final = (1.0, 0.5, 0.2)


@dataclass(frozen=True, slots=True, eq=False)
class BandDecimationPlan:
    """Plan of an estimate from decimated samples.

    filter  what the rows go through
    spec    of what comes out: the same bins, up to its own middle
    factor  (bins of the band,) what its power is multiplied by
    error   measured on white noise, relative, as `accuracy.spectrum_error`
    """

    filter: DecimationFilter
    spec: WelchSpec
    factor: NDArray[np.float64]
    error: float

    def decimate(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return rows (B, T) filtered and decimated."""
        return decimate_rows(np.ascontiguousarray(x), self.filter)


def band_decimation_plans(
    spec: WelchSpec, band: BinRange | None, max_error: float
) -> list[BandDecimationPlan] | str:
    """Return the plans within an error, or the reason why there is none.

    band  the bins that are wanted
    """
    if spec.is_complex or not spec.one_sided:
        return (
            "two-sided spectra are not supported, because decimation keeps only "
            "frequencies from 0 Hz to the end of the band"
        )
    if band is None:
        return "decimation requires fmax, but all bins are requested"
    if not max_error:
        return (
            "decimation requires max_error, because frequencies above the band "
            "partly alias into the band"
        )
    if spec.nperseg > SMALL_TABLE_SAMPLES:
        return (
            f"segments of more than {SMALL_TABLE_SAMPLES:,} samples are not supported"
        )
    return _find_plans(spec, band, max_error)


@lru_cache_if_small(64, lambda spec, band, max_error: True)
def _find_plans(
    spec: WelchSpec, band: BinRange, max_error: float
) -> list[BandDecimationPlan] | str:
    edge = (band.stop - 1) / spec.nfft
    lengths = spec.nperseg, spec.hop, spec.nfft
    min_error, plans = np.inf, {}
    for share in _ERROR_SHARES:
        for filter_ in design_filters(lengths, edge, share * max_error):
            if filter_.step in plans:
                continue
            plan = _measure_plan(spec, band, filter_)
            if plan.error <= max_error:
                plans[filter_.step] = plan
            min_error = min(min_error, plan.error)
    if plans:
        return list(plans.values())
    if min_error < np.inf:
        return (
            "the smallest error of decimation on white noise is "
            f"{min_error:.2g}, above max_error {max_error:g}"
        )
    return (
        "decimation by 2 or more is not possible for segments of "
        f"{spec.nperseg} samples, a hop of {spec.hop} and a band that ends at bin "
        f"{band.stop - 1} (highest bin: {spec.nfft // 2})"
    )


def _measure_plan(
    spec: WelchSpec, band: BinRange, filter_: DecimationFilter
) -> BandDecimationPlan:
    """Return the plan of a filter, with its error measured on white noise."""
    step = filter_.step
    gain = filter_.gain(np.arange(band.first, band.stop) / spec.nfft)
    decimated_spec = replace(
        spec,
        nperseg=spec.nperseg // step,
        hop=spec.hop // step,
        nfft=spec.nfft // step,
        window=_decimated_window(spec, filter_).tobytes(),
        scale=spec.scale * step**2,
        dtype="float64" if spec.dtype != "float32" else "float32",
    )
    plan = BandDecimationPlan(filter_, decimated_spec, gain**-2.0, 0.0)
    count = spec.nperseg + (CHECKED_SEGMENTS - 1) * spec.hop
    noise = np.random.default_rng(step).standard_normal((_NOISE_ROWS, count))
    exact_spec, short_spec = (
        replace(estimate, n_segments=CHECKED_SEGMENTS, dtype="float64")
        for estimate in (spec, decimated_spec)
    )
    expected = welch_power(noise, exact_spec)[:, band.bins]
    computed = welch_power(plan.decimate(noise), short_spec)[:, band.bins] * plan.factor
    return replace(plan, error=spectrum_error(computed, expected))


def _decimated_window(
    spec: WelchSpec, filter_: DecimationFilter
) -> NDArray[np.float64]:
    """Return the window as filtered and decimated; it is 0 beyond its ends."""
    step = filter_.step
    padding = -(-len(filter_.taps) // step) * step
    padded = np.pad(spec.window_array, padding)[None]
    inside = slice(padding // step, (padding + spec.nperseg) // step)
    return np.ascontiguousarray(decimate_rows(padded, filter_)[0, inside])
