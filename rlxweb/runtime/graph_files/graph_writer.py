"""Writer of a graph with its params into one file: safetensors, with the graph in its
header.

The same graph and values give the same bytes. A file appears whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.atomic_file import open_output
from rlxweb.core.errors import GraphFileError, UsageError, VerifyError, shown
from rlxweb.ir.array_validation import coerce_to_type, unknown_name_error
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.output_names import output_names
from rlxweb.ir.verify import verify
from rlxweb.runtime.graph_files.attribute_json import attribute_to_json
from rlxweb.runtime.graph_files.format_constants import (
    DYNAMIC_FORMAT,
    GRAPH_KEY,
    MAX_HEADER_BYTES,
    MAX_INLINE_BYTES,
    MAX_NODES,
    STATIC_FORMAT,
)
from rlxweb.runtime.graph_files.safetensors_header import METADATA_KEY, check_name
from rlxweb.runtime.graph_files.strict_json import FormatViolation
from rlxweb.runtime.graph_files.traced_call_json import (
    call_to_json,
    dim_to_json,
    size_to_json,
)

Array = npt.NDArray[Any]
_HEADER_ALIGNMENT = 64
_WRITE_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _StoredTensor:
    """Array to be written, under a name of its own.

    owner  the node that it is of; more than there are for arrays that calls were given
    """

    name: str
    owner: int
    array: Array


def save_graph(
    graph: Graph,
    file: str | PathLike[str] | IO[bytes],
    params: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
) -> None:
    """Write a graph with its params into a file; see `Graph.save`."""
    context = f"save graph {shown(graph.name)}"
    if not isinstance(params, Mapping | None):
        raise UsageError(
            context,
            f"params is {describe_type(params)}",
            "expected a dict of arrays by name",
        )
    if not graph.dims:
        verify(graph)
    elif not graph.outputs:
        hint = "call set_outputs([...]) first"
        raise VerifyError(context, "the graph has no outputs", hint=hint)
    if len(graph) > MAX_NODES:
        problem = f"the graph has {len(graph):,} nodes"
        rule = f"a file can contain at most {MAX_NODES:,} nodes"
        raise GraphFileError(context, problem, rule)
    names = output_names(graph, outputs, context)
    try:
        tensors = _collect_tensors(graph, _check_params(graph, params, context))
        dynamic_sections = _dynamic_sections(graph, tensors)
        header = _header_bytes(graph, tensors, names, dynamic_sections)
    except FormatViolation as error:
        raise GraphFileError(context, error.problem, error.rule) from None
    if len(header) > MAX_HEADER_BYTES:
        problem = f"the header needs {len(header):,} bytes"
        raise GraphFileError(
            context, problem, f"at most {MAX_HEADER_BYTES:,} are allowed"
        )
    with open_output(file, context) as stream:
        _write_file(stream, header, tensors)


def _write_file(
    file: IO[bytes], header: bytes, tensors: Sequence[_StoredTensor]
) -> None:
    """Write the header and the tensors to an open file."""
    file.write(len(header).to_bytes(8, "little") + header)
    for tensor in tensors:
        flat = np.ascontiguousarray(tensor.array).reshape(-1).view(np.uint8)
        for offset in range(0, flat.size, _WRITE_CHUNK_BYTES):
            file.write(flat[offset : offset + _WRITE_CHUNK_BYTES].data)


def _check_params(
    graph: Graph, params: Mapping[str, Any] | None, context: str
) -> dict[str, Array]:
    """Return arrays by param; raises UnknownName, DTypeError, ShapeError."""
    known = graph.named("param")
    arrays = {}
    for name, value in (params or {}).items():
        if name not in known:
            raise unknown_name_error(context, "param", str(name), known)
        param_context = f"{context}, param {shown(name)}"
        arrays[name] = coerce_to_type(param_context, value, known[name].type)
    return arrays


def _plain_nodes(graph: Graph) -> tuple[Node, ...]:
    """Return the graph's nodes; of a graph with dims those from before its traced
    calls.
    """
    return (
        graph.nodes()
        if graph.recording is None
        else graph.recording.initial_graph.nodes()
    )


def _collect_tensors(graph: Graph, params: Mapping[str, Array]) -> list[_StoredTensor]:
    """Collect param values and large constants; wide elements first, so that all are
    aligned.
    """
    used_names = {*graph.named("param"), METADATA_KEY}
    tensors = []
    constants = {node.id for node in _plain_nodes(graph) if node.op == "constant"}
    for node in graph.nodes():
        if node.op == "param" and node.name in params:
            name = check_name(node.name, "the name of a param", 0)
            if name == METADATA_KEY:
                raise FormatViolation(
                    f"a param is named {name}", "the file format reserves this name"
                )
            array = params[node.name]
        elif node.id in constants and node.type.nbytes > MAX_INLINE_BYTES:
            name = f"constant %{node.id}"
            while name in used_names:
                name += "'"
            used_names.add(name)
            array = node.attrs["value"].array
        else:
            continue
        tensors.append(_StoredTensor(name, node.id, _as_little_endian(array)))
    return sorted(tensors, key=_sort_key)


def _sort_key(tensor: _StoredTensor) -> tuple[int, int]:
    """Return the key that sorts tensors: wide elements first, then by owner."""
    return -tensor.array.itemsize, tensor.owner


def _dynamic_sections(graph: Graph, tensors: list[_StoredTensor]) -> dict[str, Any]:
    """Return the sections of a graph with dims as JSON; arrays of calls are added to
    the tensors.
    """
    trace = graph.recording
    if trace is None:
        return {}
    used_names = {tensor.name for tensor in tensors} | {
        *graph.named("param"),
        METADATA_KEY,
    }
    stored = {tensor.name for tensor in tensors}

    def store_array(array: Array) -> dict[str, Any]:
        fields = {"dtype": as_dtype(array.dtype).label, "shape": list(array.shape)}
        if array.nbytes <= MAX_INLINE_BYTES:
            return {**fields, "data": _as_little_endian(array).tobytes().hex()}
        name = f"array {len(tensors)}"
        while name in used_names:
            name += "'"
        used_names.add(name)
        tensors.append(
            _StoredTensor(name, len(graph) + len(tensors), _as_little_endian(array))
        )
        return {**fields, "tensor": name}

    calls = []
    for call in trace.calls:
        fields = call_to_json(call, store_array)
        if call.method == "param" and call.args[0] in stored:
            fields["tensor"] = call.args[0]
        calls.append(fields)
    tensors.sort(key=_sort_key)
    return {
        "dims": [dim_to_json(dim) for dim in trace.dims.values()],
        "calls": calls,
        "held": [
            [sign, size_to_json(x), size_to_json(y), answer]
            for sign, x, y, answer in trace.guards
        ],
        "shapes": [
            [node_id, [size if isinstance(size, int) else None for size in shape]]
            for node_id, shape in sorted(trace.observed_shapes.items())
        ],
    }


def _header_bytes(
    graph: Graph,
    tensors: Sequence[_StoredTensor],
    names: Sequence[str],
    dynamic_sections: Mapping[str, Any],
) -> bytes:
    """Return the header, padded so that the data begins at a multiple of 64."""
    stored = {stored_tensor.owner: stored_tensor.name for stored_tensor in tensors}
    content = {
        "format": DYNAMIC_FORMAT if dynamic_sections else STATIC_FORMAT,
        "rlxweb": _writer_version(),
        "name": check_name(graph.name, "the name of the graph", 0),
        "nodes": [_node_to_json(graph, node, stored) for node in _plain_nodes(graph)],
        **dynamic_sections,
        "outputs": [
            {"name": check_name(name, "the name of an output", 0), "node": offset}
            for name, offset in zip(names, graph.outputs, strict=True)
        ],
    }
    header: dict[str, Any] = {METADATA_KEY: {GRAPH_KEY: _compact_json(content)}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.array.nbytes
        header[tensor.name] = {
            "dtype": as_dtype(tensor.array.dtype).label.upper(),
            "shape": list(tensor.array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    raw = _compact_json(header).encode()
    return raw + b" " * (-(8 + len(raw)) % _HEADER_ALIGNMENT)


@cache
def _writer_version() -> str:
    """Return rlxweb's version, cached: importlib parses the metadata of the whole
    package for it.
    """
    try:
        return version("rlxweb")
    except PackageNotFoundError:  # run from its source, with nothing installed
        return ""


def _compact_json(value: object) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _node_to_json(
    graph: Graph, node: Node, stored: Mapping[int, str]
) -> dict[str, Any]:
    """Return one node as JSON; what it has not is left out."""
    try:
        attrs = _attributes_to_json(node)
    except FormatViolation as error:
        raise FormatViolation(
            f"{node.op} %{node.id}: {error.problem}", error.rule
        ) from None
    fields: dict[str, Any] = {"op": node.op}
    if node.name:
        fields["name"] = check_name(node.name, f"the name of {node.op} %{node.id}", 0)
    if node.inputs:
        fields["in"] = list(node.inputs)
    if attrs:
        fields["attrs"] = attrs
    fields["dtype"] = node.type.dtype.label
    fields["shape"] = list(node.type.shape)
    if node.id in stored:
        fields["tensor"] = stored[node.id]
    elif node.op == "constant":
        fields["data"] = _as_little_endian(node.attrs["value"].array).tobytes().hex()
    return fields


def _as_little_endian(array: Array) -> Array:
    """Return the array in the byte order of files."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _attributes_to_json(node: Node) -> dict[str, Any]:
    """Return a node's attributes as JSON; a leaf has none."""
    op = registry.get(node.op)
    if op.has_trait("leaf"):
        return {}
    return {
        attr.name: attribute_to_json(attr, node.attrs[attr.name]) for attr in op.attrs
    }
