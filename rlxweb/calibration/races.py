"""Races the ways to run an op on one engine, a few sizes each, within a given time.

All ways of an op are timed in turns on arrays that lie there, and the ends of what they
give are compared with NumPy: a wrong one is left out of the order, and that is said.
What the order is for is in `backends/webgpu_recipes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest
from math import prod

import numpy as np

from rlxweb.backends.agreement import compare, oracle
from rlxweb.backends.protocol import Array, Backend, Resident
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.compile.pipeline import compile_graph
from rlxweb.cost.race import Race, size_of
from rlxweb.errors import DeviceError, DeviceLost, GpuTimeout, RlxError
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor
from rlxweb.recipes.variants import VARIANTS, table_of

RACE_S = 8.0
"""Seconds after which no further race is begun."""
CELLS, SOFTWARE_CELLS = 1 << 22, 1 << 16
"""Numbers of an input: enough to fill a GPU; what is there to see on a CPU."""
_LOOK = 8
"""Rows that are compared with NumPy."""
_ROUNDS = 5
SAMPLE_S, MOST_TIMES = 5e-3, 256
"""Runs of a sample are handed over together: the way to a GPU and back takes as long as
many of them, and says nothing about the ways.
"""
NEAR = 1.05
"""Times that are no further apart are those of equals, which the table tells apart."""
Build = Callable[[Graph, Tensor], Tensor]


def _welch(n: int, g: Graph, x: Tensor) -> Tensor:
    segments = x.shape[-1] // (n // 2) - 1
    window = g.constant(np.hanning(n).astype(np.float32))
    made: Tensor = g.apply(
        "welch_row_peaks", x, window, hop=n // 2, segments=segments, k=8, scale=1.0
    )
    return made


def _normed(g: Graph, x: Tensor) -> Tensor:
    one = g.constant(np.ones(x.shape[-1], np.float32))
    return g.layer_norm(x, one, one)


@dataclass(frozen=True, slots=True)
class Heat:
    """One op at one width. of_rows: each row has its own answer; else the input is a
    square of that side.
    """

    width: int
    build: Build
    of_rows: bool = True

    def shape(self, cells: int) -> tuple[int, int]:
        """Of the input, of so many numbers."""
        rows = max(1, cells // self.width) if self.of_rows else self.width
        return rows, self.width

    def graph(self, rows: int) -> Graph:
        graph = Graph("race")
        x = graph.input("x", (rows, self.width))
        graph.set_outputs([self.build(graph, x)])
        return graph


_SIZES: tuple[tuple[Heat, ...], ...] = (
    tuple(Heat(2 * n, lambda g, x: g.fft(x)) for n in (1024, 256, 4096)),
    tuple(Heat(4 * n, partial(_welch, n)) for n in (1024, 256, 4096)),
    tuple(Heat(n, lambda g, x: x @ x, of_rows=False) for n in (1024, 256)),
    tuple(Heat(n, lambda g, x: g.softmax(x)) for n in (128, 1024)),
    tuple(Heat(n, _normed) for n in (128, 1024)),
    tuple(Heat(n, lambda g, x: g.topk(x, 8)) for n in (128, 4096)),
    tuple(Heat(n, lambda g, x: g.sum(x, 1)) for n in (128, 4096)),
)
HEATS = tuple(filter(None, chain.from_iterable(zip_longest(*_SIZES))))
"""What is raced: every op at the size that says most before any at another."""


def races(
    backend: Backend,
    watch: Stopwatch,
    budget_s: float,
    progress: Callable[[str], None],
) -> Iterator[Race]:
    """Every race of two ways or more, until the time is over or one takes the device
    along, which that race then says.
    """
    end = watch.clock() + budget_s * 1e9
    cells = SOFTWARE_CELLS if backend.software else CELLS
    for heat in HEATS:
        rows, width = heat.shape(cells)
        if watch.clock() >= end:
            return
        if rows * width > cells:
            continue
        graph = heat.graph(rows)
        node = graph.node(graph.outputs[0])
        types = tuple(graph.node(i).type for i in node.inputs)
        ways = backend.rivals(registry.get(node.op), types, node.type, dict(node.attrs))
        if len(ways) > 1:
            progress(f"race of {node.op}, {rows:,} × {width:,}")
            with ExitStack() as stack:
                raced = _Race(backend, heat, graph, node.op, stack)
                yield raced.run(ways, watch, size_of(types))
            if raced.is_over:
                return


@dataclass(slots=True)
class _Race:
    """One race while it is run; what it opens is closed with the stack."""

    backend: Backend
    heat: Heat
    graph: Graph
    op: str
    stack: ExitStack
    wrong: list[tuple[str, str]] = field(default_factory=list)
    is_over: bool = False

    def run(self, ways: Sequence[str], watch: Stopwatch, size: tuple[int, int]) -> Race:
        """The order of the ways that are right."""
        table = table_of(VARIANTS)
        x = np.random.default_rng(0).standard_normal(size, np.float32)
        there = drive(self.backend.put(x))
        self.stack.callback(lambda: drive(self.backend.free(there)))
        ends = [self._right(x, is_last) for is_last in (False, True)]
        runs, times = {}, {}
        for way in ways:
            try:
                run = self._ready(way, there, ends)
                times[way] = enough(run, watch)
                runs[way] = partial(run, times[way])
            except (RlxError, MemoryError) as error:
                self.wrong.append((way, str(error) or type(error).__name__))
                self.is_over = isinstance(error, DeviceLost | GpuTimeout)
                if self.is_over:
                    return Race(self.op, size, (), tuple(self.wrong), table)
        timings = replace(watch, samples=_ROUNDS).interleaved(list(runs.values()))
        took = {
            way: timing.ns / times[way]
            for way, timing in zip(runs, timings, strict=True)
        }
        return Race(self.op, size, ranked(took), tuple(self.wrong), table)

    def _right(self, x: Array, is_last: bool) -> Array:
        """What NumPy gives for the rows of one end."""
        rows = min(_LOOK, x.shape[0]) if self.heat.of_rows else x.shape[0]
        end = x[-rows:] if is_last else x[:rows]
        (found,) = oracle(self.heat.graph(rows), {"x": end})
        return found[-_LOOK:] if is_last else found[:_LOOK]

    def _ready(
        self, way: str, there: Resident, ends: Sequence[Array]
    ) -> Callable[[int], object]:
        """So many runs of a way, ready. Errors  DeviceError for a wrong one."""
        engine = self.backend.forced("" if way == self.op else way)
        program = drive(engine.prepare(compile_graph(self.graph, engine.target)))
        self.stack.callback(lambda: drive(engine.release(program)))
        (out,) = drive(engine.run_resident(program, {"x": there}, [True]))
        assert isinstance(out, Resident)
        dtype = self.graph.node(self.graph.outputs[0]).type.dtype
        for want, at in zip(ends, (0, prod(out.shape) - ends[1].size), strict=True):
            got = drive(engine.get(drive(engine.part(out, at, want.shape))))
            allowed = registry.get(self.op).tolerance
            why = compare(np.asarray(got), want, dtype, allowed).why
            if why:
                raise DeviceError(f"race {way}", why)
        drive(engine.free(out))
        return lambda times: drive(engine.repeat(program, {"x": there}, times))


def enough(run: Callable[[int], object], watch: Stopwatch) -> int:
    """Runs that make a sample, of one that is warm."""
    times = 1
    for _ in range(2):
        begun = watch.clock()
        run(times)
        took = (watch.clock() - begun) / times
        times = max(1, min(MOST_TIMES, int(SAMPLE_S * 1e9 / max(took, 1.0))))
    return times


def ranked(took: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Ways with their ns, the fastest first; of equals the one that was named first."""
    left, found = dict(took), []
    while left:
        least = min(left.values())
        first = next(way for way, ns in left.items() if ns <= NEAR * least)
        found.append((first, left.pop(first)))
    return tuple(found)
