"""Reductions of float32 on the CPU by native code, along rows or down columns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from math import prod
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.jit_cache import JitCache, compile_cached
from rlxweb.codegen.native_calls import (
    ParallelNativeFunction,
    array_address,
    pack_arguments,
)
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import Shape, normalize_sorted_axes
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.ops.reduce.cpu import numpy as numpy_fast_float32_sums

MIN_ELEMENTS: Final = 1 << 12
"""Elements from which one native call is faster than NumPy's."""
_MIN_VECTOR_ELEMENTS: Final = 16
"""Minimum elements of a row, or columns: the lanes of the widest vectors."""
_TASK_ELEMENTS: Final = 1 << 15
_MAX_TASK_COLUMNS: Final = 1 << 12
"""Adjacent columns whose partial results stay in the nearest cache."""
_MIN_TASK_COLUMNS: Final = 1 << 9
"""Minimum columns of a thread."""
_MIN_THREADED_ELEMENTS: Final = 1 << 18
"""Elements from which starting a second thread pays off."""
_SPLIT_ELEMENTS: Final = 1 << 21
"""Elements of a row, of few rows, from which each row is split among threads."""
_MIN_ROWS: Final = 8
"""Rows from which a reduction down columns pays off."""
_IDENTITY_ELEMENTS: Final = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
_FLOAT64_FOLDS: Final = ("sum", "prod")


class ReductionAxes(NamedTuple):
    """Reduction as one along the middle of three axes."""

    outer: int
    length: int
    inner: int


def reduction_axes(shape: Shape, reduced: tuple[int, ...]) -> ReductionAxes | None:
    """Merge the axes of a shape to three; None if that needs more than three."""
    flagged_sizes = [
        (axis in reduced, size) for axis, size in enumerate(shape) if size != 1
    ]
    runs = [
        (is_reduced, prod(size for _, size in group))
        for is_reduced, group in groupby(
            flagged_sizes, key=lambda flagged_size: flagged_size[0]
        )
    ]
    sizes = [size for _, size in runs]
    pattern = "".join("r" if is_reduced else "k" for is_reduced, _ in runs)
    outer = sizes[0] if pattern[:1] == "k" else 1
    inner = sizes[-1] if pattern[-1:] == "k" else 1
    if pattern not in ("r", "kr", "rk", "krk"):
        return None
    return ReductionAxes(outer, sizes[pattern.index("r")], inner)


def _compile_kernel(key: object) -> ParallelNativeFunction:
    from rlxweb.ops.reduce.cpu.llvm import axis_reduction_llvm_ir

    assert isinstance(key, tuple)
    fold, is_row_reduction = key
    return exported_kernel(
        compile_cached(
            axis_reduction_llvm_ir(
                fold, is_row_reduction, llvm_compiler.host_cpu().vector_nbytes
            )
        )
    )


def exported_kernel(code: llvm_compiler.LoadedCode) -> ParallelNativeFunction:
    """Return the function that a compiled reduction module exports."""
    return ParallelNativeFunction.from_code(code, "reduce")


reduction_kernels: JitCache[ParallelNativeFunction] = JitCache(_compile_kernel)
"""JIT cache of this process's reduction kernels, by fold and direction."""


def _supported_axes(shape: Shape, attrs: Attrs) -> ReductionAxes | None:
    axes = reduction_axes(shape, normalize_sorted_axes(attrs["axes"], len(shape)))
    if axes is None:
        return None
    if axes.inner == 1:
        return axes if axes.length >= _MIN_VECTOR_ELEMENTS else None
    fits = axes.inner >= _MIN_VECTOR_ELEMENTS and axes.length >= _MIN_ROWS
    return axes if fits else None


def _is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    x = inputs[0]
    if (
        x.dtype is not DType.F32
        or x.numel < MIN_ELEMENTS
        or not reduction_kernels.is_enabled
    ):
        return False
    return _supported_axes(x.shape, attrs) is not None


