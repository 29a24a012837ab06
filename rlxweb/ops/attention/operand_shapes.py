"""Operand layouts, head counts and lengths of attention.

Three layouts are told apart by rank and by where the head count stands. What attention
computes is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.ir.op import Attrs
from rlxweb.ir.shape_arithmetic import Shape, bad_shape, format_shape


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Sizes of one attention, and the layout of its operands.

    layout  "heads" [B, H, S, D], "rows" [B, S, H, D] or "flat" [B, S, H·D]
    HK      key heads; D and DV head sizes of keys and of values
    """

    layout: str
    B: int
    H: int
    HK: int
    SQ: int
    SK: int
    D: int
    DV: int

    @property
    def output_shape(self) -> Shape:
        """Shape of the result."""
        if self.layout == "flat":
            return (self.B, self.SQ, self.H * self.DV)
        middle = (self.H, self.SQ) if self.layout == "heads" else (self.SQ, self.H)
        return (self.B, *middle, self.DV)


def _bhsd_shape(layout: str, shape: Shape, D: int) -> Shape:
    """Return an operand's shape as (B, H, S, D)."""
    if layout == "flat":
        if D < 1 or shape[2] % D:
            raise bad_shape(
                f"cannot split {format_shape(shape)} into heads of size {D}",
                f"the last dimension, {shape[2]}, must be a multiple of head_dim, {D}",
            )
        return (shape[0], shape[2] // D, shape[1], D)
    if layout == "rows":
        return (shape[0], shape[2], shape[1], shape[3])
    return shape


def infer_attention_sizes(q: Shape, k: Shape, v: Shape, attrs: Attrs) -> AttentionSizes:
    """Return the sizes of one attention. Errors  ShapeError where operands do not
    fit.
    """
    H, D = attrs["num_heads"], attrs["head_dim"]
    if len(q) not in (3, 4) or not len(q) == len(k) == len(v):
        raise bad_shape(
            f"got ranks {len(q)}, {len(k)} and {len(v)}",
            "q, k and v must all be [B, S, H·D], all [B, H, S, D] or all [B, S, H, D]",
        )
    layout = "flat" if len(q) == 3 else "heads" if q[1] == H else "rows"
    q_shape, k_shape = _bhsd_shape(layout, q, D), _bhsd_shape(layout, k, D)
    if layout == "flat":
        if k_shape[1] < 1 or v[2] % k_shape[1]:
            raise bad_shape(
                f"cannot split v {format_shape(v)} into {k_shape[1]} key heads",
                "the number of key heads must be at least 1 and divide the last "
                f"dimension of v, {v[2]}",
            )
        v_shape = (
            _bhsd_shape(layout, v, v[2] // k_shape[1]) if v[2] else (*k_shape[:3], 0)
        )
    else:
        v_shape = _bhsd_shape(layout, v, D)
    sizes = AttentionSizes(
        layout, q_shape[0], H, k_shape[1], q_shape[2], k_shape[2], D, v_shape[3]
    )
    _check_operand_shapes(sizes, q_shape, k_shape, v_shape)
    return sizes


def _check_operand_shapes(s: AttentionSizes, q: Shape, k: Shape, v: Shape) -> None:
    expected = (s.B, s.H, s.SQ, s.D)
    if q != expected:
        raise bad_shape(
            f"q has {q[1]} heads of size {q[3]}",
            f"num_heads is {s.H} and head_dim is {s.D}",
        )
    if k != (s.B, s.HK, s.SK, s.D) or v[:3] != (s.B, s.HK, s.SK):
        raise bad_shape(
            f"got k {format_shape(k)} and v {format_shape(v)} as [B, H, S, D]",
            f"with q {format_shape(q)}, k and v must have batch size {s.B} and equal "
            f"numbers of heads and keys, and k must have head size {s.D}",
        )
    if s.HK < 1 or s.H % s.HK:
        raise bad_shape(
            f"got {s.HK} key heads and {s.H} query heads",
            "the number of key heads must divide the number of query heads",
        )


def mask_positions(s: AttentionSizes, attrs: Attrs) -> tuple[int, int]:
    """Return (the key position of the first query, window) of a mask by positions.

    Both within SQ + SK of 0, so that 32 bits hold all positions: where a query stands
    beyond every key, or a window ends there, is as good as just beyond.
    """
    offset = s.SK - s.SQ if attrs["offset"] is None else attrs["offset"]
    first_key = max(-s.SQ, min(offset, s.SK))
    return first_key, first_key + max(-s.SK, min(attrs["window"] - offset, s.SQ))
