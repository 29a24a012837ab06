"""Gradients of recurrent networks: one linear recurrence the other way through time.

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

from rlxweb.errors import GradientRefused
from rlxweb.ir.derivative import Taken, Vjp
from rlxweb.ir.dtype import DType
from rlxweb.ir.pullback import pulled_back
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.cell_steps import CellOfTensors, network_of
from rlxweb.ops.linear_recurrence import NAME, preceding
from rlxweb.ops.norm import in_f32
from rlxweb.ops.places_back import with_zeros
from rlxweb.recipes.recurrent_cells import SHOWN, Kind, Network

DOING = "the gradient of a cell"


def recurrent_back(kind: Kind) -> Vjp:
    """The rule of a kind of network; in f32 of f16, as the op computes."""

    def rule(at: Taken) -> Sequence[Tensor | None]:
        if at.attrs.get("quantized_state"):
            raise GradientRefused(
                DOING,
                f"an {kind} whose state is quantised has no derivative",
                "rounding is flat between its steps",
                "train it with quantized_state=False",
            )
        if at.grad.dtype is not DType.F16:
            return _Networks(kind, at).gradients()
        g, count = at.g, len(at.inputs)
        *inputs, out, grad = in_f32(g, *at.inputs, at.out, at.grad)
        wide = Taken(g, at.attrs, tuple(inputs), out, grad, at.wants)
        made = _Networks(kind, wide).gradients()
        assert len(made) == count
        return [one if one is None else g.cast(one, DType.F16) for one in made]

    return rule


class _Networks:
    """A network of which some operands' gradients are wanted."""

    def __init__(self, kind: Kind, at: Taken) -> None:
        self.g, self.at, self.kind = at.g, at, kind
        self.net = network_of(kind, at.attrs, at.inputs)

    def gradients(self) -> list[Tensor | None]:
        """Of every operand."""
        g, net, at = self.g, self.net, self.at
        found: list[Tensor | None] = [None] * len(at.inputs)
        if not net.T:  # the result is the state
            for part in range(net.parts if net.state is not None else 0):
                found[2 + part] = at.grad[part]
            return found
        shown = self._shown()
        every = [_Direction(self, d, shown).gradients() for d in range(net.D)]
        by_gates, by_weights, by_state, by_extra = zip(*every, strict=True)
        found[0] = g.concat(by_gates, axis=2)
        found[1] = g.stack(by_weights)
        for part in range(net.parts if net.state is not None else 0):
            found[2 + part] = g.stack([one[part] for one in by_state])
        if net.extra is not None:
            found[net.extra] = g.stack(by_extra)
        return found

    def _shown(self) -> list[Tensor]:
        """Each part of the state after every step [T, D, B, H]: one is the result, the
        other comes by computing the network once more.
        """
        g, net, at = self.g, self.net, self.at
        made = []
        for part in range(net.parts):
            one = at.out
            if part != net.shown:
                how = {**at.attrs, "shows": SHOWN[part]}
                one = g.apply(self.kind, *at.inputs, **how)
            made.append(g.narrow(one, 0, 0, net.T))
        return made


class _CellOfSequences(CellOfTensors):
    """A cell at all steps at once, whose products are given."""

    products: Sequence[Tensor]
    sent: Tensor | None = None
    """What the last gate's product is of, where that is not the state."""

    def product(self, h: Any, k: int) -> Any:
        if _waits(self.net) and k == 2:
            self.sent = h
        return self.products[k]


def _waits(net: Network) -> bool:
    """Whether the last gate's product is of what the others let through."""
    return net.kind == "gru" and not net.late


