"""Graphs with symbolic dimensions: built once, then bound to numbers by the rules of
any graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb import Dim, Graph, Tensor
from rlxweb.core.errors import (
    GraphError,
    OutOfMemory,
    ShapeError,
    UnknownName,
    UsageError,
    VerifyError,
)
from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.verify import verify
from rlxweb.runtime.input_validation import validate_feeds


def graph_with_dim(minimum: int = 1) -> tuple[Graph, Tensor]:
    g = Graph("g")
    return g, g.input("x", (Dim("n", min=minimum), 4))


def test_a_bound_graph_equals_one_built_with_numbers() -> None:
    """A bound graph has exactly the nodes of one built with numbers."""

    def build(g: Graph, n: Any, m: Any) -> None:
        w = g.param("w", (8, 3))
        x, y = g.input("x", (n, m, 8)), g.input("y", (m,))
        a, b, _ = x.shape
        rows = g.relu(x).reshape(a * b, 8) @ w
        scaled = rows.reshape(a, -1, 3) * y[:, None] / b
        first, second = g.split(g.concat([scaled, scaled[:, ::-1]], 2), 2, axis=2)
        g.set_outputs([g.softmax(first, 1), g.expand(second.sum(0), (a, b, 3))])

    varying, fixed = Graph("g"), Graph("g")
    build(varying, Dim("n"), Dim("m"))
    build(fixed, 3, 5)
    assert varying.bind(n=3, m=5).key == fixed.key
    assert varying.bind({"n": 3}).bind(m=5).key == fixed.key
    assert list(varying.bind(n=3).dims) == ["m"]
    verify(varying.bind(n=1, m=1))


def test_names_none_and_minus_one_are_dims() -> None:
    """The same name is the same size; None and -1 have the input's name and place."""
    g = Graph()
    x = g.input("x", ("n", None, -1))
    g.input("y", ("n", 2))
    g.set_outputs([x])
    assert list(g.dims) == ["n", "x_1", "x_2"]
    assert g.bind(n=2, x_1=3, x_2=4).named("input")["x"].type.shape == (2, 3, 4)


def test_shapes_are_printed_in_dims() -> None:
    g, x = graph_with_dim()
    concatenated = g.concat([x, x[1:]], 0)
    assert str(concatenated.shape) == "(2*n - 1, 4)"
    assert str(g.node(concatenated.id)).endswith(": [2*n - 1, 4] f32")
    assert "reshape(%0, shape=(4*n, 1))" in str(g.node(x.reshape(x.shape[0] * 4, 1).id))
    assert concatenated.shape[1] == 4
    assert type(concatenated.shape[1]) is int
    assert concatenated.rank == 2
    y = g.input("y", (Dim("k", multiple_of=4), 3))
    assert str(g.getitem(y, slice(None, None, 4)).shape) == "(k//4, 3)"


def test_nodes_before_the_first_dim_stay_unchanged() -> None:
    g = Graph()
    w = g.constant(np.ones((4, 2), np.float32)) * 2.0
    x = g.input("x", (Dim("n"), 4))
    g.set_outputs([x @ w])
    (out,) = evaluate(g.bind(n=3), {"x": np.ones((3, 4), np.float32)})
    np.testing.assert_array_equal(out, np.full((3, 2), 8))


