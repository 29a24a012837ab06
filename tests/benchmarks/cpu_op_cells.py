"""Benchmark cells of ops on the CPU: NumPy and compiled code against libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import rlxweb as rlx
from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.peer_libraries import (
    COMPILED_PEER,
    NUMPY_PEER,
    THREADS,
    jax_on_cpu,
    load_library,
    onnx_on_cpu,
    our_engines,
    with_jit_mode,
)

MakeOnnxNodes = Callable[[Callable[..., Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class CpuOpCase:
    """One computation in rlxweb, PyTorch, JAX and ONNX.

    ours    (graph, **inputs) → tensor
    torch   (torch, *arrays) → tensor
    jax     (jax, *arrays) → array
    onnx    (make_node) → nodes; the last makes "out"
    constants  of the ONNX graph
    """

    arrays: Mapping[str, np.ndarray]
    ours: Callable[..., Any]
    torch: Callable[..., Any]
    jax: Callable[..., Any]
    onnx: MakeOnnxNodes
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)


def _noise(*shape: int) -> np.ndarray:
    """Return noise that is the same for each call with that shape."""
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def _scalars(**values: float) -> dict[str, np.ndarray]:
    return {name: np.float32(value).reshape(()) for name, value in values.items()}


def _softmax() -> CpuOpCase:
    return CpuOpCase(
        {"x": _noise(1024, 1024)},
        lambda g, x: g.softmax(x),
        lambda t, x: t.softmax(x, -1),
        lambda j, x: j.nn.softmax(x),
        lambda node: [node("Softmax", ["x"], ["out"], axis=-1)],
    )


def _logsumexp() -> CpuOpCase:
    return CpuOpCase(
        {"x": _noise(1024, 1024)},
        lambda g, x: g.logsumexp(x, -1),
        lambda t, x: t.logsumexp(x, -1),
        lambda j, x: j.nn.logsumexp(x, -1),
        lambda node: [
            node("ReduceLogSumExp", ["x", "axes"], ["out"], keepdims=0),
        ],
        {"axes": np.array([-1])},
    )


def _norm() -> CpuOpCase:
    a, b = _noise(2, 768)

    def by_jax(j: Any, x: Any, a: Any, b: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * j.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * a + b

    return CpuOpCase(
        {"x": _noise(1024, 768), "a": a, "b": b},
        lambda g, x, a, b: g.layer_norm(x, a, b),
        lambda t, x, a, b: t.nn.functional.layer_norm(x, (768,), a, b),
        by_jax,
        lambda node: [
            node("LayerNormalization", ["x", "a", "b"], ["out"], epsilon=1e-5)
        ],
    )


def _chain() -> CpuOpCase:
    x, y = _noise(2, 4 << 20)
    return CpuOpCase(
        {"x": x, "y": y},
        lambda g, x, y: g.gelu(x * 2.0 + 1.0) * y,
        lambda t, x, y: t.nn.functional.gelu(x * 2.0 + 1.0) * y,
        lambda j, x, y: j.nn.gelu(x * 2.0 + 1.0, approximate=False) * y,
        lambda node: [
            node("Mul", ["x", "two"], ["twice"]),
            node("Add", ["twice", "one"], ["more"]),
            node("Gelu", ["more"], ["gelu"]),
            node("Mul", ["gelu", "y"], ["out"]),
        ],
        _scalars(one=1.0, two=2.0),
    )


def _attention() -> CpuOpCase:
    q, k, v = _noise(3, 1, 12, 128, 64)
    attrs = {"num_heads": 12, "head_dim": 64}

    def by_jax(j: Any, q: Any, k: Any, v: Any) -> Any:
        scores = j.numpy.einsum("bhqd,bhkd->bhqk", q, k) * 0.125
        return j.numpy.einsum("bhqk,bhkd->bhqd", j.nn.softmax(scores), v)

    return CpuOpCase(
        {"q": q, "k": k, "v": v},
        lambda g, q, k, v: g.apply("attention", q, k, v, **attrs),
        lambda t, *qkv: t.nn.functional.scaled_dot_product_attention(*qkv),
        by_jax,
        lambda node: [
            node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "turned"], ["products"]),
            node("Mul", ["products", "scale"], ["scores"]),
            node("Softmax", ["scores"], ["weights"], axis=-1),
            node("MatMul", ["weights", "v"], ["out"]),
        ],
        _scalars(scale=0.125),
    )


def _adds() -> CpuOpCase:
    def sums(_: Any, x: Any) -> Any:
        for _ in range(100):
            x = x + 1.0
        return x

    def by_onnx(node: Callable[..., Any]) -> list[Any]:
        names = ["x", *(f"x{index}" for index in range(1, 100)), "out"]
        return [node("Add", [a, "one"], [b]) for a, b in pairwise(names)]

    return CpuOpCase({"x": _noise(1024)}, sums, sums, sums, by_onnx, _scalars(one=1.0))


def _reduction(ours: str, torch: str, onnx: str, axis: int) -> CpuOpCase:
    axes = np.array([axis], np.int64)
    return CpuOpCase(
        {"x": _noise(2048, 2048)},
        lambda g, x: getattr(g, ours)(x, (axis,)),
        lambda t, x: getattr(t, torch)(x, axis),
        lambda j, x: getattr(j.numpy, ours)(x, axis),
        lambda node: [node(onnx, ["x", "axes"], ["out"], keepdims=0)],
        {"axes": axes},
    )


OPS: dict[str, Callable[[], CpuOpCase]] = {
    "softmax [1024, 1024]": _softmax,
    "log-sum-exp [1024, 1024]": _logsumexp,
    "layer norm [1024, 768]": _norm,
    "chain gelu(2x+1)·y of 4M": _chain,
    "attention [1, 12, 128, 64]": _attention,
    "100 dependent adds [1024]": _adds,
    "sum of rows [2048, 2048]": lambda: _reduction("sum", "sum", "ReduceSum", 1),
    "max of columns [2048, 2048]": lambda: _reduction("max", "amax", "ReduceMax", 0),
}


def cell_factories() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and its factory."""
    for name, make in OPS.items():
        yield f"cpu {name}", partial(_make_cell, f"cpu {name}", make)


