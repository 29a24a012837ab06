"""Check gradients of whole recurrent networks, scans and pooled regions.

Each op on its samples is held to differences by `tests/ops/test_gradients.py`. Here:
against PyTorch, over long sequences, behind a row's end, of sizes that vary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.core.errors import GradientRefused
from rlxweb.ir.op import registry
from tests.conftest import ADAPTERS
from tests.engines_under_test import Array, engine
from tests.graphs.test_recurrent_networks import GATE_ORDER, MODULES, recurrent_network

NAMES = ("w", "r", "b")


def with_gradients(g: rlx.Graph, by: tuple[str, ...]) -> rlx.Graph:
    """Make the gradients of the sum of the outputs' squares the graph's outputs, and
    return it.
    """
    outputs = [g.tensor(node_id) for node_id in g.outputs]
    loss = sum(
        (g.sum(output * output) for output in outputs[1:]),
        g.sum(outputs[0] * outputs[0]),
    )
    g.set_outputs(g.gradients(loss, [g.tensor(g.named("input")[n].id) for n in by]))
    return g


def torch_gradient(kind: str, module: Any, name: str) -> Array:
    """Return PyTorch's gradient of w, r or b in ONNX's layout."""
    suffixes = ["", "_reverse"] if module.bidirectional else [""]
    torch_names = {
        "w": ("weight_ih",),
        "r": ("weight_hh",),
        "b": ("bias_ih", "bias_hh"),
    }[name]

    def reorder_gates(name: str) -> Array:
        parts = np.split(getattr(module, name).grad.numpy(), len(GATE_ORDER[kind]))
        return np.concatenate([parts[at] for at in GATE_ORDER[kind]])

    gradients = [
        np.concatenate([reorder_gates(f"{n}_l0{suffix}") for n in torch_names])
        for suffix in suffixes
    ]
    return np.stack(gradients)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", MODULES)
def test_pytorch_agrees(kind: str, first: bool, both: bool) -> None:
    """Gradients by inputs, weights, biases and first state are PyTorch's."""
    torch.manual_seed(3)
    module = MODULES[kind](6, 9, batch_first=first, bidirectional=both)
    T, B, D = 7, 3, 1 + both
    g, feeds = recurrent_network(kind, module, T, B, state=True)
    states = ("h0", "c0")[: 1 + (kind == "lstm")]
    rng = np.random.default_rng(5)
    feeds["x"] = rng.normal(size=(B, T, 6) if first else (T, B, 6)).astype(np.float32)
    tensors = {"x": torch.tensor(feeds["x"], requires_grad=True)}
    for name in states:
        feeds[name] = rng.normal(size=(D, B, 9)).astype(np.float32)
        tensors[name] = torch.tensor(feeds[name], requires_grad=True)
    hidden: Any = tuple(tensors[name] for name in states)
    steps, last = module(tensors["x"], hidden if kind == "lstm" else hidden[0])
    outputs = (steps, *(last if kind == "lstm" else (last,)))
    sum((tensor**2).sum() for tensor in outputs).backward()
    want = {name: tensor.grad.numpy() for name, tensor in tensors.items()}
    want |= {name: torch_gradient(kind, module, name) for name in NAMES}
    if first:
        for name in states:
            feeds[name], want[name] = (
                np.swapaxes(a[name], 0, 1) for a in (feeds, want)
            )
    by = ("x", *NAMES, *states)
    got = engine(None).run(with_gradients(g, by), feeds)
    for name, tensor in zip(by, got, strict=True):
        size = np.abs(want[name]).max()
        np.testing.assert_allclose(tensor, want[name], atol=2e-5 * size, err_msg=name)


def recurrent_graph(
    T: int, B: int, H: int, kind: str = "lstm", **attrs: Any
) -> rlx.Graph:
    """Return a graph of the op alone, with its gradients as outputs."""
    g = rlx.Graph(kind)
    gate_width = {"lstm": 4, "gru": 3, "rnn": 1}[kind] * H
    x, w = g.input("x", (T, B, gate_width)), g.input("w", (1, H, gate_width))
    lengths = [g.input("lengths", (B,), "i32")] if attrs.pop("lengths", False) else []
    g.set_outputs([g.apply(kind, x, w, *lengths, **attrs)])
    return with_gradients(g, ("x", "w"))


@pytest.mark.parametrize("kind", MODULES)
def test_the_graph_does_not_grow_with_the_steps(kind: str) -> None:
    assert (
        len(recurrent_graph(4, 2, 3, kind))
        == len(recurrent_graph(400, 2, 3, kind))
        < 250
    )


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
    g = recurrent_graph(T, B, H, kind, **attrs)
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
def test_padding_reaches_no_gradient(kind: str, direction: str) -> None:
    """Padding past a row's length reaches no gradient, whatever its value."""
    g = recurrent_graph(5, 3, 4, kind, direction=direction, lengths=True)
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


