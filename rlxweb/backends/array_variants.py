"""Rows that several array libraries share: frames that are views, not copies.

Rule: deleting any row changes no result, only time. Tables of one library alone stand
beside its engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape import normal_axis
from rlxweb.ops.welch import peaks_of, power_of
from rlxweb.recipes.welch_plan import frame_count

Cut = Callable[[Any, int, int, int], Any]
"""(rows, size, hop, count) → their frames [..., count, size]."""


def along_last(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Lines along the last axis, in float32 or float64."""
    x = inputs[0]
    wide = x.dtype in (DType.F32, DType.F64)
    return wide and normal_axis(attrs["axis"], x.rank) == x.rank - 1


def plain_attention(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """[B, H, S, D] in float32, unmasked or causal, no cap, as many keys as queries."""
    q, k, v = inputs[:3]
    heads = q.rank == 4 and q.shape[1] == attrs["num_heads"]
    alike = q.dtype is DType.F32 and k.shape[:2] == q.shape[:2] and q.shape == v.shape
    mask = attrs["mask_kind"] in ("none", "causal") and attrs["softcap"] is None
    mask = mask and len(inputs) == 3 and attrs["offset"] in (None, 0)
    return heads and alike and mask and k.shape == q.shape


def framed(xp: Any, cut: Cut) -> tuple[Variant, ...]:
    """Frames, Welch estimates and their peaks over frames that `cut` gives as views."""

    def frame(attrs: Attrs, x: Any) -> Any:
        size, hop = attrs["length"], attrs["hop"]
        count = frame_count(x.shape[-1], size, hop, attrs["count"])
        return cut(x, size, hop, count)

    def power(attrs: Attrs, x: Any, window: Any) -> Any:
        return power_of(xp, attrs, x, window, lambda xp, *how: cut(*how))

    def row_peaks(attrs: Attrs, x: Any, window: Any) -> Any:
        return peaks_of(xp, attrs, power(attrs, x, window))

    return (
        Variant("frame, a view", "frame", None, frame),
        Variant("welch_power, frames are views", "welch_power", None, power),
        Variant(
            "welch_row_peaks, frames are views", "welch_row_peaks", None, row_peaks
        ),
    )
