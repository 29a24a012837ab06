"""Helper that builds a graph from a function and input shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.ir.graph import Graph


def build_graph(build: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    """Build a graph; `build(graph, *inputs)` returns the output, or a list of
    several.
    """
    graph = Graph("made")
    outputs = build(graph, *(graph.input(f"x{k}", s) for k, s in enumerate(shapes)))
    graph.set_outputs(outputs if isinstance(outputs, list) else [outputs])
    return graph
