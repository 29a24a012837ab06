"""Batch part of a graph over many examples (vmap), node by node.

What was built for one example is built again on operands that have the examples along
their first axis. How an op takes such an axis is said in its record; one that does not
say is applied to one example after the other. No op is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlxweb.core.errors import Unsupported
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Op, registry
from rlxweb.ir.shape_arithmetic import Shape, normalize_axis
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph, Node

MAX_LOOPED_EXAMPLES = 256
"""Maximum number of examples to which an op without a batch rule is applied one by one.
"""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """A node built for one example, with its operands for all examples.

    g        the graph, to which the rule adds
    op       the op's name
    attrs    of the node
    inputs   the operands; those that vary have the examples along axis 0
    is_batched  of each operand, whether it does
    ranks    of each operand, for one example
    shape    of the result, for one example
    count    how many examples there are
    """

    g: Graph
    op: str
    attrs: Mapping[str, Any]
    inputs: tuple[Tensor, ...]
    is_batched: tuple[bool, ...]
    ranks: tuple[int, ...]
    shape: Shape
    count: int

    @property
    def x(self) -> Tensor:
        """The first operand."""
        return self.inputs[0]

    def apply(self, *inputs: Tensor, **attrs: Any) -> Tensor:
        """Apply the op with some attributes changed."""
        return self.g.apply(self.op, *inputs, **{**self.attrs, **attrs})

    def batched_operand(self, index: int) -> Tensor:
        """Return an operand with the examples along axis 0, repeated if it does not
        vary.
        """
        x = self.inputs[index]
        if self.is_batched[index]:
            return x
        return self.g.expand(x, (self.count, *x.shape))

    def aligned_operand(self, index: int, rank: int) -> Tensor:
        """Return an operand reshaped to `rank` axes behind the batch axis, if it
        varies.
        """
        x = self.inputs[index]
        missing_axes = rank - self.ranks[index]
        if not self.is_batched[index] or not missing_axes:
            return x
        return self.g.reshape(x, (x.shape[0], *(1,) * missing_axes, *x.shape[1:]))


BatchRule = Callable[[BatchContext], Tensor]
"""Batch rule: returns the result with the examples along axis 0."""


def batch_broadcast(ctx: BatchContext) -> Tensor:
    """Batch rule of an op with broadcasting leading axes: align the operands' ranks and
    apply the op once.
    """
    rank = max(ctx.ranks)
    return ctx.apply(*(ctx.aligned_operand(i, rank) for i in range(len(ctx.inputs))))


def batch_all_operands(ctx: BatchContext) -> Tensor:
    """Batch rule of an op whose operands all need the extra leading axis: batch every
    operand and apply the op once.
    """
    return ctx.apply(*(ctx.batched_operand(i) for i in range(len(ctx.inputs))))


def batch_axes_rule(*axis_attrs: str) -> BatchRule:
    """Return the batch rule of an op whose named attributes are axis numbers: shift
    them by one.
    """

    def rule(ctx: BatchContext) -> Tensor:
        rank = ctx.ranks[0]
        shifted_attrs: dict[str, Any] = {}
        for name in axis_attrs:
            value = ctx.attrs[name]
            if isinstance(value, int):
                shifted_attrs[name] = normalize_axis(value, rank) + 1
            elif value is not None:
                shifted_attrs[name] = tuple(normalize_axis(a, rank) + 1 for a in value)
        return ctx.apply(
            *(ctx.batched_operand(i) for i in range(len(ctx.inputs))), **shifted_attrs
        )

    return rule


def batch_as_first_axis(ctx: BatchContext) -> Tensor:
    """Batch rule of an op that treats the entries of its first operand's first axis
    independently: merge the batch axis into that axis. If other operands vary, loop
    over the examples.
    """
    return merge_batch_axis(ctx, (0, *[None] * (len(ctx.inputs) - 1)), 0)


def merge_batch_axis(ctx: BatchContext, axes: Sequence[int | None], out: int) -> Tensor:
    """Merge the batch axis into an axis whose entries the op treats independently,
    apply the op once and split the axis again.

    axes   of each operand the axis that counts them; None: it is the same for all, and
           where it varies the examples are taken in turn
    out    that axis of the result
    """
    if any(
        varies and axis is None
        for varies, axis in zip(ctx.is_batched, axes, strict=True)
    ):
        return batch_in_loop(ctx)
    operands = []
    for n, axis in enumerate(axes):
        if axis is None:
            operands.append(ctx.inputs[n])
            continue
        x = ctx.g.moveaxis(ctx.batched_operand(n), 0, axis)
        shape = x.shape
        merged_shape = (
            *shape[:axis],
            shape[axis] * shape[axis + 1],
            *shape[axis + 2 :],
        )
        operands.append(ctx.g.reshape(x, merged_shape))
    result = ctx.apply(*operands)
    split_shape = (*ctx.shape[:out], ctx.count, *ctx.shape[out:])
    return ctx.g.moveaxis(ctx.g.reshape(result, split_shape), out, 0)


def merge_batch_rule(*axes: int | None, out: int = 0) -> BatchRule:
    """Return `merge_batch_axis` as a batch rule; `axes` also covers operands that may
    be left out.
    """
    return lambda ctx: merge_batch_axis(ctx, axes[: len(ctx.inputs)], out)


def batch_in_loop(ctx: BatchContext) -> Tensor:
    """Apply the op to one example after the other and concatenate the results. Errors
    Unsupported for too many.
    """
    if ctx.count > MAX_LOOPED_EXAMPLES or not ctx.count:
        raise Unsupported(
            f"op '{ctx.op}' for {ctx.count:,} examples",
            "the op has no batched form and would run once per example",
            f"the number of examples must be 1 to {MAX_LOOPED_EXAMPLES}",
            "map over fewer examples at a time, or use only ops with a batched form",
        )
    results = []
    for n in range(ctx.count):
        parts = (
            ctx.g.reshape(ctx.g.narrow(x, 0, n, 1), x.shape[1:]) if varies else x
            for x, varies in zip(ctx.inputs, ctx.is_batched, strict=True)
        )
        result = ctx.apply(*parts)
        results.append(ctx.g.reshape(result, (1, *result.shape)))
    return ctx.g.concat(results, 0)


def vectorize(
    g: Graph,
    outputs: Sequence[Tensor],
    examples: Sequence[Tensor],
    batches: Sequence[Tensor],
    count: int,
) -> list[Tensor]:
    """Recompute `outputs` for many examples: each of `examples` is replaced by the
    tensor of `batches` that has them along axis 0.

    Results that depend on no example are repeated.
    Errors   Unsupported for too many examples of an op that takes none together.
    """
    batched = {x.id: batch for x, batch in zip(examples, batches, strict=True)}
    for node in _nodes_between(g, min(batched), outputs):
        if node.id not in batched and any(i in batched for i in node.inputs):
            batched[node.id] = _batch_node(g, node, batched, count)
    return [
        batched[y.id] if y.id in batched else g.expand(y, (count, *y.shape))
        for y in outputs
    ]


def _nodes_between(g: Graph, first_id: int, outputs: Sequence[Tensor]) -> list[Node]:
    """Return the nodes from `first_id` on that the outputs depend on, in order."""
    needed: set[int] = set()
    stack = [y.id for y in outputs]
    while stack:
        node_id = stack.pop()
        if node_id >= first_id and node_id not in needed:
            needed.add(node_id)
            stack += g.node(node_id).inputs
    return [g.node(node_id) for node_id in sorted(needed)]


def _batch_node(
    g: Graph, node: Node, batched: Mapping[int, Tensor], count: int
) -> Tensor:
    """Rebuild one node on batched operands, by the op's rule, its decomposition or a
    loop.
    """
    op = registry.get(node.op)
    is_batched = tuple(i in batched for i in node.inputs)
    inputs = tuple(batched[i] if i in batched else g.tensor(i) for i in node.inputs)
    ranks = tuple(len(g.node(i).type.shape) for i in node.inputs)
    shape = node.type.shape
    ctx = BatchContext(g, node.op, node.attrs, inputs, is_batched, ranks, shape, count)
    rule = batch_rule(op)
    if rule is not None:
        return rule(ctx)
    compose = op.decomposition
    if compose is not None:
        return _batch_decomposition(compose, node, ctx)
    return batch_in_loop(ctx)


def batch_rule(op: Op) -> BatchRule | None:
    """Return the batch rule of an op; elementwise ops without one broadcast."""
    if op.batch is None and op.has_trait("elementwise"):
        return batch_broadcast
    return op.batch


def _batch_decomposition(compose: Compose, node: Node, ctx: BatchContext) -> Tensor:
    """Expand the op into its decomposition for one example, then batch that."""
    g = ctx.g
    examples = [g.identity(g.tensor(i)) for i in node.inputs]
    output = compose.build(g, node.attrs, *examples)
    replacements = [
        (x, ctx.inputs[n]) for n, x in enumerate(examples) if ctx.is_batched[n]
    ]
    (result,) = vectorize(
        g,
        [output],
        [x for x, _ in replacements],
        [batch for _, batch in replacements],
        ctx.count,
    )
    return result
