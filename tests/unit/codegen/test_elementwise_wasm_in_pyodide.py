"""Elementwise regions compiled to WebAssembly give the references' results, where
Python itself runs in WebAssembly.

Only there can their modules be opened: elsewhere pytest finds no test in this file.
"""

from __future__ import annotations

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.codegen.native_calls import array_address
from rlxweb.codegen.native_elementwise import RegionSpec, region_kernels
from rlxweb.codegen.wasm_builder import IN_BROWSER, load_module
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op
from rlxweb.ir.sample import Sample
from tests.unit.codegen.test_elementwise_wasm import (
    WASM_SAMPLES,
    broadcast_graph_and_feeds,
    check_close,
    generate_module,
    is_refused,
)
from tests.unit.codegen.test_native_elementwise import (
    operand_sets,
    single_op_graph,
)

__test__ = IN_BROWSER


def run_module(graph: Graph, arrays: list[np.ndarray]) -> np.ndarray:
    """Return the result of the graph's one op on the arrays."""
    node = graph.node(graph.outputs[0])
    (call,) = load_module(generate_module(graph), "region")
    out = np.empty(arrays[0].shape, node.type.dtype.numpy)
    job = np.array(
        [*map(array_address, [out, *arrays]), *[0] * (len(arrays) + 1)], np.int64
    )
    call(array_address(job), 1, out.size)
    return out


@pytest.mark.parametrize(
    ("op", "sample"), [one for one in WASM_SAMPLES if not is_refused(*one.values)]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_op_matches_its_reference(op: Op, sample: Sample) -> None:
    """Every op is within its tolerance of NumPy in float64, on ordinary numbers and
    edge values.
    """
    for arrays in operand_sets(sample):
        graph = single_op_graph(op, arrays, sample)
        got = run_module(graph, arrays)
        attrs = graph.node(graph.outputs[0]).attrs
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        if got.dtype == np.float32:
            want = op.reference(np, attrs, *wide).astype(np.float32)
            tolerance = op.tolerance
            np.testing.assert_allclose(got, want, tolerance.rtol, tolerance.atol)
        else:
            np.testing.assert_array_equal(got, op.reference(np, attrs, *arrays))


def test_engine_runs_compiled_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs a region of several reads: rows, columns and bools."""
    monkeypatch.setenv("RLX_FAST", "background")
    assert region_kernels.is_enabled
    graph, feeds = broadcast_graph_and_feeds()
    expected = rlx.Session("cpu", optimise=False).compile(graph).run(feeds)
    compiled = rlx.Session("cpu").compile(graph)
    before = region_kernels.change_count
    compiled.run(feeds)
    regions = [
        region
        for call in compiled._placement.prepared.program.calls
        if isinstance(region := getattr(call.function, "region", None), RegionSpec)
    ]
    assert regions
    for region in regions:
        assert region_kernels.compile_now(region) is not None
        assert region_kernels.missing_reason(region) == ""
    assert region_kernels.change_count > before
    check_close(compiled.run(feeds), expected)
