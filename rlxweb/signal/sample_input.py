"""Coercion of the samples of a signal function: rows over time, and the type they are
computed in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.adc_samples import Digital, is_digital_dtype
from rlxweb.core.argument_validation import check_choice, coerce_integer
from rlxweb.core.array_coercion import DeviceResident, as_array
from rlxweb.core.errors import ShapeError, UsageError
from rlxweb.ops.welch.spec import DIGITAL_DTYPE
from rlxweb.signal.device_resident_rows import DeviceRows, as_device_rows
from rlxweb.signal.precision import (
    PRECISIONS,
    Precision,
    ResolvedPrecision,
    resolve_precision,
)
from rlxweb.signal.welch_engine import HostRows, SampleRows


def as_samples(x: Any, context: str) -> SampleRows:
    """Return the samples as an ndarray of rank 1 or more, as the integers of a
    recording, or as rows on a device.

    Errors   DTypeError for what holds no numbers, a masked array among it; ShapeError
             for a single number.
    """
    if isinstance(x, Digital):
        return x
    if isinstance(x, DeviceResident):
        return as_device_rows(x, context)
    array = as_array(x, context)
    if array.ndim == 0:
        raise ShapeError(context, "the signal is a single number", "expected rank >= 1")
    return array


def to_physical(
    x: SampleRows,
    context: str = "custom detrend",
    reason: str = "the detrend function runs on the host",
) -> NDArray[Any]:
    """Return digital samples in physical units, in float64; other samples unchanged.

    Errors   Unsupported for samples on a device: `context` has them here, as `reason`
             says.
    """
    if isinstance(x, Digital):
        return x.physical()
    if isinstance(x, DeviceRows):
        x = x.to_host(context, reason)
    return x.astype(np.float64) if is_digital_dtype(x.dtype) else x


def as_rows(
    x: SampleRows, axis: int, precision: Precision | None, context: str
) -> tuple[SampleRows, tuple[int, ...], ResolvedPrecision]:
    """Return (rows [B, T], batch shape, sample type), with the time axis last.

    The rows have the dtype they came in.

    Errors   ShapeError for a bad axis; DTypeError; UsageError.
    """
    if precision is not None:
        check_choice("precision", precision, PRECISIONS, context)
    if isinstance(x, DeviceRows):
        if not x.is_on_cpu:
            device_rows = x.as_rows(normalize_axis(axis, x.ndim, context), context)
            return (
                device_rows,
                x.shape[:-1],
                resolve_precision(x.dtype, precision, context),
            )
        x = x.to_host()
    array, sample_type = _convert_samples(x, precision, context)
    axis = normalize_axis(axis, array.ndim, context)
    if axis != array.ndim - 1:
        array = np.moveaxis(array, axis, -1)
    batch_shape = array.shape[:-1]
    if array.shape[-1] == 0:
        raise UsageError(
            context,
            "the signal has no samples",
            f"its shape is {array.shape}",
            "pass at least 1 sample",
        )
    rows = array.reshape(-1, array.shape[-1])
    if sample_type.compute_dtype != DIGITAL_DTYPE or not isinstance(x, Digital):
        return rows, batch_shape, sample_type
    if axis != x.ndim - 1:
        raise ShapeError(
            context,
            f"axis is {axis} for digital samples",
            "time must be the last axis",
        )
    return (
        Digital(rows, x.gain.reshape(-1), x.offset.reshape(-1)),
        batch_shape,
        sample_type,
    )


def _convert_samples(
    x: HostRows, precision: Precision | None, context: str
) -> tuple[NDArray[Any], ResolvedPrecision]:
    """Return the samples as one array, and how they are converted for the
    computation.
    """
    if not isinstance(x, Digital):
        return x, resolve_precision(x.dtype, precision, context)
    sample_type = resolve_precision(DIGITAL_DTYPE, precision, context)
    return (
        x.counts if sample_type.compute_dtype == DIGITAL_DTYPE else x.physical(),
        sample_type,
    )


def normalize_axis(axis: int, rank: int, context: str) -> int:
    """Return the axis as 0 … rank - 1. Raises ShapeError or UsageError for an invalid
    one.
    """
    index = coerce_integer("axis", axis, context)
    if not -rank <= index < rank:
        raise ShapeError(
            context,
            f"axis {index} does not exist in an array of rank {rank}",
            hint="use -1 for the last axis",
        )
    return index % rank
