"""Small graph files, valid ones and ones with a single fault."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rlxweb as rlx

KEY = "rlxweb.graph"
Corruption = Callable[[dict[str, Any]], object]


def mlp_graph() -> rlx.Graph:
    """Return a graph with an input, a param, a small and a large constant, and
    attributes.
    """
    g = rlx.Graph("mlp")
    x, w = g.input("x", (2, 4)), g.param("w", (4, 3))
    y = g.apply("relu", x @ w + np.arange(3, dtype=np.float32), name="hidden")
    table = g.constant(np.arange(60, dtype=np.int32).reshape(20, 3))
    y = g.layer_norm(y, g.constant([1.0] * 3), g.constant([0.0] * 3))
    g.set_outputs([g.softmax(y), g.sum(table, 0).cast("f32") + y])
    return g


def mlp_weights() -> dict[str, Any]:
    return {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)}


def save_to_bytes(graph: rlx.Graph, params: Any = None, **options: Any) -> bytes:
    """Return the bytes of a graph's file."""
    file = io.BytesIO()
    graph.save(file, params, **options)
    return file.getvalue()


def split_file(raw: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return a file's header without the graph, the graph's JSON, and the data."""
    nbytes = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + nbytes])
    return header, json.loads(header["__metadata__"][KEY]), raw[8 + nbytes :]


def pack_file(
    header: str | bytes, data: bytes = b"", nbytes: int | None = None
) -> bytes:
    """Return a file with this header, padded so that the data is aligned."""
    raw = header.encode() if isinstance(header, str) else header
    raw += b" " * (-len(raw) % 8)
    return (len(raw) if nbytes is None else nbytes).to_bytes(8, "little") + raw + data


def safetensors_bytes(tensors: Mapping[str, Any]) -> bytes:
    """Return a safetensors file of arrays, or of (type, shape, bytes)."""
    header: dict[str, Any] = {}
    data = b""
    for name, value in tensors.items():
        if isinstance(value, tuple):
            dtype, shape, raw = value
        else:
            bits = value.dtype.itemsize * 8
            dtype = {"f": "F", "i": "I", "u": "U"}[value.dtype.kind] + str(bits)
            shape, raw = value.shape, value.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        data += raw
    return pack_file(json.dumps(header), data)


def with_corrupt_graph(
    corrupt: Corruption | None = None, edit_text: Callable[[str], str] | None = None
) -> Any:
    """Return the file of `mlp_graph` with its graph JSON changed, as data or as
    text.
    """
    header, graph, data = split_file(save_to_bytes(mlp_graph(), mlp_weights()))
    if corrupt is not None:
        corrupt(graph)
    graph_json = json.dumps(graph)
    header["__metadata__"][KEY] = edit_text(graph_json) if edit_text else graph_json
    return pack_file(json.dumps(header), data)


def with_corrupt_header(
    corrupt: Corruption, edit_data: Callable[[bytes], bytes] = lambda d: d
) -> bytes:
    """Return the file of `mlp_graph` with its tensor header changed."""
    header, _, raw = split_file(save_to_bytes(mlp_graph(), mlp_weights()))
    corrupt(header)
    return pack_file(json.dumps(header), edit_data(raw))


def first_node(graph: dict[str, Any], op: str) -> dict[str, Any]:
    """Return the first node with that op."""
    return next(n for n in graph["nodes"] if n["op"] == op)
