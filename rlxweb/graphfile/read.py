"""Read a graph and its params from a file: every rule held, nothing believed.

Each node is added through the door that callers use, so its shape is inferred anew and
compared with what the file says. Nothing in a file is run, imported or opened, and no
tensor is copied but the constants, which the graph owns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.errors import RlxError, UnknownOp, shown
from rlxweb.graphfile.attributes import DTYPES, attribute_in
from rlxweb.graphfile.budget import Budget
from rlxweb.graphfile.calls import CallReader, dim_in
from rlxweb.graphfile.layout import (
    NUMPY,
    Entry,
    Layout,
    check_name,
    check_shape,
    read_layout,
)
from rlxweb.graphfile.opened import Bytes
from rlxweb.graphfile.rules import (
    FORMAT,
    KEY,
    MOST_HEADER,
    MOST_INLINE,
    MOST_OPERANDS,
    VARYING,
)
from rlxweb.graphfile.strict_json import Cursor, Refused, check_depth
from rlxweb.ir.dim import Dim
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.ir.size import SIGNS, Size
from rlxweb.ir.tensor import Tensor

Array = npt.NDArray[Any]

_KEYS = ("format", "rlxweb", "name", "nodes", "outputs")
_VARYING_KEYS = (*_KEYS[:4], "dims", "calls", "held", "shapes", "outputs")
_LEAF = {
    "input": {"op", "name", "dtype", "shape"},
    "param": {"op", "name", "dtype", "shape", "tensor"},
    "constant": {"op", "dtype", "shape", "tensor", "data"},
}
_OTHER = {"op", "name", "in", "attrs", "dtype", "shape"}
MOST_TRIED = 1 << 26
"""Elements of a tensor of the sizes that are tried, where the file is not as large."""
_HEX = re.compile(r"([0-9a-f]{2})*")
# What a shape rule may stumble over that its author did not think of.
_STUMBLES = (ArithmeticError, LookupError, TypeError, ValueError, MemoryError)


@dataclass(slots=True)
class Stored:
    """What a file holds: a graph, the values of its params, its outputs' names."""

    graph: Graph
    params: dict[str, Array]
    outputs: tuple[str, ...]


@dataclass(slots=True)
class _Reading:
    """A graph on its way out of a file. `used` are the tensors that nodes took."""

    layout: Layout
    budget: Budget
    graph: Graph = field(default_factory=Graph)
    params: dict[str, Array] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    format: int = FORMAT
    dims: dict[str, Dim] = field(default_factory=dict)


def read_graph(data: Bytes, doing: str, budget: Budget) -> Stored:
    """The graph in a file's bytes.

    Errors   GraphFileError with the rule that the file breaks, and where.
    """
    layout = read_layout(data, doing, MOST_HEADER)
    text = layout.metadata.get(KEY)
    if text is None:
        raise layout.refused(
            "it holds no graph",
            f"the graph is in its metadata, as {KEY!r}",
            hint="weights alone are read with rlxweb.load_weights",
        )
    reading = _Reading(layout, budget)
    try:
        check_depth(text)
        outputs = _read_text(reading, Cursor(text))
    except Refused as error:
        at = layout.place_in(KEY, error.at)
        raise layout.refused(error.problem, error.rule, at) from None
    _check_all_used(reading)
    return Stored(reading.graph, reading.params, outputs)


def _check_all_used(reading: _Reading) -> None:
    layout = reading.layout
    if layout.data_at % 8:
        problem, rule = f"its data begins at byte {layout.data_at}", "a multiple of 8"
        raise layout.refused(problem, rule)
    for entry in layout.entries.values():
        size = NUMPY[entry.dtype].itemsize
        if entry.begin % size:
            problem = f"tensor {shown(entry.name)} begins at byte {entry.begin:,}"
            raise layout.refused(problem, f"a multiple of {size}", entry.at)
        if entry.name not in reading.used:
            problem = f"tensor {shown(entry.name)} belongs to no node"
            raise layout.refused(problem, "each tensor to one", entry.at)


