"""Matrix product and convolution of small integers less their zero points, summed in
i32.

What ONNX has as MatMulInteger and ConvInteger. No engine is fast with integers and all
are with f32, which holds every whole number up to 2^24: so sums of so many products as
stay below are made there, exactly, and added up in i32. Where products may be larger
all of it is done in i32. Owns no shader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_shape,
    broadcast,
    format_shape,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.conv.op import GROUPS
from rlxweb.ops.conv.windows import DILATIONS_ATTR, PADS_ATTR, STRIDES_ATTR
from rlxweb.ops.elementwise.op import require_dtypes
from rlxweb.ops.quantized.quantize import QUANTIZED_DTYPES

MAX_EXACT_F32_INTEGER = 1 << 24
"""Largest magnitude up to which f32 holds every whole number."""
MIN_CHUNK_PRODUCTS = 32
"""Fewest products of a chunk that are worth a dispatch of their own."""

LARGEST_PRODUCT = Attr("largest", "int", 0, at_least=0, at_most=(1 << 62) - 1)


def exact_sum_chunks(
    terms: int, largest: int, products_per_term: int = 1
) -> Iterator[tuple[int, int]] | None:
    """Return chunks (first, count) of terms whose sums f32 holds exactly, or None where
    those are too few.

    largest   product of two, 0: unknown
    products_per_term  products that one term stands for
    """
    max_terms = MAX_EXACT_F32_INTEGER // (largest * products_per_term) if largest else 0
    if max_terms * products_per_term < MIN_CHUNK_PRODUCTS and max_terms < terms:
        return None
    max_terms = max(1, max_terms)
    return (
        (start, min(max_terms, terms - start))
        for start in range(0, max(1, terms), max_terms)
    )


def sum_in_chunks(
    g: Graph,
    x: Tensor,
    y: Tensor,
    axes: tuple[int, int],
    largest: int,
    product: Callable[[Tensor, Tensor], Tensor],
    products_per_term: int = 1,
) -> Tensor:
    """Sum, in i32, what `product` gives for chunks of whole numbers x and y.

    axes   of x and y, along which they are cut
    """
    chunks = exact_sum_chunks(x.shape[axes[0]], largest, products_per_term)
    if chunks is None:
        return product(g.cast(x, DType.I32), g.cast(y, DType.I32))
    floats = [g.cast(operand, DType.F32) for operand in (x, y)]
    total: Tensor | None = None
    for start, count in chunks:
        slices = (
            g.narrow(operand, axis, start, count)
            for operand, axis in zip(floats, axes, strict=True)
        )
        partial = g.cast(product(*slices), DType.I32)
        total = partial if total is None else total + partial
    assert total is not None
    return total


def _check_zero_point(name: str, x: Shape, zero: Shape) -> None:
    """Check that a zero point broadcasts to its operand. Errors  ShapeError."""
    if broadcast(x, zero) != x:
        raise bad_shape(
            f"got a zero point {format_shape(zero)} for {name} {format_shape(x)}",
            f"the zero point must broadcast to the shape of {name}",
        )


def _with_dtype(types: Types, dtype: DType) -> Types:
    return tuple(TensorType(operand.shape, dtype) for operand in types)


def _infer_matmul(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, QUANTIZED_DTYPES)
    x, y, x_zero, y_zero = types
    out = registry.get("matmul").infer(_with_dtype((x, y), DType.I32), {})
    _check_zero_point("x", x.shape, x_zero.shape)
    _check_zero_point("y", y.shape, y_zero.shape)
    return out


def _infer_conv(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, QUANTIZED_DTYPES)
    x, w, x_zero, w_zero = types
    out = registry.get("conv").infer(_with_dtype((x, w), DType.I32), attrs)
    _check_zero_point("x", x.shape, x_zero.shape)
    _check_zero_point("the weights", w.shape, w_zero.shape)
    return out


def _centered_array(xp: Any, x: Any, zero: Any, dtype: Any) -> Any:
    """Subtract the zero point from an array."""
    return xp.asarray(x, dtype=dtype) - xp.asarray(zero, dtype=dtype)


def _matmul_reference(
    xp: Any, attrs: Attrs, x: Any, y: Any, x_zero: Any, y_zero: Any
) -> Any:
    chunks = exact_sum_chunks(x.shape[-1], attrs["largest"])
    dtype = xp.int32 if chunks is None else xp.float32
    x, y = _centered_array(xp, x, x_zero, dtype), _centered_array(xp, y, y_zero, dtype)
    if chunks is None:
        return xp.matmul(x, y)
    return sum(
        xp.asarray(
            xp.matmul(x[..., start : start + count], y[..., start : start + count, :]),
            dtype=xp.int32,
        )
        for start, count in chunks
    )


def _conv_reference(
    xp: Any, attrs: Attrs, x: Any, w: Any, x_zero: Any, w_zero: Any
) -> Any:
    chunks = _channel_chunks(tuple(w.shape), attrs)
    dtype = xp.int32 if chunks is None else xp.float32
    x, w = _centered_array(xp, x, x_zero, dtype), _centered_array(xp, w, w_zero, dtype)
    conv_attrs = _conv_attrs(attrs)
    conv = registry.get("conv").reference
    if chunks is None:
        return conv(xp, conv_attrs, x, w)
    return sum(
        xp.asarray(
            conv(xp, conv_attrs, *_slice_channels(x, w, start, count)), dtype=xp.int32
        )
        for start, count in chunks
    )


def _channel_chunks(w: Shape, attrs: Attrs) -> Iterator[tuple[int, int]] | None:
    """Return chunks of a convolution's channels; with groups all channels of a group at
    once.
    """
    tap_count = prod(w[2:])
    if attrs["groups"] == 1:
        return exact_sum_chunks(w[1], attrs["largest"], max(1, tap_count))
    is_exact = (
        prod(w[1:]) * attrs["largest"] <= MAX_EXACT_F32_INTEGER and attrs["largest"] > 0
    )
    return iter([(0, w[1])]) if is_exact else None


def _slice_channels(x: Any, w: Any, start: int, count: int) -> tuple[Any, Any]:
    if count == w.shape[1]:
        return x, w
    return x[:, start : start + count], w[:, start : start + count]


def _conv_attrs(attrs: Attrs) -> dict[str, Any]:
    return {name: attrs[name] for name in ("strides", "dilations", "pads", "groups")}


def _build_matmul(
    g: Graph, attrs: Attrs, x: Tensor, y: Tensor, x_zero: Tensor, y_zero: Tensor
) -> Tensor:
    x, y = (_centered_tensor(g, *pair) for pair in ((x, x_zero), (y, y_zero)))
    return sum_in_chunks(g, x, y, (-1, -2), attrs["largest"], g.matmul)


def _build_conv(
    g: Graph, attrs: Attrs, x: Tensor, w: Tensor, x_zero: Tensor, w_zero: Tensor
) -> Tensor:
    x, w = (_centered_tensor(g, *pair) for pair in ((x, x_zero), (w, w_zero)))
    return integer_conv(g, x, w, attrs["largest"], _conv_attrs(attrs))


def integer_conv(
    g: Graph, x: Tensor, w: Tensor, largest: int, conv_attrs: dict[str, Any]
) -> Tensor:
    """Convolve whole numbers and return i32; see `sum_in_chunks`."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        return g.apply("conv", a, b, **conv_attrs)

    products_per_term = max(1, prod(w.shape[2:]))
    if conv_attrs["groups"] == 1:
        return sum_in_chunks(g, x, w, (1, 1), largest, product, products_per_term)
    if (
        _channel_chunks(w.shape, {"groups": conv_attrs["groups"], "largest": largest})
        is None
    ):
        return product(g.cast(x, DType.I32), g.cast(w, DType.I32))
    result = product(g.cast(x, DType.F32), g.cast(w, DType.F32))
    return g.cast(result, DType.I32)


