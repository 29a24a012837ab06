"""Graph methods that create tensors: constants, sequences, triangles and one-hot
rows.

They have the names of NumPy and PyTorch. What repeats is a view of one number, and what
depends on the place is computed of the places along the axes, so that none of it takes
room in the graph; sequences are constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import AttributeRefused
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import (
    as_integer,
    as_integers,
    bad_shape,
    normalize_axis,
)
from rlxweb.ir.tensor import Axes, Tensor, TensorLike, op_context

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

MAX_SEQUENCE_LENGTH = 1 << 31
"""Maximum number of elements of a sequence."""


@graph_method
def full(g: Graph, shape: Axes, value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor with one number everywhere, also that of a tensor; a view of it.

    dtype   None: the number's own, f32 for a Python float and i32 for an int
    Errors  ShapeError for more than one number, DTypeError.
    """
    dims = as_integers(shape, "a dimension")
    if isinstance(value, Tensor):
        scalar = value if dtype is None else value.cast(dtype)
    else:
        scalar = g.constant(value, dtype)
    if scalar.rank:
        raise bad_shape(f"full with {scalar!r}", "expected a scalar (shape [])")
    return g.apply("expand", scalar, shape=dims)


@graph_method
def zeros(g: Graph, shape: Axes, dtype: DTypeLike = "f32") -> Tensor:
    """Return a tensor of zeros."""
    return g.full(shape, 0, dtype)


@graph_method
def ones(g: Graph, shape: Axes, dtype: DTypeLike = "f32") -> Tensor:
    """Return a tensor of ones."""
    return g.full(shape, 1, dtype)


@graph_method
def full_like(
    g: Graph, x: Tensor, value: Any, dtype: DTypeLike | None = None
) -> Tensor:
    """Return one number in the shape of x, and in its dtype unless another is named."""
    return g.full(x.shape, value, x.dtype if dtype is None else dtype)


