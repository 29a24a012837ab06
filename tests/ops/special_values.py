"""Special values of the smoke test as graphs and feeds."""

from __future__ import annotations

from rlxweb.ir.graph import Graph
from rlxweb.smoke import special_value_cases
from rlxweb.smoke.special_value_cases import (
    FOLDABLE_EXPRESSIONS,
    INF,
    NAN,
    SPECIAL_VALUES,
    elementwise_op_names,
)
from tests.engines_under_test import Array

__all__ = [
    "FOLDABLE_EXPRESSIONS",
    "INF",
    "NAN",
    "SPECIAL_VALUES",
    "elementwise_graph",
    "elementwise_op_names",
    "foldable_graph",
    "special_value_mismatch",
]


def elementwise_graph(name: str, width: int) -> tuple[Graph, dict[str, Array]]:
    """Return an elementwise op on every special value or every pair; length 4n +
    width.
    """
    prepared = special_value_cases.prepare_elementwise(name, width)
    return prepared.graph, prepared.feeds


def foldable_graph(expression: str) -> tuple[Graph, dict[str, Array]]:
    """Return one of the foldable expressions on every special value."""
    prepared = special_value_cases.prepare_foldable(expression)
    return prepared.graph, prepared.feeds


def special_value_mismatch(graph: Graph, feeds: dict[str, Array], got: Array) -> str:
    """Describe why a result is wrong, or return ""; `graph` is from `elementwise_graph`
    or `foldable_graph`.
    """
    if graph.name in FOLDABLE_EXPRESSIONS:
        prepared = special_value_cases.prepare_foldable(graph.name)
    else:
        (size, *_) = {feed.size for feed in feeds.values()}
        prepared = special_value_cases.prepare_elementwise(graph.name, size % 4)
    why = prepared.judge([got]).reason
    return f"{graph.name}: {why}" if why else ""
