"""Welch's method with scipy.signal.welch's signature and defaults, on any device."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlxweb.core.argument_validation import (
    bind_arguments,
    check_choice,
    coerce_bool,
    coerce_float,
)
from rlxweb.gpu.coroutine_runner import is_browser, run_blocking, run_in_thread
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.results.ran import Ran, Stage
from rlxweb.select.chooser import PlaceRequest, choose_place, choose_place_async
from rlxweb.select.device_loss_retry import DEVICE_LOST
from rlxweb.signal.accept_third_party_objects import accept_objects
from rlxweb.signal.custom_detrend import apply_custom_detrend, as_custom_detrend
from rlxweb.signal.device_resident_rows import (
    DeviceRows,
    describe_device_loss,
    place_request_for,
)
from rlxweb.signal.frequency_bins import BinRange, FrequencyLimit, bins_between
from rlxweb.signal.row_preparation import (
    PreparedRows,
    RowErrorContext,
    prepare_device_rows,
    prepare_rows,
)
from rlxweb.signal.sample_input import as_rows, as_samples, normalize_axis, to_physical
from rlxweb.signal.segment_length_overlap import fit_nperseg
from rlxweb.signal.spectrum_result import Spectrum
from rlxweb.signal.welch_candidates import WelchJob, run_pick
from rlxweb.signal.welch_request import DETREND_FROM_PRESET, PRESETS, WelchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from numpy.typing import ArrayLike, NDArray

    from rlxweb.core.adc_samples import Digital
    from rlxweb.core.device import DeviceLike
    from rlxweb.ops.welch.spec import WelchSpec
    from rlxweb.select.chooser import DevicePick
    from rlxweb.signal.custom_detrend import CustomDetrend
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.row_preparation import NanPolicy
    from rlxweb.signal.welch_engine import SampleRows, WelchEngine
    from rlxweb.signal.windows import WindowLike

    WelchOutcome = tuple[Spectrum, DevicePick[WelchJob]]
    PickRunner = Callable[[DevicePick[WelchJob]], Coroutine[Any, Any, WelchOutcome]]

CONTEXT = "welch"


class _SciPyDefault(str):
    """SciPy's default value, distinguishable from the same name given by the caller."""

    __slots__ = ()


_HANN: Final = _SciPyDefault("hann")
_CONSTANT: Final = _SciPyDefault("constant")
_DENSITY: Final = _SciPyDefault("density")
_PRESET_DEFAULTS: Final = (
    ("window", None),
    ("detrend", DETREND_FROM_PRESET),
    ("scaling", None),
)


