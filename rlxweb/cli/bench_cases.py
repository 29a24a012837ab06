"""The work that `rlxweb bench` times, with the bytes and operations it counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor

Arrays = dict[str, npt.NDArray[Any]]
N, SEGMENTS, PEAKS = 1024, 8, 16
"""Samples of a Welch segment, segments of a row, bins kept of a row."""
CHECKED_ROWS = 4
"""Leading rows of a result that are compared with NumPy in float64."""
_DRAWN = 1_000_003
"""Random numbers drawn for an input; longer inputs repeat them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A piece of work.

    data        "device": inputs and results stay in the engine's memory; "host":
                samples come from the host's memory and results return to it
    nbytes      bytes counted, `operations` those of float32; `counted` says how
    build       the graph for a number of leading rows, of `rows` in all
    slack       an absolute error allowed beside the op's own: long sums cancel
    """

    name: str
    shape: str
    data: str
    nbytes: int
    operations: int
    counted: str
    rows: int
    build: Callable[[int], Graph]
    slack: float = 0.0

    def feeds(self) -> Arrays:
        """Normal random numbers for all inputs, the same in every run."""
        random = np.random.default_rng(0)
        inputs = self.build(self.rows).named("input")
        drawn = {
            name: random.standard_normal(
                min(math.prod(node.type.shape), _DRAWN), np.float32
            )
            for name, node in inputs.items()
        }
        return {n: np.resize(drawn[n], inputs[n].type.shape) for n in inputs}


def _graph(make: Callable[[Graph, int], Tensor]) -> Callable[[int], Graph]:
    def build(rows: int) -> Graph:
        graph = Graph("bench")
        graph.set_outputs([make(graph, rows)])
        return graph

    return build


def cases(quick: bool = False) -> list[Case]:
    """All cases, small ones alone with `quick`."""
    scale = 64 if quick else 1
    return [
        _copy((1 << 25) // scale),
        _sums(4096 // scale, 8192),
        _fft(8192 // scale, 1024),
        _product(512 if quick else 2048),
        _welch(4096 // scale, "device"),
        _welch(4096 // scale, "host"),
    ]


def _copy(count: int) -> Case:
    return Case(
        "copy",
        f"{count:,} float32",
        "device",
        8 * count,
        count,
        "4 bytes read and 4 written a number; 1 negation a number",
        count,
        _graph(lambda g, n: -g.input("x", (n,))),
    )


def _sums(rows: int, width: int) -> Case:
    return Case(
        "reduction",
        f"{rows} × {width}",
        "device",
        4 * rows * width + 4 * rows,
        rows * (width - 1),
        "every number read and every row's sum written once; width - 1 additions a row",
        rows,
        _graph(lambda g, n: g.sum(g.input("x", (n, width)), 1)),
        1e-5 * math.sqrt(width),
    )


def _fft(rows: int, n: int) -> Case:
    return Case(
        "FFT",
        f"{rows} × {n} complex",
        "device",
        16 * rows * n,
        5 * rows * n * int(math.log2(n)),
        "8 bytes read and 8 written a complex number; 5 n log2(n) operations a row",
        rows,
        _graph(lambda g, m: g.fft(g.input("x", (m, 2 * n)))),
    )


def _product(n: int) -> Case:
    return Case(
        "matrix product",
        f"{n} × {n}",
        "device",
        12 * n * n,
        2 * n**3,
        "both matrices read and the product written once; n multiply-adds of 2 "
        "operations a number",
        n,
        _graph(lambda g, m: g.input("a", (m, n)) @ g.input("b", (n, n))),
        1e-5 * math.sqrt(n),
    )


def _welch(rows: int, data: str) -> Case:
    """Half-overlapping Hann segments, their mean power, its strongest bins."""
    hop = N // 2
    length = hop * (SEGMENTS + 1)
    window = np.hanning(N).astype(np.float32)

    def make(g: Graph, count: int) -> Tensor:
        how: dict[str, Any] = {
            "hop": hop,
            "segments": SEGMENTS,
            "k": PEAKS,
            "scale": 1.0,
        }
        x = g.input("x", (count, length))
        return g.apply("welch_row_peaks", x, g.constant(window), **how)

    transform = 5 * N * int(math.log2(N)) // 2
    return Case(
        "Welch peaks",
        f"{rows} × {length}, {SEGMENTS} segments of {N}",
        data,
        4 * rows * length + 8 * rows * PEAKS,
        rows * SEGMENTS * (transform + 4 * N),
        "every sample read once, 4 bytes a bin and 4 a power written; 2.5 n log2(n) "
        "operations a transform and 4 n for window and power",
        rows,
        _graph(make),
    )
