"""Graph methods for sorting, searching, top-k and selecting by condition.

They have the names of NumPy and PyTorch; where the two differ the docstring says whose
meaning a name has. Nothing is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import (
    bad_dtype,
    bad_shape,
    format_shape,
    normalize_axis,
)
from rlxweb.ir.tensor import Operand, Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def argsort(
    g: Graph, x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """Return the indices (i32) that sort the elements along an axis.

    Equal values keep their order whether or not `stable` asks for it, and NaN comes
    after every number, both ways. False is below True. Errors  ShapeError.
    """
    x = g.apply("cast", x, to=DType.I32) if x.dtype is DType.BOOL else x
    return g.apply("argsort", x, axis=axis, descending=descending)


@graph_method
def sort(
    g: Graph, x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """Return the elements sorted along an axis; see `argsort`.

    PyTorch's returns the places, too: `argsort` gives those.
    """
    is_mask = x.dtype is DType.BOOL
    x = g.apply("cast", x, to=DType.I32) if is_mask else x
    sorted_x = g.apply("sort", x, axis=axis, descending=descending)
    return g.apply("cast", sorted_x, to=DType.BOOL) if is_mask else sorted_x


@graph_method
def searchsorted(
    g: Graph, a: Tensor, v: Tensor | Operand, side: str = "left"
) -> Tensor:
    """Return the insertion points (i32) of `v` in sorted rows `a`, as NumPy and
    PyTorch.

    a      [n] for values of any shape, or [..., n] for values [..., m]
    side   "left": before its equals, "right": behind them

    NaN is above every number. Rows that are not sorted give any places.
    Errors   ShapeError, DTypeError.
    """
    if not isinstance(v, Tensor):
        v = g.constant(as_array(v, "the values"), a.dtype)
    if a.rank == 1 and v.rank != 1:
        flat = g.apply("reshape", v, shape=(-1,))
        indices = g.apply("searchsorted", a, flat, side=side)
        return g.apply("reshape", indices, shape=v.shape)
    return g.apply("searchsorted", a, v, side=side)


@graph_method
def bucketize(g: Graph, x: Tensor, boundaries: Tensor, right: bool = False) -> Tensor:
    """Return the index (i32) of the bucket between sorted boundaries [n] of each
    element.

    As PyTorch's: a boundary is in the bucket that it ends, with `right` in the one
    that it begins. NumPy's digitize has it the other way round.
    """
    return g.searchsorted(boundaries, x, "right" if right else "left")


@graph_method
def nonzero(
    g: Graph, x: Tensor, size: int | None = None, fill_value: int = -1
) -> tuple[Tensor, Tensor]:
    """Return the indices of the nonzero elements, and their count.

    size   of how many the places are given; None: of all that there could be

    [...] → places [rank, size] and a count, both i32. The places are those of
    numpy.nonzero, an axis a row, in the order of the elements; behind the last
    stands `fill_value`. Where there are more than `size`, the first are given and
    the count, which is of all of them, says so.
    Errors   ShapeError, AttributeRefused.
    """
    max_count = g.node(x.id).type.numel if size is None else size
    indices = g.apply("nonzero", x, size=max_count, fill=fill_value)
    return indices, g.count_nonzero(x)


@graph_method
def compress(
    g: Graph, condition: Tensor | Operand, x: Tensor, axis: int | None = None
) -> Tensor:
    """Select the elements of an axis for which a condition [n] holds, as
    numpy.compress.

    axis   None: of the elements in their order. One that is shorter takes none of
           the rest.

    Errors   Unsupported for a condition that is computed: how many elements that
    are shows when the graph is run. ShapeError, DTypeError.
    """
    mask = _known_array(g, condition, "compress", "the condition")
    if axis is None:
        x, axis = g.apply("reshape", x, shape=(-1,)), 0
    axis = normalize_axis(axis, x.rank)
    if mask.ndim != 1 or mask.size > x.shape[axis]:
        raise bad_shape(
            f"the condition has shape {format_shape(mask.shape)}",
            f"for axis {axis} of {format_shape(x.shape)} a condition must have "
            f"rank 1 and at most {x.shape[axis]} elements",
        )
    indices = np.flatnonzero(mask).astype(np.int32)
    return g.apply("gather", x, g.constant(indices), axis=axis)


@graph_method
def unique(
    g: Graph, x: Tensor, size: int | None = None, fill_value: Any = 0
) -> tuple[Tensor, Tensor]:
    """Return the distinct values in sorted order, and their count.

    size   of how many they are given; None: of as many as there could be

    [...] → values [size] and a count (i32). Behind the last value stands
    `fill_value`. Where there are more than `size`, the first are given and the
    count, which is of all of them, says so. All NaN are one value.
    Errors   DTypeError, AttributeRefused.
    """
    if x.dtype is DType.BOOL:
        raise bad_dtype(
            "the values are bool",
            "expected numbers",
            "cast the values to an integer dtype",
        )
    flat = g.apply("reshape", x, shape=(-1,))
    n = flat.shape[0]
    sorted_x = g.apply("sort", flat, axis=0, descending=False)
    is_new = g.constant(np.ones(min(n, 1), np.bool_))
    if n > 1:
        current = g.apply("narrow", sorted_x, axis=0, start=1, length=n - 1)
        previous = g.apply("narrow", sorted_x, axis=0, start=0, length=n - 1)
        differs = g.apply("ne", current, previous)
        if x.dtype.is_float:
            previous_is_number = g.apply("eq", previous, previous)
            current_is_number = g.apply("eq", current, current)
            either_is_number = g.apply(
                "logical_or", previous_is_number, current_is_number
            )
            differs = g.apply("logical_and", differs, either_is_number)
        is_new = g.apply("concat", is_new, differs, axis=0)
    indices, count = g.nonzero(is_new, size, -1)
    positions = g.apply("reshape", indices, shape=(-1,))
    if not n:
        return g.constant(np.full(positions.shape, fill_value, x.dtype.numpy)), count
    zero = g.constant(np.zeros((), np.int32))
    values = g.apply("gather", sorted_x, g.apply("maximum", positions, zero), axis=0)
    is_present = g.apply("ge", positions, zero)
    fill = g.constant(np.asarray(fill_value), x.dtype)
    return g.apply("where", is_present, values, fill), count


@graph_method
def reverse_sequence(
    g: Graph, x: Tensor, lengths: Tensor, axis: int = 0, batch_axis: int = 1
) -> Tensor:
    """Reverse the first `lengths[item]` elements of every item of a batch.

    As ONNX's and TensorFlow's. Lengths over the axis are refused when it is run,
    since they take elements from outside. Errors  IndexRefused; ShapeError.
    """
    sequence_axis = normalize_axis(axis, x.rank)
    item_axis = normalize_axis(batch_axis, x.rank)
    if sequence_axis == item_axis or lengths.shape != (x.shape[item_axis],):
        raise bad_shape(
            f"for x {format_shape(x.shape)}, axis is {sequence_axis}, "
            f"batch_axis is {item_axis} and lengths has shape "
            f"{format_shape(lengths.shape)}",
            "lengths must have one length per batch item, and batch_axis must "
            "differ from axis",
        )
    steps = np.arange(x.shape[sequence_axis], dtype=lengths.dtype.numpy)
    positions = g.constant(
        steps.reshape([-1 if a == sequence_axis else 1 for a in range(x.rank)])
    )
    shape = [-1 if a == item_axis else 1 for a in range(x.rank)]
    ends = g.apply("reshape", lengths, shape=shape)
    unit = g.constant(np.ones((), lengths.dtype.numpy))
    reversed_positions = g.apply("sub", g.apply("sub", ends, unit), positions)
    is_within = g.apply("lt", positions, ends)
    indices = g.apply("where", is_within, reversed_positions, positions)
    expanded_shape = tuple(
        1 if a == sequence_axis else d for a, d in enumerate(x.shape)
    )
    indices = g.apply("expand", indices, shape=expanded_shape)
    return g.apply("gather_elements", x, indices, axis=sequence_axis)


def _known_array(g: Graph, value: Any, context: str, label: str) -> npt.NDArray[Any]:
    """Return the array of a given value or of a constant tensor. Errors Unsupported."""
    if not isinstance(value, Tensor):
        return as_array(value, context)
    node = g.node(value.id)
    if node.op == "constant":
        array: npt.NDArray[Any] = node.attrs["value"].array
        return array
    raise Unsupported(
        "",
        f"{label} is computed, so the number of selected elements is unknown "
        f"until the graph runs",
        "the shapes of a graph must be known before it runs",
        "use g.nonzero(condition, size=…), which returns up to `size` indices and "
        "their count",
    )


@graph_method
def topk(g: Graph, x: Tensor, k: int, axis: int = -1, largest: bool = True) -> Tensor:
    """Return the indices (i32) of the k largest or smallest elements along an axis,
    in order.

    Of equal values the smaller index comes first, and NaN after every number.
    """
    is_last = not x.rank or normalize_axis(axis, x.rank) == x.rank - 1
    if not largest:  # -1 - x turns the order of integers round and overflows none
        minuend = x.dtype.max_value if x.dtype.is_unsigned else -1
        x = g.neg(x) if x.dtype.is_float else g.sub(minuend, x)
    if is_last:
        return g.apply("topk", x, k=k)
    indices = g.apply("topk", g.moveaxis(x, axis, -1), k=k)
    return g.moveaxis(indices, -1, axis)


@graph_method
def topk_values(
    g: Graph, x: Tensor, k: int, axis: int = -1, largest: bool = True
) -> Tensor:
    """Return the values at the indices that `topk` returns, in the same order."""
    return g.gather_elements(x, g.topk(x, k, axis, largest), axis)
