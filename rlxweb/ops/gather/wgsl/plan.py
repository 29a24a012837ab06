"""Kernel plans of gather and of cumulative scans (cumsum and cumprod).

Both walk lines of a dense tensor. A few long lines are cut into chunks that are
worked on side by side and then put together, so that no single invocation walks
millions of elements. Pure arithmetic; knows no op's meaning.
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
from rlxweb.ops.reduce.wgsl.plan import (
    REDUCTION_KINDS,
    KeptAxes,
    ReducedAxes,
    ReductionKind,
    ReductionPass,
    compute_scalar,
    element_type_include,
    pass_dispatch,
)

# Lines longer than `LONG_LINE` are cut into chunks when there are fewer than
# `FEW_LINES`.
LONG_LINE, FEW_LINES = 512, 2048

_IN, _OUT = BufferRef("in"), BufferRef("out")


def next_power_of_two(minimum: float) -> int:
    """Return the smallest power of two that is not below `minimum`."""
    return 1 << max(0, math.ceil(minimum) - 1).bit_length()


def plan_gather(table: tuple[int, int, int], count: int) -> KernelPlan:
    """Return the plan that gathers `count` rows of a table given as (outer, rows,
    inner).

    The table's axis is serial: each piece writes what falls into its rows.
    """
    outer, rows, inner = table
    dispatch = KernelDispatch(
        shader="gather",
        axes=(
            IterationAxis("outer", outer),
            IterationAxis("index", count),
            IterationAxis("inner", inner),
            IterationAxis("t", rows, "serial"),
        ),
        accesses=(
            OperandAccess(_IN, (rows * inner, 0, 1, inner)),
            OperandAccess(BufferRef("in", 1), (0, 1, 0, 0)),
            OperandAccess(_OUT, (count * inner, inner, 1, 0), "update"),
        ),
        grid=(("outer", 1), ("index", 1), ("inner", 1)),
        uniforms={
            "rows": rows,
            "x_outer": rows * inner,
            "x_t": inner,
            "y_outer": count * inner,
            "y_index": inner,
        },
        reports_faults=True,
        iterations=0.0,
    )
    return KernelPlan((dispatch,))


@dataclass(frozen=True, slots=True)
class CumulativePass:
    """Pass of running sums or products over (outer, chunk, n, inner) lines.

    line_sizes  elements of a whole line, and its chunks, each of which has a carry
    kind     "sum", or "prod" for running products
    starts_at_identity  whether a line starts at nothing; else at its carry
    """

    sizes: tuple[int, int, int, int]
    line_sizes: tuple[int, int]
    kind: ReductionKind
    dtype: DType
    source: BufferRef
    target: BufferRef
    carry: BufferRef
    exclusive: bool
    starts_at_identity: bool = True
    offset: int = 0
    carry_offset: int = 0

    def dispatch(self) -> KernelDispatch:
        """Return the dispatch of this pass."""
        outer, chunks, n, inner = self.sizes
        line_length, carry_count = self.line_sizes
        line_strides = (line_length * inner, n * inner, inner, 1)
        carry_strides = (carry_count * inner, inner, 0, 1)
        return KernelDispatch(
            shader="cumsum",
            axes=(
                IterationAxis("outer", outer),
                IterationAxis("chunk", chunks),
                IterationAxis("n", n, "serial"),
                IterationAxis("inner", inner),
            ),
            accesses=(
                OperandAccess(self.source, line_strides, "read", self.offset),
                OperandAccess(self.target, line_strides, "write", self.offset),
                OperandAccess(self.carry, carry_strides, "update", self.carry_offset),
            ),
            grid=(("outer", 1), ("chunk", 1), ("inner", 1)),
            uniforms={
                "x_outer": line_strides[0],
                "x_chunk": line_strides[1],
                "x_n": line_strides[2],
                "c_outer": carry_strides[0],
                "c_chunk": carry_strides[1],
                "exclusive": int(self.exclusive),
                "fresh": int(self.starts_at_identity),
            },
            overrides={"KIND": REDUCTION_KINDS.index(self.kind)},
            uses=(element_type_include(self.dtype), "combine"),
        )


def plan_cumulative(
    sizes: tuple[int, int, int],
    dtype: DType,
    exclusive: bool,
    kind: ReductionKind = "sum",
) -> KernelPlan:
    """Return the plan of running sums, or products, along the middle of (outer, n,
    inner).

    A few long lines are cut into chunks: sums of the chunks, running sums of those, and
    then every chunk from the sum of all before it.
    """
    outer, n, inner = sizes
    carry = ScratchBuffer(outer * inner, compute_scalar(dtype))
    carry_buffer = BufferRef("scratch", 0)
    line_shape = (outer, 1, n, inner)
    pass_options = (_IN, _OUT, carry_buffer, exclusive)
    line_pass = CumulativePass(line_shape, (n, 1), kind, dtype, *pass_options)
    if n <= LONG_LINE or outer * inner >= FEW_LINES:
        return KernelPlan((line_pass.dispatch(),), (carry,))
    length = next_power_of_two(math.sqrt(n))
    chunks, remainder = divmod(n, length)
    sums, starts = BufferRef("scratch", 1), BufferRef("scratch", 2)
    line_size, chunk_size, width = n * inner, length * inner, chunks * inner
    kept = (
        KeptAxes(outer, line_size, width),
        KeptAxes(chunks, chunk_size, inner),
        KeptAxes(inner, 1, 1),
    )
    chunk_sum_pass = ReductionPass(_IN, sums, kept, (ReducedAxes(length, inner),))
    carry_pass = replace(
        line_pass,
        sizes=(outer, 1, chunks, inner),
        line_sizes=(chunks, 1),
        source=sums,
        target=starts,
        exclusive=True,
    )
    chunk_pass = replace(
        line_pass,
        sizes=(outer, chunks, length, inner),
        line_sizes=(n, chunks),
        carry=starts,
        starts_at_identity=False,
    )
    scan_passes = [carry_pass, chunk_pass]
    if remainder:
        # Behind the last whole chunk, whose carry by then holds all before.
        tail_sizes, carry_offset = (outer, 1, remainder, inner), (chunks - 1) * inner
        tail_pass = replace(
            chunk_pass,
            sizes=tail_sizes,
            offset=chunks * chunk_size,
            carry_offset=carry_offset,
        )
        scan_passes.append(tail_pass)
    dispatches = (
        pass_dispatch(kind, chunk_sum_pass, element_type_include(dtype)),
        *(scan_pass.dispatch() for scan_pass in scan_passes),
    )
    chunk_scratch = ScratchBuffer(outer * width, compute_scalar(dtype))
    return KernelPlan(dispatches, (carry, chunk_scratch, chunk_scratch))
