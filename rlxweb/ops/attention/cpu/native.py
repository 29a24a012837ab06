"""Attention of float32 on the CPU: native code, or BLAS products with a native softmax.

Machine code takes it whole where there is no cap, and no mask but one that is added:
scores never leave a core's cache. The rest has its scores from NumPy's BLAS.
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
from rlxweb.codegen.native_row_reduction import row_kernels
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.core.fork_safety import cached_property
from rlxweb.core.thread_tasks import usable_cpus
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ops.attention.op import apply_mask, split_heads
from rlxweb.ops.attention.operand_shapes import (
    AttentionSizes,
    infer_attention_sizes,
)
from rlxweb.ops.composed_row_kernel import row_function
from rlxweb.ops.kernel_variant import KernelVariant

MIN_ELEMENTS: Final = 1 << 11
"""Elements of a result from which one native call is faster than several NumPy calls.
"""
_MIN_THREADED_WORK: Final = 1 << 20
"""Multiplications from which starting a second thread pays off."""
_QUERIES_PER_TASK: Final = 48
"""Queries of a task where there are few heads."""
_MANY_HEADS: Final = 8
_MAX_KEY_ELEMENTS: Final = 1 << 19
"""Largest number of key elements of a head, which a thread keeps transposed."""
_KERNEL_KEY: Final = "attention"
_ALONG_KEYS: Final = {"axis": 3}


def _compile_kernel(key: object) -> ParallelNativeFunction:
    from rlxweb.ops.attention.cpu.llvm import attention_llvm_ir

    return exported_kernel(
        compile_cached(attention_llvm_ir(llvm_compiler.host_cpu().vector_nbytes))
    )


def exported_kernel(code: llvm_compiler.LoadedCode) -> ParallelNativeFunction:
    """Return the function that a compiled attention module exports."""
    return ParallelNativeFunction.from_code(code, "attention")


attention_kernels: JitCache[ParallelNativeFunction] = JitCache(_compile_kernel)
"""JIT cache of this process's attention kernel."""


def fits_native_kernel(s: AttentionSizes, attrs: Attrs) -> bool:
    """Return whether the native kernel supports these sizes and attributes."""
    is_plain = attrs["mask_kind"] in ("none", "bias") and attrs["softcap"] is None
    is_aligned = s.D % 16 == 0 and s.DV % 16 == 0 and s.DV > 0
    fits = s.SK >= 16 and s.SQ >= 6 and s.SK * s.D <= _MAX_KEY_ELEMENTS
    return is_plain and is_aligned and fits