def test_dynamic_sizes() -> None:
    """The numbers of steps and rows are known only at run time."""
    g = rlx.Graph("varying")
    T, B = rlx.Dim("steps"), rlx.Dim("rows")
    x = g.input("x", (T, B, 3))
    w = g.input("w", (1, 16, 3))
    r = g.input("r", (1, 16, 4))
    steps, h, c = g.lstm(x, w, r)
    g.set_outputs([steps, h, c])
    with_gradients(g, ("x", "w", "r"))
    run = rlx.Session("cpu").compile(g)
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(1, 16, 3)), "r": rng.normal(size=(1, 16, 4))}
    for sizes in ((5, 2), (9, 3)):
        feeds = {n: a.astype("f4") for n, a in weights.items()}
        feeds["x"] = rng.normal(size=(*sizes, 3)).astype("f4")
        fixed_graph = rlx.Graph("fixed")
        nodes = [fixed_graph.input(n, feeds[n].shape) for n in ("x", "w", "r")]
        fixed_graph.set_outputs(list(fixed_graph.lstm(*nodes)))
        want = engine(None).run(with_gradients(fixed_graph, ("x", "w", "r")), feeds)
        for a, b in zip(run.run(feeds), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.requires_wgpu
def test_a_long_selective_scan() -> None:
    g = rlx.Graph("scan")
    B, L, D, N = 2, 300, 5, 4
    shapes = {"x": (B, L, D), "delta": (B, L, D), "a": (D, N), "b": (B, L, N)}
    inputs = {n: g.input(n, s) for n, s in (shapes | {"c": (B, L, N)}).items()}
    g.set_outputs(list(g.selective_scan(**inputs, delta_softplus=True)))
    assert len(with_gradients(g, tuple(inputs))) < 120
    rng = np.random.default_rng(4)
    feeds = {n: rng.normal(size=t.shape).astype("f4") for n, t in inputs.items()}
    feeds["a"] = -np.abs(feeds["a"])
    want = engine(None).run(g, feeds)
    got = engine(ADAPTERS["lavapipe"]).run(g, feeds)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=3e-5 * np.abs(b).max())


@pytest.mark.parametrize("kind", MODULES)
def test_gradients_for_every_example(kind: str) -> None:
    """Gradients for every example need no copy of the network for each."""
    g, count = recurrent_graph(6, 2, 3, kind), 4
    named = g.named("input")
    x, w = (g.tensor(named[n].id) for n in ("x", "w"))
    batched_input = g.input("every", (count, *x.shape))
    outputs = [g.tensor(node_id) for node_id in g.outputs]
    node_count = len(g)
    g.set_outputs(g.vectorized(outputs, [x], [batched_input]))
    assert len(g) - node_count < 3 * node_count
    rng = np.random.default_rng(7)
    feeds = {n: rng.normal(size=t.shape).astype("f4") for n, t in (("x", x), ("w", w))}
    feeds["every"] = rng.normal(size=batched_input.shape).astype("f4")
    batched_outputs = engine(None).run(g, feeds)
    single_graph = recurrent_graph(6, 2, 3, kind)
    for n in range(count):
        want = engine(None).run(single_graph, {"x": feeds["every"][n], "w": feeds["w"]})
        for a, b in zip(batched_outputs, want, strict=True):
            np.testing.assert_allclose(a[n], b, rtol=1e-4, atol=1e-4)


def test_a_roi_align_gradient_with_too_many_corners_is_refused() -> None:
    g = rlx.Graph("regions")
    x, rois = g.input("x", (1, 64, 200, 200)), g.input("rois", (100, 4))
    images = g.input("images", (100,), "i32")
    y = g.apply("roi_align", x, rois, images, size=(7, 7), mode="max")
    with pytest.raises(GradientRefused, match="the maximum of 407 × 407 samples"):
        g.gradients(y, [x])


def test_every_op_of_floats_has_a_derivative() -> None:
    """Every op that makes floats of floats has a derivative, but for `bitcast`."""
    missing = set()
    for op in registry:
        if op.vjp is not None or op.decomposition is not None or op.has_trait("leaf"):
            continue
        for sample in op.samples:
            g = rlx.Graph("one")
            inputs = [
                g.input(f"x{i}", operand.shape, operand.dtype)
                for i, operand in enumerate(sample.inputs)
            ]
            output = g.apply(op.name, *inputs, **sample.attrs)
            if output.dtype.is_float and any(x.dtype.is_float for x in inputs):
                missing.add(op.name)
    assert missing == {"bitcast"}


def test_a_quantized_state_has_no_gradient() -> None:
    g = rlx.Graph("net")
    x, w = g.input("x", (3, 1, 4)), g.input("w", (1, 20, 4))
    r = g.input("r", (1, 20, 5))
    y, _, _ = g.lstm(x, w, r, quantized_state=True)
    with pytest.raises(GradientRefused, match="quantized_state=False"):
        g.gradients(g.sum(y), [x])
