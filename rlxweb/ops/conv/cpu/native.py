"""Convolution of floats on the CPU: native code, or matrix products over the windows.

Rows of the table of variants. The code for few channels wants lines of a vector's
length; where an image has shorter ones its lines are taken as one, and what stands
between them is left out after. Many channels are products, see
`im2col.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.conv.cpu.im2col import MAX_OFFSETS, Im2colConvCall, im2col_tiling
from rlxweb.ops.conv.cpu.native_phase_split import PhaseSplitCall
from rlxweb.ops.conv.cpu.numpy import NumpyConvolution
from rlxweb.ops.conv.cpu.phase_split import phase_lengths, tap_offsets
from rlxweb.ops.conv.wgsl.plan import ConvolutionShape, convolution_shape
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.matmul.cpu.native import matmul_into, matmul_kernels

Array = NDArray[Any]
ConvFunction = Callable[..., Array]

MIN_WORK: Final = 1 << 12
"""Multiplications from which one native call is faster than several NumPy calls."""
_MANY_CHANNELS: Final = 16
"""Output channels from which a matrix product over the windows is faster."""
_MIN_POINTWISE_WORK: Final = 1 << 16
"""Minimum multiplications for windows of one element, which are one NumPy call."""
_MIN_THREADED_WORK: Final = 1 << 19
_TASKS_PER_THREAD: Final = 8
"""Tasks per thread, so that no thread waits long for the last one."""
_MAX_GROUP_WEIGHTS: Final = 1 << 19
"""Largest number of weights of a group that stay in a core's cache during a pass over
its rows.
"""
_MAX_PHASES: Final = 16
_MAX_VECTOR_WASTE: Final = 1.25
"""Ratio of wasted vectors above which the rows of an image are processed as one."""


def _compile_kernel(tile: object) -> ParallelNativeFunction:
    from rlxweb.ops.conv.cpu.llvm import ConvolutionTile, convolution_llvm_ir

    assert isinstance(tile, ConvolutionTile)
    return exported_kernel(
        compile_cached(
            convolution_llvm_ir(tile, llvm_compiler.host_cpu().vector_nbytes)
        )
    )


def exported_kernel(code: llvm_compiler.LoadedCode) -> ParallelNativeFunction:
    """Return the function that a compiled convolution module exports."""
    return ParallelNativeFunction.from_code(code, "convolution")


conv_kernels: JitCache[ParallelNativeFunction] = JitCache(_compile_kernel)
"""JIT cache of this process's convolution kernels, by tile."""


class ConvRowLayout(NamedTuple):
    """Rows that the native kernel processes: their number, length and strides.

    counts   lines of an image, and of its inner axis
    strides  elements of the result from one line to the next, outer and inner axis
    is_flat  the inner lines of an image are one, `pitch` elements from each other
    """

    counts: tuple[int, int]
    length: int
    strides: tuple[int, int]
    is_flat: bool
    pitch: int


