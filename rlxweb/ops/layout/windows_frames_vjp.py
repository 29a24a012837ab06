"""Overlap-add of windows, the gradient of windows and frames.

A window's elements lie `apart` and windows begin `step` apart. Cut into blocks of a
step, windows are rows that each begin one block behind the row before: written with
room at their ends, one behind the other, and read as rows that are one block shorter,
they lie so. Then all is one sum, of as many elements as the windows have.
"""

from __future__ import annotations

from math import gcd, prod

from rlxweb.ir.tensor import Tensor
from rlxweb.ops.layout.index_map_vjp import zeros_with_dtype


def overlap_add(grad: Tensor, step: int, spacing: int, size: int) -> Tensor:
    """Add up windows [..., windows, width] → [..., size]: element k of window n is
    added at step · n + spacing · k.
    """
    lead, count, width = grad.shape[:-2], grad.shape[-2], grad.shape[-1]
    if not prod(grad.shape):
        return zeros_with_dtype(grad, (*lead, size))
    step, spacing = step if count > 1 else 1, spacing if width > 1 else 1
    common = gcd(step, spacing)
    result = _overlap_add_coprime(grad, step // common, spacing // common)
    return _fit_length(_dilate(result, common) if common > 1 else result, size)


def _overlap_add_coprime(grad: Tensor, step: int, spacing: int) -> Tensor:
    """Add up all that the windows cover; step and spacing have no common divisor."""
    g = grad.graph
    if spacing > 1 and step == 1:
        # What is an element and what a window is the same but for its name.
        return _overlap_add_coprime(g.swapaxes(grad, -1, -2), spacing, step)
    if spacing > 1:
        return _overlap_add_coprime(_dilate(grad, spacing), step, 1)
    lead, count, width = grad.shape[:-2], grad.shape[-2], grad.shape[-1]
    blocks = -(-width // step)
    rows = g.reshape(_fit_length(grad, blocks * step), (*lead, count, blocks, step))
    if blocks < count:
        rows = g.swapaxes(rows, -2, -3)
    shorter, longer = min(blocks, count), max(blocks, count)
    if shorter > 1:
        padding = [(0, 0)] * len(lead) + [(0, 0), (0, shorter), (0, 0)]
        flat = g.reshape(
            g.pad(rows, padding), (*lead, shorter * (longer + shorter) * step)
        )
        flat = g.narrow(flat, -1, 0, shorter * (longer + shorter - 1) * step)
        rows = g.reshape(flat, (*lead, shorter, longer + shorter - 1, step))
        rows = g.sum(rows, -3)
    result = g.reshape(rows, (*lead, (longer + shorter - 1) * step))
    return _fit_length(result, step * (count - 1) + width)


def _dilate(x: Tensor, step: int) -> Tensor:
    return x.graph.apply("dilate", x, axes=(-1,), steps=(step,))


def _fit_length(x: Tensor, length: int) -> Tensor:
    """Pad the last axis with zeros to `length`, or cut zeros off its end."""
    current, g = x.shape[-1], x.graph
    if length == current:
        return x
    if length < current:
        return g.narrow(x, -1, 0, length)
    return g.pad(x, [(0, 0)] * (x.rank - 1) + [(0, length - current)])
