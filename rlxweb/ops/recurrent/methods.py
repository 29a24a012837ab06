"""Graph methods for sequences: recurrent networks, selective scan and causal
convolution.

Weights stand as in ONNX: [directions, gates · H, …], gates in the order i o f c of an
LSTM and z r h of a GRU, a bias [directions, 2 · gates · H] of the inputs' part and the
state's. Results lie as in ONNX too: steps [T, directions, B, H]. Nothing is computed
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlxweb.core.errors import ShapeError
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def lstm(
    g: Graph,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    state: tuple[Tensor, Tensor] | None = None,
    peepholes: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    direction: str = "forward",
    activations: str = "sigmoid tanh tanh",
    clip: float | None = None,
    input_forget: bool = False,
    quantized_state: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a long short-term memory over a sequence; return (steps, last h, last c).

    quantized_state   products take h in 8 bits, of each row's own range
    Shapes   x [T, B, I], w [D, 4·H, I], r [D, 4·H, H], b [D, 8·H], state (h0, c0)
             each [D, B, H], peepholes [D, 3·H], lengths [B] of integers → steps
             [T, D, B, H], h and c [D, B, H]. batch_first, as ONNX's layout 1:
             x [B, T, I], state [B, D, H] → [B, T, D, H], [B, D, H]
    Errors   ShapeError, DTypeError, AttributeRefused
    Source   ONNX's LSTM
    """
    network = _RecurrentOperands(g, "lstm", 4, x, w, r, b, batch_first)
    steps, h, c = network.add_network(
        *(state or (), peepholes, lengths),
        direction=direction,
        activations=activations,
        clip=clip,
        input_forget=input_forget,
        quantized_state=quantized_state,
    )
    return steps, h, c


