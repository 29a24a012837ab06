"""Kernel variant of topk for GPUs: a whole workgroup for every row, or chunk of a row.

A long row is cut into chunks whose ranked lists are ranked again until one is left.
Deleting it changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from rlxweb.ops.reduce.wgsl.plan import compute_scalar

# shaders/sort/topk_group.wgsl has room for so many invocations and candidates.
MAX_WORKGROUP_SIZE, MAX_CANDIDATES = 256, 1024
SHARED_BYTES = 8 * (MAX_WORKGROUP_SIZE + MAX_CANDIDATES) + 12
MIN_WORKGROUP_SIZE = 32
"""Smallest workgroup, and shortest row that is worth a workgroup."""
MAX_K = 128
"""Largest k; longer lists are too long for the chunks they come from."""
MAX_ELEMENTS_PER_INVOCATION = 16
"""Elements of a chunk for each of its invocations."""


@dataclass(frozen=True, slots=True)
class _TopKStage:
    """One stage that ranks chunks of rows of `row_length` candidates.

    candidate_indices  where the candidates' indices are; None when they are positions
    targets  indices and keys
    """

    rows: int
    row_length: int
    k: int
    scalar: str
    source: BufferRef
    candidate_indices: BufferRef | None
    targets: tuple[BufferRef, BufferRef]

    @property
    def workgroup_size(self) -> int:
        """Invocations per workgroup: at least k, because each invocation's best element
        is a candidate.
        """
        min_size = max(
            MIN_WORKGROUP_SIZE, self.k, min(MAX_WORKGROUP_SIZE, self.row_length // 2)
        )
        return 1 << (min_size - 1).bit_length()

    @property
    def chunk_length(self) -> int:
        """Elements per chunk."""
        return self.workgroup_size * min(
            MAX_ELEMENTS_PER_INVOCATION, MAX_CANDIDATES // self.k
        )

    @property
    def chunk_count(self) -> int:
        """Chunks per row."""
        return -(-self.row_length // self.chunk_length)

    def dispatch(self) -> KernelDispatch:
        """Return the dispatch of this stage."""
        chunks, n = self.chunk_count, min(self.chunk_length, self.row_length)
        candidate_strides = (self.row_length, n, 1)
        list_strides = (chunks * self.k, self.k, 0)
        indices, keys = self.targets
        accesses = [
            OperandAccess(self.source, candidate_strides),
            OperandAccess(indices, list_strides, "write", span=self.k),
            OperandAccess(keys, list_strides, "write", span=self.k),
        ]
        if self.candidate_indices is not None:
            accesses.append(OperandAccess(self.candidate_indices, candidate_strides))
        elements_per_lane = -(-n // self.workgroup_size)
        max_candidates = self.k * elements_per_lane
        iterations = (
            2 * elements_per_lane
            + self.workgroup_size
            + -(-max_candidates // self.workgroup_size) * max_candidates
        )
        return KernelDispatch(
            shader="topk_group",
            axes=(
                IterationAxis("row", self.rows),
                IterationAxis("chunk", chunks),
                IterationAxis("n", n, "whole"),
            ),
            accesses=tuple(accesses),
            grid=(("row", 1), ("chunk", 1)),
            item_unit="workgroup",
            workgroup_size=self.workgroup_size,
            uniforms={
                "k": self.k,
                "x_row": self.row_length,
                "y_row": list_strides[0],
                "line": self.row_length,
                "last": int(chunks == 1),
            },
            uses=(
                # rank_f32, rank_i32 or rank_u32
                f"rank_{self.scalar}",
                "topk_places" if self.candidate_indices is None else "topk_lists",
            ),
            shared_bytes=SHARED_BYTES,
            iterations=iterations / n,
        )


def plan_topk_per_workgroup(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Return the plan that ranks chunks of rows, then lists of chunks, until each row
    has one list.

    None for rows and workgroups too short to share, and for more than MOST_K places.
    """
    x, k = inputs[0], attrs["k"]
    rows, n = numel(x.shape[:-1]), x.shape[-1]
    shared_memory_limit = limits.max_compute_workgroup_storage_size
    if (
        limits.max_linear_workgroup_size < MAX_WORKGROUP_SIZE
        or shared_memory_limit < SHARED_BYTES
    ):
        return None
    if n < MIN_WORKGROUP_SIZE or k > MAX_K:
        return None
    scratch: list[ScratchBuffer] = []

    def new_scratch(element_count: int, scalar: Any) -> BufferRef:
        scratch.append(ScratchBuffer(element_count, scalar))
        return BufferRef("scratch", len(scratch) - 1)

    out_ref = BufferRef("out")
    stage = _TopKStage(
        rows, n, k, compute_scalar(x.dtype), BufferRef("in"), None, (out_ref, out_ref)
    )
    dispatches = []
    while True:
        is_last, list_size = stage.chunk_count == 1, rows * stage.chunk_count * k
        targets = (
            out_ref if is_last else new_scratch(list_size, "i32"),
            new_scratch(list_size, "u32"),
        )
        dispatches.append(replace(stage, targets=targets).dispatch())
        if is_last:
            return KernelPlan(tuple(dispatches), tuple(scratch))
        indices, keys = targets
        stage = _TopKStage(
            rows, stage.chunk_count * k, k, "u32", keys, indices, targets
        )


KERNELS = (KernelVariant("topk, workgroup a row", "topk", plan_topk_per_workgroup),)
