"""Softmax and norms as machine code: NumPy's numbers, of lines of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.backends import cpu_lines
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.cpu_lines import COMPILED, OPS, line_kernels
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.machine.library import Code, object_code, processor
from rlxweb.machine.lines import lines_text

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def _wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def given_to(op: str, x: np.ndarray) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(x.shape[-1])
    if op == "softmax":
        return (x,)
    return x, *rng.standard_normal((2, x.shape[-1]), np.float32)


def check(op: str, x: np.ndarray, found: np.ndarray, attrs: dict[str, Any]) -> None:
    """Within the op's tolerance of its reference in float64."""
    own = registry.get(op)
    wide = [one.astype(np.float64) for one in given_to(op, x)]
    with np.errstate(all="ignore"):
        want = own.reference(np, {"eps": 1e-5, **attrs}, *wide)
    finite = np.abs(want[np.isfinite(want)])
    peak = max(1.0, float(finite.max(initial=0.0)))
    near = own.tolerance
    atol = near.atol * (peak if near.relative_to_peak else 1.0)
    np.testing.assert_allclose(found, want, near.rtol, atol)


@given(
    op=st.sampled_from(OPS),
    shape=st.sampled_from(
        [(3000, 1), (400, 7), (130, 16), (70, 31), (2, 1023), (5, 3, 200), (40_000,)]
    ),
    around=st.sampled_from([0.0, 200.0, -1e4]),
    size=st.sampled_from([1e-3, 1.0, 80.0]),
    odd=st.sampled_from([None, np.nan, np.inf, -np.inf]),
)
@settings(max_examples=60)
def test_lines_are_numpys(
    op: str, shape: tuple[int, ...], around: float, size: float, odd: float | None
) -> None:
    """Lines are NumPy's: short, long, far from zero, with what is not finite in one."""
    x = np.random.default_rng(0).standard_normal(shape) * size + around
    x = x.astype(np.float32)
    if odd is not None:
        x.reshape(-1)[shape[-1] // 2] = odd
    run = next(row.run for row in COMPILED if row.op == op)
    check(op, x, run({"axis": -1, "eps": 1e-5}, *given_to(op, x)), {"axis": -1})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_width(op: str, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if nbytes > processor().nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    kernel = cpu_lines.function_of(Code(object_code(lines_text(op, nbytes))))
    monkeypatch.setattr(line_kernels, "ready", lambda about: kernel)
    x = np.random.default_rng(1).standard_normal((37, 203)).astype(np.float32)
    run = next(row.run for row in COMPILED if row.op == op)
    check(op, x, run({"axis": -1, "eps": 1e-5}, *given_to(op, x)), {"axis": -1})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((64, 64), -1), ((64, 64), 0), ((3, 5), 1)]
)
def test_in_a_graph(op: str, shape: tuple[int, ...], axis: int) -> None:
    """Other axes and small lines go by the reference, turned arrays by either way."""
    x = np.asfortranarray(np.random.default_rng(2).standard_normal(shape), np.float32)
    graph = Graph("lines")
    feeds = dict(zip("xyz", given_to(op, x), strict=False))
    ins = [graph.input(name, one.shape) for name, one in feeds.items()]
    graph.set_outputs([graph.apply(op, *ins, axis=axis)])
    found = rlx.Session("cpu").compile(graph).run(feeds)[0]
    check(op, x, found, {"axis": axis})


def test_the_reference_serves_where_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reference serves with RLX_FAST=off, and until background code is compiled."""
    x = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    own, types = registry.get("softmax"), None
    graph = Graph("one")
    made = graph.softmax(graph.input("x", x.shape))
    types = (graph.node(made.id).type,)
    how = own, types, types[0], {"axis": -1}
    assert "softmax, compiled" in CpuBackend().variants_for(*how)
    monkeypatch.setenv("RLX_FAST", "off")
    assert "softmax, compiled" not in CpuBackend().variants_for(*how)
    monkeypatch.setenv("RLX_FAST", "background")
    line_kernels._made.clear()
    found = COMPILED[0].run({"axis": -1}, x)
    assert line_kernels.state("softmax")
    check("softmax", x, found, {"axis": -1})
