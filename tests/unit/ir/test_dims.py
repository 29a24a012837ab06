"""Graphs whose sizes vary: built once, bound to numbers by the rules of any graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb import Dim, Graph, Tensor
from rlxweb.backends.evaluate import evaluate
from rlxweb.errors import (
    GraphError,
    OutOfMemory,
    ShapeError,
    UnknownName,
    UsageError,
    VerifyError,
)
from rlxweb.ir.verify import verify
from rlxweb.runtime.feeds import check_feeds


def head(minimum: int = 1) -> tuple[Graph, Tensor]:
    g = Graph("g")
    return g, g.input("x", (Dim("n", min=minimum), 4))


def test_what_is_built_is_what_numbers_would_have_built() -> None:
    """A bound graph has the very nodes of one built with numbers."""

    def build(g: Graph, n: Any, m: Any) -> None:
        w = g.param("w", (8, 3))
        x, y = g.input("x", (n, m, 8)), g.input("y", (m,))
        a, b, _ = x.shape
        rows = g.relu(x).reshape(a * b, 8) @ w
        made = rows.reshape(a, -1, 3) * y[:, None] / b
        first, second = g.split(g.concat([made, made[:, ::-1]], 2), 2, axis=2)
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


def test_shapes_are_said_in_dims() -> None:
    g, x = head()
    made = g.concat([x, x[1:]], 0)
    assert str(made.shape) == "(2*n - 1, 4)"
    assert str(g.node(made.id)).endswith(": [2*n - 1, 4] f32")
    assert "reshape(%0, shape=(4*n, 1))" in str(g.node(x.reshape(x.shape[0] * 4, 1).id))
    assert made.shape[1] == 4
    assert type(made.shape[1]) is int
    assert made.rank == 2
    y = g.input("y", (Dim("k", multiple_of=4), 3))
    assert str(g.getitem(y, slice(None, None, 4)).shape) == "(k//4, 3)"


def test_nodes_before_the_first_dim_stay_what_they_are() -> None:
    g = Graph()
    w = g.constant(np.ones((4, 2), np.float32)) * 2.0
    x = g.input("x", (Dim("n"), 4))
    g.set_outputs([x @ w])
    (out,) = evaluate(g.bind(n=3), {"x": np.ones((3, 4), np.float32)})
    np.testing.assert_array_equal(out, np.full((3, 2), 8))


def test_arguments_are_kept_as_they_were() -> None:
    """A graph does not change with the arrays and lists it was given."""
    g, x = head()
    array, shape = np.ones(4, np.float32), [-1, 2]
    g.set_outputs([(x * array).reshape(shape)])
    array[:] = 7
    shape[1] = 3
    (out,) = evaluate(g.bind(n=1), {"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(out, np.ones((2, 2)))


WRONG: dict[str, tuple[Callable[[Graph, Tensor], object], type[Exception], str]] = {
    "for every size": (lambda g, x: x + np.ones(3), ShapeError, "cannot broadcast"),
    "for some sizes": (lambda g, x: x.reshape(-1, 3), ShapeError, r"tried with n=\d+"),
    "a branch": (lambda g, x: x.shape[0] > 20 or 1, UsageError, "is n > 20"),
    "a loop": (lambda g, x: [x[i] for i in range(x.shape[0])], UsageError, "number"),
    "a param": (lambda g, x: g.param("w", (x.shape[0], 2)), ShapeError, "one shape"),
    "another dim": (
        lambda g, x: g.input("y", (Dim("n", max=9),)),
        GraphError,
        "another than",
    ),
    "the same name": (lambda g, x: g.input("x", ("m",)), GraphError, "taken"),
    "another graph": (
        lambda g, x: g.relu(Graph().input("z", ("k",))),
        GraphError,
        "not a tensor of this graph",
    ),
    "another graph's size": (
        lambda g, x: x.reshape(head()[1][1:].shape[0], -1),
        GraphError,
        "of another graph's tensor",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_where_it_is_built(what: str) -> None:
    how, kind, words = WRONG[what]
    g, x = head()
    with pytest.raises(kind, match=words):
        how(g, x)
    assert list(g.dims) == ["n"]
    g.set_outputs([g.relu(x)])
    verify(g.bind(n=2))


def test_how_many_results_there_are_is_known() -> None:
    g, x = head()
    with pytest.raises(UsageError, match="how many tensors"):
        g.split(x, x.shape[0])


@pytest.mark.parametrize(
    ("sizes", "kind", "words"),
    [
        ({"n": 0}, ShapeError, "'n' is 0; it is at least 1"),
        ({"n": -3}, ShapeError, "at least 1"),
        ({"n": 2.5}, ShapeError, "integer"),
        ({"m": 3}, UnknownName, "no dim 'm'; it has 'n'"),
    ],
)
def test_what_binds_nothing_is_refused(
    sizes: dict[str, Any], kind: type[Exception], words: str
) -> None:
    g, x = head()
    g.set_outputs([x])
    with pytest.raises(kind, match=words):
        g.bind(sizes)


def test_what_the_host_has_no_memory_for_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g, x = head()
    g.set_outputs([g.relu(x)])

    def fails(*_: object) -> object:
        raise MemoryError("no room")

    monkeypatch.setattr("rlxweb.ir.recording.Replay.called", fails)
    with pytest.raises(OutOfMemory, match=r"n=1000000000: .*no room"):
        g.bind(n=10**9)


def test_zero_is_a_size_where_it_is_said() -> None:
    g, x = head(0)
    g.set_outputs([g.relu(x).sum(0)])
    (out,) = evaluate(g.bind(n=0), {"x": np.ones((0, 4), np.float32)})
    np.testing.assert_array_equal(out, np.zeros(4))


def test_what_python_was_told_is_held_to() -> None:
    """A branch that was taken, and a number that a shape was, hold for later sizes."""
    g, x = head()
    part = x[:3]
    mean = part.sum(0) / part.shape[0]
    g.set_outputs([mean if x.shape[0] != 1 else x[0]])
    verify(g.bind(n=3))
    with pytest.raises(ShapeError, match=r"the shape of %\d+: it is \[2, 4\]"):
        g.bind(n=2)
    h, y = head()
    h.set_outputs([y if y.shape[0] != 1 else y[0]])
    verify(h.bind(n=2))
    with pytest.raises(ShapeError, match="is n != 1"):
        h.bind(n=1)


def test_sizes_of_two_tensors_are_compared() -> None:
    g, x = head()
    assert g.relu(x).shape == x.shape
    assert x.reshape(-1).shape[0] == x.shape[0] * 4
    assert x[1:].shape[0] + 1 == x.shape[0]


def test_a_copy_goes_its_own_way() -> None:
    g, x = head()
    g.set_outputs([x])
    other = g.copy()
    mine = other.tensor(x.id)
    n = mine.shape[0]
    other.set_outputs([other.relu(mine).reshape(n, 2, 2)])
    g.set_outputs([g.exp(x)])
    assert other.bind(n=2).node(other.bind(n=2).outputs[0]).type.shape == (2, 2, 2)
    assert [n.op for n in g.bind(n=2).nodes()] == ["input", "exp"]


def test_who_wants_numbers_says_so() -> None:
    g, x = head()
    g.set_outputs([x])
    with pytest.raises(VerifyError, match=r"its sizes vary: n; .* graph.bind\(n=…\)"):
        verify(g)
    with pytest.raises(VerifyError, match="its sizes vary: n"):
        check_feeds(g, g.named("input"), {"x": np.ones((2, 4), np.float32)})
    assert g.key == g.copy().key
    assert hash(g.key) != hash(head(2)[0].key)
    assert Graph().dims == {}
    assert head()[0].copy().dims.keys() == {"n"}


def test_what_needs_numbers_is_built_with_numbers() -> None:
    """A loop, a table: for each binding anew."""

    def summed(g: Graph, parts: dict[str, Any], n: int) -> list[Tensor]:
        x = parts["x"]
        table = g.constant(np.arange(n, dtype=np.float32)[:, None])
        rows = [x[i] * (i + 1) for i in range(n)]
        total = rows[0]
        for row in rows[1:]:
            total = total + row
        return [total, x * table]

    g, x = head()
    total, scaled = g.build(summed, {"x": x}, x.shape[0])
    assert str(g.node(scaled.id).type) == "[n, 4] f32"
    g.set_outputs([total, scaled])
    for n in (1, 3):
        given = np.ones((n, 4), np.float32)
        first, second = evaluate(g.bind(n=n), {"x": given})
        np.testing.assert_array_equal(first, np.full(4, n * (n + 1) / 2))
        np.testing.assert_array_equal(second[:, 0], np.arange(n))
    fixed = Graph()
    made = fixed.build(summed, {"x": fixed.input("x", (2, 4))}, 2)
    assert [t.shape for t in made] == [(4,), (2, 4)]
