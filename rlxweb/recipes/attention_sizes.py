"""How the operands of attention lie: layouts, head counts, lengths.

Three layouts are told apart by rank and by where the head count stands. What attention
computes is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.ir.op import Attrs
from rlxweb.ir.shape import Shape, bad_shape, show


@dataclass(frozen=True, slots=True)
class Sizes:
    """Letters of attention, and how its operands lie.

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
    def output(self) -> Shape:
        if self.layout == "flat":
            return (self.B, self.SQ, self.H * self.DV)
        rest = (self.H, self.SQ) if self.layout == "heads" else (self.SQ, self.H)
        return (self.B, *rest, self.DV)


def _bhsd(layout: str, shape: Shape, D: int) -> Shape:
    """(B, H, S, D) of an operand."""
    if layout == "flat":
        if D < 1 or shape[2] % D:
            raise bad_shape(
                f"{show(shape)} in heads of {D}",
                f"the last dimension is a multiple of head_dim, {shape[2]} is not",
            )
        return (shape[0], shape[2] // D, shape[1], D)
    if layout == "rows":
        return (shape[0], shape[2], shape[1], shape[3])
    return shape


def sizes_of(q: Shape, k: Shape, v: Shape, attrs: Attrs) -> Sizes:
    """The sizes of one attention. Errors  ShapeError where operands do not fit."""
    H, D = attrs["num_heads"], attrs["head_dim"]
    if len(q) not in (3, 4) or not len(q) == len(k) == len(v):
        raise bad_shape(
            f"ranks {len(q)}, {len(k)} and {len(v)}",
            "q, k and v are all [B, S, H·D], or all [B, H, S, D] or [B, S, H, D]",
        )
    layout = "flat" if len(q) == 3 else "heads" if q[1] == H else "rows"
    of_q, of_k = _bhsd(layout, q, D), _bhsd(layout, k, D)
    if layout == "flat":
        if of_k[1] < 1 or v[2] % of_k[1]:
            raise bad_shape(f"v {show(v)} beside {of_k[1]} key heads")
        of_v = _bhsd(layout, v, v[2] // of_k[1]) if v[2] else (*of_k[:3], 0)
    else:
        of_v = _bhsd(layout, v, D)
    sizes = Sizes(layout, of_q[0], H, of_k[1], of_q[2], of_k[2], D, of_v[3])
    _check(sizes, of_q, of_k, of_v)
    return sizes


def _check(s: Sizes, q: Shape, k: Shape, v: Shape) -> None:
    wanted = (s.B, s.H, s.SQ, s.D)
    if q != wanted:
        raise bad_shape(
            f"q has {q[1]} heads of {q[3]}", f"num_heads is {s.H} and head_dim {s.D}"
        )
    if k != (s.B, s.HK, s.SK, s.D) or v[:3] != (s.B, s.HK, s.SK):
        raise bad_shape(
            f"k is {show(k)} and v {show(v)} as [B, H, S, D]",
            f"beside q {show(q)} both have {s.B} batches and the same heads and "
            f"length, and k has head size {s.D}",
        )
    if s.HK < 1 or s.H % s.HK:
        raise bad_shape(
            f"{s.HK} key heads beside {s.H} query heads",
            "the key heads divide the query heads",
        )


def standing(s: Sizes, attrs: Attrs) -> tuple[int, int]:
    """(the key at which the first query stands, window) of a mask by positions.

    Both within SQ + SK of 0, so that 32 bits hold all positions: where a query stands
    beyond every key, or a window ends there, is as good as just beyond.
    """
    first = s.SK - s.SQ if attrs["offset"] is None else attrs["offset"]
    near = max(-s.SQ, min(first, s.SK))
    return near, near + max(-s.SK, min(attrs["window"] - first, s.SQ))
