"""Samples as a converter gave them: integers that float32 holds, and their meaning.

Owns the record, which integers count, and the step to physical values. Knows no file,
no spectrum and no device.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from rlxweb.errors import DTypeError, NotFinite, ShapeError, UsageError
from rlxweb.given import array_of

BITS: Final = 24
"""float32 holds every integer of so many bits, and the difference of any two."""
_DOING = "digital samples"


class Digital:
    """Integers of at most 24 bits; each stands for gain · (count + offset).

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
        own = array_of(counts, _DOING)
        if own.ndim not in (1, 2):
            raise ShapeError(
                _DOING, f"the counts have shape {own.shape}", "wanted (C, T) or (T,)"
            )
        _check_integers(own)
        self.counts: NDArray[Any] = own
        self.gain = _per_row("gain", gain, own.shape[:-1])
        self.offset = _per_row("offset", offset, own.shape[:-1])
        if not self.gain.all():
            rule = "it makes one value of all samples"
            raise UsageError(_DOING, "a gain is 0", rule, "leave that row out")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.counts.shape

    @property
    def ndim(self) -> int:
        return self.counts.ndim

    def rows(self, which: slice) -> Digital:
        """Some of the rows (C, T)."""
        return Digital(self.counts[which], self.gain[which], self.offset[which])

    def physical(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """The values in physical units; computed in float64, then rounded to dtype."""
        out = np.empty(self.counts.shape, dtype)
        np.add(self.counts, self.offset[..., None], out=out, casting="same_kind")
        np.multiply(out, self.gain[..., None], out=out, casting="same_kind")
        return out

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        if copy is False:
            raise ValueError("physical values are made, so they are a copy")
        return self.physical(np.float64 if dtype is None else dtype)

    def __repr__(self) -> str:
        return f"Digital({self.counts.dtype} {self.counts.shape})"


def is_digital(dtype: np.dtype[Any]) -> bool:
    """True for the types whose every value has at most 24 bits."""
    return dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize <= BITS // 8)


def _check_integers(counts: NDArray[Any]) -> None:
    if is_digital(counts.dtype) or (not counts.size and counts.dtype.kind in "iu"):
        return
    if counts.dtype.kind not in "iu":
        raise DTypeError(
            _DOING, f"the counts are {counts.dtype}", "integers are wanted"
        )
    low, high = int(counts.min()), int(counts.max())
    if low < -(1 << BITS - 1) or high >= 1 << BITS - 1:
        raise DTypeError(
            _DOING,
            f"the counts reach from {low} to {high}",
            f"{BITS} bits hold {-(1 << BITS - 1)} to {(1 << BITS - 1) - 1}",
            "give the physical values in float64",
        )


def _per_row(name: str, given: ArrayLike, rows: tuple[int, ...]) -> NDArray[np.float64]:
    own = array_of(given, f"{_DOING}, {name}")
    if own.dtype.kind == "c":
        raise DTypeError(
            _DOING, f"the {name} is {own.dtype}", "real numbers are wanted"
        )
    own = own.astype(np.float64)
    if own.shape not in ((), rows):
        raise ShapeError(
            _DOING,
            f"the {name} has shape {own.shape}",
            f"one number, or one for each of {list(rows)} rows",
        )
    if not np.isfinite(own).all():
        raise NotFinite(_DOING, f"a {name} is not finite")
    return np.broadcast_to(own, rows)
