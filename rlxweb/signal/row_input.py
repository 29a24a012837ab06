"""Coercion of a caller's samples to rows on the host, and of outputs back to the
caller's shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_float
from rlxweb.core.errors import UsageError
from rlxweb.signal.sample_input import as_rows, as_samples, normalize_axis, to_physical

if TYPE_CHECKING:
    from rlxweb.signal.precision import Precision, ResolvedPrecision

Array = NDArray[Any]


class RowInput(NamedTuple):
    """Samples as rows over time, with the caller's layout.

    rows   (B, T), in the type they came in; integers in the units they stand for
    batch_shape  the shape that the B rows have for the caller
    axis   where the caller has time, from 0
    sample_type  they are taken
    """

    rows: Array
    batch_shape: tuple[int, ...]
    axis: int
    sample_type: ResolvedPrecision

    def restore_layout(self, output: Array) -> Array:
        """Return an output (B, F, …) in the caller's shape, F in the place of time."""
        shaped = output.reshape(*self.batch_shape, *output.shape[1:])
        return np.moveaxis(shaped, len(self.batch_shape), self.axis)


def coerce_rows(
    x: Any, axis: int, precision: Precision | None, context: str, *, real: bool = False
) -> RowInput | None:
    """Return the rows of x (…, T, …); None where it is empty.

    real     complex samples are refused
    Errors   ShapeError for a bad axis; DTypeError; UsageError; Unsupported for samples
             that lie on a device: they are looked at on the host.
    """
    array = to_physical(
        as_samples(x, context), context, "the samples must be in host memory"
    )
    time_axis = normalize_axis(axis, array.ndim, context)
    if 0 in array.shape:
        return None
    rows, batch_shape, sample_type = as_rows(array, axis, precision, context)
    if real and sample_type.compute_dtype.startswith("complex"):
        raise UsageError(
            context,
            f"the samples are {sample_type.input_dtype}",
            "must be real",
            "pass x.real",
        )
    return RowInput(np.asarray(rows), batch_shape, time_axis, sample_type)


def require_rate(fs: object, context: str) -> float:
    """Return a sampling rate in Hz that has no default. Raises UsageError unless it is
    given and above 0.
    """
    if fs is None:
        message = "the sampling rate is unknown"
        raise UsageError(
            context, message, "an array has no sampling rate", "pass fs=HZ"
        )
    return coerce_rate(fs, context)


def coerce_rate(fs: object, context: str) -> float:
    """Return a sampling rate in Hz as a float. Raises UsageError unless it is above
    0.
    """
    rate = coerce_float("fs", fs, context)
    if rate <= 0:
        raise UsageError(context, f"fs is {rate:g}", "must be above 0")
    return rate
