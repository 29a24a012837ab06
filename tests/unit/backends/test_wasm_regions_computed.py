"""Elementwise regions as WebAssembly are right, where Python is WebAssembly.

Only there can their modules be opened: elsewhere pytest finds no test in this file.
"""

from __future__ import annotations

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.cpu_regions import Region, region_kernels
from rlxweb.host.compiled import address
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Sample
from rlxweb.machine.wasm import IN_A_TAB, opened
from tests.unit.backends.test_cpu_regions import one_op, operands
from tests.unit.backends.test_wasm_regions import (
    CASES,
    check_near,
    is_refused,
    made,
    net_and_feeds,
)

__test__ = IN_A_TAB


def computed(graph: Graph, arrays: list[np.ndarray]) -> np.ndarray:
    """Return the result of the graph's one op on the arrays."""
    node = graph.node(graph.outputs[0])
    (call,) = opened(made(graph), "region")
    out = np.empty(arrays[0].shape, node.type.dtype.numpy)
    job = np.array([*map(address, [out, *arrays]), *[0] * (len(arrays) + 1)], np.int64)
    call(address(job), 1, out.size)
    return out


@pytest.mark.parametrize(
    ("op", "sample"), [one for one in CASES if not is_refused(*one.values)]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_op_is_what_it_declares(op: Op, sample: Sample) -> None:
    """Within its tolerance of NumPy in float64, on ordinary numbers and on edges."""
    for arrays in operands(sample):
        graph = one_op(op, arrays, sample)
        found = computed(graph, arrays)
        attrs = graph.node(graph.outputs[0]).attrs
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        if found.dtype == np.float32:
            want = op.reference(np, attrs, *wide).astype(np.float32)
            near = op.tolerance
            np.testing.assert_allclose(found, want, near.rtol, near.atol)
        else:
            np.testing.assert_array_equal(found, op.reference(np, attrs, *arrays))


def test_the_engine_computes_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region of several reads: rows, columns and truths."""
    monkeypatch.setenv("RLX_FAST", "background")
    assert region_kernels.is_open
    graph, feeds = net_and_feeds()
    right = rlx.Session("cpu", optimise=False).compile(graph).run(feeds)
    compiled = rlx.Session("cpu").compile(graph)
    before = region_kernels.changes
    compiled.run(feeds)
    regions = [
        region
        for call in compiled._placed.ready.program.calls
        if isinstance(region := getattr(call.function, "region", None), Region)
    ]
    assert regions
    for region in regions:
        assert region_kernels.now(region) is not None
        assert region_kernels.state(region) == ""
    assert region_kernels.changes > before
    check_near(compiled.run(feeds), right)
