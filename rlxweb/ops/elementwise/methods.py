"""Graph methods for gated units and for functions put together of several ops.

Those of one op come from its record (`op_methods.py`). Numbers and arrays stand beside
tensors as in arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlxweb.core.array_coercion import as_array
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.tensor import Operand, Tensor, TensorLike

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


def _add_binary(g: Graph, op: str, x: TensorLike, y: TensorLike) -> Tensor:
    return g.apply(op, *g._pair(x, y))


@graph_method
def log10(g: Graph, x: Tensor) -> Tensor:
    """Return the logarithm to base 10."""
    return g.apply("mul", g.log2(x), g.operand(0.30102999566398120, x.dtype))


@graph_method
def square(g: Graph, x: Tensor) -> Tensor:
    """Return the product of x with itself."""
    return g.apply("mul", x, x)


@graph_method
def clip(
    g: Graph, x: Tensor, min: TensorLike | None = None, max: TensorLike | None = None
) -> Tensor:
    """Limit values to at least `min` and at most `max`; None stands for no such bound.

    Bounds broadcast. Where they cross it is `max`, as in NumPy; NaN stays NaN.
    Errors   GraphError where x is no tensor, DTypeError for a bound of another
    type.
    """
    if min is not None:
        x = _add_binary(g, "maximum", x, min)
    return x if max is None else _add_binary(g, "minimum", x, max)


graph_method("clamp")(clip)


@graph_method
def relu6(g: Graph, x: Tensor) -> Tensor:
    """Return values clipped to 0 and 6, with slope 0 at both ends."""
    _, six = g._pair(x, 6)
    is_above = g.apply("ge", x, six)
    return g.apply("where", is_above, six, g.apply("relu", x))


@graph_method
def log_sigmoid(g: Graph, x: Tensor) -> Tensor:
    """Return the logarithm of sigmoid(x)."""
    return g.apply("neg", g.softplus(g.apply("neg", x)))


@graph_method
def where(
    g: Graph, condition: Tensor, x: Tensor | Operand, y: Tensor | Operand
) -> Tensor:
    """Return `x` where `condition` (bool) is true, else `y`; all three broadcast.

    Two numbers or lists become what a constant of both of them would be.
    """
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x, y = _same_dtype_constants(g, x, y)
    return g.apply("where", condition, *g._pair(x, y))


def _same_dtype_constants(g: Graph, x: Operand, y: Operand) -> tuple[Tensor, Tensor]:
    """Add two constants of one dtype: the dtype of an array, else one that holds
    both values.
    """
    context = "where with two constants"
    arrays = [as_array(value, context, allow_bfloat16=True) for value in (x, y)]
    typed_arrays = [
        a for a, v in zip(arrays, (x, y), strict=True) if hasattr(v, "dtype")
    ]
    if typed_arrays:
        dtype = as_dtype(typed_arrays[0].dtype)
    else:
        kind = np.result_type(*arrays).kind
        dtype = {"f": DType.F32, "b": DType.BOOL}.get(kind, DType.I32)
    first, second = (g.operand(value, dtype) for value in (x, y))
    return first, second


@graph_method
def cast(g: Graph, x: Tensor, dtype: DTypeLike) -> Tensor:
    """Return x in another dtype."""
    return g.apply("cast", x, to=dtype)


@graph_method
def glu(
    g: Graph,
    x: Tensor,
    axis: int = -1,
    activation: str = "sigmoid",
    gate_first: bool = False,
) -> Tensor:
    """Return the first half of an axis times activation(the second half).

    activation   "sigmoid", "silu", "gelu", "gelu_approx", "relu", "tanh" or
                 "identity"
    gate_first   the first half is the one that goes through it
    Errors   ShapeError for an odd axis, DTypeError, AttributeRefused
    Source   torch.nn.functional.glu; Shazeer 2020
    """
    return g.apply("glu", x, axis=axis, activation=activation, gate_first=gate_first)


@graph_method
def swiglu(g: Graph, x: Tensor, axis: int = -1, gate_first: bool = False) -> Tensor:
    """Return `glu` with SiLU: the first half of an axis times silu(the second)."""
    return g.glu(x, axis, "silu", gate_first)
