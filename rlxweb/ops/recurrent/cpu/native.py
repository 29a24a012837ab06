"""Recurrent networks of float32 on the CPU as native code: which ones, and how threads
share their rows.

A row of a direction is one call over all its steps, and threads share the rows: many
rows of many units are NumPy's, whose product of a step reads the weights once for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ctypes import c_int64, c_void_p
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.jit_cache import JitCache, compile_cached
from rlxweb.codegen.native_calls import array_address
from rlxweb.codegen.packed_weight_cache import (
    ConstantOperandTracker,
    UsesConstantOperands,
)
from rlxweb.core.thread_tasks import Task, run_tasks
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.matmul.cpu.packed_weights import PANEL_CACHE
from rlxweb.ops.recurrent.cpu import numpy as numpy_recurrent_networks
from rlxweb.ops.recurrent.cpu.llvm import (
    SCRATCH_SLOTS,
    RecurrenceSpec,
    recurrence_spec,
    recurrence_text,
)
from rlxweb.ops.recurrent.wgsl.cell import (
    GATE_COUNTS,
    RecurrentKind,
    RecurrentNetwork,
    recurrent_network,
)

Array = NDArray[Any]

FEW_ROWS: Final = 8
"""Rows up to which the weights are read again for each row, however many they are."""
_CACHE_WEIGHTS: Final = 1 << 16
"""Weights that stay in a core's cache and may be read for any number of rows."""
_MIN_THREADED_WORK: Final = 1 << 18
"""Multiplications of a row from which starting a second thread pays off."""


def _compile_kernel(spec: object) -> Callable[..., None]:
    assert isinstance(spec, RecurrenceSpec)
    code = compile_cached(recurrence_text(spec))
    return code.get_function("recurrence", None, *(c_void_p,) * 6, *(c_int64,) * 4)


recurrence_kernels: JitCache[Callable[..., None]] = JitCache(_compile_kernel)
"""JIT cache of this process's recurrent network kernels, by cell."""


def _is_supported(
    kind: RecurrentKind, inputs: Types, out: TensorType, attrs: Attrs
) -> bool:
    if any(
        tensor_type.dtype is not DType.F32
        for tensor_type in inputs
        if tensor_type.dtype.is_float
    ):
        return False
    net = recurrent_network(kind, inputs, attrs)
    is_small = net.B <= FEW_ROWS or net.gate_count * net.H * net.H <= _CACHE_WEIGHTS
    return (
        is_small and net.T > 1 and net.B * net.H > 0 and recurrence_kernels.is_enabled
    )


def pack_weights(w: Array, spec: RecurrenceSpec) -> Array:
    """Pack weights [hidden, gates · hidden] as [blocks, hidden, gates, units of a
    block].
    """
    hidden, gates = w.shape[0], w.shape[1] // w.shape[0]
    width = spec.width
    blocks = np.empty((-(-hidden // width), hidden, gates, width), np.float32)
    gate_weights = w.reshape(hidden, gates, hidden)
    for index, block in enumerate(blocks):
        begin = min(index * width, hidden - width)
        block[...] = gate_weights[:, :, begin : begin + width]
    return blocks


class RecurrenceCall(UsesConstantOperands):
    """Recurrent network as a function of its operands; NumPy computes it until its code
    is compiled.

    is_weight  the recurrent weights are the same from run to run, until a param is set
    """

    is_weight = False

    def __init__(self, net: RecurrentNetwork) -> None:
        lanes = llvm_compiler.host_cpu().vector_nbytes // 4
        self.net, self._constant_check = net, ConstantOperandTracker()
        self.specs = [recurrence_spec(net, d, lanes) for d in range(net.D)]
        self.fallback = partial(numpy_recurrent_networks.run_network, net)
        self.kernels: list[Callable[..., None]] = []  # stay as long as their call

    def set_constant_operands(self, indices: Collection[int]) -> None:
        self.is_weight = 1 in indices

    def __call__(self, attrs: Attrs, *operands: Array) -> Array:
        if not self.kernels:
            ready = [recurrence_kernels.get_kernel(item) for item in self.specs]
            compiled = [item for item in ready if item is not None]
            self.kernels = compiled if len(compiled) == len(ready) else []
        if self.kernels:
            return self._run_kernels(self.kernels, operands)
        start = perf_counter()
        output = self.fallback(attrs, *operands)
        for item in self.specs:
            recurrence_kernels.record_fallback_time(item, perf_counter() - start)
        return output

    def _packed_weights(self, y: Array) -> list[Array]:
        """Return the packed weights of every direction; constant weights are cached."""
        root, weights = self._constant_check.constant_root(y), []
        for d, spec in enumerate(self.specs):
            packed: Array | None = None
            if self.is_weight and root is not None:
                key = array_address(y[d]), y.shape, y.strides, spec.lanes, spec.vectors
                packed = PANEL_CACHE.get_or_pack(
                    root, key, partial(pack_weights, y[d], spec)
                )
            weights.append(pack_weights(y[d], spec) if packed is None else packed)
        return weights

    def _run_kernels(self, kernels: list[Callable[..., None]], operands: Any) -> Array:
        net = self.net
        T, B, D, H = net.T, net.B, net.D, net.H
        gates = np.ascontiguousarray(operands[0])
        weights = self._packed_weights(operands[1])
        out = np.empty(net.output_shape, np.float32)
        state = np.zeros((D, B, net.state_count, H), np.float32)
        if net.state_input is not None:
            for part in range(net.state_count):
                state[:, :, part] = operands[net.state_input + part]
        extra = state  # nothing reads it where there is none
        if net.extra_input is not None:
            extra = np.ascontiguousarray(operands[net.extra_input])
        counts = [T] * B
        if net.lengths_input is not None:
            counts = np.clip(operands[net.lengths_input], 0, T).tolist()

        def make_worker() -> Task:
            scratch = np.empty(SCRATCH_SLOTS * H, np.float32)

            def task(index: int) -> None:
                d, b = divmod(index, B)
                steps, sign = counts[b], -1 if net.is_reversed(d) else 1
                first = steps - 1 if sign < 0 and steps else 0
                out[steps:T, d, b] = 0.0
                kernels[d](
                    array_address(gates[first, b, d * net.gate_count * H :]),
                    array_address(weights[d]),
                    array_address(extra[d]),
                    array_address(state[d, b]),
                    array_address(scratch),
                    array_address(out[first, d, b]),
                    steps,
                    H,
                    sign * B * D * net.gate_count * H,
                    sign * D * B * H,
                )

            return task

        is_heavy = T * net.gate_count * H * H >= _MIN_THREADED_WORK
        run_tasks(D * B, make_worker, threads=None if is_heavy else 1)
        out[T:] = state.transpose(2, 0, 1, 3)
        return out


def _plan(kind: RecurrentKind, inputs: Types, out: TensorType, attrs: Attrs) -> Any:
    return RecurrenceCall(recurrent_network(kind, inputs, attrs))


KERNELS = tuple(
    KernelVariant(
        f"{kind}, compiled", kind, partial(_plan, kind), partial(_is_supported, kind)
    )
    for kind in GATE_COUNTS
)
