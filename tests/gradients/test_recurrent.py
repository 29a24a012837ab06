"""Gradients of recurrent networks, scans and pooled regions, as a whole.

Each op on its samples is held to differences by `tests/ops/test_gradients.py`. Here:
against PyTorch, over long sequences, behind a row's end, of sizes that vary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.errors import GradientRefused
from rlxweb.ir.lowering import parts_of
from rlxweb.ir.op import registry
from tests.agreement import Array, engine
from tests.conftest import ADAPTERS
from tests.graphs.test_recurrent import MODULES, ORDER, network

NAMES = ("w", "r", "b")


def with_gradients(g: rlx.Graph, by: tuple[str, ...]) -> rlx.Graph:
    """The graph with the gradients of the sum of its outputs' squares."""
    outs = [g.tensor(at) for at in g.outputs]
    loss = sum((g.sum(one * one) for one in outs[1:]), g.sum(outs[0] * outs[0]))
    g.set_outputs(g.gradients(loss, [g.tensor(g.named("input")[n].id) for n in by]))
    return g


def theirs(kind: str, module: Any, name: str) -> Array:
    """PyTorch's gradient of w, r or b as ONNX has them."""
    ends = ["", "_reverse"] if module.bidirectional else [""]
    of = {"w": ("weight_ih",), "r": ("weight_hh",), "b": ("bias_ih", "bias_hh")}[name]

    def turned(one: str) -> Array:
        parts = np.split(getattr(module, one).grad.numpy(), len(ORDER[kind]))
        return np.concatenate([parts[at] for at in ORDER[kind]])

    made = [np.concatenate([turned(f"{n}_l0{end}") for n in of]) for end in ends]
    return np.stack(made)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", MODULES)
def test_pytorch_agrees(kind: str, first: bool, both: bool) -> None:
    """Gradients by inputs, weights, biases and first state are PyTorch's."""
    torch.manual_seed(3)
    module = MODULES[kind](6, 9, batch_first=first, bidirectional=both)
    T, B, D = 7, 3, 1 + both
    g, fed = network(kind, module, T, B, state=True)
    states = ("h0", "c0")[: 1 + (kind == "lstm")]
    rng = np.random.default_rng(5)
    fed["x"] = rng.normal(size=(B, T, 6) if first else (T, B, 6)).astype(np.float32)
    given = {"x": torch.tensor(fed["x"], requires_grad=True)}
    for name in states:
        fed[name] = rng.normal(size=(D, B, 9)).astype(np.float32)
        given[name] = torch.tensor(fed[name], requires_grad=True)
    hidden: Any = tuple(given[name] for name in states)
    steps, last = module(given["x"], hidden if kind == "lstm" else hidden[0])
    ends = (steps, *(last if kind == "lstm" else (last,)))
    sum((one**2).sum() for one in ends).backward()
    want = {name: one.grad.numpy() for name, one in given.items()}
    want |= {name: theirs(kind, module, name) for name in NAMES}
    if first:
        for name in states:
            fed[name], want[name] = (np.swapaxes(a[name], 0, 1) for a in (fed, want))
    by = ("x", *NAMES, *states)
    got = engine(None).run(with_gradients(g, by), fed)
    for name, one in zip(by, got, strict=True):
        size = np.abs(want[name]).max()
        np.testing.assert_allclose(one, want[name], atol=2e-5 * size, err_msg=name)


def gates(T: int, B: int, H: int, kind: str = "lstm", **attrs: Any) -> rlx.Graph:
    """The op alone, and its gradients."""
    g = rlx.Graph(kind)
    wide = {"lstm": 4, "gru": 3, "rnn": 1}[kind] * H
    x, w = g.input("x", (T, B, wide)), g.input("w", (1, H, wide))
    lengths = [g.input("lengths", (B,), "i32")] if attrs.pop("lengths", False) else []
    g.set_outputs([g.apply(kind, x, w, *lengths, **attrs)])
    return with_gradients(g, ("x", "w"))


