"""Recurrent networks by NumPy used well: one product a step, into arrays made once.

The three gates of an LSTM that are sigmoids lie side by side, and so do the two of a
GRU: each is one pass over all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.wasm_products import times
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.recipes.cell_functions import CellFunction
from rlxweb.recipes.recurrent_cells import GATES, Kind, Network, in_bytes, network

Array = NDArray[Any]


FEW: Final = 16
"""Steps up to which weights that lie transposed are multiplied as they lie.

To lay 128 hidden units' weights anew takes 0.1 ms, and a step of one row is 1 µs
faster then, of eight rows 13 µs.
"""


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """In float32 or float64."""
    return out.dtype is not DType.F16


def _by(function: CellFunction, x: Array, out: Array) -> None:
    """The function of x into `out`, which may be x; the usual two as they go there."""
    if function.name == "tanh":
        np.tanh(x, out=out)
    elif function.name == "sigmoid":
        # exp may overflow: 1 / infinity is the 0 that is wanted.
        np.negative(x, out=out)
        np.exp(out, out=out)
        out += 1.0
        np.reciprocal(out, out=out)
    else:
        out[...] = function.over(np, x)


class _Walk:
    """One direction: its weights, its state, and room for a step."""

    def __init__(self, net: Network, d: int, operands: tuple[Array, ...]) -> None:
        self.net, self.d = net, d
        gates, w = operands[0], operands[1][d]
        H, G, B = net.H, net.gates, net.B
        self.functions = net.of(d)
        is_kept = net.T <= FEW and w.flags.f_contiguous
        self.w = w if is_kept else np.ascontiguousarray(w)
        self.times = times(self.w)
        self.wide = np.empty((B, G * H), gates.dtype)
        self.room = np.empty((B, H), gates.dtype)
        self.gates = [self.wide[:, k * H : (k + 1) * H] for k in range(G)]
        if net.state is None:
            self.state = [np.zeros((B, H), gates.dtype) for _ in range(net.parts)]
        else:
            given = operands[net.state : net.state + net.parts]
            self.state = [np.array(one[d]) for one in given]
        self.extra: list[Array] = []
        if net.extra is not None:
            self.extra = np.split(operands[net.extra][d], net.extras)

    def _function(self, at: int, x: Array, out: Array | None = None) -> None:
        """In place where `out` is left out."""
        out, clip = x if out is None else out, self.net.clip
        if clip is not None:
            x = np.clip(x, -clip, clip, out=out)
        _by(self.functions[at], x, out)

    def rnn(self, x: Array, h: Array) -> None:
        """The state after a step whose gates are x; h before it, written over."""
        self.times(h, self.wide)
        np.add(self.wide, x, out=h)
        self._function(0, h)

    def gru(self, x: Array, h: Array) -> None:
        """As `rnn`."""
        H = self.net.H
        both, new, room = self.wide[:, : 2 * H], self.gates[2], self.room
        if self.net.late:
            self.times(h, self.wide)
            if self.extra:
                new += self.extra[0]
        else:
            np.matmul(h, self.w[:, : 2 * H], out=both)
        both += x[:, : 2 * H]
        self._function(0, both)
        z, r = self.gates[:2]
        if self.net.late:
            new *= r
        else:
            np.multiply(r, h, out=room)
            np.matmul(room, self.w[:, 2 * H :], out=new)
        new += x[:, 2 * H :]
        self._function(1, new)
        h -= new
        h *= z
        h += new

    def lstm(self, x: Array, h: Array, c: Array) -> None:
        """As `rnn`, of both parts of the state."""
        H, room = self.net.H, self.room
        read = in_bytes(np, h) if self.net.quantized and H else h
        self.times(read, self.wide)
        self.wide += x
        i, o, forget, new = self.gates
        if self.extra:
            i += np.multiply(self.extra[0], c, out=room)
            forget += np.multiply(self.extra[2], c, out=room)
            self._function(0, i)
            self._function(0, forget)
        else:
            self._function(0, self.wide[:, : 3 * H])
        if self.net.coupled:
            np.subtract(1.0, i, out=forget)
        self._function(1, new)
        c *= forget
        new *= i
        c += new
        if self.extra:
            o += np.multiply(self.extra[1], c, out=room)
            self._function(0, o)
        self._function(2, c, h)
        h *= o

    def run(self, gates: Array, out: Array, lengths: Array | None) -> None:
        """All steps; gates [T, B, G·H] and out [T + parts, B, H] of this direction."""
        net, step = self.net, getattr(self, self.net.kind)
        for t in net.times(self.d):
            before = [] if lengths is None else [one.copy() for one in self.state]
            step(gates[t], *self.state)
            if lengths is not None:
                over = (lengths <= t)[:, None]
                for one, old in zip(self.state, before, strict=True):
                    np.copyto(one, old, where=over)
                out[t] = np.where(over, 0.0, self.state[net.shown])
            else:
                out[t] = self.state[net.shown]
        for part, one in enumerate(self.state):
            out[net.T + part] = one


def _planned(
    kind: Kind, inputs: Types, out: TensorType, attrs: Attrs
) -> Callable[..., Array]:
    """How a node is run, its network worked out."""
    return partial(run, network(kind, inputs, attrs))


def run(net: Network, attrs: Attrs, *operands: Array) -> Array:
    """The op, of a network and its operands."""
    gates = operands[0]
    out = np.empty(net.output, gates.dtype)
    lengths = None if net.lengths is None else operands[net.lengths]
    wide = net.gates * net.H
    for d in range(net.D):
        own = gates[:, :, d * wide : (d + 1) * wide]
        _Walk(net, d, operands).run(own, out[:, d], lengths)
    return out


ROWS: Final = tuple((kind, partial(_planned, kind)) for kind in GATES)
"""(op, how the run of a node is made); see `Variant.planned`."""
