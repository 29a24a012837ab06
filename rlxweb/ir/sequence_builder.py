"""Builder methods for sequences: recurrent networks.

Weights stand as in ONNX: [directions, gates · H, …], gates in the order i o f c of an
LSTM and z r h of a GRU, a bias [directions, 2 · gates · H] of the inputs' part and the
state's. Results lie as in ONNX too: steps [T, directions, B, H]. Nothing is computed
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlxweb.errors import ShapeError
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor


class SequenceBuilder(OpBuilder):
    """Builder methods over `apply`; mixed into Graph."""

    def lstm(
        self,
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
        """Long short-term memory over a sequence: (steps, last h, last c).

        quantized_state   products take h in 8 bits, of each row's own range
        Shapes   x [T, B, I], w [D, 4·H, I], r [D, 4·H, H], b [D, 8·H], state (h0, c0)
                 each [D, B, H], peepholes [D, 3·H], lengths [B] of integers → steps
                 [T, D, B, H], h and c [D, B, H]. batch_first, as ONNX's layout 1:
                 x [B, T, I], state [B, D, H] → [B, T, D, H], [B, D, H]
        Errors   ShapeError, DTypeError, AttributeRefused
        Source   ONNX's LSTM
        """
        given = _Given(self, "lstm", 4, x, w, r, b, batch_first)
        steps, h, c = given.run(
            *(state or (), peepholes, lengths),
            direction=direction,
            activations=activations,
            clip=clip,
            input_forget=input_forget,
            quantized_state=quantized_state,
        )
        return steps, h, c

    def gru(
        self,
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
        """Gated recurrent units over a sequence: (steps, last h). As `lstm`.

        linear_before_reset   the reset gate multiplies h · r, as in PyTorch, not h
        Shapes   w [D, 3·H, I], r [D, 3·H, H], b [D, 6·H], state [D, B, H]
        Source   ONNX's GRU
        """
        given = _Given(self, "gru", 3, x, w, r, b, batch_first, linear_before_reset)
        steps, h = given.run(
            *(() if state is None else (state,), None, lengths),
            direction=direction,
            activations=activations,
            clip=clip,
            linear_before_reset=linear_before_reset,
        )
        return steps, h

    def rnn(
        self,
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
        """A plain recurrent network over a sequence: (steps, last h). As `lstm`.

        Shapes   w [D, H, I], r [D, H, H], b [D, 2·H], state [D, B, H]
        Source   ONNX's RNN
        """
        given = _Given(self, "rnn", 1, x, w, r, b, batch_first)
        steps, h = given.run(
            *(() if state is None else (state,), None, lengths),
            direction=direction,
            activations=activations,
            clip=clip,
        )
        return steps, h

    def selective_scan(
        self,
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
        """Mamba's recurrence with rates of its own at every step: (y, last state).

        h = exp(delta a) h + delta b x, then y = (c · h + d x) · silu(z); delta is
        softplus(delta + delta_bias), as far as either is wanted.
        Shapes   x, delta, z [B, L, D], a [D, N], b, c [B, L, N], d and delta_bias [D],
                 state [B, N, D] (zeros where it is left out) → [B, L, D] and [B, N, D]
        Errors   ShapeError, DTypeError
        Source   Gu and Dao 2023
        """
        g: Any = self
        if delta_bias is not None:
            delta = g.add(delta, delta_bias)
        if delta_softplus:
            delta = g.softplus(delta)
        states = () if state is None else (state,)
        made = self.apply("selective_scan", x, delta, a, b, c, *states)
        length, size = x.shape[1], a.shape[1]
        y = g.narrow(made, 1, 0, length)
        if d is not None:
            y = g.add(y, g.mul(d, x))
        if z is not None:
            y = g.mul(y, g.silu(z))
        return y, g.narrow(made, 1, length, size)

    def causal_conv1d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        state: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Each channel's weights over its last K values: (y, what comes before next).

        Shapes   x [B, L, D], weight [D, K], bias [D], state [B, K - 1, D] (what came
                 before x; zeros where it is left out) → [B, L, D] and [B, K - 1, D]
        Errors   ShapeError, DTypeError
        Source   the convolution of Mamba's blocks; ONNX's CausalConvWithState
        """
        g: Any = self
        doing = f"causal_conv1d of {show(x.shape)}"
        if x.rank != 3 or weight.rank != 2 or weight.shape[0] != x.shape[2]:
            raise ShapeError(
                doing, f"weight {show(weight.shape)}", "x is [B, L, D], weight [D, K]"
            )
        (B, L, D), K = x.shape, weight.shape[1]
        before = (B, K - 1, D)
        if not K or (state is not None and state.shape != before):
            given = None if state is None else show(state.shape)
            raise ShapeError(
                doing,
                f"state {given} beside weight {show(weight.shape)}",
                f"a state is {show(before)} here, and K at least 1",
            )
        if state is None:
            state = g.expand(g.constant(0.0, x.dtype), before)
        whole = g.concat([state, x], axis=1) if K > 1 else x
        terms = [
            g.narrow(whole, 1, k, L) * g.reshape(g.narrow(weight, 1, k, 1), (D,))
            for k in range(K)
        ]
        made = sum(terms[1:], terms[0])
        made = made if bias is None else made + bias
        return made, g.narrow(whole, 1, L, K - 1)