def _centered_tensor(g: Graph, x: Tensor, zero: Tensor) -> Tensor:
    """Subtract the zero point from a tensor."""
    return g.cast(x, DType.I32) - g.cast(zero, DType.I32)


def _work(name: str, inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, Any]:
    float_types = tuple(TensorType(operand.shape, DType.F32) for operand in inputs[:2])
    work = registry.get(name).work
    assert work is not None
    return work(float_types, TensorType(out.shape, DType.F32), attrs)


def _case(
    x: Shape,
    y: Shape,
    zeros: tuple[Shape, Shape] = ((), ()),
    kinds: tuple[DType, DType] = (DType.U8, DType.I8),
    largest: int = 255 * 255,
    note: str = "",
    **attrs: Any,
) -> Sample:
    inputs = (
        Drawn(shape, dtype, max(dtype.min_value, -1000), min(dtype.max_value, 1000))
        for shape, dtype in zip((x, y, *zeros), kinds * 2, strict=True)
    )
    return Sample(tuple(inputs), {"largest": largest, **attrs}, note)


_WIDE_CASE: dict[str, Any] = {"kinds": (DType.I16, DType.I32), "largest": 0}
_MATMUL_SAMPLES = (
    _case((1, 1), (1, 1)),
    _case((5, 7), (7, 3), ((5, 1), (3,))),
    _case((2, 4, 9), (9, 6), kinds=(DType.I8, DType.U8)),
    _case((3, 4, 700), (3, 700, 5), ((3, 1, 1), (3, 1, 5)), note="in parts"),
    _case((3, 0), (0, 5), note="nothing to sum: zeros"),
    _case((0, 4), (4, 5)),
    _case((65_537, 2), (2, 1), note="more rows than workgroups"),
    _case((4, 6), (6, 5), **_WIDE_CASE),
)
_IMAGE_SHAPE, _KERNEL_SHAPE = (2, 4, 7, 8), (6, 4, 3, 3)
_CONV_SAMPLES = (
    _case(_IMAGE_SHAPE, _KERNEL_SHAPE, ((), (6, 1, 1, 1)), pads=1),
    _case((1, 70, 6, 5), (3, 70, 3, 3), strides=2, note="in parts"),
    _case(_IMAGE_SHAPE, (6, 2, 3, 2), groups=2, dilations=2),
    _case((0, 2, 5), (3, 2, 2), note="no images"),
    _case((65_537, 1, 2), (1, 1, 2), note="many images"),
    _case((1, 1, 1), (1, 1, 1)),
    _case((1, 2, 30), (3, 2, 5), kinds=(DType.I8, DType.U8)),
    _case(_IMAGE_SHAPE, _KERNEL_SHAPE, **_WIDE_CASE),
)

