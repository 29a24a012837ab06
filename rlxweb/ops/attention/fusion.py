"""Fusion pattern of attention as exporters write it: softmax(q · kᵀ · scale + mask) ·
v.

The scale is a factor or a divisor of one number, or missing; the mask is added, or
missing. Heads stand in their own axis, mostly turned there from behind the positions:
then the operands are taken as they were before, and nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.core.errors import RlxError
from rlxweb.ir.fusion_pattern import FusionMatch, single_use_node
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import TensorType
from rlxweb.ir.op_methods import reshape_if_needed
from rlxweb.ir.shape_arithmetic import Shape, broadcast
from rlxweb.ir.tensor import Tensor

_HEADS_FIRST_PERM = (0, 2, 1, 3)
_KEY_COLUMNS_PERM = (0, 2, 3, 1)


@dataclass(frozen=True, slots=True)
class _AttentionScores:
    """Node ids of queries, key columns and bias that go into the softmax, and the
    scale.
    """

    query_id: int
    key_columns_id: int
    scale: float
    bias_id: int | None


def match_attention(
    graph: Graph, node: Node, uses: Mapping[int, int]
) -> FusionMatch | None:
    """Match the attention whose last product is `node`, or return None."""
    if node.op != "matmul" or len(node.type.shape) not in (3, 4):
        return None
    weights = single_use_node(graph, node.inputs[0], uses)
    if weights is None or weights.op != "softmax":
        return None
    rank = len(weights.type.shape)
    if weights.attrs["axis"] not in (-1, rank - 1) or not node.type.dtype.is_float:
        return None
    scores = _match_scores(graph, weights.inputs[0], uses)
    return None if scores is None else _build_match(graph, node, scores)


def _match_scores(
    graph: Graph, node_id: int, uses: Mapping[int, int]
) -> _AttentionScores | None:
    """Follow scale and bias back from the softmax to the product q · kᵀ."""
    scale, bias_id = 1.0, None
    shape = graph.node(node_id).type.shape
    while (node := single_use_node(graph, node_id, uses)) is not None:
        if node.op == "matmul":
            query_id, key_columns_id = node.inputs
            return _AttentionScores(query_id, key_columns_id, scale, bias_id)
        if node.op not in ("mul", "div", "add") or node.type.shape != shape:
            return None
        number = _scalar_constant(graph, node.inputs[1])
        if node.op == "add" and bias_id is None and scale == 1.0:
            node_id, bias_id = _split_bias(graph, node, uses)
        elif node.op == "mul" and number is not None:
            node_id, scale = node.inputs[0], scale * number
        elif node.op == "mul" and (number := _scalar_constant(graph, node.inputs[0])):
            node_id, scale = node.inputs[1], scale * number
        elif node.op == "div" and number:
            node_id, scale = node.inputs[0], scale / number
        else:
            return None
    return None


def _split_bias(graph: Graph, node: Node, uses: Mapping[int, int]) -> tuple[int, int]:
    """Return the node ids (scores, bias) of a sum; the scores are only used here."""
    x, y = node.inputs
    first = single_use_node(graph, x, uses)
    if first is None or first.op not in ("matmul", "mul", "div"):
        return y, x
    return (x, y) if first.type == node.type else (y, x)


def _scalar_constant(graph: Graph, node_id: int) -> float | None:
    """Return the value of a constant whose elements are all one finite number, else
    None.
    """
    node = graph.node(node_id)
    if node.op != "constant" or not node.is_literal or not node.type.numel:
        return None
    value = float(node.attrs["value"].array.reshape(-1)[0])
    return value if math.isfinite(value) else None


def _build_match(
    graph: Graph, node: Node, scores: _AttentionScores
) -> FusionMatch | None:
    """Build the fusion match for these scores, or return None where shapes do not
    fit.
    """
    ids = (scores.query_id, scores.key_columns_id, node.inputs[1])
    q, key_columns, v = (graph.node(i).type.shape for i in ids)
    if len({len(q), len(key_columns), len(v)}) > 1:
        return None
    if q[:-2] != key_columns[:-2] or q[:-2] != v[:-2] or key_columns[-1] != v[-2]:
        return None
    operands = _operands_before_transpose(graph, ids) or _operands_with_heads_first(
        graph, ids
    )
    heads = q[1] if len(q) == 4 else 1
    attrs: dict[str, Any] = {
        "num_heads": heads,
        "head_dim": q[-1],
        "mask_kind": "none" if scores.bias_id is None else "bias",
        "score_scale": scores.scale,
    }
    dtype, input_ids = node.type.dtype, list(operands.ids)
    shapes = list(operands.shapes)
    if scores.bias_id is not None:
        bias = _bias_shape(graph.node(scores.bias_id).type.shape, q, key_columns)
        if bias is None:
            return None
        input_ids.append(scores.bias_id)
        shapes.append(bias)

    def build(g: Graph, tensors: tuple[Tensor, ...]) -> Tensor:
        perms = (*operands.perms, ())[: len(tensors)]
        arguments = [
            reshape_if_needed(g.transpose(x, perm) if perm else x, shape)
            for x, perm, shape in zip(tensors, perms, shapes, strict=True)
        ]
        out = g.apply("attention", *arguments, **attrs)
        if operands.is_positions_first:
            out = g.transpose(out, _HEADS_FIRST_PERM)
        return reshape_if_needed(out, node.type.shape)

    types = tuple(TensorType(shape, dtype) for shape in shapes)
    return FusionMatch(tuple(input_ids), types, attrs, build)


@dataclass(frozen=True, slots=True)
class _AttentionOperands:
    """Node ids of q, k and v, how to transpose them, and their shapes after that."""

    ids: tuple[int, ...]
    perms: tuple[tuple[int, ...], ...]
    shapes: tuple[Shape, ...]
    is_positions_first: bool


def _operands_before_transpose(
    graph: Graph, ids: tuple[int, int, int]
) -> _AttentionOperands | None:
    """Return the operands before heads were moved in front of positions, if all three
    were.
    """
    input_ids, shapes = [], []
    for node_id, perm in zip(
        ids, (_HEADS_FIRST_PERM, _KEY_COLUMNS_PERM, _HEADS_FIRST_PERM), strict=True
    ):
        node = graph.node(node_id)
        if node.op != "transpose" or tuple(node.attrs["perm"]) != perm:
            return None
        input_ids.append(node.inputs[0])
        shapes.append(graph.node(node.inputs[0]).type.shape)
    # By whose dimension 1 the op tells the layouts apart.
    if shapes[0][1] == shapes[0][2]:
        return None
    return _AttentionOperands(tuple(input_ids), ((),) * 3, tuple(shapes), True)


def _operands_with_heads_first(
    graph: Graph, ids: tuple[int, int, int]
) -> _AttentionOperands:
    """Return the operands as they are, with the keys transposed; without a head axis
    there is one head.
    """
    shapes = []
    for node_id in ids:
        shape = graph.node(node_id).type.shape
        shapes.append(shape if len(shape) == 4 else (shape[0], 1, *shape[1:]))
    rank = len(graph.node(ids[0]).type.shape)
    perm = (*range(rank - 2), rank - 1, rank - 2)
    b, h, size, key_count = shapes[1]
    shapes[1] = (b, h, key_count, size)
    return _AttentionOperands(ids, ((), perm, ()), tuple(shapes), False)


def _bias_shape(bias: Shape, q: Shape, key_columns: Shape) -> Shape | None:
    """Return the bias shape as [B, H, Sq, Sk] or one that broadcasts to it, or None."""
    scores = (*q[:-1], key_columns[-1])
    try:
        if broadcast(bias, scores) != scores:
            return None
    except RlxError:
        return None
    if len(q) == 4 or len(bias) < 3:
        return bias
    return (bias[0], 1, *bias[1:])
