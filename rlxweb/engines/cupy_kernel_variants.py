"""Kernel variants on CuPy, each behind a gate: cuFFT and CUDA kernels of rlxweb's own.

Rule: deleting any row changes no result, only time. The first row whose gate opens is
taken; the op's own reference is the last resort. Worked out on paper, and not run on a
GPU yet: two or three reads of a line where the library's functions make five passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from rlxweb.engines.array_kernel_variants import is_float_along_last_axis
from rlxweb.engines.cupy_kernels import MAX_BLOCK_THREADS, cuda_source
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.ops.welch.parameters import (
    WelchParameters,
    centred_ramp,
    doubled_bin_slice,
    frame_count,
    welch_parameters,
)

MAX_FRAME_BYTES = 256 << 20
"""Approximate limit, in bytes, of the frames and spectra of Welch estimates that exist
at once.
"""
_MIN_ROW_ELEMENTS = 32  # shorter lines leave most of a warp idle
_MAX_K = 32  # more searches than that cost more than a sort
_DETREND_CODES = {"none": 0, "constant": 1, "linear": 2}
_FLOATS = (DType.F32, DType.F64)


def cupy_variants(
    cupy: Any, make_module: Callable[..., Any]
) -> tuple[KernelVariant, ...]:
    """Return the kernel variants for CuPy's arrays.

    make_module  `cupy.RawModule` with the flags of the compiler put in
    """
    row_kernels = _CudaRowKernels(cupy, make_module)
    welch = _CudaWelch(cupy, make_module)
    return (
        KernelVariant("frame, a strided view", "frame", for_every_node(welch.frame)),
        KernelVariant(
            "welch_power, cuFFT", "welch_power", for_every_node(welch.power), _is_float
        ),
        KernelVariant(
            "welch_row_peaks, cuFFT",
            "welch_row_peaks",
            for_every_node(welch.peaks),
            _has_few_peaks,
        ),
        KernelVariant(
            "power_peaks, block a row",
            "power_peaks",
            for_every_node(row_kernels.top_pairs),
            _has_few_peaks,
        ),
        KernelVariant(
            "topk, block a row",
            "topk",
            for_every_node(row_kernels.top_indices),
            _has_few_indices,
        ),
        KernelVariant(
            "softmax, block a row",
            "softmax",
            for_every_node(row_kernels.softmax),
            _has_long_rows,
        ),
        KernelVariant(
            "layer_norm, block a row",
            "layer_norm",
            for_every_node(row_kernels.layer_norm),
            _has_long_rows,
        ),
        KernelVariant(
            "rms_norm, block a row",
            "rms_norm",
            for_every_node(row_kernels.rms_norm),
            _has_long_rows,
        ),
    )


def _is_float(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    return inputs[0].dtype in _FLOATS


def _has_long_rows(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    same_dtype = all(tensor_type.dtype is out.dtype for tensor_type in inputs)
    return (
        same_dtype
        and is_float_along_last_axis(inputs, out, attrs)
        and out.shape[-1] >= _MIN_ROW_ELEMENTS
    )


def _has_few_peaks(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    return inputs[0].dtype in _FLOATS and attrs["k"] <= _MAX_K


def _has_few_indices(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    return (
        _has_few_peaks(inputs, out, attrs) and inputs[0].shape[-1] >= _MIN_ROW_ELEMENTS
    )


def block_threads(n: int) -> int:
    """Return the threads of a block for a row of n elements: about eight elements each,
    whole warps.
    """
    threads = 32
    while threads < MAX_BLOCK_THREADS and threads * 8 < n:
        threads *= 2
    return threads


class _CudaKernels:
    """Launcher of CUDA kernels by name; one module per element type, compiled on first
    use.
    """

    def __init__(self, cupy: Any, make_module: Callable[..., Any]) -> None:
        self.cupy = cupy
        module_of_type = cache(
            lambda element_type: make_module(code=cuda_source(element_type))
        )
        self._get_kernel = cache(
            lambda element_type, name: module_of_type(element_type).get_function(name)
        )

    def launch(
        self, name: str, template: Any, block_count: int, threads: int, *arguments: Any
    ) -> None:
        """Run a kernel for the template's element type; ints are passed as 64 bits."""
        element_type = "double" if template.dtype == np.float64 else "float"
        typed_arguments = (
            np.int64(argument) if isinstance(argument, int) else argument
            for argument in arguments
        )
        self._get_kernel(element_type, name)(
            (block_count,), (threads,), tuple(typed_arguments)
        )


