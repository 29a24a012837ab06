"""Graph rewrites that keep the result: one mechanism and six rewrites.

A rewrite is a function that is shown each node with its already rewritten operands and
answers with the tensor that takes its place: dead nodes go, and so do those that change
nothing; equal ones become one, small constants are computed, and what the target cannot
run as one step is taken apart by the op's own Compose. Inputs and params are kept, so
the names a caller may set never depend on optimisation; only those that nobody reads,
of a type the target has not, go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlxweb.compiler.target import Target
from rlxweb.core.argument_hints import Advice
from rlxweb.core.errors import RlxError, Unsupported, VerifyError
from rlxweb.cost.graph_work import node_signature
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node, attr_key
from rlxweb.ir.lowering import Compose, HostOnly, decomposition
from rlxweb.ir.noop_elimination import is_noop, simplify_node
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.reference_evaluation import evaluate_reference
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import check_result

# Folding trades device work for buffer space; beyond this it stops being a bargain,
# unless the result is smaller than what it is made of.
MAX_FOLD_ELEMENTS = 1 << 14
# What the device would refuse is folded up to here.
MAX_FOLD_UNSUPPORTED_ELEMENTS = 1 << 22
# Arithmetic that is not done while compiling, some tenths of a second.
MAX_FOLD_FLOPS = 1 << 28
# A Compose that produces itself would never end; real nesting is below ten.
MAX_ROUNDS = 32

RewriteFunction = Callable[[Graph, Node, tuple[Tensor, ...]], Tensor]


def rebuild_graph(
    graph: Graph, rewrite: RewriteFunction, kept_ids: set[int] | None = None
) -> Graph:
    """Return a new graph with each node (of `kept_ids`, if given) passed through
    `rewrite`.

    Errors   VerifyError for a rewrite that changes a node's type.
    """
    out = Graph(graph.name)
    tensors: dict[int, Tensor] = {}
    for node in graph.nodes():
        if kept_ids is not None and node.id not in kept_ids:
            continue
        operands = tuple(tensors[i] for i in node.inputs)
        tensor = tensors[node.id] = rewrite(out, node, operands)
        if out.node(tensor.id).type != node.type:
            raise VerifyError(
                f"rewrite {node}",
                f"the result is {out.node(tensor.id).type}",
                f"expected {node.type}",
                "correct the composition of the op",
            )
    out.set_outputs([tensors[i] for i in graph.outputs])
    return out


def eliminate_dead_nodes(graph: Graph, target: Target | None = None) -> Graph:
    """Remove the nodes that no output depends on.

    Inputs and params stay, but for those of a type that a given target has not.
    """
    live_ids = set(graph.outputs)
    for node in reversed(graph.nodes()):
        is_named = node.op in ("input", "param")
        is_kept = is_named and (
            target is None or node.type.dtype in target.array_dtypes
        )
        if node.id in live_ids or is_kept:
            live_ids.update((node.id, *node.inputs))
    return (
        graph
        if len(live_ids) == len(graph)
        else rebuild_graph(graph, Graph.copied, live_ids)
    )


def eliminate_noops(graph: Graph) -> Graph:
    """Remove nodes that change nothing, and replace a chain that equals one node by
    that node.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        simplified = simplify_node(out, node, operands)
        return out.copied(node, operands) if simplified is None else simplified

    if not any(is_noop(graph, node) for node in graph.nodes()):
        return graph
    return eliminate_dead_nodes(rebuild_graph(graph, rewrite))


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Merge nodes with equal op, attributes and operands into one."""
    seen: dict[Any, Tensor] = {}

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        ids = tuple(t.id for t in operands)
        try:
            key = (node.op, ids, frozenset(map(attr_key, node.attrs.items())))
            if key not in seen:
                seen[key] = out.copied(node, operands)
        except TypeError:  # an attribute of a custom op that cannot be hashed
            return out.copied(node, operands)
        return seen[key]

    return rebuild_graph(graph, rewrite)


def fold_constants(graph: Graph, target: Target | None = None) -> Graph:
    """Replace nodes over constants alone by constants, computed by the ops' references.

    Small ones, those smaller than what they are made of, and those that the target
    would be refused for. Errors  GraphError for a reference that breaks its shape rule.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        operand_nodes = [out.node(t.id) for t in operands]
        op = registry.get(node.op)
        is_constant = not op.has_trait("leaf") and all(
            n.op == "constant" for n in operand_nodes
        )
        if not is_constant or not _should_fold(node, operand_nodes, target):
            return out.copied(node, operands)
        values = (n.attrs["value"].array for n in operand_nodes)
        try:
            with np.errstate(all="ignore"):
                value = evaluate_reference(node, values)
        except RlxError:
            raise
        except Exception:  # a custom op's own: the run will say it
            return out.copied(node, operands)
        check_result(node, value)
        return out.constant(value)

    return rebuild_graph(graph, rewrite)


