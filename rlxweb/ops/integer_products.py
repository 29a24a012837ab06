"""Products and convolutions of small integers less their zeros, summed in i32.

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
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, broadcast, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.conv import GROUPS
from rlxweb.ops.elementwise import need
from rlxweb.ops.quantize import QUANTIZED
from rlxweb.recipes.windows import DILATIONS, PADS, STRIDES

EXACT_IN_F32 = 1 << 24
"""Up to here f32 holds every whole number."""
FEW = 32
"""Sums of fewer products are not worth a call of their own."""

LARGEST = Attr("largest", "int", 0)


def parts(terms: int, largest: int, each: int = 1) -> Iterator[tuple[int, int]] | None:
    """(first, count) of so many terms at a time as f32 sums exactly; None: too few.

    largest   product of two, 0: unknown
    each      products that one term stands for
    """
    most = EXACT_IN_F32 // (largest * each) if largest else 0
    if most * each < FEW and most < terms:
        return None
    most = max(1, most)
    return ((at, min(most, terms - at)) for at in range(0, max(1, terms), most))


def summed(
    g: Graph,
    x: Tensor,
    y: Tensor,
    axes: tuple[int, int],
    largest: int,
    product: Callable[[Tensor, Tensor], Tensor],
    each: int = 1,
) -> Tensor:
    """The sum, i32, of what `product` makes of parts of whole numbers x and y.

    axes   of x and y, along which they are cut
    """
    cut = parts(x.shape[axes[0]], largest, each)
    if cut is None:
        return product(g.cast(x, DType.I32), g.cast(y, DType.I32))
    wide = [g.cast(one, DType.F32) for one in (x, y)]
    total: Tensor | None = None
    for at, count in cut:
        some = (
            g.narrow(one, axis, at, count) for one, axis in zip(wide, axes, strict=True)
        )
        made = g.cast(product(*some), DType.I32)
        total = made if total is None else total + made
    assert total is not None
    return total


def _check_zero(name: str, x: Shape, zero: Shape) -> None:
    if broadcast(x, zero) != x:
        raise bad_shape(f"a zero {show(zero)} of {name} {show(x)}", "it broadcasts")


def _check_largest(attrs: Attrs) -> None:
    if not 0 <= attrs["largest"] < 1 << 62:
        raise bad_attribute(
            f"largest={attrs['largest']}", "0, or what no product is larger than"
        )


def _as(types: Types, dtype: DType) -> Types:
    return tuple(TensorType(one.shape, dtype) for one in types)


def _infer_matmul(types: Types, attrs: Attrs) -> TensorType:
    need(types, QUANTIZED)
    x, y, x_zero, y_zero = types
    _check_largest(attrs)
    out = registry.get("matmul").infer(_as((x, y), DType.I32), {})
    _check_zero("x", x.shape, x_zero.shape)
    _check_zero("y", y.shape, y_zero.shape)
    return out


def _infer_conv(types: Types, attrs: Attrs) -> TensorType:
    need(types, QUANTIZED)
    x, w, x_zero, w_zero = types
    _check_largest(attrs)
    out = registry.get("conv").infer(_as((x, w), DType.I32), attrs)
    _check_zero("x", x.shape, x_zero.shape)
    _check_zero("the weights", w.shape, w_zero.shape)
    return out


def _less(xp: Any, x: Any, zero: Any, dtype: Any) -> Any:
    return xp.asarray(x, dtype=dtype) - xp.asarray(zero, dtype=dtype)


def _matmul(xp: Any, attrs: Attrs, x: Any, y: Any, x_zero: Any, y_zero: Any) -> Any:
    cut = parts(x.shape[-1], attrs["largest"])
    kind = xp.int32 if cut is None else xp.float32
    x, y = _less(xp, x, x_zero, kind), _less(xp, y, y_zero, kind)
    if cut is None:
        return xp.matmul(x, y)
    return sum(
        xp.asarray(
            xp.matmul(x[..., at : at + n], y[..., at : at + n, :]), dtype=xp.int32
        )
        for at, n in cut
    )


def _conv(xp: Any, attrs: Attrs, x: Any, w: Any, x_zero: Any, w_zero: Any) -> Any:
    cut = _channels(tuple(w.shape), attrs)
    kind = xp.int32 if cut is None else xp.float32
    x, w = _less(xp, x, x_zero, kind), _less(xp, w, w_zero, kind)
    how = _windows(attrs)
    conv = registry.get("conv").reference
    if cut is None:
        return conv(xp, how, x, w)
    return sum(
        xp.asarray(conv(xp, how, *_channels_of(x, w, at, n)), dtype=xp.int32)
        for at, n in cut
    )


def _channels(w: Shape, attrs: Attrs) -> Iterator[tuple[int, int]] | None:
    """Parts of the channels of a convolution; in groups all of a group at once."""
    taps = prod(w[2:])
    if attrs["groups"] == 1:
        return parts(w[1], attrs["largest"], max(1, taps))
    some = prod(w[1:]) * attrs["largest"] <= EXACT_IN_F32 and attrs["largest"] > 0
    return iter([(0, w[1])]) if some else None


def _channels_of(x: Any, w: Any, at: int, n: int) -> tuple[Any, Any]:
    if n == w.shape[1]:
        return x, w
    return x[:, at : at + n], w[:, at : at + n]


def _windows(attrs: Attrs) -> dict[str, Any]:
    return {name: attrs[name] for name in ("strides", "dilations", "pads", "groups")}


def _build_matmul(
    g: Graph, attrs: Attrs, x: Tensor, y: Tensor, x_zero: Tensor, y_zero: Tensor
) -> Tensor:
    x, y = (_difference(g, *pair) for pair in ((x, x_zero), (y, y_zero)))
    return summed(g, x, y, (-1, -2), attrs["largest"], g.matmul)


def _build_conv(
    g: Graph, attrs: Attrs, x: Tensor, w: Tensor, x_zero: Tensor, w_zero: Tensor
) -> Tensor:
    x, w = (_difference(g, *pair) for pair in ((x, x_zero), (w, w_zero)))
    return convolved(g, x, w, attrs["largest"], _windows(attrs))


def convolved(
    g: Graph, x: Tensor, w: Tensor, largest: int, how: dict[str, Any]
) -> Tensor:
    """A convolution, i32, of whole numbers; see `summed`."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        return g.apply("conv", a, b, **how)

    each = max(1, prod(w.shape[2:]))
    if how["groups"] == 1:
        return summed(g, x, w, (1, 1), largest, product, each)
    if _channels(w.shape, {"groups": how["groups"], "largest": largest}) is None:
        return product(g.cast(x, DType.I32), g.cast(w, DType.I32))
    made = product(g.cast(x, DType.F32), g.cast(w, DType.F32))
    return g.cast(made, DType.I32)


