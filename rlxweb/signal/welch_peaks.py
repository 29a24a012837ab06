"""`welch_peaks`: the strongest spectral peaks of every row, in one call."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from rlxweb.arguments import bound, number, switch
from rlxweb.choose.again import LOST
from rlxweb.choose.chooser import Asked, choose, choose_async
from rlxweb.errors import UsageError
from rlxweb.gpu.beside import beside
from rlxweb.gpu.drive import drive, in_a_tab
from rlxweb.host.spectrum import frequencies
from rlxweb.host.strongest import PeaksOfPower, as_peaks
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.signal.at_once import at_once
from rlxweb.signal.known_calls import KnownCall, keep_call, key_of, known_call
from rlxweb.signal.labelled import takes_objects
from rlxweb.signal.learned.strategy import NAME as LEARNED
from rlxweb.signal.offers import WelchJob, checked_strategy
from rlxweb.signal.own_detrend import detrended_by, own_detrend
from rlxweb.signal.peaks_asked import (
    checked_band,
    checked_error,
    checked_k,
    checked_min_segments,
)
from rlxweb.signal.peaks_of_power import (
    check_prominence,
    peaks_of_bins,
    peaks_of_power,
)
from rlxweb.signal.picked import ready, run_pick
from rlxweb.signal.request import OF_PRESET, WelchRequest
from rlxweb.signal.result import WelchPeaks, quantity_of
from rlxweb.signal.rows_there import RowsThere, asked_at, gone
from rlxweb.signal.samples import as_array, as_rows, physical
from rlxweb.signal.scaled import Caller, ReadyRows, looked_at, ready_rows
from rlxweb.signal.spectrum import Spectrum

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from numpy.typing import ArrayLike, NDArray

    from rlxweb.choose.chooser import Pick
    from rlxweb.decision.strategy import WelchPeaksStrategy
    from rlxweb.device import DeviceLike
    from rlxweb.digital import Digital
    from rlxweb.signal.band_peaks import Band
    from rlxweb.signal.engine import Engine, Rows
    from rlxweb.signal.learned.file import ModelLike
    from rlxweb.signal.own_detrend import OwnDetrend
    from rlxweb.signal.precision import Precision, Taken
    from rlxweb.signal.rounding import RoundingFloor
    from rlxweb.signal.scaled import NanPolicy
    from rlxweb.signal.windows import WindowLike

    Kept = tuple[NDArray[Any], RoundingFloor] | None
    Searched = tuple[PeaksOfPower, Kept]
    Run = Callable[[Pick[WelchJob]], Coroutine[Any, Any, WelchPeaks]]

DOING = "welch_peaks"
Mode = Literal["bins", "peaks"]


@takes_objects("x")
def welch_peaks(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    nperseg: int = 256,
    k: int = 16,
    *,
    noverlap: int | None = None,
    nsegments: int | None = None,
    window: WindowLike | ArrayLike | None = None,
    detrend: str | bool | OwnDetrend | None = OF_PRESET,
    preset: str = "rlx",
    mode: Mode = "bins",
    axis: int = -1,
    prominence: float | None = None,
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    strategy: str | WelchPeaksStrategy = "auto",
    min_segments: int | None = None,
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
    spectrum: bool = False,
    max_error: float | None = None,
    model: ModelLike | None = None,
) -> WelchPeaks:
    """Average power spectrum of every row, then its k strongest bins or peaks.

    Shapes   x (…, T) → bins, hz, power (…, k)
    Units    x in U, fs in Hz → hz in Hz; power as the preset scales it
    x        an array, or a DeviceArray (float32, time last): it runs where that lies
    preset   "rlx": symmetric Hann, hop nperseg // 2, nothing removed, one-sided |X|²
             averaged and not scaled; "scipy": scipy.signal.welch's density; "mne":
             mne.time_frequency.psd_array_welch's. window, detrend and noverlap override
    mode     "bins": the k strongest bins, ties to the smaller bin. "peaks": local
             maxima by falling power, frequency refined by a parabola through the log
             power, `count` of them per row (at most k)
             Both are the defaults of RLX, whose calls and cost model this follows: what
             a device computes with the fewest steps. Neighbours of a strong bin are
             among them, and 0 Hz where a signal has an offset; who looks for rhythms
             asks for mode="peaks" and preset="scipy" or "mne"
    fmin, fmax  peaks are searched between these, in Hz, ends included; None: no end.
             A local maximum is told by its neighbours, beyond the ends too
    nsegments  average only the first so many segments; all 1 + (T - nperseg) // hop
             of them by default
    device   where to run; None takes the way that is predicted to be fastest, and
             `decision` of the result says which others there were
    strategy "auto", or the way to go: "fast" averages on the CPU, "fused" on a device
             with the peaks searched there, "ultra" averages the first segment alone,
             "band" computes the bins from fmin to fmax alone, "learned" does by a
             `model` that was trained for them
    min_segments  1 allows "auto" to average a single segment where that is faster: a
             noisier estimate, and `spec.n_segments` of the result says so. Left out,
             all segments asked for are averaged, whatever the speed
    strict   as `welch`; `decision` of the result says where a run was lost
    spectrum True: the result keeps the whole power spectrum as well
    max_error what the power of a bin may be off by, relative, root mean square (1e-3):
             allows ways of "band" and "learned" that compute with fewer samples. Part
             of every answer is compared with the exact one. None: no such way is taken
    model    of "learned": what `rlxweb learn` wrote, a path or loaded
    Numerics as `welch`
    Errors   UsageError for k, nperseg, nsegments outside their domain (k over the
             number of bins, or of those in the band, is refused), for a band without a
             bin and for an empty batch; NotFinite, DTypeError, Unsupported,
             AdapterMissing as `welch`
    """
    given, started = locals(), perf_counter_ns()
    key = key_of(x, tuple(given.values())[1:])
    known = known_call(key)
    if known is None:
        job, asked, run = _called(**given, key=key, started=started)
        return drive(run(choose(job, asked)))
    rows = cast("NDArray[Any]", x)  # by its key
    rows = rows if rows.ndim == 2 else rows[None]
    pick = choose(known.job, known.asked)
    quick = at_once(pick)
    if quick is not None and rows.dtype == quick.dtype:
        begun = perf_counter_ns()
        found = quick.strongest(rows)
        if found is not None:
            done = perf_counter_ns()
            pick.observe(done - begun)
            times = started, begun, done
            return _peaks(as_peaks(*found, known.hz), known, pick, times)
    ready = ready_rows(rows, known.job.spec, known.caller, known.nan)
    return drive(_run(rows, ready, known, started, pick))


@takes_objects("x", like=welch_peaks)
async def welch_peaks_async(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    nperseg: int = 256,
    k: int = 16,
    *,
    device: DeviceLike | None = None,
    adapter: str = "",
    strategy: str | WelchPeaksStrategy = "auto",
    **options: Any,
) -> WelchPeaks:
    """`welch_peaks` beside an event loop, which goes on meanwhile.

    On a desktop it runs on a thread and can be cancelled; in a browser tab the GPU is
    awaited. Takes the same arguments and gives the same result, and the same errors.
    """
    options |= {"device": device, "adapter": adapter, "strategy": strategy}
    given = bound(welch_peaks, "welch_peaks_async", x, fs, nperseg, k, **options)
    if not in_a_tab():
        return await beside(lambda: welch_peaks(**given))
    job, asked, run = _called(**given)
    return await run(await choose_async(job, asked))


def _called(
    x: ArrayLike | Digital,
    axis: int,
    prominence: float | None,
    fmin: float,
    fmax: float | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    spectrum: bool,
    max_error: float | None,
    model: ModelLike | None,
    key: object = None,
    started: int = 0,
    **wanted: Any,
) -> tuple[WelchJob, Asked, Run]:
    """The job that checked arguments make, who is asked, and how a pick is run."""
    array = as_array(x, DOING)
    own = own_detrend(wanted["detrend"])
    if own is not None:
        array = physical(array)
        wanted["detrend"] = None
    rows, batch, how = as_rows(array, axis, precision, DOING)
    if not rows.shape[0]:
        raise UsageError(DOING, f"the batch {list(batch)} has no rows", "rows >= 1")
    strict = switch("strict", strict, DOING)
    wanted["fs"] = number("fs", wanted["fs"], DOING)
    job = job_of(rows.shape, how, **wanted)
    job = replace(job, max_error=checked_error(max_error))
    hz, k = frequencies(job.spec, wanted["fs"]), job.k
    band = checked_band(hz, wanted["fs"], fmin, fmax, k)
    spectrum = switch("spectrum", spectrum, DOING)
    job = _in_band(job, band, len(hz), spectrum)
    if model is not None or job.strategy == LEARNED:
        from rlxweb.signal.learned.file import model_for  # few calls have one

        job = replace(job, model=model_for(model, job, wanted["fs"]))
    least = check_prominence(prominence, job.mode, DOING)
    caller = Caller(DOING, batch)
    given: ReadyRows | RowsThere
    if isinstance(rows, RowsThere):
        given, job = rows, replace(job, is_there=True)
    else:
        given = ready_rows(rows, job.spec, caller, nan)
    if own is not None:
        assert isinstance(given, ReadyRows)  # `physical` has them on the host
        rows, spec, caller = detrended_by(own, np.asarray(rows), job.spec, caller)
        given = ready_rows(rows, spec, caller, nan).detrended_from(given)
        job = replace(job, spec=spec, n_samples=rows.shape[1])
    asked = Asked(device, adapter)
    if isinstance(array, RowsThere):
        asked = asked_at(array, device, adapter, DOING)
    fs = wanted["fs"]
    known = KnownCall(job, asked, caller, hz, fs, least, strict, nan, k, band, spectrum)
    if own is None and model is None and axis in (-1, array.ndim - 1):
        keep_call(key, known)
    return job, asked, partial(_run, rows, given, known, started)


def _in_band(job: WelchJob, band: Band | None, n_bins: int, spectrum: bool) -> WelchJob:
    """Peaks are searched on the host in what is kept, and in what tells maxima."""
    if spectrum:
        return replace(job, k=0)
    if band is None:
        return job
    near = band.beside(n_bins, job.mode)
    return replace(job, k=job.k if job.mode == "bins" else 0, band=near)


def _job(
    shape: tuple[int, ...],
    how: Taken,
    k: int,
    mode: Mode,
    strategy: str | WelchPeaksStrategy,
    min_segments: int | None,
    **estimate: Any,
) -> WelchJob:
    n_rows, n_samples = shape
    try:
        spec = WelchRequest(**estimate).spec(n_samples, how.kind)
    except UsageError as error:
        error.doing = DOING if error.doing == "welch" else error.doing
        raise
    count = checked_k(k, spec.n_freqs, mode)
    least = checked_min_segments(min_segments, spec.segments_of(n_samples))
    way = checked_strategy(strategy, least)
    return WelchJob(spec, n_rows, n_samples, count, mode, least, way, how)


def job_of(shape: tuple[int, ...], how: Taken, **wanted: Any) -> WelchJob:
    """The job of rows (B, T) that are taken so, by the arguments of `welch_peaks`.

    Errors   UsageError.
    """
    try:
        return _known_job(shape, how, **wanted)
    except TypeError:  # samples of a window cannot be looked up
        pass
    return _job(shape, how, **wanted)


# Small batches feel the time it takes to settle the arguments. 0 is not False there.
_known_job = lru_of_small(128, lambda shape, how, **_: shape[1] <= 4 * SMALL)(_job)


async def _run(
    rows: Rows,
    seen: ReadyRows | RowsThere,
    call: KnownCall,
    started: int,
    asked: Pick[WelchJob],
) -> WelchPeaks:
    """Run the pick; a warm run's time goes back to the model that picked it."""
    caller, nan = call.caller, call.nan

    async def work(job: WelchJob, engine: Engine) -> tuple[Searched, bool]:
        given = own
        # The first segment stands for all; only the host does that.
        if job.spec is not asked.job.spec and not isinstance(rows, RowsThere):
            given = ready_rows(rows, job.spec, caller, "propagate")
        k = job.k if job.mode == "bins" else 0
        warm = engine.is_ready(given.x.shape, given.spec, k, job.band)
        return await _search(given, call, job, engine), warm

    try:
        if isinstance(seen, RowsThere):
            own = await looked_at(seen, asked.job.spec, caller, nan)
        else:
            own = seen
        begun = perf_counter_ns()
        ((found, kept), warm), pick = await run_pick(
            asked, work, call.strict or seen is not own
        )
    except LOST as error:
        raise gone(error, seen, DOING) from error.__cause__
    done = perf_counter_ns()
    if warm and pick is asked:
        pick.observe(done - begun)
    times = started or begun, begun, done
    return _peaks(found, call, pick, times, kept)


