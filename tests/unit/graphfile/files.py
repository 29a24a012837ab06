"""Small files of graphs, right ones and ones with a single fault, made by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rlxweb as rlx

KEY = "rlxweb.graph"
Spoil = Callable[[dict[str, Any]], object]


def mlp() -> rlx.Graph:
    """An input, a param, a small and a large constant, attributes of most kinds."""
    g = rlx.Graph("mlp")
    x, w = g.input("x", (2, 4)), g.param("w", (4, 3))
    y = g.apply("relu", x @ w + np.arange(3, dtype=np.float32), name="hidden")
    table = g.constant(np.arange(60, dtype=np.int32).reshape(20, 3))
    y = g.layer_norm(y, g.constant([1.0] * 3), g.constant([0.0] * 3))
    g.set_outputs([g.softmax(y), g.sum(table, 0).cast("f32") + y])
    return g


def weights() -> dict[str, Any]:
    return {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)}


def saved(graph: rlx.Graph, params: Any = None, **options: Any) -> bytes:
    """The bytes of its file."""
    file = io.BytesIO()
    graph.save(file, params, **options)
    return file.getvalue()


def parts(raw: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """(header without the graph, the graph's text, data)."""
    nbytes = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + nbytes])
    return header, json.loads(header["__metadata__"][KEY]), raw[8 + nbytes :]


def packed(header: str | bytes, data: bytes = b"", nbytes: int | None = None) -> bytes:
    """A file of that header, padded so that the data is aligned."""
    raw = header.encode() if isinstance(header, str) else header
    raw += b" " * (-len(raw) % 8)
    return (len(raw) if nbytes is None else nbytes).to_bytes(8, "little") + raw + data


def safetensors_of(tensors: Mapping[str, Any]) -> bytes:
    """A safetensors file of arrays, or of (type, shape, bytes)."""
    header: dict[str, Any] = {}
    data = b""
    for name, given in tensors.items():
        if isinstance(given, tuple):
            dtype, shape, raw = given
        else:
            bits = given.dtype.itemsize * 8
            dtype = {"f": "F", "i": "I", "u": "U"}[given.dtype.kind] + str(bits)
            shape, raw = given.shape, given.tobytes()
        at = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": at}
        data += raw
    return packed(json.dumps(header), data)


def spoiled(
    spoil: Spoil | None = None, text: Callable[[str], str] | None = None
) -> Any:
    """The file of `mlp` whose graph's text was changed, as data or as letters."""
    header, graph, data = parts(saved(mlp(), weights()))
    if spoil is not None:
        spoil(graph)
    written = json.dumps(graph)
    header["__metadata__"][KEY] = text(written) if text else written
    return packed(json.dumps(header), data)


def relaid(spoil: Spoil, data: Callable[[bytes], bytes] = lambda d: d) -> bytes:
    """The file of `mlp` whose header of tensors was changed."""
    header, _, raw = parts(saved(mlp(), weights()))
    spoil(header)
    return packed(json.dumps(header), data(raw))


def node(graph: dict[str, Any], op: str) -> dict[str, Any]:
    """The first node of that op."""
    return next(n for n in graph["nodes"] if n["op"] == op)
