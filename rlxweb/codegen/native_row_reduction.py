"""Row kernels on the CPU: reductions along rows and what is elementwise around them,
in one call of native code.

Owns which of them are compiled, how their axes become rows, and how the rows are
shared out among threads. NumPy computes node by node until the code is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from operator import add, mul
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.elementwise_llvm import unsupported_reason
from rlxweb.codegen.jit_cache import JitCache, JitCall, WasmJitCache, compile_cached
from rlxweb.codegen.native_calls import (
    ParallelNativeFunction,
    array_address,
    function_address,
)
from rlxweb.codegen.native_elementwise import (
    MIN_BLOCK_ELEMENTS,
    MIN_WORK,
    region_key,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.codegen.row_kernel import JOB_WORDS, RowKernel, is_view
from rlxweb.codegen.wasm_builder import IN_BROWSER, load_module
from rlxweb.core.thread_tasks import run_tasks
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.row_reduction_pattern import reduction_kind

MAX_ROW_LENGTH: Final = 1 << 16
"""Elements of the longest row: it is walked several times and has to stay in cache."""
MIN_TASK_ELEMENTS: Final = 1 << 13
"""Minimum elements that a thread computes at a time."""
MIN_THREADED_ELEMENTS: Final = 1 << 15
_CLAIMED_WORD: Final = 2
"""Word of a job with the address of the counter of claimed rows."""
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


def _compile_native(spec: object) -> ParallelNativeFunction:
    """Compile a row kernel to native code. Errors  Unsupported; those of the
    library.
    """
    # What reads and writes expressions is loaded where there is something to compile.
    from rlxweb.codegen.row_reduction_llvm import row_kernel_llvm_ir

    assert isinstance(spec, RowKernelSpec)
    nbytes = llvm_compiler.host_cpu().vector_nbytes
    code = compile_cached(row_kernel_llvm_ir(spec.kernel, spec.is_scalar, nbytes))
    return ParallelNativeFunction.from_code(code, "rows")


def _compile_wasm(spec: object) -> ParallelNativeFunction:
    """Compile a row kernel to WebAssembly. Errors  Unsupported, OSError."""
    from rlxweb.codegen.row_reduction_wasm import row_kernel_module

    assert isinstance(spec, RowKernelSpec)
    module = row_kernel_module(spec.kernel, spec.is_scalar)
    (call,) = load_module(module, "rows_job")
    return ParallelNativeFunction(call, function_address(call))


row_kernels: JitCache[ParallelNativeFunction] = (
    WasmJitCache(_compile_wasm) if IN_BROWSER else JitCache(_compile_native)
)
"""JIT cache of this process's row kernels."""


class RowKernelCall(JitCall[ParallelNativeFunction]):
    """Row kernel as a function of arrays.

    operands  which of the arrays each read is; None: they are the reads, in order
    """

    def __init__(
        self,
        rows: CompilableRowKernel,
        fallback: Callable[..., NDArray[Any]],
        operands: Sequence[int] | None = None,
    ) -> None:
        self.spec, layout = rows
        super().__init__(row_kernels, self.spec, fallback)
        kernel = self.spec.kernel
        result_type, n = kernel.result.type, kernel.rows.row_length
        self.operands = range(len(kernel.reads)) if operands is None else operands
        self.shape, self.dtype = result_type.shape, result_type.dtype.numpy
        dtypes = [kernel.graph.node(i).type.dtype.numpy for i, _ in kernel.reads]
        item_sizes = [dtype.itemsize for dtype in (self.dtype, *dtypes)]
        self.strides = list(map(mul, layout.strides, item_sizes))
        self.block_starts = [list(map(mul, s, item_sizes)) for s in layout.starts]
        task_rows = max(1, MIN_TASK_ELEMENTS // n)
        words = layout.row_count, n, 0, task_rows
        # NumPy 1 on Windows has 32 bits where it is not told. The last word is the
        # counter of the rows that threads have claimed.
        addresses = [0] * len(item_sizes)
        self._job = np.array([*words, *addresses, *self.strides, 0], np.int64)
        block_count = len(layout.starts)
        is_large = block_count * layout.row_count * n >= MIN_THREADED_ELEMENTS
        is_divisible = block_count > 1 or layout.row_count > task_rows
        self.is_threaded = is_large and is_divisible and not IN_BROWSER

    def _run_kernel(
        self, kernel: ParallelNativeFunction, arrays: Sequence[NDArray[Any]]
    ) -> NDArray[Any]:
        out = result_pool.empty(self.shape, self.dtype)
        dense = [np.ascontiguousarray(arrays[k]) for k in self.operands]
        bases = [array_address(array) for array in (out, *dense)]

        def run_block(index: int, *, threaded: bool = False) -> None:
            job = self._job.copy()
            job[_CLAIMED_WORD] = array_address(job) + job.itemsize * (job.size - 1)
            addresses = map(add, bases, self.block_starts[index])
            job[JOB_WORDS : JOB_WORDS + len(bases)] = list(addresses)
            kernel(job, threaded=threaded)

        if len(self.block_starts) == 1:
            run_block(0, threaded=self.is_threaded)
        else:
            threads = None if self.is_threaded else 1
            run_tasks(len(self.block_starts), lambda: run_block, threads=threads)
        return out


def compilable_row_kernel(
    graph: Graph, ids: Sequence[int], *, any_size: bool = False
) -> CompilableRowKernel | None:
    """Return a fused row reduction as a row kernel; None if it is too small to be worth
    compiling, or cannot be compiled.

    any_size  whether it may be small, and its rows shorter or longer than is best
    Errors   GraphError for a node that is not computed along the rows.
    """
    kernel = RowKernel.from_nodes(graph, ids)
    is_long = MIN_ROW_LENGTH <= kernel.rows.row_length <= MAX_ROW_LENGTH
    is_large = prod(kernel.rows.shape) * len(ids) >= MIN_WORK
    if not any_size and not (is_long and is_large):
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
