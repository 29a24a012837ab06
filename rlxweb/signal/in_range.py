"""Rows brought into the range of their type before a call, and their answer back.

Samples that are not finite are refused, or set aside and made NaN in the answer. Rows
whose squares would leave the range of their type are divided by powers of two, which
change no digit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice
from rlxweb.errors import UsageError
from rlxweb.host.spec import WelchSpec
from rlxweb.signal.row_calls import Array
from rlxweb.signal.scaled import (
    Caller,
    check_finite,
    divided,
    largest_of,
    sums_of_squares,
)

# Samples between these have squares, and sums of squares, that float32 holds well.
_SINGLE = (1e-13, 1e13)
_DOUBLE = (1e-120, 1e120)


class Rows(NamedTuple):
    """Rows [B, T] as an engine takes them, and how to read its answer.

    up    (B,) each row was divided by 2**up; None: none was
    bad   (B, T) samples that were not finite and are 0 now; None: all were
    """

    x: Array
    up: NDArray[np.int64] | None = None
    bad: NDArray[np.bool_] | None = None

    def at(self, numbers: NDArray[np.int64]) -> Rows:
        """Some of the rows, perhaps some of them more than once."""
        if np.array_equal(numbers, np.arange(len(self.x))):
            return self
        up = None if self.up is None else self.up[numbers]
        bad = None if self.bad is None else self.bad[numbers]
        return Rows(self.x[numbers], up, bad)

    @property
    def is_plain(self) -> bool:
        """The answer is read as it is."""
        return self.up is None and self.bad is None

    @property
    def lost(self) -> NDArray[np.bool_] | None:
        """(B,) rows with a sample that is not finite."""
        return None if self.bad is None else np.logical_or.reduce(self.bad, axis=1)

    def lost_segments(self, spec: WelchSpec) -> NDArray[np.bool_] | None:
        """(B, S) segments with a sample that is not finite."""
        if self.bad is None:
            return None
        count = spec.segments_of(self.bad.shape[1])
        before = np.zeros((len(self.bad), self.bad.shape[1] + 1), np.int64)
        np.cumsum(self.bad, axis=1, out=before[:, 1:])
        starts = np.arange(count) * spec.hop
        found: NDArray[np.bool_] = before[:, starts + spec.nperseg] > before[:, starts]
        return found


def into_range(x: Array, kind: str, caller: Caller, nan: str) -> Rows:
    """Rows [B, T] of a type, their squares within its range.

    kind    "float32", "float64", "complex64" or "complex128"
    nan     "raise", or "propagate"
    Errors  NotFinite on "raise", naming the first sample that is not.
    """
    dtype = np.dtype(kind)
    if x.size == 0:
        return Rows(x.astype(dtype, copy=False))
    largest, bad = largest_of(x), None
    if not np.isfinite(largest).all():
        if nan == "raise":
            check_finite(x, caller)
        bad = ~np.isfinite(x)
        x = np.where(bad, 0, x)
        largest = largest_of(x)
    single = kind in ("float32", "complex64")
    least, most = _SINGLE if single else _DOUBLE
    odd = (largest > 0) & ~((largest >= least) & (largest <= most))
    if not odd.any():
        return Rows(x.astype(dtype, copy=False), None, bad)
    up = np.where(odd, np.frexp(largest)[1], 0).astype(np.int64)
    return Rows(divided(x, up, kind), up, bad)


def mean_squares(rows: Rows) -> NDArray[np.float64]:
    """Mean square (B,) of each row in its own unit; NaN where a sample is not finite.

    Infinite or 0 where float64 cannot hold it.
    """
    n_samples = max(1, rows.x.shape[1])
    squares: NDArray[np.float64] = sums_of_squares(rows.x).astype(np.float64)
    squares /= n_samples
    if rows.up is not None:
        with np.errstate(over="ignore", under="ignore"):
            squares = np.ldexp(squares, 2 * rows.up)
    if rows.lost is not None:
        squares[rows.lost] = np.nan
    return squares


def times_powers(out: Array, by: NDArray[np.int64], caller: Caller) -> Array:
    """The answer [B, …] times 2**by, which broadcasts against it.

    Errors   UsageError where its type cannot hold it, naming the row.
    """
    parts = (out.real, out.imag) if out.dtype.kind == "c" else (out,)
    with np.errstate(over="ignore"):
        own = [np.ldexp(part, by) for part in parts]
    for part in own:
        bad = np.isinf(part).reshape(len(part), -1).any(axis=1)
        if bad.any():
            range_ = np.finfo(out.dtype)
            raise UsageError(
                caller.doing,
                f"the answer for {caller.channel(int(bad.argmax()))} is too large",
                f"{range_.dtype} ends at {range_.max:.2g}",
                Advice("pass {}, or scale the samples", precision="f64")
                if part.dtype == np.float32
                else "scale the samples",
            )
    whole: Array = own[0] if len(own) == 1 else own[0] + 1j * own[1]
    return whole


def restored_rows(out: Array, rows: Rows, power: int, caller: Caller) -> Array:
    """The rows' own answer [B, …], in their unit to a power. May be `out`, changed.

    A row with a sample that is not finite is NaN throughout.
    Errors   as `times_powers`.
    """
    if rows.up is not None:
        by = (power * rows.up).reshape(-1, *(1,) * (out.ndim - 1))
        out = times_powers(out, by, caller)
    if rows.lost is not None:
        out[rows.lost] = nan_of(out)
    return out


def nan_of(out: Array) -> Any:
    """What is no number in its type."""
    return complex(np.nan, np.nan) if out.dtype.kind == "c" else np.nan