class _Given:
    """Operands of a network as a caller has them, for an op that has its own."""

    def __init__(
        self,
        g: Any,
        kind: str,
        gates: int,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None,
        batch_first: bool,
        late: bool = False,
    ) -> None:
        self.g, self.kind, self.batch_first, self.late = g, kind, batch_first, late
        if x.rank != 3 or w.rank != 3 or r.rank != 3:
            raise ShapeError(
                kind,
                f"x {show(x.shape)}, w {show(w.shape)}, r {show(r.shape)}",
                "x is [T, B, I], w [D, G·H, I] and r [D, G·H, H]",
            )
        D, wide, H = r.shape
        sizes = (D, gates * H, x.shape[2])
        if w.shape != sizes or wide != gates * H:
            raise ShapeError(
                kind,
                f"w {show(w.shape)} and r {show(r.shape)} beside x {show(x.shape)}",
                f"w is {show(sizes)} and r [{D}, {gates * H}, {H}] here",
            )
        if b is not None and b.shape != (D, 2 * gates * H):
            raise ShapeError(
                kind, f"b {show(b.shape)}", f"it is [{D}, {2 * gates * H}] here"
            )
        self.D, self.H, self.wide = D, H, wide
        self.x, self.w, self.r, self.b = x, w, r, b

    def run(
        self,
        state: Sequence[Tensor],
        extra: Tensor | None,
        lengths: Tensor | None,
        **attrs: Any,
    ) -> list[Tensor]:
        """The steps and the last state."""
        operands = self._operands(state, extra, lengths)
        return self._results(self.g.apply(self.kind, *operands, **attrs))

    def _operands(
        self, state: Sequence[Tensor], extra: Tensor | None, lengths: Tensor | None
    ) -> list[Tensor]:
        """Gates, weights, and what else there is, in the op's order."""
        g, (outer, inner, size) = self.g, self.x.shape
        w = g.reshape(self.w, (self.D * self.wide, size))
        # One matrix of all steps: batched, a product is one after the other.
        x = g.reshape(self.x, (outer * inner, size))
        gates = g.matmul(x, g.transpose(w, (1, 0)))
        if self.b is not None:
            bias, extra = self._biases(extra)
            gates = g.add(gates, bias)
        gates = g.reshape(gates, (outer, inner, self.D * self.wide))
        if self.batch_first:
            gates = g.transpose(gates, (1, 0, 2))
        made = [gates, g.transpose(self.r, (0, 2, 1))]
        made += [g.transpose(s, (1, 0, 2)) if self.batch_first else s for s in state]
        return made + [one for one in (extra, lengths) if one is not None]

    def _biases(self, extra: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The bias of the gates; of a late GRU's h, the state's part by itself."""
        g, b, wide = self.g, self.b, self.wide
        of_x, of_h = g.narrow(b, 1, 0, wide), g.narrow(b, 1, wide, wide)
        if self.late:
            extra = g.narrow(of_h, 1, 2 * self.H, self.H)
            rest = g.narrow(of_x, 1, 2 * self.H, self.H)
            both = (g.narrow(one, 1, 0, 2 * self.H) for one in (of_x, of_h))
            bias = g.concat([g.add(*both), rest], axis=1)
        else:
            bias = g.add(of_x, of_h)
        return g.reshape(bias, (self.D * wide,)), extra

    def _results(self, made: Tensor) -> list[Tensor]:
        """All are views of the op's one value."""
        g, T = self.g, self.x.shape[1 if self.batch_first else 0]
        found = [g.narrow(made, 0, 0, T)]
        for at in range(T, made.shape[0]):
            found.append(g.reshape(g.narrow(made, 0, at, 1), made.shape[1:]))
        if not self.batch_first:
            return found
        steps, *state = found
        state = [g.transpose(one, (1, 0, 2)) for one in state]
        return [g.transpose(steps, (2, 0, 1, 3)), *state]
