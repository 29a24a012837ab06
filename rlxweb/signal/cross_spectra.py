"""Cross power spectra and coherence of two signals: `csd` and `coherence`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import bind_arguments, check_choice, coerce_bool
from rlxweb.core.errors import ShapeError
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ops.welch.cpu.cross_power_matrix import cross_power_matrix
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.chooser import PlaceRequest, is_device_named_by_env
from rlxweb.signal.accept_third_party_objects import accept_objects
from rlxweb.signal.custom_detrend import apply_custom_detrend, as_custom_detrend
from rlxweb.signal.frequency_bins import FrequencyLimit, bins_between
from rlxweb.signal.precision import ResolvedPrecision, resolve_precision
from rlxweb.signal.rounding_floor import RoundingFloor, rounding_shares
from rlxweb.signal.row_input import coerce_rate
from rlxweb.signal.row_operation_runner import Array, run_info, run_row_operation
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.row_rescaling import RescaledRows, mean_squares, rescale_rows
from rlxweb.signal.sample_input import as_rows, as_samples, normalize_axis, to_physical
from rlxweb.signal.segment_length_overlap import half_overlap, segment_spec
from rlxweb.signal.segment_spectra_operation import SegmentOperation, restore_output
from rlxweb.signal.spectrum_result import Spectrum, flat_row_mask, warn_flat_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.core.adc_samples import Digital
    from rlxweb.core.device import DeviceLike
    from rlxweb.select.chooser import DevicePick
    from rlxweb.select.graph_job import GraphJob
    from rlxweb.signal.custom_detrend import CustomDetrend
    from rlxweb.signal.precision import Precision
    from rlxweb.signal.row_preparation import NanPolicy
    from rlxweb.signal.windows import WindowLike

_HOST_ONLY_REASON = "the samples must be in host memory"
_BATCH_BYTES = 64 << 20
"""Size of the rows that are gathered pair by pair for one batch, in bytes."""


class RowPairs(NamedTuple):
    """Rows of two signals, each stored once, and the indices that pair them.

    x, y         (A, T), (C, T)
    x_index, y_index  (P,) numbers of their rows
    """

    x: RescaledRows
    y: RescaledRows
    x_index: NDArray[np.int64]
    y_index: NDArray[np.int64]

    @property
    def is_matrix(self) -> bool:
        """True where every row of x is paired with every row of y, and they are many
        and not rescaled.
        """
        a, c = len(self.x.x), len(self.y.x)
        if len(self.x_index) != a * c or len(self.x_index) <= 2 * (a + c):
            return False
        if not (self.x.is_unchanged and self.y.is_unchanged):
            return False
        return np.array_equal(self.x_index * c + self.y_index, np.arange(a * c))


@accept_objects("x", "y")
def csd(
    x: ArrayLike | Digital,
    y: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | CustomDetrend | None = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
    *,
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> Spectrum:
    """Compute the cross power spectral density by Welch's method: the mean of conj(X) ·
    Y.

    A drop-in for scipy.signal.csd.

    Shapes   x, y (…, T, …) with time on `axis`, the other axes broadcast → freqs (F,),
             power (…, F, …), complex, or real where y is x. The shorter of two signals
             is filled with zeros
    Units    x in U, y in V, fs in Hz → freqs in Hz, power in U·V/Hz ("density") or U·V
    average  "mean" or "median", which NumPy computes
    fmin, fmax, nan, precision, strict, Numerics, Errors   as `welch`; ShapeError where
             x and y do not broadcast
    Source   Welch 1967; conventions of scipy.signal.csd
    """
    return run_blocking(_compute_csd(**locals()))


@accept_objects("x", "y", like=csd)
async def csd_async(
    x: ArrayLike | Digital, y: ArrayLike | Digital, *arguments: Any, **options: Any
) -> Spectrum:
    """Run `csd` without blocking the event loop."""
    bound_arguments = bind_arguments(csd, "csd_async", x, y, *arguments, **options)
    return await await_or_offload(lambda: _compute_csd(**bound_arguments))


@accept_objects("x", "y")
def coherence(
    x: ArrayLike | Digital,
    y: ArrayLike | Digital,
    fs: float = 1.0,
    window: WindowLike | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | CustomDetrend | None = "constant",
    axis: int = -1,
    *,
    fmin: float = 0.0,
    fmax: float | None = None,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: Precision | None = None,
    nan: NanPolicy = "raise",
    strict: bool = False,
) -> Spectrum:
    """Compute the magnitude squared coherence, |Pxy|² / (Pxx · Pyy), from 0 to 1.

    A drop-in for scipy.signal.coherence. All pairs of channels at once:
    coherence(x[:, None], x[None]).

    Shapes   x, y (…, T, …) with time on `axis`, the other axes broadcast → freqs (F,),
             coherence (…, F, …)
    Numerics NaN where a signal is flat, nothing but rounding beside its mean square,
             with a UserWarning. All else as `csd`
    Source   Stoica & Moses, Spectral Analysis of Signals; conventions of
             scipy.signal.coherence
    """
    return run_blocking(_compute_coherence(**locals()))


@accept_objects("x", "y", like=coherence)
async def coherence_async(
    x: ArrayLike | Digital, y: ArrayLike | Digital, *arguments: Any, **options: Any
) -> Spectrum:
    """Run `coherence` without blocking the event loop."""
    bound_arguments = bind_arguments(
        coherence, "coherence_async", x, y, *arguments, **options
    )
    return await await_or_offload(lambda: _compute_coherence(**bound_arguments))


async def _compute_csd(**arguments: Any) -> Spectrum:
    is_auto_spectrum = arguments["y"] is arguments["x"]

    def cross_power(parts: Array) -> Array:
        real: Array = parts[..., 2, :]
        power: Array = real if is_auto_spectrum else real + 1j * parts[..., 3, :]
        return power

    return await _compute_spectrum("csd", cross_power, **arguments)


async def _compute_coherence(**arguments: Any) -> Spectrum:
    def squared_coherence(parts: Array) -> Array:
        # Squares of powers leave the range of float32 long before these do.
        parts64 = parts.astype(np.float64)
        x, y, re, im = (parts64[..., index, :] for index in range(4))
        with np.errstate(invalid="ignore", divide="ignore"):
            values: Array = (re * re + im * im) / x / y
        return values.astype(parts.dtype, copy=False)

    arguments |= {"return_onesided": True, "scaling": "density", "average": "mean"}
    return await _compute_spectrum(
        "coherence", squared_coherence, depends_on_scale=False, **arguments
    )


async def _compute_spectrum(
    context: str,
    finish: Callable[[Array], Array],
    *,
    depends_on_scale: bool = True,
    x: ArrayLike | Digital,
    y: ArrayLike | Digital,
    axis: int,
    fmin: float,
    fmax: float | None,
    device: DeviceLike | None,
    adapter: str,
    precision: Precision | None,
    nan: NanPolicy,
    strict: bool,
    **estimate: Any,
) -> Spectrum:
    """Return frequencies, and the result of `finish` over (…, 4, F): both powers, and
    the real and imaginary parts of the cross power.

    depends_on_scale  its result depends on the scale of the signals
    """
    start = perf_counter()
    check_choice("nan", nan, ("raise", "propagate"), context)
    strict = coerce_bool("strict", strict, context)
    fs = estimate["fs"] = coerce_rate(estimate["fs"], context)
    arrays = [to_physical(as_samples(x, context), context, _HOST_ONLY_REASON)]
    arrays += (
        arrays
        if y is x
        else [to_physical(as_samples(y, context), context, _HOST_ONLY_REASON)]
    )
    batch_shapes = [_batch_shape(item.shape, axis, context) for item in arrays]
    batch = _broadcast_batch(arrays, batch_shapes, context)
    result_axis = normalize_axis(axis, len(batch) + 1, context)
    if any(0 in item.shape for item in arrays):
        min_samples = min(item.shape[axis] for item in arrays)
        empty = np.moveaxis(np.empty((*batch, min_samples)), -1, result_axis)
        return Spectrum(empty, empty)
    sample_type = resolve_precision(np.result_type(*arrays), precision, context)
    rows = _pad_to_longest(
        [np.asarray(as_rows(array, axis, None, context)[0]) for array in arrays]
    )
    own_detrend_function = as_custom_detrend(estimate["detrend"])
    estimate["detrend"] = (
        None if own_detrend_function is not None else estimate["detrend"]
    )
    spec = segment_spec(
        context, rows[0].shape[1], sample_type.compute_dtype, half_overlap, **estimate
    )
    hz = frequencies(spec, fs)
    band = bins_between(hz, fmin, fmax, context, FrequencyLimit.from_rate(fs))
    rescaled, energies, spec = _rescale_signals(
        rows, batch_shapes, spec, own_detrend_function, nan, context
    )
    x_index, y_index = (_pair_row_indices(item, batch) for item in batch_shapes)
    if not depends_on_scale:
        rescaled = [item._replace(exponents=None) for item in rescaled]
    pairs = RowPairs(rescaled[0], rescaled[1], x_index, y_index)
    request, caller = PlaceRequest(device, adapter), RowErrorContext(context, batch)
    parts, pick = await _average_pairs(
        pairs, spec, sample_type, request, caller, strict
    )
    power = finish(parts)
    bins = slice(None) if band is None else band
    hz, power = hz[bins], power[..., bins]
    if not depends_on_scale:
        flat = _flat_pairs(pairs, energies, parts[..., bins], spec, bins)
        power[flat] = np.nan
        warn_flat_rows(context, flat, "the result is", "pair")
    power = power.reshape(*batch, len(hz))
    return Spectrum.of(
        hz,
        np.moveaxis(power, len(batch), result_axis),
        quantity="coherence" if context == "coherence" else "csd",
        axis=result_axis - len(batch) - 1,
        fs=fs,
        ran=run_info(pick, start),
    )


def _flat_pairs(
    pairs: RowPairs,
    energies: Sequence[NDArray[np.float64]],
    parts: Array,
    spec: WelchSpec,
    bins: Array | slice,
) -> NDArray[np.bool_]:
    """Return which pairs (P,) have a signal that holds nothing but rounding."""
    is_flat = np.zeros(len(parts), np.bool_)
    shares = rounding_shares(spec)
    for signal, row_indices in enumerate((pairs.x_index, pairs.y_index)):
        energy = energies[signal][row_indices]
        floor = RoundingFloor.from_energies(
            shares, energy, float(energy.max(initial=0.0))
        )
        is_flat |= flat_row_mask(parts[:, signal], floor.select_bins(bins), slice(None))
    return is_flat


def _rescale_signals(
    rows: Sequence[Array],
    batch_shapes: Sequence[tuple[int, ...]],
    spec: WelchSpec,
    own_detrend_function: CustomDetrend | None,
    nan: NanPolicy,
    context: str,
) -> tuple[list[RescaledRows], list[NDArray[np.float64]], WelchSpec]:
    """Return the rescaled rows of both signals, their mean squares in the same range,
    and the spec of the estimate.

    own_detrend_function  a detrend of the caller's; the mean squares are of the rows
                          before it
    """
    rescaled, energies, detrended_spec = [], [], spec
    for name, signal_rows, shape in zip("xy", rows, batch_shapes, strict=True):
        caller = RowErrorContext(f"{context}, {name}", shape)
        rescaled_rows = rescale_rows(signal_rows, spec.dtype, caller, nan)
        energy = mean_squares(rescaled_rows._replace(exponents=None))
        if own_detrend_function is not None:
            previous_exponents = rescaled_rows.exponents
            signal_rows, detrended_spec, caller = apply_custom_detrend(
                own_detrend_function, signal_rows, spec, caller
            )
            rescaled_rows = rescale_rows(signal_rows, spec.dtype, caller, nan)
            exponents = [
                0 if row_exponents is None else row_exponents
                for row_exponents in (previous_exponents, rescaled_rows.exponents)
            ]
            energy = np.ldexp(energy, 2 * (exponents[0] - exponents[1]))
        rescaled.append(rescaled_rows)
        energies.append(energy)
    return rescaled, energies, detrended_spec


def _batch_shape(shape: tuple[int, ...], axis: int, context: str) -> tuple[int, ...]:
    """Return the shape of the axes other than time."""
    time_axis = normalize_axis(axis, len(shape), context)
    return (*shape[:time_axis], *shape[time_axis + 1 :])


def _broadcast_batch(
    arrays: Sequence[Array], batch_shapes: Sequence[tuple[int, ...]], context: str
) -> tuple[int, ...]:
    """Return the shape of all pairs; raise ShapeError where the signals cannot be
    broadcast.
    """
    try:
        return np.broadcast_shapes(*batch_shapes)
    except ValueError:
        shapes = " and ".join(str(list(array.shape)) for array in arrays)
        raise ShapeError(
            context,
            f"the shapes of x and y cannot be broadcast together: {shapes}",
            "each axis except time must have the same length in x and y, or length 1 "
            "in one of them",
            "for all pairs of channels, pass x[:, None] and y[None]",
        ) from None


def _pair_row_indices(
    batch_shape: tuple[int, ...], batch: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return the row index (P,) of a signal for every pair."""
    order = np.arange(math.prod(batch_shape)).reshape(batch_shape)
    return np.broadcast_to(order, batch).reshape(-1)


