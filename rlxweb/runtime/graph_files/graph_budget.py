"""Budget of a graph that is read from a file: limits on its nodes, the bytes of its
values and its arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlxweb.core.errors import GraphFileError, UsageError, did_you_mean, shown
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.runtime.graph_files.format_constants import MAX_NODES
from rlxweb.runtime.graph_files.strict_json import FormatViolation

_RESOURCES = ("nodes", "nbytes", "flops")


@dataclass(slots=True)
class GraphBudget:
    """Resources that a graph may still take, made by `parse_budget`."""

    nodes: int = MAX_NODES
    nbytes: float = float("inf")
    flops: float = float("inf")

    @property
    def node_rule(self) -> str:
        """Limit on the number of nodes, in words, and whose limit it is."""
        is_custom = self.nodes < MAX_NODES
        return (
            f"the budget allows at most {self.nodes:,} nodes"
            if is_custom
            else f"at most {MAX_NODES:,} nodes are allowed"
        )

    def check(self, graph: Graph, context: str) -> None:
        """Check a bound graph as a whole against the budget.

        Errors  GraphFileError with what it takes and what the budget is.
        """
        nodes = graph.nodes()
        node_types = [node.type for node in nodes]
        flops = 0.0
        for node in nodes:
            types = tuple(node_types[i] for i in node.inputs)
            flops += float(registry.get(node.op).flops(types, node.type, node.attrs))
        nbytes = sum(node_type.nbytes for node_type in node_types)
        for used, limit, unit in (
            (len(nodes), self.nodes, "nodes"),
            (nbytes, self.nbytes, "bytes of values"),
            (flops, self.flops, "flops"),
        ):
            if used > limit:
                raise GraphFileError(
                    context,
                    f"the graph needs {used:,.0f} {unit} for inputs of these sizes",
                    f"the graph was loaded with a budget of {limit:,.0f} {unit}",
                    "use smaller inputs, or load the graph with a larger budget",
                )

    def consume(self, nbytes: int, flops: float, subject: str) -> None:
        """Subtract what a node takes; raises FormatViolation if that is more than is
        left.
        """
        if nbytes > self.nbytes:
            rule = f"{max(0, int(self.nbytes)):,} bytes remain in the budget"
            raise FormatViolation(f"{subject} needs {nbytes:,} bytes", rule)
        if flops > self.flops:
            rule = f"{max(0, int(self.flops)):,} flops remain in the budget"
            raise FormatViolation(f"{subject} needs {flops:,.0f} flops", rule)
        self.nbytes -= nbytes
        self.flops -= flops


def parse_budget(limits: object, context: str) -> GraphBudget:
    """Return the budget of a mapping; raises UsageError for an unknown name or what is
    no number.
    """
    if limits is None:
        return GraphBudget()
    if not isinstance(limits, Mapping):
        problem = f"budget is {shown(limits)}"
        rule = "expected a dict of numbers with the keys " + ", ".join(_RESOURCES)
        raise UsageError(context, problem, rule)
    for name, value in limits.items():
        if name not in _RESOURCES:
            raise UsageError(
                context,
                f"budget has the unknown key {shown(name)}",
                "known keys: " + ", ".join(_RESOURCES),
                did_you_mean(str(name), _RESOURCES),
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not value >= 0:  # NaN is neither
            problem = f"the budget for {name} is {shown(value)}"
            raise UsageError(context, problem, "it must be a number >= 0")
    return GraphBudget(
        nodes=int(min(limits.get("nodes", MAX_NODES), MAX_NODES)),
        nbytes=float(limits.get("nbytes", float("inf"))),
        flops=float(limits.get("flops", float("inf"))),
    )
