"""Kernel variants of ops on MLX, each with a condition: `mx.fast` and strided views.

Rule: deleting any row changes no result, only time. The first row whose gate opens is
taken; the op's own reference is the last resort.
"""

from __future__ import annotations

from typing import Any

from rlxweb.engines.array_kernel_variants import (
    frame_view_variants,
    is_float_along_last_axis,
    is_plain_attention,
)
from rlxweb.ir.op import Attrs
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node


def mlx_variants(mx: Any, xp: Any) -> tuple[KernelVariant, ...]:
    """Return the variants for arrays of the namespace `xp`."""

    def frame_signal(x: Any, size: int, hop: int, count: int) -> Any:
        dense = mx.contiguous(x)
        strides: list[int] = []
        stride = 1
        for extent in reversed(x.shape):
            strides.insert(0, stride)
            stride *= extent
        shape = (*x.shape[:-1], count, size)
        return mx.as_strided(dense, shape, (*strides[:-1], hop, 1))

    def rms_norm(attrs: Attrs, x: Any, gamma: Any, beta: Any) -> Any:
        return mx.fast.rms_norm(x, gamma, attrs["eps"]) + beta

    def attention(attrs: Attrs, q: Any, k: Any, v: Any) -> Any:
        scale = attrs["score_scale"]
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        mask = "causal" if attrs["mask_kind"] == "causal" else None
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)

    return (
        *frame_view_variants(xp, frame_signal),
        KernelVariant(
            "rms_norm, mx.fast",
            "rms_norm",
            for_every_node(rms_norm),
            is_float_along_last_axis,
        ),
        KernelVariant(
            "attention, mx.fast",
            "attention",
            for_every_node(attention),
            is_plain_attention,
        ),
    )