def _make_runner(op: str) -> Callable[..., Any]:
    fold = "sum" if op == "mean" else op

    def run(attrs: Attrs, x: NDArray[Any]) -> NDArray[Any]:
        axes = _supported_axes(x.shape, attrs)
        assert axes is not None  # the gate asked
        key = fold, axes.inner == 1
        kernel = reduction_kernels.get_kernel(key)
        if kernel is None:
            start = perf_counter()
            result = _reduce_by_numpy(op, attrs, x)
            reduction_kernels.record_fallback_time(key, perf_counter() - start)
            return result
        folded = _run_kernel(kernel, fold, axes, np.ascontiguousarray(x))
        if op == "mean":
            folded /= axes.length
        reduced_axes = normalize_sorted_axes(attrs["axes"], x.ndim)
        shape = [
            1 if axis in reduced_axes else size for axis, size in enumerate(x.shape)
        ]
        if not attrs["keep_dim"]:
            shape = [
                size for axis, size in enumerate(x.shape) if axis not in reduced_axes
            ]
        return folded.astype(np.float32, copy=False).reshape(shape)

    return run


def _reduce_by_numpy(op: str, attrs: Attrs, x: NDArray[Any]) -> NDArray[Any]:
    types = (TensorType(x.shape, DType.F32),)
    record = registry.get(op)
    if op in ("sum", "mean") and numpy_fast_float32_sums.is_supported(
        types, types[0], attrs
    ):
        return numpy_fast_float32_sums.sum_in_runs(op)(attrs, x)
    result: NDArray[Any] = record.reference(np, attrs, x)
    return result


def _run_kernel(
    kernel: ParallelNativeFunction, fold: str, axes: ReductionAxes, x: NDArray[Any]
) -> NDArray[Any]:
    """Reduce to (outer · inner,) in the accumulator's type."""
    outer, count, inner = axes
    dtype = np.float64 if fold in _FLOAT64_FOLDS else np.float32
    if inner == 1 and count >= _SPLIT_ELEMENTS and outer < 8:  # shares of each line
        rows = x.reshape(outer, count)
        chunk = count // 16
        partials = [
            np.append(
                _run_kernel(
                    kernel, fold, ReductionAxes(16, chunk, 1), row[: 16 * chunk]
                ),
                _remainder_elements(fold, row[16 * chunk :], dtype),
            )
            for row in rows
        ]
        ufuncs = {
            "sum": np.add,
            "prod": np.multiply,
            "max": np.maximum,
            "min": np.minimum,
        }
        totals: NDArray[Any] = ufuncs[fold].reduce(np.array(partials), axis=1)
        return totals
    out = np.full(outer * inner, _IDENTITY_ELEMENTS[fold], dtype)
    is_threaded = x.size >= _MIN_THREADED_ELEMENTS
    if inner == 1:
        task_size = max(1, _TASK_ELEMENTS // count)
    else:
        chunk = -(-inner // usable_cpus()) if is_threaded else inner
        task_size = min(_MAX_TASK_COLUMNS, max(_MIN_TASK_COLUMNS, chunk))
    claimed = np.zeros(1, np.int64)
    job = pack_arguments(
        array_address(x), array_address(out), *axes, task_size, array_address(claimed)
    )
    kernel(job, threaded=is_threaded and outer * inner > task_size)
    return out


def _remainder_elements(fold: str, row: NDArray[Any], dtype: type) -> NDArray[Any]:
    """Return the few elements that chunks of equal length leave over, after the fold's
    identity.
    """
    start = np.array([_IDENTITY_ELEMENTS[fold]])
    return np.append(start, row).astype(dtype)


KERNELS = tuple(
    KernelVariant(
        f"{op}, compiled", op, for_every_node(_make_runner(op)), _is_supported
    )
    for op in ("sum", "mean", "max", "min", "prod")
)
