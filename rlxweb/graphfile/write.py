"""Write a graph with its params into one file: safetensors, the graph in its header.

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

from rlxweb.errors import GraphFileError, UsageError, VerifyError, shown
from rlxweb.given import named
from rlxweb.graphfile.attributes import attribute_out
from rlxweb.graphfile.calls import call_out, dim_out, size_out
from rlxweb.graphfile.layout import METADATA, check_name
from rlxweb.graphfile.rules import (
    FORMAT,
    KEY,
    MOST_HEADER,
    MOST_INLINE,
    MOST_NODES,
    VARYING,
)
from rlxweb.graphfile.strict_json import Refused
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.fitting import fitted, unknown
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.ir.output_names import output_names
from rlxweb.ir.verify import verify
from rlxweb.whole_file import written_to

Array = npt.NDArray[Any]
_ALIGN = 64
_STEP = 16 << 20


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An array on its way into a file, under a name of its own.

    of   the node that it is of; more than there are for arrays that calls were given
    """

    name: str
    of: int
    array: Array


def save_graph(
    graph: Graph,
    file: str | PathLike[str] | IO[bytes],
    params: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
) -> None:
    """`Graph.save`, which says what it takes."""
    doing = f"save graph {shown(graph.name)}"
    if not isinstance(params, Mapping | None):
        raise UsageError(doing, f"params are {named(params)}", "arrays by name")
    if not graph.dims:
        verify(graph)
    elif not graph.outputs:
        hint = "call set_outputs([...]) first"
        raise VerifyError(doing, "it has no outputs", hint=hint)
    if len(graph) > MOST_NODES:
        problem = f"it has {len(graph):,} nodes"
        raise GraphFileError(doing, problem, f"a file holds at most {MOST_NODES:,}")
    names = output_names(graph, outputs, doing)
    try:
        tensors = _tensors(graph, _checked(graph, params, doing))
        said = _calls(graph, tensors)
        header = _header(graph, tensors, names, said)
    except Refused as error:
        raise GraphFileError(doing, error.problem, error.rule) from None
    if len(header) > MOST_HEADER:
        problem = f"its graph takes {len(header):,} bytes"
        raise GraphFileError(doing, problem, f"a file has {MOST_HEADER:,} for it")
    with written_to(file, doing) as out:
        _write(out, header, tensors)


def _write(file: IO[bytes], header: bytes, tensors: Sequence[_Tensor]) -> None:
    file.write(len(header).to_bytes(8, "little") + header)
    for tensor in tensors:
        flat = np.ascontiguousarray(tensor.array).reshape(-1).view(np.uint8)
        for at in range(0, flat.size, _STEP):
            file.write(flat[at : at + _STEP].data)


def _checked(
    graph: Graph, params: Mapping[str, Any] | None, doing: str
) -> dict[str, Array]:
    """Arrays by param. Errors  UnknownName, DTypeError, ShapeError."""
    known = graph.named("param")
    out = {}
    for name, value in (params or {}).items():
        if name not in known:
            raise unknown(doing, "param", str(name), known)
        at = f"{doing}, param {shown(name)}"
        out[name] = fitted(at, value, known[name].type)
    return out


def _nodes_of(graph: Graph) -> tuple[Node, ...]:
    """Its nodes; where sizes vary those from before, without the calls since."""
    return graph.nodes() if graph.recording is None else graph.recording.first.nodes()


def _tensors(graph: Graph, params: Mapping[str, Array]) -> list[_Tensor]:
    """Values and large constants; wide elements first, so that all lie aligned."""
    taken = {*graph.named("param"), METADATA}
    found = []
    constants = {node.id for node in _nodes_of(graph) if node.op == "constant"}
    for node in graph.nodes():
        if node.op == "param" and node.name in params:
            name = check_name(node.name, "the name of a param", 0)
            if name == METADATA:
                raise Refused(f"a param is called {name}", "the layout's own name")
            array = params[node.name]
        elif node.id in constants and node.type.nbytes > MOST_INLINE:
            name = f"constant %{node.id}"
            while name in taken:
                name += "'"
            taken.add(name)
            array = node.attrs["value"].array
        else:
            continue
        found.append(_Tensor(name, node.id, _little(array)))
    return sorted(found, key=_order)


