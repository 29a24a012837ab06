"""Test 64-bit integers on 32-bit devices: results are NumPy's or an error, never
others.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rlxweb.compiler.range_analysis import RangeAnalysis
from rlxweb.core.errors import DTypeError
from rlxweb.engines.evaluate import evaluate
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.value_range_rules import dtype_interval
from tests.engines_under_test import (
    Array,
    describe_mismatch,
    engine,
    named_feeds,
    single_op_graph,
)

WIDE_DTYPES = {DType.I64, DType.U64}
UNARY_OPS = (
    "neg",
    "abs",
    "sign",
    "relu",
    "bitwise_not",
    "sum",
    "prod",
    "max",
    "cumsum",
)
BINARY_OPS = (
    *("add", "sub", "mul", "div", "mod", "fmod", "floor_divide", "maximum", "minimum"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"),
    *("prelu", "matmul", "where", "pad", "gather", "scatter", "concat", "cast"),
)


@st.composite
def integer_graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, Array]]:
    """Draw a graph over [3, 3] of int64 or uint64 that returns all nodes, and feeds."""
    dtype = draw(st.sampled_from((DType.I64, DType.I64, DType.U64)))
    max_value = draw(st.sampled_from((3, 40, 1 << 16, (1 << 31) - 1, 1 << 33)))
    numbers = st.integers(0 if dtype is DType.U64 else -max_value, max_value)
    grids = st.lists(numbers, min_size=9, max_size=9)

    def grid() -> Array:
        return np.array(draw(grids), dtype.numpy).reshape(3, 3)

    g, feeds = Graph("numbers"), {"x": grid(), "y": grid()}
    tensors = [g.input(name, (3, 3), dtype) for name in feeds]
    tensors.append(g.constant(grid() % np.array(7, dtype.numpy)))
    for _ in range(draw(st.integers(1, 5))):
        x, y = draw(st.sampled_from(tensors)), draw(st.sampled_from(tensors))
        tensors.append(_append_random_op(draw, g, x, y))
    g.set_outputs(tensors)
    return g, feeds


def _append_random_op(draw: st.DrawFn, g: Graph, x: Tensor, y: Tensor) -> Tensor:
    unary_ops = [op for op in UNARY_OPS if op != "neg" or not x.dtype.is_unsigned]
    op = draw(st.sampled_from((*unary_ops, *BINARY_OPS)))
    if op in ("sum", "prod", "max"):
        return g.expand(g.apply(op, x, axes=(1,), keep_dim=True), (3, 3))
    if op == "cumsum":
        return g.apply(op, x, exclusive=draw(st.booleans()))
    if op in UNARY_OPS:
        return g.apply(op, x)
    if op == "where":
        return g.where(g.lt(x, y), x, y)
    if op == "pad":
        return g.apply(op, x, axes=(0,), before=(-1,), after=(1,), value=5.0)
    if op == "concat":
        return g.concat([x[:1], y[1:]], 0)
    if op == "gather":
        return g.gather(x, g.constant(np.array([2, 0, 0])))
    if op == "scatter":
        indices = g.constant(np.array([[0, 1, 1]] * 3))
        reduction = draw(st.sampled_from(("none", "add", "mul", "min")))
        return g.apply("scatter_elements", x, indices, y, axis=1, reduction=reduction)
    if op == "cast":
        dtype = draw(st.sampled_from(("f32", "i32", "u32", "bool", "f16")))
        return g.cast(g.cast(x, dtype), x.dtype)
    return g.apply(op, x, y)


@hypothesis.settings(max_examples=150)
@hypothesis.given(integer_graphs())
def test_every_value_lies_in_its_interval(
    graph_and_feeds: tuple[Graph, dict[str, Array]],
) -> None:
    """Every value lies in its interval, which is all of the type where it wraps."""
    graph, feeds = graph_and_feeds
    input_ranges = {name: (int(x.min()), int(x.max())) for name, x in feeds.items()}
    analysis = RangeAnalysis(
        graph, input_ranges, {d: dtype_interval(d) for d in WIDE_DTYPES}
    )
    outs = dict(zip(graph.outputs, evaluate(graph, feeds), strict=True))
    for node_id, values in outs.items():
        low, high = analysis.node_ranges[node_id]
        assert low <= int(values.min()), graph.node(node_id)
        assert int(values.max()) <= high, graph.node(node_id)


def run_if_supported(
    adapter: AdapterRequest, graph: Graph, feeds: dict[str, Array]
) -> Array | None:
    """Return the output, or None where the device does not support its type."""
    try:
        return engine(adapter).run(graph, feeds)[0]
    except DTypeError as error:
        if "the device has no " in str(error):
            return None
        raise


@hypothesis.settings(max_examples=25)
@hypothesis.given(integer_graphs())
def test_integers_match_numpy_or_are_rejected(
    adapter: AdapterRequest, graph_and_feeds: tuple[Graph, dict[str, Array]]
) -> None:
    """Integers are NumPy's, in the declared type, or rejected."""
    graph, feeds = graph_and_feeds
    graph.set_outputs([graph.tensor(graph.outputs[-1])])
    want = evaluate(graph, feeds)[0]
    got = run_if_supported(adapter, graph, feeds)
    hypothesis.event("refused" if got is None else "right")
    if got is not None:
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def _wide_samples() -> list[tuple[Op, Sample]]:
    """Return the first sample of each op with each set of types that includes a 64-bit
    one.
    """
    samples: dict[Any, tuple[Op, Sample]] = {}
    for op in registry:
        for sample in op.samples:
            types = tuple(operand.dtype for operand in sample.inputs)
            if {*types, sample.attrs.get("to")} & WIDE_DTYPES:
                samples.setdefault(
                    (op.name, types, sample.attrs.get("to")), (op, sample)
                )
    return list(samples.values())


@pytest.mark.full("opengl", "swiftshader")
def test_ops_of_wide_types_are_right_or_rejected(adapter: AdapterRequest) -> None:
    """Ops of wide types are right or refused, and most run."""
    right_count, names = 0, []
    for op, sample in _wide_samples():
        arrays = sample.draw(3)
        graph = single_op_graph(op, sample, arrays)
        want = evaluate(graph, named_feeds(arrays))[0]
        got = run_if_supported(adapter, graph, named_feeds(arrays))
        if got is None:
            continue
        assert got.dtype == want.dtype
        assert not describe_mismatch(
            got, want, graph.tensor(graph.outputs[0]).dtype, op.tolerance
        ), op.name
        right_count, names = right_count + 1, [*names, op.name]
    assert right_count > 50
    assert {"gather", "topk", "sum", "cumsum", "add", "where", "eq", "max"} <= {*names}
