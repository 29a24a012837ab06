"""Graph methods for reductions over axes, p-norms and argmax, under NumPy's and
PyTorch's names.

Some add the op of their name; others are put together of sums, extremes and functions
such that they hold at infinity and for nothing. Nothing is computed here.
"""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING, Any

from rlxweb.core.errors import AttributeRefused
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_methods import (
    as_bool,
    cast_like,
    graph_method,
    upcast_half,
)
from rlxweb.ir.p_norm import absolute_power, norm_root
from rlxweb.ir.shape_arithmetic import (
    Shape,
    as_integers,
    normalize_sorted_axes,
)
from rlxweb.ir.tensor import Axes, Tensor, op_context
from rlxweb.ops.reduce.op import reduced_shape

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


def _resolve_axes(x: Tensor, axes: Axes | None) -> tuple[int, ...]:
    """Return the axes counted from the front; all of them if none are named. Errors
    ShapeError.
    """
    if axes is None:
        return tuple(range(x.rank))
    return normalize_sorted_axes(as_integers(axes, "an axis"), x.rank)


@graph_method("any")
def add_any(
    g: Graph, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
) -> Tensor:
    """Test if any element is true (a number: not 0); False for no elements."""
    return _reduce_truth(g, "max", x, axes, keep_dim)


@graph_method("all")
def add_all(
    g: Graph, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
) -> Tensor:
    """Test if all elements are true (numbers: not 0); True for no elements."""
    return _reduce_truth(g, "min", x, axes, keep_dim)


def _reduce_truth(
    g: Graph, op: str, x: Tensor, axes: Axes | None, keep_dim: bool
) -> Tensor:
    """Reduce truth values by max (any) or min (all)."""
    with op_context({"max": "any", "min": "all"}[op], x):
        reduced_axes, truth = _resolve_axes(x, axes), as_bool(g, x)
    if prod(x.shape[a] for a in reduced_axes):
        return g.apply(op, truth, axes=reduced_axes, keep_dim=keep_dim)
    return g.full(reduced_shape(x.shape, reduced_axes, keep_dim), op == "min", "bool")


@graph_method
def count_nonzero(
    g: Graph, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
) -> Tensor:
    """Count the elements that are not 0 (i32), as numpy.count_nonzero."""
    ones = as_bool(g, x).cast(DType.I32)
    return g.sum(ones, axes, keep_dim)


@graph_method
def var(
    g: Graph,
    x: Tensor,
    axes: Axes | None = None,
    correction: float = 0.0,
    keep_dim: bool = False,
) -> Tensor:
    """Return the variance: the sum of squares around the mean / (n - correction).

    correction  NumPy's ddof, and 0 as there; PyTorch's is 1 when left out. Where it
                is n or more the division is by 0, as in both

    Errors   ShapeError for no elements; DTypeError unless they are floats.
    """
    reduced_axes = _resolve_axes(x, axes)
    upcast_x = upcast_half(x)
    deviation = upcast_x - g.mean(upcast_x, reduced_axes, keep_dim=True)
    sums = g.sum(deviation * deviation, reduced_axes, keep_dim)
    divisor = prod(x.shape[a] for a in reduced_axes) - float(correction)
    variance = sums / divisor if divisor > 0 else sums * g.constant(inf, sums.dtype)
    return cast_like(variance, x)


@graph_method
def std(
    g: Graph,
    x: Tensor,
    axes: Axes | None = None,
    correction: float = 0.0,
    keep_dim: bool = False,
) -> Tensor:
    """Return the square root of `var`, with slope 0 where all elements are equal.

    PyTorch has the same slope there; that of `sqrt` itself is infinite at 0.
    """
    root = norm_root(g, g.var(upcast_half(x), axes, correction, keep_dim))
    return cast_like(root, x)


@graph_method
def logsumexp(
    g: Graph, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
) -> Tensor:
    """Return log(sum(exp(x))) without overflow or underflow; -infinity for no elements.

    Errors   DTypeError unless they are floats; ShapeError.
    """
    reduced_axes = _resolve_axes(x, axes)
    if not prod(x.shape[a] for a in reduced_axes):
        return x.exp().sum(reduced_axes, keep_dim).log()
    upcast_x = upcast_half(x)
    maximum = g.max(upcast_x, reduced_axes, keep_dim=True)
    # From infinity nothing can be taken, and from a NaN nothing need be. Any
    # shift gives the same result, so derivatives take it for a constant.
    maximum = g.where(g.isfinite(maximum), maximum, 0)
    maximum = g.apply("stop_gradient", maximum)
    sums = (upcast_x - maximum).exp().sum(reduced_axes, keep_dim=True)
    result = cast_like(sums.log() + maximum, x)
    return (
        result
        if keep_dim
        else result.reshape(reduced_shape(x.shape, reduced_axes, False))
    )


@graph_method
def norm(
    g: Graph,
    x: Tensor,
    p: float = 2.0,
    axes: Axes | None = None,
    keep_dim: bool = False,
) -> Tensor:
    """Return the p-norm (sum of |x|^p)^(1 / p) of the elements over axes.

    p   any number: of 0 how many are not 0, of infinity the largest |x|, of
        -infinity the least; PyTorch's linalg.vector_norm

    The slope is 0 where all elements are 0, as in PyTorch, and |x|^p has slope 0
    at 0 for every p.

    Errors   AttributeRefused for NaN; ShapeError; DTypeError unless of floats.
    """
    if p != p:
        raise AttributeRefused("", f"p={p}", "p must not be NaN")
    reduced_axes = _resolve_axes(x, axes)
    return cast_like(_norm(g, upcast_half(x), float(p), reduced_axes, keep_dim), x)


def _norm(g: Graph, x: Tensor, p: float, reduced_axes: Shape, keep_dim: bool) -> Tensor:
    """Return the p-norm of floats over normalised axes."""
    attrs: dict[str, Any] = {"axes": reduced_axes, "keep_dim": keep_dim}
    if p == 2:
        return norm_root(g, g.apply("sum", x * x, **attrs))
    if p == 0:
        return g.apply("sum", x.ne(0).cast(x.dtype), **attrs)
    if p in (inf, -inf):
        magnitude = g.apply("abs", x)
        return g.apply("max" if p > 0 else "min", magnitude, **attrs)
    return norm_root(g, g.apply("sum", absolute_power(g, x, p), **attrs), p)


@graph_method
def argmax(
    g: Graph,
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    select_last_index: bool = False,
) -> Tensor:
    """Return the index (i32) of the largest element, as numpy.argmax: the first of
    equal ones, and of NaN.

    axis               None: of all elements in their order
    keepdims           the axis stays, with one element
    select_last_index  the last of equal ones, as ONNX may ask
    Errors   ShapeError for an axis of no elements.
    """
    return _add_arg_extreme(g, "argmax", x, axis, keepdims, select_last_index)


@graph_method
def argmin(
    g: Graph,
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    select_last_index: bool = False,
) -> Tensor:
    """Return the index (i32) of the smallest element; see `argmax`."""
    return _add_arg_extreme(g, "argmin", x, axis, keepdims, select_last_index)


def _add_arg_extreme(
    g: Graph, op: str, x: Tensor, axis: int | None, keepdims: bool, last: bool
) -> Tensor:
    """Add argmax or argmin along an axis, or over all elements."""
    if axis is not None:
        return g.apply(op, x, axis=axis, keep_dim=keepdims, last=last)
    with op_context(op, x):
        flat = x.reshape(-1)
        index = g.apply(op, flat, axis=0, last=last)
    return index.reshape((1,) * x.rank) if keepdims else index
