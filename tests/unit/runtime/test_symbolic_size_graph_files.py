"""Files of graphs with symbolic dimensions: round trips and refused files."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import GraphFileError, ShapeError
from tests.unit.runtime.sample_graph_files import (
    KEY,
    pack_file,
    save_to_bytes,
    split_file,
)

W = np.linspace(-1, 1, 300, dtype=np.float32).reshape(4, 75)


def dynamic_graph() -> rlx.Graph:
    """Return a graph whose calls have arguments of every kind."""
    g = rlx.Graph("net")
    w, ones = g.param("w", (4, 75)), g.constant(np.ones(75, np.float32))
    n, m = rlx.Dim("n", min=2), rlx.Dim("m", multiple_of=2)
    x, y = g.input("x", (n, m, 4)), g.input("y", (2 * n + 1,), "f16")
    bias = g.param("bias", (75,))
    a, b, _ = x.shape
    hidden = g.relu(x).reshape(a * b, -1) @ w * ones + bias
    hidden = g.concat([hidden[: a * b // 2 + 1], hidden[..., ::-1][1:]], axis=0)
    hidden = g.clip(hidden, -0.1, np.float32(0.5)) + np.arange(75, dtype=np.float32)
    first, _ = g.split(hidden, [a, hidden.shape[0] - a])
    if b > 1:
        first = g.leaky_relu(first, alpha=0.5)
    g.set_outputs([first / first.shape[1], y.cast("f32").sum() * 2, hidden.sum(0)])
    return g


PARAMS = {"w": W, "bias": np.zeros(75, np.float32)}
VALID_FILE = save_to_bytes(dynamic_graph(), PARAMS)


def feeds(n: int, m: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, m, 4)).astype(np.float32)
    return {"x": x, "y": rng.normal(size=2 * n + 1).astype(np.float16)}


def test_dynamic_graphs_round_trip() -> None:
    """Graphs round-trip node for node, value for value and byte for byte."""
    model = rlx.load(VALID_FILE)
    assert list(model.graph.dims) == ["n", "m"]
    assert repr(model.graph.dims["n"]) == "Dim('n', min=2)"
    assert str(model.inputs["x"]) == "[n, m, 4] f32"
    assert (
        save_to_bytes(model.graph, dict(model.params))
        == VALID_FILE
        == save_to_bytes(dynamic_graph(), PARAMS)
    )
    for n, m in ((2, 2), (5, 4)):
        assert model.graph.bind(n=n, m=m).key == dynamic_graph().bind(n=n, m=m).key
        compiled = rlx.Session("cpu").compile(dynamic_graph())
        for name, value in PARAMS.items():
            compiled.set_param(name, value)
        got = model.run(feeds(n, m), device="cpu")
        for output, expected in zip(
            got.values(), compiled.run(feeds(n, m)), strict=True
        ):
            np.testing.assert_array_equal(output, expected)
    assert save_to_bytes(compiled.graph, compiled.params()) == VALID_FILE


def test_shape_conditions_round_trip() -> None:
    g = rlx.Graph()
    x = g.input("x", ("n", 2))
    part = x[:3]
    g.set_outputs([part.sum(0) / part.shape[0]])
    reloaded = rlx.load(save_to_bytes(g)).graph
    reloaded.bind(n=3)
    with pytest.raises(ShapeError, match="when the graph was built"):
        reloaded.bind(n=2)


def test_python_functions_are_not_saved() -> None:
    g = rlx.Graph()
    x = g.input("x", ("n",))
    g.set_outputs([g.build(lambda g, x: x * 2.0, x)])
    with pytest.raises(GraphFileError, match="Python function"):
        save_to_bytes(g)
    assert rlx.load(save_to_bytes(g.bind(n=2))).run({"x": [1.0, 2.0]}, device="cpu")


def with_changed_graph(change: Callable[[dict[str, Any]], object]) -> bytes:
    header, text, data = split_file(VALID_FILE)
    change(text)
    header["__metadata__"][KEY] = json.dumps(text)
    return pack_file(json.dumps(header), data)


def find_call(method: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda text: next(c for c in text["calls"] if c["method"] == method)


def change_call(method: str, /, **changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda text: find_call(method)(text).update(changes)


def replace_first(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(text: dict[str, Any]) -> None:
        text[key][0] = value

    return change


DIM = {"name": "n", "min": 2, "max": None, "multiple_of": 1}
NODE = {"node": 2}
MALFORMED_FILES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "format": (lambda t: t.update(format=3), "has format 3"),
    "format 1": (lambda t: t.update(format=1), "in this order"),
    "no calls": (lambda t: t.pop("calls"), "in this order"),
    "a private method": (change_call("relu", method="_append"), "'_append'"),
    "a file": (change_call("relu", method="save", args=["/tmp/x"]), "'save'"),
    "bind": (change_call("relu", method="bind"), "'bind'"),
    "copied": (change_call("relu", method="copied"), "'copied'"),
    "build": (change_call("relu", method="build"), "'build'"),
    "dunder": (change_call("relu", method="__init__"), "'__init__'"),
    "no method": (change_call("relu", method=3), "has the method 3"),
    "a method of RLX's": (change_call("relu", method="binary"), "rlxweb.rlx.Graph"),
    "no list": (change_call("relu", args={}), "'args' must be a list"),
    "another key": (
        change_call("relu", also=1),
        "'method', 'args', 'named' and 'made'",
    ),
    "no call": (replace_first("calls", 7), "is 7"),
    "later node": (change_call("relu", args=[{"node": 99}]), "node 99"),
    "no node": (change_call("relu", args=[{"node": "x"}]), "node 'x'"),
    "other results": (change_call("relu", made={"node": 3}), "declares the results"),
    "an unknown kind": (change_call("relu", args=[{"eval": "1"}]), "kind 'eval'"),
    "two kinds": (
        change_call("relu", args=[{"node": 2, "size": 1}]),
        "an object whose only key is the kind",
    ),
    "a fraction": (change_call("relu", args=[{"float": "0.5"}]), "expected a float"),
    "no dtype": (change_call("cast", args=[{"node": 3}, {"dtype": "f99"}]), "'f99'"),
    "no array": (
        change_call("relu", args=[{"array": {"shape": [1]}}]),
        "has the dtype None",
    ),
    "a lost tensor": (
        change_call(
            "relu", args=[{"array": {"dtype": "f32", "shape": [1], "tensor": "q"}}]
        ),
        "the file has no tensor of this name",
    ),
    "arguments": (change_call("relu", args=[]), "building it raises TypeError"),
    "a wrong shape": (change_call("reshape", args=[NODE, [7, -1]]), "cannot reshape"),
    "an unknown dim": (
        change_call("reshape", args=[NODE, {"size": [[1, ["k"]]]}]),
        "a factor of a size is 'k'",
    ),
    "an axis": (
        change_call("reshape", args=[NODE, {"size": [[1, [{"axis": [2, 9]}]]]}]),
        "a factor of a size",
    ),
    "no size": (
        change_call("reshape", args=[NODE, {"size": []}]),
        "a list of 1 to 1,024 terms",
    ),
    "a term": (
        change_call("reshape", args=[NODE, {"size": [[1]]}]),
        "expected an integer and a list of at most 1,024 factors",
    ),
    "divided by 0": (
        change_call("reshape", args=[NODE, {"size": [[1, [{"//": [4, 0]}]]]}]),
        "building it raises ZeroDivisionError",
    ),
    "many parts": (
        change_call("split", args=[NODE, 10**8], named={}),
        "integers that are too large",
    ),
    "a huge input": (
        change_call(
            "input", args=["x", [{"size": [[1, ["n"]]]}, 10**9, 9], {"dtype": "f32"}]
        ),
        "with the dim sizes that are used to check the file",
    ),
    "a dim": (replace_first("dims", {"name": "n"}), "name, min, max"),
    "a dim of words": (replace_first("dims", {**DIM, "min": "2"}), "must be integers"),
    "a dim of none": (
        replace_first("dims", {**DIM, "max": 1}),
        "at least one size must satisfy all bounds",
    ),
    "a large dim": (
        replace_first("dims", {**DIM, "multiple_of": 1 << 50}),
        "below 2^40",
    ),
    "a nameless dim": (
        replace_first("dims", {**DIM, "name": ""}),
        "expected a non-empty string",
    ),
    "a dim twice": (
        lambda t: t["dims"].append(t["dims"][0]),
        "dim names must be unique",
    ),
    "held": (
        lambda t: t["held"].append(["=", 1, 2, True]),
        "comparison operator, two sizes",
    ),
    "shapes": (
        lambda t: t["shapes"].append([2, [1, 2, 3]]),
        "expected a list of a node id and the shape",
    ),
    "an output": (replace_first("outputs", {"name": "o", "node": 999}), "node 999"),
}


@pytest.mark.parametrize("name", MALFORMED_FILES)
def test_a_file_that_breaks_one_rule_is_refused(name: str) -> None:
    """A broken rule is reported with its offset, and claimed sizes allocate no
    memory.
    """
    change, message = MALFORMED_FILES[name]
    raw = with_changed_graph(change)
    tracemalloc.start()
    with pytest.raises(GraphFileError) as caught:
        rlx.load(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message in str(caught.value)
    assert caught.value.rule
    assert caught.value.offset is not None
    assert peak < 16 << 20


def test_a_budget_is_enforced() -> None:
    rlx.load(VALID_FILE, budget={"nodes": 60, "nbytes": 1 << 22})
    for name in ("nodes", "nbytes"):
        with pytest.raises(GraphFileError, match=r"budget|at most|many nodes"):
            rlx.load(VALID_FILE, budget={name: 9})


def rowwise_graph(n: int | rlx.Dim) -> rlx.Graph:
    g = rlx.Graph("rows")
    g.set_outputs([g.exp(g.input("x", (n, 8))) @ g.param("w", (8, 8))])
    return g


ROWWISE_PARAMS = {"w": np.eye(8, dtype=np.float32)}
DYNAMIC_ROWWISE_FILE = save_to_bytes(rowwise_graph(rlx.Dim("n")), ROWWISE_PARAMS)


@pytest.mark.parametrize("name", ["nodes", "nbytes", "flops"])
def test_a_budget_bounds_the_bindings_of_a_run(name: str) -> None:
    """A binding's budget use equals that of the same graph with fixed sizes."""

    def least_budget(n: int) -> int:
        graph, low, high = save_to_bytes(rowwise_graph(n), ROWWISE_PARAMS), 1, 1 << 40
        while low < high:
            middle = (low + high) // 2
            try:
                rlx.load(graph, budget={name: middle})
            except GraphFileError:
                low = middle + 1
            else:
                high = middle
        return high

    needed = least_budget(50)
    with rlx.load(DYNAMIC_ROWWISE_FILE, budget={name: needed}) as model:
        assert model.run({"x": np.ones((50, 8), np.float32)})["out0"].shape == (50, 8)
        if name == "nodes":
            return
        for call in (
            lambda: model.run({"x": np.ones((5000, 8), np.float32)}),
            lambda: model.compiled(device="cpu").bind(n=5000),
        ):
            with pytest.raises(GraphFileError, match="budget") as caught:
                call()
            assert f"{needed:,}" in str(caught.value)
            assert f"{least_budget(5000):,}" in str(caught.value)
        assert model.run({"x": np.ones((50, 8), np.float32)})["out0"].shape == (50, 8)


def test_a_node_budget_error_has_both_numbers() -> None:
    for graph in (
        DYNAMIC_ROWWISE_FILE,
        save_to_bytes(rowwise_graph(3), ROWWISE_PARAMS),
    ):
        with pytest.raises(
            GraphFileError, match=r"has at least 3 .* the budget allows at most 2 nodes"
        ):
            rlx.load(graph, budget={"nodes": 2})
