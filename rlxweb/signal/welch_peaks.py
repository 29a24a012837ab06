"""`welch_peaks`: the strongest spectral peaks of every row, in one call."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter_ns
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlxweb.device import DeviceLike
from rlxweb.errors import UsageError
from rlxweb.gpu.drive import drive
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.choose import Strategy, choose_engine, choose_engine_async
from rlxweb.signal.engine import WelchJob
from rlxweb.signal.peaks_of_power import PeaksOfPower, as_peaks, peaks_of_power
from rlxweb.signal.picker import Pick
from rlxweb.signal.presets import OF_PRESET, from_preset
from rlxweb.signal.result import WelchPeaks
from rlxweb.signal.samples import NanPolicy, Precision, as_rows, refuse_nonfinite
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
    strategy: Strategy = "auto",
    min_segments: int | None = None,
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
    device   where to run; None takes the way that is predicted to be fastest, and
             `decision` of the result says which others there were
    strategy "auto", or the way to go: "fast" averages on the CPU, "fused" on a device
             with the peaks searched there, "ultra" averages the first segment alone,
             "learned" needs a trained model and is refused until there is one
    min_segments  1 allows "auto" to average a single segment where that is faster: a
             noisier estimate, and `spec.n_segments` of the result says so. Left out,
             all segments asked for are averaged, whatever the speed
    Numerics as `welch`
    Errors   UsageError for k, nperseg, nsegments outside their domain (k over the
             number of bins is refused) and an empty batch; NotFinite, DTypeError,
             Unsupported, AdapterMissing as `welch`
    """
    asked = _asked(
        x,
        fs,
        nperseg,
        k,
        noverlap=noverlap,
        nsegments=nsegments,
        window=window,
        detrend=detrend,
        preset=preset,
        mode=mode,
        axis=axis,
        prominence=prominence,
        min_segments=min_segments,
        precision=precision,
        nan=nan,
    )
    pick = choose_engine(asked.job, device, adapter, strategy)
    return drive(_run(asked, pick))


async def welch_peaks_async(
    x: ArrayLike,
    fs: float = 1.0,
    nperseg: int = 256,
    k: int = 16,
    *,
    device: DeviceLike | None = None,
    adapter: str = "",
    strategy: Strategy = "auto",
    **options: Any,
) -> WelchPeaks:
    """`welch_peaks` where the GPU must be awaited: a browser without JSPI.

    Takes the same arguments and gives the same result, and the same errors.
    """
    asked = _asked(x, fs, nperseg, k, **options)
    pick = await choose_engine_async(asked.job, device, adapter, strategy)
    return await _run(asked, pick)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call whose arguments were checked: rows [B, T] and the job they make."""

    rows: NDArray[Any]
    batch: tuple[int, ...]
    fs: float
    job: WelchJob
    prominence: float | None


def _asked(
    x: ArrayLike,
    fs: float,
    nperseg: int,
    k: int,
    *,
    noverlap: int | None = None,
    nsegments: int | None = None,
    window: WindowLike | ArrayLike | None = None,
    detrend: str | bool | None = OF_PRESET,
    preset: str = "rlx",
    mode: Mode = "bins",
    axis: int = -1,
    prominence: float | None = None,
    min_segments: int | None = None,
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
) -> _Asked:
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
    least = checked_min_segments(min_segments, spec.segments_of(rows.shape[1]))
    job = WelchJob(spec, rows.shape[0], rows.shape[1], count, mode, least)
    return _Asked(rows, batch, float(fs), job, prominence)


async def _run(asked: _Asked, pick: Pick) -> WelchPeaks:
    """Run the pick; a warm run's time goes back to the model that picked it."""
    job, engine, rows = pick.job, pick.engine, asked.rows
    hz = frequencies(job.spec, asked.fs)
    warm = engine.is_ready(rows.shape, job.spec, job.k if job.mode == "bins" else 0)
    begun = perf_counter_ns()
    if job.mode == "bins":
        bins, power = await engine.strongest_async(rows, job.spec, job.k)
        found = as_peaks(bins, power, hz)
    else:
        power = await engine.power_async(rows, job.spec)
        found = peaks_of_power(power, hz, job.k, asked.prominence)
    if warm:
        pick.observe(perf_counter_ns() - begun)
    return _result(found, asked.batch, asked.fs, pick)


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
        try:
            return _known_spec(*asked)
        except TypeError:  # a window given as samples cannot be looked up
            return _spec(*asked)
    except UsageError as error:
        error.doing = DOING if error.doing == "welch" else error.doing
        raise


def _result(
    found: PeaksOfPower,
    batch: tuple[int, ...],
    fs: float,
    pick: Pick,
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
        mode=pick.job.mode,
        device=pick.engine.device,
        engine=pick.engine.name,
        decision=pick.decision,
        spec=pick.job.spec,
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


def checked_min_segments(least: int | None, segments: int) -> int | None:
    """min_segments as an int inside its domain, or None.

    Errors   UsageError with both numbers.
    """
    if least is None:
        return None
    try:
        count = operator.index(least)
    except TypeError:
        raise UsageError(
            DOING, f"min_segments is {least!r}", "it must be a whole number"
        ) from None
    if not 1 <= count <= segments:
        raise UsageError(
            DOING,
            f"min_segments is {count}",
            f"it must be 1 to {segments}, the number of segments asked for",
        )
    return count
