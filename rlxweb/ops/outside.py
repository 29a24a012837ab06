"""Indices outside what they index: how they are found and refused, on any library.

What an op's Guard looks for: the place of the first wrong index, as one small array, so
that engines that cannot stop in the middle can judge it afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.errors import IndexRefused
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape import Shape, bad_dtype, numel, show
from rlxweb.ops.elementwise import INTEGERS
from rlxweb.ops.kinds import numpy_dtype


def need_indices(indices: TensorType) -> None:
    """Errors  DTypeError for what is no index."""
    if indices.dtype not in INTEGERS:
        raise bad_dtype(
            f"the indices are {indices.dtype}",
            "indices are integers",
            "cast them",
        )


def first_outside(xp: Any, outside: Any, indices: Any) -> Any:
    """The place of the first index outside, or -1, and that index."""
    count = numel(indices.shape)
    if not count:
        return xp.asarray([-1, 0], dtype=xp.int64)
    outside = xp.reshape(outside, (count,))
    first = xp.argmax(xp.asarray(outside, dtype=xp.int32))
    # taken by the type that `argmax` gives: NumPy in a tab takes no int64
    found = xp.take(xp.reshape(indices, (count,)), xp.reshape(first, (1,)), axis=0)
    first = xp.asarray(first, dtype=xp.int64)
    place = xp.where(xp.any(outside), first, xp.full_like(first, -1))
    parts = [signed(xp, one) for one in (place, found)]
    return xp.concat([xp.reshape(one, (1,)) for one in parts], axis=0)


def signed(xp: Any, index: Any) -> Any:
    """Indices as int64; unsigned ones beyond it become its largest, none negative."""
    most = (1 << 63) - 1
    if numpy_dtype(xp, index) == np.uint64:
        index = xp.minimum(index, xp.asarray(most, dtype=xp.uint64))
    return xp.asarray(index, dtype=xp.int64)


def refused(
    op: str, indices: Shape, found: tuple[int, int], least: int, size: int, of: str
) -> IndexRefused:
    """The error of an index at its place among `indices`."""
    place, index = found
    position = show([int(i) for i in np.unravel_index(place, indices)])
    return IndexRefused(
        op,
        f"index {index} at position {position}",
        f"{least} <= index < {size} on {of}",
        "check the index array",
    )


def as_places(xp: Any, index: Any, most: int) -> Any:
    """Places of which the largest is below `most`, as `take` has them.

    A tab's pointers have 32 bits, and NumPy there takes no wider index.
    """
    return xp.asarray(index, dtype=xp.int32 if most < 1 << 31 else xp.int64)
