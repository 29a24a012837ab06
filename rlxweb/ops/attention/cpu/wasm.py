"""Attention in float32 in a browser's Python, by WebAssembly: one kernel variant.

A row of the table of variants. The module is made once, when the first node wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.native_calls import array_address
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.codegen.wasm_builder import load_fused_module
from rlxweb.core.environment import jit_mode
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, Op, TensorType, Types
from rlxweb.ops.attention.cpu.native import dense_bias, layout_strides, score_scale
from rlxweb.ops.attention.cpu.wasm_codegen import (
    JOB_FIELDS,
    attention_module,
    wasm_scratch_floats,
)
from rlxweb.ops.attention.operand_shapes import infer_attention_sizes
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.matmul.cpu.wasm import WASM_SCRATCH

MIN_ELEMENTS: Final = 1 << 9
"""Elements of a result from which one call is faster than several NumPy calls;
estimated, as for softmax and norms.
"""
_MAX_SCRATCH_FLOATS: Final = 1 << 26
"""Largest scratch memory, in floats."""
_BIAS_STRIDE_FIELDS: Final = slice(
    JOB_FIELDS.index("bias_batch"), JOB_FIELDS.index("bias_row") + 1
)
_SCRATCH_FIELD: Final = JOB_FIELDS.index("room")
_ELEMENT_BYTES: Final = 4
Array = NDArray[Any]


@cache
def _compiled_function() -> Callable[[int], None] | None:
    """Return the compiled function; None in a browser that refuses it."""
    try:
        (function,) = load_fused_module(attention_module, "attention")
    except OSError:  # a browser that refuses it
        return None
    return function


def _is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return True for large enough attention in float32 with no mask but one that is
    added.
    """
    if jit_mode() == "off" or out.numel < MIN_ELEMENTS:
        return False
    if any(operand.dtype is not DType.F32 for operand in inputs[:3]):
        return False
    if attrs["mask_kind"] not in ("none", "bias") or attrs["softcap"] is not None:
        return False
    q, k, v = (operand.shape for operand in inputs[:3])
    sizes = infer_attention_sizes(q, k, v, attrs)
    fits = (
        sizes.SK >= 4
        and sizes.D > 0
        and wasm_scratch_floats(sizes.SQ, sizes.SK, sizes.D) <= _MAX_SCRATCH_FLOATS
    )
    return fits and _compiled_function() is not None


class WasmAttention:
    """Attention of one node, called with its operands."""

    def __init__(self, inputs: Types, out: TensorType, attrs: Attrs) -> None:
        function = _compiled_function()
        assert function is not None  # the gate asked
        self._function, self._shape = function, out.shape
        q, k, v = (operand.shape for operand in inputs[:3])
        sizes = self._sizes = infer_attention_sizes(q, k, v, attrs)
        strides = [
            *layout_strides(sizes.layout, sizes.H, sizes.SQ, sizes.D),
            *layout_strides(sizes.layout, sizes.HK, sizes.SK, sizes.D),
            *layout_strides(sizes.layout, sizes.HK, sizes.SK, sizes.DV),
            *layout_strides(sizes.layout, sizes.H, sizes.SQ, sizes.DV),
            *(0, 0, 0),
        ]
        counts = (
            sizes.B,
            sizes.H,
            sizes.H // sizes.HK,
            sizes.SQ,
            sizes.SK,
            sizes.D,
            sizes.DV,
        )
        job_words = [0] * 5 + [_ELEMENT_BYTES * step for step in strides] + [*counts, 0]
        self._job = np.array(job_words, np.uint32)
        self._job_address = array_address(self._job)
        self._scratch_floats = wasm_scratch_floats(sizes.SQ, sizes.SK, sizes.D)
        self._scale = np.float32(score_scale(sizes, attrs))

    def __call__(
        self, attrs: Attrs, q: Array, k: Array, v: Array, mask: Array | None = None
    ) -> Array:
        """Return the weighted values."""
        out, job = result_pool.empty(self._shape, np.float32), self._job
        operands = [*map(np.ascontiguousarray, (q, k, v)), out]
        bias, bias_strides = dense_bias(self._sizes, mask)
        for field, operand in enumerate((*operands, bias)):
            job[field] = array_address(operand)
        job[_BIAS_STRIDE_FIELDS] = [_ELEMENT_BYTES * step for step in bias_strides]
        scratch = WASM_SCRATCH.buffer(self._scratch_floats)
        scratch[:4] = self._scale
        job[_SCRATCH_FIELD] = array_address(scratch)
        self._function(self._job_address)
        return out


def should_fuse_attention(op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return True if a pattern of ops that means attention is better done as one
    call.
    """
    in_f32 = all(operand.dtype is DType.F32 for operand in inputs)
    return op.name == "attention" and in_f32 and _is_supported(inputs, out, attrs)


KERNELS = (
    KernelVariant(
        "attention, by WebAssembly",
        "attention",
        WasmAttention,
        _is_supported,
        "webassembly",
    ),
)
