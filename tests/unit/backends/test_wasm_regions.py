"""Elementwise regions as WebAssembly: every op, computed where Python is WebAssembly.

On a desktop the modules are only made; `test_wasm_modules.py` has node look at them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.cpu_regions import Region, region_kernels
from rlxweb.backends.wasm_region_text import region_module
from rlxweb.errors import Unsupported
from rlxweb.host.compiled import address
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Sample
from rlxweb.machine.wasm import IN_A_TAB, opened
from tests.unit.backends.test_cpu_regions import BY_NUMPY, cases, one_op, operands


def computed(graph: Graph, arrays: list[np.ndarray]) -> Any:
    """The graph's one op, where modules can be opened."""
    node = graph.node(graph.outputs[0])
    code = region_module(graph, [node.id], node.inputs, [False] * len(arrays))
    if not IN_A_TAB:
        return None
    out = np.empty(arrays[0].shape, node.type.dtype.numpy)
    job = np.array([*map(address, [out, *arrays]), *[0] * (len(arrays) + 1)], np.int64)
    (call,) = opened(code, "region")
    call(address(job), 1, out.size)
    return out


def is_refused(op: Op, sample: Sample) -> bool:
    return (op.name, sample.inputs[0].dtype.label) in BY_NUMPY


@pytest.mark.parametrize(
    ("op", "sample"),
    [one for one in cases() if "f16" not in str(one.id)],  # halves are NumPy's in a tab
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_op_is_what_it_declares(op: Op, sample: Sample) -> None:
    """Ops in a tab are within their tolerance of NumPy in float64, on edges too."""
    for arrays in operands(sample):
        graph = one_op(op, arrays, sample)
        if is_refused(op, sample):
            with pytest.raises(Unsupported):
                computed(graph, arrays)
            return
        found = computed(graph, arrays)
        if found is None:
            continue
        attrs = graph.node(graph.outputs[0]).attrs
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        if found.dtype == np.float32:
            want = op.reference(np, attrs, *wide).astype(np.float32)
            near = op.tolerance
            np.testing.assert_allclose(found, want, near.rtol, near.atol)
        else:
            np.testing.assert_array_equal(found, op.reference(np, attrs, *arrays))


def net(g: Graph) -> Any:
    """Bias by columns, a factor by rows, a mask, truths out."""
    x, b, r = g.input("x", (40, 1003)), g.input("b", (1003,)), g.input("r", (40, 1))
    keep = g.input("keep", (40, 1003), "bool")
    y = g.gelu(x + b) * r
    return [g.where(keep, y, 0.25), g.gt(y, b), g.logical_and(keep, g.lt(x, 0.0))]


def test_rows_columns_and_truths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region of several reads is right through the engine, by its code in a tab."""
    monkeypatch.setenv("RLX_FAST", "background")
    graph = Graph("net")
    graph.set_outputs(net(graph))
    rng = np.random.default_rng(1)
    feeds = {
        "x": rng.standard_normal((40, 1003)).astype(np.float32),
        "b": rng.standard_normal(1003).astype(np.float32),
        "r": rng.standard_normal((40, 1)).astype(np.float32),
        "keep": rng.random((40, 1003)) < 0.5,
    }
    right = rlx.Session("cpu", optimise=False).compile(graph).run(feeds)
    made = rlx.Session("cpu").compile(graph)
    before = region_kernels.changes
    for _ in range(3):
        found = made.run(feeds)
        for one, want in zip(found, right, strict=True):
            if one.dtype == np.float32:
                np.testing.assert_allclose(one, want, 2e-6, 2e-6)
            else:
                np.testing.assert_array_equal(one, want)
        if IN_A_TAB:
            for call in made._placed.ready.program.calls:
                region = getattr(call.function, "region", None)
                if isinstance(region, Region):
                    region_kernels.now(region)
                    assert region_kernels.state(region) == ""
    assert region_kernels.is_open or not IN_A_TAB
    assert (region_kernels.changes > before) or not IN_A_TAB