def _peaks(
    found: PeaksOfPower,
    call: KnownCall,
    pick: Pick[WelchJob],
    times: tuple[int, ...],
    kept: Kept = None,
) -> WelchPeaks:
    """What was found, in the shape of the call."""
    job, engine = ready(pick)
    batch = call.caller.batch
    shape, heights = (*batch, found.bins.shape[-1]), found.prominence
    if found.bins.shape != shape:
        found = replace(
            found,
            bins=found.bins.reshape(shape),
            hz=found.hz.reshape(shape),
            power=found.power.reshape(shape),
            count=found.count.reshape(batch),
            prominence=None if heights is None else heights.reshape(shape),
        )
    own = WelchPeaks(
        bins=found.bins,
        hz=found.hz,
        power=found.power,
        count=found.count,
        prominence=found.prominence,
        fs=call.fs,
        mode=job.mode,
        device=engine.device,
        engine=engine.name,
        decision=pick.decision,
        spec=job.spec,
        times=times,
    )
    return own if kept is None else replace(own, spectrum=_spectrum(*kept, call, own))


def _spectrum(
    power: NDArray[Any], floor: RoundingFloor, call: KnownCall, own: WelchPeaks
) -> Spectrum:
    """The power (B, F) that the peaks are of, in the shape of the call."""
    batch = call.caller.batch
    return Spectrum.of(
        call.hz,
        power.reshape(*batch, len(call.hz)),
        quantity=quantity_of(call.job.spec, call.fs),
        fs=call.fs,
        ran=own.ran,
        floor=floor._replace(energy=floor.energy.reshape(batch)),
    )


async def _search(
    given: ReadyRows, call: KnownCall, job: WelchJob, engine: Engine
) -> Searched:
    """The peaks, and the spectrum where it is to be kept."""
    hz, caller, band = call.hz, call.caller, call.band
    if job.mode == "bins" and not call.spectrum:
        bins, power = await engine.strongest(given.x, given.spec, job.k, job.band)
        power = given.reading.restored(power, caller)
        floor = given.by(engine.device).floor()
        return peaks_of_bins(bins, power, hz, floor), None
    power = await engine.power(given.x, given.spec, job.band)
    power = given.reading.restored(power, caller)
    floor = given.by(engine.device).floor()
    kept = (power, floor) if call.spectrum else None
    if job.band is not None:
        near, of = job.band, (call.k, call.prominence, job.mode, floor)
        return near.searched(power, hz, *of), kept
    if band is not None:
        found = band.peaks(power, hz, call.k, call.prominence, job.mode, floor)
        return found, kept
    found = peaks_of_power(power, hz, call.k, call.prominence, job.mode, floor=floor)
    return found, kept
