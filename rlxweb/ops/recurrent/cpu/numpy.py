"""Recurrent networks by NumPy: one matrix product per step, into preallocated arrays.

The three gates of an LSTM that are sigmoids lie side by side, and so do the two of a
GRU: each is one pass over all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.matmul.cpu.wasm import matrix_multiplier
from rlxweb.ops.recurrent.activations import CellActivation
from rlxweb.ops.recurrent.wgsl.cell import (
    GATE_COUNTS,
    RecurrentKind,
    RecurrentNetwork,
    quantize_dequantize_state,
    recurrent_network,
)

Array = NDArray[Any]


MAX_TRANSPOSED_STEPS: Final = 16
"""Maximum number of steps for which transposed weights are multiplied without a copy.

To lay 128 hidden units' weights anew takes 0.1 ms, and a step of one row is 1 µs
faster then, of eight rows 13 µs.
"""


def is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the result is float32 or float64."""
    return out.dtype is not DType.F16


def _apply_activation(function: CellActivation, x: Array, out: Array) -> None:
    """Write the activation of x into `out`, which may be x; tanh and sigmoid are
    computed in place.
    """
    if function.name == "tanh":
        np.tanh(x, out=out)
    elif function.name == "sigmoid":
        # exp may overflow: 1 / infinity is the 0 that is wanted.
        np.negative(x, out=out)
        np.exp(out, out=out)
        out += 1.0
        np.reciprocal(out, out=out)
    else:
        out[...] = function.evaluate(np, x)


class _RecurrentDirection:
    """One direction of a recurrent network: its weights, its state, and scratch for a
    step.
    """

    def __init__(
        self, net: RecurrentNetwork, direction: int, operands: tuple[Array, ...]
    ) -> None:
        self.net, self.direction = net, direction
        gates, weights = operands[0], operands[1][direction]
        H, G, B = net.H, net.gate_count, net.B
        self.activations = net.direction_activations(direction)
        keeps_layout = net.T <= MAX_TRANSPOSED_STEPS and weights.flags.f_contiguous
        self.weights = weights if keeps_layout else np.ascontiguousarray(weights)
        self.multiply = matrix_multiplier(self.weights)
        self.gate_sums = np.empty((B, G * H), gates.dtype)
        self.scratch = np.empty((B, H), gates.dtype)
        self.gates = [self.gate_sums[:, k * H : (k + 1) * H] for k in range(G)]
        if net.state_input is None:
            self.state = [np.zeros((B, H), gates.dtype) for _ in range(net.state_count)]
        else:
            initial_state = operands[
                net.state_input : net.state_input + net.state_count
            ]
            self.state = [np.array(part[direction]) for part in initial_state]
        self.extra: list[Array] = []
        if net.extra_input is not None:
            self.extra = np.split(operands[net.extra_input][direction], net.extra_count)

    def _activate(self, index: int, x: Array, out: Array | None = None) -> None:
        """Apply the clipped activation number `index` to x; in place where `out` is
        omitted.
        """
        out, clip = x if out is None else out, self.net.clip
        if clip is not None:
            x = np.clip(x, -clip, clip, out=out)
        _apply_activation(self.activations[index], x, out)

    def rnn(self, x: Array, h: Array) -> None:
        """Advance the state h by one step whose gates are x; h is overwritten."""
        self.multiply(h, self.gate_sums)
        np.add(self.gate_sums, x, out=h)
        self._activate(0, h)

    def gru(self, x: Array, h: Array) -> None:
        """Advance the state h by one GRU step, like `rnn`."""
        H = self.net.H
        update_reset = self.gate_sums[:, : 2 * H]
        candidate = self.gates[2]
        scratch = self.scratch
        if self.net.reset_after_product:
            self.multiply(h, self.gate_sums)
            if self.extra:
                candidate += self.extra[0]
        else:
            np.matmul(h, self.weights[:, : 2 * H], out=update_reset)
        update_reset += x[:, : 2 * H]
        self._activate(0, update_reset)
        z, r = self.gates[:2]
        if self.net.reset_after_product:
            candidate *= r
        else:
            np.multiply(r, h, out=scratch)
            np.matmul(scratch, self.weights[:, 2 * H :], out=candidate)
        candidate += x[:, 2 * H :]
        self._activate(1, candidate)
        h -= candidate
        h *= z
        h += candidate

    def lstm(self, x: Array, h: Array, c: Array) -> None:
        """Advance both parts of the state by one LSTM step, like `rnn`."""
        H, scratch = self.net.H, self.scratch
        state_input = (
            quantize_dequantize_state(np, h) if self.net.quantizes_state and H else h
        )
        self.multiply(state_input, self.gate_sums)
        self.gate_sums += x
        i, o, forget_gate, candidate = self.gates
        if self.extra:
            i += np.multiply(self.extra[0], c, out=scratch)
            forget_gate += np.multiply(self.extra[2], c, out=scratch)
            self._activate(0, i)
            self._activate(0, forget_gate)
        else:
            self._activate(0, self.gate_sums[:, : 3 * H])
        if self.net.has_coupled_gates:
            np.subtract(1.0, i, out=forget_gate)
        self._activate(1, candidate)
        c *= forget_gate
        candidate *= i
        c += candidate
        if self.extra:
            o += np.multiply(self.extra[1], c, out=scratch)
            self._activate(0, o)
        self._activate(2, c, h)
        h *= o

    def run(self, gates: Array, out: Array, lengths: Array | None) -> None:
        """Run all steps, from gates [T, B, G·H] into out [T + parts, B, H] of this
        direction.
        """
        net, advance = self.net, getattr(self, self.net.kind)
        for t in net.time_steps(self.direction):
            previous_state = (
                []
                if lengths is None
                else [part_state.copy() for part_state in self.state]
            )
            advance(gates[t], *self.state)
            if lengths is not None:
                is_finished = (lengths <= t)[:, None]
                for part_state, previous in zip(
                    self.state, previous_state, strict=True
                ):
                    np.copyto(part_state, previous, where=is_finished)
                out[t] = np.where(is_finished, 0.0, self.state[net.sequence_state])
            else:
                out[t] = self.state[net.sequence_state]
        for part_index, part_state in enumerate(self.state):
            out[net.T + part_index] = part_state


def _plan_run(
    kind: RecurrentKind, inputs: Types, out: TensorType, attrs: Attrs
) -> Callable[..., Array]:
    """Return the function that runs a node, with its network resolved."""
    return partial(run_network, recurrent_network(kind, inputs, attrs))


def run_network(net: RecurrentNetwork, attrs: Attrs, *operands: Array) -> Array:
    """Run a recurrent op for a resolved network and its operands."""
    gates = operands[0]
    out = np.empty(net.output_shape, gates.dtype)
    lengths = None if net.lengths_input is None else operands[net.lengths_input]
    direction_width = net.gate_count * net.H
    for direction in range(net.D):
        direction_gates = gates[
            :, :, direction * direction_width : (direction + 1) * direction_width
        ]
        _RecurrentDirection(net, direction, operands).run(
            direction_gates, out[:, direction], lengths
        )
    return out


KERNELS = tuple(
    KernelVariant(
        f"{kind}, in arrays made once", kind, partial(_plan_run, kind), is_supported
    )
    for kind in GATE_COUNTS
)
