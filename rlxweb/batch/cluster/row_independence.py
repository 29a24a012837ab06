"""Proof, op by op, that a graph keeps its rows independent; other graphs are refused
with the op's name.

Along the graph one axis is followed: that of the rows, the leading one of every input
that has rows. An op passes where its rule says that a row of the result needs that row
of its operands and no other. What has no rule here is refused: a graph that mixes rows
gives other numbers for every other cut into chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import TypeAlias

from rlxweb.core.errors import GraphError, RlxError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.shape_arithmetic import normalize_axis, normalize_sorted_axes

RowAxis: TypeAlias = int | None
"""Axis of a value that holds the rows; None if the value is the same for all rows."""
RowRule: TypeAlias = Callable[[Node, Sequence[Node], Sequence[RowAxis]], int]

_MIXES_ROWS = "its rows are not independent"


def check_row_independence(graph: Graph, inputs: Collection[str], context: str) -> int:
    """Check that a graph keeps its rows independent; return the number of rows it was
    declared for.

    inputs   those that have rows; others, and params, are the same for every row
    Errors   GraphError naming the op that mixes rows, or that is not known to keep them
             apart; for outputs that do not have rows as their leading axis.
    """
    rows = _declared_rows(graph, inputs, context)
    axes: list[RowAxis] = []
    for node in graph.nodes():
        operands = [graph.node(node_id) for node_id in node.inputs]
        axis = _follow_row_axis(
            node, operands, [axes[node_id] for node_id in node.inputs], inputs
        )
        if isinstance(axis, str):
            raise _rows_mixed_error(graph, node, axis, context)
        if axis is not None and node.type.shape[axis] != rows:
            raise _rows_mixed_error(
                graph,
                node,
                f"it returns {node.type.shape[axis]} rows for {rows} input rows",
                context,
            )
        axes.append(axis)
    for position, node_id in enumerate(graph.outputs):
        if axes[node_id] != 0:
            found_rows = (
                "has no rows"
                if axes[node_id] is None
                else f"has rows on axis {axes[node_id]}"
            )
            raise GraphError(
                context,
                f"output {position} of graph '{graph.name}', "
                f"{graph.node(node_id).type},"
                f" {found_rows}",
                "rows must be the leading axis of every output",
                "transpose or remove the output",
            )
    return rows


def _declared_rows(graph: Graph, inputs: Collection[str], context: str) -> int:
    rows_by_input = {}
    for name, node in graph.named("input").items():
        if name in inputs:
            if not node.type.shape:
                raise GraphError(
                    context, f"input '{name}' is a scalar", "expected rank >= 1"
                )
            rows_by_input[name] = node.type.shape[0]
    if len(set(rows_by_input.values())) != 1 or 0 in rows_by_input.values():
        listing = (
            ", ".join(f"'{name}' {n}" for name, n in rows_by_input.items()) or "none"
        )
        raise GraphError(
            context,
            f"the inputs are declared with these numbers of rows: {listing}",
            "all inputs with rows must have the same number of rows, at least 1",
        )
    return next(iter(rows_by_input.values()))


def _follow_row_axis(
    node: Node,
    operands: Sequence[Node],
    axes: Sequence[RowAxis],
    inputs: Collection[str],
) -> RowAxis | str:
    """Return the row axis of a node's result, or why its rows are not independent."""
    if node.op == "input":
        return 0 if node.name in inputs else None
    if all(axis is None for axis in axes):
        return None
    op = registry.get(node.op)
    rule = _RULES.get(op.name)
    if not registry.is_builtin(op.name):
        return "a custom op may mix rows"
    if rule is None and op.has_trait("elementwise"):
        rule = _broadcast_rule
    if rule is None:
        return "row independence is not known for this op"
    try:
        return rule(node, operands, axes)
    except _RowsMixedError as error:
        return str(error)


class _RowsMixedError(Exception):
    """Reason why rows are not independent."""


def _rows_mixed_error(graph: Graph, node: Node, why: str, context: str) -> RlxError:
    name = f" '{node.name}'" if node.name else ""
    return GraphError(
        context,
        f"op '{node.op}'{name} (%{node.id}) of graph '{graph.name}' has type "
        f"{node.type}, and {_MIXES_ROWS}: {why}",
        "chunks are computed separately, so no row may depend on another",
        "apply the op without Dask, or to the computed result",
    )


