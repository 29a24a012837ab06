"""`rlxweb.dask.run`: run a graph over the rows of Dask arrays, chunk by chunk,
lazily.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from rlxweb.batch.cluster.chunk_memory_check import check_chunk_memory
from rlxweb.batch.cluster.chunk_result import current_requirements
from rlxweb.batch.cluster.chunk_validation import (
    check_single_chunk,
    validate_dask_array,
)
from rlxweb.batch.cluster.graph_tasks import (
    GraphChunkSpec,
    graph_contents,
    run_graph_on_chunk,
)
from rlxweb.batch.cluster.lazy_arrays import (
    ChunkField,
    build_chunk_results,
    extract_field,
)
from rlxweb.batch.cluster.row_independence import check_row_independence
from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.device import DeviceLike, check_adapter_name, is_auto, parse_device
from rlxweb.core.errors import (
    DTypeError,
    GraphError,
    InputError,
    ShapeError,
    UsageError,
    shown,
)
from rlxweb.ir.array_validation import unset_params_clause
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.runtime.input_validation import (
    check_input_names,
    find_param,
    validate_array,
)

GraphFactory: TypeAlias = Callable[[int], Graph]
"""Function that returns the graph for a given number of rows."""
_CONTEXT = "rlxweb.dask.run"


def run(
    graph: Graph | GraphFactory,
    inputs: Mapping[str, Any],
    *,
    params: Mapping[str, Any] | None = None,
    device: DeviceLike = "auto",
    adapter: str = "",
    strict: bool = False,
) -> list[Any]:
    """Compute a graph's outputs for every row of dask.arrays, chunk by chunk, lazily.

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
    row_inputs, other_inputs = _split_inputs(inputs)
    graphs = _graphs_by_rows(graph, _row_chunks(row_inputs), row_inputs, other_inputs)
    first_graph = next(iter(graphs.values()))
    _check_inputs(first_graph, row_inputs)
    fixed_inputs = _coerce_fixed_values(
        graphs, "input", {n: other_inputs[n] for n in sorted(other_inputs)}
    )
    param_arrays = _coerce_fixed_values(
        graphs, "param", _param_values(first_graph, params)
    )
    target_device = device if is_auto(device) else parse_device(device)
    adapter = check_adapter_name(adapter)
    strict = coerce_bool("strict", strict, _CONTEXT)
    requirements = current_requirements()
    token_parts = (
        [graph_contents(row_graph) for row_graph in graphs.values()],
        fixed_inputs,
        param_arrays,
    )
    spec = GraphChunkSpec(
        context=_CONTEXT,
        key=tokenize(
            token_parts,
            tuple(row_inputs),
            str(target_device),
            adapter,
            strict,
            requirements.versions,
        ),
        graphs=graphs,
        inputs=tuple(row_inputs),
        fixed_inputs=fixed_inputs,
        params=param_arrays,
        device=target_device,
        adapter=adapter,
        strict=strict,
        requirements=requirements,
        outputs=_output_types(graphs),
    )
    results = build_chunk_results(
        "rlxweb-run", run_graph_on_chunk, spec, _label_axes(row_inputs), (0,)
    )
    return [
        extract_field(results, ChunkField(str(i), dtype, 1, shape), 1)
        for i, (shape, dtype) in enumerate(spec.outputs)
    ]


