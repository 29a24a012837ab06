"""The nodes of a message in the order in which they compute.

ONNX asks for it, and tools that add nodes leave it out: a converter to float16 puts the
casts of the inputs at the end. ONNX Runtime reads such files, and so does this.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any


def put_in_order(model: Any) -> None:
    """The nodes of every graph, body and function; what goes in circles stays."""
    todo = [model.graph, *model.functions]
    while todo:
        graph = todo.pop()
        order = _order(graph.node)
        if order is not None:
            nodes = [type(node)() for node in graph.node]
            for made, node in zip(nodes, graph.node, strict=True):
                made.CopyFrom(node)
            del graph.node[:]
            graph.node.extend([nodes[at] for at in order])
        for node in graph.node:
            todo += _bodies(node)


def _bodies(node: Any) -> Iterator[Any]:
    for attr in node.attribute:
        if attr.HasField("g"):
            yield attr.g
        yield from attr.graphs


def _reads(node: Any) -> Iterator[str]:
    """The names that a node and its bodies use, their own among them."""
    yield from node.input
    for body in _bodies(node):
        yield from (one.name for one in body.output)
        for inner in body.node:
            yield from _reads(inner)


def _order(nodes: Any) -> list[int] | None:
    """Places of nodes as they compute, otherwise as they stand; None where they stand
    so, or go in circles.
    """
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    needs = [
        {makers[name] for name in _reads(node) if name in makers} - {at}
        for at, node in enumerate(nodes)
    ]
    if all(max(some, default=-1) < at for at, some in enumerate(needs)):
        return None
    users: list[list[int]] = [[] for _ in needs]
    for at, some in enumerate(needs):
        for before in some:
            users[before].append(at)
    left = [len(some) for some in needs]
    ready = [at for at, count in enumerate(left) if not count]
    heapify(ready)
    found = []
    while ready:
        at = heappop(ready)
        found.append(at)
        for user in users[at]:
            left[user] -= 1
            if not left[user]:
                heappush(ready, user)
    return found if len(found) == len(left) else None
