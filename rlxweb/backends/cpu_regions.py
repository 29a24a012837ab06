"""Elementwise regions on the CPU: one pass of machine code, or NumPy op by op.

Owns which regions are compiled, how their axes become rows of elements, and how those
are shared out among threads. NumPy computes until the code is there, and what it cannot
say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry
from rlxweb.ir.shape import Shape
from rlxweb.machine import library
from rlxweb.machine.jobs import address_of
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.wasm import IN_A_TAB, opened
from rlxweb.machine.workshop import WasmWorkshop, Workshop

LEAST_WORK: Final = 1 << 13
"""Elements times ops from which one call of ours is faster than NumPy's."""
TASK: Final = 1 << 15
"""Elements that a thread does at a time, at least."""
_SHARES: Final = 16
THREADED: Final = 1 << 17
_WIDEST: Final = 16
"""Elements that a row has at least: the lanes of the widest vectors."""
_LEAST_BLOCK: Final = 1 << 10
"""Elements of a block from which its own call is worth it."""


@dataclass(frozen=True, slots=True)
class Region:
    """What code is compiled for: equal ones have the same text.

    about    its ops, attributes, literals and how they hang together
    spread   which reads are one number for a whole row
    """

    about: str
    spread: tuple[bool, ...]
    graph: Graph = field(compare=False, repr=False)
    ids: tuple[int, ...] = field(compare=False)
    reads: tuple[int, ...] = field(compare=False)

    @classmethod
    def of(
        cls,
        graph: Graph,
        ids: Sequence[int],
        reads: Sequence[int],
        spread: tuple[bool, ...],
    ) -> Region:
        """What the elementwise nodes are compiled for, with these reads in order."""
        about = _about(graph, ids, reads)
        return cls(about, spread, graph, tuple(ids), tuple(reads))


class Rows(NamedTuple):
    """The axes of a region as rows of elements.

    steps    for each read, elements from one row to the next
    spread   whether it is one number for all of a row
    blocks   how often there are so many rows, as axes of (times, elements of each read
             from one time to the next): a bias of channels begins anew with every item
    """

    outer: int
    inner: int
    steps: tuple[int, ...]
    spread: tuple[bool, ...]
    blocks: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def starts(self) -> list[tuple[int, ...]]:
        """The first element of every block, of the output and of each read."""
        made = np.zeros((1, 1 + len(self.steps)), np.int64)
        each = self.outer * self.inner
        for times, steps in self.blocks[::-1]:
            moves = np.arange(times)[:, None] * np.array([each, *steps])
            made = (moves[:, None] + made[None]).reshape(-1, made.shape[1])
            each *= times
        return [tuple(one) for one in made.tolist()]


def rows_of(out: Shape, reads: Sequence[Shape]) -> Rows | None:
    """The axes as rows, or None where rows are short or make small blocks."""
    aligned = [(1,) * (len(out) - len(one)) + tuple(one) for one in reads]
    groups: list[tuple[int, tuple[bool, ...]]] = []
    for at, size in enumerate(out):
        if size == 1:
            continue
        varies = tuple(one[at] != 1 for one in aligned)
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
    if inner < _WIDEST or (len(rest) > 1 and outer * inner < _LEAST_BLOCK):
        return None
    steps = strides[1] if rest else (0,) * len(reads)
    blocks = [(g[0], n) for g, n in zip(rest[1:], strides[2:], strict=True)]
    return Rows(outer, inner, steps, tuple(not d for d in dense), tuple(blocks[::-1]))


def region_of(graph: Graph, ids: Sequence[int], reads: Sequence[int]) -> Region | None:
    """The region as it may be compiled; None where it is not worth that."""
    out = graph.node(ids[-1]).type
    if out.numel * len(ids) < LEAST_WORK:
        return None
    rows = rows_of(out.shape, [graph.node(i).type.shape for i in reads])
    if rows is None:
        return None
    return Region.of(graph, ids, reads, rows.spread)


def _about(graph: Graph, ids: Sequence[int], reads: Sequence[int]) -> str:
    """Equal for regions that do the same with what they read."""
    names = {node: f"r{at}" for at, node in enumerate(reads)}
    names |= {node: f"v{at}" for at, node in enumerate(ids)}

    def operand(i: int) -> str:
        if i in names:
            return f"{names[i]}:{graph.node(i).type.dtype.label}"
        return repr(graph.node(i).attrs["value"].array.reshape(-1)[:1])

    def line(node: Node) -> str:
        attrs = sorted(node.attrs.items())
        given = ", ".join(map(operand, node.inputs))
        made = f"{node.op}({given}) {attrs} -> {node.type.dtype.label}"
        lower = registry.get(node.op).lower
        if not isinstance(lower, Expr) or not callable(lower.text):
            return made
        # What it says may rest on shapes: an average is over so many.
        types = tuple(graph.node(i).type for i in node.inputs)
        return f"{made}: {lower.text(types, node.type, node.attrs)}"

    return "; ".join(line(graph.node(i)) for i in ids)


