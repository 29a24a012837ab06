"""Phase split of a convolution's input by native code, or by NumPy until the code is
compiled.

`phase_split.py` says how; NumPy does it until the code is there.
"""

from __future__ import annotations

from math import prod
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.jit_cache import JitCache, compile_cached
from rlxweb.codegen.native_calls import (
    ParallelNativeFunction,
    array_address,
    pack_arguments,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.ops.conv.cpu.llvm_phase_split import (
    JOB_FIELDS,
    VECTOR_STRIDES,
    phase_split_llvm_ir,
)
from rlxweb.ops.conv.cpu.phase_split import phase_lengths, split_phases
from rlxweb.ops.conv.windows import SlidingWindows

Array = NDArray[Any]

_MIN_THREADED_ELEMENTS: Final = 1 << 16
"""Elements from which threads share the work."""
_TASKS_PER_THREAD: Final = 4
"""Tasks per thread, so that no thread waits long for the last one."""


def _compile_kernel(stride: object) -> ParallelNativeFunction:
    assert isinstance(stride, int)
    return exported_kernel(
        compile_cached(
            phase_split_llvm_ir(stride, llvm_compiler.host_cpu().vector_nbytes)
        )
    )


def exported_kernel(code: llvm_compiler.LoadedCode) -> ParallelNativeFunction:
    """Return the function that a compiled phase split module exports."""
    return ParallelNativeFunction.from_code(code, "phases")


phase_kernels: JitCache[ParallelNativeFunction] = JitCache(_compile_kernel)
"""JIT cache of this process's phase split kernels, by the stride of the last axis."""


class PhaseSplitCall:
    """Phase split of float32 arrays [N, C, three axes] of one size.

    shape  what it makes of them
    """

    def __init__(self, batch: int, channels: int, windows: SlidingWindows) -> None:
        self.windows = windows
        lengths = phase_lengths(windows)
        self.shape = batch, channels, *windows.strides, *lengths
        keeps_shape = windows.strides == (1, 1, 1) and lengths == windows.spatial_shape
        self.is_identity = keeps_shape and not any(windows.pads_before)
        if self.is_identity:
            return
        stride = windows.strides[2]
        self.kernel_stride = stride if stride in VECTOR_STRIDES else 0
        self.is_threaded = prod(self.shape) >= _MIN_THREADED_ELEMENTS
        count, self.row_table = batch * channels, _row_table(windows)
        min_tasks = _TASKS_PER_THREAD * usable_cpus() if self.is_threaded else 1
        fields = {
            "table": array_address(self.row_table),
            "channels": count,
            "each": max(1, count // min_tasks),
            "given": prod(windows.spatial_shape),
            "lines": len(self.row_table),
            "length": lengths[2],
            "stride": stride,
        }
        self.job = np.array([fields.get(name, 0) for name in JOB_FIELDS], np.int64)

    def __call__(self, x: Array) -> Array:
        """Return the values [N, C, three phases, three axes]."""
        if self.is_identity:
            return np.ascontiguousarray(x).reshape(self.shape)
        kernel = phase_kernels.get_kernel(self.kernel_stride)
        if kernel is None:
            start = perf_counter()
            result = split_phases(x, self.windows)
            phase_kernels.record_fallback_time(
                self.kernel_stride, perf_counter() - start
            )
            return result
        x, out = np.ascontiguousarray(x), result_pool.empty(self.shape, np.float32)
        job, claimed = self.job.copy(), np.zeros(1, np.int64)
        job[:2] = array_address(x), array_address(out)
        kernel(
            pack_arguments(array_address(job), array_address(claimed)),
            threaded=self.is_threaded,
        )
        return out


def _row_table(w: SlidingWindows) -> NDArray[np.int32]:
    """Return the first element, leading padding and length of each row of a channel."""
    places = np.arange(1, prod(w.spatial_shape) + 1).reshape(1, 1, *w.spatial_shape)
    phases = split_phases(places, w)
    rows = phases.reshape(-1, phases.shape[-1])
    is_element = rows != 0
    padding_before, count = is_element.argmax(axis=1), is_element.sum(axis=1)
    first = np.maximum(rows[np.arange(len(rows)), padding_before] - 1, 0)
    return np.stack([first, padding_before, count], axis=1).astype(np.int32)
