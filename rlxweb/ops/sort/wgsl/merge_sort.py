"""Merge-sort variants of argsort and topk, for lines that fit a binding: a few passes
in place of a bitonic network's many.

A line is sorted in blocks, and then its sorted runs are merged in pairs until one is
left; every element finds its place by itself. Deleting it changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape_arithmetic import numel
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.reduce.wgsl.plan import compute_scalar, element_type_include
from rlxweb.ops.sort.wgsl.plan import (
    IndexKeyBuffers,
    SortLines,
    key_uniforms,
)

BLOCK_SIZE = 32
"""Elements that are sorted by comparing each with all others."""
MAX_TOPK_LIST = 128
"""Largest k that topk serves with lists; for more, the row is sorted."""
_OUT = BufferRef("out")


@dataclass(frozen=True, slots=True)
class MergeSortPlanner:
    """Planner of a merge sort of lines; the first `keep` indices of each are wanted."""

    lines: SortLines
    keep_count: int

    def plan(self) -> KernelPlan:
        """Return the kernel plan."""
        n = self.lines.n
        widths = [
            BLOCK_SIZE << stage
            for stage in range((max(n - 1, 0) // BLOCK_SIZE).bit_length())
        ]
        pairs = [
            (BufferRef("scratch", 2 * p), BufferRef("scratch", 2 * p + 1))
            for p in (0, 1)
        ]
        dispatches = [self._sort_blocks_dispatch(self._target(pairs[0], not widths))]
        for stage, width in enumerate(widths):
            target = self._target(pairs[(stage + 1) % 2], width == widths[-1])
            dispatches.append(self._merge_dispatch(width, pairs[stage % 2], target))
        element_count = self.lines.count * n
        scratch = (
            ScratchBuffer(element_count, "i32"),
            ScratchBuffer(element_count, "u32"),
        )
        return KernelPlan(tuple(dispatches), scratch * (2 if widths else 1))

    @staticmethod
    def _target(pair: IndexKeyBuffers, is_last: bool) -> IndexKeyBuffers:
        """Return the buffers that a stage writes: the output for the last one."""
        return (_OUT, pair[1]) if is_last else pair

    def _dispatch(
        self,
        shader: str,
        reads: Sequence[OperandAccess],
        target: IndexKeyBuffers,
        **options: Any,
    ) -> KernelDispatch:
        """Return a dispatch with one invocation per element, each of which searches
        along its line.
        """
        lines, (indices, keys) = self.lines, target
        dense, is_last = (lines.inner * lines.n, lines.n, 1), indices.kind == "out"
        index_strides = (
            (self.keep_count * lines.inner, 1, lines.inner) if is_last else dense
        )
        index_access = OperandAccess(indices, index_strides, "write")
        if is_last:  # they may be fewer than the axis is long
            span = max((self.keep_count - 1) * lines.inner + 1, 1)
            index_access = OperandAccess(
                indices, (*index_strides[:2], 0), "write", span=span
            )
        output_uniforms = {
            "y_outer": index_strides[0],
            "y_inner": index_strides[1],
            "y_n": index_strides[2],
            "keep": self.keep_count,
        }
        stage_uniforms = {
            "z_outer": dense[0],
            "z_inner": dense[1],
            "last": int(is_last),
        }
        values = {**options.pop("uniforms"), **output_uniforms, **stage_uniforms}
        return KernelDispatch(
            shader=shader,
            axes=(*lines.outer_axes, IterationAxis("n", lines.n, "whole")),
            accesses=(*reads, index_access, OperandAccess(keys, dense, "write")),
            grid=(("outer", 1), ("inner", 1), ("n", 1)),
            uniforms=values,
            **options,
        )

    def _sort_blocks_dispatch(self, target: IndexKeyBuffers) -> KernelDispatch:
        """Return the dispatch that sorts blocks of `BLOCK_SIZE` elements."""
        lines = self.lines
        block_uniforms = {
            "x_outer": lines.operand_strides[0],
            "x_n": lines.operand_strides[2],
            "block": BLOCK_SIZE,
        }
        return self._dispatch(
            "sort_blocks",
            (OperandAccess(BufferRef("in"), lines.operand_strides),),
            target,
            uniforms={**block_uniforms, **key_uniforms(lines)},
            uses=(
                element_type_include(lines.dtype),
                # rank_f32, rank_i32 or rank_u32
                f"rank_{compute_scalar(lines.dtype)}",
            ),
            iterations=float(BLOCK_SIZE),
        )

    def _merge_dispatch(
        self, width: int, source: IndexKeyBuffers, target: IndexKeyBuffers
    ) -> KernelDispatch:
        """Return the dispatch that merges pairs of sorted runs of `width` elements."""
        dense = (self.lines.inner * self.lines.n, self.lines.n, 1)
        indices, keys = source
        return self._dispatch(
            "sort_merge",
            (OperandAccess(keys, dense), OperandAccess(indices, dense)),
            target,
            uniforms={"width": width},
            iterations=float(width.bit_length() + 1),
        )


def plan_argsort_by_merging(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Return the plan of argsort by merging."""
    (x,) = inputs
    axis = attrs["axis"] % x.rank
    outer, inner = numel(x.shape[:axis]), numel(x.shape[axis + 1 :])
    lines = SortLines(outer, x.shape[axis], inner, x.dtype, attrs["descending"])
    return MergeSortPlanner(lines, lines.n).plan()


def plan_topk_by_sorting(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Return the plan of topk by sorting whole rows, or None for a short list."""
    x, k = inputs[0], attrs["k"]
    if k <= MAX_TOPK_LIST:
        return None
    rows, n = numel(x.shape[:-1]), x.shape[-1]
    return MergeSortPlanner(SortLines(rows, n, 1, x.dtype, True), k).plan()


KERNELS = (
    KernelVariant("topk, sorted rows", "topk", plan_topk_by_sorting),
    KernelVariant("argsort, runs merged", "argsort", plan_argsort_by_merging),
)
