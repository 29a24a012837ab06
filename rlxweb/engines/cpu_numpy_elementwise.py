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

from rlxweb.codegen.array_tiles import (
    TILE_ELEMENTS,
    Tile,
    parallel_for,
    split_into_tiles,
)
from rlxweb.codegen.result_buffer_pool import result_pool
from rlxweb.engines.array_node_calls import dead_after_steps
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.verify import result_type_error

_BLOCK_ELEMENTS: Final = 1 << 14
"""Elements of a block on one thread: a few such arrays lie in the nearest caches."""
_MANY_PASSES: Final = 16
_MIN_BLOCKED_ELEMENTS: Final = 1 << 16
_MIN_THREADED_ELEMENTS: Final = 1 << 20
_BEYOND_CACHE_ELEMENTS: Final = 1 << 21
"""Elements whose arrays no cache of a core holds."""


def block_size(numel: int, passes: float) -> int:
    """Return the elements of a block, given how many passes NumPy makes over them; 0
    for no blocking.

    Two or three passes in cache are no faster in blocks: a call costs what it saves.
    """
    if numel >= _BEYOND_CACHE_ELEMENTS and passes > 1:
        return TILE_ELEMENTS
    if numel < _MIN_BLOCKED_ELEMENTS or passes < _MANY_PASSES:
        return 0
    return TILE_ELEMENTS if numel >= _MIN_THREADED_ELEMENTS else _BLOCK_ELEMENTS


def _passes_per_element(graph: Graph, node: Node) -> float:
    """Estimate NumPy's passes over the data: the op's operations per element."""
    types = tuple(graph.node(i).type for i in node.inputs)
    op = registry.get(node.op)
    return op.flops(types, node.type, node.attrs) / max(1, node.type.numel)


class _RegionStep(NamedTuple):
    node: Node
    function: Callable[..., Any]
    dead_values: Sequence[int]


class NumpyRegion:
    """Elementwise region, or fused row reduction, as a NumPy function of the arrays it
    reads.

    nodes      in order; the last is the result
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
        region_ids = {node.id for node in nodes}
        dead_values = dead_after_steps([node.inputs for node in nodes], set())
        self._steps = list(map(_RegionStep, nodes, functions, dead_values))
        self._reads = tuple(reads)
        self._literals: Mapping[int, Any] = {
            i: graph.node(i).attrs["value"].array
            for node in nodes
            for i in node.inputs
            if i not in region_ids and i not in self._reads
        }
        out = nodes[-1].type
        self._shape, self._dtype = out.shape, out.dtype.reference_dtype
        passes = sum(_passes_per_element(graph, node) for node in nodes)
        # A block of a row would not do for what reduces it.
        is_elementwise = all(node.type.shape == out.shape for node in nodes)
        max_elements = block_size(out.numel, passes) if is_elementwise else 0
        self._blocks = split_into_tiles(out.shape, max_elements) if max_elements else []
        self._is_threaded = out.numel >= _MIN_THREADED_ELEMENTS

    @property
    def is_blocked(self) -> bool:
        """Return whether the region is computed block by block."""
        return bool(self._blocks)

    def call(self, attrs: object, *arrays: NDArray[Any]) -> NDArray[Any]:
        """Compute the region with a variant's call signature."""
        return self(*arrays)

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        if not self._blocks:
            result = self._compute_block(arrays)
            if result.shape != self._shape:
                raise result_type_error(
                    self._steps[-1].node, result.shape, result.dtype
                )
            return result
        out = result_pool.empty(self._shape, self._dtype)
        rank = len(self._shape)
        aligned = [array[(None,) * (rank - array.ndim)] for array in arrays]

        def body(index: int) -> None:
            block = self._blocks[index]
            out[block] = self._compute_block(
                [_block_view(array, block) for array in aligned]
            )

        parallel_for(len(self._blocks), body, threaded=self._is_threaded)
        return out

    def _compute_block(self, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        values = dict(self._literals) | dict(zip(self._reads, arrays, strict=True))
        for node, function, dead_values in self._steps:
            result = np.asarray(function(node.attrs, *(values[i] for i in node.inputs)))
            if result.dtype != node.type.dtype.reference_dtype:
                raise result_type_error(node, result.shape, result.dtype)
            for i in dead_values:
                del values[i]
            values[node.id] = result
        return result


def _block_view(array: NDArray[Any], block: Tile) -> NDArray[Any]:
    """Return the part of an array that a block reads; axes of length 1 are
    broadcast.
    """
    slices = [
        slice(None) if size == 1 else axis_slice
        for size, axis_slice in zip(array.shape, block, strict=True)
    ]
    return array[tuple(slices)]
