"""Low-pass filtering and decimation of rows: one of every `step` samples is kept.

Machine code where the extra `fast` is installed, else one product of matrices: blocks
of a row against the filter's places in a block, whose ends are added to the block
before. At the ends of a row, where there are no samples, its own are taken turned about
the last: a level and a slope go on.
"""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.jit_cache import JitCache, compile_cached
from rlxweb.codegen.native_calls import (
    ParallelNativeFunction,
    array_address,
    pack_arguments,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.ops.welch.decimation_filters import DecimationFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlxweb.codegen.llvm_builder import FloatType

    _DecimationPart = tuple[int, int, int, int]
    """Rows [low, high), outputs [first, stop)."""
    from rlxweb.ops.welch.cpu.llvm_decimation import DecimationKernel

    CompiledDecimation = tuple[ParallelNativeFunction, DecimationKernel]

_TASK_SAMPLES: Final = 1 << 17
"""Samples that a thread takes at a time."""
_MIN_THREADED_SAMPLES: Final = 1 << 20
_BLOCK_SAMPLES: Final = 128
"""Samples of a block of the matrix product; more where the filter is long."""
_LLVM_TYPES: Final[dict[np.dtype[Any], FloatType]] = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}


def _compile_kernel(key: object) -> CompiledDecimation:
    """Compile and load the kernel of `llvm_decimation.py`. Errors  as
    documented there.
    """
    from rlxweb.codegen import llvm_compiler
    from rlxweb.ops.welch.cpu.llvm_decimation import FUNCTION_NAME, DecimationKernel

    element_type, step, tap_count = cast("tuple[FloatType, int, int]", key)
    generator = DecimationKernel(
        element_type, step, tap_count, llvm_compiler.host_cpu().vector_nbytes
    )
    return ParallelNativeFunction.from_code(
        compile_cached(generator.llvm_ir()), FUNCTION_NAME
    ), generator


decimation_kernels: JitCache[CompiledDecimation] = JitCache(_compile_kernel)
"""JIT cache of this process's compiled filters, by (type, step, taps)."""


def decimation_kernel_key(
    filter_: DecimationFilter, dtype: np.dtype[Any]
) -> tuple[FloatType, int, int]:
    """Return the key of a filter's compiled kernel."""
    return _LLVM_TYPES[dtype], filter_.step, len(filter_.taps)


def decimate_rows(x: NDArray[Any], filter_: DecimationFilter) -> NDArray[Any]:
    """Decimate rows x (B, T), float32 or float64, contiguous, to (B, T // step) of that
    dtype.
    """
    n_rows, width = x.shape
    output_count = width // filter_.step
    out = result_pool.empty((n_rows, output_count), x.dtype)
    if not out.size:
        return out
    key, started = decimation_kernel_key(filter_, x.dtype), perf_counter()
    kernel = (
        decimation_kernels.get_kernel(key) if decimation_kernels.is_enabled else None
    )
    first, stop = _interior_outputs(filter_, width)
    if first >= stop:
        first = stop = output_count
    _write_edge_outputs(x, filter_, out, 0, min(first, output_count))
    _write_edge_outputs(x, filter_, out, stop, output_count)
    if first < stop and kernel is not None:
        _run_native(kernel, x, filter_, out, first, stop)
    elif first < stop:
        run_part = _matmul_worker(x, filter_, out)
        for part in _split_tasks(n_rows, first, stop, filter_.step):
            run_part(*part)
    if kernel is None and decimation_kernels.is_enabled:
        decimation_kernels.record_fallback_time(key, perf_counter() - started)
    return out