def _split_inputs(inputs: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the inputs into those with rows and those that are the same for every
    row.
    """
    if not isinstance(inputs, Mapping):
        raise InputError(
            _CONTEXT,
            f"got {shown(inputs)}",
            "expected a dict of inputs by name",
        )
    row_inputs = {n: x for n, x in inputs.items() if isinstance(x, da.Array)}
    if not row_inputs:
        raise InputError(
            _CONTEXT,
            "no input is a dask.array",
            hint="use Session(…).compile(graph).run, which needs no Dask",
        )
    for name, x in row_inputs.items():
        validate_dask_array(x, repr(name), _CONTEXT)
        for axis in range(1, x.ndim):
            check_single_chunk(x, axis, name, "an axis within a row", _CONTEXT)
        check_chunk_memory(x, (0,), name, _CONTEXT)
    return row_inputs, {n: x for n, x in inputs.items() if n not in row_inputs}


def _row_chunks(row_inputs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the number of rows of each chunk, which must be alike in all inputs."""
    (name, x), *others = row_inputs.items()
    for other, y in others:
        if y.shape[0] != x.shape[0]:
            raise ShapeError(
                _CONTEXT,
                f"'{other}' has {y.shape[0]} rows, '{name}' has {x.shape[0]}",
                "all dask.array inputs must have the same number of rows",
            )
        if y.chunks[0] != x.chunks[0]:
            raise UsageError(
                _CONTEXT,
                f"'{other}' has row chunks {shown(y.chunks[0])}, '{name}' has "
                f"{shown(x.chunks[0])}",
                "all dask.array inputs must be split into the same chunks of rows",
                f"use {other}.rechunk({{0: {name}.chunks[0]}})",
            )
    return tuple(x.chunks[0])


def _graphs_by_rows(
    graph_or_factory: object,
    chunks: Sequence[int],
    row_inputs: Collection[str],
    other_inputs: Collection[str],
) -> dict[int, Graph]:
    """Return the graphs by their number of rows, a single one if a graph was passed;
    each keeps its rows independent.
    """
    if isinstance(graph_or_factory, Graph):
        _check_input_names(graph_or_factory, [*row_inputs, *other_inputs])
        return {
            check_row_independence(
                graph_or_factory, row_inputs, _CONTEXT
            ): graph_or_factory
        }
    if not callable(graph_or_factory):
        raise GraphError(
            _CONTEXT,
            f"graph is {shown(graph_or_factory)}",
            "expected a Graph, or a function from a number of rows to a Graph",
        )
    graphs = {}
    for n in sorted({n for n in chunks if n} or {1}):
        graph = graph_or_factory(n)
        if not isinstance(graph, Graph):
            raise GraphError(
                _CONTEXT,
                f"the function returned {shown(graph)} for {n} rows",
                "expected a Graph",
            )
        _check_input_names(graph, [*row_inputs, *other_inputs])
        if (declared := check_row_independence(graph, row_inputs, _CONTEXT)) != n:
            raise GraphError(
                _CONTEXT,
                f"the function returned graph '{graph.name}', whose inputs have "
                f"{declared} rows",
                f"the function was called for {n} rows",
            )
        graphs[n] = graph
    return graphs


def _check_input_names(graph: Graph, names: Sequence[str]) -> None:
    """Check that every declared input is given, and no other: rows are only tracked
    from all of them.
    """
    declared = graph.named("input")
    check_input_names(_CONTEXT, declared, dict.fromkeys(names))
    if missing := [name for name in declared if name not in names]:
        raise InputError(
            _CONTEXT,
            f"input '{missing[0]}' was not given",
            f"{len(names)} of {len(declared)} inputs given",
        )


def _check_inputs(graph: Graph, row_inputs: Mapping[str, Any]) -> None:
    """Check that inputs with rows are as declared, except for the number of rows."""
    declared = graph.named("input")
    for name, x in row_inputs.items():
        expected = declared[name].type
        if x.dtype.newbyteorder("=") != expected.dtype.numpy:
            raise DTypeError(
                _CONTEXT,
                f"input '{name}' has dtype {x.dtype}",
                f"the graph declares {expected.dtype}",
                f"cast the input: {name}.astype('{expected.dtype.numpy}')",
            )
        if x.shape[1:] != expected.shape[1:]:
            raise ShapeError(
                _CONTEXT,
                f"a row of input '{name}' has shape {format_shape(x.shape[1:])}",
                f"the graph declares {format_shape(expected.shape[1:])}",
            )


def _param_values(graph: Graph, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return every param with its value. Errors  UnknownName, InputError."""
    declared, values = graph.named("param"), params or {}
    for name in values:
        find_param(_CONTEXT, declared, name)
    if missing := [name for name in declared if name not in values]:
        example = ", ".join(f"{name!r}: …" for name in declared)
        raise InputError(
            _CONTEXT,
            unset_params_clause(missing),
            f"got values for {len(values)} of {len(declared)} params",
            f"pass params={{{example}}}",
        )
    return {name: values[name] for name in declared}


def _coerce_fixed_values(
    graphs: Mapping[int, Graph], op: str, values: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """Convert inputs or params that are the same for every row to the types that the
    graphs declare.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for graph in graphs.values():
        declared = graph.named(op)
        for name, value in values.items():
            arrays[name] = np.asarray(validate_array(_CONTEXT, declared[name], value))
    return arrays


def _output_types(
    graphs: Mapping[int, Graph],
) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
    """Return the shape of a row and the dtype of each output, which must be alike for
    any number of rows.
    """
    rows, common_types = 0, None
    for n, graph in graphs.items():
        types = [graph.node(node_id).type for node_id in graph.outputs]
        row_types = tuple(
            (tensor_type.shape[1:], tensor_type.dtype.numpy) for tensor_type in types
        )
        if common_types is not None and row_types != common_types:
            raise GraphError(
                _CONTEXT,
                f"the graph for {n} rows returns rows of type {shown(row_types)}",
                f"the type must be that of the graph for {rows} rows, "
                f"{shown(common_types)}",
            )
        rows, common_types = n, row_types
    return common_types or ()


def _label_axes(row_inputs: Mapping[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    """Label the axes of the inputs for `blockwise`: 0 for rows, a label of its own for
    every other axis.
    """
    labelled, label = [], 1
    for x in row_inputs.values():
        labelled.append((x, (0, *range(label, label + x.ndim - 1))))
        label += x.ndim - 1
    return labelled
