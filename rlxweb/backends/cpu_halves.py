"""Products and networks of float16 on the CPU, by the ways there are for float32.

Their meaning is to be computed in float32 and rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.laid_out import LaidOut, Steady
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.host.shared_code import Shared
from rlxweb.host.variants import Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.machine import library
from rlxweb.machine.halves import halves_text
from rlxweb.machine.jobs import packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.workshop import Workshop

Array = NDArray[Any]
_THREADED: Final = 1 << 17
"""Elements from which threads share them, some of them at a time."""
_SHARE: Final = 1 << 14
_TASKS: Final = 4
"""For each thread, so that none waits long for the last."""
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
    return next((row for row in rows if row.takes(wide, _wide(out), attrs)), None)


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

    return ByFloat32(function)


class ByFloat32:
    """A function of arrays of float32 as one of halves.

    function  (attributes, arrays) → the result
    """

    def __init__(self, function: Callable[..., Array]) -> None:
        self.function = function
        self._weights: dict[int, Steady] = {}

    def keep(self, which: Iterable[int]) -> None:
        """These operands are the same from run to run, until a param is set."""
        self._weights = {at: Steady() for at in which}

    def __call__(self, attrs: Attrs, *arrays: Array) -> Array:
        """Computed in float32 and rounded once."""
        wide = [
            self._wide(at, one) if one.dtype == np.float16 else one
            for at, one in enumerate(arrays)
        ]
        made: Array = self.function(attrs, *wide)
        return converted(made, np.float16)

    def _wide(self, at: int, array: Array) -> Array:
        weight, kept = self._weights.get(at), None
        root = None if weight is None else weight.root(array)
        if root is not None:
            key = array.ctypes.data, array.shape, array.strides
            kept = WIDE.of(root, key, lambda: converted(array, np.float32))
        return converted(array, np.float32) if kept is None else kept


WIDE: Final[LaidOut[Array]] = LaidOut()
"""The process's halves in float32."""


class Conversions(NamedTuple):
    """What a module of halves exports, as `machine/halves.py` says."""

    widened: Shared
    narrowed: Shared


def _made(about: object) -> Conversions:
    code = code_of(halves_text(library.processor().nbytes))
    return Conversions(*(Shared.of(code, name) for name in Conversions._fields))


half_kernels: Workshop[Conversions] = Workshop(_made, fast_mode)
"""The compiled conversions, under one name."""
_NAME: Final = "halves"


def converted(array: Array, dtype: type[np.floating[Any]]) -> Array:
    """An array of float16 in float32, or the other way round: NumPy's values, any
    shape.
    """
    if not library.has_halves():
        return array.astype(dtype)
    code = half_kernels.ready(_NAME)
    if code is None:
        begun = perf_counter()
        made = array.astype(dtype)
        half_kernels.spent(_NAME, perf_counter() - begun)
        return made
    array, out = np.ascontiguousarray(array), pool.empty(array.shape, dtype)
    threaded = array.size >= _THREADED
    each = (
        max(_SHARE, array.size // (_TASKS * usable_cpus())) if threaded else array.size
    )
    job = packed(address(array), address(out), array.size, each)
    taken = np.zeros(1, np.int64)
    function = code.widened if dtype is np.float32 else code.narrowed
    function(packed(address(job), address(taken)), threaded=threaded)
    return out
