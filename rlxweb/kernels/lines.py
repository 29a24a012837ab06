"""Passes along lines as generated shaders.

A line is walked once for every reduction that needs the one before it, and once to
store what has a value for each element; what lies between is evaluated anew on each
walk and never stored. One invocation has a line to itself, or a workgroup shares it.
Sizes and strides are uniforms, as in a region. Where all that changes along a line lies
in whole fours, four elements are taken at once, and what is one for a line is four
times the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.lines import lines_in, reads_in
from rlxweb.ir.lowering import Access, Axis, Call, Ref
from rlxweb.kernels.expression import SHORT
from rlxweb.kernels.line_text import LineText

LEAST_SHARED = 32
"""Elements of a line that a workgroup is started for."""
_MOST_LANES = 256
MOST_SHARED = 12
"""Arrays of workgroup memory: one for each kind of reduction and type."""


def lanes_of(turns: int, most: int) -> int:
    """Invocations that share a line of so many turns: four each, if there are so many.

    most   of a workgroup; 1 where they cannot share
    """
    most = min(most, _MOST_LANES, max(LEAST_SHARED, turns // 4))
    if turns < LEAST_SHARED or most < LEAST_SHARED:
        return 1
    return 1 << (most.bit_length() - 1)


def line_call(
    graph: Graph, ids: Sequence[int], layouts: Sequence[Layout], most: int
) -> Call:
    """The pass of some nodes along their lines; the output is dense.

    layouts  how each of `reads_in` lies, spread over the elements
    most     invocations that may share a line
    """
    lines = lines_in(graph, ids)
    is_whole = graph.node(ids[-1]).type.shape == lines.shape
    out = Layout.dense(lines.shape if is_whole else lines.beside).expand(lines.shape)
    every = [*layouts, out]
    at = len(lines.kept)
    kept, along = _part(every, slice(0, at)), _part(every, slice(at, None))
    wide = _wide(kept, along, [lay.offset for lay in every])
    if SHORT & {graph.node(i).type.dtype for i, _ in reads_in(graph, lines, ids)}:
        wide = (False,) * len(every)  # such elements are not loaded in fours
    turns = lines.length // (4 if any(wide) else 1)
    lanes = lanes_of(turns, most)
    text = LineText(graph, lines, ids, (kept, along), wide, lanes)
    source = text.source(is_whole)
    axes = (
        *(Axis(f"d{a}", n) for a, n in enumerate(kept[0].shape)),
        *(Axis(f"l{a}", n, "whole") for a, n in enumerate(along[0].shape)),
    )
    accesses = tuple(
        Access(
            Ref("out") if k == len(layouts) else Ref("in", k),
            (*kept[k].strides, *along[k].strides),
            "write" if k == len(layouts) else "read",
            whole.offset,
            wide=wide[k],
        )
        for k, whole in enumerate(every)
    )
    walks = text.walks + is_whole
    return Call(
        shader="generated",
        axes=axes,
        accesses=accesses,
        grid=tuple((f"d{a}", 1) for a in range(len(kept[0].shape))),
        per="invocation" if lanes == 1 else "workgroup",
        workgroup=64 if lanes == 1 else lanes,
        values=text.values,
        uses=tuple(text.uses),
        source=source,
        shared_bytes=0 if lanes == 1 else 16 * lanes * len(text.shared),
        turns=(walks * turns / lanes + 16) / lines.length,
    )


def _wide(
    kept: Sequence[Layout], along: Sequence[Layout], offsets: Sequence[int]
) -> tuple[bool, ...]:
    """Which operands are moved in fours: all that move along a line, or none does."""
    moving = [k for k, one in enumerate(along) if any(one.strides)]
    runs = len(along[0].shape) == 1 and along[0].shape[0] % 4 == 0
    for k in moving:
        starts = (*kept[k].strides, offsets[k])
        runs = runs and along[k].strides == (1,) and all(s % 4 == 0 for s in starts)
    return tuple(runs and k in moving for k in range(len(along)))


def _part(every: Sequence[Layout], axes: slice) -> list[Layout]:
    """Some axes of layouts, merged where all allow it; one at least."""
    parts = [Layout(lay.shape[axes], lay.strides[axes]) for lay in every]
    first, *others = parts
    merged = list(first.coalesced(*others))
    return merged if merged[0].shape else [Layout((1,), (0,)) for _ in merged]