def _read_text(reading: _Reading, cursor: Cursor) -> tuple[str, ...]:
    """All of it, in the order in which it is written; the names of the outputs."""
    outputs: tuple[str, ...] = ()
    count = 0
    for count, (key, at) in enumerate(cursor.members(), 1):
        keys = _keys(reading)
        if count > len(keys) or key != keys[count - 1]:
            rule = f"in this order: {', '.join(keys)}"
            raise Refused(f"the graph's text has {shown(key)}", rule, at)
        if key == "nodes":
            _read_nodes(reading, cursor)
        elif key == "outputs":
            outputs = _read_outputs(reading, cursor)
        elif key in ("dims", "calls", "held", "shapes"):
            _read_varying(reading, key, cursor)
        else:
            _read_head(reading, key, cursor)
    keys = _keys(reading)
    if count < len(keys):
        problem = f"the graph's text has no {keys[count]!r}"
        raise Refused(problem, ", ".join(keys), cursor.at)
    cursor.end()
    return outputs


def _keys(reading: _Reading) -> tuple[str, ...]:
    return _VARYING_KEYS if reading.format == VARYING else _KEYS


def _read_head(reading: _Reading, key: str, cursor: Cursor) -> None:
    at, value = cursor.at, cursor.value()
    if key == "format":
        if type(value) is not int or value not in (FORMAT, VARYING):
            rule = f"this rlxweb reads formats {FORMAT} and {VARYING}"
            raise Refused(f"it is of format {shown(value)}", rule, at)
        reading.format = value
        return
    check_name(value, f"the graph's {key!r}", at)
    if key == "name":
        reading.graph.name = value


def _read_nodes(reading: _Reading, cursor: Cursor) -> None:
    for at in cursor.items():
        count = len(reading.graph)
        if count == reading.budget.nodes:
            problem = f"it has {count + 1:,} nodes or more"
            raise Refused(problem, reading.budget.node_rule, at)
        given = cursor.value()
        try:
            _read_node(reading, given, f"node %{count}")
        except Refused as error:
            raise Refused(error.problem, error.rule, at) from None


def _read_varying(reading: _Reading, key: str, cursor: Cursor) -> None:
    """Dims, calls, or what was held, one by one."""
    how = {"dims": _read_dim, "calls": _read_call, "held": _held, "shapes": _shape}[key]
    for count, at in enumerate(cursor.items()):
        if count == reading.budget.nodes:
            problem = f"it has {count + 1:,} {key} or more"
            rule = f"{reading.budget.node_rule}, and as many {key}"
            raise Refused(problem, rule, at)
        given = cursor.value()
        try:
            how(reading, given, f"{key}, number {count}")
        except Refused as error:
            raise Refused(error.problem, error.rule, at) from None
        except RlxError as error:
            rule = f"{error.problem}; {error.rule}" if error.rule else error.problem
            raise Refused(f"{key}, number {count}, is refused", rule, at) from None
        except _STUMBLES as error:
            problem = f"{key}, number {count}, is refused"
            raise Refused(problem, type(error).__name__, at) from None


def _read_dim(reading: _Reading, given: Any, what: str) -> None:
    dim = dim_in(given)
    if dim.name in reading.dims:
        raise Refused(f"{what} is called {shown(dim.name)}", "one name each")
    reading.dims[dim.name] = dim


def _read_call(reading: _Reading, given: Any, what: str) -> None:
    graph = reading.graph

    def take(said: Mapping[str, Any]) -> Array:
        if not said.keys() <= {"dtype", "shape", "tensor", "data"}:
            raise Refused(f"{what} has {shown(said)}", "dtype, shape, tensor or data")
        return _value(reading, said, _type_of(said, what), what)

    before = len(graph)
    call = CallReader(graph, reading.dims, take).asked(given, what)
    if len(graph) > reading.budget.nodes:
        problem = f"{what} makes node number {len(graph):,}"
        raise Refused(problem, reading.budget.node_rule)
    if "tensor" in given:
        node = graph.node(before)
        if call.method != "param":
            raise Refused(f"{what} has a tensor", "that of a param")
        name = node.name
        reading.params[name] = _taken(reading, given["tensor"], node.type, what)
    log = graph.recording
    assert log is not None
    room = max(MOST_TRIED, 4 * reading.layout.data.nbytes)
    for tried in log.tries:
        for at in range(before, len(graph)):
            kind = tried.graph.node(tried.ids[at]).type
            if kind.numel > room:
                problem = f"{what} makes {kind} of the sizes that are tried"
                raise Refused(problem, f"at most {room:,} elements")
            if tried is log.tries[0]:
                reading.budget.take(kind.nbytes, 0, what)


