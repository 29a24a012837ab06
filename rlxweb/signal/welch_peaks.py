"""Calls `welch_peaks` and `welch_peaks_async`: the strongest spectral peaks of every
row.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from rlxweb.core.argument_validation import bind_arguments, coerce_bool, coerce_float
from rlxweb.core.errors import UsageError
from rlxweb.core.function_options import FROM_SIGNATURE, Option, declare_options
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.gpu.coroutine_runner import is_browser, run_blocking, run_in_thread
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower
from rlxweb.select.chooser import PlaceRequest, choose_place, choose_place_async
from rlxweb.select.device_loss_retry import DEVICE_LOST
from rlxweb.signal.accept_third_party_objects import accept_objects
from rlxweb.signal.custom_detrend import apply_custom_detrend, as_custom_detrend
from rlxweb.signal.device_resident_rows import (
    DeviceRows,
    describe_device_loss,
    place_request_for,
)
from rlxweb.signal.learned.learned_strategy import STRATEGY_NAME as LEARNED
from rlxweb.signal.row_preparation import (
    PreparedRows,
    RowErrorContext,
    prepare_device_rows,
    prepare_rows,
)
from rlxweb.signal.sample_input import as_rows, as_samples, to_physical
from rlxweb.signal.shared_options import (
    ADAPTER_OPTION,
    DEVICE_OPTION,
    NAN_OPTION,
    PRECISION_OPTION,
    WINDOW_OPTION,
)
from rlxweb.signal.spectrum_peaks import (
    PEAK_MODES,
    PeakSearch,
)
from rlxweb.signal.spectrum_result import Spectrum
from rlxweb.signal.welch_call_cache import (
    CallPlan,
    CheckedCall,
    call_key,
    find_call,
    store_call,
)
from rlxweb.signal.welch_candidates import (
    WelchJob,
    run_pick,
    validate_strategy,
)
from rlxweb.signal.welch_peaks_arguments import (
    validate_band,
    validate_max_error,
    validate_min_segments,
)
from rlxweb.signal.welch_peaks_result import WelchPeaks, power_quantity
from rlxweb.signal.welch_request import (
    DETREND_FROM_PRESET,
    PRESETS,
    WelchRequest,
    welch_errors_named,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from numpy.typing import ArrayLike, NDArray

    from rlxweb.core.adc_samples import Digital
    from rlxweb.core.device import DeviceLike
    from rlxweb.cost.welch_strategy_names import WelchPeaksStrategy
    from rlxweb.signal.custom_detrend import CustomDetrend
    from rlxweb.signal.frequency_bins import BinRange
    from rlxweb.signal.learned.transform_file import ModelLike
    from rlxweb.signal.precision import Precision, ResolvedPrecision
    from rlxweb.signal.rounding_floor import RoundingFloor
    from rlxweb.signal.row_preparation import NanPolicy
    from rlxweb.signal.welch_engine import SampleRows, WelchEngine
    from rlxweb.signal.windows import WindowLike

    RetainedPower = tuple[NDArray[Any], RoundingFloor] | None
    PeakSearchOutcome = tuple[PeaksOfPower, RetainedPower]
    PlanRunner = Callable[[CallPlan], Coroutine[Any, Any, WelchPeaks]]

CONTEXT = "welch_peaks"
Mode = Literal["bins", "peaks"]


@accept_objects("x")
@declare_options(
    nperseg=Option("Samples per segment [256, or a whole epoch]."),
    noverlap=Option("Samples of overlap between segments; default: from the preset."),
    nsegments=Option("Average only the first N segments."),
    k=Option("Number of peaks [16, or all bins if there are fewer]."),
    fmin=Option("Lowest frequency to use, in Hz."),
    fmax=Option("Highest frequency to use, in Hz."),
    preset=Option(
        "rlx: symmetric Hann, unscaled |X|²; scipy, mne: density as in that library.",
        choices=tuple(PRESETS),
        default=FROM_SIGNATURE,
    ),
    mode=Option(
        "bins: strongest bins; peaks: true local maxima with refined frequency.",
        choices=PEAK_MODES,
        default=FROM_SIGNATURE,
    ),
    window=WINDOW_OPTION,
    detrend=Option(
        "Trend to remove from each segment; default: from the preset.",
        choices=("none", "constant", "linear"),
    ),
    prominence=Option("Minimum prominence of a local maximum (mode peaks)."),
    device=DEVICE_OPTION,
    adapter=ADAPTER_OPTION,
    precision=PRECISION_OPTION,
    nan=NAN_OPTION,
)
def welch_peaks(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    nperseg: int = 256,
    k: int = 16,
    *,
    noverlap: int | None = None,
    nsegments: int | None = None,
    window: WindowLike | ArrayLike | None = None,
    detrend: str | bool | CustomDetrend | None = DETREND_FROM_PRESET,
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
    arguments, started_ns = locals(), perf_counter_ns()
    key = call_key(x, tuple(arguments.values())[1:])
    call = find_call(key)
    if call is None:
        job, request, run = _prepare_call(**arguments, key=key, started_ns=started_ns)
        return run_blocking(run(CallPlan.from_pick(choose_place(job, request))))
    rows = cast("NDArray[Any]", x)  # by its key
    rows = rows if rows.ndim == 2 else rows[None]
    plan = call.plan()
    if plan.single_pass is not None and rows.dtype == plan.single_pass.dtype:
        chosen_ns = perf_counter_ns()
        peaks = plan.single_pass.strongest_bins(rows)
        if peaks is not None:
            done_ns = perf_counter_ns()
            plan.pick.observe(done_ns - chosen_ns)
            times = started_ns, chosen_ns, done_ns
            return _shape_peaks(call.search.of_bins(*peaks, call.hz), call, plan, times)
    prepared = prepare_rows(rows, call.job.spec, call.caller, call.nan)
    return run_blocking(_run_peaks(rows, prepared, call, started_ns, plan))


@accept_objects("x", like=welch_peaks)
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
    """Compute `welch_peaks` without blocking the event loop.

    On a desktop it runs on a thread and can be cancelled; in a browser tab the GPU is
    awaited. Takes the same arguments and gives the same result, and the same errors.
    """
    options |= {"device": device, "adapter": adapter, "strategy": strategy}
    bound_arguments = bind_arguments(
        welch_peaks, "welch_peaks_async", x, fs, nperseg, k, **options
    )
    if not is_browser():
        return await run_in_thread(lambda: welch_peaks(**bound_arguments))
    job, request, run = _prepare_call(**bound_arguments)
    return await run(CallPlan.from_pick(await choose_place_async(job, request)))


def _prepare_call(
    x: ArrayLike | Digital,
    axis: int,
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
    started_ns: int = 0,
    **estimate: Any,
) -> tuple[WelchJob, PlaceRequest, PlanRunner]:
    """Check the arguments; return the job, the place request, and the function that
    runs a plan.
    """
    array = as_samples(x, CONTEXT)
    detrend_function = as_custom_detrend(estimate["detrend"])
    if detrend_function is not None:
        array = to_physical(array)
        estimate["detrend"] = None
    rows, batch_shape, sample_type = as_rows(array, axis, precision, CONTEXT)
    if not rows.shape[0]:
        raise UsageError(
            CONTEXT,
            f"the batch of shape {list(batch_shape)} has no rows",
            "at least 1 row is required",
        )
    strict = coerce_bool("strict", strict, CONTEXT)
    estimate["fs"] = coerce_float("fs", estimate["fs"], CONTEXT)
    job, search = welch_peaks_job(rows.shape, sample_type, **estimate)
    job = replace(job, max_error=validate_max_error(max_error))
    hz = frequencies(job.spec, estimate["fs"])
    band = validate_band(hz, estimate["fs"], fmin, fmax, job.k)
    spectrum = coerce_bool("spectrum", spectrum, CONTEXT)
    job = _restrict_to_band(job, band, len(hz), spectrum)
    if model is not None or job.strategy == LEARNED:
        from rlxweb.signal.learned.transform_file import (
            load_fitting_model,
        )  # few calls have one

        job = replace(job, model=load_fitting_model(model, job, estimate["fs"]))
    caller = RowErrorContext(CONTEXT, batch_shape)
    prepared: PreparedRows | DeviceRows
    if isinstance(rows, DeviceRows):
        prepared, job = rows, replace(job, is_on_device=True)
    else:
        prepared = prepare_rows(rows, job.spec, caller, nan)
    if detrend_function is not None:
        assert isinstance(prepared, PreparedRows)  # `to_physical` has them on the host
        rows, spec, caller = apply_custom_detrend(
            detrend_function, np.asarray(rows), job.spec, caller
        )
        prepared = prepare_rows(rows, spec, caller, nan).with_floor_of(prepared)
        job = replace(job, spec=spec, n_samples=rows.shape[1])
    request = PlaceRequest(device, adapter)
    if isinstance(array, DeviceRows):
        request = place_request_for(array, device, adapter, CONTEXT)
    fs = estimate["fs"]
    call = CheckedCall(
        job, request, caller, hz, fs, search, strict, nan, band, spectrum
    )
    if detrend_function is None and model is None and axis in (-1, array.ndim - 1):
        store_call(key, call)
    return job, request, partial(_run_peaks, rows, prepared, call, started_ns)


def _restrict_to_band(
    job: WelchJob, band: BinRange | None, n_bins: int, spectrum: bool
) -> WelchJob:
    """Return the job restricted to a band: its bins, and the neighbours that tell
    maxima.
    """
    if spectrum:
        return replace(job, k=0)
    if band is None:
        return job
    extended_band = band.with_neighbours(n_bins, job.mode)
    return replace(job, k=job.k if job.mode == "bins" else 0, band=extended_band)


def _make_job(
    shape: tuple[int, ...],
    sample_type: ResolvedPrecision,
    strategy: str | WelchPeaksStrategy,
    min_segments: int | None,
    **options: Any,
) -> tuple[WelchJob, PeakSearch]:
    """Check the arguments of the estimate and of the search; return the job and the
    search.
    """
    estimate = {n: v for n, v in options.items() if n not in PeakSearch._fields}
    n_rows, n_samples = shape
    with welch_errors_named(CONTEXT):
        spec = WelchRequest(**estimate).spec(n_samples, sample_type.compute_dtype)
    search = PeakSearch.from_options(options).checked(CONTEXT, spec.n_freqs)
    checked_min = validate_min_segments(min_segments, spec.segments_per_row(n_samples))
    strategy_name = validate_strategy(strategy, checked_min)
    k, mode = search.k, search.mode
    job = WelchJob(
        spec, n_rows, n_samples, k, mode, checked_min, strategy_name, sample_type
    )
    return job, search


def welch_peaks_job(
    shape: tuple[int, ...], sample_type: ResolvedPrecision, **options: Any
) -> tuple[WelchJob, PeakSearch]:
    """Return the job of rows (B, T) with this sample type, and the search for their
    peaks, by the arguments of `welch_peaks`.

    Errors   UsageError.
    """
    try:
        return _cached_job(shape, sample_type, **options)
    except TypeError:  # samples of a window cannot be looked up
        pass
    return _make_job(shape, sample_type, **options)


# Small batches feel the time it takes to settle the arguments. 0 is not False there.
_cached_job = lru_cache_if_small(
    128, lambda shape, how, **_: shape[1] <= 4 * SMALL_TABLE_SAMPLES
)(_make_job)


async def _run_peaks(
    rows: SampleRows,
    prepared: PreparedRows | DeviceRows,
    call: CheckedCall,
    started_ns: int,
    plan: CallPlan,
) -> WelchPeaks:
    """Run the plan; the time of a warm run corrects the cost model that chose it."""
    caller, nan, requested_pick = call.caller, call.nan, plan.pick

    async def search(
        job: WelchJob, engine: WelchEngine
    ) -> tuple[PeakSearchOutcome, bool]:
        job_rows = own_rows
        # The first segment stands for all; only the host does that.
        if job.spec is not requested_pick.job.spec and not isinstance(rows, DeviceRows):
            job_rows = prepare_rows(rows, job.spec, caller, "propagate")
        k = job.k if job.mode == "bins" else 0
        is_warm = engine.is_ready(job_rows.x.shape, job_rows.spec, k, job.band)
        return await _search_peaks(job_rows, call, job, engine), is_warm

    try:
        if isinstance(prepared, DeviceRows):
            own_rows = await prepare_device_rows(
                prepared, requested_pick.job.spec, caller, nan
            )
        else:
            own_rows = prepared
        chosen_ns = perf_counter_ns()
        ((peaks, retained), is_warm), pick = await run_pick(
            requested_pick,
            search,
            call.strict or prepared is not own_rows,
            (plan.job, plan.engine),
        )
    except DEVICE_LOST as error:
        raise describe_device_loss(error, prepared, CONTEXT) from error.__cause__
    done_ns = perf_counter_ns()
    if pick is not requested_pick:
        plan = CallPlan.from_pick(pick)
    elif is_warm:
        pick.observe(done_ns - chosen_ns)
    times = started_ns or chosen_ns, chosen_ns, done_ns
    return _shape_peaks(peaks, call, plan, times, retained)


def _shape_peaks(
    peaks: PeaksOfPower,
    call: CheckedCall,
    plan: CallPlan,
    times: tuple[int, ...],
    retained: RetainedPower = None,
) -> WelchPeaks:
    """Return the peaks in the shape of the call."""
    pick, job, engine, _ = plan
    batch_shape = call.caller.batch_shape
    shape, heights = (*batch_shape, peaks.bins.shape[-1]), peaks.prominence
    if peaks.bins.shape != shape:
        peaks = replace(
            peaks,
            bins=peaks.bins.reshape(shape),
            hz=peaks.hz.reshape(shape),
            power=peaks.power.reshape(shape),
            count=peaks.count.reshape(batch_shape),
            prominence=None if heights is None else heights.reshape(shape),
        )
    result = WelchPeaks(
        bins=peaks.bins,
        hz=peaks.hz,
        power=peaks.power,
        count=peaks.count,
        prominence=peaks.prominence,
        fs=call.fs,
        mode=job.mode,
        device=engine.device,
        engine=engine.name,
        decision=pick.decision,
        spec=job.spec,
        times=times,
    )
    return (
        result
        if retained is None
        else replace(result, spectrum=_shape_spectrum(*retained, call, result))
    )


def _shape_spectrum(
    power: NDArray[Any], floor: RoundingFloor, call: CheckedCall, result: WelchPeaks
) -> Spectrum:
    """Return the power (B, F) that the peaks are of, in the shape of the call."""
    batch_shape = call.caller.batch_shape
    return Spectrum.of(
        call.hz,
        power.reshape(*batch_shape, len(call.hz)),
        quantity=power_quantity(call.job.spec, call.fs),
        fs=call.fs,
        ran=result.ran,
        floor=floor._replace(energy=floor.energy.reshape(batch_shape)),
    )


async def _search_peaks(
    prepared: PreparedRows, call: CheckedCall, job: WelchJob, engine: WelchEngine
) -> PeakSearchOutcome:
    """Return the peaks, and the power where the spectrum is to be retained."""
    hz, caller, band = call.hz, call.caller, call.band
    if job.mode == "bins" and not call.spectrum:
        bins, power = await engine.strongest_bins(
            prepared.x, prepared.spec, job.k, job.band
        )
        power = prepared.scaling.restore(power, caller)
        floor = prepared.scaling_on(engine.device).rounding_floor()
        return call.search.of_bins(bins, power, hz, floor), None
    power = await engine.power(prepared.x, prepared.spec, job.band)
    power = prepared.scaling.restore(power, caller)
    floor = prepared.scaling_on(engine.device).rounding_floor()
    retained = (power, floor) if call.spectrum else None
    if job.band is not None:
        extended_band = job.band
        peaks = extended_band.find_peaks_in_part(power, hz, call.search, floor)
    elif band is not None:
        peaks = band.find_peaks(power, hz, call.search, floor)
    else:
        peaks = call.search.in_spectrum(power, hz, floor)
    return peaks, retained
