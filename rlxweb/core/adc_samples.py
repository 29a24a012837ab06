"""Integer samples of an analog-to-digital converter with their gain and offset.

Owns the record, which integers count, and the step to physical values. Knows no file,
no spectrum and no device.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import DTypeError, NotFinite, ShapeError, UsageError

MAX_BITS: Final = 24
"""float32 represents every integer of this many bits, and the difference of any two."""
_CONTEXT = "digital samples"


class Digital:
    """Integers of at most 24 bits; each represents gain · (count + offset).

    counts   (C, T) or (T,); wider integer types are taken when the values fit
    gain     in physical units per count: one number, or one per row
    offset   in counts: one number, or one per row
    Errors   ShapeError; DTypeError for what is no integer or has more bits; NotFinite
             for a gain or an offset; UsageError for a gain of 0

    An array of the physical values, in float64, wherever NumPy asks for one.
    """

    __slots__ = ("counts", "gain", "offset")

    def __init__(
        self, counts: ArrayLike, gain: ArrayLike = 1.0, offset: ArrayLike = 0.0
    ) -> None:
        array = as_array(counts, _CONTEXT)
        if array.ndim not in (1, 2):
            raise ShapeError(
                _CONTEXT,
                f"the counts have shape {array.shape}",
                "expected shape (channels, samples) or (samples,)",
            )
        _check_integers(array)
        self.counts: NDArray[Any] = array
        self.gain = _row_values("gain", gain, array.shape[:-1])
        self.offset = _row_values("offset", offset, array.shape[:-1])
        if not self.gain.all():
            rule = "a gain of 0 gives the same value for all samples"
            raise UsageError(
                _CONTEXT, "a gain is 0", rule, "omit each row whose gain is 0"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the counts: (C, T) or (T,)."""
        return self.counts.shape

    @property
    def ndim(self) -> int:
        """Number of axes of the counts."""
        return self.counts.ndim

    def rows(self, which: slice) -> Digital:
        """Return some of the rows of samples of shape (C, T)."""
        return Digital(self.counts[which], self.gain[which], self.offset[which])

    def physical(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return the values in physical units, computed in float64 and rounded to
        dtype.
        """
        out = np.empty(self.counts.shape, dtype)
        np.add(self.counts, self.offset[..., None], out=out, casting="same_kind")
        np.multiply(out, self.gain[..., None], out=out, casting="same_kind")
        return out

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        if copy is False:
            raise ValueError(
                "the physical values are computed from the counts, so copy=False is "
                "not possible"
            )
        return self.physical(np.float64 if dtype is None else dtype)

    def __repr__(self) -> str:
        return f"Digital({self.counts.dtype} {self.counts.shape})"


def is_digital_dtype(dtype: np.dtype[Any]) -> bool:
    """Return whether every value of the dtype has at most 24 bits."""
    return dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize <= MAX_BITS // 8)


def _check_integers(counts: NDArray[Any]) -> None:
    """Raise DTypeError for counts that are not integers of at most 24 bits."""
    if is_digital_dtype(counts.dtype) or (
        not counts.size and counts.dtype.kind in "iu"
    ):
        return
    if counts.dtype.kind not in "iu":
        raise DTypeError(
            _CONTEXT, f"the counts have dtype {counts.dtype}", "expected integers"
        )
    low, high = int(counts.min()), int(counts.max())
    if low < -(1 << MAX_BITS - 1) or high >= 1 << MAX_BITS - 1:
        raise DTypeError(
            _CONTEXT,
            f"the counts range from {low} to {high}",
            f"counts must be {MAX_BITS}-bit integers, from {-(1 << MAX_BITS - 1)} to "
            f"{(1 << MAX_BITS - 1) - 1}",
            "pass the physical values as float64",
        )


def _row_values(
    name: str, values: ArrayLike, rows: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return a gain or offset as float64, one per row."""
    array = as_array(values, f"{_CONTEXT}, {name}")
    if array.dtype.kind == "c":
        raise DTypeError(
            _CONTEXT, f"the {name} has dtype {array.dtype}", "expected real numbers"
        )
    array = array.astype(np.float64)
    if array.shape not in ((), rows):
        raise ShapeError(
            _CONTEXT,
            f"the {name} has shape {array.shape}",
            f"expected one number, or one per row of the counts (shape {rows})",
        )
    if not np.isfinite(array).all():
        raise NotFinite(_CONTEXT, f"a {name} is not finite")
    return np.broadcast_to(array, rows)
