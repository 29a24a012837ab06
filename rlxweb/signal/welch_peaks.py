"""`welch_peaks`: the strongest spectral peaks of every row, in one call."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from rlxweb.compile.plan import Decision
from rlxweb.devices.device import DeviceLike
from rlxweb.errors import UsageError
from rlxweb.signal.choose import choose_engine
from rlxweb.signal.engine import Engine
from rlxweb.signal.peaks_of_power import PeaksOfPower, as_peaks, peaks_of_power
from rlxweb.signal.presets import OF_PRESET, from_preset
from rlxweb.signal.result import WelchPeaks
from rlxweb.signal.samples import NanPolicy, Precision, as_rows, refuse_nonfinite
from rlxweb.signal.spec import WelchSpec
from rlxweb.signal.spectrum import frequencies
from rlxweb.signal.windows import WindowLike

DOING = "welch_peaks"
Mode = Literal["bins", "peaks"]


def welch_peaks(
    x: ArrayLike,
    fs: float = 1.0,
    nperseg: int = 256,
    k: int = 16,
    *,
    noverlap: int | None = None,
    nsegments: int | None = None,
    window: WindowLike | ArrayLike | None = None,
    detrend: str | bool | None = OF_PRESET,
    preset: str = "rlx",
    mode: Mode = "bins",
    axis: int = -1,
    prominence: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
) -> WelchPeaks:
    """Average power spectrum of every row, then its k strongest bins or peaks.

    Shapes   x (…, T) → bins, hz, power (…, k)
    Units    x in U, fs in Hz → hz in Hz; power as the preset scales it
    preset   "rlx": symmetric Hann, hop nperseg // 2, nothing removed, one-sided |X|²
             averaged and not scaled; "scipy": scipy.signal.welch's density; "mne":
             mne.time_frequency.psd_array_welch's. window, detrend and noverlap override
    mode     "bins": the k strongest bins, ties to the smaller bin. "peaks": local
             maxima by falling power, frequency refined by a parabola through the log
             power, `count` of them per row (at most k)
    nsegments  average only the first so many segments; all 1 + (T - nperseg) // hop
             of them by default
    Numerics as `welch`
    Errors   UsageError for k, nperseg, nsegments outside their domain (k over the
             number of bins is refused) and an empty batch; NotFinite, DTypeError,
             Unsupported, AdapterMissing as `welch`
    """
    rows, batch = as_rows(x, axis, precision, DOING)
    if not rows.shape[0]:
        raise UsageError(DOING, f"the batch {list(batch)} has no rows", "rows >= 1")
    spec = _settled(
        preset,
        rows.shape[1],
        fs,
        nperseg,
        noverlap,
        nsegments,
        window,
        detrend,
        rows.dtype,
    )
    count = checked_k(k, spec.n_freqs, mode)
    refuse_nonfinite(rows, batch, nan, DOING)
    engine, decision = choose_engine(
        spec, rows.shape[0], rows.shape[1], device, adapter
    )
    hz = frequencies(spec, fs)
    if mode == "bins":
        bins, power = engine.strongest(rows, spec, count)
        found = as_peaks(bins, power, hz)
    else:
        found = peaks_of_power(engine.power(rows, spec), hz, count, prominence)
    return _result(found, batch, float(fs), mode, spec, engine, decision)


def _spec(
    preset: str,
    n_samples: int,
    fs: float,
    nperseg: int,
    noverlap: int | None,
    nsegments: int | None,
    window: WindowLike | ArrayLike | None,
    detrend: str | bool | None,
    dtype: np.dtype[Any],
) -> WelchSpec:
    return from_preset(
        preset,
        n_samples,
        fs=fs,
        nperseg=nperseg,
        noverlap=noverlap,
        nsegments=nsegments,
        window=window,
        detrend=detrend,
        dtype=dtype,
    )


# Small batches feel the time it takes to settle the arguments.
_known_spec = lru_cache(maxsize=128, typed=True)(_spec)


def _settled(*asked: Any) -> WelchSpec:
    """The estimate, looked up where the arguments can be."""
    try:
        return _known_spec(*asked)
    except TypeError:  # a window given as samples cannot be looked up
        return _spec(*asked)


def _result(
    found: PeaksOfPower,
    batch: tuple[int, ...],
    fs: float,
    mode: str,
    spec: WelchSpec,
    engine: Engine,
    decision: Decision,
) -> WelchPeaks:
    """The peaks of flat rows, in the shape of the batch."""
    shape = (*batch, found.bins.shape[-1])
    return WelchPeaks(
        bins=found.bins.reshape(shape),
        hz=found.hz.reshape(shape),
        power=found.power.reshape(shape),
        count=found.count.reshape(batch),
        prominence=(
            None if found.prominence is None else found.prominence.reshape(shape)
        ),
        fs=fs,
        mode=mode,
        device=engine.device,
        engine=engine.name,
        decision=decision,
        spec=spec,
    )


def checked_k(k: int, n_freqs: int, mode: str) -> int:
    """K as an int inside its domain. Errors  UsageError with both numbers."""
    if mode not in ("bins", "peaks"):
        raise UsageError(DOING, f"mode={mode!r}", "it is 'bins' or 'peaks'")
    try:
        count = operator.index(k)
    except TypeError:
        raise UsageError(DOING, f"k is {k!r}", "it must be a whole number") from None
    if not 1 <= count <= n_freqs:
        raise UsageError(
            DOING,
            f"k is {count}",
            f"it must be 1 to {n_freqs}, the number of bins",
            "ask for fewer peaks or give a larger nperseg",
        )
    return count
