"""`rlxweb.dask.run`: a graph over the rows of Dask arrays, chunk by chunk, lazily."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from rlxweb.arguments import switch
from rlxweb.dask.blocks import as_blocks, check_whole
from rlxweb.dask.lazily import Field, part, pieces
from rlxweb.dask.piece import asker
from rlxweb.dask.programs import GraphCall, chunk_through_graph, contents
from rlxweb.dask.room import check_room
from rlxweb.dask.rows_apart import check_rows_apart
from rlxweb.device import DeviceLike, adapter_name, is_open, parse_device
from rlxweb.errors import (
    DTypeError,
    GraphError,
    InputError,
    ShapeError,
    UsageError,
    shown,
)
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import show
from rlxweb.runtime.feeds import as_input, check_names, param_named

MakeGraph: TypeAlias = Callable[[int], Graph]
"""Rows → the graph for as many."""
_DOING = "rlxweb.dask.run"


def run(
    graph: Graph | MakeGraph,
    inputs: Mapping[str, Any],
    *,
    params: Mapping[str, Any] | None = None,
    device: DeviceLike = "auto",
    adapter: str = "",
    strict: bool = False,
) -> list[Any]:
    """A graph's outputs for every row of dask.arrays, chunk by chunk, lazily.

    Rows are the leading axis of the inputs and of the outputs. The graph must keep them
    apart, which is proved op by op before anything runs.

    graph    declared for some number of rows: larger chunks go through it in groups of
             so many, a last group is filled up and cut off again. Or a function that
             makes the graph for a number of rows: it is called now, once for each size
             of chunk, and each chunk goes through a graph of its size
    inputs   dask.arrays by name, chunked along their leading axis, all alike; a NumPy
             array is the same for every row
    params   arrays by name, the same for every row; they are sent once
    device   where to run; "auto" lets each worker pick its own, by its own calibration.
             A worker compiles once. `rlxweb.dask.decisions` says where it ran
    strict   as `CompiledGraph.run`
    returns  a dask.array for each output. Nothing is computed before they are
    Errors   GraphError naming the op that mixes rows, or that no rule is known for;
             UsageError for chunks that cut rows or differ between inputs, with the
             `rechunk` that mends it; InputError, UnknownName, DTypeError, ShapeError
    """
    lazy, others = _sorted_out(inputs)
    graphs = _graphs(graph, _row_chunks(lazy), lazy, others)
    first = next(iter(graphs.values()))
    _check_inputs(first, lazy)
    whole = _fixed(graphs, "input", {n: others[n] for n in sorted(others)})
    fixed = _fixed(graphs, "param", _params(first, params))
    where = device if is_open(device) else parse_device(device)
    adapter, strict = adapter_name(adapter), switch("strict", strict, _DOING)
    by = asker()
    said = [contents(one) for one in graphs.values()], whole, fixed
    call = GraphCall(
        doing=_DOING,
        key=tokenize(said, tuple(lazy), str(where), adapter, strict, by.versions),
        graphs=graphs,
        inputs=tuple(lazy),
        whole=whole,
        params=fixed,
        device=where,
        adapter=adapter,
        strict=strict,
        by=by,
        outputs=_outputs(graphs),
    )
    found = pieces("rlxweb-run", chunk_through_graph, call, _labelled(lazy), (0,))
    return [
        part(found, Field(str(i), dtype, 1, shape), 1)
        for i, (shape, dtype) in enumerate(call.outputs)
    ]


def _sorted_out(inputs: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs with rows, and those that are the same for every row."""
    if not isinstance(inputs, Mapping):
        raise InputError(
            _DOING,
            f"{shown(inputs)} was given",
            "inputs are given by name, in a dict",
        )
    lazy = {n: x for n, x in inputs.items() if isinstance(x, da.Array)}
    if not lazy:
        raise InputError(
            _DOING, "no input is a dask.array", hint="Session(…).compile(graph).run"
        )
    for name, x in lazy.items():
        as_blocks(x, repr(name), _DOING)
        for axis in range(1, x.ndim):
            check_whole(x, axis, name, "an axis inside a row", _DOING)
        check_room(x, (0,), name, _DOING)
    return lazy, {n: x for n, x in inputs.items() if n not in lazy}


