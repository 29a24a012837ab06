"""Detection and rejection of out-of-range indices, on arrays of any library.

What an op's Guard looks for: the place of the first wrong index, as one small array, so
that engines that cannot stop in the middle can judge it afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.core.errors import IndexRefused
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape_arithmetic import Shape, bad_dtype, format_shape, numel
from rlxweb.ops.array_dtype_checks import numpy_dtype
from rlxweb.ops.elementwise.op import INTEGER_DTYPES


def require_index_dtype(indices: TensorType) -> None:
    """Require an integer dtype of indices. Errors  DTypeError."""
    if indices.dtype not in INTEGER_DTYPES:
        raise bad_dtype(
            f"the indices are {indices.dtype}",
            "indices must be integers",
            "cast the indices",
        )


def first_invalid_index(xp: Any, is_outside: Any, indices: Any) -> Any:
    """Return the position of the first index out of range, or -1, and that index."""
    count = numel(indices.shape)
    if not count:
        return xp.asarray([-1, 0], dtype=xp.int64)
    is_outside = xp.reshape(is_outside, (count,))
    first = xp.argmax(xp.asarray(is_outside, dtype=xp.int32))
    # taken by the type that `argmax` gives: NumPy in a tab takes no int64
    index = xp.take(xp.reshape(indices, (count,)), xp.reshape(first, (1,)), axis=0)
    first = xp.asarray(first, dtype=xp.int64)
    position = xp.where(xp.any(is_outside), first, xp.full_like(first, -1))
    parts = [as_int64(xp, part) for part in (position, index)]
    return xp.concat([xp.reshape(part, (1,)) for part in parts], axis=0)


def as_int64(xp: Any, index: Any) -> Any:
    """Return indices as int64; unsigned ones beyond its range become its largest
    value.
    """
    max_value = (1 << 63) - 1
    if numpy_dtype(xp, index) == np.uint64:
        index = xp.minimum(index, xp.asarray(max_value, dtype=xp.uint64))
    return xp.asarray(index, dtype=xp.int64)


def invalid_index_error(
    op: str,
    indices: Shape,
    invalid: tuple[int, int],
    lower_bound: int,
    size: int,
    target: str,
) -> IndexRefused:
    """Return the error of an out-of-range index, given with its flat position among
    `indices`.
    """
    flat_position, index = invalid
    position = format_shape([int(i) for i in np.unravel_index(flat_position, indices)])
    return IndexRefused(
        op,
        f"index {index} at position {position}",
        f"expected {lower_bound} <= index < {size} on {target}",
        "check the index array",
    )


def as_take_indices(xp: Any, index: Any, upper_bound: int) -> Any:
    """Return indices, all below `most`, in the dtype that `take` accepts.

    A tab's pointers have 32 bits, and NumPy there takes no wider index.
    """
    return xp.asarray(index, dtype=xp.int32 if upper_bound < 1 << 31 else xp.int64)
