"""Does a graph keep its rows apart? Proved op by op, or refused with the op's name.

Along the graph one axis is followed: that of the rows, the leading one of every input
that has rows. An op passes where its rule says that a row of the result needs that row
of its operands and no other. What has no rule here is refused: a graph that mixes rows
gives other numbers for every other cut into chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import TypeAlias

from rlxweb.errors import GraphError, RlxError
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.shape import normal_axes, normal_axis

Axis: TypeAlias = int | None
"""Where a value has the rows; None: it is the same for all."""
Rule: TypeAlias = Callable[[Node, Sequence[Node], Sequence[Axis]], int]

_MIXES = "its rows are not kept apart"


def check_rows_apart(graph: Graph, inputs: Collection[str], doing: str) -> int:
    """The number of rows that the graph was declared for.

    inputs   those that have rows; others, and params, are the same for every row
    Errors   GraphError naming the op that mixes rows, or that is not known to keep them
             apart; for outputs that do not have rows as their leading axis.
    """
    rows = _declared(graph, inputs, doing)
    axes: list[Axis] = []
    for node in graph.nodes():
        operands = [graph.node(at) for at in node.inputs]
        axis = _followed(node, operands, [axes[at] for at in node.inputs], inputs)
        if isinstance(axis, str):
            raise _mixed(graph, node, axis, doing)
        if axis is not None and node.type.shape[axis] != rows:
            raise _mixed(graph, node, f"{node.type.shape[axis]} rows of {rows}", doing)
        axes.append(axis)
    for position, at in enumerate(graph.outputs):
        if axes[at] != 0:
            where = (
                "has no rows" if axes[at] is None else f"has rows on axis {axes[at]}"
            )
            raise GraphError(
                doing,
                f"output {position} of graph '{graph.name}', {graph.node(at).type},"
                f" {where}",
                "rows are the leading axis of every output",
                "transpose it, or leave it out",
            )
    return rows


def _declared(graph: Graph, inputs: Collection[str], doing: str) -> int:
    found = {}
    for name, node in graph.named("input").items():
        if name in inputs:
            if not node.type.shape:
                raise GraphError(
                    doing, f"input '{name}' is a single number", "it must have rows"
                )
            found[name] = node.type.shape[0]
    if len(set(found.values())) != 1 or 0 in found.values():
        said = ", ".join(f"'{name}' {n}" for name, n in found.items()) or "none"
        raise GraphError(
            doing,
            f"the rows that inputs are declared with: {said}",
            "all inputs with rows have the same number of them, 1 or more",
        )
    return next(iter(found.values()))


def _followed(
    node: Node, operands: Sequence[Node], axes: Sequence[Axis], inputs: Collection[str]
) -> Axis | str:
    """Where the rows are now, or why they are not apart any more."""
    if node.op == "input":
        return 0 if node.name in inputs else None
    if all(axis is None for axis in axes):
        return None
    op = registry.get(node.op)
    rule = _RULES.get(op.name)
    if not registry.is_ours(op.name):
        return "a custom op may mix them"
    if rule is None and op.has("elementwise"):
        rule = _broadcast
    if rule is None:
        return "nothing is known of how it treats them"
    try:
        return rule(node, operands, axes)
    except _Mixed as why:
        return str(why)


class _Mixed(Exception):
    """Why rows are not apart."""


def _mixed(graph: Graph, node: Node, why: str, doing: str) -> RlxError:
    name = f" '{node.name}'" if node.name else ""
    return GraphError(
        doing,
        f"op '{node.op}'{name} (%{node.id}) of graph '{graph.name}' gives {node.type},"
        f" and {_MIXES}: {why}",
        "chunks go through the graph one by one, so no row may need another",
        "use it on the whole array, without Dask, or bring the rows together after",
    )


def _broadcast(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    """Axes from the right stand for each other."""
    rank = node.type.rank
    pairs = list(zip(operands, axes, strict=True))
    places = {rank - (one.type.rank - a) for one, a in pairs if a is not None}
    if len(places) != 1:
        raise _Mixed(f"its operands have them on axes {sorted(places)}")
    (place,) = places
    _check_alike(rank, place, [one for one, axis in pairs if axis is None])
    return place


def _check_alike(rank: int, place: int, others: Sequence[Node]) -> None:
    """What has no rows may not differ along them."""
    for one in others:
        at = place - (rank - one.type.rank)
        if at >= 0 and one.type.shape[at] != 1:
            raise _Mixed(f"%{one.id}, {one.type}, has other values for each of them")


def _the_one(axes: Sequence[Axis]) -> int:
    """The axis of the first operand, the only one with rows."""
    first, *others = axes
    if first is None or any(axis is not None for axis in others):
        raise _Mixed("only its first operand may have them")
    return first


def _along(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    """Ops along one axis, the last where there is no attribute."""
    axis, rank = _the_one(axes), operands[0].type.rank
    if normal_axis(node.attrs.get("axis", -1), rank) == axis:
        raise _Mixed("it goes along them")
    return axis


def _paired(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    """Rows of two signals, one with one; what comes behind is the same for all."""
    first, second, *others = axes
    if (first, second) != (0, 0) or any(axis is not None for axis in others):
        raise _Mixed("both its signals must have them, on axis 0")
    return 0


def _reduced(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    axis = _the_one(axes)
    gone = normal_axes(node.attrs["axes"], operands[0].type.rank)
    if axis in gone:
        raise _Mixed("it reduces them")
    return axis if node.attrs["keep_dim"] else axis - sum(a < axis for a in gone)


def _found_along(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    axis = _along(node, operands, axes)
    gone = normal_axis(node.attrs["axis"], operands[0].type.rank)
    return axis if node.attrs["keep_dim"] else axis - (gone < axis)


def _reshaped(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    axis, old, new = _the_one(axes), operands[0].type.shape, node.type.shape
    for place, n in enumerate(new):
        if n == old[axis] and prod(new[:place]) == prod(old[:axis]):
            return place
    raise _Mixed("it lays them out anew")


def _transposed(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    rank = operands[0].type.rank
    return [normal_axis(p, rank) for p in node.attrs["perm"]].index(_the_one(axes))


def _narrowed(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    axis = _the_one(axes)
    if normal_axis(node.attrs["axis"], operands[0].type.rank) == axis:
        raise _Mixed("it cuts them")
    return axis


def _moved(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    """Along some axes elements go elsewhere, or more come."""
    axis = _the_one(axes)
    if axis in normal_axes(node.attrs["axes"], operands[0].type.rank):
        raise _Mixed("it moves them")
    return axis


def _tiled(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    axis = _the_one(axes)
    if node.attrs["repeats"][axis] != 1:
        raise _Mixed("it repeats them")
    return axis


def _each_image(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    """Windows over the spatial axes of each image of a batch."""
    if _the_one(axes) != 0:
        raise _Mixed("only images of a batch, on axis 0, are apart")
    return 0


def _with_scales(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    """Scales and zero points of quantised numbers are for all, or of another axis."""
    axis, (x, *scales) = _the_one(axes), operands
    for one in scales if not node.attrs["block_size"] else ():
        if one.type.numel > 1 and normal_axis(node.attrs["axis"], x.type.rank) == axis:
            raise _Mixed(f"%{one.id}, {one.type}, has another value for each of them")
    if node.attrs["block_size"]:
        _check_alike(x.type.rank, axis, scales)
    return axis


def _less_zeros(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    """Images of integers less a zero point."""
    axis = _each_image(node, operands, axes)
    _check_alike(node.type.rank, axis, operands[2:3])
    return axis


def _joined(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    axis = _broadcast(node, operands, axes)
    if normal_axis(node.attrs["axis"], node.type.rank) == axis:
        raise _Mixed("it joins them")
    return axis


def _multiplied(node: Node, operands: Sequence[Node], axes: Sequence[Axis]) -> int:
    """Of x (…, m, k) and w (…, k, n); what is added to that is broadcast."""
    (x, w), rank = operands[:2], node.type.rank
    if axes[0] == x.type.rank - 1 or axes[1] == w.type.rank - 2:
        raise _Mixed("it sums them up")
    if axes[0] == x.type.rank - 2 and axes[1] is None:
        place = rank - 2
    elif axes[1] == w.type.rank - 1 and axes[0] is None:
        place = rank - 1
    else:  # of both, or of one against a batch of 1
        place = _broadcast(node, (x, w), axes[:2])
        if place >= rank - 2:
            raise _Mixed("both its operands have them")
    if any(axis is not None for axis in axes[2:]):
        raise _Mixed("only its factors may have them")
    _check_alike(rank, place, operands[2:])
    return place


_RULES: dict[str, Rule] = {
    "reshape": _reshaped,
    "transpose": _transposed,
    "narrow": _narrowed,
    **dict.fromkeys(("expand", "identity", "stop_gradient"), _broadcast),
    **dict.fromkeys(("segment_in", "segment_out", "again"), _broadcast),
    "concat": _joined,
    "matmul": _multiplied,
    "fused_matmul_bias_act": _multiplied,
    "matmul_integer": _multiplied,
    "conv_integer": _less_zeros,
    "quantize_linear": _with_scales,
    "dequantize_linear": _with_scales,
    **dict.fromkeys(("sum", "mean", "max", "min", "prod"), _reduced),
    **dict.fromkeys(("softmax", "cumsum", "layer_norm", "rms_norm"), _along),
    **dict.fromkeys(("argsort", "sort", "cumprod"), _along),
    "log_softmax": _along,
    **dict.fromkeys(("argmax", "argmin"), _found_along),
    **dict.fromkeys(
        ("fft", "rfft", "irfft", "psd_real", "topk", "power_peaks"), _along
    ),
    **dict.fromkeys(("frame", "stft", "welch_power", "welch_row_peaks"), _along),
    **dict.fromkeys(("segment_power", "segment_spectra"), _along),
    "cross_power": _paired,
    **dict.fromkeys(("slice", "windows", "pad", "roll", "dilate", "remap"), _moved),
    **dict.fromkeys(("repeat", "resize"), _along),
    "tile": _tiled,
    **dict.fromkeys(
        ("conv", "conv_transpose", "max_pool", "max_pool_indices"), _each_image
    ),
    **dict.fromkeys(("sum_pool", "avg_pool", "lp_pool"), _each_image),
}
