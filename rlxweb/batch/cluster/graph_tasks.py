"""Dask tasks that put chunks through a graph, which is compiled once per process.

A compiled graph holds its device's memory and its params, so only the last few that
were used are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.batch.cluster.chunk_result import (
    ChunkResult,
    WorkerRequirements,
    check_worker,
    current_run_info,
    unwrap_single,
)
from rlxweb.core.device import DeviceLike
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.cost.decision import Decision
from rlxweb.ir.graph import Constant, Graph, Node
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.session import Session

_MAX_COMPILED = 8
_compiled_graphs: OrderedDict[tuple[str, int], CompiledGraph] = OrderedDict()
_compile_lock = ForkSafeLock()


@dataclass(frozen=True, slots=True, eq=False)
class GraphChunkSpec:
    """Arguments that all chunks share; sent once, as a node of Dask's graph.

    graphs   by the number of rows they are declared for; where none is for
             a chunk's number, it goes through the only one in groups, the last filled
    inputs   those with rows, in the order in which their blocks come
    fixed_inputs  the other inputs
    key      what is compiled already is known by
    outputs  for each the shape of a row and the dtype
    """

    context: str
    key: str
    graphs: Mapping[int, Graph]
    inputs: tuple[str, ...]
    fixed_inputs: Mapping[str, NDArray[Any]]
    params: Mapping[str, NDArray[Any]]
    device: DeviceLike
    adapter: str
    strict: bool
    requirements: WorkerRequirements
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.key, self.requirements


def run_graph_on_chunk(
    spec: GraphChunkSpec, batch_slices: Sequence[slice], *blocks: Any
) -> ChunkResult:
    """Compute the outputs of a chunk's rows, named "0", "1" … in their order."""
    check_worker(spec.requirements, spec.context)
    arrays = [np.asarray(unwrap_single(block)) for block in blocks]
    n = len(arrays[0])
    if not n:
        empty = {
            str(i): np.empty((0, *shape), dtype)
            for i, (shape, dtype) in enumerate(spec.outputs)
        }
        return ChunkResult(empty, None)
    rows = n if n in spec.graphs else next(iter(spec.graphs))
    compiled = _get_or_compile(spec, rows)
    groups = [
        compiled.run(_slice_feeds(spec, arrays, start, rows), strict=spec.strict)
        for start in range(0, n, rows)
    ]
    values = {
        str(i): parts[0] if n == rows else np.concatenate(parts)[:n]
        for i, parts in enumerate(zip(*groups, strict=True))
    }
    label = compiled.device.label
    decision = _device_decision(compiled, spec)
    return ChunkResult(
        values, current_run_info(n, label, spec.adapter, compiled.engine, decision)
    )


def _slice_feeds(
    spec: GraphChunkSpec, arrays: Sequence[NDArray[Any]], start: int, rows: int
) -> dict[str, NDArray[Any]]:
    """Return the inputs of one group of rows, from row `start` on.

    What a last group lacks, its last row stands for: an op might refuse other values.
    """
    feeds = dict(spec.fixed_inputs)
    for name, array in zip(spec.inputs, arrays, strict=True):
        group_rows = array[start : start + rows]
        if len(group_rows) < rows:
            padding = np.repeat(group_rows[-1:], rows - len(group_rows), axis=0)
            group_rows = np.concatenate([group_rows, padding])
        feeds[name] = group_rows
    return feeds


def _get_or_compile(spec: GraphChunkSpec, rows: int) -> CompiledGraph:
    """Return the graph compiled for this process's device; the first task that needs it
    compiles it.
    """
    cache_key = spec.key, rows
    with _compile_lock:  # two threads would compile it twice
        compiled = _compiled_graphs.get(cache_key)
        if compiled is None:
            session = Session(spec.device, adapter=spec.adapter, strict=spec.strict)
            compiled = session.compile(spec.graphs[rows])
            for name, value in spec.params.items():
                compiled.set_param(name, value)
            _compiled_graphs[cache_key] = compiled
        _compiled_graphs.move_to_end(cache_key)
        while len(_compiled_graphs) > _MAX_COMPILED:
            _compiled_graphs.popitem(last=False)
    return compiled


def _device_decision(compiled: CompiledGraph, spec: GraphChunkSpec) -> Decision:
    label = f"device {compiled.device.label}"
    return next(
        (decision for decision in compiled.decisions if decision.what == label),
        Decision(label, "it was requested"),
    )


def graph_contents(graph: Graph) -> tuple[Any, ...]:
    """Return the graph as plain data, the same in every process."""
    nodes = [
        (*_node_contents(node), str(node.type), node.name) for node in graph.nodes()
    ]
    return graph.name, tuple(nodes), graph.outputs


def _node_contents(node: Node) -> tuple[Any, ...]:
    attrs = {
        name: value.array if isinstance(value, Constant) else repr(value)
        for name, value in node.attrs.items()
    }
    return node.op, node.inputs, sorted(attrs.items())