registry.register_all(
    Op(
        name="matmul_integer",
        arity=4,
        infer=_infer_matmul,
        reference=_matmul_reference,
        lower=Compose(_build_matmul, is_always_expanded=True),
        attrs=(LARGEST_PRODUCT,),
        traits=frozenset({"blas"}),
        flops=lambda inputs, out, attrs: 2.0 * out.numel * inputs[0].shape[-1],
        work=lambda inputs, out, attrs: _work("matmul", inputs, out, attrs),
        samples=_MATMUL_SAMPLES,
        doc="The matrix product (x - x_zero) · (y - y_zero) as i32, for integers of "
        "up to 32 bits; sums wrap. The attribute `largest` is an upper bound of the "
        "magnitude of every product of two elements, 0 if unknown.",
    ),
    Op(
        name="conv_integer",
        arity=4,
        infer=_infer_conv,
        reference=_conv_reference,
        lower=Compose(_build_conv, is_always_expanded=True),
        attrs=(STRIDES_ATTR, DILATIONS_ATTR, PADS_ATTR, GROUPS, LARGEST_PRODUCT),
        traits=frozenset({"blas"}),
        flops=lambda inputs, out, attrs: 2.0 * out.numel * prod(inputs[1].shape[1:]),
        work=lambda inputs, out, attrs: _work("conv", inputs, out, attrs),
        samples=_CONV_SAMPLES,
        doc="`conv` of x - x_zero with the weights w - w_zero, as i32, for integers; "
        "the padding of x has the value x_zero. The attribute `largest` is an upper "
        "bound of the magnitude of every product of two elements, 0 if unknown.",
    ),
)
