"""A caller's samples as rows of the host, and the answer back in the caller's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.arguments import number
from rlxweb.errors import UsageError
from rlxweb.signal.samples import as_array, as_rows, checked_axis, physical

if TYPE_CHECKING:
    from rlxweb.signal.precision import Precision, Taken

Array = NDArray[Any]


class RowsGiven(NamedTuple):
    """Samples as rows of time.

    rows   (B, T), in the type they came in; integers in the units they stand for
    batch  the shape that the B rows have for the caller
    axis   where the caller has time, from 0
    how    they are taken
    """

    rows: Array
    batch: tuple[int, ...]
    axis: int
    how: Taken

    def back(self, out: Array) -> Array:
        """An answer (B, F, …) in the caller's shape, F in the place of time."""
        shaped = out.reshape(*self.batch, *out.shape[1:])
        return np.moveaxis(shaped, len(self.batch), self.axis)


def rows_given(
    x: Any, axis: int, precision: Precision | None, doing: str, *, real: bool = False
) -> RowsGiven | None:
    """The rows of x (…, T, …); None where it holds nothing.

    real     complex samples are refused
    Errors   ShapeError for a bad axis; DTypeError; UsageError; Unsupported for samples
             that lie on a device: they are looked at on the host.
    """
    array = physical(as_array(x, doing), doing, "its samples are read on the host")
    own = checked_axis(axis, array.ndim, doing)
    if 0 in array.shape:
        return None
    rows, batch, how = as_rows(array, axis, precision, doing)
    if real and how.kind.startswith("complex"):
        raise UsageError(
            doing, f"samples of {how.given}", "real ones are wanted", "give x.real"
        )
    return RowsGiven(np.asarray(rows), batch, own, how)


def said_rate(fs: object, doing: str) -> float:
    """The same where no default would be right. Errors  UsageError for None too."""
    if fs is None:
        said = "the sampling rate is not known"
        raise UsageError(doing, said, "an array carries none", "give fs=HZ")
    return rate(fs, doing)


def rate(fs: object, doing: str) -> float:
    """A sampling rate in Hz. Errors  UsageError unless it is above 0."""
    own = number("fs", fs, doing)
    if own <= 0:
        raise UsageError(doing, f"fs is {own:g}", "it must be above 0")
    return own
