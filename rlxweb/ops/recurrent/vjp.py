"""Vector-Jacobian products of recurrent networks: one linear recurrence in reverse
time.

What there was at every step is known or computed again for all steps at once: the state
before it, and the products of that with the weights. There a cell is elementwise, and
its own derivatives say what it keeps of its state and what it takes of the products:
the coefficients of the recurrence that takes the gradient of the state back. With that
of every step known, what the inputs, the extra operand and the weights get is
elementwise and a product again. The graph does not grow with the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlxweb.core.errors import GradientRefused
from rlxweb.ir.autodiff import compute_vjp
from rlxweb.ir.derivative import VjpContext, VjpRule
from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.layout.index_map_vjp import zeros_with_dtype
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.recurrent.linear_recurrence import OP_NAME, preceding_states
from rlxweb.ops.recurrent.steps import GraphRecurrentCell, network_from_operands
from rlxweb.ops.recurrent.wgsl.cell import (
    SEQUENCE_STATES,
    RecurrentKind,
    RecurrentNetwork,
)

ERROR_CONTEXT = "gradient of a recurrent network"


def recurrent_vjp(kind: RecurrentKind) -> VjpRule:
    """Return the VJP rule of one kind of network; f16 is computed in f32, as in the
    op.
    """

    def rule(ctx: VjpContext) -> Sequence[Tensor | None]:
        if ctx.attrs.get("quantized_state"):
            raise GradientRefused(
                ERROR_CONTEXT,
                f"an {kind} with a quantized state has no derivative",
                "the derivative of rounding is 0 almost everywhere",
                "train with quantized_state=False",
            )
        if ctx.grad.dtype is not DType.F16:
            return _NetworkVjp(kind, ctx).gradients()
        g, count = ctx.g, len(ctx.inputs)
        *inputs, out, grad = widen_float16_tensors(g, *ctx.inputs, ctx.out, ctx.grad)
        wide_ctx = VjpContext(g, ctx.attrs, tuple(inputs), out, grad, ctx.needs_grad)
        grads = _NetworkVjp(kind, wide_ctx).gradients()
        assert len(grads) == count
        return [
            operand_grad if operand_grad is None else g.cast(operand_grad, DType.F16)
            for operand_grad in grads
        ]

    return rule


class _NetworkVjp:
    """Gradients of a recurrent network's operands."""

    def __init__(self, kind: RecurrentKind, ctx: VjpContext) -> None:
        self.g, self.ctx, self.kind = ctx.g, ctx, kind
        self.net = network_from_operands(kind, ctx.attrs, ctx.inputs)

    def gradients(self) -> list[Tensor | None]:
        """Return the gradient of every operand."""
        g, net, ctx = self.g, self.net, self.ctx
        grads: list[Tensor | None] = [None] * len(ctx.inputs)
        if not net.T:  # the result is the state
            for part in range(net.state_count if net.state_input is not None else 0):
                grads[2 + part] = ctx.grad[part]
            return grads
        states = self._state_sequences()
        directions = [_DirectionVjp(self, d, states).gradients() for d in range(net.D)]
        gates_grads, weights_grads, state_grads, extra_grads = zip(
            *directions, strict=True
        )
        grads[0] = g.concat(gates_grads, axis=2)
        grads[1] = g.stack(weights_grads)
        for part in range(net.state_count if net.state_input is not None else 0):
            grads[2 + part] = g.stack([state_grad[part] for state_grad in state_grads])
        if net.extra_input is not None:
            grads[net.extra_input] = g.stack(extra_grads)
        return grads

    def _state_sequences(self) -> list[Tensor]:
        """Return each part of the state after every step, [T, D, B, H]: one is the
        result, another is recomputed by a second run of the network.
        """
        g, net, ctx = self.g, self.net, self.ctx
        sequences = []
        for part in range(net.state_count):
            sequence = ctx.out
            if part != net.sequence_state:
                attrs = {**ctx.attrs, "shows": SEQUENCE_STATES[part]}
                sequence = g.apply(self.kind, *ctx.inputs, **attrs)
            sequences.append(g.narrow(sequence, 0, 0, net.T))
        return sequences


