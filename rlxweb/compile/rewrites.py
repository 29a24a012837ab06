"""Graph → graph, one mechanism and six rewrites; the answer stays the same.

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

from rlxweb.advice import Advice
from rlxweb.compile.target import Target
from rlxweb.cost.graph_work import asked_of
from rlxweb.errors import RlxError, Unsupported, VerifyError
from rlxweb.ir.by_reference import by_reference
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node, told_apart
from rlxweb.ir.lowering import Compose, HostOnly, parts_of
from rlxweb.ir.needless import is_needless, simpler
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.verify import check_result

# Folding trades device work for buffer space; beyond this it stops being a bargain,
# unless the result is smaller than what it is made of.
FOLD_ELEMENTS = 1 << 14
# What the device would refuse is folded up to here.
FOLD_UNHELD = 1 << 22
# Arithmetic that is not done while compiling, some tenths of a second.
FOLD_FLOPS = 1 << 28
# A Compose that produces itself would never end; real nesting is below ten.
MAX_ROUNDS = 32

Rewrite = Callable[[Graph, Node, tuple[Tensor, ...]], Tensor]


def rebuild(graph: Graph, rewrite: Rewrite, keep: set[int] | None = None) -> Graph:
    """A new graph with each node (of `keep`, if given) passed through `rewrite`.

    Errors   VerifyError for a rewrite that changes a node's type.
    """
    out = Graph(graph.name)
    made: dict[int, Tensor] = {}
    for node in graph.nodes():
        if keep is not None and node.id not in keep:
            continue
        operands = tuple(made[i] for i in node.inputs)
        new = made[node.id] = rewrite(out, node, operands)
        if out.node(new.id).type != node.type:
            raise VerifyError(
                f"rewriting {node}",
                f"it became {out.node(new.id).type}",
                f"its type is {node.type}",
                "mend the composition of the op",
            )
    out.set_outputs([made[i] for i in graph.outputs])
    return out


def drop_dead(graph: Graph, target: Target | None = None) -> Graph:
    """Without the nodes no output depends on.

    Inputs and params stay, but for those of a type that a given target has not.
    """
    alive = set(graph.outputs)
    for node in reversed(graph.nodes()):
        is_named = node.op in ("input", "param")
        is_kept = is_named and (target is None or node.type.dtype in target.accepts)
        if node.id in alive or is_kept:
            alive.update((node.id, *node.inputs))
    return graph if len(alive) == len(graph) else rebuild(graph, Graph.copied, alive)


def drop_needless(graph: Graph) -> Graph:
    """Without nodes that change nothing, and with one for a chain that is one."""

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        made = simpler(out, node, operands)
        return out.copied(node, operands) if made is None else made

    if not any(is_needless(graph, node) for node in graph.nodes()):
        return graph
    return drop_dead(rebuild(graph, rewrite))


def share_common(graph: Graph) -> Graph:
    """Equal op, attributes and operands → one node."""
    seen: dict[Any, Tensor] = {}

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        ids = tuple(t.id for t in operands)
        try:
            key = (node.op, ids, frozenset(map(told_apart, node.attrs.items())))
            if key not in seen:
                seen[key] = out.copied(node, operands)
        except TypeError:  # an attribute of a custom op that cannot be hashed
            return out.copied(node, operands)
        return seen[key]

    return rebuild(graph, rewrite)


def fold_constants(graph: Graph, target: Target | None = None) -> Graph:
    """Nodes over constants alone become constants, by the ops' references.

    Small ones, those smaller than what they are made of, and those that the target
    would be refused for. Errors  GraphError for a reference that breaks its shape rule.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        given = [out.node(t.id) for t in operands]
        op = registry.get(node.op)
        known = not op.has("leaf") and all(n.op == "constant" for n in given)
        if not known or not _worth_folding(node, given, target):
            return out.copied(node, operands)
        values = (n.attrs["value"].array for n in given)
        try:
            with np.errstate(all="ignore"):
                made = by_reference(node, values)
        except RlxError:
            raise
        except Exception:  # a custom op's own: the run will say it
            return out.copied(node, operands)
        check_result(node, made)
        return out.constant(made)

    return rebuild(graph, rewrite)


