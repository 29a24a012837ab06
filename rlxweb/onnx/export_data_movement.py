"""Exporters of data-movement, gather and scatter ops."""

from __future__ import annotations

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.onnx.exporter_registry import (
    OnnxGraphBuilder,
    export_as_gather,
    export_as_gather_or_fill,
    is_index_table_small,
    register_exporter,
)

_INDEX_DTYPES = (DType.I32, DType.I64)


@register_exporter("reshape")
def _reshape(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return builder.add_reshape(x, node.type.shape)


@register_exporter("transpose")
def _transpose(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    perm = [normalize_axis(p, node.type.rank) for p in node.attrs["perm"]]
    return builder.add_node("Transpose", x, perm=perm) if perm else x


@register_exporter("narrow")
def _narrow(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    attrs = node.attrs
    end = attrs["start"] + attrs["length"]
    bounds = (
        builder.add_int64_constant(b) for b in (attrs["start"], end, attrs["axis"])
    )
    return builder.add_node("Slice", x, *bounds)


@register_exporter("slice")
def _slice(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    names = ("starts", "stops", "axes", "steps")
    return builder.add_node(
        "Slice", x, *(builder.add_int64_constant(*node.attrs[name]) for name in names)
    )


@register_exporter("expand")
def _expand(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    return builder.add_node("Expand", x, builder.add_int64_constant(*node.type.shape))


@register_exporter("concat")
def _concat(builder: OnnxGraphBuilder, node: Node, *xs: str) -> str:
    return builder.add_node("Concat", *xs, axis=node.attrs["axis"])


@register_exporter("tile")
def _tile(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    rank, repeats = builder.operand_type(node).rank, node.attrs["repeats"]
    if len(repeats) > rank:
        x = builder.add_reshape(
            x, (*(1,) * (len(repeats) - rank), *builder.operand_type(node).shape)
        )
    repeats = (*(1,) * (rank - len(repeats)), *repeats)
    return builder.add_node("Tile", x, builder.add_int64_constant(*repeats))


def _can_export_pad(builder: OnnxGraphBuilder, node: Node) -> bool:
    """Return whether a pad has a constant mode or a small index table."""
    return node.attrs["mode"] == "constant" or is_index_table_small(builder, node)


@register_exporter("pad", condition=_can_export_pad)
def _pad(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    attrs, operand_type = node.attrs, builder.operand_type(node)
    if attrs["mode"] != "constant":
        return export_as_gather(builder, node, x)
    pads = builder.add_int64_constant(*attrs["before"], *attrs["after"])
    value = builder.add_scalar_like(attrs["value"], operand_type)
    return builder.add_node(
        "Pad",
        x,
        pads,
        value,
        builder.add_int64_constant(*attrs["axes"]),
        mode="constant",
    )


register_exporter("roll", "repeat", condition=is_index_table_small)(export_as_gather)
register_exporter("dilate", "remap", condition=is_index_table_small)(
    export_as_gather_or_fill
)


def _as_onnx_index(
    builder: OnnxGraphBuilder, node: Node, position: int, name: str
) -> str:
    """Cast an index operand to a dtype that ONNX accepts."""
    return (
        name
        if builder.operand_type(node, position).dtype in _INDEX_DTYPES
        else builder.add_cast(name, DType.I64)
    )


@register_exporter("gather")
def _gather(builder: OnnxGraphBuilder, node: Node, table: str, indices: str) -> str:
    onnx_indices = _as_onnx_index(builder, node, 1, indices)
    return builder.add_node("Gather", table, onnx_indices, axis=node.attrs["axis"])


@register_exporter("gather_elements")
def _gather_elements(
    builder: OnnxGraphBuilder, node: Node, x: str, indices: str
) -> str:
    onnx_indices = _as_onnx_index(builder, node, 1, indices)
    return builder.add_node("GatherElements", x, onnx_indices, axis=node.attrs["axis"])


@register_exporter("gather_nd")
def _gather_nd(builder: OnnxGraphBuilder, node: Node, x: str, indices: str) -> str:
    onnx_indices = builder.add_cast(indices, DType.I64)
    return builder.add_node(
        "GatherND", x, onnx_indices, batch_dims=node.attrs["batch_dims"]
    )


@register_exporter("scatter_elements")
def _scatter_elements(
    builder: OnnxGraphBuilder, node: Node, x: str, indices: str, updates: str
) -> str:
    attrs = {name: node.attrs[name] for name in ("axis", "reduction")}
    return builder.add_node(
        "ScatterElements",
        x,
        _as_onnx_index(builder, node, 1, indices),
        updates,
        **attrs,
    )


@register_exporter(
    "scatter_nd", condition=lambda builder, node: not node.attrs["batch_dims"]
)
def _scatter_nd(
    builder: OnnxGraphBuilder, node: Node, x: str, indices: str, updates: str
) -> str:
    onnx_indices = builder.add_cast(indices, DType.I64)
    return builder.add_node(
        "ScatterND", x, onnx_indices, updates, reduction=node.attrs["reduction"]
    )


@register_exporter("argsort")
def _argsort(builder: OnnxGraphBuilder, node: Node, x: str) -> str:
    """Export an argsort as a TopK of all elements; ties are ordered by index, as in a
    stable sort.
    """
    operand_type = builder.operand_type(node)
    axis = normalize_axis(node.attrs["axis"], operand_type.rank)
    attributes = {"axis": axis, "largest": int(node.attrs["descending"])}
    wider_dtype = {DType.U32: DType.I64, DType.F16: DType.F32}.get(operand_type.dtype)
    x = (
        x if wider_dtype is None else builder.add_cast(x, wider_dtype)
    )  # what others have kernels for
    order = builder.add_multi_output_node(
        "TopK", 2, x, builder.add_int64_constant(operand_type.shape[axis]), **attributes
    )[1]
    return builder.add_cast(order, DType.I32)


@register_exporter("searchsorted")
def _searchsorted(builder: OnnxGraphBuilder, node: Node, row: str, values: str) -> str:
    """Export a sorted search as the number of elements of a row before each value."""
    row_type, value_type = builder.operand_type(node), builder.operand_type(node, 1)
    left = builder.add_reshape(row, (*row_type.shape[:-1], 1, row_type.shape[-1]))
    right = builder.add_reshape(values, (*value_type.shape, 1))
    if node.attrs["side"] == "left":
        is_before = builder.add_node("Less", left, right)
    else:
        is_before = builder.add_node("LessOrEqual", left, right)
    last = builder.add_int64_constant(value_type.rank)
    return builder.add_node(
        "ReduceSum", builder.add_cast(is_before, DType.I32), last, keepdims=0
    )
