"""Recurrent networks as a whole, against PyTorch's: weights, directions, streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.errors import AttributeRefused, DTypeError, ShapeError, Unsupported
from rlxweb.limits import shrunk
from tests.agreement import Array, engine
from tests.conftest import ADAPTERS

# ONNX's gates in PyTorch's order: i f g o of an LSTM, r z n of a GRU.
ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


def weights(kind: str, module: Any) -> dict[str, Array]:
    """w, r and b of a module of PyTorch, as ONNX has them."""
    order = ORDER[kind]

    def turned(name: str) -> Array:
        found = getattr(module, name).detach().numpy()
        parts = np.split(found, len(order))
        return np.concatenate([parts[at] for at in order])

    ends = ["", "_reverse"] if module.bidirectional else [""]
    return {
        "w": np.stack([turned(f"weight_ih_l0{end}") for end in ends]),
        "r": np.stack([turned(f"weight_hh_l0{end}") for end in ends]),
        "b": np.stack(
            [
                np.concatenate([turned(f"bias_{one}_l0{end}") for one in ("ih", "hh")])
                for end in ends
            ]
        ),
    }


def network(
    kind: str, module: Any, T: int, B: int, state: bool = False
) -> tuple[rlx.Graph, dict[str, Array]]:
    """The graph of a module, and what it is fed beside its inputs."""
    g, fed = rlx.Graph(kind), weights(kind, module)
    first = module.batch_first
    x = g.input("x", (B, T, module.input_size) if first else (T, B, module.input_size))
    w, r, b = (g.input(n, fed[n].shape) for n in ("w", "r", "b"))
    D, H = 1 + module.bidirectional, module.hidden_size
    shape = (B, D, H) if first else (D, B, H)
    names = ("h0", "c0")[: 1 + (kind == "lstm")] if state else ()
    given: Any = tuple(g.input(name, shape) for name in names) or None
    if given and kind != "lstm":
        given = given[0]
    more = {"linear_before_reset": True} if kind == "gru" else {}
    direction = "bidirectional" if module.bidirectional else "forward"
    outs = getattr(g, kind)(
        x, w, r, b, given, direction=direction, batch_first=first, **more
    )
    g.set_outputs(list(outs))
    return g, fed


def drawn(*shape: int) -> Array:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", MODULES)
def test_pytorch_agrees(kind: str, first: bool, both: bool) -> None:
    """Steps and last state, of either layout, one direction or two."""
    torch.manual_seed(3)
    module = MODULES[kind](6, 9, batch_first=first, bidirectional=both)
    T, B, D = 7, 3, 1 + both
    g, fed = network(kind, module, T, B, state=True)
    fed["x"] = drawn(B, T, 6) if first else drawn(T, B, 6)
    fed["h0"], fed["c0"] = drawn(D, B, 9), drawn(D, B, 9) / 2
    hidden: Any = torch.tensor(fed["h0"])
    if kind == "lstm":
        hidden = (hidden, torch.tensor(fed["c0"]))
    with torch.no_grad():
        steps, last = module(torch.tensor(fed["x"]), hidden)
    if first:
        fed["h0"], fed["c0"] = (np.swapaxes(fed[n], 0, 1) for n in ("h0", "c0"))
    feeds = {name: fed[name] for name in g.named("input")}
    got = engine(None).run(g, feeds)
    # PyTorch has both directions side by side on the last axis.
    mine = got[0] if first else np.moveaxis(got[0], 1, 2)
    np.testing.assert_allclose(mine.reshape(steps.shape), steps, atol=2e-6)
    states = last if kind == "lstm" else (last,)
    for one, want in zip(got[1:], states, strict=True):
        own = np.swapaxes(one, 0, 1) if first else one
        np.testing.assert_allclose(own, want, atol=2e-6)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_long_sequences_go_in_parts(direction: str) -> None:
    """More steps than one loop may take go in parts, in either direction."""
    g = rlx.Graph("long")
    T, H = 1500, 60
    x, w, r = g.input("x", (T, 1, 3)), g.input("w", (1, 4 * H, 3)), None
    r = g.input("r", (1, 4 * H, H))
    steps, h, c = g.lstm(x, w, r, direction=direction)
    g.set_outputs([steps, h, c])
    feeds = {"x": drawn(T, 1, 3), "w": drawn(1, 4 * H, 3), "r": drawn(1, 4 * H, H) / 9}
    want = engine(None, variants=False).run(g, feeds)
    for got in (engine(None).run(g, feeds), engine(ADAPTERS["lavapipe"]).run(g, feeds)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, atol=3e-5)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    ("dtype", "lengths"), [("i32", (-(2**31), 2, 2**31 - 1)), ("u32", (2**32 - 1, 0))]
)
@pytest.mark.parametrize("kind", MODULES)
def test_lengths_may_be_any(kind: str, dtype: str, lengths: tuple[int, ...]) -> None:
    """A length below none or beyond all steps stands for none or all of them."""
    T, B, H = 3, len(lengths), 2
    wide = H * len(ORDER[kind])
    g = rlx.Graph("lengths")
    x, r = g.input("x", (T, B, wide)), g.input("r", (1, H, wide))
    given = g.input("lengths", (B,), dtype)
    g.set_outputs([g.apply(kind, x, r), g.apply(kind, x, r, given)])
    feeds = {"x": drawn(T, B, wide), "r": drawn(1, H, wide)}
    feeds["lengths"] = np.array(lengths, given.dtype.numpy)
    for variants in (True, False):
        for adapter in (None, ADAPTERS["lavapipe"]):
            whole, cut = engine(adapter, variants=variants).run(g, feeds)
            for row, length in enumerate(lengths):
                live = min(max(length, 0), T)
                want = whole[:T, 0, row] * (np.arange(T) < live)[:, None]
                np.testing.assert_allclose(cut[:T, 0, row], want, atol=2e-6)


@pytest.mark.requires_wgpu
def test_steps_that_would_be_written_out_without_end_are_refused() -> None:
    """Too many steps to write out, of both directions together, are refused.

    A device that keeps no row's state writes them out.
    """
    g = rlx.Graph("long")
    x, r = g.input("x", (2049, 1, 2 * 99)), g.input("r", (2, 33, 99))
    g.set_outputs([g.apply("gru", x, r, direction="bidirectional")])
    small = engine(ADAPTERS["lavapipe"], limits=shrunk())
    with pytest.raises(Unsupported, match=r"4098 steps in all .* up to 4096"):
        small.run(g, {"x": drawn(*x.shape), "r": drawn(*r.shape)})


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_stream_keeps_its_state_on_the_device(device: str) -> None:
    """A stream by chunks, with its state on the device, gives what one run gives."""
    torch.manual_seed(4)
    module = torch.nn.LSTM(5, 8)
    whole, fed = network("lstm", module, 12, 1)
    x = drawn(12, 1, 5)
    want = rlx.Session(device).compile(whole).run({"x": x, **fed})[0]
    part, _ = network("lstm", module, 4, 1, state=True)
    runner = rlx.Session(device).compile(part)
    state: list[Any] = [np.zeros((1, 1, 8), np.float32)] * 2
    for at in range(0, 12, 4):
        feeds = {"x": x[at : at + 4], "h0": state[0], "c0": state[1], **fed}
        steps, *state = runner.run(feeds, keep=[1, 2])
        np.testing.assert_allclose(steps, want[at : at + 4], atol=2e-6)


def refused(kind: str, *shapes: Any, **attrs: Any) -> None:
    g = rlx.Graph(kind)
    xs = [
        g.input(f"x{k}", *(s if isinstance(s[-1], str) else (s,)))
        for k, s in enumerate(shapes)
    ]
    getattr(g, kind)(*xs, **attrs)


def test_what_does_not_fit_is_refused() -> None:
    """Operands of recurrent ops that do not fit are refused with what was wanted."""
    with pytest.raises(ShapeError, match=r"w is \[1, 20, 3\] and r \[1, 20, 5\]"):
        refused("lstm", (4, 2, 3), (1, 20, 4), (1, 20, 5))
    with pytest.raises(ShapeError, match=r"b \[1, 20\]; it is \[1, 40\] here"):
        refused("lstm", (4, 2, 3), (1, 20, 3), (1, 20, 5), (1, 20))
    with pytest.raises(ShapeError, match=r"x is \[T, B, I\], w \[D, G·H, I\]"):
        refused("gru", (4, 3), (1, 15, 3), (1, 15, 5))
    with pytest.raises(ShapeError, match=r"D = 2"):
        refused("rnn", (4, 2, 3), (1, 5, 3), (1, 5, 5), direction="bidirectional")
    with pytest.raises(AttributeRefused, match="activation 'swishy'"):
        refused("rnn", (4, 2, 3), (1, 5, 3), (1, 5, 5), activations="swishy")
    with pytest.raises(AttributeRefused, match="names 1 functions"):
        refused("lstm", (4, 2, 3), (1, 20, 3), (1, 20, 5), activations="tanh")
    with pytest.raises(AttributeRefused, match="takes up to 1 finite constants"):
        refused("rnn", (4, 2, 3), (1, 5, 3), (1, 5, 5), activations="elu(1,2)")
    with pytest.raises(AttributeRefused, match=r"clip=-1\.0"):
        refused("rnn", (4, 2, 3), (1, 5, 3), (1, 5, 5), clip=-1.0)
    with pytest.raises(DTypeError, match="it takes"):
        refused("rnn", ((4, 2, 3), "i32"), ((1, 5, 3), "i32"), ((1, 5, 5), "i32"))
