"""Graphs on a worker: compiled once per process, and chunks put through them.

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

from rlxweb.dask.piece import Asker, Piece, check_worker, only, ran_here
from rlxweb.decision.decision import Decision
from rlxweb.device import DeviceLike
from rlxweb.forked import ForkLock
from rlxweb.ir.graph import Constant, Graph, Node
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.session import Session

_MOST = 8
_compiled: OrderedDict[tuple[str, int], CompiledGraph] = OrderedDict()
_turn = ForkLock()


@dataclass(frozen=True, slots=True, eq=False)
class GraphCall:
    """What all chunks share: sent once, as a node of Dask's graph.

    graphs   by the number of rows they are declared for; where none is for
             a chunk's number, it goes through the only one in groups, the last filled
    inputs   those with rows, in the order in which their blocks come
    whole    the other inputs
    key      what is compiled already is known by
    outputs  for each the shape of a row and the dtype
    """

    doing: str
    key: str
    graphs: Mapping[int, Graph]
    inputs: tuple[str, ...]
    whole: Mapping[str, NDArray[Any]]
    params: Mapping[str, NDArray[Any]]
    device: DeviceLike
    adapter: str
    strict: bool
    by: Asker
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.key, self.by


def chunk_through_graph(call: GraphCall, where: Sequence[slice], *blocks: Any) -> Piece:
    """The outputs for a chunk's rows: "0", "1" … in their order."""
    check_worker(call.by, call.doing)
    arrays = [np.asarray(only(block)) for block in blocks]
    n = len(arrays[0])
    if not n:
        empty = {
            str(i): np.empty((0, *shape), dtype)
            for i, (shape, dtype) in enumerate(call.outputs)
        }
        return Piece(empty, None)
    rows = n if n in call.graphs else next(iter(call.graphs))
    compiled = _program(call, rows)
    groups = [
        compiled.run(_feeds(call, arrays, at, rows), strict=call.strict)
        for at in range(0, n, rows)
    ]
    values = {
        str(i): parts[0] if n == rows else np.concatenate(parts)[:n]
        for i, parts in enumerate(zip(*groups, strict=True))
    }
    label = compiled.device.label
    why = _why(compiled, call)
    return Piece(values, ran_here(n, label, call.adapter, compiled.engine, why))


def _feeds(
    call: GraphCall, arrays: Sequence[NDArray[Any]], at: int, rows: int
) -> dict[str, NDArray[Any]]:
    """Rows from `at` on.

    What a last group lacks, its last row stands for: an op might refuse other values.
    """
    feeds = dict(call.whole)
    for name, array in zip(call.inputs, arrays, strict=True):
        part = array[at : at + rows]
        if len(part) < rows:
            last = np.repeat(part[-1:], rows - len(part), axis=0)
            part = np.concatenate([part, last])
        feeds[name] = part
    return feeds


def _program(call: GraphCall, rows: int) -> CompiledGraph:
    """The graph on this process's device; compiled by the first task that needs it."""
    at = call.key, rows
    with _turn:  # two threads would compile it twice
        compiled = _compiled.get(at)
        if compiled is None:
            session = Session(call.device, adapter=call.adapter, strict=call.strict)
            compiled = session.compile(call.graphs[rows])
            for name, value in call.params.items():
                compiled.set_param(name, value)
            _compiled[at] = compiled
        _compiled.move_to_end(at)
        while len(_compiled) > _MOST:
            _compiled.popitem(last=False)
    return compiled


def _why(compiled: CompiledGraph, call: GraphCall) -> Decision:
    what = f"device {compiled.device.label}"
    return next(
        (one for one in compiled.decisions if one.what == what),
        Decision(what, "it was asked for"),
    )


def contents(graph: Graph) -> tuple[Any, ...]:
    """The graph as plain data, the same in every process."""
    nodes = [(*_plain(one), str(one.type), one.name) for one in graph.nodes()]
    return graph.name, tuple(nodes), graph.outputs


def _plain(node: Node) -> tuple[Any, ...]:
    attrs = {
        name: value.array if isinstance(value, Constant) else repr(value)
        for name, value in node.attrs.items()
    }
    return node.op, node.inputs, sorted(attrs.items())