def _library_peers(op: CpuOpCase) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    arrays = list(op.arrays.values())
    torch, jax, onnx = map(load_library, ("torch", "jax", "onnx"))
    if not isinstance(torch, str):
        torch.set_num_threads(THREADS)
        tensors = [torch.from_numpy(array) for array in arrays]
        yield "PyTorch", lambda: op.torch(torch, *tensors).numpy()
    if not isinstance(jax, str):
        run = jax_on_cpu(jax, partial(op.jax, jax))
        yield "JAX", lambda: np.asarray(run(*arrays))
    if not isinstance(onnx, str) and not isinstance(load_library("onnxruntime"), str):
        nodes = op.onnx(onnx.helper.make_node)
        yield (
            "ONNX Runtime",
            onnx_on_cpu(nodes, dict(op.arrays), dict(op.constants)),
        )


def _make_cell(name: str, make: Callable[[], CpuOpCase]) -> BenchmarkCell:
    op = make()
    graph = rlx.Graph("bench")
    inputs = {n: graph.input(n, array.shape) for n, array in op.arrays.items()}
    graph.set_outputs([op.ours(graph, **inputs)])
    entries, closers = [], []
    for our_name, engine, mode in our_engines():
        os.environ["RLX_FAST"] = mode
        compiled = rlx.Session("cpu").compile(graph)
        closers.append(compiled.close)
        call = partial(lambda c: c.run(op.arrays)[0], compiled)
        entries.append(PeerEntry(our_name, engine, with_jit_mode(mode, call), True))
    others = [PeerEntry(peer, peer, call) for peer, call in _library_peers(op)]

    def check() -> None:
        expected = np.asarray(entries[0].run(), np.float64)
        for entry in (*entries[1:], *others):
            actual = np.asarray(entry.run(), np.float64)
            worst = float(np.max(np.abs(actual - expected)) / np.max(np.abs(expected)))
            assert worst < 2e-5, f"{entry.name}: relative error {worst:.2g}"

    def close() -> None:
        for close_graph in closers:
            close_graph()

    names = tuple(entry.name for entry in others)
    goals = (Goal(COMPILED_PEER, names, 1.1), Goal(NUMPY_PEER, names, 3.0))
    return BenchmarkCell(name, (*entries, *others), goals, check, close=close)
