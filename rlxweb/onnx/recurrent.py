"""Recurrent networks: LSTM, GRU, RNN."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.recipes.cell_functions import USUAL

Texts = tuple[str, ...]
Floats = tuple[float, ...]


def _snake(name: str) -> str:
    """ONNX's name of a function as ours, whatever its case."""
    return name.lower().replace("_", "")


_OURS = {_snake(name): name for name in USUAL}


def _activations(call: Call, cell: Cell) -> dict[str, Any]:
    """The functions as ours, with the constants that stand for them in order."""
    alpha = list(cell.get("activation_alpha", ()))
    beta, said = list(cell.get("activation_beta", ())), []
    for name in cell.get("activations", ()):
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


class Cell(TypedDict, total=False):
    """The attributes that all three have. Of `output_sequence` nothing is left."""

    activation_alpha: Floats
    activation_beta: Floats
    activations: Texts
    clip: float
    direction: str
    hidden_size: int
    layout: int
    output_sequence: int


def _named(call: Call, r: Tensor, cell: Cell) -> dict[str, Any]:
    """These attributes as our methods take them, held against the weights."""
    hidden = cell.get("hidden_size")
    if hidden is not None and r.shape[-1:] != (hidden,):
        call.contradict(f"hidden_size {hidden} beside weights {r.shape}")
    return {
        "direction": cell.get("direction", "forward"),
        "clip": cell.get("clip") or None,
        "batch_first": bool(cell.get("layout")),
        **_activations(call, cell),
    }


@converts("LSTM")
def lstm_of(
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
    input_forget: int = 0,
    **cell: Unpack[Cell],
) -> tuple[Tensor, ...]:
    """An LSTM of ONNX's operands and attributes."""
    given = (b, lengths, h0, c0, peepholes)
    return network_of(call, (x, w, r), given, bool(input_forget), cell)


def network_of(
    call: Call,
    given: tuple[Tensor, Tensor, Tensor],
    more: tuple[Tensor | None, ...],
    coupled: bool,
    cell: Cell,
    quantized: bool = False,
) -> tuple[Tensor, ...]:
    """The same, whose state may be quantised.

    given   the sequence and both weights
    more    bias, lengths, first h and c, peepholes
    """
    b, lengths, h0, c0, peepholes = more
    state, first = None, h0 if c0 is None else c0
    if first is not None:  # one without the other: that is 0
        zeros = call.g.expand(call.g.constant(0.0, first.dtype), first.shape)
        state = (zeros if h0 is None else h0, zeros if c0 is None else c0)
    made: tuple[Tensor, ...] = call.g.lstm(
        *given,
        b=b,
        state=state,
        peepholes=peepholes,
        lengths=lengths,
        input_forget=coupled,
        quantized_state=quantized,
        **_named(call, given[2], cell),
    )
    return made


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
    linear_before_reset: int = 0,
    **cell: Unpack[Cell],
) -> tuple[Tensor, ...]:
    late, named = bool(linear_before_reset), _named(call, r, cell)
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
    **cell: Unpack[Cell],
) -> tuple[Tensor, ...]:
    return call.g.rnn(x, w, r, b, h0, lengths, **_named(call, r, cell))
