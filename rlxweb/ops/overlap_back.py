"""Gradients of windows and frames: windows added up where they lie.

A window's elements lie `apart` and windows begin `step` apart. Cut into blocks of a
step, windows are rows that each begin one block behind the row before: written with
room at their ends, one behind the other, and read as rows that are one block shorter,
they lie so. Then all is one sum, of as many elements as the windows have.
"""

from __future__ import annotations

from math import gcd, prod

from rlxweb.ir.tensor import Tensor
from rlxweb.ops.places_back import with_zeros


def overlapped(grad: Tensor, step: int, apart: int, size: int) -> Tensor:
    """[..., windows, width] → [..., size]: element k of window n is added at
    step · n + apart · k.
    """
    lead, count, width = grad.shape[:-2], grad.shape[-2], grad.shape[-1]
    if not prod(grad.shape):
        return with_zeros(grad, (*lead, size))
    step, apart = step if count > 1 else 1, apart if width > 1 else 1
    common = gcd(step, apart)
    made = _added(grad, step // common, apart // common)
    return _to_length(_dilated(made, common) if common > 1 else made, size)


def _added(grad: Tensor, step: int, apart: int) -> Tensor:
    """All of what the windows reach over; step and apart have no common divisor."""
    g = grad.graph
    if apart > 1 and step == 1:
        # What is an element and what a window is the same but for its name.
        return _added(g.swapaxes(grad, -1, -2), apart, step)
    if apart > 1:
        return _added(_dilated(grad, apart), step, 1)
    lead, count, width = grad.shape[:-2], grad.shape[-2], grad.shape[-1]
    blocks = -(-width // step)
    rows = g.reshape(_to_length(grad, blocks * step), (*lead, count, blocks, step))
    if blocks < count:
        rows = g.swapaxes(rows, -2, -3)
    few, many = min(blocks, count), max(blocks, count)
    if few > 1:
        room = [(0, 0)] * len(lead) + [(0, 0), (0, few), (0, 0)]
        line = g.reshape(g.pad(rows, room), (*lead, few * (many + few) * step))
        line = g.narrow(line, -1, 0, few * (many + few - 1) * step)
        rows = g.reshape(line, (*lead, few, many + few - 1, step))
        rows = g.sum(rows, -3)
    made = g.reshape(rows, (*lead, (many + few - 1) * step))
    return _to_length(made, step * (count - 1) + width)


def _dilated(x: Tensor, step: int) -> Tensor:
    return x.graph.apply("dilate", x, axes=(-1,), steps=(step,))


def _to_length(x: Tensor, length: int) -> Tensor:
    """The last axis with zeros behind it, or cut off, which are zeros."""
    have, g = x.shape[-1], x.graph
    if length == have:
        return x
    if length < have:
        return g.narrow(x, -1, 0, length)
    return g.pad(x, [(0, 0)] * (x.rank - 1) + [(0, length - have)])