def test_arguments_are_copied() -> None:
    """A graph does not change with the arrays and lists it was given."""
    g, x = graph_with_dim()
    array, shape = np.ones(4, np.float32), [-1, 2]
    g.set_outputs([(x * array).reshape(shape)])
    array[:] = 7
    shape[1] = 3
    (out,) = evaluate(g.bind(n=1), {"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(out, np.ones((2, 2)))


INVALID_BUILDS: dict[
    str, tuple[Callable[[Graph, Tensor], object], type[Exception], str]
] = {
    "for every size": (lambda g, x: x + np.ones(3), ShapeError, "cannot broadcast"),
    "for some sizes": (lambda g, x: x.reshape(-1, 3), ShapeError, r"tried with n=\d+"),
    "a branch": (
        lambda g, x: x.shape[0] > 20 or 1,
        UsageError,
        "size condition n > 20",
    ),
    "a loop": (lambda g, x: [x[i] for i in range(x.shape[0])], UsageError, "to an int"),
    "a param": (
        lambda g, x: g.param("w", (x.shape[0], 2)),
        ShapeError,
        "must be fixed",
    ),
    "another dim": (
        lambda g, x: g.input("y", (Dim("n", max=9),)),
        GraphError,
        "differs from",
    ),
    "the same name": (lambda g, x: g.input("x", ("m",)), GraphError, "already used"),
    "another graph": (
        lambda g, x: g.relu(Graph().input("z", ("k",))),
        GraphError,
        "not a tensor of this graph",
    ),
    "another graph's size": (
        lambda g, x: x.reshape(graph_with_dim()[1][1:].shape[0], -1),
        GraphError,
        "belongs to a tensor of another graph",
    ),
}


@pytest.mark.parametrize("name", INVALID_BUILDS)
def test_errors_are_raised_where_the_graph_is_built(name: str) -> None:
    build, kind, message = INVALID_BUILDS[name]
    g, x = graph_with_dim()
    with pytest.raises(kind, match=message):
        build(g, x)
    assert list(g.dims) == ["n"]
    g.set_outputs([g.relu(x)])
    verify(g.bind(n=2))


def test_the_number_of_outputs_must_be_known() -> None:
    g, x = graph_with_dim()
    with pytest.raises(UsageError, match="the number of results"):
        g.split(x, x.shape[0])


@pytest.mark.parametrize(
    ("sizes", "kind", "message"),
    [
        ({"n": 0}, ShapeError, "'n' is 0; it must be at least 1"),
        ({"n": -3}, ShapeError, "at least 1"),
        ({"n": 2.5}, ShapeError, "integer"),
        ({"m": 3}, UnknownName, "no dim 'm'; its dims are 'n'"),
    ],
)
def test_invalid_bindings_are_refused(
    sizes: dict[str, Any], kind: type[Exception], message: str
) -> None:
    g, x = graph_with_dim()
    g.set_outputs([x])
    with pytest.raises(kind, match=message):
        g.bind(sizes)


def test_running_out_of_memory_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g, x = graph_with_dim()
    g.set_outputs([g.relu(x)])

    def fails(*_: object) -> object:
        raise MemoryError("no room")

    monkeypatch.setattr("rlxweb.ir.builder_call_trace.TraceReplay.run_call", fails)
    with pytest.raises(OutOfMemory, match=r"n=1000000000: .*no room"):
        g.bind(n=10**9)


def test_zero_is_a_size_if_the_minimum_allows_it() -> None:
    g, x = graph_with_dim(0)
    g.set_outputs([g.relu(x).sum(0)])
    (out,) = evaluate(g.bind(n=0), {"x": np.ones((0, 4), np.float32)})
    np.testing.assert_array_equal(out, np.zeros(4))


def test_sizes_that_python_has_read_are_guarded() -> None:
    """A branch taken while building, and a size read as a number, must hold for later
    sizes.
    """
    g, x = graph_with_dim()
    part = x[:3]
    mean = part.sum(0) / part.shape[0]
    g.set_outputs([mean if x.shape[0] != 1 else x[0]])
    verify(g.bind(n=3))
    with pytest.raises(ShapeError, match=r"shape of node %\d+: the shape is \[2, 4\]"):
        g.bind(n=2)
    h, y = graph_with_dim()
    h.set_outputs([y if y.shape[0] != 1 else y[0]])
    verify(h.bind(n=2))
    with pytest.raises(ShapeError, match="size condition n != 1"):
        h.bind(n=1)


def test_sizes_of_two_tensors_are_compared() -> None:
    g, x = graph_with_dim()
    assert g.relu(x).shape == x.shape
    assert x.reshape(-1).shape[0] == x.shape[0] * 4
    assert x[1:].shape[0] + 1 == x.shape[0]


def test_a_copy_is_independent() -> None:
    g, x = graph_with_dim()
    g.set_outputs([x])
    copied_graph = g.copy()
    copied_tensor = copied_graph.tensor(x.id)
    n = copied_tensor.shape[0]
    copied_graph.set_outputs([copied_graph.relu(copied_tensor).reshape(n, 2, 2)])
    g.set_outputs([g.exp(x)])
    assert copied_graph.bind(n=2).node(
        copied_graph.bind(n=2).outputs[0]
    ).type.shape == (2, 2, 2)
    assert [n.op for n in g.bind(n=2).nodes()] == ["input", "exp"]


def test_functions_that_need_numbers_refuse_dims() -> None:
    g, x = graph_with_dim()
    g.set_outputs([x])
    with pytest.raises(
        VerifyError, match=r"variable sizes \(n\); .* graph.bind\(n=…\)"
    ):
        verify(g)
    with pytest.raises(VerifyError, match=r"variable sizes \(n\)"):
        validate_feeds(g, g.named("input"), {"x": np.ones((2, 4), np.float32)})
    assert g.key == g.copy().key
    assert hash(g.key) != hash(graph_with_dim(2)[0].key)
    assert Graph().dims == {}
    assert graph_with_dim()[0].copy().dims.keys() == {"n"}


def test_a_build_function_runs_for_each_binding() -> None:
    """A build function with a loop or a table runs again for each binding."""

    def weighted_sum(g: Graph, parts: dict[str, Any], n: int) -> list[Tensor]:
        x = parts["x"]
        table = g.constant(np.arange(n, dtype=np.float32)[:, None])
        rows = [x[i] * (i + 1) for i in range(n)]
        total = rows[0]
        for row in rows[1:]:
            total = total + row
        return [total, x * table]

    g, x = graph_with_dim()
    total, scaled = g.build(weighted_sum, {"x": x}, x.shape[0])
    assert str(g.node(scaled.id).type) == "[n, 4] f32"
    g.set_outputs([total, scaled])
    for n in (1, 3):
        array = np.ones((n, 4), np.float32)
        first, second = evaluate(g.bind(n=n), {"x": array})
        np.testing.assert_array_equal(first, np.full(4, n * (n + 1) / 2))
        np.testing.assert_array_equal(second[:, 0], np.arange(n))
    fixed = Graph()
    outputs = fixed.build(weighted_sum, {"x": fixed.input("x", (2, 4))}, 2)
    assert [t.shape for t in outputs] == [(4,), (2, 4)]