class RegionCode(NamedTuple):
    """A region's function, and the address of the same as a job."""

    call: Callable[..., None]
    job: int


def _made(about: object) -> RegionCode:
    """The code of a region. Errors  Unsupported; those of the library."""
    # What reads and writes expressions is loaded where there is something to compile.
    from rlxweb.backends.cpu_region_text import region_text

    assert isinstance(about, Region)
    here = library.processor()
    text = region_text(about.graph, about.ids, about.reads, about.spread, here.nbytes)
    code = code_of(text)
    call = code.function("region", None, c_void_p, c_int64, c_int64)
    return RegionCode(call, address_of(code.function("region_job", None, c_void_p)))


def _made_in_a_tab(about: object) -> RegionCode:
    """The same as WebAssembly. Errors  Unsupported, OSError."""
    from rlxweb.backends.wasm_region_text import region_module

    assert isinstance(about, Region)
    code = region_module(about.graph, about.ids, about.reads, about.spread)
    call, job = opened(code, "region", "region_job")
    return RegionCode(call, address_of(job))


region_kernels: Workshop[RegionCode] = (
    WasmWorkshop(_made_in_a_tab, fast_mode) if IN_A_TAB else Workshop(_made, fast_mode)
)
"""The compiled regions of this process."""


class RegionCall:
    """A region as a function of the arrays it reads; by NumPy while there is no code.

    by_numpy   (arrays of the reads, in order) → the result
    """

    def __init__(
        self, region: Region, out: Node, by_numpy: Callable[..., NDArray[Any]]
    ) -> None:
        self.region, self.by_numpy = region, by_numpy
        self.kernel: RegionCode | None = None  # stays as long as its call
        self.shape, self.dtype = out.type.shape, out.type.dtype.numpy
        node = region.graph.node
        shapes = [node(i).type.shape for i in region.reads]
        rows = rows_of(self.shape, shapes)
        assert rows is not None  # `region_of` asked
        self.rows, self.blocks = rows, rows.starts()
        sizes = [node(i).type.dtype.numpy.itemsize for i in region.reads]
        self.sizes = (self.dtype.itemsize, *sizes)

    def __call__(self, attrs: object, *arrays: NDArray[Any]) -> NDArray[Any]:
        kernel = self.kernel or region_kernels.ready(self.region)
        if kernel is not None:
            self.kernel = kernel
            return self._run(kernel.call, arrays)
        begun = perf_counter()
        made = self.by_numpy(*arrays)
        region_kernels.spent(self.region, perf_counter() - begun)
        return made

    def _run(
        self, kernel: Callable[..., None], arrays: Sequence[NDArray[Any]]
    ) -> NDArray[Any]:
        out = pool.empty(self.shape, self.dtype)
        dense = [np.ascontiguousarray(one) for one in arrays]
        starts = [address(out), *map(address, dense)]
        rows, sizes = self.rows, self.sizes
        steps = [rows.inner, *rows.steps]
        strides = [step * size for step, size in zip(steps, sizes, strict=True)]
        one_row = rows.outer == 1
        moves = strides
        if one_row:  # a task is a part of the row
            still = (False, *rows.spread)
            moves = [0 if s else size for s, size in zip(still, sizes, strict=True)]
        total = rows.inner if one_row else rows.outer
        share = max(TASK, out.size // _SHARES)
        each = share if one_row else max(1, share // rows.inner)
        parts = max(1, total // each)
        begins = [
            [a + n * size for a, n, size in zip(starts, block, sizes, strict=True)]
            for block in self.blocks
        ]

        def make_worker() -> Task:
            def task(at: int) -> None:
                block, part = divmod(at, parts)
                first = part * each
                # The last part of a row has no fewer elements than a vector.
                count = total - first if part == parts - 1 else each
                begin = begins[block]
                job = [a + first * m for a, m in zip(begin, moves, strict=True)]
                told = np.array(job + strides, np.int64)
                shape = (1, count) if one_row else (count, rows.inner)
                kernel(address(told), *shape)

            return task

        tasks = parts * len(begins)
        if tasks == 1:
            make_worker()(0)
            return out
        threads = 1 if out.size < THREADED else None
        run_tasks(tasks, make_worker, threads=threads)
        return out