@graph_method
def zeros_like(g: Graph, x: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return zeros in the shape of x, and in its dtype unless another is named."""
    return g.full_like(x, 0, dtype)


@graph_method
def ones_like(g: Graph, x: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return ones in the shape of x, and in its dtype unless another is named."""
    return g.full_like(x, 1, dtype)


@graph_method
def arange(
    g: Graph,
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return the numbers from start to before stop, as numpy.arange.

    One number is the stop, and the start is 0 then.
    dtype   None: i32 of ints, f32 where one is a float
    Errors  AttributeRefused for a step of 0; DTypeError for numbers the type has
    not.
    """
    first, last = (0, start) if stop is None else (start, stop)
    arguments = (first, last, step)
    context = f"arange{tuple(arguments)}"
    if not all(isinstance(v, int | float | np.number) for v in arguments):
        raise AttributeRefused(context, "the bounds and the step must be numbers")
    if step == 0 or not all(np.isfinite(arguments)):
        raise AttributeRefused(
            context,
            "the sequence is infinite",
            "the bounds must be finite and the step must not be 0",
        )
    if abs(last - first) / abs(step) > MAX_SEQUENCE_LENGTH:
        raise AttributeRefused(
            context,
            "the sequence is too long",
            "the graph stores a sequence as a constant of at most "
            f"{MAX_SEQUENCE_LENGTH:,} numbers",
        )
    is_integral = not any(isinstance(v, float | np.floating) for v in arguments)
    default_dtype = DType.I32 if is_integral else DType.F32
    numpy_dtype = np.int64 if is_integral else np.float64
    numbers = np.arange(first, last, step, dtype=numpy_dtype)
    return g.constant(numbers, default_dtype if dtype is None else dtype)


@graph_method
def linspace(
    g: Graph,
    start: float,
    stop: float,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike = "f32",
) -> Tensor:
    """Return `num` evenly spaced numbers from start to stop, as numpy.linspace."""
    count = as_integer(num, "num")
    if not 0 <= count <= MAX_SEQUENCE_LENGTH:
        raise bad_shape(
            f"linspace with num={count}",
            f"num must be 0 to {MAX_SEQUENCE_LENGTH:,}",
        )
    numbers = np.linspace(float(start), float(stop), count, endpoint)
    return g.constant(numbers, dtype)


@graph_method
def eye(
    g: Graph, n: int, m: int | None = None, k: int = 0, dtype: DTypeLike = "f32"
) -> Tensor:
    """Return a matrix of n rows and m columns with 1 on the k-th diagonal and 0
    elsewhere, as numpy.eye.
    """
    rows = as_integer(n, "n")
    columns = rows if m is None else as_integer(m, "m")
    offsets = _diagonal_offsets(g, rows, columns)
    return g.apply("eq", offsets, _diagonal_number(g, k)).cast(as_dtype(dtype))


@graph_method
def tril(g: Graph, x: Tensor, k: Any = 0) -> Tensor:
    """Return x with 0 above the k-th diagonal of its last two axes, as numpy.tril.

    k   an integer, or a tensor of one
    Errors   ShapeError below two axes; DTypeError.
    """
    return _triangle(g, "tril", "le", x, k)


@graph_method
def triu(g: Graph, x: Tensor, k: Any = 0) -> Tensor:
    """Return x with 0 below the k-th diagonal of its last two axes; see `tril`."""
    return _triangle(g, "triu", "ge", x, k)


def _triangle(g: Graph, name: str, comparison: str, x: Tensor, k: Any) -> Tensor:
    """Return x with 0 where an element's diagonal does not compare to `k` as
    required.
    """
    with op_context(name, x):
        if x.rank < 2:
            raise bad_shape(
                f"the array has rank {x.rank}",
                "expected at least rank 2",
            )
        is_inside = g.apply(
            comparison,
            _diagonal_offsets(g, *x.shape[-2:]),
            _diagonal_number(g, k),
        )
        return g.where(is_inside, x, g.constant(0, x.dtype))


def _diagonal_offsets(g: Graph, rows: int, columns: int) -> Tensor:
    """Return each matrix element's distance to the right of the main diagonal (i32)."""
    row = g.arange(rows).reshape(rows, 1)
    return g.arange(columns).reshape(1, columns) - row


def _diagonal_number(g: Graph, k: Any) -> Tensor:
    """Return the number of a diagonal as an i32 tensor of one element."""
    if not isinstance(k, Tensor):
        bound = MAX_SEQUENCE_LENGTH - 1
        return g.constant(min(max(as_integer(k, "k"), -bound), bound), DType.I32)
    if k.dtype is DType.BOOL or k.dtype.is_float or k.shape not in ((), (1,)):
        raise bad_shape(f"k is {k!r}", "k must be a single integer")
    return k.cast(DType.I32).reshape(())


@graph_method
def one_hot(
    g: Graph,
    indices: Tensor,
    num_classes: int,
    on_value: TensorLike = 1,
    off_value: TensorLike = 0,
    axis: int = -1,
    dtype: DTypeLike = "f32",
) -> Tensor:
    """Return a new axis with `on_value` at the position that an index names, else
    `off_value`.

    axis        where the new axis stands in the result
    on_value, off_value   numbers, or tensors of one each, which say the dtype

    A negative index counts from the end; of one outside no place is named, as in
    ONNX. Errors  DTypeError unless the indices are integers; ShapeError.
    """
    depth = as_integer(num_classes, "num_classes")
    if not indices.dtype.is_integer or depth < 0:
        raise bad_shape(
            f"num_classes={depth} with {indices.dtype} indices",
            "num_classes must be >= 0 and the indices must be integers",
        )
    new_axis = normalize_axis(axis, indices.rank + 1)
    shape = (*indices.shape[:new_axis], 1, *indices.shape[new_axis:])
    positions = indices.reshape(shape)
    if not indices.dtype.is_unsigned:
        positions = g.where(positions < 0, positions + depth, positions)
    classes = g.arange(depth, dtype=indices.dtype)
    is_hit = positions.eq(classes.reshape((depth, *(1,) * (indices.rank - new_axis))))
    on_tensor, off_tensor = (_as_scalar(g, v, dtype) for v in (on_value, off_value))
    return g.where(is_hit, on_tensor, off_tensor)


def _as_scalar(g: Graph, value: TensorLike, dtype: DTypeLike) -> Tensor:
    """Return a number, or a tensor of one element, as a scalar tensor."""
    if not isinstance(value, Tensor):
        return g.constant(value, dtype)
    if value.shape not in ((), (1,)):
        raise bad_shape(
            f"on_value or off_value is {value!r}",
            "expected a tensor with one element, of shape [] or [1]",
        )
    return value.reshape(())
