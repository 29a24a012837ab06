"""A Welch estimate of a band as one of fewer samples: the filter, and what it became.

Low bins need no more samples than a signal of a lower rate has. The rows go through a
low-pass filter that keeps one sample of `step` (`recipes/decimation_plan.py`), segments
and window are that much shorter, and each bin is divided by the filter's gain there.
What is left of an error is what falls back from beyond the band, and that a window
moves over the filter's samples; both are measured on white noise before a plan is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.decimated import decimated
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.recipes.decimation_plan import LowPass, filters
from rlxweb.signal.accuracy import SEGMENTS, spectrum_error
from rlxweb.signal.band_peaks import Band

_NOISE_ROWS: Final = 8
# A filter for a part of the error, where the window's own part turns out too large.
_STRICTER: Final = (1.0, 0.5, 0.2)


@dataclass(frozen=True, slots=True, eq=False)
class BandPlan:
    """An estimate in fewer samples.

    filter  what the rows go through
    spec    of what comes out: the same bins, up to its own middle
    factor  (bins of the band,) what its power is multiplied by
    error   measured on white noise, relative, as `accuracy.spectrum_error`
    """

    filter: LowPass
    spec: WelchSpec
    factor: NDArray[np.float64]
    error: float

    def rows(self, x: NDArray[Any]) -> NDArray[Any]:
        """Rows (B, T) in fewer samples."""
        return decimated(np.ascontiguousarray(x), self.filter)


def band_plans(
    spec: WelchSpec, band: Band | None, max_error: float
) -> list[BandPlan] | str:
    """The plans within an error, or why there is none.

    band  the bins that are wanted
    """
    if spec.is_complex or not spec.one_sided:
        return "spectra of two sides have no band that begins at 0 Hz"
    if band is None:
        return "all bins are wanted: it needs an fmax"
    if not max_error:
        return "it needs a max_error: what lies beyond the band falls back in part"
    if spec.nperseg > SMALL:
        return f"segments of more than {SMALL:,} samples are not planned for"
    return _plans(spec, band, max_error)


@lru_of_small(64, lambda spec, band, max_error: True)
def _plans(spec: WelchSpec, band: Band, max_error: float) -> list[BandPlan] | str:
    edge = (band.stop - 1) / spec.nfft
    lengths = spec.nperseg, spec.hop, spec.nfft
    least, found = np.inf, {}
    for part in _STRICTER:
        for filter_ in filters(lengths, edge, part * max_error):
            if filter_.step in found:
                continue
            plan = _tried(spec, band, filter_)
            if plan.error <= max_error:
                found[filter_.step] = plan
            least = min(least, plan.error)
    if found:
        return list(found.values())
    if least < np.inf:
        return f"its error on white noise is {least:.2g}, over the {max_error:g} given"
    return (
        f"no filter keeps every 2nd sample or fewer of segments of {spec.nperseg} with"
        f" a hop of {spec.hop}, and bins up to {band.stop - 1} of {spec.nfft // 2}"
    )


def _tried(spec: WelchSpec, band: Band, filter_: LowPass) -> BandPlan:
    """The plan of a filter, its error measured on white noise."""
    step = filter_.step
    gain = filter_.gain(np.arange(band.first, band.stop) / spec.nfft)
    own = replace(
        spec,
        nperseg=spec.nperseg // step,
        hop=spec.hop // step,
        nfft=spec.nfft // step,
        window=_window_of(spec, filter_).tobytes(),
        scale=spec.scale * step**2,
        dtype="float64" if spec.dtype != "float32" else "float32",
    )
    plan = BandPlan(filter_, own, gain**-2.0, 0.0)
    count = spec.nperseg + (SEGMENTS - 1) * spec.hop
    noise = np.random.default_rng(step).standard_normal((_NOISE_ROWS, count))
    wide, few = (
        replace(one, n_segments=SEGMENTS, dtype="float64") for one in (spec, own)
    )
    right = welch_power(noise, wide)[:, band.bins]
    found = welch_power(plan.rows(noise), few)[:, band.bins] * plan.factor
    return replace(plan, error=spectrum_error(found, right))


def _window_of(spec: WelchSpec, filter_: LowPass) -> NDArray[np.float64]:
    """The window as the filter sees it, which is 0 beyond its ends."""
    step = filter_.step
    beside = -(-len(filter_.taps) // step) * step
    padded = np.pad(spec.window_array, beside)[None]
    inside = slice(beside // step, (beside + spec.nperseg) // step)
    return np.ascontiguousarray(decimated(padded, filter_)[0, inside])
