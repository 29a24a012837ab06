"""Passes along lines against float64: drawn trees of reductions and what is between.

By a workgroup for a line, and by one invocation, as without workgroup memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Want
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.limits import shrunk
from tests.agreement import Engine, engine, on_adapter
from tests.tiers import EXAMPLES

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)
FOLDS = ("sum", "max", "min", "prod")


def unshared(backend: WebGpuBackend) -> Engine:
    """The device without workgroup memory: one invocation for a line."""
    none = replace(backend.limits, max_compute_workgroup_storage_size=0)
    return Engine(f"{backend.name}, unshared", backend.limited(none))


@dataclass(frozen=True)
class Trees:
    """A graph over lines, grown one value after the other.

    shape   of the elements, the last `axes` of them a line
    picks   what is put on top: (what, which values)
    ends    which values are outputs
    """

    shape: tuple[int, ...]
    axes: int
    turned: bool
    picks: tuple[tuple[int, int, int], ...]
    ends: tuple[int, ...]

    def graph(self) -> Graph:
        g = Graph("lines")
        at = len(self.shape) - self.axes
        beside = (*self.shape[:at], *(1,) * self.axes)
        whole = g.input("x", self.shape[::-1] if self.turned else self.shape)
        if self.turned:
            whole = g.transpose(whole, tuple(range(len(self.shape)))[::-1])
        every: list[Tensor] = [
            whole,
            g.input("along", self.shape[at:]),
            g.input("beside", beside),
        ]
        last = tuple(range(at - len(self.shape), 0))
        for what, one, other in self.picks:
            x, y = every[one % len(every)], every[other % len(every)]
            every.append(self._made(g, what, x, y, last, beside))
        g.set_outputs([every[i % len(every)] for i in self.ends])
        return g

    def _made(
        self, g: Graph, what: int, x: Tensor, y: Tensor, last: Any, beside: Any
    ) -> Tensor:
        """Elementwise things that stay small, and reductions of what is whole."""
        plain: list[Callable[[], Tensor]] = [
            lambda: g.tanh(x + y),
            lambda: g.tanh(x) - y * 0.5,
            lambda: g.minimum(g.abs(x), 2.0),
            lambda: g.maximum(x, y * 0.5),
            lambda: g.exp(g.neg(g.abs(x))) * g.tanh(y),
            lambda: g.sigmoid(x - y),
        ]
        if x.shape == self.shape and what % 2:
            kind = FOLDS[what // 2 % len(FOLDS)]
            if kind == "prod":
                x = 1.0 + g.tanh(x) * (0.5 / self.shape[-1])
            total = g.apply(kind, x, axes=last, keep_dim=bool(what & 16))
            scale = 1.0 / np.sqrt(np.prod(self.shape)) if kind == "sum" else 1.0
            total = total * float(scale)
            return total if what & 16 else g.reshape(g.tanh(total), beside)
        return plain[what % len(plain)]()

    def feeds(self) -> dict[str, Any]:
        rng = np.random.default_rng(len(self.picks))
        shapes = {
            "x": self.shape[::-1] if self.turned else self.shape,
            "along": self.shape[len(self.shape) - self.axes :],
            "beside": (
                *self.shape[: len(self.shape) - self.axes],
                *(1,) * self.axes,
            ),
        }
        return {k: rng.standard_normal(s).astype("f4") for k, s in shapes.items()}


@st.composite
def trees(draw: st.DrawFn) -> Trees:
    axes = draw(st.integers(1, 2))
    kept = draw(st.lists(st.integers(1, 7), max_size=2))
    most = 700 if axes == 1 else 26
    line = draw(st.lists(st.integers(1, most), min_size=axes, max_size=axes))
    number = st.integers(0, 31)
    picks = draw(st.lists(st.tuples(number, number, number), min_size=2, max_size=12))
    ends = draw(st.lists(st.integers(3, 2 + len(picks)), min_size=1, max_size=2))
    turned = draw(st.booleans())
    return Trees((*kept, *line), axes, turned, tuple(picks), tuple(ends))


def off(found: Any, right: Any) -> float:
    """The largest error, in parts of the largest value."""
    right, found = np.asarray(right, np.float64), np.asarray(found)
    assert found.shape == right.shape
    return float(np.abs(found - right).max() / max(1.0, np.abs(right).max()))


def passes(one: Engine, graph: Graph) -> int:
    """How many steps go along lines."""
    plan = compile_graph(graph, one.backend.target)
    return sum(step.kind == "lines" for step in plan.steps)


@pytest.mark.requires_wgpu
def test_drawn_passes_agree(adapter: Want, is_full_tier: bool) -> None:
    first = adapter.name == "llvmpipe" and "vulkan" in adapter.backends
    ways = [
        engine(adapter),
        unshared(on_adapter(adapter)),
        engine(adapter, limits=shrunk()),
    ]

    most = 120 if is_full_tier else EXAMPLES["default"]
    examples = most if first else most // 4
    along = 0

    @seed(1)
    @given(trees())
    @settings(max_examples=examples, suppress_health_check=QUIET)
    def check(case: Trees) -> None:
        nonlocal along
        graph, feeds = case.graph(), case.feeds()
        along += passes(ways[0], graph) > 0
        right = engine(None).run(graph, feeds)
        for one in ways:
            for found, want in zip(one.run(graph, feeds), right, strict=True):
                assert off(found, want) < 2e-5, f"on {one.name}: {case}"

    check()
    assert along > examples // 16


def written(name: str, g: Graph, x: Tensor, y: Tensor) -> list[Tensor]:
    """What people write out."""
    if name == "softmax":
        e = g.exp(x - g.max(x, -1, keep_dim=True))
        return [e / g.sum(e, -1, keep_dim=True)]
    if name == "layer norm":
        low = x - g.mean(x, -1, keep_dim=True)
        return [low / g.sqrt(g.mean(low * low, -1, keep_dim=True) + 1e-5) * y]
    if name == "ties":  # every place of the largest value, as its gradient has it
        top = g.cast(g.eq(x, g.max(x, -1, keep_dim=True)), "f32")
        return [top / g.sum(top, -1, keep_dim=True), g.sum(top * y, -1)]
    if name == "whole numbers":
        n = g.cast(x * 100.0, "i32")
        low = n - g.min(n, -1, keep_dim=True)
        return [low, g.max(low * 3, -1), g.prod(g.bitwise_or(n, 1), -1)]
    if name == "unsigned":
        n = g.cast(g.abs(x) * 100.0, "u32")
        return [
            n - g.min(n, -1, keep_dim=True),
            g.max(n * n, -1),
        ]
    spread = g.max(x, -1, keep_dim=True) - g.min(x, -1, keep_dim=True)
    return [(x - g.min(x, -1, keep_dim=True)) / spread]


WRITTEN = ("softmax", "layer norm", "ties", "whole numbers", "unsigned", "scaled")


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("shape", [(7, 10), (2, 3, 33), (5, 300), (1, 4096), (64, 64)])
def test_what_people_write_is_one_pass_each(
    adapter: Want, name: str, shape: tuple[int, ...]
) -> None:
    g = Graph(name)
    outs = written(name, g, g.input("x", shape), g.input("y", shape[-1:]))
    g.set_outputs(outs)
    rng = np.random.default_rng(3)
    x = np.round(rng.standard_normal(shape).astype("f4"), 2)
    feeds = {"x": x, "y": rng.standard_normal(shape[-1:]).astype("f4")}
    right = engine(None).run(g, feeds)
    for one in (engine(adapter), unshared(on_adapter(adapter))):
        assert passes(one, g) == len(outs)
        for found, want in zip(one.run(g, feeds), right, strict=True):
            if want.dtype == np.float32:
                assert off(found, want) < 2e-6
            else:
                np.testing.assert_array_equal(found, want)


@pytest.mark.requires_dawn
@pytest.mark.parametrize("name", WRITTEN)
def test_the_compiler_of_a_browser_takes_them(name: str) -> None:
    """Tint is stricter than naga on barriers: by a workgroup, and by one invocation."""
    g, shape = Graph(name), (5, 300)
    g.set_outputs(written(name, g, g.input("x", shape), g.input("y", shape[-1:])))
    rng = np.random.default_rng(3)
    x = np.round(rng.standard_normal(shape).astype("f4"), 2)
    feeds = {"x": x, "y": rng.standard_normal(shape[-1:]).astype("f4")}
    right = engine(None).run(g, feeds)
    port = NativePort(library="wgpudawn")
    drive(port.open(Want()))
    backend = WebGpuBackend(port)
    try:
        for one in (Engine("Dawn", backend), unshared(backend)):
            for found, want in zip(one.run(g, feeds), right, strict=True):
                assert off(found, want) < 2e-6
    finally:
        drive(port.close())


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("kind", ["bf16", "i8", "u8", "i16", "u16"])
@pytest.mark.parametrize("length", [64, 45])
def test_packed_elements_are_read_one_by_one(
    adapter: Want, kind: str, length: int
) -> None:
    """Packed elements are read one by one, where others lie in whole fours too."""
    g = Graph(kind)
    x, y = g.input("x", (6, length), kind), g.input("y", (6, length))
    wide = g.cast(x, "f32")
    g.set_outputs([g.sum(g.tanh(wide * 0.01) + y, -1)])
    drawn = np.random.default_rng(5).integers(0, 100, (6, length))
    dtype = g.node(x.id).type.dtype.numpy
    given = drawn.astype(np.float32).view(np.uint32) >> 16
    packed = given.astype(np.uint16).view(dtype) if kind == "bf16" else drawn
    feeds = {"x": packed.astype(dtype), "y": drawn.astype("f4") / 100}
    (right,) = engine(None).run(g, feeds)
    for one in (engine(adapter), unshared(on_adapter(adapter))):
        (found,) = one.run(g, feeds)
        assert off(found, right) < 2e-6


@pytest.mark.requires_wgpu
def test_what_is_not_finite_stays_so(adapter: Want) -> None:
    """A NaN takes its own line, and no other; infinities are found as extremes."""
    x = np.random.default_rng(4).standard_normal((6, 45)).astype("f4")
    x[1, 7], x[2, 3], x[3, 4] = np.nan, np.inf, -np.inf
    x[4] = -np.inf
    g = Graph("not finite")
    given = g.input("x", x.shape)
    twice = given + given
    g.set_outputs([g.max(twice, -1), g.min(twice, -1), g.sum(twice, -1)])
    right = engine(None).run(g, {"x": x})
    for one in (engine(adapter), unshared(on_adapter(adapter))):
        assert passes(one, g) == 3
        for found, want in zip(one.run(g, {"x": x}), right, strict=True):
            np.testing.assert_allclose(found, want, 1e-5, 1e-5)


@pytest.mark.requires_wgpu
def test_sums_of_long_lines_keep_their_digits(adapter: Want) -> None:
    """A sum of a long line is made in blocks, which keeps its digits."""
    x = np.random.default_rng(5).random((3, 4096)).astype("f4")
    g = Graph("long")
    given = g.input("x", x.shape)
    g.set_outputs([g.sum(given * given, -1)])
    right = np.square(x.astype(np.float64)).sum(axis=-1)
    for one in (engine(adapter), unshared(on_adapter(adapter))):
        assert passes(one, g) == 1
        (found,) = one.run(g, {"x": x})
        np.testing.assert_allclose(found, right, 2e-6)
