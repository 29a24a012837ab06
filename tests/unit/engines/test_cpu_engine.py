"""NumPy engine: references run unchanged, and are checked against their shape
rules.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from rlxweb.core.errors import GraphError, InputError
from rlxweb.engines.array import dead_after_steps
from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.op import registry
from tests.engines_under_test import engine
from tests.op_factory import make_op


def graph_with_wrong_reference() -> Graph:
    """Return a graph of one op whose reference breaks its own shape rule."""
    op = make_op(
        reference=lambda xp, attrs, x: x.astype(xp.float64)[:1], lower=HostOnly()
    )
    registry.register(op)
    graph = Graph()
    graph.set_outputs([graph.apply(op.name, graph.input("x", (3,)))])
    return graph


def test_reference_is_checked_against_its_shape_rule() -> None:
    """A reference that breaks its shape rule is named, with both shapes."""
    with pytest.raises(GraphError, match=r"returned \[1\] float64; .* \[3\] f32"):
        engine(None).run(graph_with_wrong_reference(), {"x": np.ones(3, np.float32)})


def test_values_are_released_after_their_last_reader() -> None:
    """A long chain over a large array keeps a few values at a time, not all."""
    graph = Graph()
    x = graph.input("x", (1 << 16,))
    for _ in range(40):
        x = graph.cumsum(x)
    graph.set_outputs([graph.sum(x)])
    feeds = {"x": np.zeros(1 << 16, np.float32)}
    numpy_engine = engine(None)
    numpy_engine.run(graph, feeds)
    tracemalloc.start()
    numpy_engine.run(graph, feeds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * (1 << 18)


def test_nan_and_infinity_raise_no_warning() -> None:
    """NaN and infinity follow IEEE 754; a warning would fail this test."""
    graph = Graph()
    x = graph.input("x", (4,))
    graph.set_outputs([graph.log(x), x / 0.0, graph.exp(x * 1e30)])
    values = np.array([np.nan, -1, 0, np.inf], np.float32)
    log, quotient, grown = engine(None).run(graph, {"x": values})
    np.testing.assert_array_equal(log, [np.nan, np.nan, -np.inf, np.inf])
    np.testing.assert_array_equal(quotient, [np.nan, -np.inf, np.nan, np.inf])
    np.testing.assert_array_equal(grown, [np.nan, 0, 1, np.inf])


def test_promoted_evaluation_stays_in_float64() -> None:
    """Promoted inputs, constants and casts stay in float64; integers as they are."""
    graph = Graph()
    x, i = graph.input("x", (3,)), graph.input("i", (3,), "i32")
    outputs = [x + 0.1, graph.cast(i, "f32"), graph.cast(x, "f16"), i + 1]
    graph.set_outputs(outputs)
    feeds = {"x": np.ones(3, np.float32), "i": np.arange(3, dtype=np.int32)}
    outs = evaluate(graph, feeds, promote=True)
    assert [o.dtype for o in outs] == ["float64", "float64", "float64", "int32"]
    plain = evaluate(graph, feeds)
    assert [o.dtype for o in plain] == ["float32", "float32", "float16", "int32"]


def test_missing_input_is_named() -> None:
    """An input without a value is named in a bare evaluation too."""
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (3,)))])
    with pytest.raises(InputError, match=r"'x'.*no value was passed"):
        evaluate(graph, {})


def test_order_of_release_names_each_value_once_at_its_last_reader() -> None:
    """Retained values are never listed."""
    assert dead_after_steps([(0, 1), (1, 2), (0, 2, 3)], {3}) == [[], [1], [0, 2]]