def _should_fold(node: Node, operand_nodes: list[Node], target: Target | None) -> bool:
    types = tuple(n.type for n in operand_nodes)
    op = registry.get(node.op)
    if op.flops(types, node.type, node.attrs) > MAX_FOLD_FLOPS:
        return False
    if node.type.numel <= MAX_FOLD_ELEMENTS:
        return True
    if node.type.nbytes <= sum(t.nbytes for t in types):
        return True
    if target is None or node.type.numel > MAX_FOLD_UNSUPPORTED_ELEMENTS:
        return False
    has_unsupported_dtype = any(
        t.dtype not in target.array_dtypes for t in (*types, node.type)
    )
    return has_unsupported_dtype or _is_unsupported(
        target, (op, types, node.type, node.attrs)
    )


def demote_constants(graph: Graph, target: Target) -> Graph:
    """Replace constants of a wide integer type by i32 where that is all the device has.

    Only where all values fit and the reader's result is of the same type with either,
    as of indices and casts. Of a custom op nothing of that kind is known.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        operand_nodes = [out.node(t.id) for t in operands]
        is_wide = [_is_demotable_constant(n, target) for n in operand_nodes]
        op = registry.get(node.op)
        if not any(is_wide) or op.has_trait("custom"):
            return out.copied(node, operands)
        types = [n.type for n in operand_nodes]
        types = [
            TensorType(t.shape, DType.I32) if w else t
            for t, w in zip(types, is_wide, strict=True)
        ]
        try:
            keeps_type = op.output_type(types, node.attrs) == node.type
        except RlxError:
            keeps_type = False
        if not keeps_type:
            return out.copied(node, operands)
        pairs = zip(operands, operand_nodes, is_wide, strict=True)
        demoted = [
            out.constant(n.attrs["value"].array.astype(np.int32)) if w else t
            for t, n, w in pairs
        ]
        return out.copied(node, demoted)

    return rebuild_graph(graph, rewrite)


def _is_demotable_constant(node: Node, target: Target) -> bool:
    """Tell whether a node is an integer constant of a type that the device lacks, whose
    values i32 holds.
    """
    dtype = node.type.dtype
    if node.op != "constant" or dtype in target.array_dtypes or not dtype.is_integer:
        return False
    array, bounds = node.attrs["value"].array, np.iinfo(np.int32)
    return bool(((array >= bounds.min) & (array <= bounds.max)).all())


def _is_unsupported(
    target: Target, signature: tuple[Op, Types, TensorType, Attrs]
) -> bool:
    """Tell whether the device has neither a kernel nor a composition for a node."""
    return not target.native(*signature) and composition(signature[0]) is None


def is_unsupported(graph: Graph, target: Target) -> bool:
    """Tell whether the device lacks a type or an op of the graph as it stands."""
    return not target.supports_dtypes(graph) or any(
        _is_unsupported(target, node_signature(graph, node)) for node in graph.nodes()
    )


def simplify_constants(graph: Graph, target: Target) -> Graph:
    """Fold and demote constants that the device would be refused for but need never
    see.
    """
    graph = eliminate_dead_nodes(
        fold_constants(eliminate_dead_nodes(graph, target), target), target
    )
    if target.supports_dtypes(graph):
        return graph
    return eliminate_dead_nodes(demote_constants(graph, target), target)


def composition(op: Op) -> Compose | None:
    """Return the composition that builds this op from others; None if its record has
    none.
    """
    return decomposition(op.lower)


def decompose(graph: Graph, target: Target) -> Graph:
    """Replace ops the target does not run natively by their compositions.

    Errors   Unsupported when such an op has no composition.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        if node.id not in unsupported_ids:
            return out.copied(node, operands)
        op = registry.get(node.op)
        parts = composition(op)
        if parts is not None:
            tensor: Tensor = parts.build(out, node.attrs, *operands)
            return tensor
        error = target.refusal(*node_signature(graph, node))
        if error is not None:
            error.doing = f"{node} on {target.name} ({error.doing})"
            raise error
        why = (
            "the device cannot run this op, and no composition of other ops is defined "
            "for it"
        )
        if isinstance(op.lower, HostOnly):
            why = op.lower.reason
        context = f"{node} on {target.name}"
        raise Unsupported(context, why, hint=Advice("run it with {}", device="cpu"))

    for _ in range(MAX_ROUNDS):
        nodes = graph.nodes()
        unsupported_ids = {
            n.id for n in nodes if not target.native(*node_signature(graph, n))
        }
        if not unsupported_ids:
            return graph
        graph = rebuild_graph(graph, rewrite)
    raise Unsupported(
        f"graph '{graph.name}' on {target.name}",
        "the composition of an op still contains unsupported ops",
        f"at most {MAX_ROUNDS} rounds of decomposition are allowed",
        "check the composition of each custom op of the graph",
    )