def _order(tensor: _Tensor) -> tuple[int, int]:
    return -tensor.array.itemsize, tensor.of


def _calls(graph: Graph, tensors: list[_Tensor]) -> dict[str, Any]:
    """What a file says of dims; arrays of calls are put among the tensors."""
    log = graph.recording
    if log is None:
        return {}
    taken = {one.name for one in tensors} | {*graph.named("param"), METADATA}
    stored = {one.name for one in tensors}

    def store(array: Array) -> dict[str, Any]:
        said = {"dtype": as_dtype(array.dtype).label, "shape": list(array.shape)}
        if array.nbytes <= MOST_INLINE:
            return {**said, "data": _little(array).tobytes().hex()}
        name = f"array {len(tensors)}"
        while name in taken:
            name += "'"
        taken.add(name)
        tensors.append(_Tensor(name, len(graph) + len(tensors), _little(array)))
        return {**said, "tensor": name}

    calls = []
    for call in log.calls:
        said = call_out(call, store)
        if call.method == "param" and call.args[0] in stored:
            said["tensor"] = call.args[0]
        calls.append(said)
    tensors.sort(key=_order)
    return {
        "dims": [dim_out(dim) for dim in log.dims.values()],
        "calls": calls,
        "held": [
            [sign, size_out(x), size_out(y), answer] for sign, x, y, answer in log.held
        ],
        "shapes": [
            [at, [size if isinstance(size, int) else None for size in shape]]
            for at, shape in sorted(log.shapes.items())
        ],
    }


def _header(
    graph: Graph,
    tensors: Sequence[_Tensor],
    names: Sequence[str],
    said: Mapping[str, Any],
) -> bytes:
    """With spaces after it, so that the data begins at a multiple of 64."""
    stored = {t.of: t.name for t in tensors}
    text = {
        "format": VARYING if said else FORMAT,
        "rlxweb": _version(),
        "name": check_name(graph.name, "the name of the graph", 0),
        "nodes": [_node(graph, node, stored) for node in _nodes_of(graph)],
        **said,
        "outputs": [
            {"name": check_name(name, "the name of an output", 0), "node": at}
            for name, at in zip(names, graph.outputs, strict=True)
        ],
    }
    header: dict[str, Any] = {METADATA: {KEY: _json(text)}}
    at = 0
    for tensor in tensors:
        end = at + tensor.array.nbytes
        header[tensor.name] = {
            "dtype": as_dtype(tensor.array.dtype).label.upper(),
            "shape": list(tensor.array.shape),
            "data_offsets": [at, end],
        }
        at = end
    raw = _json(header).encode()
    return raw + b" " * (-(8 + len(raw)) % _ALIGN)


@cache
def _version() -> str:
    """Read once: importlib parses the metadata of the whole package for it."""
    try:
        return version("rlxweb")
    except PackageNotFoundError:  # run from its source, with nothing installed
        return ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _node(graph: Graph, node: Node, stored: Mapping[int, str]) -> dict[str, Any]:
    """One node. What it has not is left out."""
    try:
        attrs = _attributes(node)
    except Refused as error:
        raise Refused(f"{node.op} %{node.id}: {error.problem}", error.rule) from None
    said: dict[str, Any] = {"op": node.op}
    if node.name:
        said["name"] = check_name(node.name, f"the name of {node.op} %{node.id}", 0)
    if node.inputs:
        said["in"] = list(node.inputs)
    if attrs:
        said["attrs"] = attrs
    said["dtype"] = node.type.dtype.label
    said["shape"] = list(node.type.shape)
    if node.id in stored:
        said["tensor"] = stored[node.id]
    elif node.op == "constant":
        said["data"] = _little(node.attrs["value"].array).tobytes().hex()
    return said


def _little(array: Array) -> Array:
    """In the byte order of files."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _attributes(node: Node) -> dict[str, Any]:
    op = registry.get(node.op)
    if op.has("leaf"):
        return {}
    return {a.name: attribute_out(a, node.attrs[a.name]) for a in op.attrs}
