"""The named builder methods of a graph, after RLX's Python binding.

Each method adds one registered op by name (plus, where RLX returns a pair, the two
narrows that split it). The underscore names (`reshape_`, `narrow_` …) and the short
ones (`mm`, `sm`, `ln`) are RLX's. Nothing here knows what an op computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlxweb.errors import DTypeError, GraphError
from rlxweb.ir.dtype import DType, DTypeLike
from rlxweb.ir.spectral_builder import SpectralBuilder
from rlxweb.ir.tensor import Number, Tensor

Axes = int | Sequence[int] | None


class Builder(SpectralBuilder, ABC):
    """Builder methods over `apply`; mixed into Graph."""

    @abstractmethod
    def constant(self, value: Any, dtype: DTypeLike | None = None) -> Tensor: ...

    def _pair(self, x: Tensor | Number, y: Tensor | Number) -> tuple[Tensor, Tensor]:
        """Numbers become constants of the other operand's dtype."""
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x, y
        if isinstance(x, Tensor):
            return x, self._scalar(y, x.dtype)
        if isinstance(y, Tensor):
            return self._scalar(x, y.dtype), y
        raise GraphError("binary op", f"neither {x!r} nor {y!r} is a tensor")

    def _scalar(self, value: Any, dtype: DType) -> Tensor:
        # A whole number is exact in every type; a fraction in an int tensor is not.
        array = np.asarray(value)
        fits = array.ndim == 0 and (
            dtype.is_float
            or (array.dtype.kind in "iu" and dtype.is_integer)
            or array.dtype.kind == "b"
        )
        if fits and dtype.is_integer:
            bounds = np.iinfo(dtype.numpy)
            fits = bounds.min <= int(array) <= bounds.max
        if not fits:
            raise DTypeError(
                f"operand {value!r} beside a {dtype} tensor",
                f"it is not a {dtype} number",
                hint="cast the tensor, or pass a value its type can hold",
            )
        return self.constant(array, dtype)

    def add(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("add", *self._pair(x, y))

    def sub(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("sub", *self._pair(x, y))

    def mul(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("mul", *self._pair(x, y))

    def div(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("div", *self._pair(x, y))

    def maximum(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("maximum", *self._pair(x, y))

    def minimum(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("minimum", *self._pair(x, y))

    def pow(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("pow", *self._pair(x, y))

    def eq(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("eq", *self._pair(x, y))

    def ne(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("ne", *self._pair(x, y))

    def lt(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("lt", *self._pair(x, y))

    def le(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("le", *self._pair(x, y))

    def gt(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("gt", *self._pair(x, y))

    def ge(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        return self.apply("ge", *self._pair(x, y))

    def where(
        self, condition: Tensor, x: Tensor | Number, y: Tensor | Number
    ) -> Tensor:
        """`x` where `condition` (bool) holds, else `y`; all three broadcast."""
        return self.apply("where", condition, *self._pair(x, y))

    def cast(self, x: Tensor, dtype: DTypeLike) -> Tensor:
        return self.apply("cast", x, to=dtype)

    def activation(self, kind: str, x: Tensor) -> Tensor:
        """Any unary op by name, as RLX's `Activation(kind)`."""
        return self.apply(kind, x)

    def gelu(self, x: Tensor) -> Tensor:
        return self.apply("gelu", x)

    def gelu_approx(self, x: Tensor) -> Tensor:
        return self.apply("gelu_approx", x)

    def silu(self, x: Tensor) -> Tensor:
        return self.apply("silu", x)

    def relu(self, x: Tensor) -> Tensor:
        return self.apply("relu", x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return self.apply("sigmoid", x)

    def tanh(self, x: Tensor) -> Tensor:
        return self.apply("tanh", x)

    def exp(self, x: Tensor) -> Tensor:
        return self.apply("exp", x)

    def log(self, x: Tensor) -> Tensor:
        return self.apply("log", x)

    def sqrt(self, x: Tensor) -> Tensor:
        return self.apply("sqrt", x)

    def rsqrt(self, x: Tensor) -> Tensor:
        return self.apply("rsqrt", x)

    def neg(self, x: Tensor) -> Tensor:
        return self.apply("neg", x)

    def abs(self, x: Tensor) -> Tensor:
        return self.apply("abs", x)

    def sin(self, x: Tensor) -> Tensor:
        return self.apply("sin", x)

    def cos(self, x: Tensor) -> Tensor:
        return self.apply("cos", x)

    def tan(self, x: Tensor) -> Tensor:
        return self.apply("tan", x)

    def atan(self, x: Tensor) -> Tensor:
        return self.apply("atan", x)

    def round(self, x: Tensor) -> Tensor:
        """To the nearest whole number, halves to even."""
        return self.apply("round", x)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return self.apply("reshape", x, shape=tuple(shape))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        return self.apply("transpose", x, perm=tuple(perm))

    def narrow(self, x: Tensor, axis: int, start: int, length: int) -> Tensor:
        return self.apply("narrow", x, axis=axis, start=start, length=length)

    def concat(self, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
        return self.apply("concat", *xs, axis=axis)

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return self.apply("expand", x, shape=tuple(shape))

    def gather(self, table: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        """`table.dims[:axis] ++ indices.dims ++ table.dims[axis+1:]`, as np.take."""
        return self.apply("gather", table, indices, axis=axis)

    def _reduce(self, kind: str, x: Tensor, axes: Axes, keep_dim: bool) -> Tensor:
        every = tuple(range(x.rank)) if axes is None else axes
        return self.apply(kind, x, axes=every, keep_dim=keep_dim)

    def sum(self, x: Tensor, axes: Axes = None, keep_dim: bool = False) -> Tensor:
        return self._reduce("sum", x, axes, keep_dim)

    def mean(self, x: Tensor, axes: Axes = None, keep_dim: bool = False) -> Tensor:
        return self._reduce("mean", x, axes, keep_dim)

    def max(self, x: Tensor, axes: Axes = None, keep_dim: bool = False) -> Tensor:
        return self._reduce("max", x, axes, keep_dim)

    def min(self, x: Tensor, axes: Axes = None, keep_dim: bool = False) -> Tensor:
        return self._reduce("min", x, axes, keep_dim)

    def prod(self, x: Tensor, axes: Axes = None, keep_dim: bool = False) -> Tensor:
        return self._reduce("prod", x, axes, keep_dim)

    def softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        return self.apply("softmax", x, axis=axis)

    def cumsum(self, x: Tensor, axis: int = -1, exclusive: bool = False) -> Tensor:
        return self.apply("cumsum", x, axis=axis, exclusive=exclusive)

    def topk(self, x: Tensor, k: int) -> Tensor:
        """Indices (i32) of the k largest along the last axis, ties to the smaller."""
        return self.apply("topk", x, k=k)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.apply("matmul", x, y)

    def fused_matmul_bias_act(
        self, x: Tensor, w: Tensor, bias: Tensor, activation: str | None = None
    ) -> Tensor:
        return self.apply("fused_matmul_bias_act", x, w, bias, activation=activation)

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        num_heads: int,
        head_dim: int,
        mask_kind: str = "none",
        window: int = 0,
        score_scale: float | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """Scaled dot-product attention; `mask` for mask_kind "custom" and "bias"."""
        operands = (q, k, v) if mask is None else (q, k, v, mask)
        return self.apply(
            "attention",
            *operands,
            num_heads=num_heads,
            head_dim=head_dim,
            mask_kind=mask_kind,
            window=window,
            score_scale=score_scale,
            softcap=softcap,
        )

    def layer_norm(
        self, x: Tensor, gamma: Tensor, beta: Tensor, axis: int = -1, eps: float = 1e-5
    ) -> Tensor:
        return self.apply("layer_norm", x, gamma, beta, axis=axis, eps=eps)

    def rms_norm(
        self, x: Tensor, gamma: Tensor, beta: Tensor, axis: int = -1, eps: float = 1e-5
    ) -> Tensor:
        return self.apply("rms_norm", x, gamma, beta, axis=axis, eps=eps)

    def custom_op(self, name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """An op the user registered."""
        return self.apply(name, *inputs, **attrs)

    mm = matmul
    sm = softmax
    ln = log
    reshape_ = reshape
    transpose_ = transpose
    narrow_ = narrow
    concat_ = concat
    gather_ = gather
    attention_ = attention
