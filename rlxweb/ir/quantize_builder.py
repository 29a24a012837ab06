"""Builder methods for quantised numbers, by ONNX's names.

What a type or a zero says of how large products can be is noted here, once, so that
every engine knows how many of them it may sum in f32. Nothing is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.errors import GraphError
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import Shape, bad_attribute
from rlxweb.ir.tensor import Operand, Tensor, working
from rlxweb.ir.window_builder import Sizes

Given = Tensor | Operand


class QuantizeBuilder(OpBuilder):
    """Quantised numbers over `apply`; mixed into Graph."""

    def quantize_linear(
        self,
        x: Tensor,
        scale: Given,
        zero_point: Given | None = None,
        axis: int = 1,
        block_size: int = 0,
        dtype: DTypeLike | None = None,
        bits: int = 0,
    ) -> Tensor:
        """round(x / scale) + zero_point as integers, those out of range at its ends.

        scale       one number, [n] for the n places of `axis`, or with a `block_size`
                    x's shape with ceil(n / block_size) there
        zero_point  as scale, of the result's type; None: 0
        dtype       of the result, i8, u8, i16 or u16; None: zero_point's, or u8
        bits        of the range, 0: all that the type has; 4 of i8 are -8 … 7
        Errors      ShapeError, DTypeError, AttributeRefused
        Source      ONNX, QuantizeLinear; halves go to the even number

        Example  q = g.quantize_linear(x, 0.02, 128)
        """
        doing = "quantize_linear"
        if not isinstance(x, Tensor):
            raise GraphError(doing, "x is no tensor")
        with working(doing, x):
            own = getattr(zero_point, "dtype", None)
            # NumPy's own types of numbers say nothing: of 128, or of an array of such.
            said = None if own in (np.int64, np.float64) else own
            to = as_dtype(dtype or said or DType.U8)
            low, high = quantized_range(to, bits)
            by = self._number(scale, x.dtype if x.dtype.is_float else DType.F32)
            at = self._zero(zero_point, by.shape, to)
        how: dict[str, Any] = {"axis": axis, "block_size": block_size}
        return self.apply(doing, x, by, at, quant_min=low, quant_max=high, **how)

    def dequantize_linear(
        self,
        x: Tensor,
        scale: Given,
        zero_point: Given | None = None,
        axis: int = 1,
        block_size: int = 0,
    ) -> Tensor:
        """(x - zero_point) · scale, of the type of scale; the rest as in
        `quantize_linear`. A scale that is no tensor is f32.

        Errors   ShapeError, DTypeError, AttributeRefused
        Source   ONNX, DequantizeLinear
        """
        with working("dequantize_linear", x):
            by = self._number(scale, DType.F32)
            at = self._zero(zero_point, by.shape, x.dtype)
        how: dict[str, Any] = {"axis": axis, "block_size": block_size}
        return self.apply("dequantize_linear", x, by, at, **how)

    def dynamic_quantize_linear(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(x as u8, its scale, its zero point u8), of the range of x, 0 within it.

        The scale is (max - min) / 255, and 1 where x is 0 everywhere.
        Errors   DTypeError
        Source   ONNX, DynamicQuantizeLinear
        """
        with working("dynamic_quantize_linear", x):
            most = self._end("max", "maximum", x)
            least = self._end("min", "minimum", x)
            wide = self.apply("sub", most, least)
            none = self.apply("eq", wide, self.operand(0.0, x.dtype))
            scale = self.apply("div", wide, self.operand(255.0, x.dtype))
            one = self.operand(1.0, x.dtype)
            scale = self.apply("where", none, one, scale)
            below = self.apply("neg", least)
            nothing = self.operand(0, DType.U8)
            zero = self.quantize_linear(below, scale, nothing)
        return self.quantize_linear(x, scale, zero), scale, zero

    def _end(self, op: str, beyond: str, x: Tensor) -> Tensor:
        """The extreme of all elements and 0."""
        zero = self.operand(0.0, x.dtype)
        every = tuple(range(x.rank))
        if not all(x.shape):
            return zero
        made = self.apply(op, x, axes=every, keep_dim=False) if every else x
        return self.apply(beyond, made, zero)

    def matmul_integer(
        self,
        x: Tensor,
        y: Tensor,
        x_zero_point: Given | None = None,
        y_zero_point: Given | None = None,
    ) -> Tensor:
        """(x - x_zero_point) · (y - y_zero_point), exactly, i32.

        Shapes   x [..., M, K], y [..., K, N] → [..., M, N]; zero points are one number,
                 [M] for the rows of x and [N] for the columns of y, or broadcast with
                 x and y
        Errors   ShapeError, DTypeError for other than integers of up to 32 bits
        Source   ONNX, MatMulInteger; sums beyond 32 bits wrap
        """
        with working("matmul_integer", x, y):
            first = self._zero(x_zero_point, (), x.dtype)
            second = self._zero(y_zero_point, (), y.dtype)
            if first.rank == 1 and first.shape != (1,):
                first = self.apply("reshape", first, shape=(*first.shape, 1))
            largest = self._reach(x.dtype, first) * self._reach(y.dtype, second)
        return self.apply("matmul_integer", x, y, first, second, largest=largest)

    def conv_integer(
        self,
        x: Tensor,
        weight: Tensor,
        x_zero_point: Given | None = None,
        w_zero_point: Given | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """`conv` of integers less their zero points, exactly, i32.

        Shapes   x [N, C, …], weight [M, C / groups, …] → [N, M, …]; x_zero_point is one
                 number, w_zero_point one or [M]
        Errors   ShapeError, DTypeError, AttributeRefused
        Source   ONNX, ConvInteger: what is padded is x_zero_point
        """
        with working("conv_integer", x, weight):
            first = self._zero(x_zero_point, (), x.dtype)
            second = self._zero(w_zero_point, (), weight.dtype)
            if second.rank == 1 and second.shape != (1,):
                shape = (*second.shape, *(1,) * (weight.rank - 1))
                second = self.apply("reshape", second, shape=shape)
            largest = self._reach(x.dtype, first) * self._reach(weight.dtype, second)
        how: dict[str, Any] = {"strides": stride, "pads": padding}
        how |= {"dilations": dilation, "groups": groups, "largest": largest}
        return self.apply("conv_integer", x, weight, first, second, **how)

    def _number(self, value: Given, dtype: DType) -> Tensor:
        return value if isinstance(value, Tensor) else self.operand(value, dtype)

    def _zero(self, value: Given | None, shape: Shape, dtype: DType) -> Tensor:
        """A zero point; one number stands for every place of a scale."""
        if isinstance(value, Tensor):
            return value
        array = np.asarray(0 if value is None else value)
        if array.ndim == 0 and shape:
            array = np.broadcast_to(array, shape)
        return self.operand(array if array.ndim else array.item(), dtype)

    def _reach(self, dtype: DType, zero: Tensor) -> int:
        node = zero.graph.node(zero.id)
        is_known = node.op == "constant"
        return reach_of(dtype, node.attrs["value"].array if is_known else None)


def reach_of(dtype: DType, zero: Any) -> int:
    """How far from 0 integers of a type are less their zero points; 0: too far.

    zero   an array, None where it is not known
    """
    if not dtype.is_integer or dtype.nbytes > 2:
        return 0
    low, high = int(dtype.least), int(dtype.most)
    if zero is None or not zero.size:
        return high - low
    ends = int(zero.min()), int(zero.max())
    return max(abs(end - at) for end in (low, high) for at in ends)


def quantized_range(dtype: DType, bits: int = 0) -> tuple[int, int]:
    """The least and the largest of integers of so many bits in a type, 0: of all.

    Errors   AttributeRefused for more bits than it has, DTypeError for no integers.
    """
    have = 8 * dtype.nbytes
    if bits < 0 or bits == 1 or bits > have:
        raise bad_attribute(f"bits={bits} of {dtype}", f"0, or 2 to {have}")
    low, high = int(dtype.least), int(dtype.most)
    by = have - bits if bits else 0
    return low >> by, high >> by
