"""MLX engine: Apple's GPUs by Metal, or the CPU of any Mac or Linux machine.

Imported when one of its devices is opened and never before. It computes lazily: a run
is one graph of its own, evaluated where the results are read; on a GPU the plan goes
through `mx.compile` as a whole. MLX has float64 on the CPU alone and complex numbers of
two float32 everywhere, so the engine has no float64 at all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np

from rlxweb.core.errors import AdapterMissing
from rlxweb.engines.array import array_target, ignore_float_errors
from rlxweb.engines.array_library import (
    LibraryForkGuard,
    call_library,
    find_device_index,
    import_library,
    library_context,
)
from rlxweb.engines.mlx_kernel_variants import mlx_variants
from rlxweb.engines.protocol import Array, Engine, EngineIdentity
from rlxweb.engines.traced_array import TracedArrayEngine
from rlxweb.ir.dtype import DType

INSTALL = "pip install 'rlxweb[mlx]' (macOS and Linux)"
SUPPORTED_DTYPES = frozenset(DType) - {DType.F64}
# Terms that the sum over a product of integers holds at once.
MAX_INTEGER_TERMS = 1 << 22
# Values that are added up one after the other.
SUM_BLOCK_SIZE = 256
library_threads = LibraryForkGuard("MLX")


class MlxNamespace:
    """NumPy's names and arguments over MLX's functions."""

    def __init__(self, mx: Any) -> None:
        self._mx = mx

    def __getattr__(self, name: str) -> Any:
        if name == "float64":
            raise AttributeError(name)
        attribute = getattr(self._mx, name)
        setattr(self, name, attribute)
        return attribute

    def argsort(self, x: Any, axis: int, stable: bool) -> Any:
        return self._mx.argsort(x, axis=axis)  # which is stable

    def floor_divide(self, x: Any, y: Any) -> Any:
        """Divide and round down, also the smallest integer by -1, at which a processor
        raises a signal.
        """
        mx = self._mx
        if not mx.issubdtype(x.dtype, mx.signedinteger):
            return mx.floor_divide(x, y)
        is_minus_one = y == -1
        return mx.where(
            is_minus_one, -x, mx.floor_divide(x, mx.where(is_minus_one, -y, y))
        )

    def prod(self, x: Any, axis: Any, keepdims: bool, dtype: Any) -> Any:
        return self._mx.prod(
            _cast_or_fill_empty(self._mx, x, axis, dtype, 1), axis, keepdims
        )

    def mean(self, x: Any, axis: Any, keepdims: bool = False, dtype: Any = None) -> Any:
        count = prod(x.shape[a] for a in _axis_tuple(axis))
        return self.sum(x, axis, keepdims, dtype) / count

    def sum(self, x: Any, axis: Any, keepdims: bool = False, dtype: Any = None) -> Any:
        """Sum in blocks: MLX adds up one float32 value after the other."""
        mx = self._mx
        x = _cast_or_fill_empty(mx, x, axis, x.dtype if dtype is None else dtype, 0)
        for summed_axis in _axis_tuple(axis):
            while x.shape[summed_axis] > SUM_BLOCK_SIZE and mx.issubdtype(
                x.dtype, mx.inexact
            ):
                x = mx.sum(
                    _split_into_blocks(mx, x, summed_axis),
                    axis=summed_axis % x.ndim + 1,
                )
        return mx.sum(x, axis, keepdims)

    def cumsum(self, x: Any, axis: int, dtype: Any) -> Any:
        """Return running sums: those within blocks, on top of the totals of the blocks
        before.
        """
        mx, n, axis_index = self._mx, x.shape[axis], axis % x.ndim
        x = x.astype(dtype)
        if n <= SUM_BLOCK_SIZE or not mx.issubdtype(x.dtype, mx.inexact):
            return mx.cumsum(x, axis=axis_index)
        sums_in_blocks = mx.cumsum(
            _split_into_blocks(mx, x, axis_index), axis=axis_index + 1
        )
        leading_slices = (slice(None),) * axis_index
        totals = sums_in_blocks[(*leading_slices, slice(None), -1)]
        preceding_totals = self.cumsum(
            totals[(*leading_slices, slice(0, -1))], axis_index, dtype
        )
        zero = mx.zeros_like(totals[(*leading_slices, slice(0, 1))])
        preceding_totals = mx.expand_dims(
            mx.concat([zero, preceding_totals], axis=axis_index), axis_index + 1
        )
        shape = (*x.shape[:axis_index], -1, *x.shape[axis_index + 1 :])
        return mx.reshape(sums_in_blocks + preceding_totals, shape)[
            (*leading_slices, slice(0, n))
        ]

    def cumprod(self, x: Any, axis: int, dtype: Any) -> Any:
        return self._mx.cumprod(x.astype(dtype), axis=axis)

    def matmul(self, x: Any, y: Any) -> Any:
        """Multiply matrices; integers, which MLX's product does not take, term by
        term.
        """
        mx = self._mx
        if mx.issubdtype(x.dtype, mx.inexact):
            return mx.matmul(x, y)
        out = mx.zeros((1,), dtype=x.dtype)
        result_size = max(1, x.shape[-2] * y.shape[-1])
        chunk_terms = max(1, MAX_INTEGER_TERMS // result_size)
        for start in range(0, max(1, x.shape[-1]), chunk_terms):
            left = x[..., :, start : start + chunk_terms, None]
            terms = left * y[..., None, start : start + chunk_terms, :]
            out = out + mx.sum(terms, axis=-2)
        return out


def _axis_tuple(axis: Any) -> tuple[int, ...]:
    """Return one axis or several as a tuple."""
    return axis if isinstance(axis, tuple) else (axis,)


def _cast_or_fill_empty(mx: Any, x: Any, axis: Any, dtype: Any, value: int) -> Any:
    """Cast an array; replace an empty one by `value` along the reduced axes, since MLX
    reads past its end.
    """
    if 0 not in x.shape:
        return x.astype(dtype)
    reduced_axes = [a % x.ndim for a in _axis_tuple(axis)]
    shape = [1 if a in reduced_axes and not d else d for a, d in enumerate(x.shape)]
    return mx.full(shape, value, dtype=dtype)


def _split_into_blocks(mx: Any, x: Any, axis: int) -> Any:
    """Split an axis into two: blocks, and SUM_BLOCK_SIZE values in each, with zeros at
    the end.
    """
    n, axis_index = x.shape[axis], axis % x.ndim
    pads = [(0, 0)] * x.ndim
    pads[axis_index] = (0, -n % SUM_BLOCK_SIZE)
    return mx.reshape(
        mx.pad(x, pads),
        (*x.shape[:axis_index], -1, SUM_BLOCK_SIZE, *x.shape[axis_index + 1 :]),
    )


async def open_mlx(
    kind: str = "cpu", adapter: str = "", *, trace_plans: bool | None = None
) -> Engine:
    """Open the MLX engine on "cpu" or "gpu" (Metal; CUDA in MLX's build for it).

    adapter   part of the name of the GPU, or ""
    trace_plans  whether plans go through `mx.compile`; None: on a GPU they do. On the
                 CPU MLX would call the machine's C++ compiler for each.

    Errors   AdapterMissing with the reason, for whatever is missing or broken.
    """
    context = f"open MLX on '{kind}'"
    library_threads.claim(context)
    mx = import_library("mlx.core", context, INSTALL)
    name = call_library(
        lambda: _find_device_name(mx, kind, adapter, context),
        context,
        "MLX failed to list its devices",
        INSTALL,
    )
    compiles_plans = kind == "gpu" if trace_plans is None else trace_plans
    return _build_engine(mx, kind, name, compiles_plans)


def _find_device_name(mx: Any, kind: str, adapter: str, context: str) -> str:
    """Return the name of MLX's device of that kind, checked against `adapter`."""
    name = "MLX on the CPU"
    if kind != "cpu":
        if not mx.is_available(mx.gpu):
            raise AdapterMissing(
                context, "MLX finds no GPU on this machine", hint=INSTALL
            )
        name = str(mx.device_info(mx.gpu).get("device_name", "GPU"))
    find_device_index(context, [name], adapter)
    return name


def _build_engine(
    mx: Any, kind: str, name: str, trace_plans: bool
) -> TracedArrayEngine:
    """Return the engine for one of MLX's devices."""
    version = f"MLX {mx.__version__}"
    device = mx.cpu if kind == "cpu" else mx.gpu
    driver_suffix = (
        "" if kind == "cpu" else ", Metal" if mx.metal.is_available() else ", CUDA"
    )

    engine_name = version if kind == "cpu" else f"{name} ({version})"
    xp = MlxNamespace(mx)
    return TracedArrayEngine(
        xp,
        EngineIdentity(
            engine_name,
            adapter=name,
            api="mlx",
            driver=f"{version}{driver_suffix}",
            software=kind == "cpu",
        ),
        array_target(version, SUPPORTED_DTYPES),
        trace=partial(_compile_per_thread, mx) if trace_plans else None,
        synchronize=mx.eval,
        to_device=lambda array: mx.array(_to_native_byte_order(array)),
        to_host=np.array,
        copied=mx.array,
        from_dlpack=mx.from_dlpack,
        variants=mlx_variants(mx, xp),
        why_lost=lambda: library_threads.fork_problem,
        room=_physical_memory_bytes() if kind == "cpu" else inf,
        around=partial(
            library_context,
            engine_name,
            library_threads,
            ignore_float_errors,
            partial(mx.stream, device),
        ),
    )


def _physical_memory_bytes() -> int:
    """Bytes of the machine's memory: on a CPU MLX reads and writes at address 0 when an
    allocation fails.
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _compile_per_thread(mx: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function by `mx.compile`, once for each thread: streams belong to
    threads.
    """
    thread_state = threading.local()

    def run(arrays: Sequence[Any]) -> Any:
        if not hasattr(thread_state, "run"):
            thread_state.run = mx.compile(function)
        return thread_state.run(arrays)

    return run


def _to_native_byte_order(array: Array) -> Array:
    """Return the same values in this machine's byte order, in row-major order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(
        array.shape
    )
