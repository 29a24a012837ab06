"""Elementwise regions by NumPy, in blocks that stay in a core's cache.

Op by op over whole arrays, a chain of a dozen ops walks memory a dozen times and asks
for as many new pages. In blocks all of it but the operands and the result stays where
it is, and of many elements threads share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.array_calls import order_of_release
from rlxweb.host.arrays import pool
from rlxweb.host.boxes import SHARE, Box, boxes_of, for_each
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.verify import wrong_result

_IN_CACHE: Final = 1 << 14
"""Elements of a block on one thread: a few such arrays lie in the nearest caches."""
_MANY_PASSES: Final = 16
_LEAST: Final = 1 << 16
_THREADED: Final = 1 << 20
_BEYOND_CACHE: Final = 1 << 21
"""Elements whose arrays no cache of a core holds."""


def block_size(numel: int, passes: float) -> int:
    """Elements of a block, by how often NumPy goes through them; 0 for all at once.

    Two or three passes in cache are no faster in blocks: a call costs what it saves.
    """
    if numel >= _BEYOND_CACHE and passes > 1:
        return SHARE
    if numel < _LEAST or passes < _MANY_PASSES:
        return 0
    return SHARE if numel >= _THREADED else _IN_CACHE


def _passes(graph: Graph, node: Node) -> float:
    """About how often: as often as the op has operations for an element."""
    types = tuple(graph.node(i).type for i in node.inputs)
    op = registry.get(node.op)
    return op.flops(types, node.type, node.attrs) / max(1, node.type.numel)


class _Call(NamedTuple):
    node: Node
    function: Callable[..., Any]
    drop: Sequence[int]


class RegionByNumPy:
    """A region as a function of the arrays it reads.

    nodes      elementwise, in order; the last is the result
    functions  of each: (attributes, *operands) → the value
    reads      ids of what is read
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        functions: Sequence[Callable[..., Any]],
        reads: Sequence[int],
    ) -> None:
        own = {node.id for node in nodes}
        drops = order_of_release([node.inputs for node in nodes], set())
        self._calls = list(map(_Call, nodes, functions, drops))
        self._reads = tuple(reads)
        self._literals: Mapping[int, Any] = {
            i: graph.node(i).attrs["value"].array
            for node in nodes
            for i in node.inputs
            if i not in own and i not in self._reads
        }
        out = nodes[-1].type
        self._shape, self._dtype = out.shape, out.dtype.held
        passes = sum(_passes(graph, node) for node in nodes)
        most = block_size(out.numel, passes)
        self._blocks = boxes_of(out.shape, most) if most else []
        self._threaded = out.numel >= _THREADED

    @property
    def is_cut(self) -> bool:
        """It is computed block by block."""
        return bool(self._blocks)

    def call(self, attrs: object, *arrays: NDArray[Any]) -> NDArray[Any]:
        """As a step calls it."""
        return self(*arrays)

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        if not self._blocks:
            made = self._value(arrays)
            if made.shape != self._shape:
                raise wrong_result(self._calls[-1].node, made.shape, made.dtype)
            return made
        out = pool.empty(self._shape, self._dtype)
        rank = len(self._shape)
        aligned = [one[(None,) * (rank - one.ndim)] for one in arrays]

        def body(at: int) -> None:
            block = self._blocks[at]
            out[block] = self._value([_part(one, block) for one in aligned])

        for_each(len(self._blocks), body, threaded=self._threaded)
        return out

    def _value(self, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        values = dict(self._literals) | dict(zip(self._reads, arrays, strict=True))
        for node, function, drop in self._calls:
            made = np.asarray(function(node.attrs, *(values[i] for i in node.inputs)))
            if made.dtype != node.type.dtype.held:
                raise wrong_result(node, made.shape, made.dtype)
            for i in drop:
                del values[i]
            values[node.id] = made
        return made


def _part(array: NDArray[Any], block: Box) -> NDArray[Any]:
    """What a block reads: an axis of one element is read by all blocks."""
    cut = [
        slice(None) if size == 1 else one
        for size, one in zip(array.shape, block, strict=True)
    ]
    return array[tuple(cut)]
