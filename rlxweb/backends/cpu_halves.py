"""Products and networks of float16 on the CPU, by the ways there are for float32.

Their meaning is to be computed in float32 and rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types

Array = NDArray[Any]
_OPS: Final = ("matmul", "conv", "conv_transpose", "lstm", "gru", "rnn")


def by_float32(rows: Sequence[Variant]) -> tuple[Variant, ...]:
    """A row for each op that has some of float32 among these."""
    return tuple(
        Variant(
            f"{op}, of halves in float32",
            op,
            partial(_open, own),
            partial(_planned, own),
            planned=True,
        )
        for op in _OPS
        if (own := [row for row in rows if row.op == op])
    )


def _wide(one: TensorType) -> TensorType:
    return TensorType(one.shape, DType.F32) if one.dtype is DType.F16 else one


def _row(
    rows: Sequence[Variant], inputs: Types, out: TensorType, attrs: Attrs
) -> Variant | None:
    wide = tuple(map(_wide, inputs))
    return next((row for row in rows if row.gate(wide, _wide(out), attrs)), None)


def _open(
    rows: Sequence[Variant], inputs: Types, out: TensorType, attrs: Attrs
) -> bool:
    is_half = out.dtype is DType.F16
    return is_half and _row(rows, inputs, out, attrs) is not None


def _planned(
    rows: Sequence[Variant], inputs: Types, out: TensorType, attrs: Attrs
) -> Callable[..., Array]:
    row = _row(rows, inputs, out, attrs)
    assert row is not None  # the gate asked
    function = row.of(tuple(map(_wide, inputs)), _wide(out), attrs)

    def run(attrs: Attrs, *arrays: Array) -> Array:
        wide = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]
        made: Array = function(attrs, *wide)
        return made.astype(np.float16)

    return run