class _Direction:
    """One direction of a network, all steps [T, B, H] at once.

    x, products, extra   what goes into the cell, each a value of its own to
                         differentiate by
    before               the state before every step
    on                   whether a row has a step [T, B, 1]; None: all have every one
    """

    def __init__(self, whole: _Networks, d: int, shown: Sequence[Tensor]) -> None:
        self.g, self.net, self.at, self.d = whole.g, whole.net, whole.at, d
        g, net, inputs = self.g, self.net, self.at.inputs
        self.reverse = net.is_reversed(d)
        T, B, H, G = net.T, net.B, net.H, net.gates
        self.full = (T, B, H)
        self.w: Tensor = inputs[1][d]
        gates = g.narrow(inputs[0], 2, d * G * H, G * H)
        x = [g.narrow(gates, 2, k * H, H) for k in range(G)]
        self.on = self._on()
        self.first = self._first()
        before = [
            preceding(self._carried(one[:, d], first), first, self.reverse)
            for one, first in zip(shown, self.first, strict=True)
        ]
        extra: list[Tensor] = []
        if net.extra is not None:
            row = inputs[net.extra][d]
            parts = (g.narrow(row, 0, k * H, H) for k in range(net.extras))
            extra = [g.expand(one, self.full) for one in parts]
        products = self._products(x, before, extra)
        self.x, self.before, self.extra, self.products = (
            [g.identity(one) for one in each] for each in (x, before, extra, products)
        )
        self.new, self.sent = self._cell(self.x, self.before, self.extra, self.products)

    def _on(self) -> Tensor | None:
        g, net = self.g, self.net
        if net.lengths is None:
            return None
        lengths = g.reshape(self.at.inputs[net.lengths], (1, net.B, 1))
        return lengths > g.reshape(g.arange(net.T, dtype=lengths.dtype), (net.T, 1, 1))

    def _first(self) -> list[Tensor]:
        net, inputs = self.net, self.at.inputs
        if net.state is None:
            return [with_zeros(inputs[0], (net.B, net.H))] * net.parts
        return [inputs[net.state + part][self.d] for part in range(net.parts)]

    def _carried(self, shown: Tensor, first: Tensor) -> Tensor:
        """The state after every step. What is shown is 0 where a row has no step: a
        reversed one has not begun there, and of others nobody needs it.
        """
        return shown if self.on is None else self.g.where(self.on, shown, first)

    def _kept(self, x: Tensor, otherwise: Tensor | float = 0.0) -> Tensor:
        """The values where a row has a step."""
        return x if self.on is None else self.g.where(self.on, x, otherwise)

    def _products(
        self, x: list[Tensor], before: list[Tensor], extra: list[Tensor]
    ) -> list[Tensor]:
        """What each gate is given of the state by its weights."""
        g, net = self.g, self.net
        every = before[0] @ self.w
        made = [g.narrow(every, 2, k * net.H, net.H) for k in range(net.gates)]
        if _waits(net):
            _, sent = self._cell(x, before, extra, made)
            assert sent is not None
            made[2] = sent @ g.narrow(self.w, 1, 2 * net.H, net.H)
        return made

    def _cell(
        self,
        x: list[Tensor],
        before: list[Tensor],
        extra: list[Tensor],
        products: list[Tensor],
    ) -> tuple[list[Tensor], Tensor | None]:
        """The new state, and what a product is of that waits for the others."""
        cell = _CellOfSequences(self.g, self.net, self.d, [], extra or None)
        cell.products = products
        step: Callable[..., list[Tensor]] = getattr(cell, self.net.kind)
        return step(x, before), cell.sent

    def gradients(self) -> tuple[Tensor, Tensor, list[Tensor], Tensor | None]:
        """Of this direction's gates, weights, first state and extra operand."""
        net, g = self.net, self.g
        ends, p, by_first = self._walked_late() if _waits(net) else self._walked()
        by = [*self.x, *self.products, *self.extra]
        found = [self._kept(one) for one in pulled_back(g, ends, p, by, DOING)]
        G = net.gates
        by_x, by_products, by_extra = found[:G], found[G : 2 * G], found[2 * G :]
        extra = None
        if by_extra:
            extra = g.concat([g.sum(one, (0, 1)) for one in by_extra], axis=0)
        gates = g.concat(by_x, axis=2)
        return gates, self._by_weights(by_products), by_first, extra

    def _by_weights(self, by_products: list[Tensor]) -> Tensor:
        """The products over all steps and rows of what went in with what came back."""
        g, net = self.g, self.net
        flat = (net.T * net.B, net.H)

        def product(h: Tensor, parts: list[Tensor]) -> Tensor:
            line = g.concat(parts, axis=2) if len(parts) > 1 else parts[0]
            line = g.reshape(line, (flat[0], len(parts) * net.H))
            return g.transpose(g.reshape(h, flat), (1, 0)) @ line

        h = self.before[0]
        if self.sent is None:
            return product(h, by_products)
        both = [
            product(h, by_products[:2]),
            product(self._kept(self.sent), by_products[2:]),
        ]
        return g.concat(both, axis=1)

    # --- the way back through time ----------------------------------------------------

    def _partials(self, end: Tensor, by: Sequence[Tensor]) -> list[Tensor]:
        """The derivative of each element of a result by those that go with it."""
        one = self.g.expand(self.g.constant(1, end.dtype), end.shape)
        return pulled_back(self.g, [end], [one], by, DOING)

    def _shown_grads(self) -> list[Tensor]:
        """The gradient of each part of the state as far as it is shown."""
        net, grad = self.net, self.at.grad
        shown = self._kept(grad[: net.T, self.d])
        zeros = with_zeros(grad, self.full)
        return [shown if part == net.shown else zeros for part in range(net.parts)]

    def _recurrence(
        self,
        x: Sequence[Tensor],
        coefs: Sequence[Tensor],
        start: Sequence[Tensor],
    ) -> Tensor:
        g = self.g
        operands = g.stack(x, 2), g.stack(coefs, 2), self.w, g.stack(start, 1)
        how: dict[str, Any] = {"reverse": not self.reverse, "transposed": True}
        return g.apply(NAME, *operands, **how)

    def _walked(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """The parts of the new state with their gradients, and that of the first."""
        net, m = self.net, self.net.parts
        keeps, gives = [], []
        for i, end in enumerate(self.new):
            found = self._partials(end, [*self.before, *self.products])
            keeps += [self._kept(one, float(i == q)) for q, one in enumerate(found[:m])]
            gives.append([self._kept(one) for one in found[m:]])
        coefs = keeps + [of_part[k] for k in range(net.gates) for of_part in gives]
        start = [self.at.grad[net.T + part, self.d] for part in range(m)]
        made = self._recurrence(self._shown_grads(), coefs, start)
        p = [made[: net.T, :, i] for i in range(m)]
        return self.new, p, [made[net.T, :, i] for i in range(m)]

    def _walked_late(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """The same where a product waits for the others: two steps for one.

        The first makes of the state what is sent to the last gate, and, as a second
        part, what the state becomes without that; the other adds its product.
        """
        g, (new,), sent = self.g, self.new, self.sent
        assert sent is not None
        T, B, H = self.full
        none, one = (
            g.expand(g.constant(value, new.dtype), self.full) for value in (0, 1)
        )
        by = [*self.before, *self.products]
        h, z, _, n = self._partials(new, by)
        of_sent, _, r, _ = self._partials(sent, by)
        # Keeps by (part, by part), then gives by (gate, part).
        first = [of_sent, none, h, none, none, z, r, none, none, none]
        last = [none, one, none, none, none, none, none, none, n, none]
        alone = [one, none, none, one, *[none] * 6]

        def interleaved(early: list[Tensor], late: list[Tensor]) -> list[Tensor]:
            """[2T, B, H] of each pair, in the order of the network's time."""
            pairs = (
                zip(late, early, strict=True)
                if self.reverse
                else zip(early, late, strict=True)
            )
            return [g.reshape(g.stack(pair, 1), (2 * T, B, H)) for pair in pairs]

        def kept(coefs: list[Tensor]) -> list[Tensor]:
            return [self._kept(a, b) for a, b in zip(coefs, alone, strict=True)]

        (shown,) = self._shown_grads()
        x = interleaved([none, none], [shown, none])
        start = [self.at.grad[T, self.d], with_zeros(new, (B, H))]
        made = self._recurrence(x, interleaved(kept(first), kept(last)), start)
        steps = g.reshape(made[: 2 * T, :, 0], (T, 2, B, H))
        early, late = (1, 0) if self.reverse else (0, 1)
        return [new, sent], [steps[:, late], steps[:, early]], [made[2 * T, :, 0]]
