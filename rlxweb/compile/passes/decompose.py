"""Takes apart what the target cannot run as one step, by the op's own Compose."""

from __future__ import annotations

from rlxweb.compile.passes.rebuild import copy_node, rebuild
from rlxweb.compile.target import Target
from rlxweb.errors import Unsupported
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Compose, HostOnly, Kernel
from rlxweb.ir.op import Op, registry
from rlxweb.ir.tensor import Tensor

# A Compose that produces itself would never end; real nesting is below ten.
MAX_ROUNDS = 32


def composition(op: Op) -> Compose | None:
    """How to build this op from others, if its record says so."""
    if isinstance(op.lower, Compose):
        return op.lower
    return op.lower.otherwise if isinstance(op.lower, Kernel) else None


def why_not(op: Op) -> str:
    """Why an op without a composition cannot be run."""
    if isinstance(op.lower, HostOnly):
        return op.lower.reason
    return "the device cannot run this op and it is not built from others"


def decompose(graph: Graph, target: Target) -> Graph:
    """Replace ops the target does not run natively by their compositions.

    Errors   Unsupported when such an op has no composition.
    """

    def needs(node: Node) -> bool:
        op = registry.get(node.op)
        inputs = tuple(graph.node(i).type for i in node.inputs)
        return not target.native(op, inputs, node.type, node.attrs)

    def rewrite(out: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        if not needs(node):
            return copy_node(out, node, operands)
        op = registry.get(node.op)
        how = composition(op)
        if how is None:
            inputs = tuple(graph.node(i).type for i in node.inputs)
            error = target.refusal(op, inputs, node.type, node.attrs)
            if error is not None:
                error.doing = f"{node} on {target.name} ({error.doing})"
                raise error
            raise Unsupported(
                f"{node} on {target.name}",
                why_not(op),
                hint="run it on device='cpu'",
            )
        made: Tensor = how.build(out, node.attrs, *operands)
        return made

    for _ in range(MAX_ROUNDS):
        if not any(needs(n) for n in graph.nodes()):
            return graph
        graph = rebuild(graph, rewrite)
    raise Unsupported(
        f"graph '{graph.name}' on {target.name}",
        "an op keeps being built from ops that need taking apart",
        f"{MAX_ROUNDS} rounds",
        "check the composition of the custom op",
    )
