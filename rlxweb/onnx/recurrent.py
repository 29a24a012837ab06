"""Recurrent networks: LSTM, GRU, RNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.recipes.cell_functions import USUAL

Texts = tuple[str, ...]
Floats = tuple[float, ...]


def _snake(name: str) -> str:
    """ONNX's name of a function as ours, whatever its case."""
    return name.lower().replace("_", "")


_OURS = {_snake(name): name for name in USUAL}


def _activations(
    call: Call, names: Sequence[str], alphas: Floats, betas: Floats
) -> dict[str, Any]:
    """The functions as ours, with the constants that stand for them in order."""
    alpha, beta, said = list(alphas), list(betas), []
    for name in names:
        ours = _OURS.get(_snake(name))
        if ours is None:
            known = ", ".join(sorted(_OURS.values()))
            call.refuse(f"the function {name!r} of a cell", f"known: {known}")
        constants = []
        for which, usual in USUAL[ours].items():
            given = alpha if which == "alpha" else beta
            constants.append(repr(given.pop(0) if given else usual))
        said.append(f"{ours}({','.join(constants)})")
    return {"activations": " ".join(said)} if said else {}


def _named(
    call: Call,
    activations: Texts,
    alphas: Floats,
    betas: Floats,
    clip: float,
    direction: str,
    layout: int,
) -> dict[str, Any]:
    """What all three have in common, as our methods take it."""
    return {
        "direction": direction,
        "clip": clip or None,
        "batch_first": bool(layout),
        **_activations(call, activations, alphas, betas),
    }


def _check(call: Call, r: Tensor, hidden: int | None) -> None:
    if hidden is not None and r.shape[-1:] != (hidden,):
        call.contradict(f"hidden_size {hidden} beside weights {r.shape}")


@converts("LSTM")
def _lstm(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
    peepholes: Tensor | None = None,
    *,
    activation_alpha: Floats = (),
    activation_beta: Floats = (),
    activations: Texts = (),
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Tensor, ...]:
    _check(call, r, hidden_size)
    named = _named(
        *(call, activations, activation_alpha, activation_beta),
        *(clip, direction, layout),
    )
    state = None
    given = h0 if c0 is None else c0
    if given is not None:  # one without the other: that is 0
        zeros = call.g.expand(call.g.constant(0.0, given.dtype), given.shape)
        state = (zeros if h0 is None else h0, zeros if c0 is None else c0)
    return call.g.lstm(
        *(x, w, r, b, state, peepholes, lengths),
        input_forget=bool(input_forget),
        **named,
    )


@converts("GRU")
def _gru(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    activation_alpha: Floats = (),
    activation_beta: Floats = (),
    activations: Texts = (),
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
) -> tuple[Tensor, ...]:
    _check(call, r, hidden_size)
    named = _named(
        *(call, activations, activation_alpha, activation_beta),
        *(clip, direction, layout),
    )
    late = bool(linear_before_reset)
    return call.g.gru(x, w, r, b, h0, lengths, linear_before_reset=late, **named)


@converts("RNN")
def _rnn(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    activation_alpha: Floats = (),
    activation_beta: Floats = (),
    activations: Texts = (),
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Tensor, ...]:
    _check(call, r, hidden_size)
    named = _named(
        *(call, activations, activation_alpha, activation_beta),
        *(clip, direction, layout),
    )
    return call.g.rnn(x, w, r, b, h0, lengths, **named)