def _row_chunks(lazy: Mapping[str, Any]) -> tuple[int, ...]:
    """The rows of each chunk, alike in all inputs."""
    (name, x), *others = lazy.items()
    for other, y in others:
        if y.shape[0] != x.shape[0]:
            raise ShapeError(
                _DOING,
                f"'{other}' has {y.shape[0]} rows and '{name}' {x.shape[0]}",
                "inputs with rows have the same number of them",
            )
        if y.chunks[0] != x.chunks[0]:
            raise UsageError(
                _DOING,
                f"'{other}' has chunks of {max(y.chunks[0])} rows and '{name}' of"
                f" {max(x.chunks[0])}",
                "a chunk of each must have the same rows",
                f"{other}.rechunk({{0: {name}.chunks[0]}})",
            )
    return tuple(x.chunks[0])


def _graphs(
    given: object,
    chunks: Sequence[int],
    lazy: Collection[str],
    others: Collection[str],
) -> dict[int, Graph]:
    """By the number of rows; one, where one was given. Each keeps its rows apart."""
    if isinstance(given, Graph):
        _check_given(given, [*lazy, *others])
        return {check_rows_apart(given, lazy, _DOING): given}
    if not callable(given):
        raise GraphError(
            _DOING, f"graph is {shown(given)}", "a Graph or a function rows → Graph"
        )
    made = {}
    for n in sorted({n for n in chunks if n} or {1}):
        one = given(n)
        if not isinstance(one, Graph):
            raise GraphError(
                _DOING, f"the function gave {shown(one)} for {n} rows", "not a Graph"
            )
        _check_given(one, [*lazy, *others])
        if (declared := check_rows_apart(one, lazy, _DOING)) != n:
            raise GraphError(
                _DOING,
                f"the function was asked for {n} rows",
                f"graph '{one.name}' is declared for {declared}",
            )
        made[n] = one
    return made


def _check_given(graph: Graph, given: Sequence[str]) -> None:
    """Every input is there, and no other: rows are only followed from all of them."""
    known = graph.named("input")
    check_names(_DOING, known, dict.fromkeys(given))
    if missing := [name for name in known if name not in given]:
        raise InputError(
            _DOING,
            f"input '{missing[0]}' was not given",
            f"{len(given)} of {len(known)} inputs given",
        )


def _check_inputs(graph: Graph, lazy: Mapping[str, Any]) -> None:
    """Inputs with rows are as declared, but for the number of rows."""
    known = graph.named("input")
    for name, x in lazy.items():
        want = known[name].type
        if x.dtype.newbyteorder("=") != want.dtype.numpy:
            raise DTypeError(
                _DOING,
                f"input '{name}' is {x.dtype}",
                f"the graph declares {want.dtype}",
                f"cast it: {name}.astype('{want.dtype.numpy}')",
            )
        if x.shape[1:] != want.shape[1:]:
            raise ShapeError(
                _DOING,
                f"a row of input '{name}' has shape {show(x.shape[1:])}",
                f"the graph declares {show(want.shape[1:])}",
            )


def _params(graph: Graph, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Every param with its value. Errors  UnknownName, InputError."""
    known, values = graph.named("param"), given or {}
    for name in values:
        param_named(_DOING, known, name)
    if missing := [name for name in known if name not in values]:
        raise InputError(
            _DOING,
            f"param '{missing[0]}' has no value",
            f"{len(values)} of {len(known)} params given",
            f"pass params={{{missing[0]!r}: …}}",
        )
    return {name: values[name] for name in known}


def _fixed(
    graphs: Mapping[int, Graph], op: str, given: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """Inputs or params that are the same for every row, as every graph wants them."""
    fixed: dict[str, NDArray[Any]] = {}
    for graph in graphs.values():
        known = graph.named(op)
        for name, value in given.items():
            fixed[name] = np.asarray(as_input(_DOING, known[name], value))
    return fixed


def _outputs(
    graphs: Mapping[int, Graph],
) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
    """The shape of a row and the dtype of each output, alike for any rows."""
    rows, found = 0, None
    for n, graph in graphs.items():
        types = [graph.node(at).type for at in graph.outputs]
        these = tuple((one.shape[1:], one.dtype.numpy) for one in types)
        if found is not None and these != found:
            raise GraphError(
                _DOING,
                f"the function's graph for {n} rows gives rows of {shown(these)}",
                f"the one for {rows} rows gives {shown(found)}",
            )
        rows, found = n, these
    return found or ()


def _labelled(lazy: Mapping[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    """Label 0 for rows; every other axis has one of its own."""
    labelled, label = [], 1
    for x in lazy.values():
        labelled.append((x, (0, *range(label, label + x.ndim - 1))))
        label += x.ndim - 1
    return labelled
