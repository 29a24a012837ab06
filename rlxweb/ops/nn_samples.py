"""The cases of attention that every backend must get right.

Layouts, head counts, mask kinds and sizes, kept apart from the declaration because they
are many. Knows only shapes and attributes.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape


def _sample(
    shapes: tuple[Shape, Shape, Shape],
    mask: Drawn | None = None,
    *,
    heads: int = 2,
    size: int = 4,
    dtype: DType = DType.F32,
    note: str = "",
    **attrs: Any,
) -> Sample:
    drawn = [Drawn(shape, dtype) for shape in shapes]
    named = {"num_heads": heads, "head_dim": size, **attrs}
    return Sample((*drawn, *([mask] if mask else [])), named, note)


def _heads_first(
    B: int, H: int, SQ: int, SK: int, D: int = 4
) -> tuple[Shape, Shape, Shape]:
    keys = (B, H, SK, D)
    return (B, H, SQ, D), keys, keys


_EVEN = _heads_first(3, 2, 5, 5)
_LONGER = _heads_first(3, 2, 5, 7)
_SHARED = ((2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
_MASK = (3, 7)

_LAYOUTS = (
    _sample(_EVEN),
    _sample(_LONGER, note="more keys than queries"),
    _sample(((3, 5, 2, 4), (3, 7, 2, 4), (3, 7, 2, 4)), note="[B, S, H, D]"),
    _sample(((3, 5, 8), (3, 7, 8), (3, 7, 8)), note="[B, S, H·D]"),
    _sample(((3, 5, 8), (3, 7, 8), (3, 7, 6)), note="values of another size"),
    _sample(((3, 2, 5, 4), (3, 2, 7, 4), (3, 2, 7, 3)), note="values of another size"),
    _sample(_SHARED, heads=6, note="shared keys"),
    _sample(((2, 5, 24), (2, 7, 8), (2, 7, 8)), heads=6, note="shared keys, flat"),
    _sample(_heads_first(1, 1, 1, 1, 1), heads=1, size=1),
    _sample(_heads_first(1, 3, 67, 101, 16), heads=3, size=16, note="primes"),
    _sample(_heads_first(2, 2, 0, 7), note="no queries"),
    _sample(_heads_first(2, 2, 5, 0), note="no keys: zeros"),
    _sample(_heads_first(0, 2, 5, 7), note="no batches"),
    _sample(_heads_first(65_537, 1, 1, 1, 1), heads=1, size=1, note="many rows"),
)
_MASKS = (
    _sample(_EVEN, mask_kind="causal"),
    _sample(_LONGER, mask_kind="causal"),
    _sample(
        _heads_first(3, 2, 7, 5),
        mask_kind="causal",
        note="the first two queries stand before the first key",
    ),
    _sample(_LONGER, mask_kind="sliding_window", window=2),
    _sample(_LONGER, mask_kind="sliding_window", window=0),
    _sample(_SHARED, heads=6, mask_kind="sliding_window", window=3),
    _sample(_LONGER, mask_kind="causal", offset=0),
    _sample(
        _heads_first(2, 2, 19, 13),
        Drawn((2, 1, 19, 13)),
        mask_kind="causal",
        offset=-2,
        note="beside a bias; the first two queries stand before the first key",
    ),
    _sample(
        _heads_first(2, 2, 33, 71),
        Drawn((1, 71)),
        mask_kind="sliding_window",
        window=9,
        offset=21,
        note="beside a bias",
    ),
    _sample(
        _heads_first(2, 2, 19, 23),
        mask_kind="sliding_window",
        window=9,
        offset=27,
        note="the later queries stand where no window reaches a key",
    ),
    _sample(_LONGER, Drawn(_MASK, DType.BOOL), mask_kind="custom"),
    _sample(_LONGER, Drawn(_MASK, low=0.0, high=1.0), mask_kind="custom"),
    _sample(_LONGER, Drawn((1, 7), DType.I32, 0, 1), mask_kind="custom"),
    _sample(
        _LONGER,
        Drawn(_MASK, low=0.0, high=0.4),
        mask_kind="custom",
        note="every key masked: the mean of all values",
    ),
    _sample(_LONGER, Drawn((3, 2, 5, 7)), mask_kind="bias"),
    _sample(_LONGER, Drawn((1, 2, 1, 7)), mask_kind="bias"),
    _sample(_SHARED, Drawn((6, 5, 1)), heads=6, mask_kind="bias", note="shared keys"),
)
_SCORES = (
    _sample(_LONGER, score_scale=0.1),
    _sample(_LONGER, softcap=1.5),
    _sample(_LONGER, softcap=1.5, score_scale=2.0, mask_kind="causal"),
    _sample(_LONGER, Drawn((3, 2, 5, 7)), softcap=0.5, mask_kind="bias"),
)
_TYPES = (
    _sample(_LONGER, dtype=DType.F16, mask_kind="causal"),
    _sample(_LONGER, Drawn((3, 2, 5, 7), DType.F64), dtype=DType.F64, mask_kind="bias"),
)

SAMPLES = _LAYOUTS + _MASKS + _SCORES + _TYPES
