"""Elementwise work that a kernel does on what it stores: a dense layer in one dispatch.

The nodes after a product or a reduction become a Finish, and a recipe whose calls say
that they take one gets it put in. Nothing is written to memory in between, and the
answer is the same to the bit: the region would have loaded what the kernel stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlxweb.ir.dtype import NARROW, DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Access, Call, Finish, Recipe, Ref, Side
from rlxweb.ir.shape import numel
from rlxweb.kernels.expression import body_of

# A longer text costs the driver's compiler more than a dispatch costs the run.
MAX_NODES = 24
# The includes of calls that end with their sums, and those that do more.
_ENDS = {f"{at}finish_none": f"{at}finish_tile" for at in ("", "conv_", "line_")}


def finish_of(
    graph: Graph, ids: Sequence[int], reads: Sequence[tuple[int, Layout]]
) -> Finish | None:
    """The nodes after `ids[0]`, the kernel's, as a Finish of it; None: not possible.

    reads   the other nodes they read, with the layouts they are read through
    """
    kernel, last = graph.node(ids[0]), graph.node(ids[-1])
    shape, dtype = kernel.type.shape, kernel.type.dtype
    fits = len(ids) - 1 <= MAX_NODES and 0 not in shape and bool(shape)
    if not fits or last.type != kernel.type or dtype in NARROW:
        return None
    sides = [_side(graph.node(i).type.dtype, layout) for i, layout in reads]
    known = [side for side in sides if side is not None]
    if len(known) < len(sides):
        return None
    loads = {ids[0]: "r0"} | {i: f"r{k + 1}" for k, (i, _) in enumerate(reads)}
    body = body_of(graph, ids[1:], loads)
    lines, uses = tuple(body.lines), body.uses
    if dtype is DType.F16:  # as it would have been stored
        lines, uses = ("  let r0 = half(v);", *lines), tuple({*uses, "half"})
    else:
        lines = ("  let r0 = v;", *lines)
    values = tuple(body.values.items())
    return Finish(lines, body.result, uses, values, tuple(known), shape[-1])


def _side(dtype: DType, layout: Layout) -> Side | None:
    """How an operand lies to the output, whose shape its layout has."""
    walked = [
        (n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if n > 1
    ]
    if not any(s for _, s in walked):
        return Side("one", dtype, 1)
    line, steps = layout.shape[-1], Layout(layout.shape, layout.strides)
    if steps.is_dense:
        return Side("same", dtype, numel(layout.shape))
    *outer, (size, stride) = walked
    if size == line and stride == 1 and not any(s for _, s in outer):
        return Side("row", dtype, line)
    rows = Layout(layout.shape[:-1], layout.strides[:-1])
    if layout.strides[-1] == 0 and rows.is_dense:
        return Side("column", dtype, numel(rows.shape))
    return _channel(dtype, layout)


def _channel(dtype: DType, layout: Layout) -> Side | None:
    """An operand of one axis of the output: the same wherever else an element is."""
    merged = layout.coalesced(Layout.dense(layout.shape))[0]
    moves = [at for at, stride in enumerate(merged.strides) if stride]
    if len(moves) != 1 or merged.strides[moves[0]] != 1:
        return None
    inner = numel(merged.shape[moves[0] + 1 :])
    return Side("channel", dtype, merged.shape[moves[0]], inner)


def finished(recipe: Recipe, finish: Finish, inputs: int, most: int) -> Recipe | None:
    """The recipe with the finish in every call that writes the output.

    inputs   operands of the op: the sides are numbered after them
    most     storage buffers a shader may bind

    None where a call does not take one.
    """
    calls = []
    for call in recipe.calls:
        at = [k for k, a in enumerate(call.accesses) if a.ref.kind == "out"]
        if not at:
            calls.append(call)
            continue
        made = _finished(call, at[0], finish, inputs) if len(at) == 1 else None
        if made is None or len(made.accesses) > most:
            return None
        calls.append(made)
    return replace(recipe, calls=tuple(calls))


def _finished(call: Call, at: int, finish: Finish, inputs: int) -> Call | None:
    out = call.accesses[at]
    wide = any(access.wide for access in call.accesses)
    parts = [finish.line, *(s.inner for s in finish.sides if s.kind == "channel")]
    if not call.finishes or wide != out.wide or (wide and any(p % 4 for p in parts)):
        return None
    still = (0,) * len(call.axes)
    accesses = list(call.accesses)
    if call.finishes == "tile":  # what was stored is read again
        accesses[at] = replace(out, mode="update")
    for n, side in enumerate(finish.sides):
        ref = Ref("in", inputs + n)
        if side.kind == "same":
            accesses.append(replace(out, ref=ref, mode="read"))
        else:
            by_fours = wide and side.kind == "row"
            accesses.append(Access(ref, still, span=side.numel, wide=by_fours))
    steps = {
        f"finish_{axis.name}": stride
        for axis, stride in zip(call.axes, out.strides, strict=True)
    }
    values = {**call.values, **dict(finish.values), **steps}
    values |= {"finish_line": finish.line, "finish_from": out.offset}
    for n, side in enumerate(finish.sides):
        if side.kind == "channel":
            inner = side.inner // 4 if wide else side.inner
            values |= {f"finish_inner{n}": inner, f"finish_count{n}": side.numel}
    # Whoever carries on from what a piece of the sum has left must find it as it was.
    uses = [_ENDS.get(use, use) for use in call.uses]
    return replace(
        call,
        axes=tuple(axis.uncut() for axis in call.axes),
        accesses=tuple(accesses),
        values=values,
        uses=tuple(dict.fromkeys((*uses, *finish.uses))),
        finish=finish,
    )