def _split_tasks(
    n_rows: int, first: int, stop: int, step: int
) -> list[_DecimationPart]:
    """Split the work into parts of about `_TASK_SAMPLES` samples: some rows, or a
    stretch of one.
    """
    task_outputs = max(1, _TASK_SAMPLES // step)
    task_rows = max(1, task_outputs // (stop - first))
    return [
        (
            first_row,
            min(n_rows, first_row + task_rows),
            start,
            min(stop, start + task_outputs),
        )
        for first_row in range(0, n_rows, task_rows)
        for start in range(first, stop, task_outputs)
    ]


def _interior_outputs(filter_: DecimationFilter, width: int) -> tuple[int, int]:
    """Return the outputs [first, stop) whose samples all lie in the row."""
    step, taps = filter_.step, len(filter_.taps)
    first = -(-filter_.lead_samples // step)
    return first, max(0, (width - taps + filter_.lead_samples) // step + 1)


def _write_edge_outputs(
    x: NDArray[Any], filter_: DecimationFilter, out: NDArray[Any], first: int, stop: int
) -> None:
    """Compute the outputs whose samples lie partly beyond an end of the row, and the
    few that fill no block.
    """
    if first < stop:
        first_sample, matrix = _edge_matrix(filter_, x.shape[1], first, stop)
        out[:, first:stop] = (
            x[:, first_sample : first_sample + len(matrix)].astype(np.float64) @ matrix
        )


@lru_cache(maxsize=256)
def _edge_matrix(
    filter_: DecimationFilter, width: int, first: int, stop: int
) -> tuple[int, NDArray[np.float64]]:
    """Return what each sample of a row adds to outputs [first, stop): the first sample
    that contributes, and the matrix (samples, outputs).

    A row goes on as it was, seen from its end: 2 x(end) - x(mirrored).
    """
    starts = np.arange(first, stop)[:, None] * filter_.step - filter_.lead_samples
    positions = starts + np.arange(len(filter_.taps))
    is_before, is_after = positions < 0, positions >= width
    mirrored = np.abs(positions)
    mirrored = np.where(mirrored < width, mirrored, 2 * (width - 1) - mirrored)
    mirrored = np.clip(mirrored, 0, width - 1)
    first_sample = 0 if is_before.any() else int(mirrored.min())
    stop_sample = width if is_after.any() else int(mirrored.max()) + 1
    matrix = np.zeros((stop_sample - first_sample, stop - first))
    taps = np.broadcast_to(filter_.taps, positions.shape)
    outputs = np.broadcast_to(np.arange(stop - first)[:, None], positions.shape)
    signs = np.where(is_before | is_after, -taps, taps)
    np.add.at(matrix, (mirrored - first_sample, outputs), signs)
    matrix[0] += 2.0 * np.where(is_before, taps, 0.0).sum(axis=1)
    matrix[-1] += 2.0 * np.where(is_after, taps, 0.0).sum(axis=1)
    return first_sample, matrix


def _run_native(
    kernel: CompiledDecimation,
    x: NDArray[Any],
    filter_: DecimationFilter,
    out: NDArray[Any],
    first: int,
    stop: int,
) -> None:
    """Compute the interior outputs by the compiled kernel."""
    native_function, generator = kernel
    taps = filter_.taps.astype(x.dtype)
    sample_nbytes, (n_rows, width), step = x.itemsize, x.shape, filter_.step
    # What is read beyond the last sample that counts must lie in the row.
    max_stop = (width - generator.overread_samples + filter_.lead_samples) // step + 1
    output_count = max(0, min(stop, max_stop) - first)
    full_outputs = output_count // generator.block_outputs * generator.block_outputs
    # The last block may go over what was made before: the same numbers.
    output_ranges = [(first, full_outputs)] if full_outputs else []
    if full_outputs and output_count > full_outputs:
        output_ranges.append(
            (first + output_count - generator.block_outputs, generator.block_outputs)
        )
    for start, length in output_ranges:
        stretch_count = -(-length // generator.stretch_outputs)
        stretches_per_task = max(1, _TASK_SAMPLES // (generator.stretch_outputs * step))
        counter = np.zeros(1, np.int64)
        job = pack_arguments(
            array_address(x) + (start * step - filter_.lead_samples) * sample_nbytes,
            array_address(out) + start * sample_nbytes,
            array_address(taps),
            length,
            n_rows,
            width,
            out.shape[1],
            -(-stretch_count // stretches_per_task),
            stretches_per_task,
            array_address(counter),
        )
        native_function(job, threaded=length * n_rows * step >= _MIN_THREADED_SAMPLES)
    _write_edge_outputs(
        x, filter_, out, first + (output_count if full_outputs else 0), stop
    )


@lru_cache(maxsize=64)
def _block_matrix(filter_: DecimationFilter, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the matrix (L, L / step + reach) of what each sample of a block adds to
    each output.

    The first `reach` of these are the last outputs of the block before.
    """
    step, taps = filter_.step, len(filter_.taps)
    reach = -(-(taps - step) // step)
    outputs = max(-(-_BLOCK_SAMPLES // step), reach)
    sample = np.arange(outputs * step)[:, None]
    tap = sample - (np.arange(reach + outputs) - reach)[None, :] * step
    inside = (tap >= 0) & (tap < taps)
    return np.where(inside, filter_.taps[np.clip(tap, 0, taps - 1)], 0.0).astype(dtype)


def _matmul_worker(
    x: NDArray[Any], filter_: DecimationFilter, out: NDArray[Any]
) -> Callable[..., None]:
    """Return the function that computes some rows' interior outputs by a matrix
    product.
    """
    matrix = _block_matrix(filter_, x.dtype)
    block_samples = len(matrix)
    block_outputs = block_samples // filter_.step
    carry_outputs = matrix.shape[1] - block_outputs

    def run_part(first_row: int, stop_row: int, first: int, stop: int) -> None:
        first_sample = first * filter_.step - filter_.lead_samples
        block_count = (x.shape[1] - first_sample) // block_samples
        # The last block's sums want what comes after it.
        written = max(0, min(stop - first, block_count * block_outputs - carry_outputs))
        if written:
            block_rows = x[
                first_row:stop_row,
                first_sample : first_sample + block_count * block_samples,
            ].reshape(-1, block_samples)
            sums = (block_rows @ matrix).reshape(stop_row - first_row, block_count, -1)
            results = sums[:, :, carry_outputs:]
            results[:, :-1, block_outputs - carry_outputs :] += sums[
                :, 1:, :carry_outputs
            ]
            out[first_row:stop_row, first : first + written] = results.reshape(
                stop_row - first_row, -1
            )[:, :written]
        _write_edge_outputs(
            x[first_row:stop_row],
            filter_,
            out[first_row:stop_row],
            first + written,
            stop,
        )

    return run_part
