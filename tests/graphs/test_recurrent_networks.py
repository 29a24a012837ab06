"""Compare whole recurrent networks with PyTorch's: weights, directions, streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError, Unsupported
from rlxweb.core.limits import tiny_limits
from tests.conftest import ADAPTERS
from tests.engines_under_test import Array, engine

# ONNX's gates in PyTorch's order: i f g o of an LSTM, r z n of a GRU.
GATE_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


def onnx_weights(kind: str, module: Any) -> dict[str, Array]:
    """Return w, r and b of a PyTorch module in ONNX's layout."""
    order = GATE_ORDER[kind]

    def reorder_gates(name: str) -> Array:
        weight = getattr(module, name).detach().numpy()
        parts = np.split(weight, len(order))
        return np.concatenate([parts[at] for at in order])

    suffixes = ["", "_reverse"] if module.bidirectional else [""]
    return {
        "w": np.stack([reorder_gates(f"weight_ih_l0{suffix}") for suffix in suffixes]),
        "r": np.stack([reorder_gates(f"weight_hh_l0{suffix}") for suffix in suffixes]),
        "b": np.stack(
            [
                np.concatenate(
                    [reorder_gates(f"bias_{part}_l0{suffix}") for part in ("ih", "hh")]
                )
                for suffix in suffixes
            ]
        ),
    }


def recurrent_network(
    kind: str, module: Any, T: int, B: int, state: bool = False
) -> tuple[rlx.Graph, dict[str, Array]]:
    """Return the graph of a PyTorch module, and its weights as feeds."""
    g, weights = rlx.Graph(kind), onnx_weights(kind, module)
    first = module.batch_first
    x = g.input("x", (B, T, module.input_size) if first else (T, B, module.input_size))
    w, r, b = (g.input(n, weights[n].shape) for n in ("w", "r", "b"))
    D, H = 1 + module.bidirectional, module.hidden_size
    shape = (B, D, H) if first else (D, B, H)
    names = ("h0", "c0")[: 1 + (kind == "lstm")] if state else ()
    initial_state: Any = tuple(g.input(name, shape) for name in names) or None
    if initial_state and kind != "lstm":
        initial_state = initial_state[0]
    options = {"linear_before_reset": True} if kind == "gru" else {}
    direction = "bidirectional" if module.bidirectional else "forward"
    outputs = getattr(g, kind)(
        x, w, r, b, initial_state, direction=direction, batch_first=first, **options
    )
    g.set_outputs(list(outputs))
    return g, weights


def random_array(*shape: int) -> Array:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", MODULES)
def test_pytorch_agrees(kind: str, first: bool, both: bool) -> None:
    """Steps and last state match PyTorch, in either layout, with one direction or
    two.
    """
    torch.manual_seed(3)
    module = MODULES[kind](6, 9, batch_first=first, bidirectional=both)
    T, B, D = 7, 3, 1 + both
    g, arrays = recurrent_network(kind, module, T, B, state=True)
    arrays["x"] = random_array(B, T, 6) if first else random_array(T, B, 6)
    arrays["h0"], arrays["c0"] = random_array(D, B, 9), random_array(D, B, 9) / 2
    hidden: Any = torch.tensor(arrays["h0"])
    if kind == "lstm":
        hidden = (hidden, torch.tensor(arrays["c0"]))
    with torch.no_grad():
        steps, last = module(torch.tensor(arrays["x"]), hidden)
    if first:
        arrays["h0"], arrays["c0"] = (
            np.swapaxes(arrays[n], 0, 1) for n in ("h0", "c0")
        )
    feeds = {name: arrays[name] for name in g.named("input")}
    got = engine(None).run(g, feeds)
    # PyTorch has both directions side by side on the last axis.
    ours = got[0] if first else np.moveaxis(got[0], 1, 2)
    np.testing.assert_allclose(ours.reshape(steps.shape), steps, atol=2e-6)
    states = last if kind == "lstm" else (last,)
    for state, want in zip(got[1:], states, strict=True):
        time_first = np.swapaxes(state, 0, 1) if first else state
        np.testing.assert_allclose(time_first, want, atol=2e-6)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_long_sequences_are_split(direction: str) -> None:
    """More steps than one loop may take are split, in either direction."""
    g = rlx.Graph("long")
    T, H = 1500, 60
    x, w, r = g.input("x", (T, 1, 3)), g.input("w", (1, 4 * H, 3)), None
    r = g.input("r", (1, 4 * H, H))
    steps, h, c = g.lstm(x, w, r, direction=direction)
    g.set_outputs([steps, h, c])
    feeds = {
        "x": random_array(T, 1, 3),
        "w": random_array(1, 4 * H, 3),
        "r": random_array(1, 4 * H, H) / 9,
    }
    want = engine(None, variants=False).run(g, feeds)
    for got in (engine(None).run(g, feeds), engine(ADAPTERS["lavapipe"]).run(g, feeds)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, atol=3e-5)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    ("dtype", "lengths"), [("i32", (-(2**31), 2, 2**31 - 1)), ("u32", (2**32 - 1, 0))]
)
@pytest.mark.parametrize("kind", MODULES)
def test_lengths_are_clamped(kind: str, dtype: str, lengths: tuple[int, ...]) -> None:
    """A negative length counts as 0, and one beyond all steps as all of them."""
    T, B, H = 3, len(lengths), 2
    gate_width = H * len(GATE_ORDER[kind])
    g = rlx.Graph("lengths")
    x, r = g.input("x", (T, B, gate_width)), g.input("r", (1, H, gate_width))
    lengths_tensor = g.input("lengths", (B,), dtype)
    g.set_outputs([g.apply(kind, x, r), g.apply(kind, x, r, lengths_tensor)])
    feeds = {"x": random_array(T, B, gate_width), "r": random_array(1, H, gate_width)}
    feeds["lengths"] = np.array(lengths, lengths_tensor.dtype.numpy)
    for variants in (True, False):
        for adapter in (None, ADAPTERS["lavapipe"]):
            full_steps, masked_steps = engine(adapter, variants=variants).run(g, feeds)
            for row, length in enumerate(lengths):
                step_count = min(max(length, 0), T)
                want = full_steps[:T, 0, row] * (np.arange(T) < step_count)[:, None]
                np.testing.assert_allclose(masked_steps[:T, 0, row], want, atol=2e-6)


