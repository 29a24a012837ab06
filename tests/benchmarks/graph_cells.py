"""Benchmark cells of graphs for the placement benchmark: every family of ops, from
small to large.

Each cell is one graph; its ways are the places it can run at, priced as a session
prices them and run as a session runs them. Built from the public graph calls alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.engines.pool import pool
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ir.shape_arithmetic import Shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.select.graph_job import GraphJob
from tests.benchmarks.gradient_graph_families import GRADIENTS
from tests.benchmarks.language_model_graph_families import LANGUAGE
from tests.benchmarks.linear_algebra_graph_families import LINEAR_ALGEBRA
from tests.benchmarks.network_graph_families import NETWORKS
from tests.benchmarks.placement_sweep import CandidateRun, PlacementSweep

BuildOutput = Callable[[Graph, Shape], Tensor]

FLAT_SHAPES = ((1 << 10,), (1 << 15,), (1 << 21,))
ROW_SHAPES = ((16, 64), (64, 1024), (1024, 256), (4096, 512))
MATMUL_SHAPES = ((16, 16, 16), (128, 768, 768), (1, 2048, 2048), (512, 512, 512))
ATTENTION_SHAPES = ((1, 2, 16, 8), (2, 8, 300, 48), (4, 12, 256, 64), (1, 8, 1024, 64))
PRIME_SHAPES = ((4, 1021), (64, 4093), (512, 8191))
SIGNAL_SHAPES = ((4, 1024), (64, 4096), (512, 16384))
LAYER_SHAPES = ((8, 64), (128, 256), (512, 768))
"""(rows, width) of whole layers."""


def _float_ops(arity: int) -> list[str]:
    """Return the names of all elementwise ops of so many operands that take floats."""
    return [
        op.name
        for op in registry
        if op.has_trait("elementwise")
        and not op.has_trait("custom")
        and op.arity == arity
        and op.samples[0].inputs[0].dtype.is_float
    ]


def _unary(name: str) -> BuildOutput:
    return lambda g, s: g.apply(
        name, g.input("x", s), **registry.get(name).example_attrs()
    )


def _binary(name: str) -> BuildOutput:
    return lambda g, s: g.apply(
        name, g.input("x", s), g.input("y", s), **registry.get(name).example_attrs()
    )


def _where(g: Graph, s: Shape) -> Tensor:
    x, y = g.input("x", s), g.input("y", s)
    return g.where(g.lt(x, y), x, y)


def _reduction(name: str, axis: int) -> BuildOutput:
    return lambda g, s: g.apply(name, g.input("x", s), axes=(axis,))


def _norm(name: str) -> BuildOutput:
    def build(g: Graph, s: Shape) -> Tensor:
        w, b = g.input("w", s[-1:]), g.input("b", s[-1:])
        return g.apply(name, g.input("x", s), w, b)

    return build


def _gather(g: Graph, s: Shape) -> Tensor:
    order = np.arange(s[0], dtype=np.int32)[::-1].copy()
    return g.gather(g.input("x", s), g.constant(order), 0)


def _views(g: Graph, s: Shape) -> Tensor:
    """Build views of every kind, then one pass over them."""
    x = g.narrow(g.input("x", s), 1, 0, s[1] // 2)
    x = g.reshape(g.frame(x, s[1] // 4, s[1] // 4), (s[0], s[1] // 2))
    flat = g.reshape(x, (s[0] * (s[1] // 2),))
    return g.expand(g.reshape(flat, (1, s[0], s[1] // 2)), (2, s[0], s[1] // 2)) * 2.0


def _matmul(g: Graph, s: Shape) -> Tensor:
    m, k, n = s
    return g.input("a", (m, k)) @ g.input("b", (k, n))


def _attention(kind: str) -> BuildOutput:
    def build(g: Graph, s: Shape) -> Tensor:
        q, k, v = (g.input(name, s) for name in "qkv")
        return g.attention(q, k, v, num_heads=s[1], head_dim=s[3], mask_kind=kind)

    return build


def _fft(g: Graph, s: Shape) -> Tensor:
    return g.fft(g.input("x", (s[0], 2 * s[1])))


def _irfft(g: Graph, s: Shape) -> Tensor:
    rows, n = s
    shape = (rows, n // 2 + 1)
    return g.irfft(g.input("re", shape), g.input("im", shape), n)


def _log_mel(g: Graph, s: Shape) -> Tensor:
    rows, n = s
    return g.log_mel(g.input("x", (rows, 2 * n)), g.input("mel", (80, n // 2 + 1)))


def _log_mel_backward(g: Graph, s: Shape) -> Tensor:
    rows, n = s
    spectrum, filters = g.input("x", (rows, 2 * n)), g.input("mel", (80, n // 2 + 1))
    return g.log_mel_backward(spectrum, filters, g.input("grad", (rows, 80)))


def _welch(name: str, pair: bool = False, **attrs: Any) -> BuildOutput:
    def build(g: Graph, s: Shape) -> Tensor:
        window = g.constant(np.hanning(256).astype(np.float32))
        rows = [g.input("x", s), *([g.input("y", s)] if pair else [])]
        return g.apply(name, *rows, window, hop=128, **attrs)

    return build


def _fused_dense(g: Graph, s: Shape) -> Tensor:
    n = s[1]
    w, b = g.input("w", (n, n)), g.input("b", (n,))
    return g.fused_matmul_bias_act(g.input("x", s), w, b, "gelu")


def _dense_pair(g: Graph, s: Shape) -> Tensor:
    n = s[1]
    w, b = g.input("w", (n, 4 * n)), g.input("b", (4 * n,))
    return g.gelu(g.input("x", s) @ w + b) @ g.input("v", (4 * n, n))


def _transformer_layer(g: Graph, s: Shape) -> Tensor:
    """Build a transformer layer: attention and a dense pair, each normalised and
    added.
    """
    rows, n = s
    x, one, zero = g.input("x", s), g.input("one", (n,)), g.input("zero", (n,))
    normalized = g.layer_norm(x, one, zero)
    heads = max(1, n // 64)
    q, k, v = (
        g.reshape(normalized @ g.input(f"w{name}", (n, n)), (1, rows, n))
        for name in "qkv"
    )
    attended = g.attention(q, k, v, num_heads=heads, head_dim=n // heads)
    x = x + g.reshape(attended, s)
    up, down = g.input("up", (n, 4 * n)), g.input("down", (4 * n, n))
    return x + g.gelu(g.layer_norm(x, one, zero) @ up) @ down


def _chain(g: Graph, s: Shape) -> Tensor:
    x = g.input("x", s)
    for _ in range(8):
        x = g.gelu(x * 1.01 + 0.1)
    return x


FAMILIES: Mapping[str, tuple[BuildOutput, tuple[Shape, ...]]] = {
    **{name: (_unary(name), FLAT_SHAPES) for name in _float_ops(1)},
    **{name: (_binary(name), FLAT_SHAPES) for name in _float_ops(2)},
    "where": (_where, FLAT_SHAPES),
    # A cast to the same dtype, as in their first samples, would be no work.
    "cast": (lambda g, s: g.cast(g.input("x", s), "i32"), FLAT_SHAPES),
    "bitcast": (lambda g, s: g.bitcast(g.input("x", s), "i32"), FLAT_SHAPES),
    "gelu chain": (_chain, FLAT_SHAPES),
    **{
        f"{name}, {where}": (_reduction(name, axis), ROW_SHAPES)
        for name in ("sum", "mean", "max", "min", "prod")
        for where, axis in (("rows", 1), ("columns", 0))
    },
    **{
        name: (_unary(name), ROW_SHAPES)
        for name in ("softmax", "log_softmax", "argmax", "argmin")
    },
    "layer_norm": (_norm("layer_norm"), ROW_SHAPES),
    "rms_norm": (_norm("rms_norm"), ROW_SHAPES),
    "cumsum": (_unary("cumsum"), ROW_SHAPES),
    "topk": (lambda g, s: g.topk(g.input("x", s), 8), ROW_SHAPES),
    "gather": (_gather, ROW_SHAPES),
    "concat": (
        lambda g, s: g.concat([g.input("x", s), g.input("y", s)], 0),
        ROW_SHAPES,
    ),
    "transpose": (lambda g, s: g.transpose(g.input("x", s), (1, 0)) * 2.0, ROW_SHAPES),
    "views": (_views, ROW_SHAPES),
    "matmul": (_matmul, MATMUL_SHAPES),
    "attention": (_attention("none"), ATTENTION_SHAPES),
    "causal attention": (_attention("causal"), ATTENTION_SHAPES),
    "fft": (_fft, SIGNAL_SHAPES),
    "rfft": (lambda g, s: g.rfft(g.input("x", s))[0], SIGNAL_SHAPES),
    "irfft": (_irfft, SIGNAL_SHAPES),
    "rfft, prime": (lambda g, s: g.rfft(g.input("x", s))[0], PRIME_SHAPES),
    "psd_real": (lambda g, s: g.psd_real(g.input("x", s)), SIGNAL_SHAPES),
    "stft": (lambda g, s: g.stft(g.input("x", s), 256, 128), SIGNAL_SHAPES),
    "log_mel": (_log_mel, SIGNAL_SHAPES),
    "log_mel_backward": (_log_mel_backward, SIGNAL_SHAPES),
    "welch_power": (_welch("welch_power"), SIGNAL_SHAPES),
    "welch_row_peaks": (_welch("welch_row_peaks", k=4), SIGNAL_SHAPES),
    "segment_power": (_welch("segment_power"), SIGNAL_SHAPES),
    "segment_spectra": (_welch("segment_spectra"), SIGNAL_SHAPES),
    "cross_power": (_welch("cross_power", pair=True), SIGNAL_SHAPES),
    "power_peaks": (
        lambda g, s: g.apply("power_peaks", g.input("x", s), k=4),
        SIGNAL_SHAPES,
    ),
    "welch_peaks": (lambda g, s: g.welch_peaks(g.input("x", s), 4, 2), SIGNAL_SHAPES),
    "dense": (_fused_dense, LAYER_SHAPES),
    "dense pair": (_dense_pair, LAYER_SHAPES),
    "transformer layer": (_transformer_layer, LAYER_SHAPES),
    **NETWORKS,
    **LANGUAGE,
    **LINEAR_ALGEBRA,
    **GRADIENTS,
}


@dataclass(frozen=True, slots=True)
class GraphCell:
    """One graph of the sweep: a family and the shape it is built for."""

    family: str
    shape: Shape

    def build_graph(self) -> Graph:
        graph = Graph(str(self))
        build, _ = FAMILIES[self.family]
        graph.set_outputs([build(graph, self.shape)])
        return graph

    @property
    def gib(self) -> float:
        """Memory of all values of the graph, in GiB."""
        return sum(n.type.nbytes for n in self.build_graph().nodes()) / 2**30

    @property
    def effort(self) -> float:
        return 1.0 + numel(self.shape) / 1e6

    @property
    def labels(self) -> tuple[str, ...]:
        return self.family, "×".join(str(size) for size in self.shape)

    def __str__(self) -> str:
        return " ".join(self.labels)

    def candidate_runs(self, sweep: PlacementSweep) -> Iterator[CandidateRun]:
        """Yield every place that can run the graph, with its price there."""
        graph = self.build_graph()
        job = GraphJob(graph)
        rng = np.random.default_rng(numel(self.shape))
        feeds = {
            name: rng.uniform(0.5, 2.0, node.type.shape).astype(np.float32)
            for name, node in graph.named("input").items()
        }
        for place in sweep.places:
            for candidate in job.candidates(place):
                if not candidate.blocker and candidate.terms is not None:
                    yield candidate, _make_runner(job, place, feeds)


def _make_runner(
    job: GraphJob, place: DevicePlace, feeds: Mapping[str, np.ndarray]
) -> Callable[[], object]:
    engine = pool.engine(place.device.label, place.adapter)
    program = None

    def run() -> object:
        nonlocal program
        if program is None:
            program = run_blocking(engine.prepare(job.plan_for(engine, place)))
        return run_blocking(engine.run(program, feeds))

    return run


def graph_cells(pattern: str = "", quick: bool = False) -> list[GraphCell]:
    """Return every family whose name contains `pattern`; small ones first.

    quick   without the largest shape of each
    """
    cells = [
        GraphCell(family, shape)
        for family, (_, shapes) in FAMILIES.items()
        if pattern.lower() in family
        for shape in (shapes[:-1] if quick else shapes)
    ]
    return sorted(cells, key=lambda cell: (numel(cell.shape), cell.family))
