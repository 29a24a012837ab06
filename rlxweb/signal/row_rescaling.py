"""Rescaling of rows into the range of their type before a call, and of the answer back.

Samples that are not finite are refused, or set aside and made NaN in the answer. Rows
whose squares would leave the range of their type are divided by powers of two, which
change no digit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.row_operation_runner import Array
from rlxweb.signal.row_preparation import (
    RowErrorContext,
    check_finite,
    divide_by_powers_of_two,
    max_magnitudes,
    sums_of_squares,
)

# Samples between these have squares, and sums of squares, that float32 holds well.
_FLOAT32_RANGE = (1e-13, 1e13)
_FLOAT64_RANGE = (1e-120, 1e120)


class RescaledRows(NamedTuple):
    """Rows [B, T] as an engine takes them, with the data to restore its answer.

    exponents  (B,) each row was divided by 2**up; None: none was
    non_finite  (B, T) samples that were not finite and are 0 now; None: all were
    """

    x: Array
    exponents: NDArray[np.int64] | None = None
    non_finite: NDArray[np.bool_] | None = None

    def select_rows(self, row_indices: NDArray[np.int64]) -> RescaledRows:
        """Return rows by index; an index may occur more than once."""
        if np.array_equal(row_indices, np.arange(len(self.x))):
            return self
        exponents = None if self.exponents is None else self.exponents[row_indices]
        non_finite = None if self.non_finite is None else self.non_finite[row_indices]
        return RescaledRows(self.x[row_indices], exponents, non_finite)

    @property
    def is_unchanged(self) -> bool:
        """True where no row was rescaled and all samples are finite: the answer needs
        no correction.
        """
        return self.exponents is None and self.non_finite is None

    @property
    def invalid_rows(self) -> NDArray[np.bool_] | None:
        """Rows (B,) with a sample that is not finite."""
        return (
            None
            if self.non_finite is None
            else np.logical_or.reduce(self.non_finite, axis=1)
        )

    def invalid_segments(self, spec: WelchSpec) -> NDArray[np.bool_] | None:
        """Return the segments (B, S) with a sample that is not finite."""
        if self.non_finite is None:
            return None
        count = spec.segments_per_row(self.non_finite.shape[1])
        cumulative = np.zeros(
            (len(self.non_finite), self.non_finite.shape[1] + 1), np.int64
        )
        np.cumsum(self.non_finite, axis=1, out=cumulative[:, 1:])
        starts = np.arange(count) * spec.hop
        is_invalid: NDArray[np.bool_] = (
            cumulative[:, starts + spec.nperseg] > cumulative[:, starts]
        )
        return is_invalid


def rescale_rows(
    x: Array, dtype_name: str, caller: RowErrorContext, nan: str
) -> RescaledRows:
    """Rescale rows [B, T] so that their squares are within the range of a type.

    dtype_name  "float32", "float64", "complex64" or "complex128"
    nan     "raise", or "propagate"
    Errors  NotFinite on "raise", naming the first sample that is not.
    """
    dtype = np.dtype(dtype_name)
    if x.size == 0:
        return RescaledRows(x.astype(dtype, copy=False))
    largest, non_finite = max_magnitudes(x), None
    if not np.isfinite(largest).all():
        if nan == "raise":
            check_finite(x, caller)
        non_finite = ~np.isfinite(x)
        x = np.where(non_finite, 0, x)
        largest = max_magnitudes(x)
    is_single = dtype_name in ("float32", "complex64")
    lower, upper = _FLOAT32_RANGE if is_single else _FLOAT64_RANGE
    needs_rescaling = (largest > 0) & ~((largest >= lower) & (largest <= upper))
    if not needs_rescaling.any():
        return RescaledRows(x.astype(dtype, copy=False), None, non_finite)
    exponents = np.where(needs_rescaling, np.frexp(largest)[1], 0).astype(np.int64)
    return RescaledRows(
        divide_by_powers_of_two(x, exponents, dtype_name), exponents, non_finite
    )


def mean_squares(rows: RescaledRows) -> NDArray[np.float64]:
    """Return the mean square (B,) of each row in its own unit; NaN where a sample is
    not finite.

    Infinite or 0 where float64 cannot hold it.
    """
    n_samples = max(1, rows.x.shape[1])
    squares: NDArray[np.float64] = sums_of_squares(rows.x).astype(np.float64)
    squares /= n_samples
    if rows.exponents is not None:
        with np.errstate(over="ignore", under="ignore"):
            squares = np.ldexp(squares, 2 * rows.exponents)
    if rows.invalid_rows is not None:
        squares[rows.invalid_rows] = np.nan
    return squares


def scale_by_powers_of_two(
    answer: Array, exponents: NDArray[np.int64], caller: RowErrorContext
) -> Array:
    """Multiply the answer [B, …] by 2**exponents, which broadcasts against it.

    Errors   UsageError where its type cannot hold it, naming the row.
    """
    parts = (answer.real, answer.imag) if answer.dtype.kind == "c" else (answer,)
    with np.errstate(over="ignore"):
        scaled_parts = [np.ldexp(part, exponents) for part in parts]
    for part in scaled_parts:
        is_overflow = np.isinf(part).reshape(len(part), -1).any(axis=1)
        if is_overflow.any():
            range_ = np.finfo(answer.dtype)
            raise UsageError(
                caller.context,
                f"the result for {caller.channel(int(is_overflow.argmax()))} is "
                "too large",
                f"the largest {range_.dtype} is {range_.max:.2g}",
                Advice("pass {}, or scale the samples", precision="f64")
                if part.dtype == np.float32
                else "scale the samples",
            )
    scaled: Array = (
        scaled_parts[0]
        if len(scaled_parts) == 1
        else scaled_parts[0] + 1j * scaled_parts[1]
    )
    return scaled


def restore_rows(
    answer: Array, rows: RescaledRows, power: int, caller: RowErrorContext
) -> Array:
    """Return the answer [B, …] of the original rows, in their unit to a power. May be
    `answer`, changed.

    A row with a sample that is not finite is NaN throughout.
    Errors   as `scale_by_powers_of_two`.
    """
    if rows.exponents is not None:
        exponents = (power * rows.exponents).reshape(-1, *(1,) * (answer.ndim - 1))
        answer = scale_by_powers_of_two(answer, exponents, caller)
    if rows.invalid_rows is not None:
        answer[rows.invalid_rows] = nan_for(answer)
    return answer


def nan_for(answer: Array) -> Any:
    """Return NaN of an answer's type."""
    return complex(np.nan, np.nan) if answer.dtype.kind == "c" else np.nan