def _is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the input is float32 or float64 and the weights are not empty."""
    is_float = inputs[0].dtype in (DType.F32, DType.F64)
    return is_float and inputs[1].numel > 0


def _fits_native_kernel(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    x, w = inputs
    fits = x.dtype is DType.F32 and _is_supported(inputs, out, attrs)
    if not fits or not conv_kernels.is_enabled:
        return False
    conv = convolution_shape(x.shape, w.shape, attrs)
    windows, m = conv.windows, conv.channels[1]
    work = out.numel * prod(w.shape[1:])
    weights_fit = w.numel // conv.groups <= _MAX_GROUP_WEIGHTS
    phases_fit = prod(windows.strides) <= _MAX_PHASES
    phases_fit = phases_fit and prod(windows.spatial_shape) <= MAX_OFFSETS
    is_pointwise = (
        prod(windows.kernel) == 1 and windows.out_shape == windows.spatial_shape
    )
    min_work = _MIN_POINTWISE_WORK if is_pointwise else MIN_WORK
    return m < _MANY_CHANNELS and work >= min_work and weights_fit and phases_fit


def _plan_matmul(inputs: Types, out: TensorType, attrs: Attrs) -> ConvFunction:
    """Plan a node as matrix products, over windows gathered by native code or laid side
    by side by NumPy.
    """
    conv = convolution_shape(inputs[0].shape, inputs[1].shape, attrs)
    products = (
        NumpyConvolution(conv, matmul_into)
        if matmul_kernels.is_enabled
        else NumpyConvolution(conv)
    )
    fallback = partial(_run_products, products, out.shape)
    if inputs[0].dtype is not DType.F32 or conv.is_depthwise:
        return fallback
    tiling = im2col_tiling(conv)
    if tiling is None:
        return fallback
    return Im2colConvCall(conv, tiling, out.shape, fallback)


def _run_products(
    products: NumpyConvolution, shape: Shape, attrs: Attrs, x: Array, w: Array
) -> Array:
    result = products(_with_spatial_axes(products.conv, x), np.ascontiguousarray(w))
    return result.reshape(shape)


def _with_spatial_axes(conv: ConvolutionShape, x: Array) -> Array:
    return x.reshape(*x.shape[:2], *conv.windows.spatial_shape)


def _plan_native(inputs: Types, out: TensorType, attrs: Attrs) -> ConvFunction:
    """Plan a node as native code; as BLAS products if its rows are too short."""
    from rlxweb.ops.conv.cpu.llvm import convolution_tiles

    conv = convolution_shape(inputs[0].shape, inputs[1].shape, attrs)
    fallback = _plan_matmul(inputs, out, attrs)
    nbytes = llvm_compiler.host_cpu().vector_nbytes
    rows = conv_row_layout(conv, phase_lengths(conv.windows), nbytes // 4)
    if rows is None:
        return fallback
    tile = min(
        (
            candidate
            for candidate in convolution_tiles(nbytes)
            if candidate.rows <= conv.channels[1]
        ),
        key=lambda candidate: _estimate_cycles(
            conv.channels[1], rows, candidate, nbytes // 4
        ),
    )
    return DirectConvCall(conv, tile, rows, out.shape, fallback)


def conv_row_layout(
    conv: ConvolutionShape, phase_lengths: tuple[int, ...], lanes: int
) -> ConvRowLayout | None:
    """Return the rows of a result whose phases have these lengths; None if they are too
    short.

    As they are, or those of the inner axis as one where that wastes less.
    """
    o0, o1, o2 = conv.windows.out_shape
    flat_length = (o1 - 1) * phase_lengths[2] + o2
    if flat_length < lanes:
        return None
    vectors = o1 * -(-o2 // lanes)
    if o2 >= lanes and vectors <= _MAX_VECTOR_WASTE * -(-flat_length // lanes):
        return ConvRowLayout((o0 * o1, o1), o2, (o1 * o2, o2), False, o2)
    return ConvRowLayout(
        (o0, 1), flat_length, (o1 * phase_lengths[2], 0), True, phase_lengths[2]
    )


def _estimate_cycles(
    m: int, layout: ConvRowLayout, tile: tuple[int, int], lanes: int
) -> float:
    """Estimate the cycles of a tap from multiplications, loads and the dependency chain
    of one sum.
    """
    rows, vectors = tile
    iterations = -(-layout.length // (vectors * lanes))
    tile_cycles = max(rows * vectors / 2, (rows + vectors) / 2, 4.0)
    return -(-m // rows) * iterations * tile_cycles


class DirectConvCall:
    """Convolution of few channels, row by row, with everything that depends on sizes
    precomputed.

    fallback  (attributes, x, w) → the result, while there is no code
    """

    def __init__(
        self,
        conv: ConvolutionShape,
        tile: tuple[int, int],
        layout: ConvRowLayout,
        shape: Shape,
        fallback: ConvFunction,
    ) -> None:
        self.conv, self.layout, self.shape = conv, layout, shape
        self.fallback, self.tile = fallback, tile
        (c, m), windows = conv.channels, conv.windows
        batch, groups, (rows, vectors) = conv.batch, conv.groups, tile
        lanes = llvm_compiler.host_cpu().vector_nbytes // 4
        o0, o1, _ = windows.out_shape
        self.phase_split = PhaseSplitCall(batch, groups * c, windows)
        q1, q2 = self.phase_split.shape[-2:]
        channel_elements = prod(self.phase_split.shape[2:])
        offsets = tap_offsets(windows, phase_lengths(windows))
        self.taps = (
            np.arange(c)[:, None] * channel_elements + offsets[None, :]
        ).reshape(-1)
        self.buffer_shape = batch, groups * m, o0, o1, layout.pitch
        self.is_threaded = (
            prod(self.buffer_shape) * self.taps.size >= _MIN_THREADED_WORK
        )
        blocks, last_block_rows = -(-m // rows), m - rows
        channel_stride = o0 * o1 * layout.pitch
        row_count = batch * groups * layout.counts[0]
        min_tasks = _TASKS_PER_THREAD * usable_cpus() if self.is_threaded else 1
        # Few lines are shared out by their channels.
        blocks_per_task = -(-blocks // min(blocks, -(-min_tasks // row_count)))
        tasks_per_row = -(-blocks // blocks_per_task)
        tasks = row_count * tasks_per_row
        tasks_per_claim = max(1, tasks // min_tasks)
        self.job = np.array(
            [
                *(0, 0, 0, array_address(self.taps)),
                *(
                    self.taps.size,
                    tasks,
                    tasks_per_claim,
                    groups,
                    m,
                    blocks,
                    last_block_rows,
                    tasks_per_row,
                    blocks_per_task,
                ),
                *layout.counts,
                *(layout.length, -(-layout.length // (vectors * lanes))),
                *(groups * c * channel_elements, c * channel_elements, q1 * q2, q2),
                *(
                    groups * m * channel_stride,
                    m * channel_stride,
                    channel_stride,
                    *layout.strides,
                ),
            ],
            np.int64,
        )

    def __call__(self, attrs: Attrs, x: Array, w: Array) -> Array:
        """Return the result [N, M, …] of x [N, C, …] and w [M, C / groups, …],
        float32.
        """
        kernel = conv_kernels.get_kernel(self.tile)
        if kernel is None:
            start = perf_counter()
            result = self.fallback(attrs, x, w)
            conv_kernels.record_fallback_time(self.tile, perf_counter() - start)
            return result
        values = self.phase_split(_with_spatial_axes(self.conv, x))
        weights = np.ascontiguousarray(w)
        out = result_pool.empty(self.buffer_shape, np.float32)
        job, claimed = self.job.copy(), np.zeros(1, np.int64)
        job[:3] = array_address(values), array_address(weights), array_address(out)
        kernel(
            pack_arguments(array_address(job), array_address(claimed)),
            threaded=self.is_threaded,
        )
        if self.layout.is_flat:
            out = np.ascontiguousarray(out[..., : self.conv.windows.out_shape[2]])
        return out.reshape(self.shape)


KERNELS = (
    KernelVariant("conv, compiled", "conv", _plan_native, _fits_native_kernel),
    KernelVariant("conv, windows in cache", "conv", _plan_matmul, _is_supported),
)
