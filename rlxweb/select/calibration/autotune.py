"""Autotuning: the kernel variants of an op timed against each other on one engine, at a
few sizes each.

All candidates of an op are timed in turns on arrays on the device, and the first and
last rows of their results are compared with NumPy: a wrong candidate is left out of the
order and reported. What the order is for is in `engines/webgpu/kernel_selection.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest
from math import prod

import numpy as np

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import DeviceError, DeviceLost, GpuTimeout, RlxError
from rlxweb.cost.calibration_record import AutotuneResult, rows_and_width
from rlxweb.engines.capabilities import Tunes, repeat
from rlxweb.engines.protocol import Array, DeviceBuffer, Engine
from rlxweb.engines.reference_comparison import compare_to_reference, reference_outputs
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.kernel_variant import KernelTable, load_kernels
from rlxweb.select.calibration.stopwatch import Stopwatch

AUTOTUNE_S = 8.0
"""Seconds after which no further op is autotuned."""
MAX_ELEMENTS, MAX_SOFTWARE_ELEMENTS = 1 << 22, 1 << 16
"""Numbers of an input: enough to fill a GPU; what is there to see on a CPU."""
_CHECKED_ROWS = 8
"""Rows that are compared with NumPy."""
_ROUND_COUNT = 5
SAMPLE_S, MAX_REPEATS = 5e-3, 256
"""Duration of a sample, and the most runs that it submits together: one round trip to a
GPU takes as long as many runs, and says nothing about the candidates.
"""
TIE_RATIO = 1.05
"""Times within this ratio are ties, which the table's order breaks."""
BuildOp = Callable[[Graph, Tensor], Tensor]


def _build_welch(n: int, g: Graph, x: Tensor) -> Tensor:
    """Build the Welch peaks of the rows."""
    segments = x.shape[-1] // (n // 2) - 1
    window = g.constant(np.hanning(n).astype(np.float32))
    peaks: Tensor = g.apply(
        "welch_row_peaks", x, window, hop=n // 2, segments=segments, k=8, scale=1.0
    )
    return peaks


def _build_layer_norm(g: Graph, x: Tensor) -> Tensor:
    """Build a layer norm of the rows."""
    ones = g.constant(np.ones(x.shape[-1], np.float32))
    return g.layer_norm(x, ones, ones)