@accept_objects("x")
def welch(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = _HANN,
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | CustomDetrend | None = _CONSTANT,
    return_onesided: bool = True,
    scaling: str = _DENSITY,
    axis: int = -1,
    average: str = "mean",
    *,
    preset: str = "scipy",
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> Spectrum:
    """Power spectral density by Welch's method: mean over overlapping segments.

    A drop-in for scipy.signal.welch: what that takes is taken here, and means the same.
    An nperseg longer than the signal is shortened with a UserWarning; an empty array
    gives empty arrays.

    Shapes   x (…, T, …) with time on `axis` → freqs (F,), power with F in its place
    Units    x in U, fs in Hz → freqs in Hz, power in U²/Hz ("density") or U²
    x        an array, or a DeviceArray (float32, time last): it runs where that lies
    detrend  a name, False, or a function: segment (…, nperseg), time last → the same
             shape, called once per segment
    preset   "scipy", "mne" or "rlx", as `welch_peaks` has them: window, noverlap,
             detrend and scaling where they are left out
    fmin, fmax  only the frequencies fmin ≤ |f| ≤ fmax, in Hz; None: no end. An fmax
             beyond fs / 2 is refused
    nan      "raise", or "propagate": a row with NaN or infinity in its segments is NaN
             throughout, on every device
    Numerics float32 in → float32 out, on any engine; integers of at most 24 bits (int8
             to uint16, or a `Digital` of counts with gain and offset) are exact on any
             engine and give float64 (SciPy rounds them to float32); all else is
             float64 on the CPU, unless precision="f32" narrows it. precision="f64" asks
             for float64 throughout.
             Samples whose squares leave the range of their type are computed in a
             scaled range
    strict   True: a run that is lost with its device raises; else it is done again
             there or on the next device, unless one was asked for
    Errors   UsageError for arguments outside their domain (stricter than SciPy: a
             negative noverlap, True or 2.5 for a whole number, a window that is not
             finite), and where the power's type cannot hold the answer; NotFinite for
             NaN or infinity unless nan="propagate"; DTypeError, Unsupported,
             AdapterMissing when the asked device cannot do it
    Source   Welch 1967; conventions of scipy.signal.welch
    """
    arguments = dict(locals(), x=as_samples(x, CONTEXT))
    if 0 in arguments["x"].shape:
        return empty_spectrum(arguments["x"].shape)
    job, request, run = _prepare_call(**arguments)
    return run_blocking(run(choose_place(job, request)))[0]


def welch_and_pick(x: ArrayLike, **arguments: Any) -> WelchOutcome:
    """Compute `welch` of a non-empty array, by all its arguments; return the spectrum
    and the device pick.
    """
    job, request, run = _prepare_call(as_samples(x, CONTEXT), **arguments)
    return run_blocking(run(choose_place(job, request)))


@accept_objects("x", like=welch)
async def welch_async(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    *arguments: Any,
    device: DeviceLike | None = None,
    adapter: str = "",
    **options: Any,
) -> Spectrum:
    """Compute `welch` without blocking the event loop.

    On a desktop it runs on a thread and can be cancelled; in a browser tab the GPU is
    awaited. Takes the same arguments and gives the same result, and the same errors.
    """
    options |= {"device": device, "adapter": adapter}
    bound_arguments = bind_arguments(welch, "welch_async", x, fs, *arguments, **options)
    if not is_browser():
        return await run_in_thread(lambda: welch(**bound_arguments))
    bound_arguments["x"] = as_samples(x, CONTEXT)
    if 0 in bound_arguments["x"].shape:
        return empty_spectrum(bound_arguments["x"].shape)
    job, request, run = _prepare_call(**bound_arguments)
    return (await run(await choose_place_async(job, request)))[0]


def empty_spectrum(shape: tuple[int, ...]) -> Spectrum:
    """Return SciPy's answer to an empty array."""
    return Spectrum(np.empty(shape), np.empty(shape))


def _prepare_call(
    x: SampleRows,
    axis: int,
    fmin: float,
    fmax: float | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    **estimate: Any,
) -> tuple[WelchJob, PlaceRequest, PickRunner]:
    """Check the arguments; return the job, the place request, and the function that
    runs a pick.
    """
    started = perf_counter()
    detrend_function = as_custom_detrend(estimate["detrend"])
    rows, batch_shape, sample_type = as_rows(
        x if detrend_function is None else to_physical(x), axis, precision, CONTEXT
    )
    strict = coerce_bool("strict", strict, CONTEXT)
    estimate["fs"] = coerce_float("fs", estimate["fs"], CONTEXT)
    spec = welch_spec(
        rows.shape[1],
        sample_type.compute_dtype,
        detrend_function is not None,
        **estimate,
    )
    caller = RowErrorContext(CONTEXT, batch_shape)
    hz = frequencies(spec, estimate["fs"])
    band = bins_between(
        hz, fmin, fmax, CONTEXT, FrequencyLimit.from_rate(estimate["fs"])
    )
    prepared: PreparedRows | DeviceRows = (
        rows if isinstance(rows, DeviceRows) else prepare_rows(rows, spec, caller, nan)
    )
    if detrend_function is not None:
        assert isinstance(prepared, PreparedRows)  # `to_physical` has them on the host
        rows, spec, caller = apply_custom_detrend(
            detrend_function, np.asarray(rows), spec, caller
        )
        prepared = prepare_rows(rows, spec, caller, nan).with_floor_of(prepared)
    job = WelchJob(
        spec,
        rows.shape[0],
        rows.shape[1],
        0,
        sample_type=sample_type,
        is_on_device=isinstance(rows, DeviceRows),
        band=None if band is None else BinRange.from_bins(band),
    )
    frequency_axis = normalize_axis(axis, x.ndim, CONTEXT)
    attributes = {
        "quantity": _quantity(**estimate),
        "axis": frequency_axis - x.ndim,
        "fs": estimate["fs"],
    }
    runner = partial(
        _run_welch, prepared, caller, nan, hz, band, attributes, strict, started
    )
    if isinstance(x, DeviceRows):
        return job, place_request_for(x, device, adapter, CONTEXT), runner
    return job, PlaceRequest(device, adapter), runner


def welch_spec(
    n_samples: int, dtype: str, is_detrended: bool, **estimate: Any
) -> WelchSpec:
    """Return the estimate for rows of n_samples, by the arguments of `welch`.

    is_detrended  by a function of the caller's
    Errors     UsageError.
    """
    estimate["nperseg"] = fit_nperseg(
        estimate["window"], estimate["nperseg"], n_samples, CONTEXT
    )
    if check_choice("preset", estimate["preset"], PRESETS, CONTEXT) != "scipy":
        for name, value in _PRESET_DEFAULTS:
            if isinstance(estimate[name], _SciPyDefault):
                estimate[name] = value
    if is_detrended:
        estimate["detrend"] = None
    return WelchRequest(**estimate).spec(n_samples, dtype)


def _quantity(scaling: str | None, preset: str, **_: Any) -> str:
    """Return the name of the quantity that a scaling gives, as in `Spectrum`."""
    if scaling is None or isinstance(scaling, _SciPyDefault):
        scaling = PRESETS[preset].scaling
    return "squares" if scaling == "none" else str(scaling)


async def _run_welch(
    rows: PreparedRows | DeviceRows,
    caller: RowErrorContext,
    nan: NanPolicy,
    hz: NDArray[np.float64],
    band: NDArray[Any] | None,
    attributes: dict[str, Any],
    strict: bool,
    started: float,
    pick: DevicePick[WelchJob],
) -> WelchOutcome:
    """Run the pick; return the spectrum in the shape of the call, and the pick as it
    was run.
    """

    async def compute_power(job: WelchJob, engine: WelchEngine) -> NDArray[Any]:
        return await engine.power(prepared.x, prepared.spec, job.band)

    chosen = perf_counter()
    try:
        if isinstance(rows, DeviceRows):
            prepared = await prepare_device_rows(rows, pick.job.spec, caller, nan)
        else:
            prepared = rows
        power, pick = await run_pick(
            pick, compute_power, strict or rows is not prepared
        )
    except DEVICE_LOST as error:
        raise describe_device_loss(error, rows, CONTEXT) from error.__cause__
    power = prepared.scaling.restore(power, caller)
    if band is not None:
        hz = hz[band]
        power = power if pick.job.band is not None else power[:, band]
    shaped = power.reshape(*caller.batch_shape, len(hz))
    if attributes["axis"] != -1:
        shaped = np.moveaxis(shaped, -1, attributes["axis"])
    done = perf_counter()
    stages = Stage("choose", chosen - started), Stage("compute", done - chosen)
    ran = Ran(pick.engine, pick.decision, done - started, stages)
    floor = prepared.scaling_on(pick.device).rounding_floor()
    if band is not None:
        floor = floor.select_bins(band)
    floor = floor._replace(energy=floor.energy.reshape(caller.batch_shape))
    return Spectrum.of(hz, shaped, ran=ran, floor=floor, **attributes), pick
