"""Attention as exporters write it: softmax(q · kᵀ · scale + mask) · v.

The scale is a factor or a divisor of one number, or missing; the mask is added, or
missing. Heads stand in their own axis, mostly turned there from behind the positions:
then the operands are taken as they were before, and nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.errors import RlxError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape import Shape, broadcast
from rlxweb.ir.spelled import Found, only_read_here
from rlxweb.ir.tensor import Tensor

_TURNED = (0, 2, 1, 3)
_KEYS_TURNED = (0, 2, 3, 1)


@dataclass(frozen=True, slots=True)
class _Scores:
    """What goes into the softmax: queries, keys as columns, their scale, the mask."""

    queries: int
    columns: int
    scale: float
    bias: int | None


def spelled(graph: Graph, node: Node, uses: Mapping[int, int]) -> Found | None:
    """The attention that ends in a product, or None."""
    if node.op != "matmul" or len(node.type.shape) not in (3, 4):
        return None
    weights = only_read_here(graph, node.inputs[0], uses)
    if weights is None or weights.op != "softmax":
        return None
    rank = len(weights.type.shape)
    if weights.attrs["axis"] not in (-1, rank - 1) or not node.type.dtype.is_float:
        return None
    scores = _scores(graph, weights.inputs[0], uses)
    return None if scores is None else _found(graph, node, scores)


def _scores(graph: Graph, at: int, uses: Mapping[int, int]) -> _Scores | None:
    scale, bias = 1.0, None
    shape = graph.node(at).type.shape
    while (node := only_read_here(graph, at, uses)) is not None:
        if node.op == "matmul":
            queries, columns = node.inputs
            return _Scores(queries, columns, scale, bias)
        if node.op not in ("mul", "div", "add") or node.type.shape != shape:
            return None
        number = _number(graph, node.inputs[1])
        if node.op == "add" and bias is None and scale == 1.0:
            at, bias = _apart(graph, node, uses)
        elif node.op == "mul" and number is not None:
            at, scale = node.inputs[0], scale * number
        elif node.op == "mul" and (number := _number(graph, node.inputs[0])):
            at, scale = node.inputs[1], scale * number
        elif node.op == "div" and number:
            at, scale = node.inputs[0], scale / number
        else:
            return None
    return None


def _apart(graph: Graph, node: Node, uses: Mapping[int, int]) -> tuple[int, int]:
    """The scores and what is added to them, of which one is computed for this alone."""
    x, y = node.inputs
    first = only_read_here(graph, x, uses)
    if first is None or first.op not in ("matmul", "mul", "div"):
        return y, x
    return (x, y) if first.type == node.type else (y, x)


def _number(graph: Graph, at: int) -> float | None:
    """A finite constant of one element, in each of its places."""
    node = graph.node(at)
    if node.op != "constant" or not node.is_literal or not node.type.numel:
        return None
    value = float(node.attrs["value"].array.reshape(-1)[0])
    return value if math.isfinite(value) else None


def _found(graph: Graph, node: Node, scores: _Scores) -> Found | None:
    ids = (scores.queries, scores.columns, node.inputs[1])
    q, columns, v = (graph.node(i).type.shape for i in ids)
    if len({len(q), len(columns), len(v)}) > 1:
        return None
    if q[:-2] != columns[:-2] or q[:-2] != v[:-2] or columns[-1] != v[-2]:
        return None
    made = _in_rows(graph, ids) or _in_heads(graph, ids)
    heads = q[1] if len(q) == 4 else 1
    attrs: dict[str, Any] = {
        "num_heads": heads,
        "head_dim": q[-1],
        "mask_kind": "none" if scores.bias is None else "bias",
        "score_scale": scores.scale,
    }
    dtype, reads = node.type.dtype, list(made.ids)
    shapes = list(made.shapes)
    if scores.bias is not None:
        bias = _bias_shape(graph.node(scores.bias).type.shape, q, columns)
        if bias is None:
            return None
        reads.append(scores.bias)
        shapes.append(bias)

    def build(g: Graph, given: tuple[Tensor, ...]) -> Tensor:
        turned = [
            g.reshape(g.transpose(x, perm) if perm else x, shape)
            for x, perm, shape in zip(given, made.perms, shapes, strict=False)
        ]
        turned += [g.reshape(x, shapes[3]) for x in given[3:]]
        out = g.apply("attention", *turned, **attrs)
        if made.is_rows:
            out = g.transpose(out, _TURNED)
        return g.reshape(out, node.type.shape)

    types = tuple(TensorType(shape, dtype) for shape in shapes)
    return Found(tuple(reads), types, attrs, build)


@dataclass(frozen=True, slots=True)
class _Operands:
    """Where q, k and v are taken, how they are turned, and their shapes then."""

    ids: tuple[int, ...]
    perms: tuple[tuple[int, ...], ...]
    shapes: tuple[Shape, ...]
    is_rows: bool


def _in_rows(graph: Graph, ids: tuple[int, int, int]) -> _Operands | None:
    """As they were before heads were put in front of positions, where all were."""
    before, shapes = [], []
    for at, perm in zip(ids, (_TURNED, _KEYS_TURNED, _TURNED), strict=True):
        node = graph.node(at)
        if node.op != "transpose" or tuple(node.attrs["perm"]) != perm:
            return None
        before.append(node.inputs[0])
        shapes.append(graph.node(node.inputs[0]).type.shape)
    # By whose dimension 1 the op tells the layouts apart.
    if shapes[0][1] == shapes[0][2]:
        return None
    return _Operands(tuple(before), ((),) * 3, tuple(shapes), True)


def _in_heads(graph: Graph, ids: tuple[int, int, int]) -> _Operands:
    """As they are, the keys turned; without heads each batch has one."""
    shapes = []
    for at in ids:
        shape = graph.node(at).type.shape
        shapes.append(shape if len(shape) == 4 else (shape[0], 1, *shape[1:]))
    rank = len(graph.node(ids[0]).type.shape)
    perm = (*range(rank - 2), rank - 1, rank - 2)
    b, h, size, keys = shapes[1]
    shapes[1] = (b, h, keys, size)
    return _Operands(ids, ((), perm, ()), tuple(shapes), False)


def _bias_shape(bias: Shape, q: Shape, columns: Shape) -> Shape | None:
    """What is added, as [B, H, Sq, Sk] or what broadcasts to it."""
    scores = (*q[:-1], columns[-1])
    try:
        if broadcast(bias, scores) != scores:
            return None
    except RlxError:
        return None
    if len(q) == 4 or len(bias) < 3:
        return bias
    return (bias[0], 1, *bias[1:])
