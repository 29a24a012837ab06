"""Softmax and norms along the last axis on the CPU, as one native function.

Rows of the table of variants: where a gate opens the code is used once it is there, and
the op's reference until then.
"""

from __future__ import annotations

from collections.abc import Callable
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
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ops.cache_blocking import attr_axis, blocked_kernels, blocked_op
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node

OPS: Final = ("softmax", "layer_norm", "rms_norm")
MIN_ELEMENTS: Final = 1 << 11
"""Elements from which one native call is faster than several NumPy calls."""
_TASK_ELEMENTS: Final = 1 << 13
_MIN_THREADED_ELEMENTS: Final = 1 << 15


def _compile_kernel(op: object) -> ParallelNativeFunction:
    from rlxweb.ops.norm.cpu.llvm import row_normalization_llvm_ir

    return exported_kernel(
        compile_cached(
            row_normalization_llvm_ir(str(op), llvm_compiler.host_cpu().vector_nbytes)
        )
    )


def exported_kernel(code: llvm_compiler.LoadedCode) -> ParallelNativeFunction:
    """Return the function that a compiled softmax or norm module exports."""
    return ParallelNativeFunction.from_code(code, "lines")


softmax_norm_kernels: JitCache[ParallelNativeFunction] = JitCache(_compile_kernel)
"""JIT cache of this process's softmax and norm kernels, by op."""


def _is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the op works along the last axis, in float32, on enough
    elements.
    """
    is_float32 = all(tensor_type.dtype is DType.F32 for tensor_type in inputs)
    is_last_axis = normalize_axis(attrs["axis"], out.rank) == out.rank - 1
    return (
        is_float32
        and is_last_axis
        and out.numel >= MIN_ELEMENTS
        and softmax_norm_kernels.is_enabled
    )


def _make_runner(op: str) -> Callable[..., Any]:
    by_numpy = blocked_op(op, attr_axis)

    def run(attrs: Attrs, x: NDArray[Any], *parameters: NDArray[Any]) -> NDArray[Any]:
        kernel = softmax_norm_kernels.get_kernel(op)
        if kernel is not None:
            return run_softmax_norm(kernel, attrs, x, parameters)
        start = perf_counter()
        result = by_numpy(attrs, x, *parameters)
        softmax_norm_kernels.record_fallback_time(op, perf_counter() - start)
        return result

    return run


def run_softmax_norm(
    kernel: ParallelNativeFunction,
    attrs: Attrs,
    x: NDArray[Any],
    parameters: tuple[NDArray[Any], ...],
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Run the kernel on the rows of x, into `out` or a new array."""
    x = np.ascontiguousarray(x)
    out, n = result_pool.empty(x.shape, np.float32) if out is None else out, x.shape[-1]
    rows = x.size // n
    dense_parameters = [np.ascontiguousarray(parameter) for parameter in parameters]
    parameter_addresses = [
        array_address(parameter) for parameter in dense_parameters
    ] or [0, 0]
    eps = float(attrs.get("eps", 0.0))
    claimed = np.zeros(1, np.int64)
    rows_per_task = max(1, _TASK_ELEMENTS // n)
    row_arguments = array_address(x), array_address(out), rows, n
    job = pack_arguments(
        *row_arguments, *parameter_addresses, eps, array_address(claimed), rows_per_task
    )
    kernel(job, threaded=x.size >= _MIN_THREADED_ELEMENTS and rows > rows_per_task)
    return out


KERNELS = (
    *(
        KernelVariant(
            f"{op}, compiled", op, for_every_node(_make_runner(op)), _is_supported
        )
        for op in OPS
    ),
    *blocked_kernels(attr_axis, *OPS),
)
