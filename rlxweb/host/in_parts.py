"""Ops whose lines do not know of each other, a few lines at a time.

A softmax in parts that stay in cache walks memory once instead of five times. Each part
goes through the op's own reference, so the numbers are those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.boxes import SHARE, Box, boxes_of, for_each
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape import Shape, normal_axis

LEAST: Final = 2 * SHARE
"""Elements from which parts are worth their Python."""
_RUN: Final = 64
"""Neighbouring elements that a part has at least: a few cache lines."""
_ALL: Final = slice(None)

Lines = Callable[[Attrs, int], Collection[int]]
"""(attributes, rank of the first operand) → the axes along which an op's lines lie."""


def _along_axis(attrs: Attrs, rank: int) -> Collection[int]:
    return (normal_axis(attrs["axis"], rank),)


def _along_the_last(attrs: Attrs, rank: int) -> Collection[int]:
    return (rank - 1,)


LINES: Final[dict[str, Lines]] = {
    **dict.fromkeys(("softmax", "layer_norm", "rms_norm", "cumsum"), _along_axis),
    **dict.fromkeys(
        ("fft", "rfft", "irfft", "psd_real", "log_mel", "stft"), _along_the_last
    ),
}
"""The ops. Other operands than the first belong to all lines alike."""


class Parts(NamedTuple):
    """Boxes of the first operand, and those of the result that they make."""

    given: list[Box]
    made: list[Box]


def parts_of(op: str, attrs: Attrs, given: Shape, made: Shape) -> Parts:
    """How a call is cut: one part where all of it is one line."""
    lines = sorted(LINES[op](attrs, len(given)))
    free = [at for at in range(len(given)) if at not in lines]
    most = max(1, SHARE // max(1, prod(given[at] for at in lines)))
    if free and free[-1] == len(given) - 1:
        most = max(most, min(_RUN, given[-1]))
    # In the result the axes of lines stay, or are others: frames come first.
    others = len(made) - len(free)
    parts = Parts([], [])
    for box in boxes_of(tuple(given[at] for at in free), most):
        there = dict(zip(free, box, strict=True))
        own = tuple(there.get(at, _ALL) for at in range(len(given)))
        parts.given.append(own)
        stay = others == len(lines)
        around = [_ALL] * (others // 2)
        parts.made.append(own if stay else (*around, *box, *around))
    return parts


def is_large(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Elements enough for parts to be worth their Python."""
    return inputs[0].numel >= LEAST and out.numel > 0


def in_parts(op: str) -> Callable[..., NDArray[Any]]:
    """The op as (attrs, *arrays) → array."""

    def run(attrs: Attrs, x: NDArray[Any], *rest: NDArray[Any]) -> NDArray[Any]:
        own = registry.get(op)
        types = [TensorType(one.shape, as_dtype(one.dtype)) for one in (x, *rest)]
        kind = own.output_type(types, attrs)
        parts = parts_of(op, attrs, x.shape, kind.shape)
        if len(parts.given) == 1:
            made: NDArray[Any] = own.reference(np, attrs, x, *rest)
            return made
        out = pool.empty(kind.shape, kind.dtype.numpy)

        def body(at: int) -> None:
            out[parts.made[at]] = own.reference(np, attrs, x[parts.given[at]], *rest)

        for_each(len(parts.given), body, threaded=True)
        return out

    return run