def _worth_folding(node: Node, given: list[Node], target: Target | None) -> bool:
    types = tuple(n.type for n in given)
    op = registry.get(node.op)
    if op.flops(types, node.type, node.attrs) > FOLD_FLOPS:
        return False
    if node.type.numel <= FOLD_ELEMENTS:
        return True
    if node.type.nbytes <= sum(t.nbytes for t in types):
        return True
    if target is None or node.type.numel > FOLD_UNHELD:
        return False
    unheld = any(t.dtype not in target.accepts for t in (*types, node.type))
    return unheld or _cannot_be_run(target, (op, types, node.type, node.attrs))


def narrow_constants(graph: Graph, target: Target) -> Graph:
    """Constants of a wide integer type as i32, where that is all the device has.

    Only where all values fit and the reader's result is of the same type with either,
    as of indices and casts. Of a custom op nothing of that kind is known.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        given = [out.node(t.id) for t in operands]
        wide = [_is_wide(n, target) for n in given]
        op = registry.get(node.op)
        if not any(wide) or op.has("custom"):
            return out.copied(node, operands)
        types = [n.type for n in given]
        types = [
            TensorType(t.shape, DType.I32) if w else t
            for t, w in zip(types, wide, strict=True)
        ]
        try:
            same = op.output_type(types, node.attrs) == node.type
        except RlxError:
            same = False
        if not same:
            return out.copied(node, operands)
        pairs = zip(operands, given, wide, strict=True)
        narrow = [
            out.constant(n.attrs["value"].array.astype(np.int32)) if w else t
            for t, n, w in pairs
        ]
        return out.copied(node, narrow)

    return rebuild(graph, rewrite)


def _is_wide(node: Node, target: Target) -> bool:
    """An integer constant of a type the device has not, whose values i32 holds."""
    dtype = node.type.dtype
    if node.op != "constant" or dtype in target.accepts or not dtype.is_integer:
        return False
    array, bounds = node.attrs["value"].array, np.iinfo(np.int32)
    return bool(((array >= bounds.min) & (array <= bounds.max)).all())


def _cannot_be_run(target: Target, asked: tuple[Op, Types, TensorType, Attrs]) -> bool:
    """Has the device no kernel for a node, and is there no other way to do it?"""
    return not target.native(*asked) and composition(asked[0]) is None


def is_refused(graph: Graph, target: Target) -> bool:
    """Would the device be refused for a type or for an op, as the graph stands?"""
    return not target.holds(graph) or any(
        _cannot_be_run(target, asked_of(graph, node)) for node in graph.nodes()
    )


def without_needless(graph: Graph, target: Target) -> Graph:
    """Without what a device would be refused for, though it need never see it."""
    graph = drop_dead(fold_constants(drop_dead(graph, target), target), target)
    if target.holds(graph):
        return graph
    return drop_dead(narrow_constants(graph, target), target)


def composition(op: Op) -> Compose | None:
    """How to build this op from others, if its record says so."""
    return parts_of(op.lower)


def decompose(graph: Graph, target: Target) -> Graph:
    """Replace ops the target does not run natively by their compositions.

    Errors   Unsupported when such an op has no composition.
    """

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        if node.id not in foreign:
            return out.copied(node, operands)
        op = registry.get(node.op)
        how = composition(op)
        if how is not None:
            made: Tensor = how.build(out, node.attrs, *operands)
            return made
        error = target.refusal(*asked_of(graph, node))
        if error is not None:
            error.doing = f"{node} on {target.name} ({error.doing})"
            raise error
        why = "the device cannot run this op and it is not built from others"
        if isinstance(op.lower, HostOnly):
            why = op.lower.reason
        doing = f"{node} on {target.name}"
        raise Unsupported(doing, why, hint=Advice("run it with {}", device="cpu"))

    for _ in range(MAX_ROUNDS):
        every = graph.nodes()
        foreign = {n.id for n in every if not target.native(*asked_of(graph, n))}
        if not foreign:
            return graph
        graph = rebuild(graph, rewrite)
    raise Unsupported(
        f"graph '{graph.name}' on {target.name}",
        "an op keeps being built from ops that need taking apart",
        f"{MAX_ROUNDS} rounds",
        "check the composition of the custom op",
    )
