"""What a signal function makes of the array it is given: rows, dtype, finite or not."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rlxweb.digital import Digital
from rlxweb.errors import NotFinite, ShapeError, UsageError
from rlxweb.host.spec import DIGITAL
from rlxweb.signal.engine import Rows
from rlxweb.signal.precision import Precision, Taken, taken

NanPolicy = Literal["raise", "propagate"]


def as_rows(
    x: ArrayLike | Digital, axis: int, precision: Precision | None, doing: str
) -> tuple[Rows, tuple[int, ...], Taken]:
    """(rows [B, T], batch shape, how they are taken): the time axis last.

    Errors   ShapeError for rank 0 or a bad axis; DTypeError; UsageError.
    """
    if isinstance(x, Digital):
        how = taken(DIGITAL, precision, doing)
        array = x.counts if how.kind == DIGITAL else x.physical(how.kind)
    else:
        array = x if isinstance(x, np.ndarray) else np.asarray(x)
        how = taken(array.dtype, precision, doing)
    if array.ndim == 0:
        raise ShapeError(doing, "the signal is a single number", "rank >= 1")
    if not -array.ndim <= axis < array.ndim:
        raise ShapeError(
            doing, f"axis {axis} is outside rank {array.ndim}", hint="axis=-1 is last"
        )
    if axis not in (-1, array.ndim - 1):
        array = np.moveaxis(array, axis, -1)
    batch = array.shape[:-1]
    if array.shape[-1] == 0:
        raise UsageError(
            doing, "the signal has no samples", f"shape {array.shape}", "give T >= 1"
        )
    rows = array.reshape(-1, array.shape[-1])
    if how.kind != DIGITAL:
        return rows.astype(how.kind, copy=False), batch, how
    if not isinstance(x, Digital):
        return rows, batch, how
    if axis not in (-1, x.ndim - 1):
        raise ShapeError(
            doing, f"axis {axis} of digital samples", "their time axis is the last"
        )
    return Digital(rows, x.gain.reshape(-1), x.offset.reshape(-1)), batch, how


def refuse_nonfinite(
    rows: Rows, batch: tuple[int, ...], nan: NanPolicy, doing: str
) -> None:
    """NotFinite naming row and sample of the first NaN or infinity, on "raise"."""
    if nan == "propagate":
        return
    if nan != "raise":
        raise UsageError(doing, f"nan={nan!r}", "it is 'raise' or 'propagate'")
    if isinstance(rows, Digital) or rows.dtype.kind in "biu":
        return
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