def _held(reading: _Reading, given: Any, what: str) -> None:
    reader = CallReader(reading.graph, reading.dims, lambda said: np.zeros(0))
    log = reading.graph.recording
    match given:
        case [str() as sign, x, y, bool() as answer] if log and sign in SIGNS:
            size = reader.size(x)
            if isinstance(size, Size):
                log.hold(sign, size, reader.size(y), answer)
                return
    raise Refused(f"{what} is {shown(given)}", "a sign, two sizes and an answer")


def _shape(reading: _Reading, given: Any, what: str) -> None:
    log, graph = reading.graph.recording, reading.graph
    match given:
        case [int() as at, list() as sizes] if log and 0 <= at < len(graph):
            shape: tuple[Any, ...] = graph.node(at).type.shape
            said = [None if isinstance(size, Size) else size for size in shape]
            if said == sizes:
                log.told_shape(at, shape)
                return
    raise Refused(f"{what} is {shown(given)}", "a node and its shape")


def _read_node(reading: _Reading, given: Any, what: str) -> None:
    if not isinstance(given, dict) or not isinstance(given.get("op"), str):
        raise Refused(f"{what} is {shown(given)}", "an object with an 'op'")
    name = given["op"]
    what = f"{what}, {shown(name)}"
    unknown = given.keys() - _LEAF.get(name, _OTHER)
    if unknown:
        allowed = ", ".join(sorted(_LEAF.get(name, _OTHER)))
        raise Refused(f"{what} has {shown(min(unknown))}", f"allowed: {allowed}")
    kind = _type_of(given, what)
    called = check_name(given.get("name", ""), f"the name of {what}", 0)
    try:
        made = _added(reading, given, kind, called, what)
    except Refused:
        raise
    except RlxError as error:
        rule = f"{error.problem}; {error.rule}" if error.rule else str(error.problem)
        raise Refused(f"{what} is refused", rule) from None
    except _STUMBLES as error:
        raise Refused(f"{what} is refused", f"{type(error).__name__}") from None
    found = reading.graph.node(made.id).type
    if found != kind:
        raise Refused(f"{what} is said to be {kind}", f"it is {found}")
    _charge(reading, made, what)


def _type_of(given: Mapping[str, Any], what: str) -> TensorType:
    dtype = given.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise Refused(f"{what} is of type {shown(dtype)}", ", ".join(DTYPES))
    return TensorType(check_shape(given.get("shape"), what, 0), DTYPES[dtype])


def _added(
    reading: _Reading, given: Mapping[str, Any], kind: TensorType, name: str, what: str
) -> Tensor:
    """The node, in the graph."""
    graph = reading.graph
    if given["op"] == "input":
        return graph.input(name, kind.shape, kind.dtype)
    if given["op"] == "param":
        if "tensor" in given:
            reading.params[name] = _taken(reading, given["tensor"], kind, what)
        return graph.param(name, kind.shape, kind.dtype)
    if given["op"] == "constant":
        return graph.constant(_value(reading, given, kind, what))
    op = _op(given["op"], what)
    operands = _operands(graph, given.get("in", []), what)
    attrs = given.get("attrs", {})
    known = {a.name for a in op.attrs}
    needed = {a.name for a in op.attrs if not a.later}
    if not isinstance(attrs, dict) or not needed <= attrs.keys() <= known:
        wanted = ", ".join(a.name for a in op.attrs) or "none"
        raise Refused(f"{what} has the attributes {shown(attrs)}", f"it has {wanted}")
    there = [a for a in op.attrs if a.name in attrs]
    values = {a.name: attribute_in(a, attrs[a.name]) for a in there}
    return graph.apply(op.name, *operands, name=name, **values)


def _op(name: str, what: str) -> Op:
    try:
        op = registry.get(name)
    except UnknownOp as error:
        rule = f"{error.problem}; {error.hint}" if error.hint else error.problem
        raise Refused(f"{what} is unknown", rule) from None
    if op.name != name or op.has("leaf"):
        raise Refused(f"{what} is a second name", f"the op is {op.name!r}")
    return op


