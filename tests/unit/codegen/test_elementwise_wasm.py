"""WebAssembly modules of elementwise regions: one of every op is generated, or refused.

`test_wasm_module_validity.py` has node look at them; where Python is WebAssembly
itself, `test_wasm_elementwise_in_pyodide.py` computes by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.codegen.elementwise_wasm import region_module
from rlxweb.core.errors import Unsupported
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Sample
from tests.unit.codegen.test_native_elementwise import (
    LEFT_TO_NUMPY,
    elementwise_samples,
    operand_sets,
    single_op_graph,
)

WASM_SAMPLES = [one for one in elementwise_samples() if "f16" not in str(one.id)]
"""Ops and samples, without float16, which a browser leaves to NumPy."""


def generate_module(graph: Graph) -> bytes:
    """Return the module of the graph's one op. Errors  Unsupported."""
    node = graph.node(graph.outputs[0])
    return region_module(graph, [node.id], node.inputs, [False] * len(node.inputs))


def is_refused(op: Op, sample: Sample) -> bool:
    return (op.name, sample.inputs[0].dtype.label) in LEFT_TO_NUMPY


@pytest.mark.parametrize(("op", "sample"), WASM_SAMPLES)
def test_region_of_every_op_is_generated_or_refused(op: Op, sample: Sample) -> None:
    """The region of an op becomes WebAssembly, or is refused where native code has no
    form of it.
    """
    graph = single_op_graph(op, operand_sets(sample)[0], sample)
    if is_refused(op, sample):
        with pytest.raises(Unsupported):
            generate_module(graph)
    else:
        assert generate_module(graph).startswith(b"\0asm\1\0\0\0")


def add_broadcast_region(g: Graph) -> Any:
    """Add a bias by columns, a factor by rows and a mask; return float and bool
    outputs.
    """
    x, b, r = g.input("x", (40, 1003)), g.input("b", (1003,)), g.input("r", (40, 1))
    keep = g.input("keep", (40, 1003), "bool")
    y = g.gelu(x + b) * r
    return [g.where(keep, y, 0.25), g.gt(y, b), g.logical_and(keep, g.lt(x, 0.0))]


def broadcast_graph_and_feeds() -> tuple[Graph, dict[str, np.ndarray]]:
    graph = Graph("net")
    graph.set_outputs(add_broadcast_region(graph))
    rng = np.random.default_rng(1)
    return graph, {
        "x": rng.standard_normal((40, 1003)).astype(np.float32),
        "b": rng.standard_normal(1003).astype(np.float32),
        "r": rng.standard_normal((40, 1)).astype(np.float32),
        "keep": rng.random((40, 1003)) < 0.5,
    }


def check_close(outputs: Any, expected: Any) -> None:
    """Compare floats to some units in the last place, and bools exactly."""
    for got, want in zip(outputs, expected, strict=True):
        if got.dtype == np.float32:
            np.testing.assert_allclose(got, want, 2e-6, 2e-6)
        else:
            np.testing.assert_array_equal(got, want)


def test_broadcast_rows_columns_and_bools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region of several reads is right through the engine."""
    monkeypatch.setenv("RLX_FAST", "background")
    graph, feeds = broadcast_graph_and_feeds()
    expected = rlx.Session("cpu", optimise=False).compile(graph).run(feeds)
    compiled = rlx.Session("cpu").compile(graph)
    for _ in range(3):
        check_close(compiled.run(feeds), expected)
