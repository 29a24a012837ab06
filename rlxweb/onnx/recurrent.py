"""Converters of recurrent networks: LSTM, GRU, RNN."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts
from rlxweb.ops.recurrent.activations import DEFAULT_CONSTANTS

Texts = tuple[str, ...]
Floats = tuple[float, ...]


def _normalize_name(name: str) -> str:
    """Return ONNX's name of an activation function in lower case, without
    underscores.
    """
    return name.lower().replace("_", "")


_ACTIVATION_NAMES = {_normalize_name(name): name for name in DEFAULT_CONSTANTS}


def _activation_arguments(
    ctx: ConversionContext, attributes: RecurrentAttributes
) -> dict[str, Any]:
    """Return the builder's `activations` argument: function names with their constants,
    in order.
    """
    alpha = list(attributes.get("activation_alpha", ()))
    beta, specs = list(attributes.get("activation_beta", ())), []
    for name in attributes.get("activations", ()):
        activation = _ACTIVATION_NAMES.get(_normalize_name(name))
        if activation is None:
            known = ", ".join(sorted(_ACTIVATION_NAMES.values()))
            ctx.raise_unsupported(
                f"activation {name!r} is not supported", f"supported: {known}"
            )
        constants = []
        for constant_name, default in DEFAULT_CONSTANTS[activation].items():
            values = alpha if constant_name == "alpha" else beta
            constants.append(repr(values.pop(0) if values else default))
        specs.append(f"{activation}({','.join(constants)})")
    return {"activations": " ".join(specs)} if specs else {}


class RecurrentAttributes(TypedDict, total=False):
    """Attributes that LSTM, GRU and RNN share. `output_sequence` is accepted and
    ignored.
    """

    activation_alpha: Floats
    activation_beta: Floats
    activations: Texts
    clip: float
    direction: str
    hidden_size: int
    layout: int
    output_sequence: int


def _builder_arguments(
    ctx: ConversionContext, r: Tensor, attributes: RecurrentAttributes
) -> dict[str, Any]:
    """Return the attributes as keyword arguments of the graph's recurrent methods,
    checked against the weights.
    """
    hidden_size = attributes.get("hidden_size")
    if hidden_size is not None and r.shape[-1:] != (hidden_size,):
        ctx.raise_invalid_model(
            f"hidden_size is {hidden_size}, and R has shape {r.shape}",
            "the last dimension of R must be hidden_size",
        )
    return {
        "direction": attributes.get("direction", "forward"),
        "clip": attributes.get("clip") or None,
        "batch_first": bool(attributes.get("layout")),
        **_activation_arguments(ctx, attributes),
    }


@converts("LSTM")
def convert_lstm(
    ctx: ConversionContext,
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
    **attributes: Unpack[RecurrentAttributes],
) -> tuple[Tensor, ...]:
    """Convert an LSTM node."""
    optional_operands = (b, lengths, h0, c0, peepholes)
    return build_lstm(ctx, (x, w, r), optional_operands, bool(input_forget), attributes)


def build_lstm(
    ctx: ConversionContext,
    operands: tuple[Tensor, Tensor, Tensor],
    optional_operands: tuple[Tensor | None, ...],
    is_coupled: bool,
    attributes: RecurrentAttributes,
    quantized: bool = False,
) -> tuple[Tensor, ...]:
    """Add an LSTM, optionally with a quantised state, to the graph.

    operands  the sequence and both weights
    optional_operands  bias, lengths, first h and c, peepholes
    """
    b, lengths, h0, c0, peepholes = optional_operands
    state, initial_state = None, h0 if c0 is None else c0
    if initial_state is not None:  # one without the other: that is 0
        zeros = ctx.graph.expand(
            ctx.graph.constant(0.0, initial_state.dtype), initial_state.shape
        )
        state = (zeros if h0 is None else h0, zeros if c0 is None else c0)
    outputs: tuple[Tensor, ...] = ctx.graph.lstm(
        *operands,
        b=b,
        state=state,
        peepholes=peepholes,
        lengths=lengths,
        input_forget=is_coupled,
        quantized_state=quantized,
        **_builder_arguments(ctx, operands[2], attributes),
    )
    return outputs


@converts("GRU")
def _gru(
    ctx: ConversionContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    linear_before_reset: int = 0,
    **attributes: Unpack[RecurrentAttributes],
) -> tuple[Tensor, ...]:
    resets_after_product = bool(linear_before_reset)
    arguments = _builder_arguments(ctx, r, attributes)
    return ctx.graph.gru(
        x, w, r, b, h0, lengths, linear_before_reset=resets_after_product, **arguments
    )


@converts("RNN")
def _rnn(
    ctx: ConversionContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h0: Tensor | None = None,
    **attributes: Unpack[RecurrentAttributes],
) -> tuple[Tensor, ...]:
    return ctx.graph.rnn(
        x, w, r, b, h0, lengths, **_builder_arguments(ctx, r, attributes)
    )
