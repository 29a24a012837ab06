"""A Dask array as rows in blocks: what it must be, and which rows a block holds.

A row's samples lie in one chunk; a row that is cut would need its neighbours, so it is
refused with the `rechunk` that mends it, and never mended in silence: that may move all
of the data.
"""

from __future__ import annotations

from math import isnan, prod
from typing import Any, TypeAlias

import dask.array as da
import numpy as np

from rlxweb.errors import DTypeError, ShapeError, UsageError, shown
from rlxweb.given import NUMBERS

DaskArray: TypeAlias = Any
"""dask.array.Array, which has no types of its own."""
of_dask: Any = da
"""Functions of dask.array, which have none either."""


def as_blocks(x: object, name: str, doing: str) -> DaskArray:
    """The array, of numbers and of known chunks.

    Errors   DTypeError for what is no Dask array of numbers; ShapeError for a single
             number and for chunks of unknown sizes.
    """
    if not isinstance(x, da.Array):
        raise DTypeError(
            doing,
            f"{name} is {shown(type(x).__name__)}",
            "a dask.array is wanted",
            _made_of(x, name),
        )
    if x.dtype is None or x.dtype.kind not in NUMBERS:
        raise DTypeError(
            doing, f"{name} has dtype {x.dtype}", "an array of numbers is wanted"
        )
    if np.ma.isMaskedArray(x._meta):
        raise DTypeError(
            doing,
            f"the chunks of {name} are masked arrays",
            hint="fill them first: da.ma.filled(x, value)",
        )
    if any(isnan(n) for sizes in x.chunks for n in sizes):
        raise ShapeError(
            doing,
            f"the chunks of {name} have unknown sizes, shape {_shown_shape(x.shape)}",
            "the rows of every chunk must be known",
            f"{name} = {name}.compute_chunk_sizes() computes them",
        )
    if x.ndim == 0:
        raise ShapeError(doing, f"{name} is a single number", "rank >= 1")
    return x


def check_whole(x: DaskArray, axis: int, name: str, what: str, doing: str) -> None:
    """Refuse an axis that chunks cut.

    what     the axis in words: "the time axis"
    Errors   UsageError with the `rechunk` that mends it.
    """
    sizes = x.chunks[axis]
    if len(sizes) <= 1:
        return
    cut = f"{len(sizes)} chunks of {max(sizes)}"
    if len(set(sizes)) > 1:
        cut = f"{len(sizes)} chunks of at most {max(sizes)}"
    raise UsageError(
        doing,
        f"{what} of {name}, axis {axis} of {x.shape[axis]}, is cut into {cut}",
        f"a row must lie in one chunk of {x.shape[axis]}",
        mended(x, {axis: -1}, name),
    )


def mended(x: DaskArray, whole: dict[int, int], name: str) -> str:
    """The `rechunk` that makes axes whole and leaves chunks about as large as they are.

    whole    the axes, each with -1
    """
    if x.ndim == 1:
        return f"{name}.rechunk({{0: -1}})"
    others = [axis for axis in range(x.ndim) if axis not in whole and x.shape[axis]]
    grown = prod(x.shape[axis] / max(x.chunks[axis]) for axis in whole)
    rechunk = dict(whole)
    for axis in others:
        largest = max(x.chunks[axis])
        less = max(1, int(largest / grown))
        if less < largest:
            rechunk[axis], grown = less, grown * less / largest
        if grown <= 1:
            break
    only = ", ".join(f"{axis}: {n}" for axis, n in whole.items())
    text = ", ".join(f"{axis}: {n}" for axis, n in sorted(rechunk.items()))
    if text == only:
        return f"{name}.rechunk({{{only}}})"
    return f"{name}.rechunk({{{only}}}), or {name}.rechunk({{{text}}}) for chunks of \
the size they have"


def _made_of(x: object, name: str) -> str:
    """How to come by a Dask array; arrays with labels, as of xarray, hold theirs."""
    if isinstance(getattr(x, "data", None), da.Array):
        return f"{name}.data is one"
    return (
        f"da.from_array({name}, chunks=…) makes one; rlxweb's own functions take "
        "arrays that fit into memory"
    )


def _shown_shape(shape: tuple[float, ...]) -> str:
    sizes = ", ".join("?" if isnan(n) else str(int(n)) for n in shape)
    return f"({sizes})"
