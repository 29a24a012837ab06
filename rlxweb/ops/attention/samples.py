"""Samples of attention that every engine must get right.

Layouts, head counts, mask kinds and sizes, kept apart from the declaration because they
are many. Knows only shapes and attributes.
"""

from __future__ import annotations

from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape


def _sample(
    shapes: tuple[Shape, Shape, Shape],
    mask: Drawn | None = None,
    *,
    num_heads: int = 2,
    head_size: int = 4,
    dtype: DType = DType.F32,
    note: str = "",
    **attrs: Any,
) -> Sample:
    inputs = [Drawn(shape, dtype) for shape in shapes]
    all_attrs = {"num_heads": num_heads, "head_dim": head_size, **attrs}
    return Sample((*inputs, *([mask] if mask else [])), all_attrs, note)


def _heads_first_shapes(
    B: int, H: int, SQ: int, SK: int, D: int = 4
) -> tuple[Shape, Shape, Shape]:
    keys = (B, H, SK, D)
    return (B, H, SQ, D), keys, keys


_EQUAL_LENGTHS = _heads_first_shapes(3, 2, 5, 5)
_MORE_KEYS = _heads_first_shapes(3, 2, 5, 7)
_SHARED_KEYS = ((2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
_MASK_SHAPE = (3, 7)

_LAYOUTS = (
    _sample(_EQUAL_LENGTHS),
    _sample(_MORE_KEYS, note="more keys than queries"),
    _sample(((3, 5, 2, 4), (3, 7, 2, 4), (3, 7, 2, 4)), note="[B, S, H, D]"),
    _sample(((3, 5, 8), (3, 7, 8), (3, 7, 8)), note="[B, S, H·D]"),
    _sample(
        ((3, 5, 8), (3, 7, 8), (3, 7, 6)),
        note="v with another last dimension than q and k",
    ),
    _sample(
        ((3, 2, 5, 4), (3, 2, 7, 4), (3, 2, 7, 3)),
        note="v with another last dimension than q and k",
    ),
    _sample(_SHARED_KEYS, num_heads=6, note="shared keys"),
    _sample(((2, 5, 24), (2, 7, 8), (2, 7, 8)), num_heads=6, note="shared keys, flat"),
    _sample(_heads_first_shapes(1, 1, 1, 1, 1), num_heads=1, head_size=1),
    _sample(
        _heads_first_shapes(1, 3, 67, 101, 16), num_heads=3, head_size=16, note="primes"
    ),
    _sample(_heads_first_shapes(2, 2, 0, 7), note="no queries"),
    _sample(_heads_first_shapes(2, 2, 5, 0), note="no keys: zeros"),
    _sample(_heads_first_shapes(0, 2, 5, 7), note="no batches"),
    _sample(
        _heads_first_shapes(65_537, 1, 1, 1, 1),
        num_heads=1,
        head_size=1,
        note="many rows",
    ),
)
_MASKS = (
    _sample(_EQUAL_LENGTHS, mask_kind="causal"),
    _sample(_MORE_KEYS, mask_kind="causal"),
    _sample(
        _heads_first_shapes(3, 2, 7, 5),
        mask_kind="causal",
        note="the first two queries precede the first key",
    ),
    _sample(_MORE_KEYS, mask_kind="sliding_window", window=2),
    _sample(_MORE_KEYS, mask_kind="sliding_window", window=0),
    _sample(_SHARED_KEYS, num_heads=6, mask_kind="sliding_window", window=3),
    _sample(_MORE_KEYS, mask_kind="causal", offset=0),
    _sample(
        _heads_first_shapes(2, 2, 19, 13),
        Drawn((2, 1, 19, 13)),
        mask_kind="causal",
        offset=-2,
        note="with a bias; the first two queries precede the first key",
    ),
    _sample(
        _heads_first_shapes(2, 2, 33, 71),
        Drawn((1, 71)),
        mask_kind="sliding_window",
        window=9,
        offset=21,
        note="with a bias",
    ),
    _sample(
        _heads_first_shapes(2, 2, 19, 23),
        mask_kind="sliding_window",
        window=9,
        offset=27,
        note="the windows of the later queries hold no key",
    ),
    _sample(_MORE_KEYS, Drawn(_MASK_SHAPE, DType.BOOL), mask_kind="custom"),
    _sample(_MORE_KEYS, Drawn(_MASK_SHAPE, low=0.0, high=1.0), mask_kind="custom"),
    _sample(_MORE_KEYS, Drawn((1, 7), DType.I32, 0, 1), mask_kind="custom"),
    _sample(
        _MORE_KEYS,
        Drawn(_MASK_SHAPE, low=0.0, high=0.4),
        mask_kind="custom",
        note="every key masked: the mean of all values",
    ),
    _sample(_MORE_KEYS, Drawn((3, 2, 5, 7)), mask_kind="bias"),
    _sample(_MORE_KEYS, Drawn((1, 2, 1, 7)), mask_kind="bias"),
    _sample(
        _SHARED_KEYS,
        Drawn((6, 5, 1)),
        num_heads=6,
        mask_kind="bias",
        note="shared keys",
    ),
)
_SCORES = (
    _sample(_MORE_KEYS, score_scale=0.1),
    _sample(_MORE_KEYS, softcap=1.5),
    _sample(_MORE_KEYS, softcap=1.5, score_scale=2.0, mask_kind="causal"),
    _sample(_MORE_KEYS, Drawn((3, 2, 5, 7)), softcap=0.5, mask_kind="bias"),
)
_TYPES = (
    _sample(_MORE_KEYS, dtype=DType.F16, mask_kind="causal"),
    _sample(
        _MORE_KEYS, Drawn((3, 2, 5, 7), DType.F64), dtype=DType.F64, mask_kind="bias"
    ),
)

SAMPLES = _LAYOUTS + _MASKS + _SCORES + _TYPES
