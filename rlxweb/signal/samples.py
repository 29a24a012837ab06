"""What a signal function makes of what it is given: rows in time, how to take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import one_of, whole
from rlxweb.digital import Digital, is_digital
from rlxweb.errors import ShapeError, UsageError
from rlxweb.given import OnDevice, array_of
from rlxweb.host.spec import DIGITAL
from rlxweb.signal.engine import HostRows, Rows
from rlxweb.signal.precision import PRECISIONS, Precision, Taken, taken
from rlxweb.signal.rows_there import RowsThere, there


def as_array(x: Any, doing: str) -> Rows:
    """The samples as an ndarray of rank 1 or more, or the integers of a recording.

    Errors   DTypeError for what holds no numbers, a masked array among it; ShapeError
             for a single number.
    """
    if isinstance(x, Digital):
        return x
    if isinstance(x, OnDevice):
        return there(x, doing)
    array = array_of(x, doing)
    if array.ndim == 0:
        raise ShapeError(doing, "the signal is a single number", "rank >= 1")
    return array


def physical(
    x: Rows, doing: str = "a detrend function", why: str = "it is called on the host"
) -> NDArray[Any]:
    """Integers as the numbers they stand for, in float64; others as they are.

    Errors   Unsupported for samples on a device: `doing` has them here, as `why` says.
    """
    if isinstance(x, Digital):
        return x.physical()
    if isinstance(x, RowsThere):
        x = x.on_host(doing, why)
    return x.astype(np.float64) if is_digital(x.dtype) else x


def as_rows(
    x: Rows, axis: int, precision: Precision | None, doing: str
) -> tuple[Rows, tuple[int, ...], Taken]:
    """(rows [B, T], batch shape, how they are taken): the time axis last.

    The rows have the dtype they came in.

    Errors   ShapeError for a bad axis; DTypeError; UsageError.
    """
    if precision is not None:
        one_of("precision", precision, PRECISIONS, doing)
    if isinstance(x, RowsThere):
        if not x.is_on_cpu:
            rows_there = x.as_rows(checked_axis(axis, x.ndim, doing), doing)
            return rows_there, x.shape[:-1], taken(x.dtype, precision, doing)
        x = x.on_host()
    array, how = _array_taken(x, precision, doing)
    axis = checked_axis(axis, array.ndim, doing)
    if axis != array.ndim - 1:
        array = np.moveaxis(array, axis, -1)
    batch = array.shape[:-1]
    if array.shape[-1] == 0:
        raise UsageError(
            doing, "the signal has no samples", f"shape {array.shape}", "give T >= 1"
        )
    rows = array.reshape(-1, array.shape[-1])
    if how.kind != DIGITAL or not isinstance(x, Digital):
        return rows, batch, how
    if axis != x.ndim - 1:
        raise ShapeError(
            doing, f"axis {axis} of digital samples", "their time axis is the last"
        )
    return Digital(rows, x.gain.reshape(-1), x.offset.reshape(-1)), batch, how


def _array_taken(
    x: HostRows, precision: Precision | None, doing: str
) -> tuple[NDArray[Any], Taken]:
    if not isinstance(x, Digital):
        return x, taken(x.dtype, precision, doing)
    how = taken(DIGITAL, precision, doing)
    return x.counts if how.kind == DIGITAL else x.physical(), how


def checked_axis(axis: int, rank: int, doing: str) -> int:
    """The axis as 0 … rank - 1. Errors  ShapeError, UsageError."""
    own = whole("axis", axis, doing)
    if not -rank <= own < rank:
        raise ShapeError(doing, f"axis {own} is outside rank {rank}", hint="-1 is last")
    return own % rank