def _broadcast_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    """Return the row axis of a broadcast, which aligns axes from the right."""
    rank = node.type.rank
    pairs = list(zip(operands, axes, strict=True))
    result_axes = {
        rank - (operand.type.rank - operand_axis)
        for operand, operand_axis in pairs
        if operand_axis is not None
    }
    if len(result_axes) != 1:
        raise _RowsMixedError(f"its operands have rows on axes {sorted(result_axes)}")
    (result_axis,) = result_axes
    _check_same_for_all_rows(
        rank, result_axis, [operand for operand, axis in pairs if axis is None]
    )
    return result_axis


def _check_same_for_all_rows(
    rank: int, row_axis: int, operands: Sequence[Node]
) -> None:
    """Check that operands without rows do not differ along the row axis."""
    for operand in operands:
        operand_axis = row_axis - (rank - operand.type.rank)
        if operand_axis >= 0 and operand.type.shape[operand_axis] != 1:
            raise _RowsMixedError(
                f"operand %{operand.id}, {operand.type}, has different values for each "
                "row"
            )


def _first_operand_axis(axes: Sequence[RowAxis]) -> int:
    """Return the row axis of the first operand, which must be the only one with
    rows.
    """
    first, *others = axes
    if first is None or any(axis is not None for axis in others):
        raise _RowsMixedError("only its first operand may have rows")
    return first


def _single_axis_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    """Return the row axis of an op along one axis, the last where there is no
    attribute.
    """
    axis, rank = _first_operand_axis(axes), operands[0].type.rank
    if normalize_axis(node.attrs.get("axis", -1), rank) == axis:
        raise _RowsMixedError("it operates along the row axis")
    return axis


def _signal_pair_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    """Return the row axis of an op on two signals, row by row; further operands are the
    same for all rows.
    """
    first, second, *others = axes
    if (first, second) != (0, 0) or any(axis is not None for axis in others):
        raise _RowsMixedError("both its signals must have rows on axis 0")
    return 0


def _reduction_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    axis = _first_operand_axis(axes)
    reduced_axes = normalize_sorted_axes(node.attrs["axes"], operands[0].type.rank)
    if axis in reduced_axes:
        raise _RowsMixedError("it reduces the row axis")
    return (
        axis if node.attrs["keep_dim"] else axis - sum(a < axis for a in reduced_axes)
    )


def _arg_reduction_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    axis = _single_axis_rule(node, operands, axes)
    reduced_axis = normalize_axis(node.attrs["axis"], operands[0].type.rank)
    return axis if node.attrs["keep_dim"] else axis - (reduced_axis < axis)


def _reshape_rule(node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]) -> int:
    axis, old, new = _first_operand_axis(axes), operands[0].type.shape, node.type.shape
    for new_axis, n in enumerate(new):
        if n == old[axis] and prod(new[:new_axis]) == prod(old[:axis]):
            return new_axis
    raise _RowsMixedError("it reshapes the row axis")


def _transpose_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    rank = operands[0].type.rank
    return [normalize_axis(p, rank) for p in node.attrs["perm"]].index(
        _first_operand_axis(axes)
    )


def _narrow_rule(node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]) -> int:
    axis = _first_operand_axis(axes)
    if normalize_axis(node.attrs["axis"], operands[0].type.rank) == axis:
        raise _RowsMixedError("it slices the row axis")
    return axis


def _data_movement_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    """Return the row axis of an op that moves or adds elements along some axes."""
    axis = _first_operand_axis(axes)
    if axis in normalize_sorted_axes(node.attrs["axes"], operands[0].type.rank):
        raise _RowsMixedError("it moves elements along the row axis")
    return axis


def _tile_rule(node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]) -> int:
    axis = _first_operand_axis(axes)
    if node.attrs["repeats"][axis] != 1:
        raise _RowsMixedError("it repeats rows")
    return axis


def _image_batch_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    """Return the row axis of an op on windows over the spatial axes of each image of a
    batch.
    """
    if _first_operand_axis(axes) != 0:
        raise _RowsMixedError("the rows must be the images of a batch, on axis 0")
    return 0


