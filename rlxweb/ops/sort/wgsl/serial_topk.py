"""Kernel plan of topk: one invocation walks a row, and keeps a sorted list.

A few long rows are cut into chunks, whose lists are merged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ops.gather.wgsl.plan import FEW_LINES, LONG_LINE, next_power_of_two
from rlxweb.ops.reduce.wgsl.plan import (
    compute_scalar,
    element_type_include,
)

_IN, _OUT = BufferRef("in"), BufferRef("out")


@dataclass(frozen=True, slots=True)
class TopKPass:
    """Pass over lines that keeps a sorted list of k (value, index) pairs for each.

    sizes    rows, chunks of each row, candidates of each chunk
    row_stride  candidates from one row to the next
    candidate_indices  where the candidates' indices are; None when they are positions
    initial_count  list entries an earlier walk has left
    """

    sizes: tuple[int, int, int]
    row_stride: int
    k: int
    dtype: DType
    source: BufferRef
    value_buffer: BufferRef
    index_buffer: BufferRef
    candidate_indices: BufferRef | None = None
    offset: int = 0
    initial_count: int = 0

    def dispatch(self) -> KernelDispatch:
        """Return the dispatch of this pass."""
        rows, chunks, n = self.sizes
        candidate_strides = (self.row_stride, n, 1)
        list_strides = (chunks * self.k, self.k, 0)
        accesses = [
            OperandAccess(self.source, candidate_strides, "read", self.offset),
            OperandAccess(self.value_buffer, list_strides, "update", span=self.k),
            OperandAccess(self.index_buffer, list_strides, "update", span=self.k),
        ]
        if self.candidate_indices is not None:
            accesses.append(OperandAccess(self.candidate_indices, candidate_strides))
        origin_include = (
            "topk_direct" if self.candidate_indices is None else "topk_merge"
        )
        return KernelDispatch(
            shader="topk",
            axes=(
                IterationAxis("row", rows),
                IterationAxis("chunk", chunks),
                IterationAxis("n", n, "serial"),
            ),
            accesses=tuple(accesses),
            grid=(("row", 1), ("chunk", 1)),
            uniforms={
                "k": self.k,
                "x_row": candidate_strides[0],
                "x_chunk": candidate_strides[1],
                "y_row": list_strides[0],
                "y_chunk": list_strides[1],
                "start": self.offset,
                "before": self.initial_count,
            },
            uses=(element_type_include(self.dtype), origin_include),
            # A newcomer may pass all k entries before it, where the values rise.
            iterations=self.k + 2.0,
        )


def plan_topk(rows: int, n: int, k: int, dtype: DType) -> KernelPlan:
    """Return the plan of topk: one pass per row; a few long rows in chunks whose lists
    are merged.
    """
    scalar = compute_scalar(dtype)
    best_values = BufferRef("scratch", 0)
    chunks = next_power_of_two(math.sqrt(n / k)) if rows < FEW_LINES else 1
    length = n // chunks
    row_pass = TopKPass((rows, 1, n), n, k, dtype, _IN, best_values, _OUT)
    if n <= LONG_LINE or chunks < 2 or length < k:
        return KernelPlan((row_pass.dispatch(),), (ScratchBuffer(rows * k, scalar),))
    width, remainder = chunks * k, n - chunks * length
    chunk_pass = replace(
        row_pass,
        sizes=(rows, chunks, length),
        value_buffer=BufferRef("scratch", 1),
        index_buffer=BufferRef("scratch", 2),
    )
    merge_pass = replace(
        row_pass,
        sizes=(rows, 1, width),
        row_stride=width,
        source=chunk_pass.value_buffer,
        candidate_indices=chunk_pass.index_buffer,
    )
    topk_passes = [chunk_pass, merge_pass]
    if remainder:
        start = chunks * length
        topk_passes.append(
            replace(row_pass, sizes=(rows, 1, remainder), offset=start, initial_count=k)
        )
    scratch = (
        ScratchBuffer(rows * k, scalar),
        ScratchBuffer(rows * width, scalar),
        ScratchBuffer(rows * width, "i32"),
    )
    return KernelPlan(tuple(topk_pass.dispatch() for topk_pass in topk_passes), scratch)