def _difference(g: Graph, x: Tensor, zero: Tensor) -> Tensor:
    return g.cast(x, DType.I32) - g.cast(zero, DType.I32)


def _work(name: str, inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, Any]:
    kinds = tuple(TensorType(one.shape, DType.F32) for one in inputs[:2])
    work = registry.get(name).work
    assert work is not None
    return work(kinds, TensorType(out.shape, DType.F32), attrs)


def _product(
    x: Shape,
    y: Shape,
    zeros: tuple[Shape, Shape] = ((), ()),
    kinds: tuple[DType, DType] = (DType.U8, DType.I8),
    largest: int = 255 * 255,
    note: str = "",
    **attrs: Any,
) -> Sample:
    drawn = (
        Drawn(shape, kind, max(kind.least, -1000), min(kind.most, 1000))
        for shape, kind in zip((x, y, *zeros), kinds * 2, strict=True)
    )
    return Sample(tuple(drawn), {"largest": largest, **attrs}, note)


_WIDER: dict[str, Any] = {"kinds": (DType.I16, DType.I32), "largest": 0}
_MATMULS = (
    _product((1, 1), (1, 1)),
    _product((5, 7), (7, 3), ((5, 1), (3,))),
    _product((2, 4, 9), (9, 6), kinds=(DType.I8, DType.U8)),
    _product((3, 4, 700), (3, 700, 5), ((3, 1, 1), (3, 1, 5)), note="in parts"),
    _product((3, 0), (0, 5), note="nothing to sum: zeros"),
    _product((0, 4), (4, 5)),
    _product((65_537, 2), (2, 1), note="more rows than workgroups"),
    _product((4, 6), (6, 5), **_WIDER),
)
_IMAGE, _KERNEL = (2, 4, 7, 8), (6, 4, 3, 3)
_CONVOLUTIONS = (
    _product(_IMAGE, _KERNEL, ((), (6, 1, 1, 1)), pads=1),
    _product((1, 70, 6, 5), (3, 70, 3, 3), strides=2, note="in parts"),
    _product(_IMAGE, (6, 2, 3, 2), groups=2, dilations=2),
    _product((0, 2, 5), (3, 2, 2), note="no images"),
    _product((65_537, 1, 2), (1, 1, 2), note="many images"),
    _product((1, 1, 1), (1, 1, 1)),
    _product((1, 2, 30), (3, 2, 5), kinds=(DType.I8, DType.U8)),
    _product(_IMAGE, _KERNEL, **_WIDER),
)

registry.register_all(
    Op(
        name="matmul_integer",
        arity=4,
        infer=_infer_matmul,
        reference=_matmul,
        lower=Compose(_build_matmul, apart=True),
        attrs=(LARGEST,),
        traits=frozenset({"blas"}),
        flops=lambda inputs, out, attrs: 2.0 * out.numel * inputs[0].shape[-1],
        work=lambda inputs, out, attrs: _work("matmul", inputs, out, attrs),
        samples=_MATMULS,
        doc="(x - x_zero) · (y - y_zero), i32, of integers of up to 32 bits; sums "
        "wrap. No product of two is larger than `largest`, 0: nothing is known.",
    ),
    Op(
        name="conv_integer",
        arity=4,
        infer=_infer_conv,
        reference=_conv,
        lower=Compose(_build_conv, apart=True),
        attrs=(STRIDES, DILATIONS, PADS, GROUPS, LARGEST),
        traits=frozenset({"blas"}),
        flops=lambda inputs, out, attrs: 2.0 * out.numel * prod(inputs[1].shape[1:]),
        work=lambda inputs, out, attrs: _work("conv", inputs, out, attrs),
        samples=_CONVOLUTIONS,
        doc="`conv` of integers less their zeros, i32: what is padded is x_zero. No "
        "product of two is larger than `largest`, 0: nothing is known.",
    ),
)
