"""Builder methods of a graph, named after RLX's Python binding.

Each method adds one registered op by name (plus, where RLX returns a pair, the two
narrows that split it). Nothing here knows what an op computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import DTypeError, GraphError
from rlxweb.ir.attention_builder import AttentionBuilder
from rlxweb.ir.conv_pool_builder import ConvPoolBuilder
from rlxweb.ir.derivative_builder import DerivativeBuilder
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.indexing import index_tensor
from rlxweb.ir.linalg_builder import LinalgBuilder
from rlxweb.ir.matrix_product_builder import ProductBuilder
from rlxweb.ir.normalization_builder import NormBuilder
from rlxweb.ir.object_detection_builder import DetectionBuilder
from rlxweb.ir.packed_weights_builder import PackedWeightsBuilder
from rlxweb.ir.pad_gather_scatter_builder import GatherScatterBuilder
from rlxweb.ir.quantize_builder import QuantizeBuilder
from rlxweb.ir.reduce_softmax_builder import ReduceBuilder
from rlxweb.ir.resize_warp_builder import ResizeBuilder
from rlxweb.ir.rotary_gated_lora_builder import TransformerBuilder
from rlxweb.ir.sequence_model_builder import SequenceBuilder
from rlxweb.ir.shape_arithmetic import normalize_axis, short_repr
from rlxweb.ir.sort_search_builder import SortSearchBuilder
from rlxweb.ir.spectral_builder import SpectralBuilder
from rlxweb.ir.tensor import Operand, Tensor, as_tensor_tuple, op_context
from rlxweb.ir.unpool_builder import UnpoolBuilder

T = TypeVar("T")
# The dtypes of np.ones(3) and np.arange(3).
_DEFAULT_NUMPY_DTYPES = (np.dtype(np.float64), np.dtype(np.int64))


class Builder(
    ProductBuilder,
    ReduceBuilder,
    SpectralBuilder,
    ConvPoolBuilder,
    UnpoolBuilder,
    NormBuilder,
    ResizeBuilder,
    PackedWeightsBuilder,
    GatherScatterBuilder,
    SortSearchBuilder,
    DetectionBuilder,
    SequenceBuilder,
    AttentionBuilder,
    TransformerBuilder,
    LinalgBuilder,
    QuantizeBuilder,
    DerivativeBuilder,
):
    """All builder methods over `apply`; mixed into Graph."""

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

    def where(
        self, condition: Tensor, x: Tensor | Operand, y: Tensor | Operand
    ) -> Tensor:
        """Return `x` where `condition` (bool) is true, else `y`; all three broadcast.

        Two numbers or lists become what a constant of both of them would be.
        """
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            x, y = self._same_dtype_constants(x, y)
        return self.apply("where", condition, *self._pair(x, y))

    def _same_dtype_constants(self, x: Operand, y: Operand) -> tuple[Tensor, Tensor]:
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
        first, second = (self.operand(value, dtype) for value in (x, y))
        return first, second

    def cast(self, x: Tensor, dtype: DTypeLike) -> Tensor:
        return self.apply("cast", x, to=dtype)

    def activation(self, kind: str, x: Tensor) -> Tensor:
        """Apply a unary op by name, as RLX's `Activation(kind)`."""
        return self.apply(kind, x)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return self.apply("reshape", x, shape=shape)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        return self.apply("transpose", x, perm=perm)

    def narrow(self, x: Tensor, axis: int, start: int, length: int) -> Tensor:
        return self.apply("narrow", x, axis=axis, start=start, length=length)

    def getitem(self, x: Tensor, key: Any) -> Tensor:
        """Return `x[key]`, as operator.getitem; see `Tensor.__getitem__`."""
        with op_context("getitem", x):
            return index_tensor(x, key)

    def concat(self, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
        return self.apply(
            "concat", *as_tensor_tuple(xs, "concat", "concat([a, b])"), axis=axis
        )

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Broadcast x with a shape; -1 and 1 leave an axis unchanged."""
        return self.apply("expand", x, shape=shape)

    def gather(self, table: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        """Select entries of `table` along an axis, as np.take: `table.dims[:axis] ++
        indices.dims ++ table.dims[axis+1:]`.

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
        """Return running sums along an axis; `exclusive` leaves out each element's own
        value, `reverse` starts at the end of the axis.
        """
        if not reverse:
            return self.apply("cumsum", x, axis=axis, exclusive=exclusive)
        with op_context("cumsum", x):
            reversed_x = self.flip(x, axis) if x.rank else x
        sums = self.apply("cumsum", reversed_x, axis=axis, exclusive=exclusive)
        return self.flip(sums, axis)

    def topk(self, x: Tensor, k: int, axis: int = -1, largest: bool = True) -> Tensor:
        """Return the indices (i32) of the k largest or smallest elements along an axis,
        in order.

        Of equal values the smaller index comes first, and NaN after every number.
        """
        with op_context("topk", x):
            is_last = not x.rank or normalize_axis(axis, x.rank) == x.rank - 1
        if not largest:  # -1 - x turns the order of integers round and overflows none
            minuend = x.dtype.max_value if x.dtype.is_unsigned else -1
            x = self.neg(x) if x.dtype.is_float else self.sub(minuend, x)
        if is_last:
            return self.apply("topk", x, k=k)
        indices = self.apply("topk", self.moveaxis(x, axis, -1), k=k)
        return self.moveaxis(indices, -1, axis)

    def topk_values(
        self, x: Tensor, k: int, axis: int = -1, largest: bool = True
    ) -> Tensor:
        """Return the values at the indices that `topk` returns, in the same order."""
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
        """Apply scaled dot-product attention; `mask` belongs to mask_kind "custom" and
        "bias".

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
        """Call `how(graph, *given)`, which may need numbers where sizes vary.

        A loop over `range(n)`, or a table that NumPy makes: `how` is called for each
        binding, with a graph of numbers, its tensors and integers, and must build the
        same for the same. Lists and dicts in `given` and its result are gone through.
        """
        return how(self, *given)

    def custom_op(self, name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """Apply an op that the caller registered."""
        return self.apply(name, *inputs, **attrs)