def _quantization_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    """Return the row axis of a (de)quantization, whose scales and zero points are for
    all rows or for another axis.
    """
    axis, (x, *scales) = _first_operand_axis(axes), operands
    for scale in scales if not node.attrs["block_size"] else ():
        if (
            scale.type.numel > 1
            and normalize_axis(node.attrs["axis"], x.type.rank) == axis
        ):
            raise _RowsMixedError(
                f"operand %{scale.id}, {scale.type}, has a different value for each row"
            )
    if node.attrs["block_size"]:
        _check_same_for_all_rows(x.type.rank, axis, scales)
    return axis


def _conv_integer_rule(
    node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]
) -> int:
    """Return the row axis of a convolution of integer images, from which a zero point
    is subtracted.
    """
    axis = _image_batch_rule(node, operands, axes)
    _check_same_for_all_rows(node.type.rank, axis, operands[2:3])
    return axis


def _concat_rule(node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]) -> int:
    axis = _broadcast_rule(node, operands, axes)
    if normalize_axis(node.attrs["axis"], node.type.rank) == axis:
        raise _RowsMixedError("it concatenates along the row axis")
    return axis


def _matmul_rule(node: Node, operands: Sequence[Node], axes: Sequence[RowAxis]) -> int:
    """Return the row axis of the product of x (…, m, k) and w (…, k, n); added operands
    are broadcast.
    """
    (x, w), rank = operands[:2], node.type.rank
    if axes[0] == x.type.rank - 1 or axes[1] == w.type.rank - 2:
        raise _RowsMixedError("it sums over the row axis")
    if axes[0] == x.type.rank - 2 and axes[1] is None:
        result_axis = rank - 2
    elif axes[1] == w.type.rank - 1 and axes[0] is None:
        result_axis = rank - 1
    else:  # of both, or of one against a batch of 1
        result_axis = _broadcast_rule(node, (x, w), axes[:2])
        if result_axis >= rank - 2:
            raise _RowsMixedError("both its operands have rows")
    if any(axis is not None for axis in axes[2:]):
        raise _RowsMixedError("an operand added to the product has rows")
    _check_same_for_all_rows(rank, result_axis, operands[2:])
    return result_axis


_RULES: dict[str, RowRule] = {
    "reshape": _reshape_rule,
    "transpose": _transpose_rule,
    "narrow": _narrow_rule,
    **dict.fromkeys(("expand", "identity", "stop_gradient"), _broadcast_rule),
    **dict.fromkeys(("segment_in", "segment_out", "again"), _broadcast_rule),
    "concat": _concat_rule,
    "matmul": _matmul_rule,
    "fused_matmul_bias_act": _matmul_rule,
    "matmul_integer": _matmul_rule,
    "conv_integer": _conv_integer_rule,
    "quantize_linear": _quantization_rule,
    "dequantize_linear": _quantization_rule,
    **dict.fromkeys(("sum", "mean", "max", "min", "prod"), _reduction_rule),
    **dict.fromkeys(("softmax", "cumsum", "layer_norm", "rms_norm"), _single_axis_rule),
    **dict.fromkeys(("argsort", "sort", "cumprod"), _single_axis_rule),
    "log_softmax": _single_axis_rule,
    **dict.fromkeys(("argmax", "argmin"), _arg_reduction_rule),
    **dict.fromkeys(
        ("fft", "rfft", "irfft", "psd_real", "topk", "power_peaks"), _single_axis_rule
    ),
    **dict.fromkeys(
        ("frame", "stft", "welch_power", "welch_row_peaks"), _single_axis_rule
    ),
    **dict.fromkeys(("segment_power", "segment_spectra"), _single_axis_rule),
    "cross_power": _signal_pair_rule,
    **dict.fromkeys(
        ("slice", "windows", "pad", "roll", "dilate", "remap"), _data_movement_rule
    ),
    **dict.fromkeys(("repeat", "resize"), _single_axis_rule),
    "tile": _tile_rule,
    **dict.fromkeys(
        ("conv", "conv_transpose", "max_pool", "max_pool_indices"), _image_batch_rule
    ),
    **dict.fromkeys(("sum_pool", "avg_pool", "lp_pool"), _image_batch_rule),
}
