"""Graphs made in one call: inputs of given shapes, and what is built on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlxweb.ir.graph import Graph


def made(build: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    """`build(graph, *inputs)` gives the output, or a list of several."""
    graph = Graph("made")
    outs = build(graph, *(graph.input(f"x{k}", s) for k, s in enumerate(shapes)))
    graph.set_outputs(outs if isinstance(outs, list) else [outs])
    return graph
