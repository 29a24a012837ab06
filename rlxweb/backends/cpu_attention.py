"""Attention of float32 on the CPU: machine code, or products of BLAS and our softmax.

Machine code takes it whole where there is no cap, and no mask but one that is added:
scores never leave a core's cache. The rest has its scores from NumPy's BLAS.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_lines import computed, line_kernels
from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.host.shared_code import Shared
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.machine import library
from rlxweb.machine.jobs import packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.workshop import Workshop
from rlxweb.ops.nn import in_heads, masked
from rlxweb.recipes.attention_sizes import Sizes, sizes_of

LEAST: Final = 1 << 11
"""Elements of a result from which a call of ours is faster than several of NumPy's."""
_THREADED: Final = 1 << 20
"""Multiplications from which a second thread is worth its start."""
_QUERIES: Final = 48
"""Of a task, where heads are few."""
_MANY_HEADS: Final = 8
_MOST_KEYS: Final = 1 << 19
"""Numbers of a head's keys, which a thread keeps transposed."""
_NAME: Final = "attention"


def _made(about: object) -> Shared:
    from rlxweb.machine.attention import attention_text

    return function_of(code_of(attention_text(library.processor().nbytes)))


def function_of(code: library.Code) -> Shared:
    """What a module of attention exports, as `machine/attention.py` says."""
    return Shared.of(code, "attention")


attention_kernels: Workshop[Shared] = Workshop(_made, fast_mode)
"""The compiled attention of this process."""


def is_whole(s: Sizes, attrs: Attrs) -> bool:
    """Whether the machine code can say it."""
    plain = attrs["mask_kind"] in ("none", "bias") and attrs["softcap"] is None
    fours = s.D % 16 == 0 and s.DV % 16 == 0 and s.DV > 0
    fits = s.SK >= 16 and s.SQ >= 6 and s.SK * s.D <= _MOST_KEYS
    return plain and fours and fits


def _open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """In float32, whatever the mask is of."""
    alike = all(one.dtype is DType.F32 for one in inputs[:3])
    return alike and out.numel >= LEAST and line_kernels.is_open


def _attention(
    attrs: Attrs,
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    mask: NDArray[Any] | None = None,
) -> NDArray[Any]:
    s = sizes_of(q.shape, k.shape, v.shape, attrs)
    if not is_whole(s, attrs):
        return _by_products(s, attrs, q, k, v, mask)
    kernel = attention_kernels.ready(_NAME)
    if kernel is not None:
        return _computed(kernel, s, attrs, (q, k, v), mask)
    begun = perf_counter()
    made = _by_products(s, attrs, q, k, v, mask)
    attention_kernels.spent(_NAME, perf_counter() - begun)
    return made


def _by_products(
    s: Sizes,
    attrs: Attrs,
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    mask: NDArray[Any] | None,
) -> NDArray[Any]:
    """Products by NumPy's BLAS, the scores' softmax between them in place."""
    kernel = line_kernels.ready("softmax") if s.SK else None
    if kernel is None:
        begun = perf_counter()
        given = (q, k, v) if mask is None else (q, k, v, mask)
        made: NDArray[Any] = registry.get("attention").reference(np, attrs, *given)
        line_kernels.spent("softmax", perf_counter() - begun)
        return made
    qh = in_heads(s, q, s.H, s.D) * np.float32(scale_of(s, attrs))
    kh, vh = in_heads(s, k, s.HK, s.D), in_heads(s, v, s.HK, s.DV)
    if s.H != s.HK:
        kh, vh = (np.repeat(one, s.H // s.HK, axis=1) for one in (kh, vh))
    scores = pool.empty((s.B, s.H, s.SQ, s.SK), np.float32)
    np.matmul(qh, kh.swapaxes(2, 3), out=scores)
    if attrs["softcap"] is not None:
        scores /= np.float32(attrs["softcap"])
        np.tanh(scores, out=scores)
        scores *= np.float32(attrs["softcap"])
    scores = masked(np, attrs, s, scores, mask)
    out = computed(kernel, {}, scores, (), scores) @ vh
    if s.layout != "heads":
        out = out.swapaxes(1, 2)
    return np.ascontiguousarray(out).reshape(s.output)


def scale_of(s: Sizes, attrs: Attrs) -> float:
    """What scores are multiplied by."""
    scale = attrs["score_scale"]
    return float(s.D**-0.5 if scale is None else scale)


def steps_of(layout: str, heads: int, length: int, size: int) -> tuple[int, int, int]:
    """Elements from one batch, head and row to the next."""
    if layout == "heads":
        return heads * length * size, length * size, size
    return heads * length * size, size, heads * size


def bias_of(
    s: Sizes, mask: NDArray[Any] | None
) -> tuple[NDArray[Any], tuple[int, ...]]:
    """What is added to the scores, key by key, and the elements from one batch, head
    and row to the next.
    """
    if mask is None:
        return np.zeros(s.SK, np.float32), (0, 0, 0)
    dense = np.ascontiguousarray(mask, np.float32)
    if dense.shape[-1] != s.SK:  # one number for all keys
        dense = np.repeat(dense, s.SK, axis=-1)
    whole = np.broadcast_to(dense, (s.B, s.H, s.SQ, s.SK))
    return dense, tuple(step // whole.itemsize for step in whole.strides[:3])


def joins(op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Where what spells attention out is better done by the machine code."""
    if op.name != _NAME or not attention_kernels.is_open:
        return False
    q, k, v = (one.shape for one in inputs[:3])
    in_f32 = all(one.dtype is DType.F32 for one in inputs)
    return in_f32 and out.numel >= LEAST and is_whole(sizes_of(q, k, v, attrs), attrs)


def _computed(
    kernel: Shared,
    s: Sizes,
    attrs: Attrs,
    given: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    mask: NDArray[Any] | None,
) -> NDArray[Any]:
    from rlxweb.machine.attention import room_for

    out = pool.empty(s.output, np.float32)
    dense = [np.ascontiguousarray(one) for one in given]
    bias, bias_steps = bias_of(s, mask)
    each = s.SQ if s.B * s.H >= _MANY_HEADS else _QUERIES
    blocks = -(-s.SQ // each)
    steps = [
        steps_of(s.layout, s.H, s.SQ, s.D),
        steps_of(s.layout, s.HK, s.SK, s.D),
        steps_of(s.layout, s.HK, s.SK, s.DV),
        steps_of(s.layout, s.H, s.SQ, s.DV),
        bias_steps,
    ]
    job = np.array(
        [
            *map(address, (*dense, out, bias)),
            *(step for one in steps for step in one),
            *(s.H, s.H // s.HK, s.B * s.H * blocks, blocks, each),
            *(s.SQ, s.SK, s.D, s.DV),
        ],
        np.int64,
    )
    taken, floats = np.zeros(2, np.int64), room_for(s.SK, s.D)
    threaded = s.B * s.H * s.SQ * s.SK * s.D >= _THREADED
    room = pool.empty((floats * (usable_cpus() if threaded else 1),), np.float32)
    own = packed(
        address(job), scale_of(s, attrs), address(room), floats, address(taken)
    )
    kernel(own, threaded=threaded)
    return out


COMPILED: Final = (Variant("attention, compiled", "attention", _open, _attention),)
"""The row, before NumPy's."""
