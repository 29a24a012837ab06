"""Quantised numbers: QuantizeLinear and its like, products of integers.

Weights become floats where they are read, once: those of a DequantizeLinear its result,
those of a product of integers whole numbers less their zero point. So a run does with
them what it does with any weight. Integers of 4 and 2 bits lie in those of 8 (see
`narrow.py`); small floats are known arrays, of which there is nothing on a device.
"""

from __future__ import annotations

from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.ir.quantize_builder import quantized_range, reach_of
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import library
from rlxweb.onnx.converters import Call, Value, converts
from rlxweb.onnx.draft import ours
from rlxweb.onnx.narrow import IN_BYTES, Narrow, bits_of
from rlxweb.onnx.windows import Weighted, of_weights
from rlxweb.ops.integer_products import EXACT_IN_F32, convolved, summed
from rlxweb.ops.quantize import placed

Array = npt.NDArray[Any]
_HALVES = {10: DType.F16, 16: DType.BF16}
"""What `precision` may say beside float and double, by ONNX's numbers."""


def integers(call: Call, x: Value) -> Tensor | None:
    """Quantised integers as a tensor; None for those that are floats."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, Narrow):
        return x.tensor
    held = IN_BYTES.get(x.dtype.name)
    return None if held is None else call.g.hold(x.astype(held.numpy))


def kind_of(x: Value) -> np.dtype[Any]:
    """The type that ONNX has for a value, in NumPy's words."""
    return library.numpy_of(x.dtype) if isinstance(x, Tensor) else x.dtype


class _Kind(NamedTuple):
    """What numbers are quantised to: its type in ONNX and the one they are held in."""

    dtype: np.dtype[Any]
    held: DType

    @property
    def range(self) -> tuple[int, int]:
        is_narrow = self.dtype.name in IN_BYTES
        return quantized_range(self.held, bits_of(self.dtype) if is_narrow else 0)

    def value(self, x: Tensor) -> Value:
        """The numbers as a value of ONNX."""
        return Narrow(x, self.dtype) if self.dtype.name in IN_BYTES else x


def zero_of(call: Call, zero: Value, scale: Tensor, dtype: DType) -> Tensor:
    """A zero point in the shape of its scale."""
    found = None if zero is None else integers(call, zero)
    if found is None:
        found = call.g.constant(np.zeros((), dtype.numpy))
    if found.dtype is not dtype:
        call.contradict(f"a zero point of {found.dtype}", f"it is {dtype} here")
    if found.shape == scale.shape:
        return found
    if prod(found.shape) != 1:
        call.contradict(
            f"a zero point {found.shape} beside a scale {scale.shape}", "they are alike"
        )
    return call.g.expand(found.reshape(()), scale.shape)


def quantized(
    call: Call,
    x: Tensor,
    scale: Tensor,
    zero: Value,
    dtype: np.dtype[Any] | None = None,
    **where: Any,
) -> Value:
    """Round(x / scale) + zero, of zero's type or `dtype`; x and scale are f32."""
    to = dtype or (np.dtype(np.uint8) if zero is None else kind_of(zero))
    held = IN_BYTES.get(to.name) or ours(to)
    if held is None or not held.is_integer:
        call.refuse(f"it is quantised to {to}", "integers of up to 16 bits here")
    kind = _Kind(to, held)
    at, (low, high) = zero_of(call, zero, scale, held), kind.range
    made = call.g.apply(
        "quantize_linear", x, scale, at, quant_min=low, quant_max=high, **where
    )
    return kind.value(made)


