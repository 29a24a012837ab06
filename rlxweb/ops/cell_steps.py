"""The steps of recurrent cells, over arrays of a namespace or over tensors of a graph.

The same lines are the meaning of an op, the graph it is written out in where a device
has no other way, and what its gradient is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Tolerance
from rlxweb.recipes.cell_functions import CellFunction
from rlxweb.recipes.recurrent_cells import Kind, Network, in_bytes, network

MOST_UNROLLED = 4096
"""Steps of all directions that are written out where a device has no other way."""

# Sums of up to 40 products, carried on over up to 9 steps.
CARRIED = Tolerance(rtol=2e-5, atol=1e-5, relative_to_peak=True)


def network_of(kind: Kind, attrs: Attrs, operands: tuple[Any, ...]) -> Network:
    """The network of arrays, or of tensors; only an operand of lengths is whole."""
    types = [TensorType(tuple(x.shape), DType.F32) for x in operands]
    if len(types) > 2 and len(types[-1].shape) == 1:
        types[-1] = TensorType(types[-1].shape, DType.I32)
    return network(kind, tuple(types), attrs)


class Cell:
    """The steps of a direction, over arrays of a namespace or over tensors.

    n      the namespace, or the graph
    w      weights of each gate
    extra  parts of the extra operand, or None
    """

    def __init__(self, n: Any, net: Network, d: int, w: list[Any], extra: Any) -> None:
        self.n, self.net, self.w, self.extra = n, net, w, extra
        self.functions, self.times = net.of(d), net.times(d)

    def apply(self, function: CellFunction, x: Any) -> Any:
        """What the function makes of an array."""
        return function.over(self.n, x)

    def fill(self, x: Any, value: float) -> Any:
        """The number, to stand beside x."""
        return self.n.full_like(x, value)

    def product(self, h: Any, k: int) -> Any:
        """The product of a state with the weights of gate k."""
        return h @ self.w[k]

    def read(self, h: Any) -> Any:
        """The state as products take it."""
        return self.in_bytes(h) if self.net.quantized and self.net.H else h

    def in_bytes(self, h: Any) -> Any:
        """Each row as 8 bits of its range and 0, and back."""
        return in_bytes(self.n, h)

    def walk(
        self,
        state: list[Any],
        inputs: Callable[[int], list[Any]],
        lengths: Any,
    ) -> list[Any]:
        """What is shown of every step, and the last state.

        inputs   of a step: the gates' part of it
        lengths  of the rows, [B, 1]; None: all have every step
        """
        step: Callable[..., list[Any]] = getattr(self, self.net.kind)
        made: list[Any] = [None] * self.net.T
        for t in self.times:
            new = step(inputs(t), state)
            shown = new[self.net.shown]
            if lengths is not None:
                on = lengths > t
                new = [self.n.where(on, a, b) for a, b in zip(new, state, strict=True)]
                shown = self.n.where(on, shown, self.fill(shown, 0.0))
            state, made[t] = new, shown
        return [*made, *state]

    def _at(self, function: CellFunction, x: Any) -> Any:
        clip = self.net.clip
        if clip is not None:
            x = self.n.where(x < -clip, self.fill(x, -clip), x)
            x = self.n.where(x > clip, self.fill(x, clip), x)
        return self.apply(function, x)

    def rnn(self, x: list[Any], state: list[Any]) -> list[Any]:
        return [self._at(self.functions[0], x[0] + self.product(state[0], 0))]

    def gru(self, x: list[Any], state: list[Any]) -> list[Any]:
        (h,), (f, g) = state, self.functions
        z, r = (self._at(f, x[k] + self.product(h, k)) for k in (0, 1))
        if self.net.late:
            product = self.product(h, 2)
            product = product if self.extra is None else product + self.extra[0]
            new = self._at(g, x[2] + r * product)
        else:
            new = self._at(g, x[2] + self.product(r * h, 2))
        return [(1.0 - z) * new + z * h]

    def lstm(self, x: list[Any], state: list[Any]) -> list[Any]:
        (h, c), (f, g, last) = state, self.functions
        read = self.read(h)
        i, o, forget, new = (x[k] + self.product(read, k) for k in range(4))
        if self.extra is not None:
            i, forget = i + self.extra[0] * c, forget + self.extra[2] * c
        i = self._at(f, i)
        forget = 1.0 - i if self.net.coupled else self._at(f, forget)
        c = forget * c + i * self._at(g, new)
        if self.extra is not None:
            o = o + self.extra[1] * c
        return [self._at(f, o) * self._at(last, c), c]


class CellOfTensors(Cell):
    """The same as nodes of a graph."""

    def apply(self, function: CellFunction, x: Any) -> Any:
        return function.into(self.n, x)

    def fill(self, x: Any, value: float) -> Any:
        return value

    def in_bytes(self, h: Any) -> Any:
        g = self.n
        low = g.minimum(g.min(h, 1, keep_dim=True), 0.0)
        high = g.maximum(g.max(h, 1, keep_dim=True), 0.0)
        scale = g.where(g.eq(high, low), 1.0, (high - low) / 255.0)
        zero = g.round_divide(-low, scale)
        q = g.clip(g.round_divide(h, scale) + zero, 0.0, 255.0)
        return (q - zero) * scale
