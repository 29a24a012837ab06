"""Kernel variants that several array libraries share: frames that are views, not
copies.

Rule: deleting any row changes no result, only time. Tables of one library alone stand
beside its engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.ops.welch.op import power_peaks_reference, welch_power_reference
from rlxweb.ops.welch.parameters import frame_count

FrameFunction = Callable[[Any, int, int, int], Any]
"""Function (rows, size, hop, count) → frames [..., count, size]."""


def is_float_along_last_axis(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether the op works along the last axis, in float32 or float64."""
    x = inputs[0]
    is_float = x.dtype in (DType.F32, DType.F64)
    return is_float and normalize_axis(attrs["axis"], x.rank) == x.rank - 1


def is_plain_attention(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether attention is [B, H, S, D] in float32, unmasked or causal, without
    a cap, with as many keys as queries.
    """
    q, k, v = inputs[:3]
    heads_match = q.rank == 4 and q.shape[1] == attrs["num_heads"]
    shapes_match = (
        q.dtype is DType.F32 and k.shape[:2] == q.shape[:2] and q.shape == v.shape
    )
    mask_fits = attrs["mask_kind"] in ("none", "causal") and attrs["softcap"] is None
    mask_fits = mask_fits and len(inputs) == 3 and attrs["offset"] in (None, 0)
    return heads_match and shapes_match and mask_fits and k.shape == q.shape


def frame_view_variants(
    xp: Any, frame_view: FrameFunction
) -> tuple[KernelVariant, ...]:
    """Return variants of frames, Welch estimates and their peaks over frames that are
    views.
    """

    def frame(attrs: Attrs, x: Any) -> Any:
        size, hop = attrs["length"], attrs["hop"]
        count = frame_count(x.shape[-1], size, hop, attrs["count"])
        return frame_view(x, size, hop, count)

    def power(attrs: Attrs, x: Any, window: Any) -> Any:
        return welch_power_reference(
            xp, attrs, x, window, lambda xp, *arguments: frame_view(*arguments)
        )

    def row_peaks(attrs: Attrs, x: Any, window: Any) -> Any:
        return power_peaks_reference(xp, attrs, power(attrs, x, window))

    return (
        KernelVariant("frame, a view", "frame", for_every_node(frame)),
        KernelVariant(
            "welch_power, frames are views", "welch_power", for_every_node(power)
        ),
        KernelVariant(
            "welch_row_peaks, frames are views",
            "welch_row_peaks",
            for_every_node(row_peaks),
        ),
    )
