"""What a signal function makes of the array it is given: rows, dtype, finite or not."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlxweb.errors import NotFinite, ShapeError, UsageError
from rlxweb.host.spec import sample_dtype

_taken = lru_cache(maxsize=64)(sample_dtype)
NanPolicy = Literal["raise", "propagate"]
Precision = Literal["f32", "f64"]


def as_rows(
    x: ArrayLike, axis: int, precision: Precision | None, doing: str
) -> tuple[NDArray[Any], tuple[int, ...]]:
    """(rows [B, T], batch shape): the time axis last, all others flattened.

    float32 and complex64 stay single; everything else is taken as double unless
    `precision` is "f32". "f64" widens float32.

    Errors   ShapeError for rank 0 or a bad axis; DTypeError; UsageError.
    """
    array = x if isinstance(x, np.ndarray) else np.asarray(x)
    if array.ndim == 0:
        raise ShapeError(doing, "the signal is a single number", "rank >= 1")
    if not -array.ndim <= axis < array.ndim:
        raise ShapeError(
            doing, f"axis {axis} is outside rank {array.ndim}", hint="axis=-1 is last"
        )
    dtype = _wanted(_taken(array.dtype), precision, doing)
    if axis not in (-1, array.ndim - 1):
        array = np.moveaxis(array, axis, -1)
    batch = array.shape[:-1]
    if array.shape[-1] == 0:
        raise UsageError(
            doing, "the signal has no samples", f"shape {array.shape}", "give T >= 1"
        )
    rows = array.reshape(-1, array.shape[-1])
    return rows.astype(dtype, copy=False), batch


def _wanted(dtype: str, precision: Precision | None, doing: str) -> str:
    if precision is None:
        return dtype
    if precision not in ("f32", "f64"):
        raise UsageError(doing, f"precision={precision!r}", "it is 'f32' or 'f64'")
    pairs = {"f32": ("float32", "complex64"), "f64": ("float64", "complex128")}
    return pairs[precision][dtype.startswith("complex")]


def refuse_nonfinite(
    rows: NDArray[Any], batch: tuple[int, ...], nan: NanPolicy, doing: str
) -> None:
    """NotFinite naming row and sample of the first NaN or infinity, on "raise"."""
    if nan == "propagate":
        return
    if nan != "raise":
        raise UsageError(doing, f"nan={nan!r}", "it is 'raise' or 'propagate'")
    # A sum of squares is far cheaper than a mask; only a suspicious one is looked into.
    with np.errstate(all="ignore"):
        if rows.flags.c_contiguous:
            flat = rows.reshape(-1)
            total = flat.dot(flat)
        else:
            total = np.add.reduce(rows, axis=None)
    if np.isfinite(total):
        return
    bad = ~np.isfinite(rows)
    if not bad.any():
        return
    row, sample = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
    where = [int(i) for i in np.unravel_index(row, batch)] if batch else [0]
    which = str(where[0]) if len(where) == 1 else str(where)
    raise NotFinite(
        doing,
        f"channel {which} is {rows[row, sample]} at sample {sample}",
        f"{int(bad.sum())} of {rows.size} samples are not finite",
        "repair the data, or pass nan='propagate'",
    )
