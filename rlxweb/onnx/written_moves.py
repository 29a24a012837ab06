"""Forms of ops that move elements, and of those that pick or put them, in ONNX."""

from __future__ import annotations

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.shape import normal_axis
from rlxweb.onnx.writer import (
    Writer,
    by_places,
    by_places_or_value,
    is_small,
    writes,
)

_INDICES = (DType.I32, DType.I64)


@writes("reshape")
def _reshape(w: Writer, node: Node, x: str) -> str:
    return w.shape(x, node.type.shape)


@writes("transpose")
def _transpose(w: Writer, node: Node, x: str) -> str:
    perm = [normal_axis(p, node.type.rank) for p in node.attrs["perm"]]
    return w.add("Transpose", x, perm=perm) if perm else x


@writes("narrow")
def _narrow(w: Writer, node: Node, x: str) -> str:
    attrs = node.attrs
    end = attrs["start"] + attrs["length"]
    bounds = (w.ints(b) for b in (attrs["start"], end, attrs["axis"]))
    return w.add("Slice", x, *bounds)


@writes("slice")
def _slice(w: Writer, node: Node, x: str) -> str:
    names = ("starts", "stops", "axes", "steps")
    return w.add("Slice", x, *(w.ints(*node.attrs[name]) for name in names))


@writes("expand")
def _expand(w: Writer, node: Node, x: str) -> str:
    return w.add("Expand", x, w.ints(*node.type.shape))


@writes("concat")
def _concat(w: Writer, node: Node, *xs: str) -> str:
    return w.add("Concat", *xs, axis=node.attrs["axis"])


@writes("tile")
def _tile(w: Writer, node: Node, x: str) -> str:
    rank, repeats = w.type_of(node).rank, node.attrs["repeats"]
    if len(repeats) > rank:
        x = w.shape(x, (*(1,) * (len(repeats) - rank), *w.type_of(node).shape))
    repeats = (*(1,) * (rank - len(repeats)), *repeats)
    return w.add("Tile", x, w.ints(*repeats))


def _is_padded(w: Writer, node: Node) -> bool:
    return node.attrs["mode"] == "constant" or is_small(w, node)


@writes("pad", only=_is_padded)
def _pad(w: Writer, node: Node, x: str) -> str:
    attrs, kind = node.attrs, w.type_of(node)
    if attrs["mode"] != "constant":
        return by_places(w, node, x)
    pads = w.ints(*attrs["before"], *attrs["after"])
    value = w.like(attrs["value"], kind)
    return w.add("Pad", x, pads, value, w.ints(*attrs["axes"]), mode="constant")


writes("roll", "repeat", only=is_small)(by_places)
writes("dilate", "remap", only=is_small)(by_places_or_value)


def _index(w: Writer, node: Node, at: int, name: str) -> str:
    """Indices in a type that ONNX takes."""
    return name if w.type_of(node, at).dtype in _INDICES else w.cast(name, DType.I64)


@writes("gather")
def _gather(w: Writer, node: Node, table: str, indices: str) -> str:
    at = _index(w, node, 1, indices)
    return w.add("Gather", table, at, axis=node.attrs["axis"])


@writes("gather_elements")
def _gather_elements(w: Writer, node: Node, x: str, indices: str) -> str:
    at = _index(w, node, 1, indices)
    return w.add("GatherElements", x, at, axis=node.attrs["axis"])


@writes("gather_nd")
def _gather_nd(w: Writer, node: Node, x: str, indices: str) -> str:
    at = w.cast(indices, DType.I64)
    return w.add("GatherND", x, at, batch_dims=node.attrs["batch_dims"])


@writes("scatter_elements")
def _scatter_elements(w: Writer, node: Node, x: str, indices: str, new: str) -> str:
    attrs = {name: node.attrs[name] for name in ("axis", "reduction")}
    return w.add("ScatterElements", x, _index(w, node, 1, indices), new, **attrs)


@writes("scatter_nd", only=lambda w, node: not node.attrs["batch_dims"])
def _scatter_nd(w: Writer, node: Node, x: str, indices: str, new: str) -> str:
    at = w.cast(indices, DType.I64)
    return w.add("ScatterND", x, at, new, reduction=node.attrs["reduction"])


@writes("argsort")
def _argsort(w: Writer, node: Node, x: str) -> str:
    """The first of as many as there are: of equal ones the smaller place, too."""
    kind = w.type_of(node)
    axis = normal_axis(node.attrs["axis"], kind.rank)
    how = {"axis": axis, "largest": int(node.attrs["descending"])}
    wide = {DType.U32: DType.I64, DType.F16: DType.F32}.get(kind.dtype)
    x = x if wide is None else w.cast(x, wide)  # what others have kernels for
    places = w.several("TopK", 2, x, w.ints(kind.shape[axis]), **how)[1]
    return w.cast(places, DType.I32)


@writes("searchsorted")
def _searchsorted(w: Writer, node: Node, line: str, values: str) -> str:
    """How many of a row stand before each value."""
    rows, wide = w.type_of(node), w.type_of(node, 1)
    left = w.shape(line, (*rows.shape[:-1], 1, rows.shape[-1]))
    right = w.shape(values, (*wide.shape, 1))
    if node.attrs["side"] == "left":
        before = w.add("Less", left, right)
    else:
        before = w.add("LessOrEqual", left, right)
    last = w.ints(wide.rank)
    return w.add("ReduceSum", w.cast(before, DType.I32), last, keepdims=0)
