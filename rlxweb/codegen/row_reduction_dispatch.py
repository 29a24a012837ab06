"""Dispatches of fused row reductions (softmax, norms, losses) as generated shaders.

A line is walked once for every reduction that needs the one before it, and once to
store what has a value for each element; what lies between is evaluated anew on each
walk and never stored. One invocation has a line to itself, or a workgroup shares it.
Sizes and strides are uniforms, as in a region. Where all that changes along a line lies
in whole fours, four elements are taken at once, and what is one for a line is four
times the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.codegen.elementwise_wgsl import ELEMENTWISE_DTYPES
from rlxweb.codegen.row_kernel import RowKernel
from rlxweb.codegen.row_reduction_wgsl import RowReductionWgsl
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import BufferRef, IterationAxis, KernelDispatch, OperandAccess

MIN_SHARED_ROW_LENGTH = 32
"""Shortest row, in elements, that a workgroup is started for."""
_MAX_LANES = 256
MAX_SHARED_ARRAYS = 12
"""Largest number of arrays in workgroup memory: one for each kind of reduction and
type.
"""


def invocations_per_row(iterations: int, max_lanes: int) -> int:
    """Return how many invocations share a row of so many iterations: four each, if
    there are so many.

    max_lanes  of a workgroup; 1 where they cannot share
    """
    max_lanes = min(max_lanes, _MAX_LANES, max(MIN_SHARED_ROW_LENGTH, iterations // 4))
    if iterations < MIN_SHARED_ROW_LENGTH or max_lanes < MIN_SHARED_ROW_LENGTH:
        return 1
    return 1 << (max_lanes.bit_length() - 1)


def row_reduction_dispatch(
    graph: Graph, ids: Sequence[int], layouts: Sequence[Layout], max_lanes: int
) -> KernelDispatch:
    """Return the dispatch of some nodes along their rows; the output is dense.

    layouts  how each of `external_reads` lies, spread over the elements
    max_lanes  invocations that may share a line
    """
    kernel = RowKernel.from_nodes(graph, ids)
    rows, is_per_element = kernel.rows, kernel.is_per_element
    out = Layout.dense(rows.shape if is_per_element else rows.keepdims_shape).expand(
        rows.shape
    )
    all_layouts = [*layouts, out]
    outer_rank = len(rows.outer_shape)
    outer_layouts = _restrict_layouts(all_layouts, slice(0, outer_rank))
    row_layouts = _restrict_layouts(all_layouts, slice(outer_rank, None))
    is_vec4 = _vec4_operands(
        outer_layouts, row_layouts, [layout.offset for layout in all_layouts]
    )
    if ELEMENTWISE_DTYPES & {graph.node(i).type.dtype for i, _ in kernel.reads}:
        is_vec4 = (False,) * len(all_layouts)  # such elements are not loaded in fours
    iterations = rows.row_length // (4 if any(is_vec4) else 1)
    lanes = invocations_per_row(iterations, max_lanes)
    generator = RowReductionWgsl(kernel, (outer_layouts, row_layouts), is_vec4, lanes)
    source = generator.build_source()
    axes = (
        *(IterationAxis(f"d{a}", n) for a, n in enumerate(outer_layouts[0].shape)),
        *(
            IterationAxis(f"l{a}", n, "whole")
            for a, n in enumerate(row_layouts[0].shape)
        ),
    )
    accesses = tuple(
        OperandAccess(
            BufferRef("out") if k == len(layouts) else BufferRef("in", k),
            (*outer_layouts[k].strides, *row_layouts[k].strides),
            "write" if k == len(layouts) else "read",
            operand_layout.offset,
            is_vec4=is_vec4[k],
        )
        for k, operand_layout in enumerate(all_layouts)
    )
    walk_count = kernel.walk_count + is_per_element
    return KernelDispatch(
        shader="generated",
        axes=axes,
        accesses=accesses,
        grid=tuple((f"d{a}", 1) for a in range(len(outer_layouts[0].shape))),
        item_unit="invocation" if lanes == 1 else "workgroup",
        workgroup_size=64 if lanes == 1 else lanes,
        uniforms=generator.uniforms,
        uses=tuple(generator.includes),
        source=source,
        shared_bytes=0 if lanes == 1 else 16 * lanes * len(generator.shared_reductions),
        iterations=(walk_count * iterations / lanes + 16) / rows.row_length,
    )


def _vec4_operands(
    outer_layouts: Sequence[Layout],
    row_layouts: Sequence[Layout],
    offsets: Sequence[int],
) -> tuple[bool, ...]:
    """Return which operands are moved as vec4: all that vary along a row, or none."""
    moving = [k for k, layout in enumerate(row_layouts) if any(layout.strides)]
    is_aligned = len(row_layouts[0].shape) == 1 and row_layouts[0].shape[0] % 4 == 0
    for k in moving:
        starts = (*outer_layouts[k].strides, offsets[k])
        is_aligned = (
            is_aligned
            and row_layouts[k].strides == (1,)
            and all(s % 4 == 0 for s in starts)
        )
    return tuple(is_aligned and k in moving for k in range(len(row_layouts)))


def _restrict_layouts(layouts: Sequence[Layout], axes: slice) -> list[Layout]:
    """Return some axes of layouts, merged where all allow it; at least one."""
    parts = [Layout(layout.shape[axes], layout.strides[axes]) for layout in layouts]
    first, *others = parts
    merged = list(first.coalesce(*others))
    return merged if merged[0].shape else [Layout((1,), (0,)) for _ in merged]
