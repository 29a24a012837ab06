"""The NumPy backend: references run as they are, and are held to their shape rules."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from rlxweb.backends.array import order_of_release
from rlxweb.backends.evaluate import evaluate
from rlxweb.errors import GraphError, InputError
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.op import registry
from tests.agreement import engine
from tests.made_op import made_op


def careless() -> Graph:
    """One op, whose reference breaks its own shape rule."""
    op = made_op(
        reference=lambda xp, attrs, x: x.astype(xp.float64)[:1], lower=HostOnly()
    )
    registry.register(op)
    graph = Graph()
    graph.set_outputs([graph.apply(op.name, graph.input("x", (3,)))])
    return graph


def test_a_reference_is_held_to_its_shape_rule() -> None:
    """A reference that breaks its shape rule is named, with both shapes."""
    with pytest.raises(GraphError, match=r"returned \[1\] float64; .* \[3\] f32"):
        engine(None).run(careless(), {"x": np.ones(3, np.float32)})


def test_values_are_dropped_when_nobody_reads_them() -> None:
    """A long chain over a large array holds a few of them, not all."""
    graph = Graph()
    x = graph.input("x", (1 << 16,))
    for _ in range(40):
        x = graph.cumsum(x)
    graph.set_outputs([graph.sum(x)])
    feeds = {"x": np.zeros(1 << 16, np.float32)}
    one = engine(None)
    one.run(graph, feeds)
    tracemalloc.start()
    one.run(graph, feeds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * (1 << 18)


def test_nan_and_infinity_make_no_noise() -> None:
    """NaN and infinity flow through as IEEE says; a warning would fail this test."""
    graph = Graph()
    x = graph.input("x", (4,))
    graph.set_outputs([graph.log(x), x / 0.0, graph.exp(x * 1e30)])
    fed = np.array([np.nan, -1, 0, np.inf], np.float32)
    log, quotient, grown = engine(None).run(graph, {"x": fed})
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


def test_a_value_that_was_not_given_is_named() -> None:
    """An input that was not fed is named in a bare evaluation too."""
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (3,)))])
    with pytest.raises(InputError, match=r"'x'.*no value was given"):
        evaluate(graph, {})


def test_order_of_release_names_each_value_once_at_its_last_reader() -> None:
    """Kept values are never named."""
    assert order_of_release([(0, 1), (1, 2), (0, 2, 3)], {3}) == [[], [1], [0, 2]]
