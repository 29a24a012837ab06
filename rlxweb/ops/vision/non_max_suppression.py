"""Non-max suppression: of overlapping boxes, keep the one with the highest score.

How many are left only the run knows; the result has room for as many as are asked for
and -1 behind them. The kernels of a GPU are planned in
`wgsl/non_max_suppression.py`. No device is known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel, KernelPlan
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import bad_shape, format_shape
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.vision.wgsl.non_max_suppression import nms_planner, plan_nms

_BLOCK_SIZE = 64
"""Number of boxes that are compared with the selected ones at once."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    boxes, scores = types
    common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    if (
        boxes.rank != 3
        or scores.rank != 3
        or boxes.shape[2] != 4
        or boxes.shape[:2] != (scores.shape[0], scores.shape[2])
    ):
        raise bad_shape(
            f"got boxes {format_shape(boxes.shape)} and scores "
            f"{format_shape(scores.shape)}",
            "expected boxes [batch, boxes, 4] and scores [batch, classes, boxes]",
        )
    max_boxes = min(attrs["max_output"], boxes.shape[1])
    return TensorType((*scores.shape[:2], max_boxes), DType.I32)


def _box_corners(xp: Any, boxes: Any, is_centered: bool) -> tuple[Any, Any]:
    """Return the lower and the upper corner of each box."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if is_centered:
        half = second * 0.5
        return first - half, first + half
    return xp.minimum(first, second), xp.maximum(first, second)


def _is_overlapping(xp: Any, boxes: Any, others: Any, iou_threshold: float) -> Any:
    """Return which boxes have an intersection over union above `iou_threshold`.

    Of both the left, top, right and bottom, each an array of its own.
    """
    (a0, b0, a1, b1), (x0, y0, x1, y1) = boxes, others
    overlap_width = xp.minimum(a1, x1) - xp.maximum(a0, x0)
    overlap_height = xp.minimum(b1, y1) - xp.maximum(b0, y0)
    intersection = overlap_width * overlap_height
    is_intersecting = (overlap_width > 0) & (overlap_height > 0) & (intersection > 0)
    union = (a1 - a0) * (b1 - b0) + (x1 - x0) * (y1 - y0) - intersection
    union = xp.where(is_intersecting, union, xp.ones_like(union))
    return is_intersecting & (intersection / union > iou_threshold)


def _box_sides(low: Any, high: Any) -> tuple[Any, ...]:
    """Return the left, top, right and bottom of boxes from their corners."""
    return low[..., 0], low[..., 1], high[..., 0], high[..., 1]


def _reference(xp: Any, attrs: Attrs, boxes: Any, scores: Any) -> Any:
    boxes, scores = widen_float16(xp, boxes), widen_float16(xp, scores)
    max_boxes = min(attrs["max_output"], boxes.shape[1])
    low, high = _box_corners(xp, boxes, attrs["center_point_box"])
    if xp is np:
        return _suppress_each(attrs, max_boxes, low, high, scores)
    if not max_boxes:
        return xp.zeros((*scores.shape[:2], 0), dtype=xp.int32)
    order = xp.asarray(xp.argsort(-scores, axis=-1, stable=True), dtype=xp.int64)
    ranked = xp.take_along_axis(scores, order, axis=-1)
    is_candidate = ranked == ranked
    if attrs["score_threshold"] is not None:
        is_candidate = is_candidate & (ranked > attrs["score_threshold"])
    row_order = order[..., None]
    low, high = (
        xp.take_along_axis(
            xp.broadcast_to(corner[:, None], (*scores.shape, 2)),
            xp.broadcast_to(row_order, (*scores.shape, 2)),
            axis=2,
        )
        for corner in (low, high)
    )
    selected = []
    steps = xp.asarray(xp.arange(scores.shape[2]), dtype=xp.int32)
    for _ in range(max_boxes):
        first = xp.argmax(xp.asarray(is_candidate, dtype=xp.int32), axis=-1)[..., None]
        is_first = steps == first
        best = xp.take_along_axis(order, xp.asarray(first, dtype=xp.int64), axis=-1)
        has_any = xp.any(is_candidate, axis=-1)[..., None]
        best = xp.asarray(best, dtype=xp.int32)
        selected.append(xp.where(has_any, best, xp.full_like(best, -1)))
        zeros = xp.zeros_like(low)
        best_corners = [
            xp.sum(xp.where(is_first[..., None], corner, zeros), axis=2)[:, :, None]
            for corner in (low, high)
        ]
        sides, iou_threshold = _box_sides(low, high), attrs["iou_threshold"]
        is_suppressed = (
            _is_overlapping(xp, sides, _box_sides(*best_corners), iou_threshold)
            | is_first
        )
        is_candidate = is_candidate & ~is_suppressed
    return xp.concat(selected, axis=-1)


def _suppress_each(
    attrs: Attrs, max_boxes: int, low: Any, high: Any, scores: Any
) -> Any:
    """Suppress boxes of each image and class in turn, with NumPy."""
    out = np.full((*scores.shape[:2], max_boxes), -1, np.int32)
    score_threshold = attrs["score_threshold"]
    for b, c in np.ndindex(scores.shape[:2]):
        class_scores = scores[b, c]
        candidates = np.flatnonzero(
            class_scores > score_threshold
            if score_threshold is not None
            else class_scores == class_scores
        )
        ranked = candidates[np.argsort(-class_scores[candidates], stable=True)]
        selected = _select_boxes(
            ranked, max_boxes, low[b], high[b], attrs["iou_threshold"]
        )
        out[b, c, : len(selected)] = selected
    return out


def _select_boxes(
    ranked: Any, max_boxes: int, low: Any, high: Any, iou_threshold: float
) -> list[int]:
    """Return the boxes, in order of score, that no selected box before them overlaps,
    at most `max_boxes`.

    Some at a time are held against those that are kept: boxes behind the last that is
    wanted are never looked at.
    """
    selected: list[int] = []
    # NumPy is quickest along coordinates that lie side by side.
    sides = np.stack(_box_sides(low[ranked], high[ranked]))
    selected_sides = np.empty(
        (4, min(max_boxes, len(ranked)) + _BLOCK_SIZE), sides.dtype
    )
    for start in range(0, len(ranked), _BLOCK_SIZE):
        if len(selected) >= max_boxes:
            break
        block = sides[:, start : start + _BLOCK_SIZE]
        is_suppressed = _is_overlapping(
            np, block[..., None], selected_sides[:, : len(selected)], iou_threshold
        ).any(axis=1)
        is_covered = _is_overlapping(np, block[..., None], block, iou_threshold)
        for k, box in enumerate(ranked[start : start + _BLOCK_SIZE].tolist()):
            if not is_suppressed[k]:
                selected_sides[:, len(selected)] = block[:, k]
                selected.append(box)
                is_suppressed |= is_covered[k]
    return selected[:max_boxes]


def _plan_suppression(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    return plan_nms(nms_planner(types, out, attrs))


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
        lower=Kernel(_plan_suppression),
        range_rule=value_range_rules.range_up_to(
            -1, lambda types, attrs: types[0].shape[1] - 1
        ),
        attrs=(
            Attr("max_output", "int", at_least=0),
            Attr("iou_threshold", "float", 0.5, at_least=0, at_most=1),
            Attr("score_threshold", "float", None, is_nullable=True),
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
        calibration_cases=(_case(1, 4, 16), _case(1, 16, 512, max_output=32)),
        doc="Boxes [B, n, 4] selected by scores [B, C, n], highest score first and "
        "for each class separately. A box is dropped if its intersection over union "
        "with a selected box is above `iou_threshold`. The result [B, C, "
        "min(max_output, n)] (i32) holds the indices of the selected boxes, followed "
        "by -1.",
    )
)
