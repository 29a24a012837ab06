"""Kernel plans of non-max suppression.

Scores are sorted, and then a line of them is walked from the highest on: a box is kept
if it overlaps none of those kept before. A long walk is cut; what a piece leaves behind
are the places kept so far, and how many. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
    redirect_buffers,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.sort.wgsl.merge_sort import MergeSortPlanner
from rlxweb.ops.sort.wgsl.plan import SortLines, plan_sort

_BOXES, _SCORES, _OUT = BufferRef("in"), BufferRef("in", 1), BufferRef("out")


@dataclass(frozen=True, slots=True)
class NmsPlanner:
    """Sizes and thresholds of a non-max suppression, and the plans that run it.

    sizes     batches, classes, boxes of each batch
    max_kept  of each class at most
    """

    sizes: tuple[int, int, int]
    max_kept: int
    dtype: DType
    overlap_threshold: float
    min_score: float | None
    has_centered_boxes: bool

    @property
    def lines(self) -> SortLines:
        """Lines of scores to sort."""
        batches, classes, boxes = self.sizes
        return SortLines(batches * classes, boxes, 1, self.dtype, True)

    def plan_after_sort(self, sorting: KernelPlan) -> KernelPlan:
        """Return the plan that sorts the scores with `sorting` and then suppresses
        boxes.
        """
        indices = BufferRef("scratch", len(sorting.scratch))
        redirections = {BufferRef("in"): _SCORES, _OUT: indices}
        dispatches = tuple(
            redirect_buffers(dispatch, redirections) for dispatch in sorting.dispatches
        )
        batches, classes, boxes = self.sizes
        line_count = batches * classes
        scratch = (
            ScratchBuffer(line_count * boxes, "i32"),
            ScratchBuffer(line_count, "i32"),
        )
        suppression = self._suppression_dispatch(
            indices, BufferRef("scratch", indices.index + 1)
        )
        return KernelPlan(
            (*dispatches, suppression), (*sorting.scratch, *scratch), sorting.tables
        )

    def _suppression_dispatch(
        self, indices: BufferRef, counts: BufferRef
    ) -> KernelDispatch:
        """Return the dispatch that walks the sorted boxes and keeps those that do not
        overlap.
        """
        batches, classes, boxes = self.sizes
        line_strides = (classes * boxes, boxes)
        kept_strides = (classes * self.max_kept, self.max_kept)
        return KernelDispatch(
            shader="non_max_suppression",
            axes=(
                IterationAxis("batch", batches),
                IterationAxis("class_", classes),
                IterationAxis("n", boxes, "serial"),
            ),
            accesses=(
                OperandAccess(_BOXES, (4 * boxes, 0, 0), span=max(4 * boxes, 1)),
                OperandAccess(_SCORES, (*line_strides, 0), span=max(boxes, 1)),
                OperandAccess(indices, (*line_strides, 1)),
                OperandAccess(
                    _OUT, (*kept_strides, 0), "update", span=max(self.max_kept, 1)
                ),
                OperandAccess(counts, (classes, 1, 0), "update"),
            ),
            grid=(("batch", 1), ("class_", 1)),
            uniforms={
                "boxes": boxes,
                "classes": classes,
                "keep": self.max_kept,
                "centered": int(self.has_centered_boxes),
                "limited": int(self.min_score is not None),
                "overlap": float(self.overlap_threshold),
                "least": float(self.min_score or 0.0),
            },
            uses=("nan",),
            iterations=self.max_kept + 2.0,
        )


def plan_nms(planner: NmsPlanner) -> KernelPlan:
    """Return the plan that sorts the scores by a bitonic network."""
    return planner.plan_after_sort(plan_sort(planner.lines))


def nms_planner(inputs: Types, out: TensorType, attrs: Mapping[str, Any]) -> NmsPlanner:
    """Return the planner described by the op's types and attributes."""
    boxes, scores = inputs
    return NmsPlanner(
        (boxes.shape[0], scores.shape[1], boxes.shape[1]),
        out.shape[2],
        scores.dtype,
        attrs["iou_threshold"],
        attrs["score_threshold"],
        attrs["center_point_box"],
    )


def plan_nms_by_merging(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan:
    """Return the plan that sorts the scores by merging, for lines that fit a
    binding.
    """
    planner = nms_planner(inputs, out, attrs)
    return planner.plan_after_sort(
        MergeSortPlanner(planner.lines, planner.lines.n).plan()
    )


KERNELS = (
    KernelVariant(
        "non_max_suppression, runs merged", "non_max_suppression", plan_nms_by_merging
    ),
)
