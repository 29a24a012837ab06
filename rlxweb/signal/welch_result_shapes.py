"""Shape and dtype of a Welch result, derived from the arguments and the samples' shape
and dtype.

For who must know the shape of an answer before there are samples. The rules are those
of the calls themselves; nothing is computed and no device is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rlxweb.core.adc_samples import is_digital_dtype
from rlxweb.core.argument_validation import check_choice, coerce_bool, coerce_float
from rlxweb.core.device import is_auto, parse_device
from rlxweb.core.errors import UsageError
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.signal import welch, welch_peaks
from rlxweb.signal.custom_detrend import as_custom_detrend
from rlxweb.signal.frequency_bins import FrequencyLimit, bins_between
from rlxweb.signal.learned.learned_strategy import STRATEGY_NAME as LEARNED
from rlxweb.signal.learned.transform_file import load_fitting_model
from rlxweb.signal.precision import PRECISIONS, ResolvedPrecision, resolve_precision
from rlxweb.signal.welch_peaks_arguments import validate_band, validate_max_error

CallArguments = dict[str, Any]
"""Arguments of a call by name, without the samples."""


@dataclass(frozen=True, slots=True)
class DeclaredPeaks:
    """Declared result of `welch_peaks` for every row."""

    k: int
    mode: str
    fs: float
    power_dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredPower:
    """Declared result of `welch`: the frequencies, and the dtype of the power at them.

    nperseg  as it is computed: that of a short signal is shortened
    """

    hz: NDArray[np.float64]
    power_dtype: np.dtype[Any]
    nperseg: int


def declare_peaks(
    shape: tuple[int, ...], dtype: DTypeLike, axis: int, arguments: CallArguments
) -> DeclaredPeaks:
    """Declare the result of `welch_peaks` for samples of a shape, with time on `axis`,
    0 … rank - 1.

    Errors   UsageError, DTypeError: those of `welch_peaks` that need no samples.
    """
    context = welch_peaks.CONTEXT
    remaining, sample_type = _check_arguments(shape, dtype, axis, arguments, context)
    batch = _batch_shape(shape, axis)
    if not prod(batch):
        problem = f"the batch of shape {list(batch)} has no rows"
        raise UsageError(context, problem, "at least 1 row is required")
    fmin, fmax = remaining.pop("fmin"), remaining.pop("fmax")
    validate_max_error(remaining.pop("max_error"))
    model = remaining.pop("model")
    job, _ = welch_peaks.welch_peaks_job(
        (prod(batch), shape[axis]), sample_type, **remaining
    )
    hz = frequencies(job.spec, remaining["fs"])
    band = validate_band(hz, remaining["fs"], fmin, fmax, job.k)
    if model is not None or job.strategy == LEARNED:
        search_band = None if band is None else band.with_neighbours(len(hz), job.mode)
        load_fitting_model(model, replace(job, band=search_band), remaining["fs"])
    return DeclaredPeaks(job.k, job.mode, remaining["fs"], job.spec.power_dtype)


def declare_power(
    shape: tuple[int, ...], dtype: DTypeLike, axis: int, arguments: CallArguments
) -> DeclaredPower:
    """Declare the result of `welch` for samples of a shape, with time on `axis`, 0 …
    rank - 1.
    """
    remaining, sample_type = _check_arguments(
        shape, dtype, axis, arguments, welch.CONTEXT
    )
    fmin, fmax = remaining.pop("fmin"), remaining.pop("fmax")
    has_own_detrend = as_custom_detrend(arguments["detrend"]) is not None
    spec = welch.welch_spec(
        shape[axis], sample_type.compute_dtype, has_own_detrend, **remaining
    )
    hz = frequencies(spec, remaining["fs"])
    band = bins_between(
        hz, fmin, fmax, welch.CONTEXT, FrequencyLimit.from_rate(remaining["fs"])
    )
    band_hz = hz if band is None else hz[band]
    return DeclaredPower(band_hz, spec.power_dtype, spec.nperseg)


def _check_arguments(
    shape: tuple[int, ...],
    dtype: DTypeLike,
    axis: int,
    arguments: CallArguments,
    context: str,
) -> tuple[CallArguments, ResolvedPrecision]:
    """Return the checked arguments of the estimate, and how the samples are
    converted.
    """
    remaining = dict(arguments)
    detrend_function = as_custom_detrend(remaining["detrend"])
    sample_dtype = np.dtype(dtype)
    if detrend_function is not None:
        sample_dtype = (
            np.dtype(np.float64) if is_digital_dtype(sample_dtype) else sample_dtype
        )
        remaining["detrend"] = (
            None if context == welch_peaks.CONTEXT else remaining["detrend"]
        )
    if (precision := remaining.pop("precision")) is not None:
        check_choice("precision", precision, PRECISIONS, context)
    device = remaining.pop("device")
    if device is not None and not is_auto(device):
        parse_device(device)
    coerce_bool("strict", remaining.pop("strict"), context)
    check_choice("nan", remaining.pop("nan"), ("raise", "propagate"), context)
    del remaining["adapter"]
    if remaining.pop("spectrum", False):
        problem = "spectrum=True was passed"
        rule = "welch_peaks returns no spectra for chunked arrays"
        raise UsageError(context, problem, rule, "use rlxweb.dask.welch for spectra")
    sample_type = resolve_precision(sample_dtype, precision, context)
    if not shape[axis]:
        raise UsageError(
            context,
            "the signal has no samples",
            f"its shape is {shape}",
            "pass at least 1 sample",
        )
    remaining["fs"] = coerce_float("fs", remaining["fs"], context)
    return remaining, sample_type


def _batch_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return the shape without one axis."""
    return shape[:axis] + shape[axis + 1 :]