def _operands(graph: Graph, given: Any, what: str) -> list[Tensor]:
    if not isinstance(given, list) or len(given) > MOST_OPERANDS:
        rule = f"a list of at most {MOST_OPERANDS:,} nodes"
        raise Refused(f"{what} reads {shown(given)}", rule)
    for one in given:
        if type(one) is not int or not 0 <= one < len(graph):
            rule = f"a node reads those before it, 0 to {len(graph) - 1}"
            raise Refused(f"{what} reads node {shown(one)}", rule)
    return [graph.tensor(one) for one in given]


def _value(
    reading: _Reading, given: Mapping[str, Any], kind: TensorType, what: str
) -> Array:
    """The array of a constant, from among the tensors or written beside it."""
    if ("tensor" in given) == ("data" in given):
        raise Refused(f"{what} has no value of its own", "'tensor' or 'data'")
    if "tensor" in given:
        return _taken(reading, given["tensor"], kind, what)
    data = given["data"]
    if not isinstance(data, str) or len(data) > 2 * MOST_INLINE:
        rule = f"at most {MOST_INLINE} bytes in hexadecimal"
        raise Refused(f"{what} has the data {shown(data)}", rule)
    if not _HEX.fullmatch(data) or len(data) != 2 * kind.nbytes:
        rule = f"{kind} takes {kind.nbytes} bytes, two digits each"
        raise Refused(f"{what} has the data {shown(data)}", rule)
    raw = np.frombuffer(bytes.fromhex(data), np.uint8)
    return _typed(raw, kind, what)


def _taken(reading: _Reading, name: Any, kind: TensorType, what: str) -> Array:
    """A tensor of the file, for one node."""
    entry = reading.layout.entries.get(name) if isinstance(name, str) else None
    if entry is None:
        raise Refused(f"{what} has the tensor {shown(name)}", "the file has none")
    if name in reading.used:
        raise Refused(f"{what} has the tensor {shown(name)}", "another node has it")
    if not _fits(entry, kind):
        raise Refused(
            f"{what} is {kind}",
            f"its tensor {shown(name)} is {list(entry.shape)} {entry.dtype}",
        )
    reading.used.add(name)
    flat = reading.layout.array(entry).reshape(-1).view(np.uint8)
    return _typed(flat, kind, what)


def _fits(entry: Entry, kind: TensorType) -> bool:
    return entry.shape == kind.shape and entry.dtype == kind.dtype.label.upper()


def _typed(raw: Bytes, kind: TensorType, what: str) -> Array:
    """Bytes as an array of that type. No bool is anything but 0 and 1."""
    dtype = kind.dtype.numpy
    if dtype.kind == "b" and raw.size and int(raw.max()) > 1:
        raise Refused(f"{what} has a bool of value {int(raw.max())}", "0 or 1")
    return raw.view(dtype.newbyteorder("<")).reshape(kind.shape)


def _charge(reading: _Reading, made: Tensor, what: str) -> None:
    """What a node costs, off the budget."""
    graph = reading.graph
    node = graph.node(made.id)
    types = tuple(graph.node(i).type for i in node.inputs)
    try:
        flops = float(registry.get(node.op).flops(types, node.type, node.attrs))
    except (RlxError, *_STUMBLES) as error:
        raise Refused(f"{what} is refused", f"{type(error).__name__}") from None
    reading.budget.take(node.type.nbytes, flops, what)


def _read_outputs(reading: _Reading, cursor: Cursor) -> tuple[str, ...]:
    found: dict[str, Tensor] = {}
    for at in cursor.items():
        one = cursor.value()
        if not isinstance(one, dict) or one.keys() != {"name", "node"}:
            raise Refused(f"an output is {shown(one)}", "a name and a node", at)
        name = check_name(one["name"], "the name of an output", at)
        if name in found:
            raise Refused(f"two outputs are called {shown(name)}", "one name each", at)
        node = one["node"]
        if type(node) is not int or not 0 <= node < len(reading.graph):
            rule = f"its nodes are 0 to {len(reading.graph) - 1}"
            raise Refused(f"output {shown(name)} is node {shown(node)}", rule, at)
        found[name] = reading.graph.tensor(node)
    if not found:
        raise Refused("the graph has no outputs", "one at least", cursor.at)
    reading.graph.set_outputs(list(found.values()))
    return tuple(found)
