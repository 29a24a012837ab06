"""Elementwise regions on the CPU: one pass of native code, or NumPy op by op.

Owns which regions are compiled, how their axes become rows of elements, and how those
are shared out among threads. NumPy computes until the code is there, and what it cannot
say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.jit_cache import JitCache, JitCall, WasmJitCache, compile_cached
from rlxweb.codegen.native_calls import array_address, function_address
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.codegen.wasm_builder import IN_BROWSER, load_module
from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry
from rlxweb.ir.shape_arithmetic import Shape

MIN_WORK: Final = 1 << 13
"""Elements times ops from which one native call is faster than NumPy's calls."""
MIN_TASK_ELEMENTS: Final = 1 << 15
"""Minimum elements that a thread computes at a time."""
_MAX_TASKS: Final = 16
MIN_THREADED_ELEMENTS: Final = 1 << 17
_MIN_ROW_ELEMENTS: Final = 16
"""Minimum elements of a row: the lanes of the widest vectors."""
MIN_BLOCK_ELEMENTS: Final = 1 << 10
"""Elements of a block from which a call of its own pays off."""


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """Elementwise region as a JIT cache key: equal specs have the same generated code.

    key      its ops, attributes, literals and how they hang together
    is_scalar  which reads are one number for a whole row
    """

    key: str
    is_scalar: tuple[bool, ...]
    graph: Graph = field(compare=False, repr=False)
    ids: tuple[int, ...] = field(compare=False)
    reads: tuple[int, ...] = field(compare=False)

    @classmethod
    def from_nodes(
        cls,
        graph: Graph,
        ids: Sequence[int],
        reads: Sequence[int],
        is_scalar: tuple[bool, ...],
    ) -> RegionSpec:
        """Build the spec of elementwise nodes with these reads in order."""
        key = region_key(graph, ids, reads)
        return cls(key, is_scalar, graph, tuple(ids), tuple(reads))


class RegionRowLayout(NamedTuple):
    """Axes of a region as rows of elements.

    row_strides  for each read, elements from one row to the next
    is_scalar  whether it is one number for all of a row
    blocks   how often there are so many rows, as axes of (times, elements of each read
             from one time to the next): a bias of channels begins anew with every item
    """

    outer: int
    inner: int
    row_strides: tuple[int, ...]
    is_scalar: tuple[bool, ...]
    blocks: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def block_starts(self) -> list[tuple[int, ...]]:
        """Return the first element of every block, of the output and of each read."""
        starts = np.zeros((1, 1 + len(self.row_strides)), np.int64)
        block_elements = self.outer * self.inner
        for times, steps in self.blocks[::-1]:
            offsets = np.arange(times)[:, None] * np.array([block_elements, *steps])
            starts = (offsets[:, None] + starts[None]).reshape(-1, starts.shape[1])
            block_elements *= times
        return [tuple(row) for row in starts.tolist()]


def region_row_layout(out: Shape, reads: Sequence[Shape]) -> RegionRowLayout | None:
    """Lay the axes out as rows; None if rows are short or form small blocks."""
    aligned = [(1,) * (len(out) - len(shape)) + tuple(shape) for shape in reads]
    groups: list[tuple[int, tuple[bool, ...]]] = []
    for axis, size in enumerate(out):
        if size == 1:
            continue
        varies = tuple(shape[axis] != 1 for shape in aligned)
        if groups and groups[-1][1] == varies:
            groups[-1] = groups[-1][0] * size, varies
        else:
            groups.append((size, varies))
    if not groups:
        return None
    # from the innermost outwards, elements from one step of an axis to the next
    strides: list[tuple[int, ...]] = []
    sizes = [1] * len(reads)
    for size, varies in groups[::-1]:
        strides.append(tuple(n * v for n, v in zip(sizes, varies, strict=True)))
        sizes = [n * size if v else n for n, v in zip(sizes, varies, strict=True)]
    (inner, dense), *rest = groups[::-1]
    outer = rest[0][0] if rest else 1
    if inner < _MIN_ROW_ELEMENTS or (
        len(rest) > 1 and outer * inner < MIN_BLOCK_ELEMENTS
    ):
        return None
    steps = strides[1] if rest else (0,) * len(reads)
    blocks = [(g[0], n) for g, n in zip(rest[1:], strides[2:], strict=True)]
    return RegionRowLayout(
        outer, inner, steps, tuple(not d for d in dense), tuple(blocks[::-1])
    )


def compilable_region(
    graph: Graph, ids: Sequence[int], reads: Sequence[int]
) -> RegionSpec | None:
    """Return the region's spec; None if it is too small to be worth compiling."""
    out = graph.node(ids[-1]).type
    if out.numel * len(ids) < MIN_WORK:
        return None
    rows = region_row_layout(out.shape, [graph.node(i).type.shape for i in reads])
    if rows is None:
        return None
    return RegionSpec.from_nodes(graph, ids, reads, rows.is_scalar)