@pytest.mark.parametrize("kind", MODULES)
def test_the_graph_does_not_grow_with_the_steps(kind: str) -> None:
    assert len(gates(4, 2, 3, kind)) == len(gates(400, 2, 3, kind)) < 250


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    ("kind", "attrs"),
    [
        ("lstm", {"direction": "reverse"}),
        ("gru", {"linear_before_reset": True}),
        pytest.param("lstm", {}, marks=pytest.mark.full),
        pytest.param("gru", {}, marks=pytest.mark.full),
        ("rnn", {}),
    ],
)
def test_long_sequences(kind: str, attrs: dict[str, Any]) -> None:
    """Gradients of more steps than one loop may take are right."""
    T, B, H = 600, 2, 60
    g = gates(T, B, H, kind, **attrs)
    rng = np.random.default_rng(1)
    feeds = {
        name: (rng.normal(size=node.type.shape) / (9 if name == "w" else 1)).astype(
            "f4"
        )
        for name, node in g.named("input").items()
    }
    want = engine(None).run(g, feeds)
    for got in (
        engine(ADAPTERS["lavapipe"]).run(g, feeds),
        engine(None, variants=False).run(g, feeds),
    ):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5 * np.abs(b).max())


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("kind", MODULES)
def test_nothing_comes_from_behind_a_rows_end(kind: str, direction: str) -> None:
    """Padding behind a row's end reaches no gradient, whatever its value."""
    g = gates(5, 3, 4, kind, direction=direction, lengths=True)
    rng = np.random.default_rng(2)
    feeds = {
        name: rng.normal(size=node.type.shape).astype("f4")
        for name, node in g.named("input").items()
    }
    feeds["lengths"] = np.int32([5, 2, 0])
    want = engine(None).run(g, feeds)
    for row, length in enumerate(feeds["lengths"]):
        assert not want[0][length:, row].any()
        feeds["x"][length:, row] = np.nan
    for a, b in zip(engine(None).run(g, feeds), want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_sizes_may_vary() -> None:
    """Steps and rows are known when it is run."""
    g = rlx.Graph("varying")
    T, B = rlx.Dim("steps"), rlx.Dim("rows")
    x, w, r = (
        g.input("x", (T, B, 3)),
        g.input("w", (1, 16, 3)),
        g.input("r", (1, 16, 4)),
    )
    steps, h, c = g.lstm(x, w, r)
    g.set_outputs([steps, h, c])
    with_gradients(g, ("x", "w", "r"))
    run = rlx.Session("cpu").compile(g)
    rng = np.random.default_rng(0)
    fed = {"w": rng.normal(size=(1, 16, 3)), "r": rng.normal(size=(1, 16, 4))}
    for sizes in ((5, 2), (9, 3)):
        feeds = {n: a.astype("f4") for n, a in fed.items()}
        feeds["x"] = rng.normal(size=(*sizes, 3)).astype("f4")
        one = rlx.Graph("fixed")
        nodes = [one.input(n, feeds[n].shape) for n in ("x", "w", "r")]
        one.set_outputs(list(one.lstm(*nodes)))
        want = engine(None).run(with_gradients(one, ("x", "w", "r")), feeds)
        for a, b in zip(run.run(feeds), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.requires_wgpu
def test_a_long_selective_scan() -> None:
    g = rlx.Graph("scan")
    B, L, D, N = 2, 300, 5, 4
    shapes = {"x": (B, L, D), "delta": (B, L, D), "a": (D, N), "b": (B, L, N)}
    given = {n: g.input(n, s) for n, s in (shapes | {"c": (B, L, N)}).items()}
    g.set_outputs(list(g.selective_scan(**given, delta_softplus=True)))
    assert len(with_gradients(g, tuple(given))) < 120
    rng = np.random.default_rng(4)
    feeds = {n: rng.normal(size=t.shape).astype("f4") for n, t in given.items()}
    feeds["a"] = -np.abs(feeds["a"])
    want = engine(None).run(g, feeds)
    got = engine(ADAPTERS["lavapipe"]).run(g, feeds)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=3e-5 * np.abs(b).max())


@pytest.mark.parametrize("kind", MODULES)
def test_gradients_for_every_example(kind: str) -> None:
    """Gradients for every example need no copy of the network for each."""
    g, count = gates(6, 2, 3, kind), 4
    named = g.named("input")
    x, w = (g.tensor(named[n].id) for n in ("x", "w"))
    every = g.input("every", (count, *x.shape))
    ends = [g.tensor(at) for at in g.outputs]
    before = len(g)
    g.set_outputs(g.vectorized(ends, [x], [every]))
    assert len(g) - before < 3 * before
    rng = np.random.default_rng(7)
    feeds = {n: rng.normal(size=t.shape).astype("f4") for n, t in (("x", x), ("w", w))}
    feeds["every"] = rng.normal(size=every.shape).astype("f4")
    found = engine(None).run(g, feeds)
    alone = gates(6, 2, 3, kind)
    for n in range(count):
        want = engine(None).run(alone, {"x": feeds["every"][n], "w": feeds["w"]})
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a[n], b, rtol=1e-4, atol=1e-4)


def test_a_gradient_of_too_many_corners_is_refused() -> None:
    g = rlx.Graph("regions")
    x, rois = g.input("x", (1, 64, 200, 200)), g.input("rois", (100, 4))
    images = g.input("images", (100,), "i32")
    y = g.apply("roi_align", x, rois, images, size=(7, 7), mode="max")
    with pytest.raises(GradientRefused, match="the largest of them"):
        g.gradients(y, [x])


def test_every_op_of_floats_has_a_derivative() -> None:
    """Every op that makes floats of floats has a derivative, but for `bitcast`."""
    without = set()
    for op in registry:
        if op.vjp is not None or parts_of(op.lower) is not None or op.has("leaf"):
            continue
        for sample in op.samples:
            g = rlx.Graph("one")
            given = [
                g.input(f"x{i}", one.shape, one.dtype)
                for i, one in enumerate(sample.inputs)
            ]
            made = g.apply(op.name, *given, **sample.attrs)
            if made.dtype.is_float and any(x.dtype.is_float for x in given):
                without.add(op.name)
    assert without == {"bitcast"}


def test_a_state_of_8_bits_has_none() -> None:
    g = rlx.Graph("net")
    x, w = g.input("x", (3, 1, 4)), g.input("w", (1, 20, 4))
    r = g.input("r", (1, 20, 5))
    y, _, _ = g.lstm(x, w, r, quantized_state=True)
    with pytest.raises(GradientRefused, match="quantized_state=False"):
        g.gradients(g.sum(y), [x])