@pytest.mark.requires_wgpu
def test_too_many_unrolled_steps_are_refused() -> None:
    """Too many steps to unroll, counting both directions, are refused.

    A device that keeps no row's state writes them out.
    """
    g = rlx.Graph("long")
    x, r = g.input("x", (2049, 1, 2 * 99)), g.input("r", (2, 33, 99))
    g.set_outputs([g.apply("gru", x, r, direction="bidirectional")])
    tiny_engine = engine(ADAPTERS["lavapipe"], limits=tiny_limits())
    with pytest.raises(Unsupported, match=r"4098 steps in total .* at most 4096"):
        tiny_engine.run(g, {"x": random_array(*x.shape), "r": random_array(*r.shape)})


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_stream_keeps_its_state_on_the_device(device: str) -> None:
    """A stream in chunks, with its state on the device, gives what one run gives."""
    torch.manual_seed(4)
    module = torch.nn.LSTM(5, 8)
    full_graph, weights = recurrent_network("lstm", module, 12, 1)
    x = random_array(12, 1, 5)
    want = rlx.Session(device).compile(full_graph).run({"x": x, **weights})[0]
    chunk_graph, _ = recurrent_network("lstm", module, 4, 1, state=True)
    runner = rlx.Session(device).compile(chunk_graph)
    state: list[Any] = [np.zeros((1, 1, 8), np.float32)] * 2
    for at in range(0, 12, 4):
        feeds = {"x": x[at : at + 4], "h0": state[0], "c0": state[1], **weights}
        steps, *state = runner.run(feeds, keep=[1, 2])
        np.testing.assert_allclose(steps, want[at : at + 4], atol=2e-6)


def build_recurrent(kind: str, *shapes: Any, **attrs: Any) -> None:
    g = rlx.Graph(kind)
    xs = [
        g.input(f"x{k}", *(s if isinstance(s[-1], str) else (s,)))
        for k, s in enumerate(shapes)
    ]
    getattr(g, kind)(*xs, **attrs)


def test_mismatched_operands_are_refused() -> None:
    """Operands of recurrent ops that do not fit are refused with the shapes
    expected.
    """
    with pytest.raises(ShapeError, match=r"expected w \[1, 20, 3\] and r \[1, 20, 5\]"):
        build_recurrent("lstm", (4, 2, 3), (1, 20, 4), (1, 20, 5))
    with pytest.raises(ShapeError, match=r"shape \[1, 20\]; expected b \[1, 40\]"):
        build_recurrent("lstm", (4, 2, 3), (1, 20, 3), (1, 20, 5), (1, 20))
    with pytest.raises(ShapeError, match=r"x must be \[T, B, I\], w \[D, G·H, I\]"):
        build_recurrent("gru", (4, 3), (1, 15, 3), (1, 15, 5))
    with pytest.raises(ShapeError, match=r"D = 2"):
        build_recurrent(
            "rnn", (4, 2, 3), (1, 5, 3), (1, 5, 5), direction="bidirectional"
        )
    with pytest.raises(AttributeRefused, match="activation 'swishy'"):
        build_recurrent("rnn", (4, 2, 3), (1, 5, 3), (1, 5, 5), activations="swishy")
    with pytest.raises(AttributeRefused, match="names 1 function;"):
        build_recurrent("lstm", (4, 2, 3), (1, 20, 3), (1, 20, 5), activations="tanh")
    with pytest.raises(
        AttributeRefused, match="constants of elu must be at most 1, and each"
    ):
        build_recurrent("rnn", (4, 2, 3), (1, 5, 3), (1, 5, 5), activations="elu(1,2)")
    with pytest.raises(AttributeRefused, match=r"clip=-1\.0"):
        build_recurrent("rnn", (4, 2, 3), (1, 5, 3), (1, 5, 5), clip=-1.0)
    with pytest.raises(DTypeError, match="expected f16"):
        build_recurrent(
            "rnn", ((4, 2, 3), "i32"), ((1, 5, 3), "i32"), ((1, 5, 5), "i32")
        )