@dataclass(frozen=True, slots=True)
class AutotuneCase:
    """One op at one width. has_independent_rows: each row has its own result; else the
    input is a square of that side.
    """

    width: int
    build: BuildOp
    has_independent_rows: bool = True

    def shape(self, max_elements: int) -> tuple[int, int]:
        """Return the shape of an input of at most `max_elements` elements."""
        rows = (
            max(1, max_elements // self.width)
            if self.has_independent_rows
            else self.width
        )
        return rows, self.width

    def graph(self, rows: int) -> Graph:
        """Return the graph of the op on `rows` rows."""
        graph = Graph("autotuning")
        x = graph.input("x", (rows, self.width))
        graph.set_outputs([self.build(graph, x)])
        return graph


_CASES_BY_OP: tuple[tuple[AutotuneCase, ...], ...] = (
    tuple(AutotuneCase(2 * n, lambda g, x: g.fft(x)) for n in (1024, 256, 4096)),
    tuple(AutotuneCase(4 * n, partial(_build_welch, n)) for n in (1024, 256, 4096)),
    tuple(
        AutotuneCase(n, lambda g, x: x @ x, has_independent_rows=False)
        for n in (1024, 256)
    ),
    tuple(AutotuneCase(n, lambda g, x: g.softmax(x)) for n in (128, 1024)),
    tuple(AutotuneCase(n, _build_layer_norm) for n in (128, 1024)),
    tuple(AutotuneCase(n, lambda g, x: g.topk(x, 8)) for n in (128, 4096)),
    tuple(AutotuneCase(n, lambda g, x: g.sum(x, 1)) for n in (128, 4096)),
)
AUTOTUNE_CASES = tuple(filter(None, chain.from_iterable(zip_longest(*_CASES_BY_OP))))
"""Cases to autotune: every op at its most informative size before any at another."""


def autotune_ops(
    engine: Engine,
    watch: Stopwatch,
    budget_s: float,
    progress: Callable[[str], None],
) -> Iterator[AutotuneResult]:
    """Yield the result of every case with two variants or more, until the time is over
    or the device is lost.
    """
    if not isinstance(engine, Tunes):
        return
    deadline_ns = watch.clock() + budget_s * 1e9
    max_elements = MAX_SOFTWARE_ELEMENTS if engine.identity.software else MAX_ELEMENTS
    for case in AUTOTUNE_CASES:
        rows, width = case.shape(max_elements)
        if watch.clock() >= deadline_ns:
            return
        if rows * width > max_elements:
            continue
        graph = case.graph(rows)
        node = graph.node(graph.outputs[0])
        types = tuple(graph.node(i).type for i in node.inputs)
        candidates = engine.candidate_variants(
            registry.get(node.op), types, node.type, dict(node.attrs)
        )
        if len(candidates) > 1:
            progress(f"autotuning {node.op}, {rows:,} × {width:,}")
            with ExitStack() as stack:
                autotune_run = _AutotuneRun(engine, case, graph, node.op, stack)
                yield autotune_run.run(candidates, watch, rows_and_width(types))
            if autotune_run.is_device_lost:
                return


@dataclass(slots=True)
class _AutotuneRun:
    """One case while it is measured; the stack closes what it opens."""

    engine: Tunes
    case: AutotuneCase
    graph: Graph
    op: str
    stack: ExitStack
    failures: list[tuple[str, str]] = field(default_factory=list)
    is_device_lost: bool = False

    def run(
        self, candidates: Sequence[str], watch: Stopwatch, size: tuple[int, int]
    ) -> AutotuneResult:
        """Return the ranking of the variants that are correct."""
        table_id = KernelTable(load_kernels("wgsl")).id
        x = np.random.default_rng(0).standard_normal(size, np.float32)
        device_input = run_blocking(self.engine.put(x))
        self.stack.callback(device_input.free)
        expected_ends = [self._expected_rows(x, is_last) for is_last in (False, True)]
        run_functions, repeats = {}, {}
        for candidate in candidates:
            try:
                run_candidate = self._prepare_variant(
                    candidate, device_input, expected_ends
                )
                repeats[candidate] = repeats_per_sample(run_candidate, watch)
                run_functions[candidate] = partial(run_candidate, repeats[candidate])
            except (RlxError, MemoryError) as error:
                self.failures.append((candidate, str(error) or type(error).__name__))
                self.is_device_lost = isinstance(error, DeviceLost | GpuTimeout)
                if self.is_device_lost:
                    return AutotuneResult(
                        self.op, size, (), tuple(self.failures), table_id
                    )
        timings = replace(watch, samples=_ROUND_COUNT).time_interleaved(
            list(run_functions.values())
        )
        run_ns = {
            candidate: timing.ns / repeats[candidate]
            for candidate, timing in zip(run_functions, timings, strict=True)
        }
        return AutotuneResult(
            self.op, size, rank_by_time(run_ns), tuple(self.failures), table_id
        )

    def _expected_rows(self, x: Array, is_last: bool) -> Array:
        """Return NumPy's result for the rows of one end."""
        rows = (
            min(_CHECKED_ROWS, x.shape[0])
            if self.case.has_independent_rows
            else x.shape[0]
        )
        end_rows = x[-rows:] if is_last else x[:rows]
        (result,) = reference_outputs(self.case.graph(rows), {"x": end_rows})
        return result[-_CHECKED_ROWS:] if is_last else result[:_CHECKED_ROWS]

    def _prepare_variant(
        self, candidate: str, device_input: DeviceBuffer, expected_ends: Sequence[Array]
    ) -> Callable[[int], object]:
        """Return a function that runs a prepared variant n times. Errors  DeviceError
        for wrong results.
        """
        engine = self.engine.with_variant("" if candidate == self.op else candidate)
        program = run_blocking(engine.prepare(compile_graph(self.graph, engine.target)))
        self.stack.callback(lambda: run_blocking(program.close()))
        (out,) = run_blocking(engine.run(program, {"x": device_input}, [True]))
        assert isinstance(out, DeviceBuffer)
        dtype = self.graph.node(self.graph.outputs[0]).type.dtype
        for expected, offset in zip(
            expected_ends, (0, prod(out.shape) - expected_ends[1].size), strict=True
        ):
            actual = run_blocking(engine.get(out.part(offset, expected.shape)))
            tolerance = registry.get(self.op).tolerance
            reason = compare_to_reference(
                np.asarray(actual), expected, dtype, tolerance
            ).reason
            if reason:
                raise DeviceError(f"autotune {candidate}", reason)
        out.free()
        return lambda repeats: run_blocking(
            repeat(engine, program, {"x": device_input}, repeats)
        )


def repeats_per_sample(run: Callable[[int], object], watch: Stopwatch) -> int:
    """Return the runs that make a sample, from warm runs."""
    repeats = 1
    for _ in range(2):
        start_ns = watch.clock()
        run(repeats)
        run_ns = (watch.clock() - start_ns) / repeats
        repeats = max(1, min(MAX_REPEATS, int(SAMPLE_S * 1e9 / max(run_ns, 1.0))))
    return repeats


def rank_by_time(run_ns: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return the variants with their ns, the fastest first; of ties the one that was
    named first.
    """
    remaining, ranking = dict(run_ns), []
    while remaining:
        min_ns = min(remaining.values())
        first = next(
            candidate for candidate, ns in remaining.items() if ns <= TIE_RATIO * min_ns
        )
        ranking.append((first, remaining.pop(first)))
    return tuple(ranking)
