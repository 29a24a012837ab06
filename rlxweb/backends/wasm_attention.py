"""Attention of float32 in a browser's Python, by WebAssembly.

A row of the table of variants. The module is made once, when the first node wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_attention import bias_of, scale_of, steps_of
from rlxweb.backends.wasm_attention_text import FIELDS, attention_module, room_for
from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.variants import Variant
from rlxweb.host.wasm_products import ROOM
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, Op, TensorType, Types
from rlxweb.machine.making import fast_mode
from rlxweb.machine.wasm import IN_A_TAB, opened_fused
from rlxweb.recipes.attention_sizes import sizes_of

LEAST: Final = 1 << 9
"""Elements of a result from which a call is faster than several of NumPy's; on paper,
as for lines.
"""
_MOST_ROOM: Final = 1 << 26
"""Floats."""
_BIAS_STEPS: Final = slice(FIELDS.index("bias_batch"), FIELDS.index("bias_row") + 1)
_ROOM: Final = FIELDS.index("room")
_ELEMENT: Final = 4
Array = NDArray[Any]


@cache
def _function() -> Callable[[int], None] | None:
    try:
        (made,) = opened_fused(attention_module, "attention")
    except OSError:  # a browser that refuses it
        return None
    return made


def _open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """In float32, large enough, and no mask but one that is added."""
    if not IN_A_TAB or fast_mode() == "off" or out.numel < LEAST:
        return False
    if any(one.dtype is not DType.F32 for one in inputs[:3]):
        return False
    if attrs["mask_kind"] not in ("none", "bias") or attrs["softcap"] is not None:
        return False
    q, k, v = (one.shape for one in inputs[:3])
    s = sizes_of(q, k, v, attrs)
    fits = s.SK >= 4 and s.D > 0 and room_for(s.SQ, s.SK, s.D) <= _MOST_ROOM
    return fits and _function() is not None


class Attention:
    """`attention` of one node."""

    def __init__(self, inputs: Types, out: TensorType, attrs: Attrs) -> None:
        function = _function()
        assert function is not None  # the gate asked
        self._function, self._shape = function, out.shape
        q, k, v = (one.shape for one in inputs[:3])
        s = self._sizes = sizes_of(q, k, v, attrs)
        steps = [
            *steps_of(s.layout, s.H, s.SQ, s.D),
            *steps_of(s.layout, s.HK, s.SK, s.D),
            *steps_of(s.layout, s.HK, s.SK, s.DV),
            *steps_of(s.layout, s.H, s.SQ, s.DV),
            *(0, 0, 0),
        ]
        sizes = s.B, s.H, s.H // s.HK, s.SQ, s.SK, s.D, s.DV
        told = [0] * 5 + [_ELEMENT * step for step in steps] + [*sizes, 0]
        self._job = np.array(told, np.uint32)
        self._where = address(self._job)
        self._floats = room_for(s.SQ, s.SK, s.D)
        self._scale = np.float32(scale_of(s, attrs))

    def __call__(
        self, attrs: Attrs, q: Array, k: Array, v: Array, mask: Array | None = None
    ) -> Array:
        """The weighted values."""
        out, job = pool.empty(self._shape, np.float32), self._job
        held = [*map(np.ascontiguousarray, (q, k, v)), out]
        bias, steps = bias_of(self._sizes, mask)
        for at, one in enumerate((*held, bias)):
            job[at] = address(one)
        job[_BIAS_STEPS] = [_ELEMENT * step for step in steps]
        room = ROOM.array(self._floats)
        room[:4] = self._scale
        job[_ROOM] = address(room)
        self._function(self._where)
        return out


def joins(op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Where what spells attention out is better done as one call."""
    in_f32 = all(one.dtype is DType.F32 for one in inputs)
    return op.name == "attention" and in_f32 and _open(inputs, out, attrs)


ATTENTION: Final = (
    Variant("attention, by WebAssembly", "attention", _open, Attention, planned=True),
)
"""The row, before all others."""