class _SequenceCell(GraphRecurrentCell):
    """Cell applied to all steps at once, with given matrix products."""

    products: Sequence[Tensor]
    reset_state: Tensor | None = None
    """Operand of the last gate's product, where that is not the state itself."""

    def recurrent_product(self, h: Any, k: int) -> Any:
        if _has_product_after_reset(self.net) and k == 2:
            self.reset_state = h
        return self.products[k]


def _has_product_after_reset(net: RecurrentNetwork) -> bool:
    """Return whether the last gate's product takes the state after the reset gate."""
    return net.kind == "gru" and not net.reset_after_product


class _DirectionVjp:
    """Gradients of one direction of a network, with all steps [T, B, H] at once.

    gate_inputs, products, extra  what goes into the cell, each a value of its own to
                         differentiate by
    states_before        the state before every step
    step_mask            whether a row has a step [T, B, 1]; None: all have every one
    """

    def __init__(
        self, network: _NetworkVjp, direction: int, states: Sequence[Tensor]
    ) -> None:
        self.g, self.net, self.ctx, self.direction = (
            network.g,
            network.net,
            network.ctx,
            direction,
        )
        g, net, inputs = self.g, self.net, self.ctx.inputs
        self.reverse = net.is_reversed(direction)
        T, B, H, G = net.T, net.B, net.H, net.gate_count
        self.step_shape = (T, B, H)
        self.weights: Tensor = inputs[1][direction]
        gates = g.narrow(inputs[0], 2, direction * G * H, G * H)
        gate_inputs = [g.narrow(gates, 2, k * H, H) for k in range(G)]
        self.step_mask = self._make_step_mask()
        self.initial_states = self._initial_states()
        states_before = [
            preceding_states(
                self._fill_missing_steps(value[:, direction], initial_state),
                initial_state,
                self.reverse,
            )
            for value, initial_state in zip(states, self.initial_states, strict=True)
        ]
        extra: list[Tensor] = []
        if net.extra_input is not None:
            row = inputs[net.extra_input][direction]
            parts = (g.narrow(row, 0, k * H, H) for k in range(net.extra_count))
            extra = [g.expand(value, self.step_shape) for value in parts]
        products = self._gate_products(gate_inputs, states_before, extra)
        self.gate_inputs, self.states_before, self.extra, self.products = (
            [g.identity(value) for value in group]
            for group in (gate_inputs, states_before, extra, products)
        )
        self.new_states, self.reset_state = self._apply_cell(
            self.gate_inputs, self.states_before, self.extra, self.products
        )

    def _make_step_mask(self) -> Tensor | None:
        """Return which rows have which steps [T, B, 1], or None if all rows have all
        steps.
        """
        g, net = self.g, self.net
        if net.lengths_input is None:
            return None
        lengths = g.reshape(self.ctx.inputs[net.lengths_input], (1, net.B, 1))
        return lengths > g.reshape(g.arange(net.T, dtype=lengths.dtype), (net.T, 1, 1))

    def _initial_states(self) -> list[Tensor]:
        """Return each part of the initial state of this direction, zeros by default."""
        net, inputs = self.net, self.ctx.inputs
        if net.state_input is None:
            return [zeros_with_dtype(inputs[0], (net.B, net.H))] * net.state_count
        return [
            inputs[net.state_input + part][self.direction]
            for part in range(net.state_count)
        ]

    def _fill_missing_steps(self, states: Tensor, initial_state: Tensor) -> Tensor:
        """Return the state after every step, with the initial state where a row has no
        step. The output is 0 there: a reversed row has not begun, and other rows do not
        need the value.
        """
        return (
            states
            if self.step_mask is None
            else self.g.where(self.step_mask, states, initial_state)
        )

    def _mask_steps(self, x: Tensor, otherwise: Tensor | float = 0.0) -> Tensor:
        """Return the values where a row has a step, and `otherwise` elsewhere."""
        return (
            x if self.step_mask is None else self.g.where(self.step_mask, x, otherwise)
        )

    def _gate_products(
        self,
        gate_inputs: list[Tensor],
        states_before: list[Tensor],
        extra: list[Tensor],
    ) -> list[Tensor]:
        """Return each gate's product of the state with its weights."""
        g, net = self.g, self.net
        all_products = states_before[0] @ self.weights
        products = [
            g.narrow(all_products, 2, k * net.H, net.H) for k in range(net.gate_count)
        ]
        if _has_product_after_reset(net):
            _, reset_state = self._apply_cell(
                gate_inputs, states_before, extra, products
            )
            assert reset_state is not None
            products[2] = reset_state @ g.narrow(self.weights, 1, 2 * net.H, net.H)
        return products

    def _apply_cell(
        self,
        gate_inputs: list[Tensor],
        states_before: list[Tensor],
        extra: list[Tensor],
        products: list[Tensor],
    ) -> tuple[list[Tensor], Tensor | None]:
        """Return the new state, and the operand of the product that follows the reset
        gate.
        """
        cell = _SequenceCell(self.g, self.net, self.direction, [], extra or None)
        cell.products = products
        step: Callable[..., list[Tensor]] = getattr(cell, self.net.kind)
        return step(gate_inputs, states_before), cell.reset_state

    def gradients(self) -> tuple[Tensor, Tensor, list[Tensor], Tensor | None]:
        """Return the gradients of this direction's gates, weights, initial state and
        extra operand.
        """
        net, g = self.net, self.g
        targets, target_grads, initial_grads = (
            self._backpropagate_after_reset()
            if _has_product_after_reset(net)
            else self._backpropagate()
        )
        wrt = [*self.gate_inputs, *self.products, *self.extra]
        grads = [
            self._mask_steps(value_grad)
            for value_grad in compute_vjp(g, targets, target_grads, wrt, ERROR_CONTEXT)
        ]
        G = net.gate_count
        gate_grads = grads[:G]
        product_grads = grads[G : 2 * G]
        extra_grads = grads[2 * G :]
        extra_grad = None
        if extra_grads:
            extra_grad = g.concat(
                [g.sum(value_grad, (0, 1)) for value_grad in extra_grads], axis=0
            )
        gates_grad = g.concat(gate_grads, axis=2)
        return gates_grad, self._weights_grad(product_grads), initial_grads, extra_grad

    def _weights_grad(self, product_grads: list[Tensor]) -> Tensor:
        """Return the gradient of the weights: products over all steps and rows of
        inputs with output gradients.
        """
        g, net = self.g, self.net
        flat_shape = (net.T * net.B, net.H)

        def weight_product(h: Tensor, parts: list[Tensor]) -> Tensor:
            joined_grads = g.concat(parts, axis=2) if len(parts) > 1 else parts[0]
            joined_grads = g.reshape(joined_grads, (flat_shape[0], len(parts) * net.H))
            return g.transpose(g.reshape(h, flat_shape), (1, 0)) @ joined_grads

        h = self.states_before[0]
        if self.reset_state is None:
            return weight_product(h, product_grads)
        parts = [
            weight_product(h, product_grads[:2]),
            weight_product(self._mask_steps(self.reset_state), product_grads[2:]),
        ]
        return g.concat(parts, axis=1)

    # --- the way back through time ----------------------------------------------------

    def _elementwise_slopes(
        self, target: Tensor, wrt: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return the elementwise derivatives of a result by several operands."""
        ones = self.g.expand(self.g.constant(1, target.dtype), target.shape)
        return compute_vjp(self.g, [target], [ones], wrt, ERROR_CONTEXT)

    def _output_grads(self) -> list[Tensor]:
        """Return the gradient of each part of the state that comes from the output."""
        net, grad = self.net, self.ctx.grad
        output_grad = self._mask_steps(grad[: net.T, self.direction])
        zeros = zeros_with_dtype(grad, self.step_shape)
        return [
            output_grad if part == net.sequence_state else zeros
            for part in range(net.state_count)
        ]

    def _run_recurrence(
        self,
        x: Sequence[Tensor],
        coefs: Sequence[Tensor],
        start: Sequence[Tensor],
    ) -> Tensor:
        """Run the linear recurrence against the network's direction in time."""
        g = self.g
        operands = g.stack(x, 2), g.stack(coefs, 2), self.weights, g.stack(start, 1)
        return g.apply(OP_NAME, *operands, reverse=not self.reverse, transposed=True)

    def _backpropagate(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return the parts of the new state, their gradients, and the gradient of the
        initial state.
        """
        net, m = self.net, self.net.state_count
        keep_coefs, product_coefs = [], []
        for i, target in enumerate(self.new_states):
            slopes = self._elementwise_slopes(
                target, [*self.states_before, *self.products]
            )
            keep_coefs += [
                self._mask_steps(slope, float(i == q))
                for q, slope in enumerate(slopes[:m])
            ]
            product_coefs.append([self._mask_steps(slope) for slope in slopes[m:]])
        coefs = keep_coefs + [
            part_coefs[k] for k in range(net.gate_count) for part_coefs in product_coefs
        ]
        start = [self.ctx.grad[net.T + part, self.direction] for part in range(m)]
        recurrence = self._run_recurrence(self._output_grads(), coefs, start)
        state_grads = [recurrence[: net.T, :, i] for i in range(m)]
        return self.new_states, state_grads, [recurrence[net.T, :, i] for i in range(m)]

    def _backpropagate_after_reset(
        self,
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Backpropagate a network whose last product follows the reset gate, with two
        recurrence steps per step.

        The first makes of the state what is sent to the last gate, and, as a second
        part, what the state becomes without that; the other adds its product.
        """
        g, (new_state,), reset_state = self.g, self.new_states, self.reset_state
        assert reset_state is not None
        T, B, H = self.step_shape
        zeros, ones = (
            g.expand(g.constant(value, new_state.dtype), self.step_shape)
            for value in (0, 1)
        )
        wrt = [*self.states_before, *self.products]
        h, z, _, n = self._elementwise_slopes(new_state, wrt)
        reset_state_by_h, _, r, _ = self._elementwise_slopes(reset_state, wrt)
        # Keeps by (part, by part), then gives by (gate, part).
        early_coefs = [
            reset_state_by_h,
            zeros,
            h,
            zeros,
            zeros,
            z,
            r,
            zeros,
            zeros,
            zeros,
        ]
        late_coefs = [zeros, ones, zeros, zeros, zeros, zeros, zeros, zeros, n, zeros]
        identity_coefs = [ones, zeros, zeros, ones, *[zeros] * 6]

        def interleave(early: list[Tensor], late: list[Tensor]) -> list[Tensor]:
            """Interleave pairs into [2T, B, H], in the order of the network's time."""
            pairs = (
                zip(late, early, strict=True)
                if self.reverse
                else zip(early, late, strict=True)
            )
            return [g.reshape(g.stack(pair, 1), (2 * T, B, H)) for pair in pairs]

        def mask_coefs(coefs: list[Tensor]) -> list[Tensor]:
            """Return coefficients where a row has a step, and those of the identity
            elsewhere.
            """
            return [
                self._mask_steps(a, b)
                for a, b in zip(coefs, identity_coefs, strict=True)
            ]

        (output_grad,) = self._output_grads()
        x = interleave([zeros, zeros], [output_grad, zeros])
        start = [self.ctx.grad[T, self.direction], zeros_with_dtype(new_state, (B, H))]
        recurrence = self._run_recurrence(
            x, interleave(mask_coefs(early_coefs), mask_coefs(late_coefs)), start
        )
        steps = g.reshape(recurrence[: 2 * T, :, 0], (T, 2, B, H))
        early, late = (1, 0) if self.reverse else (0, 1)
        return (
            [new_state, reset_state],
            [steps[:, late], steps[:, early]],
            [recurrence[2 * T, :, 0]],
        )
