"""Reverse- and forward-mode automatic differentiation: gradients of results, as nodes
added to their graph.

Walks from the results towards the operands that are asked for, by the rules in the
records of the ops. An op that is built of others is taken apart on the way, and its
parts differentiated. Forward mode is reverse mode twice: what takes gradients back is
linear in them, and the gradient of a linear map is its transpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from rlxweb.core.errors import DTypeError, GradientRefused, GraphError, ShapeError
from rlxweb.ir.derivative import VjpContext, sum_to_shape
from rlxweb.ir.op import Op, registry
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph, Node

MAX_SHOWN_NODES = 6
CHECKPOINT_BEGIN_OP, CHECKPOINT_END_OP = "segment_in", "segment_out"
"""Ops at the ends of what `checkpoint` computes again."""
STOP_GRADIENT_OP = "stop_gradient"


def compute_vjp(
    g: Graph,
    outputs: Sequence[Tensor],
    grads: Sequence[Tensor],
    wrt: Sequence[Tensor],
    context: str,
) -> list[Tensor]:
    """Return the gradient of `sum(output * grad)` by each tensor of `wrt`; zeros where
    there is none.

    Errors   DTypeError for what is no float; ShapeError for a gradient unlike its
    output; GradientRefused for an op without a derivative.
    """
    _check_gradients(outputs, grads, wrt, context)
    grad_by_id = _BackwardPass(g, wrt, context).propagate(outputs, grads)
    gradients = []
    for tensor in wrt:
        grad = grad_by_id.get(tensor.id)
        if grad is None:
            grad = g.expand(g.constant(0, tensor.dtype), tensor.shape)
        gradients.append(grad)
    return gradients


def compute_jvp(
    g: Graph,
    outputs: Sequence[Tensor],
    wrt: Sequence[Tensor],
    tangents: Sequence[Tensor],
    context: str,
) -> list[Tensor]:
    """Return the directional derivative of each output when the tensors of `wrt` move
    along `tangents`.

    Errors   as `compute_vjp`.
    """
    _check_gradients(wrt, tangents, outputs, context)
    # Any gradients do: what takes them back is linear, so its own derivative has no
    # trace of them. Ones of a node each, by which to differentiate.
    ones = [g.expand(g.constant(1, y.dtype), y.shape) for y in outputs]
    gradients = compute_vjp(g, outputs, ones, wrt, context)
    return compute_vjp(g, gradients, tangents, ones, context)


def _check_gradients(
    outputs: Sequence[Tensor],
    grads: Sequence[Tensor],
    wrt: Sequence[Tensor],
    context: str,
) -> None:
    """Check dtypes, number and shapes of outputs and gradients."""
    for x in (*outputs, *wrt):
        if not x.dtype.is_float:
            node = x.graph.node(x.id)
            raise DTypeError(
                context,
                f"tensor %{node.id} has dtype {x.dtype}: {node}",
                "gradients require floating-point tensors",
                "cast the tensor to a floating-point dtype, or omit the tensor",
            )
    if len(grads) != len(outputs):
        raise GraphError(
            context,
            f"got {len(grads)} gradients for {len(outputs)} outputs",
            "expected one gradient per output",
        )
    for y, grad in zip(outputs, grads, strict=True):
        if (tuple(y.shape), y.dtype) != (tuple(grad.shape), grad.dtype):
            raise ShapeError(
                context,
                f"got a gradient {format_shape(grad.shape)} {grad.dtype} for an output "
                f"{format_shape(y.shape)} {y.dtype}",
                "a gradient must have the shape and dtype of its output",
            )


class _BackwardPass:
    """One backward pass to the tensors `wrt`.

    dependents  nodes that depend on one of them through floats: for each, the operand
                by which it was found, to tell a path. What integers and bools carry on
                has zero slope: they are constant but for jumps
    """

    def __init__(self, g: Graph, wrt: Sequence[Tensor], context: str) -> None:
        self.g, self.context = g, context
        self.wrt = {tensor.id for tensor in wrt}
        self.dependents: dict[int, int] = {}
        self.grads: dict[int, Tensor] = {}

    def propagate(
        self, outputs: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> dict[int, Tensor]:
        """Propagate gradients back; return those that exist, keyed by the id of their
        tensor.
        """
        self._mark_dependents(max((y.id for y in outputs), default=-1))
        heap: list[int] = []
        for y, grad in zip(outputs, grads, strict=True):
            self._accumulate(y.id, grad, heap)
        grad_by_id = {}
        while heap:
            node_id = -heappop(heap)
            grad = self.grads.pop(node_id)
            if node_id in self.wrt:
                grad_by_id[node_id] = grad
            node = self.g.node(node_id)
            if node.op == CHECKPOINT_END_OP and node_id in self.dependents:
                parts = self._checkpoint_gradients(node, grad, heap)
            else:
                parts = self._operand_gradients(node, grad)
            for operand, operand_grad in parts:
                self._accumulate(operand, operand_grad, heap)
        return grad_by_id

    def _mark_dependents(self, last_id: int) -> None:
        """Mark the nodes that depend on a tensor of `wrt` through floats."""
        first_id = min(self.wrt, default=last_id + 1)
        for node in self.g.nodes()[first_id : last_id + 1]:
            if node.op == STOP_GRADIENT_OP or not node.type.dtype.is_float:
                continue
            for i in node.inputs:
                if i in self.wrt or i in self.dependents:
                    self.dependents.setdefault(node.id, i)

    def _path_to(self, node_id: int) -> Iterator[Node]:
        """Return the nodes on a path from a tensor of `wrt` to a node."""
        ids = [node_id]
        while ids[-1] not in self.wrt:
            ids.append(self.dependents[ids[-1]])
        return map(self.g.node, reversed(ids))

    def _path_text(self, path: Sequence[Node]) -> str:
        """Return a path as text, shortened in the middle."""
        labels = [n.name or f"%{n.id} {n.op}" for n in path]
        if len(labels) > MAX_SHOWN_NODES:
            labels[MAX_SHOWN_NODES // 2 : -MAX_SHOWN_NODES // 2] = ["…"]
        return " → ".join(labels)

    def _accumulate(self, node_id: int, grad: Tensor, heap: list[int]) -> None:
        """Add a gradient to that of a node, and queue the node."""
        if node_id not in self.wrt and node_id not in self.dependents:
            return
        if node_id in self.grads:
            self.grads[node_id] = self.grads[node_id] + grad
        else:
            self.grads[node_id] = grad
            heappush(heap, -node_id)

    def _operand_gradients(self, node: Node, grad: Tensor) -> list[tuple[int, Tensor]]:
        """Return the gradients of a node's operands that lead to `wrt`."""
        g = self.g
        needs_grad = tuple(i in self.wrt or i in self.dependents for i in node.inputs)
        if node.id not in self.dependents or not any(needs_grad) or not node.type.numel:
            return []
        op = registry.get(node.op)
        inputs = tuple(g.tensor(i) for i in node.inputs)
        if op.vjp is not None:
            ctx = VjpContext(g, node.attrs, inputs, g.tensor(node.id), grad, needs_grad)
            operand_grads = op.vjp(ctx)
        else:
            operand_grads = self._decomposed_gradients(
                op, node, inputs, grad, needs_grad
            )
        return [
            (x.id, sum_to_shape(operand_grad, x.shape))
            for x, operand_grad, is_needed in zip(
                inputs, operand_grads, needs_grad, strict=True
            )
            if is_needed and operand_grad is not None
        ]

    def _decomposed_gradients(
        self,
        op: Op,
        node: Node,
        inputs: tuple[Tensor, ...],
        grad: Tensor,
        needs_grad: tuple[bool, ...],
    ) -> list[Tensor | None]:
        """Return the operands' gradients by differentiating the op's decomposition."""
        decomposed = op.decomposition
        if decomposed is None:
            path = self._path_text(list(self._path_to(node.id)))
            raise GradientRefused(
                self.context,
                f"op '{op.name}' in {path} has no derivative",
                hint="apply stop_gradient to the inputs or the output of the op",
            )
        # An operand may be a part of another: the walk must end at this one.
        aliases = [self.g.apply("identity", x) for x in inputs]
        result = decomposed.build(self.g, node.attrs, *aliases)
        wrt = [x for x, is_needed in zip(aliases, needs_grad, strict=True) if is_needed]
        grad_by_id = _BackwardPass(self.g, wrt, f"{self.context}, {node}").propagate(
            [result], [grad]
        )
        return [grad_by_id.get(x.id) for x in aliases]

    def _checkpoint_gradients(
        self, last_end: Node, grad: Tensor, heap: list[int]
    ) -> list[tuple[int, Tensor]]:
        """Return the gradients of a checkpointed segment's inputs by recomputing the
        segment.

        The ends of a segment are added together, so that whoever reads one comes after
        all of them: their gradients are complete when that of the last is.
        """
        g, ends, grads = self.g, [last_end], [grad]
        for node_id in [-tensor for tensor in heap]:
            node = g.node(node_id)
            if node.op == CHECKPOINT_END_OP and node.attrs == last_end.attrs:
                ends.append(node)
                grads.append(self.grads.pop(node_id))
                heap.remove(-node_id)
        heapify(heap)
        outs, segment_inputs = self._recompute_segment(ends)
        wrt = [
            tensor
            for node_id, tensor in segment_inputs.items()
            if node_id in self.wrt or node_id in self.dependents
        ]
        grad_by_id = _BackwardPass(g, wrt, self.context).propagate(outs, grads)
        return [
            (node_id, grad_by_id[tensor.id])
            for node_id, tensor in segment_inputs.items()
            if tensor.id in grad_by_id
        ]

    def _recompute_segment(
        self, ends: Sequence[Node]
    ) -> tuple[list[Tensor], dict[int, Tensor]]:
        """Add a segment's nodes once more; return its results and its inputs, keyed by
        their old ids.
        """
        g, segment_attrs = self.g, ends[0].attrs
        recomputed: dict[int, Tensor] = {}
        segment_inputs: dict[int, Tensor] = {}

        def recomputed_tensor(node_id: int) -> Tensor:
            if node_id in recomputed:
                return recomputed[node_id]
            if node_id not in segment_inputs:
                segment_inputs[node_id] = g.apply("again", g.tensor(node_id))
            return segment_inputs[node_id]

        for node_id in sorted(self._segment_ids(ends)):
            node = g.node(node_id)
            if node.attrs == segment_attrs and node.op in (
                CHECKPOINT_BEGIN_OP,
                CHECKPOINT_END_OP,
            ):
                recomputed[node_id] = recomputed_tensor(node.inputs[0])
            else:
                recomputed[node_id] = g.copied(
                    node, [recomputed_tensor(i) for i in node.inputs]
                )
        return [recomputed_tensor(node.inputs[0]) for node in ends], segment_inputs

    def _segment_ids(self, ends: Sequence[Node]) -> set[int]:
        """Return the ids of a segment's nodes: those on a path from its begin to one of
        its ends.
        """
        segment_attrs, stack = ends[0].attrs, [node.id for node in ends]
        upstream: set[int] = set()
        while stack:
            node_id = stack.pop()
            if node_id not in upstream:
                upstream.add(node_id)
                node = self.g.node(node_id)
                is_begin = (
                    node.op == CHECKPOINT_BEGIN_OP and node.attrs == segment_attrs
                )
                stack += () if is_begin else node.inputs
        inside: set[int] = set()
        for node_id in sorted(upstream):
            node = self.g.node(node_id)
            is_begin = node.op == CHECKPOINT_BEGIN_OP and node.attrs == segment_attrs
            if is_begin or any(i in inside for i in node.inputs):
                inside.add(node_id)
        return inside
