"""The named estimates `rlx`, `scipy` and `mne`.

Owns what each preset means and nothing else: a preset only fills in arguments that the
caller left out, and `resolve.py` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from rlxweb.errors import UsageError, did_you_mean
from rlxweb.host.spec import Detrend, WelchSpec
from rlxweb.signal.resolve import DEFAULT_NPERSEG, frozen_window, resolve, whole
from rlxweb.signal.windows import WindowLike

PRESETS: Final = ("rlx", "scipy", "mne")
OF_PRESET: Final = "preset"

_DOING = "welch"


@dataclass(frozen=True, slots=True)
class _Recipe:
    window: str
    overlap: Callable[[int], int] | None
    detrend: Detrend | None
    scaling: str


# For one sample per segment half of it is no hop at all, so the hop is at least 1.
_RECIPES: Final = {
    "rlx": _Recipe("hann_symmetric", lambda n: n - max(1, n // 2), None, "none"),
    "scipy": _Recipe("hann", None, "constant", "density"),
    "mne": _Recipe("hamming", lambda n: 0, "constant", "density"),
}


def _length(window: object, nperseg: int | None, n_samples: int | None) -> int:
    """The nperseg that `resolve` will settle on."""
    if isinstance(window, bytes):
        return len(window) // 8
    if nperseg is None:
        longest = DEFAULT_NPERSEG if n_samples is None else n_samples
        return min(DEFAULT_NPERSEG, longest)
    return whole("nperseg", nperseg)


def from_preset(
    preset: str,
    n_samples: int | None,
    *,
    fs: float = 1.0,
    nperseg: int | None = DEFAULT_NPERSEG,
    noverlap: int | None = None,
    nsegments: int | None = None,
    window: WindowLike | ArrayLike | None = None,
    detrend: str | bool | None = OF_PRESET,
    average: str = "mean",
    dtype: DTypeLike = np.float64,
) -> WelchSpec:
    """The estimate of a named preset; what the caller gives goes before it.

    rlx     symmetric Hann, hop nperseg // 2, nothing removed, |X|² unscaled
    scipy   scipy.signal.welch: periodic Hann, mean removed, density
    mne     mne.time_frequency.psd_array_welch: Hamming, no overlap, mean removed,
            density
    """
    if preset not in _RECIPES:
        raise UsageError(
            _DOING,
            f"no preset is called {preset!r}",
            f"known: {', '.join(PRESETS)}",
            did_you_mean(str(preset), PRESETS, 1),
        )
    recipe = _RECIPES[preset]
    chosen = frozen_window(recipe.window if window is None else window)
    if noverlap is None and recipe.overlap is not None:
        noverlap = recipe.overlap(_length(chosen, nperseg, n_samples))
    return resolve(
        n_samples,
        fs=fs,
        window=np.frombuffer(chosen) if isinstance(chosen, bytes) else chosen,
        nperseg=nperseg,
        noverlap=noverlap,
        detrend=recipe.detrend if detrend == OF_PRESET else detrend,
        scaling=recipe.scaling,
        average=average,
        nsegments=nsegments,
        dtype=dtype,
    )
