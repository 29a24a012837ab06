"""Regions, copies and joins as generated shaders.

A region becomes one Call whose source evaluates its nodes in registers. Sizes and
strides go in as uniforms, so two regions of the same structure share a pipeline
whatever their shapes. When everything lies dense the vec4 form of the text is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.errors import GraphError
from rlxweb.ir.dtype import NARROW, DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Access, Axis, Call, Expr, Ref, as_uniform, wrapped
from rlxweb.ir.op import registry
from rlxweb.kernels.source import ALIAS, in_a_word
from rlxweb.recipes.entry import MAIN_LINES

_OPERANDS = "xyz"
SHORT = NARROW | {DType.F16}
"""What is loaded and stored element by element."""
_NOT_FINITE = ("inf", "-inf", "nan")
_WORD = re.compile(r"\{(\w+)\}|\b([xyzXYZ])\b")


def decimal(value: Any) -> str:
    """A finite float32 as a WGSL float literal that reads back to the same bits."""
    text = repr(float(np.float32(value)))
    return text if any(c in text for c in ".en") else text + ".0"


def expression(
    expr: Expr,
    operands: Sequence[str],
    dtypes: Sequence[DType],
    node: Node,
    types: tuple[Any, Any],
) -> str:
    """The expression of one node with its operands and attributes put in."""
    text = expr.text if isinstance(expr.text, str) else expr.text(*types, node.attrs)

    def put(match: re.Match[str]) -> str:
        if match[1]:
            return _attribute(node, match[1])
        at = _OPERANDS.index(match[2].lower())
        if at >= len(operands):
            raise GraphError(
                str(node),
                f"its expression names operand {match[2]!r}",
                f"the op has {len(operands)} operands",
            )
        return operands[at] if match[2].islower() else ALIAS[dtypes[at]]

    return _WORD.sub(put, text)


def _attribute(node: Node, name: str) -> str:
    value = node.attrs.get(name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            text = decimal(value)
        if text not in _NOT_FINITE:
            return text
    raise GraphError(
        str(node),
        f"its expression uses attribute {name}={value!r}",
        "only finite numbers of float32 and booleans can be printed into a shader",
    )


class Body(NamedTuple):
    """A region as text: its lines, the name of the result, what they call and read."""

    lines: list[str]
    result: str
    uses: tuple[str, ...]
    values: dict[str, int | float]


def body_of(graph: Graph, ids: Sequence[int], loads: Mapping[int, str]) -> Body:
    """One `let` per node of a region, named in order: the same work, the same text.

    loads   nodes outside → the names of their values
    """
    lines: list[str] = []
    values: dict[str, int | float] = {}
    named, halves = dict(loads), _halves(graph, ids)
    for place, at in enumerate(ids):
        node = graph.node(at)
        expr = registry.get(node.op).lower
        if not isinstance(expr, Expr):
            raise GraphError(str(node), "it is not elementwise")
        for i in node.inputs:
            one = graph.node(i)
            if i not in named and one.is_literal:
                named[i] = literal_operand(one, values)
        kinds = tuple(graph.node(i).type for i in node.inputs)
        text = expression(
            expr,
            [named[i] for i in node.inputs],
            [k.dtype for k in kinds],
            node,
            (kinds, node.type),
        )
        named[at] = f"v{place}"
        rounded = f"half({text})" if at in halves else text
        lines.append(f"  let v{place} = {rounded};")
    lowers = [registry.get(graph.node(at).op).lower for at in ids]
    uses = dict.fromkeys(u for one in lowers for u in getattr(one, "uses", ()))
    if halves:
        uses["half"] = None
    return Body(lines, named[ids[-1]], tuple(uses), values)


def literal_operand(one: Node, values: dict[str, int | float]) -> str:
    """A literal constant as an operand: a uniform, so that another number is no other
    text. A driver that sees it takes x * 0.0 for 0 too, and a module is refused when
    an expression of literals alone overflows or divides by zero.
    """
    value, dtype = one.attrs["value"].array.item(), one.type.dtype
    if dtype is DType.BOOL:  # two texts at most
        return f"B({'true' if value else 'false'})"
    name = f"c{len(values)}"
    values[name], text = as_uniform(value, dtype, name)
    return f"{ALIAS[dtype]}({text})"


def _halves(graph: Graph, ids: Sequence[int]) -> set[int]:
    """The f16 nodes of a region that no store rounds: all are computed in f32."""
    return {at for at in ids[:-1] if graph.node(at).type.dtype is DType.F16}


def region_call(
    graph: Graph,
    ids: Sequence[int],
    reads: Sequence[tuple[int, Layout]],
    allow_wide: bool = True,
) -> Call:
    """The pass over a fused region; the output is dense.

    `reads` pairs each outside node with the layout it is read through, already spread
    to the region's shape.
    """
    last = graph.node(ids[-1])
    out, *spread = Layout.dense(last.type.shape).coalesced(*(lay for _, lay in reads))
    kinds = [graph.node(i).type.dtype for i, _ in reads]
    body = body_of(graph, ids, {i: f"r{k}" for k, (i, _) in enumerate(reads)})
    return _walk(out, spread, [*kinds, last.type.dtype], body, allow_wide)


def copy_call(source: Layout, target: Layout, dtype: DType) -> Call:
    """Element by element from one layout to another of the same shape."""
    out, read = target.coalesced(source)
    return _walk(out, [read], [dtype, dtype], Body([], "r0", (), {}))


def _walk(
    out: Layout,
    reads: Sequence[Layout],
    dtypes: Sequence[DType],
    body: Body,
    allow_wide: bool = True,
) -> Call:
    """Loads, body and store around the index arithmetic of a strided walk."""
    if dtypes[-1] in NARROW:
        return _walk_words(out, reads, dtypes, body)
    shape, k_out = out.shape, len(reads)
    every = [*reads, out]
    wide = _wide(every, dtypes) if allow_wide else (False,) * len(every)
    lanes = 4 if any(wide) else 1
    axes = tuple(Axis(f"d{a}", size) for a, size in enumerate(shape))
    values = body.values | {
        f"s{k}_{a}": wrapped(stride // (4 if wide[k] else 1))
        for k, layout in enumerate(every)
        for a, stride in enumerate(layout.strides)
        if not _implied(layout, a)
    }
    accesses = tuple(
        Access(
            Ref("out") if k == k_out else Ref("in", k),
            layout.strides,
            "write" if k == k_out else "read",
            layout.offset,
            wide=wide[k],
        )
        for k, layout in enumerate(every)
    )
    lines = [
        *MAIN_LINES,
        *indices(len(shape), lanes),
    ]
    for k, layout in enumerate(reads):
        load = f"ld{k}({_address(k, layout)})"
        if lanes > 1 and not wide[k]:
            load = f"{ALIAS[dtypes[k]]}({load})"
        lines.append(f"  let r{k} = {load};")
    lines += [*body.lines, f"  st{k_out}({_address(k_out, out)}, {body.result});", "}"]
    grid = tuple(
        (axis.name, lanes if n == len(axes) - 1 else 1) for n, axis in enumerate(axes)
    )
    return Call(
        shader="generated",
        axes=axes,
        accesses=accesses,
        grid=grid,
        values=values,
        uses=body.uses,
        source="\n".join(lines),
        whole_tiles=lanes > 1,
    )


def _walk_words(
    out: Layout, reads: Sequence[Layout], dtypes: Sequence[DType], body: Body
) -> Call:
    """The pass whose results share words: each item makes a whole one, element by
    element, so that no two write to the same.
    """
    if not Layout(out.shape, out.strides).is_dense or out.offset:
        raise GraphError("region", f"{dtypes[-1]} elements are stored in whole words")
    shape, k_out, numel = out.shape, len(reads), math.prod(out.shape)
    count = in_a_word(dtypes[-1])
    values = body.values | {"elements": numel}
    values |= {f"n{a}": size for a, size in enumerate(shape) if a}
    values |= {
        f"s{k}_{a}": wrapped(stride)
        for k, layout in enumerate(reads)
        for a, stride in enumerate(layout.strides)
        if not _implied(layout, a)
    }
    is_run = len(shape) == 1 and all(read.strides[0] >= 0 for read in reads)
    accesses, loads, more = _word_reads(out, reads, count, is_run)
    values |= more
    accesses.append(Access(Ref("out"), (count,), "write", span=count))
    lines = [
        *MAIN_LINES,
        f"  let first = (item + u.at_words) * {count}u;",
        f"  let many = min({count}u, u.elements - first);",
        "  var word = 0u;",
        "  for (var n = 0u; n < many; n++) {",
        f"  var rest = {f'item * {count}u' if is_run else 'first'} + n;",
    ]
    for a in range(len(shape) - 1, 0, -1):
        lines.append(f"  let i{a} = rest % u.n{a}; rest = rest / u.n{a};")
    lines.append("  let i0 = rest;")
    lines += loads
    lines += [
        *body.lines,
        f"  word |= part{k_out}(n, {body.result});",
        "  }",
        f"  st{k_out}(item * {count}u, word);",
        "}",
    ]
    return Call(
        shader="generated",
        axes=(Axis("words", -(-numel // count)),),
        accesses=tuple(accesses),
        grid=(("words", 1),),
        values=values,
        uses=body.uses,
        source="\n".join(lines),
        turns=float(count),
    )


def _word_reads(
    out: Layout, reads: Sequence[Layout], count: int, is_run: bool
) -> tuple[list[Access], list[str], dict[str, int | float]]:
    """How the operands of results that share words are read: accesses, lines, values.

    In one run of elements a piece is told by its own words alone; so is what lies as
    the results do.
    """
    accesses, lines = [], []
    values: dict[str, int | float] = {}
    for k, layout in enumerate(reads):
        at = _address(k, layout)
        if is_run:
            accesses.append(_words_of(k, layout.strides[0], layout.offset, count))
        elif layout.strides == out.strides:
            accesses.append(_words_of(k, 1, layout.offset, count))
            at = f"item * {count}u + n"
        else:
            accesses.append(_all_of(k, layout))
            if ahead := _reach(layout)[0]:
                values[f"ahead{k}"] = ahead
                at = f"u.ahead{k} + {at}"
        lines.append(f"  let r{k} = ld{k}({at});")
    return accesses, lines, values


def _words_of(k: int, step: int, offset: int, count: int) -> Access:
    """A read of as many elements as share a word, `step` from one to the next."""
    span = (count - 1) * step + 1
    return Access(Ref("in", k), (count * step,), "read", offset, span=span)


def _all_of(k: int, layout: Layout) -> Access:
    """A read whose elements are found by the number of a result, not of an axis."""
    ahead, behind = _reach(layout)
    span = ahead + behind + 1
    return Access(Ref("in", k), (0,), "read", layout.offset - ahead, span=span)


def _reach(layout: Layout) -> tuple[int, int]:
    """Elements that lie before the first one of a layout, and behind it."""
    steps = [
        (d - 1) * s for d, s in zip(layout.shape, layout.strides, strict=True) if d
    ]
    return -sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)


def _wide(every: Sequence[Layout], dtypes: Sequence[DType]) -> tuple[bool, ...]:
    """Which accesses can move vec4s: where all rows lie in whole fours or are one
    element each.
    """
    shape = every[-1].shape
    can = bool(shape) and shape[-1] % 4 == 0 and not SHORT.intersection(dtypes)
    can = can and every[-1].strides[-1] == 1 and all(map(_in_fours, every))
    return tuple(can and lay.strides[-1] == 1 for lay in every)


def _in_fours(layout: Layout) -> bool:
    *outer, inner = layout.strides
    starts = (layout.offset, *outer)
    return inner == 0 or (inner == 1 and all(s % 4 == 0 for s in starts))


def _implied(layout: Layout, axis: int) -> bool:
    """Stride 0, or 1 on the only axis, needs no uniform."""
    stride = layout.strides[axis]
    return stride == 0 or (stride == 1 and axis == len(layout.shape) - 1)


def indices(rank: int, lanes: int) -> list[str]:
    """Positions on the axes; on the last one of so many elements together."""
    if rank <= 1:
        return ["  let i0 = item;"]
    lines = ["  var rest = item;"]
    for a in range(rank - 1, 0, -1):
        size = f"(u.d{a} / {lanes}u)" if a == rank - 1 and lanes > 1 else f"u.d{a}"
        lines.append(f"  let i{a} = rest % {size}; rest = rest / {size};")
    return [*lines, "  let i0 = rest;"]


def _address(k: int, layout: Layout) -> str:
    terms = []
    for a, stride in enumerate(layout.strides):
        if stride:
            terms.append(f"i{a}" if _implied(layout, a) else f"i{a} * u.s{k}_{a}")
    return " + ".join(terms) or "0u"