def region_key(graph: Graph, ids: Sequence[int], reads: Sequence[int]) -> str:
    """Return a key that is equal for regions that compute the same from their reads."""
    names = {node: f"r{index}" for index, node in enumerate(reads)}
    names |= {node: f"v{index}" for index, node in enumerate(ids)}

    def operand(i: int) -> str:
        if i in names:
            return f"{names[i]}:{graph.node(i).type.dtype.label}"
        return repr(graph.node(i).attrs["value"].array.reshape(-1)[:1])

    def line(node: Node) -> str:
        lower = registry.get(node.op).lower
        is_expr = isinstance(lower, Expr)
        # A view or a reduction along a row has nothing but shapes in its attributes.
        attrs = sorted(node.attrs.items()) if is_expr else ""
        operands = ", ".join(map(operand, node.inputs))
        text = f"{node.op}({operands}) {attrs} -> {node.type.dtype.label}"
        if not isinstance(lower, Expr) or not callable(lower.text):
            return text
        # What it says may rest on shapes: an average is over so many.
        types = tuple(graph.node(i).type for i in node.inputs)
        return f"{text}: {lower.text(types, node.type, node.attrs)}"

    return "; ".join(line(graph.node(i)) for i in ids)


class RegionCode(NamedTuple):
    """Compiled region: its function, and its address as a job function."""

    call: Callable[..., None]
    job_address: int


def _compile_native(spec: object) -> RegionCode:
    """Compile a region to native code. Errors  Unsupported; those of the library."""
    # What reads and writes expressions is loaded where there is something to compile.
    from rlxweb.codegen.elementwise_llvm import region_text

    assert isinstance(spec, RegionSpec)
    processor = llvm_compiler.host_cpu()
    text = region_text(
        spec.graph, spec.ids, spec.reads, spec.is_scalar, processor.vector_nbytes
    )
    code = compile_cached(text)
    call = code.get_function("region", None, c_void_p, c_int64, c_int64)
    return RegionCode(
        call, function_address(code.get_function("region_job", None, c_void_p))
    )


def _compile_wasm(spec: object) -> RegionCode:
    """Compile a region to WebAssembly. Errors  Unsupported, OSError."""
    from rlxweb.codegen.elementwise_wasm import region_module

    assert isinstance(spec, RegionSpec)
    code = region_module(spec.graph, spec.ids, spec.reads, spec.is_scalar)
    call, job = load_module(code, "region", "region_job")
    return RegionCode(call, function_address(job))


region_kernels: JitCache[RegionCode] = (
    WasmJitCache(_compile_wasm) if IN_BROWSER else JitCache(_compile_native)
)
"""JIT cache of this process's regions."""


class RegionCall(JitCall[RegionCode]):
    """Region as a function of the arrays it reads, in order."""

    def __init__(
        self, region: RegionSpec, out: Node, fallback: Callable[..., NDArray[Any]]
    ) -> None:
        super().__init__(region_kernels, region, fallback)
        self.region = region
        self.shape, self.dtype = out.type.shape, out.type.dtype.numpy
        node = region.graph.node
        shapes = [node(i).type.shape for i in region.reads]
        layout = region_row_layout(self.shape, shapes)
        assert layout is not None  # `compilable_region` asked
        self.layout, self.block_starts = layout, layout.block_starts()
        item_sizes = [node(i).type.dtype.numpy.itemsize for i in region.reads]
        self.item_sizes = (self.dtype.itemsize, *item_sizes)

    def _run_kernel(
        self, kernel: RegionCode, arrays: Sequence[NDArray[Any]]
    ) -> NDArray[Any]:
        out = result_pool.empty(self.shape, self.dtype)
        dense = [np.ascontiguousarray(array) for array in arrays]
        addresses = [array_address(out), *map(array_address, dense)]
        layout, item_sizes = self.layout, self.item_sizes
        steps = [layout.inner, *layout.row_strides]
        strides = [step * size for step, size in zip(steps, item_sizes, strict=True)]
        is_one_row = layout.outer == 1
        task_strides = strides
        if is_one_row:  # a task is a part of the row
            is_scalar = (False, *layout.is_scalar)
            task_strides = [
                0 if s else size for s, size in zip(is_scalar, item_sizes, strict=True)
            ]
        total = layout.inner if is_one_row else layout.outer
        task_elements = max(MIN_TASK_ELEMENTS, out.size // _MAX_TASKS)
        units_per_task = (
            task_elements if is_one_row else max(1, task_elements // layout.inner)
        )
        tasks_per_block = max(1, total // units_per_task)
        block_addresses = [
            [
                a + n * size
                for a, n, size in zip(addresses, block, item_sizes, strict=True)
            ]
            for block in self.block_starts
        ]

        def make_worker() -> Task:
            def task(index: int) -> None:
                block, part = divmod(index, tasks_per_block)
                first = part * units_per_task
                # The last part of a row has no fewer elements than a vector.
                count = total - first if part == tasks_per_block - 1 else units_per_task
                base_addresses = block_addresses[block]
                job = [
                    a + first * m
                    for a, m in zip(base_addresses, task_strides, strict=True)
                ]
                arguments = np.array(job + strides, np.int64)
                shape = (1, count) if is_one_row else (count, layout.inner)
                kernel.call(array_address(arguments), *shape)

            return task

        tasks = tasks_per_block * len(block_addresses)
        if tasks == 1:
            make_worker()(0)
            return out
        threads = 1 if out.size < MIN_THREADED_ELEMENTS else None
        run_tasks(tasks, make_worker, threads=threads)
        return out
