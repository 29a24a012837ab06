"""Topological sort of a model's nodes.

ONNX asks for it, and tools that add nodes leave it out: a converter to float16 puts the
casts of the inputs at the end. ONNX Runtime reads such files, and so does this.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any


def sort_nodes(model: Any) -> None:
    """Sort the nodes of every graph, body and function topologically, in place; a graph
    with a cycle stays as it is.
    """
    pending = [model.graph, *model.functions]
    while pending:
        graph = pending.pop()
        order = _topological_order(graph.node)
        if order is not None:
            nodes = [type(node)() for node in graph.node]
            for node_copy, node in zip(nodes, graph.node, strict=True):
                node_copy.CopyFrom(node)
            del graph.node[:]
            graph.node.extend([nodes[index] for index in order])
        for node in graph.node:
            pending += _subgraphs(node)


def _subgraphs(node: Any) -> Iterator[Any]:
    for attr in node.attribute:
        if attr.HasField("g"):
            yield attr.g
        yield from attr.graphs


def _referenced_names(node: Any) -> Iterator[str]:
    """Yield the names that a node and its bodies use, including the bodies' own
    names.
    """
    yield from node.input
    for body in _subgraphs(node):
        yield from (output.name for output in body.output)
        for inner in body.node:
            yield from _referenced_names(inner)


def _topological_order(nodes: Any) -> list[int] | None:
    """Return node indices in a stable topological order, or None if the nodes are in
    order already or form a cycle.
    """
    producers = {
        name: index for index, node in enumerate(nodes) for name in node.output if name
    }
    dependencies = [
        {producers[name] for name in _referenced_names(node) if name in producers}
        - {index}
        for index, node in enumerate(nodes)
    ]
    if all(
        max(indices, default=-1) < index for index, indices in enumerate(dependencies)
    ):
        return None
    users: list[list[int]] = [[] for _ in dependencies]
    for index, indices in enumerate(dependencies):
        for producer in indices:
            users[producer].append(index)
    remaining = [len(indices) for indices in dependencies]
    ready = [index for index, count in enumerate(remaining) if not count]
    heapify(ready)
    order = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for user in users[index]:
            remaining[user] -= 1
            if not remaining[user]:
                heappush(ready, user)
    return order if len(order) == len(remaining) else None