def _pad_to_longest(rows: list[Array]) -> list[Array]:
    """Pad shorter rows with zeros to the longest length, as SciPy does."""
    longest = max(signal_rows.shape[1] for signal_rows in rows)
    return [
        signal_rows
        if signal_rows.shape[1] == longest
        else np.pad(signal_rows, ((0, 0), (0, longest - signal_rows.shape[1])))
        for signal_rows in rows
    ]


async def _average_pairs(
    pairs: RowPairs,
    spec: WelchSpec,
    sample_type: ResolvedPrecision,
    request: PlaceRequest,
    caller: RowErrorContext,
    strict: bool,
) -> tuple[Array, DevicePick[GraphJob] | None]:
    """Return the averages (P, 4, F) of all pairs, and the pick that computed them."""
    call = SegmentOperation("cross", spec)
    is_auto = request.named_place()[0] is None and not is_device_named_by_env()
    if pairs.is_matrix and is_auto and spec.average == "mean":
        return cross_power_matrix(pairs.x.x, pairs.y.x, spec), None
    step = max(1, _BATCH_BYTES // (pairs.x.x.itemsize * pairs.x.x.shape[1]))
    parts, pick = [], None
    for first in range(0, len(pairs.x_index), step):
        batch = slice(first, first + step)
        batch_rows = [
            pairs.x.select_rows(pairs.x_index[batch]),
            pairs.y.select_rows(pairs.y_index[batch]),
        ]
        samples = [signal_rows.x for signal_rows in batch_rows]
        output, pick = await run_row_operation(
            call, samples, sample_type, request, caller.context, strict
        )
        parts.append(restore_output(output, call, batch_rows, caller))
    return parts[0] if len(parts) == 1 else np.concatenate(parts), pick
