"""Non-max suppression: of boxes that overlap, the one with the highest score.

How many are left only the run knows; the result has room for as many as are asked for
and -1 behind them. The calls a GPU makes are laid out in `suppress_calls.py`. No device
is known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir import bounds
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel, Recipe
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import bad_attribute, bad_shape, show
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import widened
from rlxweb.recipes.suppress_calls import suppress_recipe, suppressing

_TOGETHER = 64
"""Boxes that are held against those before them in one go."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    boxes, scores = types
    same_dtype(types)
    need(types, FLOATS)
    if (
        boxes.rank != 3
        or scores.rank != 3
        or boxes.shape[2] != 4
        or boxes.shape[:2] != (scores.shape[0], scores.shape[2])
    ):
        raise bad_shape(
            f"boxes {show(boxes.shape)} and scores {show(scores.shape)}",
            "[batch, boxes, 4] and [batch, classes, boxes]",
        )
    if attrs["max_output"] < 0 or not 0.0 <= attrs["iou_threshold"] <= 1.0:
        raise bad_attribute(
            f"max_output={attrs['max_output']}, iou_threshold={attrs['iou_threshold']}",
            "max_output >= 0 and 0 <= iou_threshold <= 1",
        )
    keep = min(attrs["max_output"], boxes.shape[1])
    return TensorType((*scores.shape[:2], keep), DType.I32)


