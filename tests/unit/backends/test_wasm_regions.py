"""Elementwise regions as WebAssembly: one of every op is made, or refused.

`test_wasm_modules.py` has node look at them; where Python is WebAssembly itself,
`test_wasm_regions_computed.py` computes by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.wasm_region_text import region_module
from rlxweb.errors import Unsupported
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Sample
from tests.unit.backends.test_cpu_regions import BY_NUMPY, cases, one_op, operands

CASES = [one for one in cases() if "f16" not in str(one.id)]
"""Ops and samples; halves are NumPy's in a tab."""


def made(graph: Graph) -> bytes:
    """The module of the graph's one op. Errors  Unsupported."""
    node = graph.node(graph.outputs[0])
    return region_module(graph, [node.id], node.inputs, [False] * len(node.inputs))


def is_refused(op: Op, sample: Sample) -> bool:
    return (op.name, sample.inputs[0].dtype.label) in BY_NUMPY


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_the_region_of_every_op_is_made_or_refused(op: Op, sample: Sample) -> None:
    """A region of an op is WebAssembly, or refused where machine code has none."""
    graph = one_op(op, operands(sample)[0], sample)
    if is_refused(op, sample):
        with pytest.raises(Unsupported):
            made(graph)
    else:
        assert made(graph).startswith(b"\0asm\1\0\0\0")


def net(g: Graph) -> Any:
    """Bias by columns, a factor by rows, a mask, truths out."""
    x, b, r = g.input("x", (40, 1003)), g.input("b", (1003,)), g.input("r", (40, 1))
    keep = g.input("keep", (40, 1003), "bool")
    y = g.gelu(x + b) * r
    return [g.where(keep, y, 0.25), g.gt(y, b), g.logical_and(keep, g.lt(x, 0.0))]


def net_and_feeds() -> tuple[Graph, dict[str, np.ndarray]]:
    graph = Graph("net")
    graph.set_outputs(net(graph))
    rng = np.random.default_rng(1)
    return graph, {
        "x": rng.standard_normal((40, 1003)).astype(np.float32),
        "b": rng.standard_normal(1003).astype(np.float32),
        "r": rng.standard_normal((40, 1)).astype(np.float32),
        "keep": rng.random((40, 1003)) < 0.5,
    }


def check_near(found: Any, right: Any) -> None:
    """Floats to some units in the last place, truths exactly."""
    for one, want in zip(found, right, strict=True):
        if one.dtype == np.float32:
            np.testing.assert_allclose(one, want, 2e-6, 2e-6)
        else:
            np.testing.assert_array_equal(one, want)


def test_rows_columns_and_truths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region of several reads, through the engine."""
    monkeypatch.setenv("RLX_FAST", "background")
    graph, feeds = net_and_feeds()
    right = rlx.Session("cpu", optimise=False).compile(graph).run(feeds)
    compiled = rlx.Session("cpu").compile(graph)
    for _ in range(3):
        check_near(compiled.run(feeds), right)
