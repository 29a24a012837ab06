"""Spectrogram with scipy.signal.spectrogram's signature and defaults, on any device."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlxweb.core.argument_validation import bind_arguments, check_choice, coerce_bool
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.select.chooser import PlaceRequest
from rlxweb.signal.accept_third_party_objects import accept_objects
from rlxweb.signal.custom_detrend import apply_custom_detrend, as_custom_detrend
from rlxweb.signal.frequency_bins import FrequencyLimit, bins_between
from rlxweb.signal.rounding_floor import RoundingFloor, rounding_shares
from rlxweb.signal.row_input import coerce_rate, coerce_rows
from rlxweb.signal.row_operation_runner import Array, run_info, run_row_operation
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.row_rescaling import mean_squares, rescale_rows
from rlxweb.signal.segment_length_overlap import segment_spec
from rlxweb.signal.segment_spectra_operation import SegmentOperation, restore_output
from rlxweb.signal.time_frequency_result import TimeFrequency

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.adc_samples import Digital
    from rlxweb.core.device import DeviceLike
    from rlxweb.signal.custom_detrend import CustomDetrend
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.row_preparation import NanPolicy
    from rlxweb.signal.windows import WindowLike

Mode = Literal["psd", "complex", "magnitude", "angle", "phase"]
MODES = ("psd", "complex", "magnitude", "angle", "phase")
CONTEXT = "spectrogram"


@accept_objects("x")
def spectrogram(
    x: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = ("tukey", 0.25),
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | CustomDetrend | None = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    mode: Mode = "psd",
    *,
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> TimeFrequency:
    """Spectra of consecutive segments: how the content of a signal changes with time.

    A drop-in for scipy.signal.spectrogram: f, t, Sxx = spectrogram(x, fs) means the
    same.

    Shapes   x (…, T, …) with time on `axis` → f (F,), t (S,), values (…, F, S) with
             F in the place of time and S behind all
    Units    x in U, fs in Hz → f in Hz, t in s: the middles of the segments; values in
             U²/Hz ("density") or U² ("spectrum") in mode "psd", their roots else
    noverlap nperseg // 8 where it is left out
    mode     "psd": power; "complex": the spectra themselves; "magnitude"; "angle", in
             radians; "phase": that, unwrapped from bin to bin
    fmin, fmax, precision, strict   as `welch` has them
    nan      "raise", or "propagate": segments with NaN or infinity in them are NaN, and
             no others
    Numerics float32 in → float32 (complex64) out, on any engine; all else is float64 on
             the CPU, unless precision="f32" narrows it
    Errors   UsageError for arguments outside their domain; NotFinite; DTypeError,
             Unsupported, AdapterMissing when the device asked for cannot do it
    Source   Oppenheim & Schafer, Discrete-Time Signal Processing, 10.3; conventions of
             scipy.signal.spectrogram
    """
    return run_blocking(_spectrogram(**locals()))


@accept_objects("x", like=spectrogram)
async def spectrogram_async(
    x: ArrayLike | Digital, fs: float = 1.0, *arguments: Any, **options: Any
) -> TimeFrequency:
    """Compute `spectrogram` without blocking the event loop."""
    bound_arguments = bind_arguments(
        spectrogram, "spectrogram_async", x, fs, *arguments, **options
    )
    return await await_or_offload(lambda: _spectrogram(**bound_arguments))


async def _spectrogram(
    x: ArrayLike | Digital,
    axis: int,
    mode: Mode,
    fmin: float,
    fmax: float | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    **estimate: Any,
) -> TimeFrequency:
    """Compute the spectrogram; see `spectrogram`."""
    started = perf_counter()
    check_choice("mode", mode, MODES, CONTEXT)
    check_choice("nan", nan, ("raise", "propagate"), CONTEXT)
    strict = coerce_bool("strict", strict, CONTEXT)
    fs = estimate["fs"] = coerce_rate(estimate["fs"], CONTEXT)
    row_input = coerce_rows(x, axis, precision, CONTEXT)
    if row_input is None:
        return TimeFrequency(np.empty(0), np.empty(0), np.empty(np.shape(x)))
    rows = row_input.rows
    batch_shape = row_input.batch_shape
    sample_type = row_input.sample_type
    detrend_function = as_custom_detrend(estimate["detrend"])
    estimate["detrend"] = None if detrend_function is not None else estimate["detrend"]
    spec = segment_spec(
        CONTEXT, rows.shape[1], sample_type.compute_dtype, _eighth_overlap, **estimate
    )
    hz = frequencies(spec, fs)
    band = bins_between(hz, fmin, fmax, CONTEXT, FrequencyLimit.from_rate(fs))
    starts = spec.hop * np.arange(
        spec.segments_per_row(rows.shape[1]), dtype=np.float64
    )
    caller = RowErrorContext(CONTEXT, batch_shape)
    rescaled = rescale_rows(rows, spec.dtype, caller, nan)
    energy = mean_squares(rescaled)
    if detrend_function is not None:
        rows, spec, caller = apply_custom_detrend(detrend_function, rows, spec, caller)
        rescaled = rescale_rows(rows, spec.dtype, caller, nan)
    operation = SegmentOperation("power" if mode == "psd" else "spectra", spec)
    request = PlaceRequest(device, adapter)
    out, pick = await run_row_operation(
        operation, [rescaled.x], sample_type, request, CONTEXT, strict
    )
    out = _convert_mode(restore_output(out, operation, [rescaled], caller), mode)
    if band is not None:
        hz, out = hz[band], out[..., band]
    floor = None
    if mode == "psd":
        max_energy = float(energy.max(initial=0.0))
        floor = RoundingFloor.from_energies(rounding_shares(spec), energy, max_energy)
        floor = floor if band is None else floor.select_bins(band)
        floor = floor._replace(energy=energy.reshape(batch_shape))
    # Segments behind all, bins where time was.
    values = row_input.restore_layout(np.swapaxes(out, 1, 2))
    return TimeFrequency.of(
        hz,
        (starts + spec.nperseg / 2) / fs,
        values,
        quantity=estimate["scaling"] if mode == "psd" else mode,
        axis=row_input.axis - len(batch_shape) - 2,
        fs=fs,
        ran=run_info(pick, started),
        floor=floor,
    )


def _eighth_overlap(nperseg: int) -> int:
    """Return an eighth of a segment, SciPy's default overlap of spectrograms."""
    return nperseg // 8


def _convert_mode(spectra: Array, mode: Mode) -> Array:
    """Return the values of a mode from spectra (B, S, F)."""
    out: Array = spectra
    if mode == "magnitude":
        out = np.abs(spectra)
    elif mode in ("angle", "phase"):
        out = np.angle(spectra)
    return np.unwrap(out, axis=2) if mode == "phase" else out