def _corners(xp: Any, boxes: Any, centered: bool) -> tuple[Any, Any]:
    """The lower and the upper corner of each box."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        half = second * 0.5
        return first - half, first + half
    return xp.minimum(first, second), xp.maximum(first, second)


def _overlap(xp: Any, boxes: Any, others: Any, most: float) -> Any:
    """Which boxes share more than `most` with others, of what both cover.

    Of both the left, top, right and bottom, each an array of its own.
    """
    (a0, b0, a1, b1), (x0, y0, x1, y1) = boxes, others
    wide = xp.minimum(a1, x1) - xp.maximum(a0, x0)
    tall = xp.minimum(b1, y1) - xp.maximum(b0, y0)
    shared = wide * tall
    is_some = (wide > 0) & (tall > 0) & (shared > 0)
    every = (a1 - a0) * (b1 - b0) + (x1 - x0) * (y1 - y0) - shared
    every = xp.where(is_some, every, xp.ones_like(every))
    return is_some & (shared / every > most)


def _sides(low: Any, high: Any) -> tuple[Any, ...]:
    """The left, top, right and bottom of boxes by their corners."""
    return low[..., 0], low[..., 1], high[..., 0], high[..., 1]


def _reference(xp: Any, attrs: Attrs, boxes: Any, scores: Any) -> Any:
    boxes, scores = widened(xp, boxes), widened(xp, scores)
    keep = min(attrs["max_output"], boxes.shape[1])
    low, high = _corners(xp, boxes, attrs["center_point_box"])
    if xp is np:
        return _one_by_one(attrs, keep, low, high, scores)
    if not keep:
        return xp.zeros((*scores.shape[:2], 0), dtype=xp.int32)
    order = xp.asarray(xp.argsort(-scores, axis=-1, stable=True), dtype=xp.int64)
    ranked = xp.take_along_axis(scores, order, axis=-1)
    alive = ranked == ranked
    if attrs["score_threshold"] is not None:
        alive = alive & (ranked > attrs["score_threshold"])
    each = order[..., None]
    low, high = (
        xp.take_along_axis(
            xp.broadcast_to(one[:, None], (*scores.shape, 2)),
            xp.broadcast_to(each, (*scores.shape, 2)),
            axis=2,
        )
        for one in (low, high)
    )
    found = []
    steps = xp.asarray(xp.arange(scores.shape[2]), dtype=xp.int32)
    for _ in range(keep):
        first = xp.argmax(xp.asarray(alive, dtype=xp.int32), axis=-1)[..., None]
        is_first = steps == first
        best = xp.take_along_axis(order, xp.asarray(first, dtype=xp.int64), axis=-1)
        some = xp.any(alive, axis=-1)[..., None]
        best = xp.asarray(best, dtype=xp.int32)
        found.append(xp.where(some, best, xp.full_like(best, -1)))
        zero = xp.zeros_like(low)
        mine = [
            xp.sum(xp.where(is_first[..., None], one, zero), axis=2)[:, :, None]
            for one in (low, high)
        ]
        every, most = _sides(low, high), attrs["iou_threshold"]
        gone = _overlap(xp, every, _sides(*mine), most) | is_first
        alive = alive & ~gone
    return xp.concat(found, axis=-1)


def _one_by_one(attrs: Attrs, keep: int, low: Any, high: Any, scores: Any) -> Any:
    out = np.full((*scores.shape[:2], keep), -1, np.int32)
    least = attrs["score_threshold"]
    for b, c in np.ndindex(scores.shape[:2]):
        line = scores[b, c]
        there = np.flatnonzero(line > least if least is not None else line == line)
        rest = there[np.argsort(-line[there], stable=True)]
        found = _kept(rest, keep, low[b], high[b], attrs["iou_threshold"])
        out[b, c, : len(found)] = found
    return out


def _kept(rest: Any, keep: int, low: Any, high: Any, most: float) -> list[int]:
    """Of boxes in their order those that none before them covers, `keep` at most.

    Some at a time are held against those that are kept: boxes behind the last that is
    wanted are never looked at.
    """
    found: list[int] = []
    # NumPy is quickest along coordinates that lie side by side.
    sides = np.stack(_sides(low[rest], high[rest]))
    kept = np.empty((4, min(keep, len(rest)) + _TOGETHER), sides.dtype)
    for begin in range(0, len(rest), _TOGETHER):
        if len(found) >= keep:
            break
        own = sides[:, begin : begin + _TOGETHER]
        gone = _overlap(np, own[..., None], kept[:, : len(found)], most).any(axis=1)
        covers = _overlap(np, own[..., None], own, most)
        for k, one in enumerate(rest[begin : begin + _TOGETHER].tolist()):
            if not gone[k]:
                kept[:, len(found)] = own[:, k]
                found.append(one)
                gone |= covers[k]
    return found[:keep]


def _calls(types: Types, out: TensorType, attrs: Attrs) -> Recipe:
    return suppress_recipe(suppressing(types, out, attrs))


def _case(
    batch: int, classes: int, boxes: int, dtype: DType = DType.F32, **attrs: Any
) -> Sample:
    drawn = (
        Drawn((batch, boxes, 4), dtype, 0, 9),
        Drawn((batch, classes, boxes), dtype, -1, 1),
    )
    return Sample(drawn, {"max_output": 3, **attrs})


registry.register_all(
    Op(
        name="non_max_suppression",
        arity=2,
        infer=_infer,
        reference=_reference,
        lower=Kernel(_calls),
        bounds=bounds.between(-1, lambda types, attrs: types[0].shape[1] - 1),
        attrs=(
            Attr("max_output", "int"),
            Attr("iou_threshold", "float", 0.5),
            Attr("score_threshold", "float", None, optional=True),
            Attr("center_point_box", "bool", False),
        ),
        traits=frozenset({"floats_only"}),
        flops=lambda inputs, out, attrs: 16.0 * inputs[1].numel * out.shape[2],
        samples=(
            _case(1, 1, 1),
            _case(2, 3, 41, iou_threshold=0.2),
            _case(1, 2, 33, score_threshold=0.3, center_point_box=True),
            _case(1, 1, 5, max_output=7, iou_threshold=0.1),
            _case(2, 1, 0),
            _case(1, 2, 5, max_output=0),
            _case(1, 2, 9, DType.F64, iou_threshold=0.3),
            _case(16_400, 1, 1),
        ),
        telling=(_case(1, 4, 16), _case(1, 16, 512, max_output=32)),
        doc="Boxes [B, n, 4] by their scores [B, C, n], highest first and each class "
        "apart, without those that share more than `iou_threshold` of what they cover "
        "with one of them: places [B, C, max_output or n] (i32), -1 behind the last.",
    )
)
