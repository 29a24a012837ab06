"""Steps of recurrent cells, over arrays of a namespace or over tensors of a graph.

The same lines are the meaning of an op, the graph it is written out in where a device
has no other way, and what its gradient is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Tolerance
from rlxweb.ops.recurrent.activations import CellActivation
from rlxweb.ops.recurrent.wgsl.cell import (
    RecurrentKind,
    RecurrentNetwork,
    quantize_dequantize_state,
    recurrent_network,
)

MAX_UNROLLED_STEPS = 4096
"""Maximum number of steps, over all directions, that are unrolled where a device has no
kernel.
"""

# Sums of up to 40 products, carried on over up to 9 steps.
RECURRENT_TOLERANCE = Tolerance(rtol=2e-5, atol=1e-5, relative_to_peak=True)


def network_from_operands(
    kind: RecurrentKind, attrs: Attrs, operands: tuple[Any, ...]
) -> RecurrentNetwork:
    """Return the network of these arrays or tensors; only an operand of lengths holds
    integers.
    """
    types = [TensorType(tuple(x.shape), DType.F32) for x in operands]
    if len(types) > 2 and len(types[-1].shape) == 1:
        types[-1] = TensorType(types[-1].shape, DType.I32)
    return recurrent_network(kind, tuple(types), attrs)


class RecurrentCell:
    """Recurrent cell of one direction, computed over arrays of a namespace.

    xp     the namespace, or the graph
    weights  weights of each gate
    extra  parts of the extra operand, or None
    """

    def __init__(
        self,
        xp: Any,
        net: RecurrentNetwork,
        direction: int,
        weights: list[Any],
        extra: Any,
    ) -> None:
        self.xp, self.net, self.weights, self.extra = xp, net, weights, extra
        self.functions, self.time_steps = (
            net.direction_activations(direction),
            net.time_steps(direction),
        )

    def apply(self, function: CellActivation, x: Any) -> Any:
        """Apply an activation function to an array."""
        return function.evaluate(self.xp, x)

    def constant_like(self, x: Any, value: float) -> Any:
        """Return a constant that broadcasts with x."""
        return self.xp.full_like(x, value)

    def recurrent_product(self, h: Any, k: int) -> Any:
        """Return the product of a state with the weights of gate k."""
        return h @ self.weights[k]

    def product_input(self, h: Any) -> Any:
        """Return the state as the products take it, 8-bit quantized if the network
        is.
        """
        return (
            self.fake_quantize_rows(h) if self.net.quantizes_state and self.net.H else h
        )

    def fake_quantize_rows(self, h: Any) -> Any:
        """Round each row to 8 bits of its range and 0, and convert it back."""
        return quantize_dequantize_state(self.xp, h)

    def run_steps(
        self,
        state: list[Any],
        inputs: Callable[[int], list[Any]],
        lengths: Any,
    ) -> list[Any]:
        """Run all steps; return the output of each step, then the last state.

        inputs   of a step: the gates' part of it
        lengths  of the rows, [B, 1]; None: all have every step
        """
        step: Callable[..., list[Any]] = getattr(self, self.net.kind)
        outputs: list[Any] = [None] * self.net.T
        for t in self.time_steps:
            new_state = step(inputs(t), state)
            output = new_state[self.net.sequence_state]
            if lengths is not None:
                is_active = lengths > t
                new_state = [
                    self.xp.where(is_active, a, b)
                    for a, b in zip(new_state, state, strict=True)
                ]
                output = self.xp.where(
                    is_active, output, self.constant_like(output, 0.0)
                )
            state, outputs[t] = new_state, output
        return [*outputs, *state]

    def _apply_clipped(self, function: CellActivation, x: Any) -> Any:
        """Clip x if the network says so, then apply the function."""
        clip = self.net.clip
        if clip is not None:
            x = self.xp.where(x < -clip, self.constant_like(x, -clip), x)
            x = self.xp.where(x > clip, self.constant_like(x, clip), x)
        return self.apply(function, x)

    def rnn(self, x: list[Any], state: list[Any]) -> list[Any]:
        """Compute one step of a plain recurrent cell."""
        return [
            self._apply_clipped(
                self.functions[0], x[0] + self.recurrent_product(state[0], 0)
            )
        ]

    def gru(self, x: list[Any], state: list[Any]) -> list[Any]:
        """Compute one step of a GRU cell."""
        (h,), (f, g) = state, self.functions
        z, r = (
            self._apply_clipped(f, x[k] + self.recurrent_product(h, k)) for k in (0, 1)
        )
        if self.net.reset_after_product:
            product = self.recurrent_product(h, 2)
            product = product if self.extra is None else product + self.extra[0]
            candidate = self._apply_clipped(g, x[2] + r * product)
        else:
            candidate = self._apply_clipped(g, x[2] + self.recurrent_product(r * h, 2))
        return [(1.0 - z) * candidate + z * h]

    def lstm(self, x: list[Any], state: list[Any]) -> list[Any]:
        """Compute one step of an LSTM cell."""
        (h, c), (f, g, output_function) = state, self.functions
        product_input = self.product_input(h)
        input_gate, output_gate, forget_gate, candidate = (
            x[k] + self.recurrent_product(product_input, k) for k in range(4)
        )
        if self.extra is not None:
            input_gate = input_gate + self.extra[0] * c
            forget_gate = forget_gate + self.extra[2] * c
        input_gate = self._apply_clipped(f, input_gate)
        forget_gate = (
            1.0 - input_gate
            if self.net.has_coupled_gates
            else self._apply_clipped(f, forget_gate)
        )
        c = forget_gate * c + input_gate * self._apply_clipped(g, candidate)
        if self.extra is not None:
            output_gate = output_gate + self.extra[1] * c
        return [
            self._apply_clipped(f, output_gate)
            * self._apply_clipped(output_function, c),
            c,
        ]


class GraphRecurrentCell(RecurrentCell):
    """Recurrent cell whose steps become nodes of a graph."""

    def apply(self, function: CellActivation, x: Any) -> Any:
        return function.add_to_graph(self.xp, x)

    def constant_like(self, x: Any, value: float) -> Any:
        return value

    def fake_quantize_rows(self, h: Any) -> Any:
        g = self.xp
        low = g.minimum(g.min(h, 1, keep_dim=True), 0.0)
        high = g.maximum(g.max(h, 1, keep_dim=True), 0.0)
        scale = g.where(g.eq(high, low), 1.0, (high - low) / 255.0)
        zero = g.round_divide(-low, scale)
        q = g.clip(g.round_divide(h, scale) + zero, 0.0, 255.0)
        return (q - zero) * scale
