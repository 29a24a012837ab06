"""Row kernels on the CPU: reductions along rows and what is elementwise around them,
in one call of native code.

Owns which of them are compiled, how their axes become rows, and how the rows are
shared out among threads. NumPy computes node by node until the code is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.elementwise_llvm import unsupported_reason
from rlxweb.codegen.jit_cache import JitCache, JitCall, compile_cached
from rlxweb.codegen.native_calls import array_address
from rlxweb.codegen.native_elementwise import (
    MIN_BLOCK_ELEMENTS,
    MIN_TASK_ELEMENTS,
    MIN_THREADED_ELEMENTS,
    MIN_WORK,
    region_key,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.codegen.row_kernel import RowKernel, is_view
from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.row_reduction_pattern import reduction_kind

MAX_ROW_LENGTH: Final = 1 << 16
"""Elements of the longest row: it is walked several times and has to stay in cache."""
MIN_ROW_LENGTH: Final = 16
"""Elements of the shortest row: the lanes of the widest vectors."""


class RowLayout(NamedTuple):
    """Axes of a row kernel as rows of elements; of each array, the result's first.

    row_count  rows of a block, from one to the next of which are `strides` elements
    starts   element at which each block begins
    is_scalar  whether a read is one number for all of a row
    """

    row_count: int
    strides: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]
    is_scalar: tuple[bool, ...]


def row_layout(kernel: RowKernel) -> RowLayout | None:
    """Return the rows of a kernel over dense arrays; None if a read changes along a row
    otherwise than element by element.
    """
    rows, node = kernel.rows, kernel.graph.node
    outer_rank = len(rows.outer_shape)
    reads = [
        rows.broadcast_layout(Layout.dense(node(i).type.shape), lacks_axes)
        for i, lacks_axes in kernel.reads
    ]
    dense_row = Layout.dense(rows.shape[outer_rank:])
    is_scalar = []
    for layout in reads:
        row = Layout(rows.shape[outer_rank:], layout.strides[outer_rank:])
        is_scalar.append(not any(row.strides))
        if not is_scalar[-1] and row.coalesce() != dense_row.coalesce():
            return None
    result_shape = rows.shape if kernel.is_per_element else rows.outer_shape
    layouts = [Layout.dense(result_shape), *reads]
    outer = [
        Layout(rows.outer_shape, layout.strides[:outer_rank]) for layout in layouts
    ]
    merged = outer[0].coalesce(*outer[1:])
    *block_shape, count = merged[0].shape or (1,)
    strides = [layout.strides or (0,) for layout in merged]
    starts = [
        tuple(
            sum(i * step for i, step in zip(position, steps[:-1], strict=True))
            for steps in strides
        )
        for position in product(*map(range, block_shape))
    ]
    last_strides = tuple(steps[-1] for steps in strides)
    return RowLayout(count, last_strides, tuple(starts), tuple(is_scalar))


@dataclass(frozen=True, slots=True)
class RowKernelSpec:
    """Row kernel as a JIT cache key: equal specs have the same generated code.

    key      its ops, attributes, literals and how they hang together
    is_scalar  which reads are one number for a whole row
    """

    key: str
    is_scalar: tuple[bool, ...]
    kernel: RowKernel = field(compare=False, repr=False)


class CompilableRowKernel(NamedTuple):
    """Row kernel that is worth compiling, and the rows that it is run over."""

    spec: RowKernelSpec
    layout: RowLayout


def _compile_kernel(spec: object) -> Callable[..., None]:
    """Compile a row kernel. Errors  Unsupported; those of the library."""
    # What reads and writes expressions is loaded where there is something to compile.
    from rlxweb.codegen.row_reduction_llvm import row_kernel_llvm_ir

    assert isinstance(spec, RowKernelSpec)
    nbytes = llvm_compiler.host_cpu().vector_nbytes
    code = compile_cached(row_kernel_llvm_ir(spec.kernel, spec.is_scalar, nbytes))
    return code.get_function("rows", None, c_void_p, c_int64, c_int64)


row_kernels: JitCache[Callable[..., None]] = JitCache(_compile_kernel)
"""JIT cache of this process's row kernels."""


