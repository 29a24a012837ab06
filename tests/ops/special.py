"""The special values of `rlxweb.smoke.special`, as graphs and feeds."""

from __future__ import annotations

from rlxweb.ir.graph import Graph
from rlxweb.smoke import special
from rlxweb.smoke.special import FOLDED, INF, NAN, SPECIAL, elementwise
from tests.agreement import Array

__all__ = [
    "FOLDED",
    "INF",
    "NAN",
    "SPECIAL",
    "elementwise",
    "missed",
    "of_op",
    "of_way",
]


def of_op(name: str, width: int) -> tuple[Graph, dict[str, Array]]:
    """An elementwise op on every special value or every pair; length 4n + width."""
    trial = special.of_op(name, width)
    return trial.graph, trial.feeds


def of_way(way: str) -> tuple[Graph, dict[str, Array]]:
    """A way of FOLDED on every special value."""
    trial = special.of_way(way)
    return trial.graph, trial.feeds


def missed(graph: Graph, feeds: dict[str, Array], got: Array) -> str:
    """What of a result is wrong, or ""; `graph` is of `of_op` or `of_way`."""
    if graph.name in FOLDED:
        trial = special.of_way(graph.name)
    else:
        (size, *_) = {feed.size for feed in feeds.values()}
        trial = special.of_op(graph.name, size % 4)
    why = trial.judge([got]).why
    return f"{graph.name}: {why}" if why else ""
