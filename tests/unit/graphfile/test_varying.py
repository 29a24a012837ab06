"""Files of graphs whose sizes vary: what comes back, and what is refused."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import GraphFileError, ShapeError
from tests.unit.graphfile.files import KEY, packed, parts, saved

W = np.linspace(-1, 1, 300, dtype=np.float32).reshape(4, 75)


def net() -> rlx.Graph:
    """Values of every kind among the arguments of its calls."""
    g = rlx.Graph("net")
    w, one = g.param("w", (4, 75)), g.constant(np.ones(75, np.float32))
    n, m = rlx.Dim("n", min=2), rlx.Dim("m", multiple_of=2)
    x, y = g.input("x", (n, m, 4)), g.input("y", (2 * n + 1,), "f16")
    bias = g.param("bias", (75,))
    a, b, _ = x.shape
    made = g.relu(x).reshape(a * b, -1) @ w * one + bias
    made = g.concat([made[: a * b // 2 + 1], made[..., ::-1][1:]], axis=0)
    made = g.clip(made, -0.1, np.float32(0.5)) + np.arange(75, dtype=np.float32)
    first, _ = g.split(made, [a, made.shape[0] - a])
    if b > 1:
        first = g.leaky_relu(first, alpha=0.5)
    g.set_outputs([first / first.shape[1], y.cast("f32").sum() * 2, made.sum(0)])
    return g


PARAMS = {"w": W, "bias": np.zeros(75, np.float32)}
GOOD = saved(net(), PARAMS)


def feeds(n: int, m: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, m, 4)).astype(np.float32)
    return {"x": x, "y": rng.normal(size=2 * n + 1).astype(np.float16)}


def test_what_comes_back_is_what_was_saved() -> None:
    """Graphs come back node for node, value for value, byte for byte, and again."""
    model = rlx.load(GOOD)
    assert list(model.graph.dims) == ["n", "m"]
    assert repr(model.graph.dims["n"]) == "Dim('n', min=2)"
    assert str(model.inputs["x"]) == "[n, m, 4] f32"
    assert saved(model.graph, dict(model.params)) == GOOD == saved(net(), PARAMS)
    for n, m in ((2, 2), (5, 4)):
        assert model.graph.bind(n=n, m=m).key == net().bind(n=n, m=m).key
        compiled = rlx.Session("cpu").compile(net())
        for name, value in PARAMS.items():
            compiled.set_param(name, value)
        got = model.run(feeds(n, m), device="cpu")
        for one, other in zip(got.values(), compiled.run(feeds(n, m)), strict=True):
            np.testing.assert_array_equal(one, other)
    assert saved(compiled.graph, compiled.params()) == GOOD


def test_what_was_held_is_held_again() -> None:
    g = rlx.Graph()
    x = g.input("x", ("n", 2))
    part = x[:3]
    g.set_outputs([part.sum(0) / part.shape[0]])
    again = rlx.load(saved(g)).graph
    again.bind(n=3)
    with pytest.raises(ShapeError, match="the graph was built where"):
        again.bind(n=2)


def test_code_is_not_saved() -> None:
    g = rlx.Graph()
    x = g.input("x", ("n",))
    g.set_outputs([g.build(lambda g, x: x * 2.0, x)])
    with pytest.raises(GraphFileError, match="Python function"):
        saved(g)
    assert rlx.load(saved(g.bind(n=2))).run({"x": [1.0, 2.0]}, device="cpu")


def spoiled(change: Callable[[dict[str, Any]], object]) -> bytes:
    header, text, data = parts(GOOD)
    change(text)
    header["__metadata__"][KEY] = json.dumps(text)
    return packed(json.dumps(header), data)


def calls(method: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda text: next(c for c in text["calls"] if c["method"] == method)


def put(method: str, /, **changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda text: calls(method)(text).update(changes)


def first(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(text: dict[str, Any]) -> None:
        text[key][0] = value

    return change


DIM = {"name": "n", "min": 2, "max": None, "multiple_of": 1}
NODE = {"node": 2}
BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "format": (lambda t: t.update(format=3), "of format 3"),
    "format 1": (lambda t: t.update(format=1), "in this order"),
    "no calls": (lambda t: t.pop("calls"), "in this order"),
    "a private method": (put("relu", method="_append"), "'_append'"),
    "a file": (put("relu", method="save", args=["/tmp/x"]), "'save'"),
    "bind": (put("relu", method="bind"), "'bind'"),
    "copied": (put("relu", method="copied"), "'copied'"),
    "build": (put("relu", method="build"), "'build'"),
    "dunder": (put("relu", method="__init__"), "'__init__'"),
    "no method": (put("relu", method=3), "asks for 3"),
    "a method of RLX's": (put("relu", method="binary"), "rlxweb.rlx.Graph"),
    "no list": (put("relu", args={}), "a list, and values"),
    "another key": (put("relu", also=1), "method, args, named, made"),
    "no call": (first("calls", 7), "is 7"),
    "later node": (put("relu", args=[{"node": 99}]), "node 99"),
    "no node": (put("relu", args=[{"node": "x"}]), "node 'x'"),
    "other results": (put("relu", made={"node": 3}), "said to make"),
    "an unknown kind": (put("relu", args=[{"eval": "1"}]), "of kind 'eval'"),
    "two kinds": (put("relu", args=[{"node": 2, "size": 1}]), "one of a known kind"),
    "a fraction": (put("relu", args=[{"float": "0.5"}]), "of float"),
    "no dtype": (put("cast", args=[{"node": 3}, {"dtype": "f99"}]), "'f99'"),
    "no array": (put("relu", args=[{"array": {"shape": [1]}}]), "of type None"),
    "a lost tensor": (
        put("relu", args=[{"array": {"dtype": "f32", "shape": [1], "tensor": "q"}}]),
        "the file has none",
    ),
    "arguments": (put("relu", args=[]), "TypeError"),
    "a wrong shape": (put("reshape", args=[NODE, [7, -1]]), "cannot reshape"),
    "an unknown dim": (
        put("reshape", args=[NODE, {"size": [[1, ["k"]]]}]),
        "part of a size is 'k'",
    ),
    "an axis": (
        put("reshape", args=[NODE, {"size": [[1, [{"axis": [2, 9]}]]]}]),
        "part of a size",
    ),
    "no size": (put("reshape", args=[NODE, {"size": []}]), "a list of terms"),
    "a term": (put("reshape", args=[NODE, {"size": [[1]]}]), "a number and atoms"),
    "divided by 0": (
        put("reshape", args=[NODE, {"size": [[1, [{"//": [4, 0]}]]]}]),
        "ZeroDivisionError",
    ),
    "many parts": (
        put("split", args=[NODE, 10**8], named={}),
        "large integers",
    ),
    "a huge input": (
        put("input", args=["x", [{"size": [[1, ["n"]]]}, 10**9, 9], {"dtype": "f32"}]),
        "of the sizes that are tried",
    ),
    "a dim": (first("dims", {"name": "n"}), "name, min, max"),
    "a dim of words": (first("dims", {**DIM, "min": "2"}), "whole numbers"),
    "a dim of none": (first("dims", {**DIM, "max": 1}), "no size is left"),
    "a large dim": (first("dims", {**DIM, "multiple_of": 1 << 50}), "below 2^40"),
    "a nameless dim": (first("dims", {**DIM, "name": ""}), "a text is wanted"),
    "a dim twice": (lambda t: t["dims"].append(t["dims"][0]), "one name each"),
    "held": (lambda t: t["held"].append(["=", 1, 2, True]), "a sign, two sizes"),
    "shapes": (lambda t: t["shapes"].append([2, [1, 2, 3]]), "a node and its shape"),
    "an output": (first("outputs", {"name": "o", "node": 999}), "node 999"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_breaks_one_rule_is_refused(name: str) -> None:
    """A broken rule is told with its byte, and costs no memory that the file claims."""
    change, words = BAD[name]
    raw = spoiled(change)
    tracemalloc.start()
    with pytest.raises(GraphFileError) as caught:
        rlx.load(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words in str(caught.value)
    assert caught.value.rule
    assert caught.value.offset is not None
    assert peak < 16 << 20


def test_a_budget_is_kept() -> None:
    rlx.load(GOOD, budget={"nodes": 60, "nbytes": 1 << 22})
    for name in ("nodes", "nbytes"):
        with pytest.raises(GraphFileError, match=r"budget|at most|many nodes"):
            rlx.load(GOOD, budget={name: 9})


def rowwise(n: int | rlx.Dim) -> rlx.Graph:
    g = rlx.Graph("rows")
    g.set_outputs([g.exp(g.input("x", (n, 8))) @ g.param("w", (8, 8))])
    return g


ROWS = {"w": np.eye(8, dtype=np.float32)}
VARYING_ROWS = saved(rowwise(rlx.Dim("n")), ROWS)


@pytest.mark.parametrize("name", ["nodes", "nbytes", "flops"])
def test_a_budget_bounds_what_a_run_binds(name: str) -> None:
    """A budget bounds a binding by what the graph of fixed sizes takes, no less."""

    def taken(n: int) -> int:
        graph, least, most = saved(rowwise(n), ROWS), 1, 1 << 40
        while least < most:
            half = (least + most) // 2
            try:
                rlx.load(graph, budget={name: half})
            except GraphFileError:
                least = half + 1
            else:
                most = half
        return most

    takes = taken(50)
    with rlx.load(VARYING_ROWS, budget={name: takes}) as model:
        assert model.run({"x": np.ones((50, 8), np.float32)})["out0"].shape == (50, 8)
        if name == "nodes":
            return
        for call in (
            lambda: model.run({"x": np.ones((5000, 8), np.float32)}),
            lambda: model.compiled(device="cpu").bind(n=5000),
        ):
            with pytest.raises(GraphFileError, match="budget") as found:
                call()
            assert f"{takes:,}" in str(found.value)
            assert f"{taken(5000):,}" in str(found.value)
        assert model.run({"x": np.ones((50, 8), np.float32)})["out0"].shape == (50, 8)


def test_a_budget_of_nodes_is_named_with_both_numbers() -> None:
    for graph in (VARYING_ROWS, saved(rowwise(3), ROWS)):
        with pytest.raises(GraphFileError, match=r"has 3 .* the budget is 2 nodes"):
            rlx.load(graph, budget={"nodes": 2})
