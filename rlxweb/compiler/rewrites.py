"""Graph rewrites that keep the result: one traversal, through which any rules go.

A rule is shown each node with its already rewritten operands and answers with the
value that takes its place, or None: nodes that change nothing go, equal ones become
one, small constants are computed, and what the target cannot run as one step is taken
apart by the op's own Compose. Dead nodes go in every traversal. Inputs and params are
kept, so the names a caller may set never depend on optimisation; only those that nobody
reads, of a type the target has not, go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlxweb.compiler.target import Target
from rlxweb.core.errors import RlxError, Unsupported, VerifyError
from rlxweb.core.message_text import Advice
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node, attr_key, node_signature
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.noop_elimination import simplify_node
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

RewriteRule = Callable[[Graph, Node, tuple[int, ...]], int | None]
"""Rule: (graph under construction, node, ids of its rewritten operands) → id of the
value in the node's place; None leaves the node to the next rule, at last as it is.
"""


def rewrite_graph(
    graph: Graph,
    *rules: RewriteRule,
    target: Target | None = None,
    merges_equal: bool = False,
) -> Graph:
    """Return the graph with each node replaced by what the first rule makes of it, and
    without the nodes that no output depends on; the graph itself if nothing changes.

    target        whose missing types let unread inputs and params go; None: all stay
    merges_equal  nodes with equal op, attributes and operands become one
    Errors   VerifyError for a rule that changes a node's type.
    """
    live_ids = _live_ids(graph, target)
    if rules or merges_equal:
        out = _traverse(graph, live_ids, rules, merges_equal)
        pairs = zip(out.nodes(), graph.nodes(), strict=False)
        if len(out) == len(graph) and all(node is old for node, old in pairs):
            return graph
        graph, live_ids = out, _live_ids(out, target)
    return graph if len(live_ids) == len(graph) else graph.subgraph(live_ids)


def _traverse(
    graph: Graph,
    live_ids: set[int],
    rules: Sequence[RewriteRule],
    merges_equal: bool,
) -> Graph:
    """Return a new graph of the live nodes, each passed through the rules."""
    out = Graph(graph.name)
    new_ids: dict[int, int] = {}
    seen: dict[Any, int] = {}
    for node in graph.nodes():
        if node.id not in live_ids:
            continue
        operands = tuple([new_ids[i] for i in node.inputs])
        key = _node_key(node, operands) if merges_equal else None
        new_id = None if key is None else seen.get(key)
        if new_id is None:
            for rule in rules:
                new_id = rule(out, node, operands)
                if new_id is not None:
                    break
            else:
                new_id = out.copy_node(node, operands)
            if key is not None:
                seen[key] = new_id
        new_ids[node.id] = new_id
        result_type = out.node(new_id).type
        if result_type is not node.type and result_type != node.type:
            raise VerifyError(
                f"rewrite {node}",
                f"the result is {result_type}",
                f"expected {node.type}",
                "correct the decomposition of the op",
            )
    out.set_outputs([out.tensor(new_ids[i]) for i in graph.outputs])
    return out


def _live_ids(graph: Graph, target: Target | None) -> set[int]:
    """Return the nodes that an output depends on, and the inputs and params but for
    those of a type that a given target has not.
    """
    live_ids = set(graph.outputs)
    array_dtypes = None if target is None else target.array_dtypes
    for node in reversed(graph.nodes()):
        if node.id in live_ids:
            live_ids.update(node.inputs)
        elif node.op in ("input", "param") and (
            array_dtypes is None or node.type.dtype in array_dtypes
        ):
            live_ids.add(node.id)
    return live_ids


def _node_key(node: Node, operands: tuple[int, ...]) -> Any:
    """Return a key that equal nodes share; None for an attribute of a custom op that
    cannot be hashed.
    """
    try:
        return node.op, operands, frozenset(map(attr_key, node.attrs.items()))
    except TypeError:
        return None


def fold_rule(target: Target | None = None) -> RewriteRule:
    """Return the rule that replaces nodes over constants alone by constants, computed
    by the ops' references.

    Small ones, those smaller than what they are made of, and those that the target
    would be refused for. Errors  GraphError for a reference that breaks its shape rule.
    """

    def fold(out: Graph, node: Node, operands: tuple[int, ...]) -> int | None:
        operand_nodes = []
        for operand in operands:
            operand_node = out.node(operand)
            if operand_node.op != "constant":
                return None
            operand_nodes.append(operand_node)
        if registry.get(node.op).has_trait("leaf"):
            return None
        if not _should_fold(node, operand_nodes, target):
            return None
        values = (n.attrs["value"].array for n in operand_nodes)
        try:
            with np.errstate(all="ignore"):
                value = evaluate_reference(node, values)
        except RlxError:
            raise
        except Exception:  # a custom op's own: the run will say it
            return None
        check_result(node, value)
        return out.constant(value).id

    return fold


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


def demote_constants_rule(target: Target) -> RewriteRule:
    """Return the rule that replaces constants of a wide integer type by i32 where that
    is all the device has.

    Only where all values fit and the reader's result is of the same type with either,
    as of indices and casts. Of a custom op nothing of that kind is known.
    """

    def demote(out: Graph, node: Node, operands: tuple[int, ...]) -> int | None:
        operand_nodes = [out.node(i) for i in operands]
        is_wide = [_is_demotable_constant(n, target) for n in operand_nodes]
        op = registry.get(node.op)
        if not any(is_wide) or op.has_trait("custom"):
            return None
        types = [
            TensorType(n.type.shape, DType.I32) if w else n.type
            for n, w in zip(operand_nodes, is_wide, strict=True)
        ]
        try:
            keeps_type = op.output_type(types, node.attrs) == node.type
        except RlxError:
            keeps_type = False
        if not keeps_type:
            return None
        pairs = zip(operands, operand_nodes, is_wide, strict=True)
        demoted = [
            out.constant(n.attrs["value"].array.astype(np.int32)).id if w else i
            for i, n, w in pairs
        ]
        return out.copy_node(node, tuple(demoted))

    return demote


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
    """Tell whether the device has neither a kernel nor a decomposition for a node."""
    return not target.native(*signature) and signature[0].decomposition is None


def is_unsupported(graph: Graph, target: Target) -> bool:
    """Tell whether the device lacks a type or an op of the graph as it stands."""
    return not target.supports_dtypes(graph) or any(
        _is_unsupported(target, node_signature(graph, node)) for node in graph.nodes()
    )


def simplify(graph: Graph, target: Target, *, merges_equal: bool = False) -> Graph:
    """Remove what changes nothing, and compute the constants that can be.

    Constants of a type that the device has not are demoted where it need not see them.
    """
    graph = rewrite_graph(
        graph,
        simplify_node,
        fold_rule(target),
        target=target,
        merges_equal=merges_equal,
    )
    return demote_unsupported_constants(graph, target)


def demote_unsupported_constants(graph: Graph, target: Target) -> Graph:
    """Demote the constants of a graph that has types which the device has not."""
    if target.supports_dtypes(graph):
        return graph
    return rewrite_graph(graph, demote_constants_rule(target), target=target)


def decompose(graph: Graph, target: Target) -> Graph:
    """Replace ops the target does not run natively by their decompositions.

    Errors   Unsupported when such an op has no decomposition.
    """

    def expand(out: Graph, node: Node, operands: tuple[int, ...]) -> int | None:
        if node.id not in unsupported_ids:
            return None
        op = registry.get(node.op)
        parts = op.decomposition
        if parts is not None:
            result: Tensor = parts.build(out, node.attrs, *map(out.tensor, operands))
            return result.id
        error = target.refusal(*node_signature(graph, node))
        if error is not None:
            error.doing = f"{node} on {target.name} ({error.doing})"
            raise error
        why = (
            "the device cannot run this op, and no decomposition into other ops is "
            "defined for it"
        )
        if isinstance(op.lower, HostOnly):
            why = op.lower.reason
        context = f"{node} on {target.name}"
        raise Unsupported(context, why, hint=Advice("run it with {}", device="cpu"))

    for _ in range(MAX_ROUNDS):
        unsupported_ids = {
            node.id
            for node in graph.nodes()
            if not target.native(*node_signature(graph, node))
        }
        if not unsupported_ids:
            return graph
        graph = rewrite_graph(graph, expand, target=target)
    raise Unsupported(
        f"graph '{graph.name}' on {target.name}",
        "the decomposition of an op still contains unsupported ops",
        f"at most {MAX_ROUNDS} rounds of decomposition are allowed",
        "check the decomposition of each custom op of the graph",
    )
