"""Elementwise regions and layout copies as generated WGSL.

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

from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.codegen.wgsl_module import TYPE_ALIASES, elements_per_word
from rlxweb.core.errors import GraphError
from rlxweb.ir.dtype import PACKED_DTYPES, DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import (
    BufferRef,
    Expr,
    IterationAxis,
    KernelDispatch,
    OperandAccess,
    encode_uniform,
    wrap_u32,
)
from rlxweb.ir.op import registry

_OPERANDS = "xyz"
ELEMENTWISE_DTYPES = PACKED_DTYPES | {DType.F16}
"""Dtypes that are loaded and stored one element at a time, never as vec4."""
_NOT_FINITE = ("inf", "-inf", "nan")
_PLACEHOLDER = re.compile(r"\{(\w+)\}|\b([xyzXYZ])\b")


def float_literal(value: Any) -> str:
    """Return a finite float32 as a WGSL float literal that reads back to the same
    bits.
    """
    text = repr(float(np.float32(value)))
    return text if any(c in text for c in ".en") else text + ".0"


def substitute_expression(
    expr: Expr,
    operands: Sequence[str],
    dtypes: Sequence[DType],
    node: Node,
    types: tuple[Any, Any],
) -> str:
    """Return the WGSL expression of one node with its operands and attributes
    substituted.
    """
    text = expr.text if isinstance(expr.text, str) else expr.text(*types, node.attrs)

    def substitute(match: re.Match[str]) -> str:
        if match[1]:
            return _attribute_literal(node, match[1])
        index = _OPERANDS.index(match[2].lower())
        if index >= len(operands):
            raise GraphError(
                str(node),
                f"the op's WGSL expression uses operand {match[2]!r}",
                f"the op has {len(operands)} operand{'s' * (len(operands) != 1)}",
            )
        return operands[index] if match[2].islower() else TYPE_ALIASES[dtypes[index]]

    return _PLACEHOLDER.sub(substitute, text)


def _attribute_literal(node: Node, name: str) -> str:
    """Return an attribute of a node as a WGSL literal."""
    value = node.attrs.get(name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            text = float_literal(value)
        if text not in _NOT_FINITE:
            return text
    raise GraphError(
        str(node),
        f"the op's WGSL expression uses attribute {name}={value!r}",
        "a constant in a shader must be a bool, an integer or a finite float32",
    )


class RegionBody(NamedTuple):
    """WGSL of a region: its lines, the name of the result, the includes and the
    uniforms it uses.
    """

    lines: list[str]
    result: str
    includes: tuple[str, ...]
    uniforms: dict[str, int | float]


def region_body(
    graph: Graph, ids: Sequence[int], loads: Mapping[int, str]
) -> RegionBody:
    """Return the WGSL of a region: one `let` per node, named in order, so that equal
    work gives equal text.

    loads   nodes outside → the names of their values
    """
    lines: list[str] = []
    uniforms: dict[str, int | float] = {}
    names, halves = dict(loads), _float16_intermediates(graph, ids)
    for number, node_id in enumerate(ids):
        node = graph.node(node_id)
        expr = registry.get(node.op).lower
        if not isinstance(expr, Expr):
            raise GraphError(str(node), "the op is not elementwise")
        for i in node.inputs:
            operand = graph.node(i)
            if i not in names and operand.is_literal:
                names[i] = literal_operand(operand, uniforms)
        operand_types = tuple(graph.node(i).type for i in node.inputs)
        text = substitute_expression(
            expr,
            [names[i] for i in node.inputs],
            [operand_type.dtype for operand_type in operand_types],
            node,
            (operand_types, node.type),
        )
        names[node_id] = f"v{number}"
        rounded = f"half({text})" if node_id in halves else text
        lines.append(f"  let v{number} = {rounded};")
    lowerings = [registry.get(graph.node(node_id).op).lower for node_id in ids]
    includes = dict.fromkeys(
        include for operand in lowerings for include in getattr(operand, "uses", ())
    )
    if halves:
        includes["half"] = None
    return RegionBody(lines, names[ids[-1]], tuple(includes), uniforms)


def literal_operand(node: Node, uniforms: dict[str, int | float]) -> str:
    """Return a literal constant as an operand: a uniform, so that another number gives
    the same text. A driver that sees the number takes x * 0.0 for 0 too, and a module
    is rejected when an expression of literals alone overflows or divides by zero.
    """
    value, dtype = node.attrs["value"].array.item(), node.type.dtype
    if dtype is DType.BOOL:  # two texts at most
        return f"B({'true' if value else 'false'})"
    name = f"c{len(uniforms)}"
    uniforms[name], text = encode_uniform(value, dtype, name)
    return f"{TYPE_ALIASES[dtype]}({text})"


def _float16_intermediates(graph: Graph, ids: Sequence[int]) -> set[int]:
    """Return the f16 nodes of a region that no store rounds; all are computed in
    f32.
    """
    return {
        node_id for node_id in ids[:-1] if graph.node(node_id).type.dtype is DType.F16
    }


def region_dispatch(
    graph: Graph,
    ids: Sequence[int],
    reads: Sequence[tuple[int, Layout]],
    allow_vec4: bool = True,
) -> KernelDispatch:
    """Return the dispatch of a fused region; the output is dense.

    `reads` pairs each outside node with the layout it is read through, already spread
    to the region's shape.
    """
    last = graph.node(ids[-1])
    out, *read_layouts = Layout.dense(last.type.shape).coalesce(
        *(layout for _, layout in reads)
    )
    dtypes = [graph.node(i).type.dtype for i, _ in reads]
    body = region_body(graph, ids, {i: f"r{k}" for k, (i, _) in enumerate(reads)})
    return _strided_dispatch(
        out, read_layouts, [*dtypes, last.type.dtype], body, allow_vec4
    )


def copy_dispatch(source: Layout, target: Layout, dtype: DType) -> KernelDispatch:
    """Return the dispatch that copies elements from one layout to another of the same
    shape.
    """
    out, read = target.coalesce(source)
    return _strided_dispatch(out, [read], [dtype, dtype], RegionBody([], "r0", (), {}))


def _strided_dispatch(
    out: Layout,
    reads: Sequence[Layout],
    dtypes: Sequence[DType],
    body: RegionBody,
    allow_vec4: bool = True,
) -> KernelDispatch:
    """Return the dispatch with loads, body and store around the index arithmetic of a
    strided walk.
    """
    if dtypes[-1] in PACKED_DTYPES:
        return _packed_dispatch(out, reads, dtypes, body)
    shape, out_index = out.shape, len(reads)
    layouts = [*reads, out]
    is_vec4 = _vec4_accesses(layouts, dtypes) if allow_vec4 else (False,) * len(layouts)
    lanes = 4 if any(is_vec4) else 1
    axes = tuple(IterationAxis(f"d{a}", size) for a, size in enumerate(shape))
    uniforms = body.uniforms | {
        f"s{k}_{a}": wrap_u32(stride // (4 if is_vec4[k] else 1))
        for k, layout in enumerate(layouts)
        for a, stride in enumerate(layout.strides)
        if not _is_implied_stride(layout, a)
    }
    accesses = tuple(
        OperandAccess(
            BufferRef("out") if k == out_index else BufferRef("in", k),
            layout.strides,
            "write" if k == out_index else "read",
            layout.offset,
            is_vec4=is_vec4[k],
        )
        for k, layout in enumerate(layouts)
    )
    lines = [
        *MAIN_LINES,
        *index_lines(len(shape), lanes),
    ]
    for k, layout in enumerate(reads):
        load = f"ld{k}({_address_wgsl(k, layout)})"
        if lanes > 1 and not is_vec4[k]:
            load = f"{TYPE_ALIASES[dtypes[k]]}({load})"
        lines.append(f"  let r{k} = {load};")
    lines += [
        *body.lines,
        f"  st{out_index}({_address_wgsl(out_index, out)}, {body.result});",
        "}",
    ]
    grid = tuple(
        (axis.name, lanes if n == len(axes) - 1 else 1) for n, axis in enumerate(axes)
    )
    return KernelDispatch(
        shader="generated",
        axes=axes,
        accesses=accesses,
        grid=grid,
        uniforms=uniforms,
        uses=body.includes,
        source="\n".join(lines),
        needs_whole_tiles=lanes > 1,
    )


def _packed_dispatch(
    out: Layout, reads: Sequence[Layout], dtypes: Sequence[DType], body: RegionBody
) -> KernelDispatch:
    """Return the dispatch of a packed result: each item computes a whole word, element
    by element, so that no two write to the same one.
    """
    if not Layout(out.shape, out.strides).is_dense or out.offset:
        raise GraphError(
            "region",
            f"the result of dtype {dtypes[-1]} is not dense or has an offset",
            "the result must be dense and without an offset, because it is written "
            "as whole 32-bit words",
        )
    shape, out_index, element_count = out.shape, len(reads), math.prod(out.shape)
    per_word = elements_per_word(dtypes[-1])
    uniforms = body.uniforms | {"elements": element_count}
    uniforms |= {f"n{a}": size for a, size in enumerate(shape) if a}
    uniforms |= {
        f"s{k}_{a}": wrap_u32(stride)
        for k, layout in enumerate(reads)
        for a, stride in enumerate(layout.strides)
        if not _is_implied_stride(layout, a)
    }
    is_run = len(shape) == 1 and all(read.strides[0] >= 0 for read in reads)
    accesses, loads, read_uniforms = _packed_reads(out, reads, per_word, is_run)
    uniforms |= read_uniforms
    accesses.append(
        OperandAccess(BufferRef("out"), (per_word,), "write", span=per_word)
    )
    lines = [
        *MAIN_LINES,
        f"  let first = (item + u.at_words) * {per_word}u;",
        f"  let many = min({per_word}u, u.elements - first);",
        "  var word = 0u;",
        "  for (var n = 0u; n < many; n++) {",
        f"  var rest = {f'item * {per_word}u' if is_run else 'first'} + n;",
    ]
    for a in range(len(shape) - 1, 0, -1):
        lines.append(f"  let i{a} = rest % u.n{a}; rest = rest / u.n{a};")
    lines.append("  let i0 = rest;")
    lines += loads
    lines += [
        *body.lines,
        f"  word |= part{out_index}(n, {body.result});",
        "  }",
        f"  st{out_index}(item * {per_word}u, word);",
        "}",
    ]
    return KernelDispatch(
        shader="generated",
        axes=(IterationAxis("words", -(-element_count // per_word)),),
        accesses=tuple(accesses),
        grid=(("words", 1),),
        uniforms=uniforms,
        uses=body.includes,
        source="\n".join(lines),
        iterations=float(per_word),
    )


def _packed_reads(
    out: Layout, reads: Sequence[Layout], per_word: int, is_run: bool
) -> tuple[list[OperandAccess], list[str], dict[str, int | float]]:
    """Return accesses, lines and uniforms by which the operands of a packed result are
    read.

    In one run of elements a piece is told by its own words alone; so is what lies as
    the results do.
    """
    accesses, lines = [], []
    uniforms: dict[str, int | float] = {}
    for k, layout in enumerate(reads):
        address = _address_wgsl(k, layout)
        if is_run:
            accesses.append(_word_access(k, layout.strides[0], layout.offset, per_word))
        elif layout.strides == out.strides:
            accesses.append(_word_access(k, 1, layout.offset, per_word))
            address = f"item * {per_word}u + n"
        else:
            accesses.append(_whole_access(k, layout))
            if ahead := _layout_extent(layout)[0]:
                uniforms[f"ahead{k}"] = ahead
                address = f"u.ahead{k} + {address}"
        lines.append(f"  let r{k} = ld{k}({address});")
    return accesses, lines, uniforms


def _word_access(k: int, step: int, offset: int, per_word: int) -> OperandAccess:
    """Return the access of as many elements as share a word, `step` from one to the
    next.
    """
    span = (per_word - 1) * step + 1
    return OperandAccess(
        BufferRef("in", k), (per_word * step,), "read", offset, span=span
    )


def _whole_access(k: int, layout: Layout) -> OperandAccess:
    """Return an access to all elements of a layout, which are found by the number of a
    result, not by an axis.
    """
    ahead, behind = _layout_extent(layout)
    span = ahead + behind + 1
    return OperandAccess(
        BufferRef("in", k), (0,), "read", layout.offset - ahead, span=span
    )


def _layout_extent(layout: Layout) -> tuple[int, int]:
    """Return how many elements lie before the first one of a layout, and behind it."""
    steps = [
        (d - 1) * s for d, s in zip(layout.shape, layout.strides, strict=True) if d
    ]
    return -sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)


def _vec4_accesses(
    layouts: Sequence[Layout], dtypes: Sequence[DType]
) -> tuple[bool, ...]:
    """Return which accesses can move vec4s: rows must be whole fours or broadcast one
    element.
    """
    shape = layouts[-1].shape
    can_use_vec4 = (
        bool(shape)
        and shape[-1] % 4 == 0
        and not ELEMENTWISE_DTYPES.intersection(dtypes)
    )
    can_use_vec4 = (
        can_use_vec4
        and layouts[-1].strides[-1] == 1
        and all(map(_is_vec4_aligned, layouts))
    )
    return tuple(can_use_vec4 and layout.strides[-1] == 1 for layout in layouts)


def _is_vec4_aligned(layout: Layout) -> bool:
    """Return whether the rows of a layout start at multiples of four, or are one
    element each.
    """
    *outer, inner = layout.strides
    starts = (layout.offset, *outer)
    return inner == 0 or (inner == 1 and all(s % 4 == 0 for s in starts))


def _is_implied_stride(layout: Layout, axis: int) -> bool:
    """Return whether a stride needs no uniform: 0, or 1 on the last axis."""
    stride = layout.strides[axis]
    return stride == 0 or (stride == 1 and axis == len(layout.shape) - 1)


def index_lines(rank: int, width: int) -> list[str]:
    """Return the WGSL that computes the positions on the axes; the last axis counts in
    groups of `lanes` elements.
    """
    if rank <= 1:
        return ["  let i0 = item;"]
    lines = ["  var rest = item;"]
    for a in range(rank - 1, 0, -1):
        size = f"(u.d{a} / {width}u)" if a == rank - 1 and width > 1 else f"u.d{a}"
        lines.append(f"  let i{a} = rest % {size}; rest = rest / {size};")
    return [*lines, "  let i0 = rest;"]


def _address_wgsl(k: int, layout: Layout) -> str:
    """Return the WGSL of the element index of access k."""
    terms = []
    for a, stride in enumerate(layout.strides):
        if stride:
            terms.append(
                f"i{a}" if _is_implied_stride(layout, a) else f"i{a} * u.s{k}_{a}"
            )
    return " + ".join(terms) or "0u"