@graph_method
def gru(
    g: Graph,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    state: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    direction: str = "forward",
    activations: str = "sigmoid tanh",
    clip: float | None = None,
    linear_before_reset: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run gated recurrent units over a sequence, as `lstm`; return (steps, last h).

    linear_before_reset   the reset gate multiplies h · r, as in PyTorch, not h
    Shapes   w [D, 3·H, I], r [D, 3·H, H], b [D, 6·H], state [D, B, H]
    Source   ONNX's GRU
    """
    network = _RecurrentOperands(
        g, "gru", 3, x, w, r, b, batch_first, linear_before_reset
    )
    steps, h = network.add_network(
        *(() if state is None else (state,), None, lengths),
        direction=direction,
        activations=activations,
        clip=clip,
        linear_before_reset=linear_before_reset,
    )
    return steps, h


@graph_method
def rnn(
    g: Graph,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    state: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    direction: str = "forward",
    activations: str = "tanh",
    clip: float | None = None,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run a plain recurrent network over a sequence, as `lstm`; return (steps, last h).

    Shapes   w [D, H, I], r [D, H, H], b [D, 2·H], state [D, B, H]
    Source   ONNX's RNN
    """
    network = _RecurrentOperands(g, "rnn", 1, x, w, r, b, batch_first)
    steps, h = network.add_network(
        *(() if state is None else (state,), None, lengths),
        direction=direction,
        activations=activations,
        clip=clip,
    )
    return steps, h


@graph_method
def selective_scan(
    g: Graph,
    x: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    *,
    delta_softplus: bool = False,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run Mamba's recurrence with rates of its own at every step; return (y, last
    state).

    h = exp(delta a) h + delta b x, then y = (c · h + d x) · silu(z); delta is
    softplus(delta + delta_bias), as far as either is wanted.
    Shapes   x, delta, z [B, L, D], a [D, N], b, c [B, L, N], d and delta_bias [D],
             state [B, N, D] (zeros where it is left out) → [B, L, D] and [B, N, D]
    Errors   ShapeError, DTypeError
    Source   Gu and Dao 2023
    """
    if delta_bias is not None:
        delta = g.add(delta, delta_bias)
    if delta_softplus:
        delta = g.softplus(delta)
    states = () if state is None else (state,)
    scanned = g.apply("selective_scan", x, delta, a, b, c, *states)
    length, state_size = x.shape[1], a.shape[1]
    y = g.narrow(scanned, 1, 0, length)
    if d is not None:
        y = g.add(y, g.mul(d, x))
    if z is not None:
        y = g.mul(y, g.silu(z))
    return y, g.narrow(scanned, 1, length, state_size)


@graph_method
def causal_conv1d(
    g: Graph,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Weight each channel's last K values; return (y, the state for the next call).

    Shapes   x [B, L, D], weight [D, K], bias [D], state [B, K - 1, D] (what came
             before x; zeros where it is left out) → [B, L, D] and [B, K - 1, D]
    Errors   ShapeError, DTypeError
    Source   the convolution of Mamba's blocks; ONNX's CausalConvWithState
    """
    context = f"causal_conv1d of {format_shape(x.shape)}"
    if x.rank != 3 or weight.rank != 2 or weight.shape[0] != x.shape[2]:
        raise ShapeError(
            context,
            f"the weight has shape {format_shape(weight.shape)}",
            "expected x [batch, length, channels] and weight [channels, kernel size]",
        )
    (B, L, D), K = x.shape, weight.shape[1]
    state_shape = (B, K - 1, D)
    if not K:
        raise ShapeError(
            context,
            f"the weight has shape {format_shape(weight.shape)}",
            "the last dimension, the kernel size, must be at least 1",
        )
    if state is not None and state.shape != state_shape:
        raise ShapeError(
            context,
            f"the state has shape {format_shape(state.shape)}",
            f"expected state {format_shape(state_shape)} for weight "
            f"{format_shape(weight.shape)}",
        )
    if state is None:
        state = g.expand(g.constant(0.0, x.dtype), state_shape)
    extended = g.concat([state, x], axis=1) if K > 1 else x
    terms = [
        g.narrow(extended, 1, k, L) * g.reshape(g.narrow(weight, 1, k, 1), (D,))
        for k in range(K)
    ]
    convolved = sum(terms[1:], terms[0])
    convolved = convolved if bias is None else convolved + bias
    return convolved, g.narrow(extended, 1, L, K - 1)


class _RecurrentOperands:
    """Operands of a recurrent network as a caller passes them, converted to those of
    the op.
    """

    def __init__(
        self,
        g: Graph,
        op_name: str,
        gates: int,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None,
        batch_first: bool,
        resets_late: bool = False,
    ) -> None:
        self.g, self.op_name, self.batch_first, self.resets_late = (
            g,
            op_name,
            batch_first,
            resets_late,
        )
        if x.rank != 3 or w.rank != 3 or r.rank != 3:
            raise ShapeError(
                op_name,
                f"x has shape {format_shape(x.shape)}, w {format_shape(w.shape)}, r "
                f"{format_shape(r.shape)}",
                "x must be [T, B, I], w [D, G·H, I] and r [D, G·H, H]",
            )
        D, gate_width, H = r.shape
        w_shape = (D, gates * H, x.shape[2])
        if w.shape != w_shape or gate_width != gates * H:
            raise ShapeError(
                op_name,
                f"w has shape {format_shape(w.shape)}, r {format_shape(r.shape)}, x "
                f"{format_shape(x.shape)}",
                f"expected w {format_shape(w_shape)} and r [{D}, {gates * H}, {H}]",
            )
        if b is not None and b.shape != (D, 2 * gates * H):
            raise ShapeError(
                op_name,
                f"b has shape {format_shape(b.shape)}",
                f"expected b [{D}, {2 * gates * H}]",
            )
        self.D, self.H, self.gate_width = D, H, gate_width
        self.x, self.w, self.r, self.b = x, w, r, b

    def add_network(
        self,
        state: Sequence[Tensor],
        extra: Tensor | None,
        lengths: Tensor | None,
        **attrs: Any,
    ) -> list[Tensor]:
        """Add the network; return its steps and its last state."""
        operands = self._op_operands(state, extra, lengths)
        return self._split_results(self.g.apply(self.op_name, *operands, **attrs))

    def _op_operands(
        self, state: Sequence[Tensor], extra: Tensor | None, lengths: Tensor | None
    ) -> list[Tensor]:
        """Return gates, weights, state and optional operands in the op's order."""
        g, (outer, inner, size) = self.g, self.x.shape
        w = g.reshape(self.w, (self.D * self.gate_width, size))
        # One matrix of all steps: batched, a product is one after the other.
        x = g.reshape(self.x, (outer * inner, size))
        gates = g.matmul(x, g.transpose(w, (1, 0)))
        if self.b is not None:
            bias, extra = self._split_bias(self.b, extra)
            gates = g.add(gates, bias)
        gates = g.reshape(gates, (outer, inner, self.D * self.gate_width))
        if self.batch_first:
            gates = g.transpose(gates, (1, 0, 2))
        operands = [gates, g.transpose(self.r, (0, 2, 1))]
        operands += [
            g.transpose(s, (1, 0, 2)) if self.batch_first else s for s in state
        ]
        return operands + [
            operand for operand in (extra, lengths) if operand is not None
        ]

    def _split_bias(
        self, b: Tensor, extra: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the bias of the gates and the extra operand: with `resets_late` the
        state's bias of h stays separate.
        """
        g, gate_width = self.g, self.gate_width
        input_bias = g.narrow(b, 1, 0, gate_width)
        state_bias = g.narrow(b, 1, gate_width, gate_width)
        if self.resets_late:
            extra = g.narrow(state_bias, 1, 2 * self.H, self.H)
            last_gate = g.narrow(input_bias, 1, 2 * self.H, self.H)
            early_gates = (
                g.narrow(part, 1, 0, 2 * self.H) for part in (input_bias, state_bias)
            )
            bias = g.concat([g.add(*early_gates), last_gate], axis=1)
        else:
            bias = g.add(input_bias, state_bias)
        return g.reshape(bias, (self.D * gate_width,)), extra

    def _split_results(self, packed: Tensor) -> list[Tensor]:
        """Split the op's one value into views: the steps, then each state."""
        g, T = self.g, self.x.shape[1 if self.batch_first else 0]
        results = [g.narrow(packed, 0, 0, T)]
        for step in range(T, packed.shape[0]):
            results.append(g.reshape(g.narrow(packed, 0, step, 1), packed.shape[1:]))
        if not self.batch_first:
            return results
        steps, *state = results
        state = [g.transpose(tensor, (1, 0, 2)) for tensor in state]
        return [g.transpose(steps, (2, 0, 1, 3)), *state]