@converts("QuantizeLinear", since=10)
@converts("QuantizeLinear", domain="com.microsoft")
def _quantize(
    call: Call,
    x: Tensor,
    scale: Tensor,
    zero: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    said = library.dtype_of(output_dtype) if output_dtype else None
    if zero is not None and said not in (None, kind_of(zero)):
        call.contradict(f"output_dtype {said}, a zero point of {kind_of(zero)}", "one")
    where = {"axis": axis if scale.rank else 0, "block_size": block_size}
    width = DType.F64 if precision == 11 else DType.F32
    x, by = x.cast(width), scale.cast(width)
    to = said or (None if zero is None else kind_of(zero))
    if to is not None and to.name.startswith("float"):
        return _to_small_float(call, x / placed(call.g, where, x, by), to, saturate)
    if precision in _HALVES:
        share = (x / placed(call.g, where, x, by)).cast(_HALVES[precision])
        one = call.g.expand(call.g.constant(1.0, "f32"), by.shape)
        x, by = share.cast("f32"), one
    return quantized(call, x, by, zero, to, **where)


def _to_small_float(call: Call, x: Tensor, to: np.dtype[Any], saturate: int) -> Value:
    """Zero points of floats are 0."""
    known = call.known(x, f"what is quantised to {to}")
    return call.hold(library.cast_small(known, to, bool(saturate), "up"))


@converts("DequantizeLinear", since=10)
@converts("DequantizeLinear", domain="com.microsoft")
def _dequantize(
    call: Call,
    x: Value,
    scale: Tensor,
    zero: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    to = ours(library.dtype_of(output_dtype)) if output_dtype else scale.dtype
    if to is None or not to.is_float:
        call.refuse("its output_dtype", "a float that rlxweb has a type for")
    where = {"axis": axis if scale.rank else 0, "block_size": block_size}
    whole = integers(call, x)
    wide = scale.cast("f32")
    if whole is None:
        numbers = call.g.hold(call.known(x, "what is dequantised").astype(np.float32))
        return (numbers * placed(call.g, where, numbers, wide)).cast(to)
    at = zero_of(call, zero, scale, whole.dtype)
    return dequantized(call, whole, wide, at, **where).cast(to)


def dequantized(
    call: Call, x: Tensor, scale: Tensor, zero: Tensor, **where: Any
) -> Tensor:
    """(x - zero) · scale, f32; of a weight it is another weight."""
    g = call.g
    attrs: dict[str, Any] = {"axis": 0, "block_size": 0, **where}
    by, at = g.known(scale), g.known(zero)
    if by is None or at is None:
        return g.apply("dequantize_linear", x, scale, zero, **attrs)
    key = ("dequantized", told(by), told(at), *attrs.values())

    def numbers(array: Array) -> Array:
        with np.errstate(all="ignore"):
            op = registry.get("dequantize_linear")
            made: Array = op.reference(np, attrs, array, by, at)
        return made

    made = g.derived(x, key, DType.F32, numbers)
    if made is not None:
        return made
    node = g.node(x.id)
    if node.op == "gather" and prod(scale.shape) == 1:
        # Of a table with one scale the rows that are wanted, out of it in floats.
        table, at_rows = (g.tensor(i) for i in node.inputs)
        rows = g.derived(table, key, DType.F32, numbers)
        if rows is not None:
            return g.apply("gather", rows, at_rows, **node.attrs)
    return g.apply("dequantize_linear", x, scale, zero, **attrs)


@converts("DynamicQuantizeLinear", since=11)
def _dynamic(call: Call, x: Tensor) -> tuple[Tensor, ...]:
    return call.g.dynamic_quantize_linear(x)


def told(array: Array) -> tuple[str, bytes]:
    """Equal for arrays of one shape, type and content."""
    content = np.ascontiguousarray(array).tobytes()
    return f"{array.shape} {array.dtype}", blake2b(content, digest_size=16).digest()


# --- products -----------------------------------------------------------------------


class _Whole(NamedTuple):
    """Integers less their zero point, and how far from 0 they are at most.

    is_weight   they are numbers of the model's, f32
    """

    tensor: Tensor
    reach: int
    is_weight: bool = False


def _whole_number(
    call: Call, x: Value, zero: Value, rows: tuple[int, ...] = ()
) -> _Whole:
    """What products are made of.

    rows   the shape in which a zero point of one axis stands beside x
    """
    g, whole = call.g, integers(call, x)
    if whole is None:
        call.refuse(f"integers of {kind_of(x)}", "of up to 16 bits")
    at = _zero_beside(call, zero, whole, rows)
    known = None if at is None else g.known(at)
    if known is not None and not known.any():
        at = None
    reach = reach_of(whole.dtype, np.zeros(1, np.int32) if at is None else known)
    if at is None or known is not None:
        key = ("whole", None if known is None else told(known))
        held = 0 if at is None or known is None else known.astype(np.int32)

        def numbers(array: Array) -> Array:
            return array.astype(np.int32) - held

        made = g.derived(whole, key, DType.F32, numbers)
        if made is not None:
            return _Whole(made, reach, True)
    wide = whole.cast(DType.I32)
    return _Whole(wide if at is None else wide - at.cast(DType.I32), reach)


def _largest(call: Call, x: _Whole, y: _Whole, summed_over: tuple[int, ...]) -> int:
    """What no product of two is larger than; of weights on average, where all of a sum
    of f32 is exact: what they add up to is known.

    summed_over   axes of y
    """
    largest = x.reach * y.reach
    terms = prod(y.tensor.shape[axis] for axis in summed_over)
    if not y.is_weight or terms * largest <= EXACT_IN_F32:
        return largest
    array = call.known(y.tensor, "the weights")
    sums = np.abs(array).sum(axis=summed_over, dtype=np.float64)
    fits = x.reach * sums.max(initial=0) <= EXACT_IN_F32
    return EXACT_IN_F32 // terms if fits and x.reach else largest


def _zero_beside(
    call: Call, zero: Value, x: Tensor, rows: tuple[int, ...]
) -> Tensor | None:
    found = None if zero is None else integers(call, zero)
    if found is None:
        return None
    if prod(found.shape) == 1:
        return found.reshape(())
    return found.reshape(rows) if found.rank == 1 and rows else found


def multiplied(call: Call, x: Value, y: Value, zeros: tuple[Value, Value]) -> Tensor:
    """The product of matrices of integers less their zero points, i32."""
    x_zero, y_zero = zeros
    one, other = _whole_number(call, x, x_zero, (-1, 1)), _whole_number(call, y, y_zero)
    largest = _largest(call, one, other, (max(0, other.tensor.rank - 2),))
    first, second = one.tensor, other.tensor
    row, column = first.rank == 1, second.rank == 1
    first = first.reshape((1, *first.shape)) if row else first
    second = second.reshape((*second.shape, 1)) if column else second
    made = summed(call.g, first, second, (-1, -2), largest, call.g.matmul)
    shape = made.shape[:-2] + (() if row else made.shape[-2:-1])
    return made.reshape(shape if column else (*shape, made.shape[-1]))


@converts("MatMulInteger")
def _matmul_integer(
    call: Call,
    x: Tensor,
    y: Tensor,
    x_zero: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Tensor:
    return multiplied(call, x, y, (x_zero, y_zero))


@converts("ConvInteger")
def _conv_integer(
    call: Call,
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    **given: Unpack[Weighted],
) -> Tensor:
    how = of_weights(call, x, w, given)
    return _convolved(call, x, w, (x_zero, w_zero), how)


def _convolved(
    call: Call, x: Tensor, w: Tensor, zeros: tuple[Value, Value], how: dict[str, Any]
) -> Tensor:
    first = _whole_number(call, x, zeros[0])
    second = _whole_number(call, w, zeros[1], (-1, *(1,) * (w.rank - 1)))
    largest = _largest(call, first, second, tuple(range(1, w.rank)))
    return convolved(call.g, first.tensor, second.tensor, largest, how)


def requantized(
    call: Call, total: Tensor, by: Tensor, zero: Value, dtype: Any = None
) -> Value:
    """Sums i32 times a scale, as quantised numbers of one zero point."""
    one = call.g.constant(1.0, "f32")
    at = zero
    if zero is not None and prod(zero.shape) != 1:
        call.refuse(f"a zero point {zero.shape} of its result", "one number")
    return quantized(call, total.cast("f32") * by, one, at, dtype)


def single(call: Call, scale: Tensor) -> Tensor:
    """One scale, f32."""
    if prod(scale.shape) != 1:
        call.refuse(f"scales {scale.shape} of its result", "one number")
    return scale.reshape(()).cast("f32")


def scales_of(x: Tensor, shape: tuple[int, ...] = (-1,)) -> Tensor:
    """Scales, f32: one for all, or those of an axis in this shape."""
    wide = x.cast("f32")
    if prod(x.shape) == 1:
        return wide.reshape(())
    return wide.reshape(shape) if x.rank == 1 else wide


@converts("QLinearMatMul")
def _q_matmul(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Value:
    total = multiplied(call, a, b, (a_zero, b_zero))
    by = scales_of(a_scale, (-1, 1)) * scales_of(b_scale) / single(call, y_scale)
    return requantized(call, total, by, y_zero)


@converts("QLinearConv")
@converts("QLinearConv", domain="com.microsoft")
def _q_conv(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    *,
    channels_last: int = 0,
    **given: Unpack[Weighted],
) -> Value:
    x = call.g.moveaxis(x, -1, 1) if channels_last else x
    how = of_weights(call, x, w, given)
    total = _convolved(call, x, w, (x_zero, w_zero), how)
    channels = (-1, *(1,) * (w.rank - 2))
    if bias is not None:
        total = total + bias.reshape(channels)
    by = single(call, x_scale) * scales_of(w_scale, channels) / single(call, y_scale)
    made = requantized(call, total, by, y_zero)
    return call.g.moveaxis(made, 1, -1) if channels_last else made
