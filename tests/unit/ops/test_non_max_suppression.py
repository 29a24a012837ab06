"""Non-max suppression, compared with torchvision's definition box by box in plain
Python.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import AttributeRefused, ShapeError
from tests.unit.ops.single_op_runner import build_op, run

Box = tuple[float, ...]


def intersection_over_union(a: Box, b: Box) -> float:
    """Return the intersection over union of two boxes, corners in any order."""
    spans = [(min(p[k], p[k + 2]), max(p[k], p[k + 2])) for k in (0, 1) for p in (a, b)]
    sides = [
        max(0.0, min(p[1], q[1]) - max(p[0], q[0])) for p, q in (spans[:2], spans[2:])
    ]
    area_a, area_b = (abs((p[2] - p[0]) * (p[3] - p[1])) for p in (a, b))
    intersection = sides[0] * sides[1]
    return intersection / (area_a + area_b - intersection) if intersection else 0.0


def reference_nms(
    boxes: Any, scores: Any, max_count: int, iou: float, min_score: float
) -> list[int]:
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    out: list[int] = []
    for k in order:
        if len(out) < max_count and scores[k] > min_score:
            if all(intersection_over_union(boxes[k], boxes[o]) <= iou for o in out):
                out.append(k)
    return out + [-1] * (max_count - len(out))


def test_kept_boxes_match_the_reference() -> None:
    rng = np.random.default_rng(3)
    boxes = rng.uniform(0, 9, (2, 30, 4)).astype(np.float32)
    scores = rng.integers(-5, 5, (2, 3, 30)).astype(np.float32)
    for max_count, iou, min_score in ((4, 0.2, -9.0), (30, 0.05, 0.0), (30, 0.9, 1.0)):
        attrs = {
            "max_output": max_count,
            "iou_threshold": iou,
            "score_threshold": min_score,
        }
        got = run("non_max_suppression", boxes, scores, **attrs)
        for b, c in itertools.product(range(2), range(3)):
            want = reference_nms(
                boxes[b].tolist(), scores[b, c].tolist(), max_count, iou, min_score
            )
            assert got[b, c].tolist() == want


def test_overlap_at_the_threshold_stays_and_nan_scores_go() -> None:
    boxes = np.float32([[[0, 0, 2, 1], [1, 0, 2, 1], [5, 5, 6, 6], [0, 0, 2, 1]]])
    scores = np.float32([[[3, 2, np.nan, 1]]])
    got = run("non_max_suppression", boxes, scores, max_output=4, iou_threshold=0.5)
    assert got.tolist() == [[[0, 1, -1, -1]]]
    center_boxes = np.float32([[[1, 0.5, 2, 1], [1.5, 0.5, 1, 1], [9, 9, 1, 1]]])
    attrs = {"max_output": 9, "center_point_box": True, "iou_threshold": 0.4}
    got = run("non_max_suppression", center_boxes, np.float32([[[1, 2, 3]]]), **attrs)
    assert got.tolist() == [[[2, 1, -1]]]


def test_types_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="batch, classes, boxes"):
        build_op("non_max_suppression", (1, 5, 4), (1, 5), max_output=1)
    with pytest.raises(AttributeRefused, match="iou_threshold must be >= 0 and <= 1"):
        build_op(
            "non_max_suppression",
            *((1, 5, 4), (1, 1, 5)),
            max_output=1,
            iou_threshold=2.0,
        )