class RowKernelCall(JitCall[Callable[..., None]]):
    """Row kernel as a function of the arrays it reads, in order."""

    def __init__(
        self, rows: CompilableRowKernel, fallback: Callable[..., NDArray[Any]]
    ) -> None:
        self.spec, self.layout = rows
        super().__init__(row_kernels, self.spec, fallback)
        layout, kernel = self.layout, self.spec.kernel
        result_type = kernel.result.type
        self.shape, self.dtype = result_type.shape, result_type.dtype.numpy
        self.row_length = kernel.rows.row_length
        dtypes = [kernel.graph.node(i).type.dtype.numpy for i, _ in kernel.reads]
        # The kernel reads 64 bits, and NumPy 1 on Windows has 32 where it is not told.
        item_sizes = np.array([d.itemsize for d in (self.dtype, *dtypes)], np.int64)
        self.strides = np.array(layout.strides, np.int64) * item_sizes
        self.block_starts = np.array(layout.starts, np.int64) * item_sizes

    def _run_kernel(
        self, kernel: Callable[..., None], arrays: Sequence[NDArray[Any]]
    ) -> NDArray[Any]:
        out = result_pool.empty(self.shape, self.dtype)
        dense = [np.ascontiguousarray(array) for array in arrays]
        bases = np.array([array_address(a) for a in (out, *dense)], np.int64)
        layout = self.layout
        block_bases = bases + self.block_starts
        task_rows = max(1, MIN_TASK_ELEMENTS // self.row_length)
        tasks_per_block = -(-layout.row_count // task_rows)

        def make_worker() -> Task:
            def task(index: int) -> None:
                block, part = divmod(index, tasks_per_block)
                first = part * task_rows
                count = min(task_rows, layout.row_count - first)
                addresses = block_bases[block] + first * self.strides
                job = np.concatenate((addresses, self.strides))
                kernel(array_address(job), count, self.row_length)

            return task

        elements = len(layout.starts) * layout.row_count * self.row_length
        threads = 1 if elements < MIN_THREADED_ELEMENTS else None
        run_tasks(tasks_per_block * len(layout.starts), make_worker, threads=threads)
        return out


def compilable_row_kernel(
    graph: Graph, ids: Sequence[int]
) -> CompilableRowKernel | None:
    """Return a fused row reduction as a row kernel; None if it is too small to be worth
    compiling, or cannot be compiled.
    """
    kernel = RowKernel.from_nodes(graph, ids)
    is_long = MIN_ROW_LENGTH <= kernel.rows.row_length <= MAX_ROW_LENGTH
    if not is_long or prod(kernel.rows.shape) * len(ids) < MIN_WORK:
        return None
    computed = [n for n in kernel.nodes if not is_view(n) and not reduction_kind(n)]
    folds = [node for node in kernel.nodes if reduction_kind(node)]
    if any(n.type.dtype is not DType.F32 for n in folds) or unsupported_reason(
        computed
    ):
        return None
    layout = row_layout(kernel)
    if layout is None or (
        len(layout.starts) > 1
        and layout.row_count * kernel.rows.row_length < MIN_BLOCK_ELEMENTS
    ):
        return None
    reads = tuple(i for i, _ in kernel.reads)
    roles = [
        (kernel.levels[node.id], kernel.rows.has_no_unit_axes(node))
        for node in kernel.nodes
    ]
    lacks_axes = [lacks for _, lacks in kernel.reads]
    key = f"{region_key(graph, ids, reads)}; {roles}; {lacks_axes}"
    spec = RowKernelSpec(key, layout.is_scalar, kernel)
    return CompilableRowKernel(spec, layout)
