"""Kernel variant of reductions along the last axes, for GPUs: many invocations per
output.

Lines that lie side by side in memory are read by neighbouring invocations, four
elements at a time where the length allows. A long line is cut into parts, whose results
are reduced in turn. Deleting it changes no result but the order of additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape_arithmetic import normalize_sorted_axes
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule
from rlxweb.ops.reduce.wgsl.plan import (
    REDUCTION_KINDS,
    ReductionKind,
    compute_scalar,
    element_type_include,
    group_axes,
)

# shaders/reduce/reduce_lines.wgsl has room for so many invocations.
WORKGROUP_SIZE = 256
MIN_ROW_LENGTH = 32
"""Minimum row length; shorter rows are left to one invocation each."""
MAX_CHUNK_LENGTH = 1 << 14
"""Elements that one workgroup reduces when there are few rows."""
SATURATING_ROWS = 512
"""Number of rows that keeps a GPU busy without cutting them into chunks."""


@dataclass(frozen=True, slots=True)
class _ReductionStage:
    """One stage that reduces `rows` rows of n elements, each in `chunk_count`
    chunks.
    """

    kind: ReductionKind
    dtype: DType
    rows: int
    n: int
    source: BufferRef
    target: BufferRef

    @property
    def chunk_length(self) -> int:
        """Elements that one workgroup reduces."""
        return self.n if self.rows >= SATURATING_ROWS else min(self.n, MAX_CHUNK_LENGTH)

    @property
    def chunk_count(self) -> int:
        """Chunks per row."""
        return -(-self.n // self.chunk_length)

    @property
    def load_width(self) -> int:
        """Elements moved by one load."""
        return 1 if self.n % 4 or self.chunk_length % 4 else 4

    @property
    def lanes_per_row(self) -> int:
        """Invocations per chunk of a row: four loads each, if there are so many."""
        loads = self.chunk_length // self.load_width // 4
        return max(4, min(WORKGROUP_SIZE, 1 << max(0, loads.bit_length() - 1)))

    def dispatch(self) -> KernelDispatch:
        """Return the dispatch of this stage."""
        is_vec4 = self.load_width == 4
        rows_per_workgroup = WORKGROUP_SIZE // self.lanes_per_row
        iterations = (
            self.chunk_length / self.load_width / self.lanes_per_row
            + self.lanes_per_row.bit_length()
            + 4
        )
        return KernelDispatch(
            shader="reduce_lines",
            axes=(
                IterationAxis("part", self.chunk_count),
                IterationAxis("line", self.rows),
                IterationAxis("n", self.chunk_length, "whole"),
            ),
            accesses=(
                OperandAccess(
                    self.source, (self.chunk_length, self.n, 1), is_vec4=is_vec4
                ),
                OperandAccess(self.target, (1, self.chunk_count, 0), "write"),
            ),
            grid=(("part", 1), ("line", rows_per_workgroup)),
            item_unit="workgroup",
            workgroup_size=WORKGROUP_SIZE,
            uniforms={
                "x_line": self.n,
                "y_line": self.chunk_count,
                "whole": self.n,
                "width": self.load_width,
            },
            overrides={
                "KIND": REDUCTION_KINDS.index(self.kind),
                "LANES": self.lanes_per_row,
            },
            uses=(
                element_type_include(self.dtype),
                "combine",
                "fold_wide" if is_vec4 else "fold_single",
            ),
            shared_bytes=4 * self.load_width * WORKGROUP_SIZE,
            iterations=iterations / self.chunk_length,
            epilogue_site="stores",
        )


def row_reduction_planner(kind: ReductionKind) -> WgslPlanRule:
    """Return a planner for reductions of the last axes with many invocations per
    output.

    None for other axes, for short lines and for workgroups of fewer than 256.
    """

    def plan(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> KernelPlan | None:
        x = inputs[0]
        kept, reduced = group_axes(
            x.shape, normalize_sorted_axes(attrs["axes"], x.rank)
        )
        max_lanes = limits.max_linear_workgroup_size
        is_along_rows = (
            len(reduced) == 1 and reduced[0].input_stride == 1 and len(kept) <= 1
        )
        is_along_rows = is_along_rows and x.dtype is not DType.BOOL
        if (
            not is_along_rows
            or reduced[0].size < MIN_ROW_LENGTH
            or max_lanes < WORKGROUP_SIZE
        ):
            return None
        rows = kept[0].size if kept else 1
        stage = _ReductionStage(
            kind, x.dtype, rows, reduced[0].size, BufferRef("in"), BufferRef("out")
        )
        dispatches, scratch = [], list[ScratchBuffer]()
        while stage.chunk_count > 1:
            ref = BufferRef("scratch", len(scratch))
            scratch.append(
                ScratchBuffer(rows * stage.chunk_count, compute_scalar(x.dtype))
            )
            dispatches.append(replace(stage, target=ref).dispatch())
            stage = replace(stage, n=stage.chunk_count, source=ref)
        return KernelPlan((*dispatches, stage.dispatch()), tuple(scratch))

    return plan


KERNELS = tuple(
    KernelVariant(f"{kind}, many lanes a line", kind, row_reduction_planner(kind))
    for kind in REDUCTION_KINDS
)
