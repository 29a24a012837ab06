"""How much a graph of a file may take: nodes, bytes of its values, arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlxweb.errors import UsageError, did_you_mean, shown
from rlxweb.graphfile.rules import MOST_NODES
from rlxweb.graphfile.strict_json import Refused

_KINDS = ("nodes", "nbytes", "flops")


@dataclass(slots=True)
class Budget:
    """What is left of it. Made by `budget_of`."""

    nodes: int = MOST_NODES
    nbytes: float = float("inf")
    flops: float = float("inf")

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
