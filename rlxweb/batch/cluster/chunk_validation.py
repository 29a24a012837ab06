"""Validation of Dask arrays whose chunks hold whole rows.

A row's samples lie in one chunk; a row that is cut would need its neighbours, so it is
refused with the `rechunk` that mends it, and never mended in silence: that may move all
of the data.
"""

from __future__ import annotations

from math import isnan, prod
from typing import Any, TypeAlias

import dask.array as da
import numpy as np

from rlxweb.core.array_coercion import NUMERIC_KINDS
from rlxweb.core.errors import DTypeError, ShapeError, UsageError

DaskArray: TypeAlias = Any
"""Type of a `dask.array.Array`, which has no type annotations of its own."""
untyped_da: Any = da
"""The module `dask.array` as `Any`; its functions have no type annotations."""


def validate_dask_array(x: object, name: str, context: str) -> DaskArray:
    """Check that x is a Dask array of numbers with known chunks, and return it.

    Errors   DTypeError for what is no Dask array of numbers; ShapeError for a single
             number and for chunks of unknown sizes.
    """
    if not isinstance(x, da.Array):
        raise DTypeError(
            context,
            f"{name} has type {type(x).__name__}",
            "expected a dask.array",
            _conversion_hint(x, name),
        )
    if x.dtype is None or x.dtype.kind not in NUMERIC_KINDS:
        raise DTypeError(
            context, f"{name} has dtype {x.dtype}", "expected an array of numbers"
        )
    if np.ma.isMaskedArray(x._meta):
        raise DTypeError(
            context,
            f"the chunks of {name} are masked arrays",
            hint="fill the masked values first: da.ma.filled(x, value)",
        )
    if any(isnan(n) for sizes in x.chunks for n in sizes):
        raise ShapeError(
            context,
            f"the chunks of {name} have unknown sizes (shape {_format_shape(x.shape)})",
            "the number of rows of every chunk must be known",
            f"compute the sizes first: {name} = {name}.compute_chunk_sizes()",
        )
    if x.ndim == 0:
        raise ShapeError(context, f"{name} is a scalar", "expected rank >= 1")
    return x


def check_single_chunk(
    x: DaskArray, axis: int, name: str, axis_label: str, context: str
) -> None:
    """Refuse an axis that is split over several chunks.

    axis_label  the axis in words: "the time axis"
    Errors   UsageError with the `rechunk` that mends it.
    """
    sizes = x.chunks[axis]
    if len(sizes) <= 1:
        return
    chunk_text = f"{len(sizes)} chunks of {max(sizes)}"
    if len(set(sizes)) > 1:
        chunk_text = f"{len(sizes)} chunks of at most {max(sizes)}"
    raise UsageError(
        context,
        f"{axis_label} of {name}, axis {axis} of size {x.shape[axis]}, is split into "
        f"{chunk_text}",
        f"the axis must be in a single chunk of {x.shape[axis]}",
        rechunk_hint(x, {axis: -1}, name),
    )


def rechunk_hint(x: DaskArray, single_chunk_axes: dict[int, int], name: str) -> str:
    """Return the `rechunk` call that puts axes into one chunk each and keeps the chunk
    size about the same.

    single_chunk_axes  the axes, each with -1
    """
    if x.ndim == 1:
        return f"use {name}.rechunk({{0: -1}})"
    others = [
        axis
        for axis in range(x.ndim)
        if axis not in single_chunk_axes and x.shape[axis]
    ]
    growth = prod(x.shape[axis] / max(x.chunks[axis]) for axis in single_chunk_axes)
    rechunk = dict(single_chunk_axes)
    for axis in others:
        largest = max(x.chunks[axis])
        smaller = max(1, int(largest / growth))
        if smaller < largest:
            rechunk[axis], growth = smaller, growth * smaller / largest
        if growth <= 1:
            break
    required_text = ", ".join(f"{axis}: {n}" for axis, n in single_chunk_axes.items())
    text = ", ".join(f"{axis}: {n}" for axis, n in sorted(rechunk.items()))
    if text == required_text:
        return f"use {name}.rechunk({{{required_text}}})"
    return (
        f"use {name}.rechunk({{{required_text}}}), or {name}.rechunk({{{text}}}) "
        "to keep the chunk size"
    )


def _conversion_hint(x: object, name: str) -> str:
    """Return a hint on how to get a Dask array; labelled arrays, such as xarray's, hold
    one in `data`.
    """
    if isinstance(getattr(x, "data", None), da.Array):
        return f"pass {name}.data"
    return (
        f"convert it with da.from_array({name}, chunks=…); for arrays that fit in "
        "memory, use the functions of rlxweb without Dask"
    )


def _format_shape(shape: tuple[float, ...]) -> str:
    sizes = ", ".join("?" if isnan(n) else str(int(n)) for n in shape)
    return f"({sizes})"