class _CudaRowKernels(_CudaKernels):
    """Ops on rows along the last axis, one CUDA block per row."""

    def softmax(self, attrs: Attrs, x: Any) -> Any:
        x = self.cupy.ascontiguousarray(x)
        out, n = self.cupy.empty(x.shape, x.dtype), x.shape[-1]
        self.launch("softmax", x, x.size // n, block_threads(n), x, out, n)
        return out

    def layer_norm(self, attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        return self._normalize(attrs, x, gamma, beta, is_centered=1)

    def rms_norm(self, attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        return self._normalize(attrs, x, gamma, beta, is_centered=0)

    def _normalize(
        self, attrs: Attrs, x: Any, gamma: Any, beta: Any, *, is_centered: int
    ) -> Any:
        x, gamma, beta = map(self.cupy.ascontiguousarray, (x, gamma, beta))
        out, n = self.cupy.empty(x.shape, x.dtype), x.shape[-1]
        parameters = (n, np.float64(attrs["eps"]), is_centered)
        self.launch(
            "normed", x, x.size // n, block_threads(n), x, gamma, beta, out, *parameters
        )
        return out

    def top_pairs(self, attrs: Attrs, power: Any) -> Any:
        power = self.cupy.ascontiguousarray(power)
        (rows, bins), k = power.shape, attrs["k"]
        out = self.cupy.empty((rows, 2 * k), power.dtype)
        self.launch(
            "strongest_pairs", power, rows, block_threads(bins), power, out, bins, k
        )
        return out

    def top_indices(self, attrs: Attrs, x: Any) -> Any:
        x = self.cupy.ascontiguousarray(x)
        n, k = x.shape[-1], attrs["k"]
        out = self.cupy.empty((*x.shape[:-1], k), np.int32)
        self.launch("strongest_places", x, x.size // n, block_threads(n), x, out, n, k)
        return out


class _CudaWelch(_CudaRowKernels):
    """Welch estimates in blocks: frames by one kernel, cuFFT, then power and mean by
    another.
    """

    def frame(self, attrs: Attrs, x: Any) -> Any:
        size, hop = attrs["length"], attrs["hop"]
        count = frame_count(x.shape[-1], size, hop, attrs["count"])
        shape = (*x.shape[:-1], count, size)
        strides = (*x.strides[:-1], hop * x.strides[-1], x.strides[-1])
        return self.cupy.lib.stride_tricks.as_strided(x, shape, strides)

    def power(self, attrs: Attrs, x: Any, window: Any) -> Any:
        x, window = map(self.cupy.ascontiguousarray, (x, window))
        plan = welch_parameters(x.shape, window.shape[0], attrs)
        ramp = self.cupy.asarray(centred_ramp(plan.n).astype(x.dtype))
        out = self.cupy.empty((plan.rows, plan.bins), x.dtype)
        rows_per_block, segments_per_block = block_sizes(plan, x.dtype.itemsize)
        for rows in _chunk_ranges(plan.rows, rows_per_block):
            shape = (
                (len(rows), plan.bins) if segments_per_block < plan.segments else (1, 1)
            )
            total = self.cupy.empty(shape, np.float64)
            part = slice(rows.start, rows.stop)
            for segments in _chunk_ranges(plan.segments, segments_per_block):
                z = self._segment_spectra(plan, x[part], window, ramp, segments)
                self._accumulate_mean(plan, z, total, out[part], segments)
        return out

    def _segment_spectra(
        self, plan: WelchParameters, x: Any, window: Any, ramp: Any, segments: range
    ) -> Any:
        segment_total = x.shape[0] * len(segments)
        frames = self.cupy.empty((segment_total, plan.nfft), x.dtype)
        frame_parameters = (plan.width, plan.n, plan.hop, segments.start, len(segments))
        parameters = (*frame_parameters, plan.nfft, _DETREND_CODES[plan.detrend])
        self.launch(
            "welch_frames",
            x,
            segment_total,
            block_threads(plan.nfft),
            x,
            window,
            ramp,
            frames,
            *parameters,
        )
        return self.cupy.fft.rfft(frames, axis=-1)

    def _accumulate_mean(
        self, plan: WelchParameters, z: Any, total: Any, out: Any, segments: range
    ) -> None:
        doubled = doubled_bin_slice(plan.nfft) if plan.doubling else slice(0, 0)
        factor = np.float64(plan.scale / plan.segments)
        is_last = int(segments.stop == plan.segments)
        parameters = (
            doubled.start,
            doubled.stop,
            factor,
            int(not segments.start),
            is_last,
        )
        block_count = out.shape[0] * -(-plan.bins // 32)
        arguments = (z, total, out, plan.bins, len(segments), *parameters)
        self.launch("welch_mean", out, block_count, MAX_BLOCK_THREADS, *arguments)

    def peaks(self, attrs: Attrs, x: Any, window: Any) -> Any:
        return self.top_pairs(attrs, self.power(attrs, x, window))


def block_sizes(plan: WelchParameters, itemsize: int) -> tuple[int, int]:
    """Return the rows, and the segments of each, whose frames and spectra fit
    `MAX_FRAME_BYTES`.
    """
    segment_bytes = (plan.nfft + 2 * plan.bins) * itemsize
    max_segments = max(1, MAX_FRAME_BYTES // segment_bytes)
    return max(1, max_segments // plan.segments), min(max_segments, plan.segments)


def _chunk_ranges(count: int, chunk: int) -> Iterator[range]:
    for start in range(0, count, chunk):
        yield range(start, min(start + chunk, count))
