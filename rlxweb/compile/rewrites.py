"""Graph → graph, one mechanism and four rewrites; the answer stays the same.

A rewrite is a function that is shown each node with its already rewritten operands and
answers with the tensor that takes its place: dead nodes go, equal ones become one,
small constants are computed, and what the target cannot run as one step is taken apart
by the op's own Compose. Inputs and params are always kept, so the names a caller may
set never depend on optimisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlxweb.compile.target import Target
from rlxweb.cost.graph_work import asked_of
from rlxweb.errors import Unsupported, VerifyError
from rlxweb.ir.graph import Graph, Node, told_apart
from rlxweb.ir.lowering import Compose, HostOnly, Kernel
from rlxweb.ir.op import Op, registry
from rlxweb.ir.tensor import Tensor

# Folding trades device work for buffer space; beyond this it stops being a bargain.
FOLD_ELEMENTS = 1 << 14
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


def drop_dead(graph: Graph) -> Graph:
    """Without the nodes no output depends on; inputs and params stay."""
    alive = set(graph.outputs)
    for node in reversed(graph.nodes()):
        if node.id in alive or node.op in ("input", "param"):
            alive.update((node.id, *node.inputs))
    return graph if len(alive) == len(graph) else rebuild(graph, Graph.copied, alive)


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


def fold_constants(graph: Graph) -> Graph:
    """Small nodes over constants alone become constants."""

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        given = [out.node(t.id) for t in operands]
        known = bool(given) and all(n.op == "constant" for n in given)
        if not known or node.type.numel > FOLD_ELEMENTS:
            return out.copied(node, operands)
        values = (n.attrs["value"].array for n in given)
        with np.errstate(all="ignore"):
            value = registry.get(node.op).reference(np, node.attrs, *values)
        return out.constant(np.asarray(value, dtype=node.type.dtype.numpy))

    return rebuild(graph, rewrite)


def composition(op: Op) -> Compose | None:
    """How to build this op from others, if its record says so."""
    if isinstance(op.lower, Compose):
        return op.lower
    return op.lower.otherwise if isinstance(op.lower, Kernel) else None


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
        raise Unsupported(doing, why, hint="run it on device='cpu'")

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
