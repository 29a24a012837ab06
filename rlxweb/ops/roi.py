"""Regions of images brought to one size: the mean, or the largest, of samples.

As Mask R-CNN's RoIAlign, torchvision and ONNX have it: a bin's samples lie between
elements, linear in both directions; one more than an element outside is 0. The largest
is ONNX's: of each sample's four corners times their weights. No device is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.errors import IndexRefused
from rlxweb.ir import bounds
from rlxweb.ir.batching import folding
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel
from rlxweb.ir.op import Attr, Attrs, Guard, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, show
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.grid_sample import SAMPLED
from rlxweb.ops.linalg import widened
from rlxweb.ops.outside import as_places, first_outside, need_indices, refused
from rlxweb.ops.roi_back import MOST_SAMPLES, pooled_back
from rlxweb.recipes.roi_calls import roi_recipe, walked

MODES = ("avg", "max")


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, rois, images = types
    dtype = same_dtype((x, rois))
    need((x, rois), FLOATS)
    need_indices(images)
    if x.rank != 4 or 0 in x.shape[2:]:
        raise bad_shape(f"images {show(x.shape)}", "[N, C, H, W], with elements")
    if rois.rank != 2 or rois.shape[1] != 4 or images.shape != rois.shape[:1]:
        raise bad_shape(
            f"regions {show(rois.shape)} of images {show(images.shape)}",
            "[R, 4], each with the number of its image [R]",
        )
    if x.shape[0] == 0 and rois.shape[0]:
        raise bad_shape(f"{rois.shape[0]} regions of no images", "each is of one")
    size, sampling = attrs["size"], attrs["sampling"]
    if len(size) != 2 or min(size) < 1 or not 0 <= sampling <= 1 << 12:
        raise bad_attribute(
            f"size={size}, sampling={sampling}",
            "two sizes of at least 1, and 0 to 4,096 samples",
        )
    return TensorType((rois.shape[0], x.shape[1], *size), dtype)


class _Line(NamedTuple):
    """Samples of every bin along one axis: where they are, and which are any."""

    at: Any
    is_one: Any
    count: Any


def _line(xp: Any, rois: Any, axis: int, bins: int, most: int, attrs: Attrs) -> _Line:
    """Their places [R, bins, samples], of those that may lie inside.

    axis  0: down the images, whose coordinate is the second
    """
    low, high = rois[:, 1 - axis], rois[:, 3 - axis]
    shift = 0.5 if attrs["aligned"] else 0.0
    begin = low * attrs["scale"] - shift
    size = high * attrs["scale"] - shift - begin
    if not attrs["aligned"]:
        size = xp.maximum(size, xp.ones_like(size))
    width = size / bins
    count = xp.full_like(width, attrs["sampling"])
    if not attrs["sampling"]:
        count = xp.ceil(width)
        count = xp.where(count > 0, count, xp.zeros_like(count))
        count = xp.minimum(count, xp.full_like(count, MOST_SAMPLES))
    step = width / xp.maximum(count, xp.ones_like(count))
    bin_ = xp.asarray(xp.arange(bins), dtype=rois.dtype)
    at = begin[:, None] + bin_ * width[:, None]
    first = xp.zeros_like(at)
    if not attrs["sampling"]:
        some = xp.where(step > 0, step, xp.ones_like(step))[:, None]
        first = xp.floor((-1.0 - at) / some) - 2.0
        first = xp.where(first > 0, first, xp.zeros_like(first))
    steps = xp.asarray(xp.arange(most), dtype=rois.dtype)
    order = first[:, :, None] + steps
    places = at[:, :, None] + (order + 0.5) * step[:, None, None]
    return _Line(places, order < count[:, None, None], count)


def _taps(xp: Any, places: Any, size: int) -> tuple[Any, Any, Any, Any]:
    """Whether places are inside, the elements around them, and how far on they are."""
    inside = (places >= -1.0) & (places <= size)
    at = xp.where(inside, xp.maximum(places, xp.zeros_like(places)), places * 0.0)
    at = xp.where(inside, at, xp.zeros_like(at))
    low = xp.minimum(xp.floor(at), xp.full_like(at, size - 1))
    part = xp.where(low >= size - 1, xp.zeros_like(at), at - low)
    high = xp.minimum(low + 1, xp.full_like(at, size - 1))
    return inside, as_places(xp, low, size), as_places(xp, high, size), part


def _pooled(xp: Any, attrs: Attrs, x: Any, rois: Any, images: Any) -> Any:
    n, c, rows, columns = x.shape
    p, q = attrs["size"]
    count = rois.shape[0]
    out = (count, c, p, q)
    if 0 in out:
        return xp.zeros(out, dtype=x.dtype)
    wide, regions = widened(xp, x), widened(xp, rois)
    table = xp.reshape(xp.permute_dims(wide, (0, 2, 3, 1)), (n * rows * columns, c))
    # Of what lies outside one row stands for all, so that it is no index to refuse.
    inside = (images >= 0) & (images < n)
    first = xp.where(inside, images, xp.zeros_like(images))
    first = as_places(xp, first, n * rows * columns) * (rows * columns)
    most = [walked(size, attrs["sampling"]) for size in (rows, columns)]
    lines = [
        _line(xp, regions, axis, bins, least, attrs)
        for axis, bins, least in zip((0, 1), (p, q), most, strict=True)
    ]
    if xp is np:
        parts = _by_sample(attrs, table, first, lines, (rows, columns))
    else:
        parts = _at_once(xp, attrs, table, first, lines, (rows, columns))
    return xp.asarray(xp.permute_dims(parts, (0, 3, 1, 2)), dtype=x.dtype)


def _corners(
    xp: Any, table: Any, first: Any, down: Any, across: Any, columns: int
) -> list[Any]:
    """The four elements around samples times their weights; 0 for those outside.

    down, across   taps that broadcast with each other
    """
    in_y, y0, y1, v = down
    in_x, x0, x1, h = across
    there, made = (in_y & in_x)[..., None], []
    for y, wy in ((y0, 1.0 - v), (y1, v)):
        for at, wx in ((x0, 1.0 - h), (x1, h)):
            place = first + y * columns + at
            rows = xp.take(table, xp.reshape(place, (-1,)), axis=0)
            rows = xp.reshape(rows, (*place.shape, table.shape[1]))
            value = rows * (wy * wx)[..., None]
            made.append(xp.where(there, value, xp.zeros_like(value)))
    return made


def _at_once(
    xp: Any, attrs: Attrs, table: Any, first: Any, lines: Sequence[_Line], size: Shape
) -> Any:
    """[R, P, Q, C] of all samples side by side, for engines that trace."""
    down, across = lines
    v = _taps(xp, down.at, size[0])
    h = _taps(xp, across.at, size[1])
    tall = [one[:, :, None, :, None] for one in v]
    wide = [one[:, None, :, None, :] for one in h]
    is_one = down.is_one[:, :, None, :, None] & across.is_one[:, None, :, None, :]
    corners = _corners(xp, table, first[:, None, None, None, None], tall, wide, size[1])
    samples = down.count * across.count
    if attrs["mode"] == "avg":
        every = corners[0] + corners[1] + corners[2] + corners[3]
        every = xp.where(is_one[..., None], every, xp.zeros_like(every))
        count = xp.maximum(samples, xp.ones_like(samples))[:, None, None, None]
        return xp.sum(xp.sum(every, axis=4), axis=3) / count
    most = corners[0]
    for one in corners[1:]:
        most = xp.maximum(most, one)
    least = xp.full_like(most, -np.inf)
    most = xp.max(xp.max(xp.where(is_one[..., None], most, least), axis=4), axis=3)
    seen = xp.sum(xp.sum(xp.asarray(is_one, dtype=samples.dtype), axis=4), axis=3)
    more = ((seen < samples[:, None, None]) | (seen == 0))[..., None]
    return xp.where(more, xp.maximum(most, xp.zeros_like(most)), most)


def _by_sample(
    attrs: Attrs, table: Any, first: Any, lines: Sequence[_Line], size: Shape
) -> Any:
    """The same, one sample of every bin after the other, of those that have it."""
    down, across = lines
    takes_largest = attrs["mode"] == "max"
    shape = (*down.at.shape[:2], across.at.shape[1], table.shape[1])
    total = np.full(shape, -np.inf if takes_largest else 0.0, table.dtype)
    seen = np.zeros(shape[:3], np.int64)
    for k in range(down.at.shape[2]):
        tall = np.flatnonzero(down.is_one[:, :, k].any(1))
        for j in range(across.at.shape[2]) if len(tall) else ():
            at = tall[across.is_one[tall, :, j].any(1)]
            if not len(at):
                break
            v = [one[:, :, None] for one in _taps(np, down.at[at, :, k], size[0])]
            h = [one[:, None] for one in _taps(np, across.at[at, :, j], size[1])]
            is_one = down.is_one[at, :, None, k] & across.is_one[at, None, :, j]
            start = first[at][:, None, None]
            corners = _corners(np, table, start, v, h, size[1])
            if takes_largest:
                most = np.max(corners, axis=0)
                most[~is_one] = -np.inf
                total[at] = np.maximum(total[at], most)
            else:
                every = np.sum(corners, axis=0)
                every[~is_one] = 0.0
                total[at] += every
            seen[at] += is_one
    samples = (down.count * across.count)[:, None, None]
    if takes_largest:
        more = (seen < samples) | (seen == 0)
        total[more] = np.maximum(total[more], 0.0)
        return total
    return total / np.maximum(samples, 1)[..., None]


def _outside(xp: Any, attrs: Attrs, x: Any, rois: Any, images: Any) -> Any:
    return first_outside(xp, (images < 0) | (images >= x.shape[0]), images)


def _judge(shapes: Sequence[Shape], attrs: Attrs, found: Sequence[int]) -> None:
    if found[0] >= 0:
        of = f"the images of {show(shapes[0])}"
        place = (found[0], found[1])
        error: IndexRefused = refused(
            "roi_align", shapes[2], place, 0, shapes[0][0], of
        )
        raise error


def _reference(xp: Any, attrs: Attrs, x: Any, rois: Any, images: Any) -> Any:
    found = _outside(xp, attrs, x, rois, images)
    shapes = tuple(x.shape), tuple(rois.shape), tuple(images.shape)
    _judge(shapes, attrs, (int(found[0]), int(found[1])))
    return _pooled(xp, attrs, x, rois, images)


def _case(
    x: Shape,
    regions: int,
    dtype: DType = DType.F32,
    high: float = 9.0,
    index: DType = DType.I32,
    **attrs: Any,
) -> Sample:
    drawn = (
        Drawn(x, dtype, -2, 2),
        Drawn((regions, 4), dtype, -2, high),
        Drawn((regions,), index, 0, x[0] - 1),
    )
    return Sample(drawn, {"size": (2, 3), "sampling": 2, **attrs})


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    samples: int = max(attrs["sampling"], 2) ** 2
    return 12.0 * out.numel * samples


registry.register_all(
    Op(
        name="roi_align",
        arity=3,
        infer=_infer,
        reference=_reference,
        guard=Guard(_outside, _judge, _pooled),
        lower=Kernel(roi_recipe),
        bounds=bounds.INDEXED,
        attrs=(
            Attr("size", "ints"),
            Attr("sampling", "int", 0),
            Attr("scale", "float", 1.0),
            Attr("aligned", "bool", True),
            Attr("mode", "str", "avg", allowed=MODES),
        ),
        flops=_flops,
        vjp=pooled_back,
        batch=folding(None, 0, 0),
        tolerance=SAMPLED,
        samples=(
            _case((1, 1, 1, 1), 1),
            _case((2, 3, 5, 7), 5),
            _case((2, 3, 5, 7), 5, aligned=False, mode="max", scale=0.5),
            _case((2, 2, 2, 3), 4, sampling=0),
            _case((2, 1, 2, 3), 4, sampling=0, high=20.0, mode="max", aligned=False),
            _case((1, 2, 4, 4), 0),
            _case((1, 2, 4, 5), 2, DType.F64, index=DType.I64),
            _case((1, 2, 4, 5), 2, index=DType.U32, sampling=1),
            _case((3, 66, 1, 2), 1001, sampling=1, size=(1, 1)),
        ),
        telling=(_case((1, 4, 8, 8), 4), _case((1, 64, 32, 32), 100)),
        doc="Regions [R, 4] (x1 y1 x2 y2, times `scale`) of images [N, C, H, W], each "
        "of the image whose number is given, brought to bins [R, C, *size]: the mean "
        "or the largest of `sampling`² samples each, 0 for as many as a bin has "
        "elements. `aligned` takes half an element off, and leaves regions below 1 "
        "as they are.",
    )
)
