"""Methods of every graph that belong to no op: operands, indexing, build, custom ops.

Those of ops come from their records and from `methods.py` of each family
(`op_methods.py`). Nothing here knows what an op computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import DTypeError, GraphError
from rlxweb.ir.derivative_builder import DerivativeBuilder
from rlxweb.ir.dtype import DType
from rlxweb.ir.indexing import index_tensor
from rlxweb.ir.shape_arithmetic import short_repr
from rlxweb.ir.tensor import Operand, Tensor, op_context

T = TypeVar("T")
# The dtypes of np.ones(3) and np.arange(3).
_DEFAULT_NUMPY_DTYPES = (np.dtype(np.float64), np.dtype(np.int64))


class Builder(DerivativeBuilder):
    """Base of Graph: its methods that belong to no op."""

    def _pair(self, x: Tensor | Operand, y: Tensor | Operand) -> tuple[Tensor, Tensor]:
        """Return both operands as tensors; numbers and arrays become constants of the
        other operand's dtype.
        """
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x, y
        if isinstance(x, Tensor):
            return x, self.operand(y, x.dtype)
        if isinstance(y, Tensor):
            return self.operand(x, y.dtype), y
        problem = f"neither {short_repr(x)} nor {short_repr(y)} is a tensor"
        raise GraphError("binary op", problem)

    def operand(self, value: Any, dtype: DType) -> Tensor:
        """Add a constant that is combined with a tensor of `dtype`.

        A number and a list have no type of their own: they take the tensor's, if it
        holds their values. So does an array of float64 or int64, which NumPy makes
        where nothing was asked for; any other keeps its dtype, as `constant` does.
        Errors   DTypeError.
        """
        context = f"operand {short_repr(value)} combined with a {dtype} tensor"
        array = as_array(value, context, allow_bfloat16=True)
        if (
            array.ndim
            and hasattr(value, "dtype")
            and array.dtype not in _DEFAULT_NUMPY_DTYPES
        ):
            return self.constant(array)
        # A whole number is exact in every type; a fraction in an int tensor is not.
        kinds = "biufV" if dtype.is_float else "biu" if dtype.is_integer else "b"
        is_compatible = not array.size or array.dtype.kind in kinds
        if is_compatible and dtype.is_integer and array.size:
            is_compatible = (
                dtype.min_value <= int(array.min())
                and int(array.max()) <= dtype.max_value
            )
        if not is_compatible:
            raise DTypeError(
                context,
                f"the value cannot be represented as {dtype}",
                hint="cast the tensor, or pass a value that its dtype can represent",
            )
        return self.constant(array, dtype)

    def activation(self, kind: str, x: Tensor) -> Tensor:
        """Apply a unary op by name, as RLX's `Activation(kind)`."""
        return self.apply(kind, x)

    def getitem(self, x: Tensor, key: Any) -> Tensor:
        """Return `x[key]`, as operator.getitem; see `Tensor.__getitem__`."""
        with op_context("getitem", x):
            return index_tensor(x, key)

    def build(self, how: Callable[..., T], *given: Any) -> T:
        """Call `how(graph, *given)`, which may need numbers where sizes vary.

        A loop over `range(n)`, or a table that NumPy makes: `how` is called for each
        binding, with a graph of numbers, its tensors and integers, and must build the
        same for the same. Lists and dicts in `given` and its result are gone through.
        """
        return how(self, *given)

    def custom_op(self, name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """Apply an op that the caller registered."""
        return self.apply(name, *inputs, **attrs)
