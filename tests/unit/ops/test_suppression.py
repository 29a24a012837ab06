"""Non-max suppression: what torchvision's words say, box by box in plain Python."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rlxweb.errors import AttributeRefused, ShapeError
from tests.unit.ops.alone import added, run

Box = tuple[float, ...]


def shared(a: Box, b: Box) -> float:
    """What two boxes share of what they cover, corners in any order."""
    spans = [(min(p[k], p[k + 2]), max(p[k], p[k + 2])) for k in (0, 1) for p in (a, b)]
    sides = [
        max(0.0, min(p[1], q[1]) - max(p[0], q[0])) for p, q in (spans[:2], spans[2:])
    ]
    own, other = (abs((p[2] - p[0]) * (p[3] - p[1])) for p in (a, b))
    both = sides[0] * sides[1]
    return both / (own + other - both) if both else 0.0


def kept(boxes: Any, scores: Any, most: int, iou: float, least: float) -> list[int]:
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    out: list[int] = []
    for k in order:
        if len(out) < most and scores[k] > least:
            if all(shared(boxes[k], boxes[o]) <= iou for o in out):
                out.append(k)
    return out + [-1] * (most - len(out))


def test_boxes_are_kept_as_is_said_of_them() -> None:
    rng = np.random.default_rng(3)
    boxes = rng.uniform(0, 9, (2, 30, 4)).astype(np.float32)
    scores = rng.integers(-5, 5, (2, 3, 30)).astype(np.float32)
    for most, iou, least in ((4, 0.2, -9.0), (30, 0.05, 0.0), (30, 0.9, 1.0)):
        how = {"max_output": most, "iou_threshold": iou, "score_threshold": least}
        got = run("non_max_suppression", boxes, scores, **how)
        for b, c in itertools.product(range(2), range(3)):
            want = kept(boxes[b].tolist(), scores[b, c].tolist(), most, iou, least)
            assert got[b, c].tolist() == want


def test_what_overlaps_just_as_much_stays_and_what_is_no_number_goes() -> None:
    boxes = np.float32([[[0, 0, 2, 1], [1, 0, 2, 1], [5, 5, 6, 6], [0, 0, 2, 1]]])
    scores = np.float32([[[3, 2, np.nan, 1]]])
    got = run("non_max_suppression", boxes, scores, max_output=4, iou_threshold=0.5)
    assert got.tolist() == [[[0, 1, -1, -1]]]
    middles = np.float32([[[1, 0.5, 2, 1], [1.5, 0.5, 1, 1], [9, 9, 1, 1]]])
    how = {"max_output": 9, "center_point_box": True, "iou_threshold": 0.4}
    got = run("non_max_suppression", middles, np.float32([[[1, 2, 3]]]), **how)
    assert got.tolist() == [[[2, 1, -1]]]


def test_types_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="batch, classes, boxes"):
        added("non_max_suppression", (1, 5, 4), (1, 5), max_output=1)
    with pytest.raises(AttributeRefused, match="0 <= iou_threshold <= 1"):
        added(
            "non_max_suppression",
            *((1, 5, 4), (1, 1, 5)),
            max_output=1,
            iou_threshold=2.0,
        )
