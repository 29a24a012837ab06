"""How much a graph of a file may take: nodes, bytes of its values, arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlxweb.errors import GraphFileError, UsageError, did_you_mean, shown
from rlxweb.graphfile.rules import MOST_NODES
from rlxweb.graphfile.strict_json import Refused
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry

_KINDS = ("nodes", "nbytes", "flops")


@dataclass(slots=True)
class Budget:
    """What is left of it. Made by `budget_of`."""

    nodes: int = MOST_NODES
    nbytes: float = float("inf")
    flops: float = float("inf")

    @property
    def node_rule(self) -> str:
        """The most nodes there may be, and whose rule that is."""
        own = self.nodes < MOST_NODES
        return (
            f"the budget is {self.nodes:,} nodes" if own else f"at most {MOST_NODES:,}"
        )

    def check(self, graph: Graph, doing: str) -> None:
        """Check a graph of numbers as a whole against the budget.

        Errors  GraphFileError with what it takes and what the budget is.
        """
        nodes = graph.nodes()
        kinds = [node.type for node in nodes]
        flops = 0.0
        for node in nodes:
            types = tuple(kinds[i] for i in node.inputs)
            flops += float(registry.get(node.op).flops(types, node.type, node.attrs))
        nbytes = sum(kind.nbytes for kind in kinds)
        for takes, most, what in (
            (len(nodes), self.nodes, "nodes"),
            (nbytes, self.nbytes, "bytes of values"),
            (flops, self.flops, "flops"),
        ):
            if takes > most:
                raise GraphFileError(
                    doing,
                    f"the graph takes {takes:,.0f} {what} with inputs of these sizes",
                    f"the budget it was loaded with is {most:,.0f}",
                    "run it with smaller sizes, or load it with a larger budget",
                )

    def take(self, nbytes: int, flops: float, what: str) -> None:
        """Errors  Refused for the node that takes more than there is."""
        if nbytes > self.nbytes:
            rule = f"{max(0, int(self.nbytes)):,} are left of the budget"
            raise Refused(f"{what} takes {nbytes:,} bytes", rule)
        if flops > self.flops:
            rule = f"{max(0, int(self.flops)):,} are left of the budget"
            raise Refused(f"{what} takes {flops:,.0f} flops", rule)
        self.nbytes -= nbytes
        self.flops -= flops


def budget_of(given: object, doing: str) -> Budget:
    """Errors  UsageError for other names than these, and for what is no number."""
    if given is None:
        return Budget()
    if not isinstance(given, Mapping):
        problem = f"budget is {shown(given)}"
        raise UsageError(doing, problem, "numbers by name: " + ", ".join(_KINDS))
    for name, value in given.items():
        if name not in _KINDS:
            raise UsageError(
                doing,
                f"budget has {shown(name)}",
                "it may have " + ", ".join(_KINDS),
                did_you_mean(str(name), _KINDS),
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not value >= 0:  # NaN is neither
            raise UsageError(doing, f"the budget's {name} is {shown(value)}", ">= 0")
    return Budget(
        nodes=int(min(given.get("nodes", MOST_NODES), MOST_NODES)),
        nbytes=float(given.get("nbytes", float("inf"))),
        flops=float(given.get("flops", float("inf"))),
    )
