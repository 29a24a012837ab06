"""The named builder methods of a graph, after RLX's Python binding.

Each method adds one registered op by name (plus, where RLX returns a pair, the two
narrows that split it). Nothing here knows what an op computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rlxweb.errors import DTypeError, GraphError
from rlxweb.given import array_of
from rlxweb.ir.adding import adding
from rlxweb.ir.attention_builder import AttentionBuilder
from rlxweb.ir.derivative_builder import DerivativeBuilder
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.indexing import indexed
from rlxweb.ir.linalg_builder import LinalgBuilder
from rlxweb.ir.norm_builder import NormBuilder
from rlxweb.ir.order_builder import OrderBuilder
from rlxweb.ir.packed_builder import PackedBuilder
from rlxweb.ir.picks_builder import PicksBuilder
from rlxweb.ir.product_builder import ProductBuilder
from rlxweb.ir.quantize_builder import QuantizeBuilder
from rlxweb.ir.reduce_builder import ReduceBuilder
from rlxweb.ir.region_builder import RegionBuilder
from rlxweb.ir.resize_builder import ResizeBuilder
from rlxweb.ir.sequence_builder import SequenceBuilder
from rlxweb.ir.shape import normal_axis, short
from rlxweb.ir.spectral_builder import SpectralBuilder
from rlxweb.ir.tensor import Operand, Tensor, listed, working
from rlxweb.ir.transformer_builder import TransformerBuilder
from rlxweb.ir.unpool_builder import UnpoolBuilder
from rlxweb.ir.window_builder import WindowBuilder

T = TypeVar("T")
# The dtypes of np.ones(3) and np.arange(3).
_UNASKED = (np.dtype(np.float64), np.dtype(np.int64))


class Builder(
    ProductBuilder,
    ReduceBuilder,
    SpectralBuilder,
    WindowBuilder,
    UnpoolBuilder,
    NormBuilder,
    ResizeBuilder,
    PackedBuilder,
    PicksBuilder,
    OrderBuilder,
    RegionBuilder,
    SequenceBuilder,
    AttentionBuilder,
    TransformerBuilder,
    LinalgBuilder,
    QuantizeBuilder,
    DerivativeBuilder,
):
    """Builder methods over `apply`; mixed into Graph."""

    def _pair(self, x: Tensor | Operand, y: Tensor | Operand) -> tuple[Tensor, Tensor]:
        """Numbers and arrays become constants beside the other operand."""
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x, y
        if isinstance(x, Tensor):
            return x, self.operand(y, x.dtype)
        if isinstance(y, Tensor):
            return self.operand(x, y.dtype), y
        given = f"neither {short(x)} nor {short(y)} is a tensor"
        raise GraphError("binary op", given)

    def operand(self, value: Any, dtype: DType) -> Tensor:
        """A constant to stand beside a tensor of `dtype`.

        A number and a list have no type of their own: they take the tensor's, if it
        holds their values. So does an array of float64 or int64, which NumPy makes
        where nothing was asked for; any other keeps its dtype, as `constant` does.
        Errors   DTypeError.
        """
        doing = f"operand {short(value)} beside a {dtype} tensor"
        array = array_of(value, doing, bfloat16=True)
        if array.ndim and hasattr(value, "dtype") and array.dtype not in _UNASKED:
            return self.constant(array)
        # A whole number is exact in every type; a fraction in an int tensor is not.
        kinds = "biufV" if dtype.is_float else "biu" if dtype.is_integer else "b"
        fits = not array.size or array.dtype.kind in kinds
        if fits and dtype.is_integer and array.size:
            fits = dtype.least <= int(array.min()) and int(array.max()) <= dtype.most
        if not fits:
            raise DTypeError(
                doing,
                f"it is not a {dtype} number",
                hint="cast the tensor, or pass a value its type can hold",
            )
        return self.constant(array, dtype)

    def _unary(self, op: str, x: Tensor) -> Tensor:
        return self.apply(op, x)

    def _binary(self, op: str, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        return self.apply(op, *self._pair(x, y))

    add = adding("add", _binary)
    sub = adding("sub", _binary)
    mul = adding("mul", _binary)
    div = adding("div", _binary)
    maximum = adding("maximum", _binary)
    minimum = adding("minimum", _binary)
    pow = adding("pow", _binary)
    eq = adding("eq", _binary)
    ne = adding("ne", _binary)
    lt = adding("lt", _binary)
    le = adding("le", _binary)
    gt = adding("gt", _binary)
    ge = adding("ge", _binary)

    def where(
        self, condition: Tensor, x: Tensor | Operand, y: Tensor | Operand
    ) -> Tensor:
        """`x` where `condition` (bool) holds, else `y`; all three broadcast.

        Two numbers or lists become what a constant of both of them would be.
        """
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            x, y = self._alike(x, y)
        return self.apply("where", condition, *self._pair(x, y))

    def _alike(self, x: Operand, y: Operand) -> tuple[Tensor, Tensor]:
        """Two constants of one dtype: an array's own, else what both values need."""
        doing = "where of two constants"
        given = [array_of(one, doing, bfloat16=True) for one in (x, y)]
        typed = [a for a, v in zip(given, (x, y), strict=True) if hasattr(v, "dtype")]
        if typed:
            dtype = as_dtype(typed[0].dtype)
        else:
            kind = np.result_type(*given).kind
            dtype = {"f": DType.F32, "b": DType.BOOL}.get(kind, DType.I32)
        first, second = (self.operand(one, dtype) for one in (x, y))
        return first, second

    def cast(self, x: Tensor, dtype: DTypeLike) -> Tensor:
        return self.apply("cast", x, to=dtype)

    def activation(self, kind: str, x: Tensor) -> Tensor:
        """Any unary op by name, as RLX's `Activation(kind)`."""
        return self.apply(kind, x)

    gelu = adding("gelu", _unary)
    gelu_approx = adding("gelu_approx", _unary)
    silu = adding("silu", _unary)
    relu = adding("relu", _unary)
    sigmoid = adding("sigmoid", _unary)
    tanh = adding("tanh", _unary)
    exp = adding("exp", _unary)
    log = adding("log", _unary)
    sqrt = adding("sqrt", _unary)
    rsqrt = adding("rsqrt", _unary)
    neg = adding("neg", _unary)
    abs = adding("abs", _unary)
    sin = adding("sin", _unary)
    cos = adding("cos", _unary)
    tan = adding("tan", _unary)
    atan = adding("atan", _unary)
    round = adding("round", _unary, "To the nearest whole number, halves to even.")

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return self.apply("reshape", x, shape=shape)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        return self.apply("transpose", x, perm=perm)

    def narrow(self, x: Tensor, axis: int, start: int, length: int) -> Tensor:
        return self.apply("narrow", x, axis=axis, start=start, length=length)

    def getitem(self, x: Tensor, key: Any) -> Tensor:
        """`x[key]`, as operator.getitem; see `Tensor.__getitem__`."""
        with working("getitem", x):
            return indexed(x, key)

    def concat(self, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
        return self.apply("concat", *listed(xs, "concat", "concat([a, b])"), axis=axis)

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """`x` broadcast with a shape; -1 leaves an axis as it is, and so does a 1."""
        return self.apply("expand", x, shape=shape)

    def gather(self, table: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        """`table.dims[:axis] ++ indices.dims ++ table.dims[axis+1:]`, as np.take.

        Negative indices count from the end. Errors  IndexRefused when it is run.
        """
        return self.apply("gather", table, indices, axis=axis)

    def cumsum(
        self,
        x: Tensor,
        axis: int = -1,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> Tensor:
        """Running sums; `exclusive` without each one's own value, `reverse` from the
        end of the axis on.
        """
        if not reverse:
            return self.apply("cumsum", x, axis=axis, exclusive=exclusive)
        with working("cumsum", x):
            back = self.flip(x, axis) if x.rank else x
        sums = self.apply("cumsum", back, axis=axis, exclusive=exclusive)
        return self.flip(sums, axis)

    def topk(self, x: Tensor, k: int, axis: int = -1, largest: bool = True) -> Tensor:
        """Indices (i32) of the k largest, or smallest, along an axis, in their order.

        Of equal values the smaller index comes first, and NaN after every number.
        """
        with working("topk", x):
            is_last = not x.rank or normal_axis(axis, x.rank) == x.rank - 1
        if not largest:  # -1 - x turns the order of integers round and overflows none
            least = x.dtype.most if x.dtype.is_unsigned else -1
            x = self.neg(x) if x.dtype.is_float else self.sub(least, x)
        if is_last:
            return self.apply("topk", x, k=k)
        found = self.apply("topk", self.moveaxis(x, axis, -1), k=k)
        return self.moveaxis(found, -1, axis)

    def topk_values(
        self, x: Tensor, k: int, axis: int = -1, largest: bool = True
    ) -> Tensor:
        """The values at the indices that `topk` gives, in the same order."""
        return self.gather_elements(x, self.topk(x, k, axis, largest), axis)

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
        offset: int | None = None,
        score_scale: float | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """Scaled dot-product attention; `mask` for mask_kind "custom" and "bias".

        window   keys before its own that a query sees under "sliding_window"; with 0,
                 its own key alone
        offset   the key at which the first query stands, for masks by position; left
                 out, the last query stands at the last key
        """
        operands = (q, k, v) if mask is None else (q, k, v, mask)
        return self.apply(
            "attention",
            *operands,
            num_heads=num_heads,
            head_dim=head_dim,
            mask_kind=mask_kind,
            window=window,
            offset=offset,
            score_scale=score_scale,
            softcap=softcap,
        )

    def build(self, how: Callable[..., T], *given: Any) -> T:
        """`how(graph, *given)`, for what needs numbers where sizes vary.

        A loop over `range(n)`, or a table that NumPy makes: `how` is called for each
        binding, with a graph of numbers, its tensors and integers, and must build the
        same for the same. Lists and dicts in `given` and its result are gone through.
        """
        return how(self, *given)

    def custom_op(self, name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """An op the user registered."""
        return self.apply(name, *inputs, **attrs)
