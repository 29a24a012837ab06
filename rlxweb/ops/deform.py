"""Deformable convolution: each tap of a window is moved by offsets of its own.

As Dai et al. (2017) and, with a mask, Zhu et al. (2019) have it, torchvision and ONNX
too: what a tap meets is linear between elements, 0 outside. Composed of gathers of rows
of channels and a product; the reference is written with the same few steps. Owns no
shader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.grid_sample import Arrays, Tensors, floored
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32


class _ArraySteps(Arrays):
    """The steps in a namespace of arrays."""

    def shaped(self, x: Any, shape: Shape) -> Any:
        return self.xp.reshape(x, shape)

    def turned(self, x: Any, perm: Shape) -> Any:
        return self.xp.permute_dims(x, perm)

    def product(self, x: Any, y: Any) -> Any:
        return self.xp.matmul(x, y)

    def held(self, value: np.ndarray[Any, Any], like: Any) -> Any:
        return self.xp.asarray(value, dtype=like.dtype)

    def numbers(self, value: np.ndarray[Any, Any]) -> Any:
        return self.xp.asarray(value, dtype=self.xp.int32)

    def half(self, x: Any, at: int) -> Any:
        return x[:, :, :, at]


class _TensorSteps(Tensors):
    """The same in a graph."""

    def shaped(self, x: Tensor, shape: Shape) -> Tensor:
        return self.g.reshape(x, shape)

    def turned(self, x: Tensor, perm: Shape) -> Tensor:
        return self.g.transpose(x, perm)

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        return self.g.matmul(x, y)

    def held(self, value: np.ndarray[Any, Any], like: Tensor) -> Tensor:
        return self.g.constant(value, like.dtype)

    def numbers(self, value: np.ndarray[Any, Any]) -> Tensor:
        return self.g.constant(value.astype(np.int32))

    def half(self, x: Tensor, at: int) -> Tensor:
        return self.g.narrow(x, 3, at, 1).reshape((*x.shape[:3], x.shape[4]))


class _Sizes(NamedTuple):
    """What the shapes and attributes come to.

    out      rows and columns of the result
    offsets  groups of channels with offsets of their own
    """

    x: Shape
    weight: Shape
    out: tuple[int, int]
    strides: Shape
    dilations: Shape
    pads: Shape
    groups: int
    offsets: int

    @property
    def taps(self) -> int:
        return self.weight[2] * self.weight[3]


def _sizes(x: Shape, weight: Shape, attrs: Attrs) -> _Sizes:
    """Errors  ShapeError, AttributeRefused."""
    groups, offsets = attrs["groups"], attrs["offset_groups"]
    if len(x) != 4 or len(weight) != 4:
        raise bad_shape(
            f"images {show(x)} and a weight {show(weight)}",
            "[N, C, H, W] and [O, C/groups, kernel height, kernel width]",
        )
    strides, dilations = ((*attrs[n],) for n in ("strides", "dilations"))
    pads = (*attrs["pads"],)
    if min(groups, offsets, *strides, *dilations) < 1 or min(pads) < 0:
        raise bad_attribute(
            f"groups={groups}, offset_groups={offsets}, strides={strides}, "
            f"dilations={dilations}, pads={pads}",
            "at least 1, and pads at least 0",
        )
    if (len(strides), len(dilations), len(pads)) != (2, 2, 4):
        raise bad_attribute(
            f"strides={strides}, dilations={dilations}, pads={pads}",
            "2, 2 and 4 numbers: both axes, and before and after each",
        )
    if x[1] != weight[1] * groups or weight[0] % groups or x[1] % offsets:
        raise bad_shape(
            f"{x[1]} channels, a weight {show(weight)}, {groups} groups, {offsets} of "
            "offsets",
            "both divide the channels, and a weight has those of a group",
        )
    out = tuple(
        (n + pads[a] + pads[a + 2] - dilations[a] * (weight[a + 2] - 1) - 1)
        // strides[a]
        + 1
        for a, n in enumerate(x[2:])
    )
    if min(out) < 1 or min(x[2:]) < 1:
        raise bad_shape(
            f"images {show(x)} under windows {show(weight[2:])}", "one fits at least"
        )
    return _Sizes(
        x, weight, (out[0], out[1]), strides, dilations, pads, groups, offsets
    )


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, weight, offset, *mask = types
    dtype = same_dtype(types)
    need(types, FLOATS)
    s = _sizes(x.shape, weight.shape, attrs)
    wanted = (x.shape[0], 2 * s.offsets * s.taps, *s.out)
    if offset.shape != wanted:
        raise bad_shape(f"offsets {show(offset.shape)}", f"they are {show(wanted)}")
    wanted = (x.shape[0], s.offsets * s.taps, *s.out)
    if mask and mask[0].shape != wanted:
        raise bad_shape(f"a mask {show(mask[0].shape)}", f"it is {show(wanted)}")
    return TensorType((x.shape[0], weight.shape[0], *s.out), dtype)


def _begins(s: _Sizes) -> list[np.ndarray[Any, Any]]:
    """Where taps would be without offsets, down and across: [1, 1, taps, places]."""
    kernel = s.weight[2:]
    found = []
    for axis in range(2):
        taps = np.arange(kernel[axis]) * s.dilations[axis] - s.pads[axis]
        places = np.arange(s.out[axis]) * s.strides[axis]
        tap_shape = [1, 1, 1, 1]
        tap_shape[axis] = -1
        place_shape = [1, 1, 1, 1]
        place_shape[axis + 2] = -1
        every = taps.reshape(tap_shape) + places.reshape(place_shape)
        every = np.broadcast_to(every, (*kernel, *s.out))
        found.append(every.reshape(1, 1, s.taps, -1).astype(np.float64))
    return found


def _around(p: Any, at: Any, size: int) -> list[tuple[Any, Any]]:
    """The two elements around places along an axis, and their weights; 0 outside."""
    at = p.clipped(p.number_or(at, -2.0), -2.0, size + 1.0)
    first = floored(p, at)
    part = at - first
    found = []
    for place, weight in ((first, 1.0 - part), (first + 1.0, part)):
        there = p.real(place >= 0.0, at) * p.real(place <= size - 1.0, at)
        found.append((p.whole(p.clipped(place, 0.0, size - 1.0)), weight * there))
    return found


def _convolved(p: Any, s: _Sizes, given: Sequence[Any]) -> Any:
    """The steps: rows of channels around each tap, their sum, the product.

    given  images, weight, offsets, and a mask if there is one
    """
    x, weight, offset, *mask = given
    n, c, rows, columns = s.x
    inside, places = c // s.offsets, s.out[0] * s.out[1]
    table = p.shaped(x, (n * s.offsets, inside, rows * columns))
    table = p.shaped(p.turned(table, (0, 2, 1)), (-1, inside))
    moves = p.shaped(offset, (n, s.offsets, s.taps, 2, places))
    down, across = (
        _around(p, p.half(moves, axis) + p.held(begin, offset), size)
        for axis, (begin, size) in enumerate(
            zip(_begins(s), (rows, columns), strict=True)
        )
    )
    begin = np.arange(n * s.offsets).reshape(n, s.offsets, 1, 1) * (rows * columns)
    first, made = p.numbers(begin), None
    for y, wy in down:
        for at, wx in across:
            values = p.rows(table, first + y * columns + at)
            part = values * p.behind(wy * wx)
            made = part if made is None else made + part
    if mask:
        made = made * p.behind(p.shaped(mask[0], (n, s.offsets, s.taps, places)))
    each = c // s.groups * s.taps
    made = p.shaped(p.turned(made, (0, 1, 4, 2, 3)), (n, s.groups, each, places))
    filters = p.shaped(weight, (1, s.groups, s.weight[0] // s.groups, each))
    return p.shaped(p.product(filters, made), (n, s.weight[0], *s.out))


def _reference(xp: Any, attrs: Attrs, x: Any, weight: Any, *rest: Any) -> Any:
    s = _sizes(tuple(x.shape), tuple(weight.shape), attrs)
    if 0 in (s.x[0], s.weight[0], s.x[1]):
        return xp.zeros((s.x[0], s.weight[0], *s.out), dtype=x.dtype)
    given = [widened(xp, one) for one in (x, weight, *rest)]
    made = _convolved(_ArraySteps(xp), s, given)
    return xp.asarray(made, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
    s = _sizes(x.shape, weight.shape, attrs)
    if 0 in (s.x[0], s.weight[0], s.x[1]):
        zero = g.constant(np.zeros((), x.dtype.numpy))
        return g.expand(zero, (s.x[0], s.weight[0], *s.out))
    given = in_f32(g, x, weight, *rest)
    made = _convolved(_TensorSteps(g), s, given)
    return made if made.dtype is x.dtype else g.cast(made, x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    s = _sizes(inputs[0].shape, inputs[1].shape, attrs)
    each = s.x[1] * s.taps
    return out.numel // max(s.weight[0], 1) * each * (8.0 + 2.0 * s.weight[0])


def _case(
    x: Shape, weight: Shape, dtype: DType = DType.F32, mask: bool = False, **attrs: Any
) -> Sample:
    how = {one.name: attrs.get(one.name, one.default) for one in _ATTRS}
    s = _sizes(x, weight, how)
    drawn = [
        Drawn(x, dtype, -2, 2),
        Drawn(weight, dtype, -1, 1),
        Drawn((x[0], 2 * s.offsets * s.taps, *s.out), dtype, -2, 2),
    ]
    if mask:
        drawn.append(Drawn((x[0], s.offsets * s.taps, *s.out), dtype, 0, 1))
    return Sample(tuple(drawn), attrs)


_ATTRS = (
    Attr("strides", "ints", (1, 1)),
    Attr("dilations", "ints", (1, 1)),
    Attr("pads", "ints", (0, 0, 0, 0)),
    Attr("groups", "int", 1),
    Attr("offset_groups", "int", 1),
)

registry.register_all(
    Op(
        name="deform_conv",
        arity=(3, 4),
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=_ATTRS,
        traits=frozenset({"floats_only"}),
        flops=_flops,
        tolerance=Tolerance(rtol=1e-4, atol=3e-5, relative_to_peak=True),
        samples=(
            _case((1, 1, 1, 1), (1, 1, 1, 1)),
            _case((2, 4, 5, 6), (3, 4, 3, 2), mask=True, pads=(1, 0, 2, 1)),
            _case((1, 4, 7, 5), (2, 2, 2, 2), groups=2, offset_groups=4),
            _case(
                (1, 4, 7, 6), (4, 1, 3, 3), strides=(2, 1), dilations=(2, 2), groups=4
            ),
            _case((0, 2, 4, 4), (2, 2, 2, 2)),
            _case((1, 2, 4, 5), (2, 2, 2, 2), DType.F64, mask=True, offset_groups=2),
            _case((1, 1, 8, 41), (205, 1, 1, 1)),
        ),
        doc="A convolution of images [N, C, H, W] by a weight [O, C/groups, h, w], its "
        "taps moved by offsets [N, offset_groups·h·w·2, …] (down, then across) "
        "and, with a mask [N, offset_groups·h·w, …], weighed: linear between elements, "
        "0 outside.",
    )
)