def _is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether queries, keys and values are float32 and the output is large
    enough.
    """
    is_float32 = all(tensor_type.dtype is DType.F32 for tensor_type in inputs[:3])
    return is_float32 and out.numel >= MIN_ELEMENTS and row_kernels.is_enabled


class NativeAttention:
    """Attention of one node as a function (attrs, q, k, v, mask) → array."""

    def __init__(self, inputs: Types, out: TensorType, attrs: Attrs) -> None:
        q, k, v = (operand.shape for operand in inputs[:3])
        self.sizes = infer_attention_sizes(q, k, v, attrs)
        self.fits_kernel = fits_native_kernel(self.sizes, attrs)

    @cached_property
    def softmax(self) -> Callable[..., NDArray[Any]]:
        """Softmax of scores along the keys."""
        s = self.sizes
        scores = TensorType((s.B, s.H, s.SQ, s.SK), DType.F32)
        return row_function("softmax", (scores,), _ALONG_KEYS)

    def __call__(
        self,
        attrs: Attrs,
        q: NDArray[Any],
        k: NDArray[Any],
        v: NDArray[Any],
        mask: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        if not self.fits_kernel:
            return _attention_by_blas(self.sizes, self.softmax, attrs, q, k, v, mask)
        kernel = attention_kernels.get_kernel(_KERNEL_KEY)
        if kernel is not None:
            return _run_kernel(kernel, self.sizes, attrs, (q, k, v), mask)
        start = perf_counter()
        output = _attention_by_blas(self.sizes, self.softmax, attrs, q, k, v, mask)
        attention_kernels.record_fallback_time(_KERNEL_KEY, perf_counter() - start)
        return output


def _attention_by_blas(
    s: AttentionSizes,
    softmax: Callable[..., NDArray[Any]],
    attrs: Attrs,
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    mask: NDArray[Any] | None,
) -> NDArray[Any]:
    """Compute attention with NumPy's BLAS and compiled softmax of the scores."""
    if not s.SK:
        operands = (q, k, v) if mask is None else (q, k, v, mask)
        output: NDArray[Any] = registry.get("attention").reference(np, attrs, *operands)
        return output
    qh = split_heads(s, q, s.H, s.D) * np.float32(score_scale(s, attrs))
    kh, vh = split_heads(s, k, s.HK, s.D), split_heads(s, v, s.HK, s.DV)
    if s.H != s.HK:
        kh, vh = (np.repeat(array, s.H // s.HK, axis=1) for array in (kh, vh))
    scores = result_pool.empty((s.B, s.H, s.SQ, s.SK), np.float32)
    np.matmul(qh, kh.swapaxes(2, 3), out=scores)
    if attrs["softcap"] is not None:
        scores /= np.float32(attrs["softcap"])
        np.tanh(scores, out=scores)
        scores *= np.float32(attrs["softcap"])
    scores = apply_mask(np, attrs, s, scores, mask)
    out = softmax(_ALONG_KEYS, scores) @ vh
    if s.layout != "heads":
        out = out.swapaxes(1, 2)
    return np.ascontiguousarray(out).reshape(s.output_shape)


def score_scale(s: AttentionSizes, attrs: Attrs) -> float:
    """Return the factor of the scores."""
    scale = attrs["score_scale"]
    return float(s.D**-0.5 if scale is None else scale)


def layout_strides(
    layout: str, heads: int, length: int, size: int
) -> tuple[int, int, int]:
    """Return the strides of batch, head and row, in elements."""
    if layout == "heads":
        return heads * length * size, length * size, size
    return heads * length * size, size, heads * size


def dense_bias(
    s: AttentionSizes, mask: NDArray[Any] | None
) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return the bias of the scores, contiguous along the keys, and its strides of
    batch, head and row in elements.
    """
    if mask is None:
        return np.zeros(s.SK, np.float32), (0, 0, 0)
    dense = np.ascontiguousarray(mask, np.float32)
    if dense.shape[-1] != s.SK:  # one number for all keys
        dense = np.repeat(dense, s.SK, axis=-1)
    broadcast = np.broadcast_to(dense, (s.B, s.H, s.SQ, s.SK))
    return dense, tuple(step // broadcast.itemsize for step in broadcast.strides[:3])


def prefers_fused_attention(
    op: Op, inputs: Types, out: TensorType, attrs: Attrs
) -> bool:
    """Return whether a fusion pattern of attention should run as the native kernel."""
    if op.name != _KERNEL_KEY or not attention_kernels.is_enabled:
        return False
    q, k, v = (tensor_type.shape for tensor_type in inputs[:3])
    is_float32 = all(tensor_type.dtype is DType.F32 for tensor_type in inputs)
    return (
        is_float32
        and out.numel >= MIN_ELEMENTS
        and fits_native_kernel(infer_attention_sizes(q, k, v, attrs), attrs)
    )


def _run_kernel(
    kernel: ParallelNativeFunction,
    s: AttentionSizes,
    attrs: Attrs,
    operands: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    mask: NDArray[Any] | None,
) -> NDArray[Any]:
    from rlxweb.ops.attention.cpu.llvm import attention_scratch_floats

    out = result_pool.empty(s.output_shape, np.float32)
    dense = [np.ascontiguousarray(item) for item in operands]
    bias, bias_strides = dense_bias(s, mask)
    queries_per_task = s.SQ if s.B * s.H >= _MANY_HEADS else _QUERIES_PER_TASK
    blocks = -(-s.SQ // queries_per_task)
    strides = [
        layout_strides(s.layout, s.H, s.SQ, s.D),
        layout_strides(s.layout, s.HK, s.SK, s.D),
        layout_strides(s.layout, s.HK, s.SK, s.DV),
        layout_strides(s.layout, s.H, s.SQ, s.DV),
        bias_strides,
    ]
    job = np.array(
        [
            *map(array_address, (*dense, out, bias)),
            *(stride for item in strides for stride in item),
            *(s.H, s.H // s.HK, s.B * s.H * blocks, blocks, queries_per_task),
            *(s.SQ, s.SK, s.D, s.DV),
        ],
        np.int64,
    )
    claimed, scratch_floats = np.zeros(2, np.int64), attention_scratch_floats(s.SK, s.D)
    is_threaded = s.B * s.H * s.SQ * s.SK * s.D >= _MIN_THREADED_WORK
    scratch = result_pool.empty(
        (scratch_floats * (usable_cpus() if is_threaded else 1),), np.float32
    )
    arguments = pack_arguments(
        array_address(job),
        score_scale(s, attrs),
        array_address(scratch),
        scratch_floats,
        array_address(claimed),
    )
    kernel(arguments, threaded=is_threaded)
    return out


KERNELS = (
    KernelVariant(
        "attention, compiled",
        "attention",
        NativeAttention,
        _is_supported,
    ),
)
