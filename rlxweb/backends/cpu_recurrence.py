"""Recurrent networks of float32 on the CPU as machine code: which, and their rows.

A row of a direction is one call over all its steps, and threads share the rows: many
rows of many units are NumPy's, whose product of a step reads the weights once for all.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64, c_void_p
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_panels import PANELS
from rlxweb.backends.cpu_recurrence_text import ROOM, Walked, recurrence_text, walked
from rlxweb.host import recurrent
from rlxweb.host.compiled import address
from rlxweb.host.laid_out import Steady
from rlxweb.host.row_blocks import Task, run_tasks
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.machine import library
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.workshop import Workshop
from rlxweb.recipes.recurrent_cells import GATES, Kind, Network, network

Array = NDArray[Any]

FEW_ROWS: Final = 8
"""Rows up to which weights are read again for each, however many they are."""
_IN_CACHE: Final = 1 << 16
"""Weights that stay in a core's cache: those may be read for any number of rows."""
_THREADED: Final = 1 << 18
"""Multiplications of a row from which a second thread gives more than its start takes.
"""


def _made(about: object) -> Callable[..., None]:
    assert isinstance(about, Walked)
    code = code_of(recurrence_text(about))
    return code.function("recurrence", None, *(c_void_p,) * 6, *(c_int64,) * 4)


recurrence_kernels: Workshop[Callable[..., None]] = Workshop(_made, fast_mode)
"""The compiled networks of this process, by their cells."""


def _open(kind: Kind, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    if any(one.dtype is not DType.F32 for one in inputs if one.dtype.is_float):
        return False
    net = network(kind, inputs, attrs)
    few = net.B <= FEW_ROWS or net.gates * net.H * net.H <= _IN_CACHE
    return few and net.T > 1 and net.B * net.H > 0 and recurrence_kernels.is_open


def laid(w: Array, about: Walked) -> Array:
    """Weights [hidden, gates · hidden] as [blocks, hidden, gates, units of one]."""
    hidden, gates = w.shape[0], w.shape[1] // w.shape[0]
    width = about.width
    made = np.empty((-(-hidden // width), hidden, gates, width), np.float32)
    every = w.reshape(hidden, gates, hidden)
    for at, block in enumerate(made):
        begin = min(at * width, hidden - width)
        block[...] = every[:, :, begin : begin + width]
    return made


class RecurrenceCall:
    """A network as a function of its operands; by NumPy while there is no code.

    is_weight  the recurrent weights are the same from run to run, until a param is set
    """

    is_weight = False

    def __init__(self, net: Network) -> None:
        lanes = library.processor().nbytes // 4
        self.net, self._steady = net, Steady()
        self.cells = [walked(net, d, lanes) for d in range(net.D)]
        self.slowly = partial(recurrent.run, net)
        self.kernels: list[Callable[..., None]] = []  # stay as long as their call

    def __call__(self, attrs: Attrs, *operands: Array) -> Array:
        if not self.kernels:
            ready = [recurrence_kernels.ready(one) for one in self.cells]
            found = [one for one in ready if one is not None]
            self.kernels = found if len(found) == len(ready) else []
        if self.kernels:
            return self._run(self.kernels, operands)
        begun = perf_counter()
        made = self.slowly(attrs, *operands)
        for one in self.cells:
            recurrence_kernels.spent(one, perf_counter() - begun)
        return made

    def _weights(self, y: Array) -> list[Array]:
        """Of every direction, laid out; kept where they are the same as before."""
        root, made = self._steady.root(y), []
        for d, about in enumerate(self.cells):
            one: Array | None = None
            if self.is_weight and root is not None:
                key = address(y[d]), y.shape, y.strides, about.lanes, about.vectors
                one = PANELS.of(root, key, partial(laid, y[d], about))
            made.append(laid(y[d], about) if one is None else one)
        return made

    def _run(self, kernels: list[Callable[..., None]], operands: Any) -> Array:
        net = self.net
        T, B, D, H = net.T, net.B, net.D, net.H
        gates = np.ascontiguousarray(operands[0])
        weights = self._weights(operands[1])
        out = np.empty(net.output, np.float32)
        state = np.zeros((D, B, net.parts, H), np.float32)
        if net.state is not None:
            for part in range(net.parts):
                state[:, :, part] = operands[net.state + part]
        extra = state  # nothing reads it where there is none
        if net.extra is not None:
            extra = np.ascontiguousarray(operands[net.extra])
        counts = [T] * B
        if net.lengths is not None:
            counts = np.clip(operands[net.lengths], 0, T).tolist()

        def make_worker() -> Task:
            room = np.empty(ROOM * H, np.float32)

            def task(at: int) -> None:
                d, b = divmod(at, B)
                steps, sign = counts[b], -1 if net.is_reversed(d) else 1
                first = steps - 1 if sign < 0 and steps else 0
                out[steps:T, d, b] = 0.0
                kernels[d](
                    address(gates[first, b, d * net.gates * H :]),
                    address(weights[d]),
                    address(extra[d]),
                    address(state[d, b]),
                    address(room),
                    address(out[first, d, b]),
                    steps,
                    H,
                    sign * B * D * net.gates * H,
                    sign * D * B * H,
                )

            return task

        heavy = T * net.gates * H * H >= _THREADED
        run_tasks(D * B, make_worker, threads=None if heavy else 1)
        out[T:] = state.transpose(2, 0, 1, 3)
        return out


def _planned(kind: Kind, inputs: Types, out: TensorType, attrs: Attrs) -> Any:
    return RecurrenceCall(network(kind, inputs, attrs))


COMPILED: Final = tuple(
    Variant(
        f"{kind}, compiled", kind, partial(_open, kind), partial(_planned, kind), True
    )
    for kind in GATES
)
"""The rows, before NumPy's."""
