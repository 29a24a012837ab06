"""Workloads that `rlxweb bench` times, with the bytes and operations counted for
each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor

NamedArrays = dict[str, npt.NDArray[Any]]
SEGMENT_LENGTH, N_SEGMENTS, N_PEAKS = 1024, 8, 16
"""Samples of a Welch segment, segments of a row, bins kept of a row."""
CHECKED_ROWS = 4
"""Number of leading result rows that are compared with NumPy in float64."""
_N_RANDOM = 1_000_003
"""Number of random values drawn for an input; longer inputs repeat them."""


@dataclass(frozen=True, slots=True)
class BenchmarkCase:
    """One workload of the benchmark, with its bytes and operations.

    memory      "device": inputs and results stay in the engine's memory; "host":
                samples come from the host's memory and results return to it
    nbytes      bytes counted, `operations` those of float32; `counting_rule` says how
    build_graph  the graph for a number of leading rows, of `n_rows` in all
    extra_tolerance  an absolute error allowed beside the op's own: long sums cancel
    """

    name: str
    shape: str
    memory: str
    nbytes: int
    operations: int
    counting_rule: str
    n_rows: int
    build_graph: Callable[[int], Graph]
    extra_tolerance: float = 0.0

    def make_feeds(self) -> NamedArrays:
        """Return normal random numbers for all inputs, the same in every run."""
        generator = np.random.default_rng(0)
        inputs = self.build_graph(self.n_rows).named("input")
        samples = {
            name: generator.standard_normal(
                min(math.prod(node.type.shape), _N_RANDOM), np.float32
            )
            for name, node in inputs.items()
        }
        return {n: np.resize(samples[n], inputs[n].type.shape) for n in inputs}


def _graph_builder(
    make_output: Callable[[Graph, int], Tensor],
) -> Callable[[int], Graph]:
    """Return a function that builds a graph of the given output for a number of
    rows.
    """

    def build(n_rows: int) -> Graph:
        graph = Graph("bench")
        graph.set_outputs([make_output(graph, n_rows)])
        return graph

    return build


def benchmark_cases(quick: bool = False) -> list[BenchmarkCase]:
    """Return all cases, with small sizes only if `quick`."""
    scale = 64 if quick else 1
    return [
        _copy_case((1 << 25) // scale),
        _reduction_case(4096 // scale, 8192),
        _fft_case(8192 // scale, 1024),
        _matmul_case(512 if quick else 2048),
        _welch_case(4096 // scale, "device"),
        _welch_case(4096 // scale, "host"),
    ]


def _copy_case(count: int) -> BenchmarkCase:
    """Return the copy case: negation of a vector."""
    return BenchmarkCase(
        "copy",
        f"{count:,} float32",
        "device",
        8 * count,
        count,
        "4 bytes read and 4 written per number; 1 negation per number",
        count,
        _graph_builder(lambda g, n: -g.input("x", (n,))),
    )


def _reduction_case(n_rows: int, row_length: int) -> BenchmarkCase:
    """Return the reduction case: the sums of rows."""
    return BenchmarkCase(
        "reduction",
        f"{n_rows} × {row_length}",
        "device",
        4 * n_rows * row_length + 4 * n_rows,
        n_rows * (row_length - 1),
        "every number read and every row sum written once; n - 1 additions for "
        "a row of n numbers",
        n_rows,
        _graph_builder(lambda g, n: g.sum(g.input("x", (n, row_length)), 1)),
        1e-5 * math.sqrt(row_length),
    )


def _fft_case(n_rows: int, n: int) -> BenchmarkCase:
    """Return the FFT case: transforms of complex rows."""
    return BenchmarkCase(
        "FFT",
        f"{n_rows} × {n} complex",
        "device",
        16 * n_rows * n,
        5 * n_rows * n * int(math.log2(n)),
        "8 bytes read and 8 written per complex number; 5 n log2(n) operations per row "
        "of n numbers",
        n_rows,
        _graph_builder(lambda g, m: g.fft(g.input("x", (m, 2 * n)))),
    )


def _matmul_case(n: int) -> BenchmarkCase:
    """Return the case of a square matrix product."""
    return BenchmarkCase(
        "matrix product",
        f"{n} × {n}",
        "device",
        12 * n * n,
        2 * n**3,
        "both matrices read and the product written once; n multiply-adds (2 "
        "operations each) per element of the product",
        n,
        _graph_builder(lambda g, m: g.input("a", (m, n)) @ g.input("b", (n, n))),
        1e-5 * math.sqrt(n),
    )


def _welch_case(n_rows: int, memory: str) -> BenchmarkCase:
    """Return the case of Welch peaks: the strongest bins of the mean power of
    half-overlapping Hann segments.
    """
    hop = SEGMENT_LENGTH // 2
    length = hop * (N_SEGMENTS + 1)
    window = np.hanning(SEGMENT_LENGTH).astype(np.float32)

    def make_output(g: Graph, count: int) -> Tensor:
        attrs: dict[str, Any] = {
            "hop": hop,
            "segments": N_SEGMENTS,
            "k": N_PEAKS,
            "scale": 1.0,
        }
        x = g.input("x", (count, length))
        return g.apply("welch_row_peaks", x, g.constant(window), **attrs)

    fft_operations = 5 * SEGMENT_LENGTH * int(math.log2(SEGMENT_LENGTH)) // 2
    return BenchmarkCase(
        "Welch peaks",
        f"{n_rows} × {length}, {N_SEGMENTS} segments of {SEGMENT_LENGTH}",
        memory,
        4 * n_rows * length + 8 * n_rows * N_PEAKS,
        n_rows * N_SEGMENTS * (fft_operations + 4 * SEGMENT_LENGTH),
        "every sample read once, 8 bytes written per peak (its bin and its power); "
        "2.5 n log2(n) operations per transform of n samples and 4 n for window and "
        "power",
        n_rows,
        _graph_builder(make_output),
    )
