"""Reader of a graph and its params from a file: every rule is checked, nothing is
trusted.

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

from rlxweb.core.errors import RlxError, UnknownOp, shown
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.ir.sym_int import OPERATOR_FUNCTIONS, SymInt
from rlxweb.ir.symbolic_dim import Dim
from rlxweb.ir.tensor import Tensor
from rlxweb.runtime.graph_files.attribute_json import (
    DTYPE_BY_LABEL,
    attribute_from_json,
)
from rlxweb.runtime.graph_files.format_constants import (
    DYNAMIC_FORMAT,
    GRAPH_KEY,
    MAX_HEADER_BYTES,
    MAX_INLINE_BYTES,
    MAX_OPERANDS,
    STATIC_FORMAT,
)
from rlxweb.runtime.graph_files.graph_budget import GraphBudget
from rlxweb.runtime.graph_files.memory_mapped_bytes import ByteArray
from rlxweb.runtime.graph_files.safetensors_header import (
    NUMPY_DTYPES,
    SafetensorsLayout,
    TensorEntry,
    check_name,
    check_shape,
    read_layout,
)
from rlxweb.runtime.graph_files.strict_json import (
    FormatViolation,
    JsonCursor,
    check_depth,
)
from rlxweb.runtime.graph_files.traced_call_json import (
    TracedCallReplayer,
    dim_from_json,
)

Array = npt.NDArray[Any]

_STATIC_KEYS = ("format", "rlxweb", "name", "nodes", "outputs")
_DYNAMIC_KEYS = (*_STATIC_KEYS[:4], "dims", "calls", "held", "shapes", "outputs")
_LEAF_FIELDS = {
    "input": {"op", "name", "dtype", "shape"},
    "param": {"op", "name", "dtype", "shape", "tensor"},
    "constant": {"op", "dtype", "shape", "tensor", "data"},
}
_OP_FIELDS = {"op", "name", "in", "attrs", "dtype", "shape"}
MAX_SAMPLE_ELEMENTS = 1 << 26
"""Most elements of a tensor at the sample sizes of dims, unless the file itself is
large.
"""
_HEX_PATTERN = re.compile(r"([0-9a-f]{2})*")
# What a shape rule may stumble over that its author did not think of.
_SHAPE_RULE_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError, MemoryError)


@dataclass(slots=True)
class StoredGraph:
    """Content of a graph file: a graph, the values of its params, its outputs'
    names.
    """

    graph: Graph
    params: dict[str, Array]
    outputs: tuple[str, ...]


@dataclass(slots=True)
class _GraphReadState:
    """Graph that is being read; `used_tensors` are those that nodes took."""

    layout: SafetensorsLayout
    budget: GraphBudget
    graph: Graph = field(default_factory=Graph)
    params: dict[str, Array] = field(default_factory=dict)
    used_tensors: set[str] = field(default_factory=set)
    format: int = STATIC_FORMAT
    dims: dict[str, Dim] = field(default_factory=dict)


def read_graph(data: ByteArray, context: str, budget: GraphBudget) -> StoredGraph:
    """Read the graph in a file's bytes.

    Errors   GraphFileError with the rule that the file breaks, and where.
    """
    layout = read_layout(data, context, MAX_HEADER_BYTES)
    text = layout.metadata.get(GRAPH_KEY)
    if text is None:
        raise layout.error_at(
            "the file contains no graph",
            f"a graph must be in the metadata, under the key {GRAPH_KEY!r}",
            hint="use rlxweb.load_weights to read weights without a graph",
        )
    state = _GraphReadState(layout, budget)
    try:
        check_depth(text)
        outputs = _read_graph_text(state, JsonCursor(text))
    except FormatViolation as error:
        position = layout.header_position(GRAPH_KEY, error.position)
        raise layout.error_at(error.problem, error.rule, position) from None
    _check_all_used(state)
    return StoredGraph(state.graph, state.params, outputs)


def _check_all_used(state: _GraphReadState) -> None:
    """Check that tensors are aligned and that each belongs to a node."""
    layout = state.layout
    if layout.data_start % 8:
        problem = f"the data begins at byte {layout.data_start} of the file"
        rule = "the data must begin at a multiple of 8 bytes"
        raise layout.error_at(problem, rule)
    for entry in layout.entries.values():
        size = NUMPY_DTYPES[entry.dtype].itemsize
        if entry.begin % size:
            problem = (
                f"tensor {shown(entry.name)} begins at byte {entry.begin:,} of the data"
            )
            rule = f"the tensor must begin at a multiple of {size} bytes"
            raise layout.error_at(problem, rule, entry.position)
        if entry.name not in state.used_tensors:
            problem = f"tensor {shown(entry.name)} is not used by any node"
            rule = "every tensor must be used by exactly one node"
            raise layout.error_at(problem, rule, entry.position)


def _read_graph_text(state: _GraphReadState, cursor: JsonCursor) -> tuple[str, ...]:
    """Read the graph's text in the order in which it is written; return the names of
    the outputs.
    """
    outputs: tuple[str, ...] = ()
    count = 0
    for count, (key, position) in enumerate(cursor.iter_members(), 1):
        keys = _expected_keys(state)
        if count > len(keys) or key != keys[count - 1]:
            rule = f"expected the keys in this order: {', '.join(keys)}"
            problem = f"the graph has an unexpected key {shown(key)}"
            raise FormatViolation(problem, rule, position)
        if key == "nodes":
            _read_nodes(state, cursor)
        elif key == "outputs":
            outputs = _read_outputs(state, cursor)
        elif key in ("dims", "calls", "held", "shapes"):
            _read_dynamic_section(state, key, cursor)
        else:
            _read_header_value(state, key, cursor)
    keys = _expected_keys(state)
    if count < len(keys):
        problem = f"the graph has no key {keys[count]!r}"
        rule = f"expected the keys {', '.join(keys)}"
        raise FormatViolation(problem, rule, cursor.position)
    cursor.expect_end()
    return outputs


def _expected_keys(state: _GraphReadState) -> tuple[str, ...]:
    """Return the keys of the graph's text in this format, in order."""
    return _DYNAMIC_KEYS if state.format == DYNAMIC_FORMAT else _STATIC_KEYS


def _read_header_value(state: _GraphReadState, key: str, cursor: JsonCursor) -> None:
    """Read the format, the writer's version or the graph's name."""
    position, value = cursor.position, cursor.read_value()
    if key == "format":
        if type(value) is not int or value not in (STATIC_FORMAT, DYNAMIC_FORMAT):
            rule = f"the supported formats are {STATIC_FORMAT} and {DYNAMIC_FORMAT}"
            problem = f"the graph has format {shown(value)}"
            raise FormatViolation(problem, rule, position)
        state.format = value
        return
    check_name(value, f"the graph's {key!r}", position)
    if key == "name":
        state.graph.name = value


def _read_nodes(state: _GraphReadState, cursor: JsonCursor) -> None:
    """Read and add the nodes one by one."""
    for position in cursor.iter_items():
        count = len(state.graph)
        if count == state.budget.nodes:
            problem = f"the graph has at least {count + 1:,} nodes"
            raise FormatViolation(problem, state.budget.node_rule, position)
        fields = cursor.read_value()
        try:
            _read_node(state, fields, f"node %{count}")
        except FormatViolation as error:
            raise FormatViolation(error.problem, error.rule, position) from None


def _read_dynamic_section(state: _GraphReadState, key: str, cursor: JsonCursor) -> None:
    """Read dims, calls, guards or known shapes, one by one."""
    read_item = {
        "dims": _read_dim,
        "calls": _read_call,
        "held": _read_guard,
        "shapes": _read_known_shape,
    }[key]
    for count, position in enumerate(cursor.iter_items()):
        if count == state.budget.nodes:
            problem = f"{key!r} has at least {count + 1:,} entries"
            rule = f"{state.budget.node_rule}; the same limit applies to {key!r}"
            raise FormatViolation(problem, rule, position)
        data = cursor.read_value()
        try:
            read_item(state, data, f"{key}[{count}]")
        except FormatViolation as error:
            raise FormatViolation(error.problem, error.rule, position) from None
        except RlxError as error:
            rule = f"{error.problem}; {error.rule}" if error.rule else error.problem
            raise FormatViolation(
                f"{key}[{count}] is invalid", rule, position
            ) from None
        except _SHAPE_RULE_ERRORS as error:
            problem = f"{key}[{count}] is invalid"
            rule = f"building it raises {type(error).__name__}"
            raise FormatViolation(problem, rule, position) from None


def _read_dim(state: _GraphReadState, data: Any, subject: str) -> None:
    """Read one dim."""
    dim = dim_from_json(data)
    if dim.name in state.dims:
        problem = f"{subject} repeats the name {shown(dim.name)}"
        raise FormatViolation(problem, "dim names must be unique")
    state.dims[dim.name] = dim


def _read_call(state: _GraphReadState, data: Any, subject: str) -> None:
    """Replay one call and charge its nodes to the budget."""
    graph = state.graph

    def load_array(fields: Mapping[str, Any]) -> Array:
        if not fields.keys() <= {"dtype", "shape", "tensor", "data"}:
            raise FormatViolation(
                f"{subject} has an array with the fields {shown(fields)}",
                "allowed: dtype, shape, tensor and data",
            )
        return _read_constant(state, fields, _parse_type(fields, subject), subject)

    first_node = len(graph)
    call = TracedCallReplayer(graph, state.dims, load_array).replay(data, subject)
    if len(graph) > state.budget.nodes:
        problem = f"{subject} creates node number {len(graph):,}"
        raise FormatViolation(problem, state.budget.node_rule)
    if "tensor" in data:
        node = graph.node(first_node)
        if call.method != "param":
            problem = f"{subject} has the key 'tensor'"
            rule = "only a call of param() may have this key"
            raise FormatViolation(problem, rule)
        name = node.name
        state.params[name] = _take_tensor(state, data["tensor"], node.type, subject)
    trace = graph.recording
    assert trace is not None
    max_elements = max(MAX_SAMPLE_ELEMENTS, 4 * state.layout.data.nbytes)
    for trial in trace.trials:
        for node_id in range(first_node, len(graph)):
            tensor_type = trial.graph.node(trial.tensor_ids[node_id]).type
            if tensor_type.numel > max_elements:
                problem = (
                    f"{subject} creates a tensor of type {tensor_type} with the dim "
                    f"sizes that are used to check the file"
                )
                rule = f"at most {max_elements:,} elements are allowed"
                raise FormatViolation(problem, rule)
            if trial is trace.trials[0]:
                state.budget.consume(tensor_type.nbytes, 0, subject)


def _read_guard(state: _GraphReadState, data: Any, subject: str) -> None:
    """Read one guard: a comparison of sizes that the graph was built on, and its
    answer.
    """
    reader = TracedCallReplayer(state.graph, state.dims, lambda fields: np.zeros(0))
    trace = state.graph.recording
    match data:
        case [str() as sign, x, y, bool() as answer] if (
            trace and sign in OPERATOR_FUNCTIONS
        ):
            size = reader.read_size(x)
            if isinstance(size, SymInt):
                trace.add_guard(sign, size, reader.read_size(y), answer)
                return
    raise FormatViolation(
        f"{subject} is {shown(data)}",
        "expected a list of a comparison operator, two sizes and a bool",
    )


def _read_known_shape(state: _GraphReadState, data: Any, subject: str) -> None:
    """Read one tensor's shape that the graph was built on."""
    trace, graph = state.graph.recording, state.graph
    match data:
        case [int() as node_id, list() as sizes] if trace and 0 <= node_id < len(graph):
            shape: tuple[Any, ...] = graph.node(node_id).type.shape
            fixed_sizes = [None if isinstance(size, SymInt) else size for size in shape]
            if fixed_sizes == sizes:
                trace.observe_shape(node_id, shape)
                return
    problem = f"{subject} is {shown(data)}"
    raise FormatViolation(
        problem, "expected a list of a node id and the shape of the node"
    )


def _read_node(state: _GraphReadState, fields: Any, subject: str) -> None:
    """Add one node and compare its inferred type with the stated one."""
    if not isinstance(fields, dict) or not isinstance(fields.get("op"), str):
        problem = f"{subject} is {shown(fields)}"
        raise FormatViolation(
            problem, "expected an object with a string under the key 'op'"
        )
    name = fields["op"]
    subject = f"{subject} ({shown(name)})"
    unknown_fields = fields.keys() - _LEAF_FIELDS.get(name, _OP_FIELDS)
    if unknown_fields:
        allowed = ", ".join(sorted(_LEAF_FIELDS.get(name, _OP_FIELDS)))
        raise FormatViolation(
            f"{subject} has the unknown field {shown(min(unknown_fields))}",
            f"allowed: {allowed}",
        )
    tensor_type = _parse_type(fields, subject)
    node_name = check_name(fields.get("name", ""), f"the name of {subject}", 0)
    try:
        tensor = _add_node(state, fields, tensor_type, node_name, subject)
    except FormatViolation:
        raise
    except RlxError as error:
        rule = f"{error.problem}; {error.rule}" if error.rule else str(error.problem)
        raise FormatViolation(f"{subject} is invalid", rule) from None
    except _SHAPE_RULE_ERRORS as error:
        rule = f"building it raises {type(error).__name__}"
        raise FormatViolation(f"{subject} is invalid", rule) from None
    actual_type = state.graph.node(tensor.id).type
    if actual_type != tensor_type:
        raise FormatViolation(
            f"{subject} is declared as {tensor_type}", f"the op produces {actual_type}"
        )
    _charge_budget(state, tensor, subject)


def _parse_type(fields: Mapping[str, Any], subject: str) -> TensorType:
    """Return the tensor type that a node or value states."""
    dtype = fields.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPE_BY_LABEL:
        raise FormatViolation(
            f"{subject} has the dtype {shown(dtype)}",
            f"expected one of {', '.join(DTYPE_BY_LABEL)}",
        )
    return TensorType(
        check_shape(fields.get("shape"), subject, 0), DTYPE_BY_LABEL[dtype]
    )


def _add_node(
    state: _GraphReadState,
    fields: Mapping[str, Any],
    tensor_type: TensorType,
    name: str,
    subject: str,
) -> Tensor:
    """Add the node to the graph and return its tensor."""
    graph = state.graph
    if fields["op"] == "input":
        return graph.input(name, tensor_type.shape, tensor_type.dtype)
    if fields["op"] == "param":
        if "tensor" in fields:
            state.params[name] = _take_tensor(
                state, fields["tensor"], tensor_type, subject
            )
        return graph.param(name, tensor_type.shape, tensor_type.dtype)
    if fields["op"] == "constant":
        return graph.constant(_read_constant(state, fields, tensor_type, subject))
    op = _find_op(fields["op"], subject)
    operands = _read_operands(graph, fields.get("in", []), subject)
    attrs = fields.get("attrs", {})
    allowed = {attr.name for attr in op.attrs}
    required = {attr.name for attr in op.attrs if not attr.is_added_later}
    if not isinstance(attrs, dict) or not required <= attrs.keys() <= allowed:
        expected = ", ".join(attr.name for attr in op.attrs) or "none"
        raise FormatViolation(
            f"{subject} has the attributes {shown(attrs)}", f"expected {expected}"
        )
    present = [attr for attr in op.attrs if attr.name in attrs]
    values = {
        attr.name: attribute_from_json(attr, attrs[attr.name]) for attr in present
    }
    return graph.apply(op.name, *operands, name=name, **values)


def _find_op(name: str, subject: str) -> Op:
    """Return the op of a node by its first name; raises FormatViolation."""
    try:
        op = registry.get(name)
    except UnknownOp as error:
        rule = f"{error.problem}; {error.hint}" if error.hint else error.problem
        raise FormatViolation(f"{subject} has an unknown op", rule) from None
    if op.name != name or op.has_trait("leaf"):
        rule = f"a file must use the name {op.name!r}"
        raise FormatViolation(f"{subject} names its op by an alias", rule)
    return op


def _read_operands(graph: Graph, node_ids: Any, subject: str) -> list[Tensor]:
    """Return the tensors that a node reads."""
    if not isinstance(node_ids, list) or len(node_ids) > MAX_OPERANDS:
        rule = f"expected a list of at most {MAX_OPERANDS:,} node ids"
        raise FormatViolation(f"{subject} has the inputs {shown(node_ids)}", rule)
    for node_id in node_ids:
        if type(node_id) is not int or not 0 <= node_id < len(graph):
            rule = (
                f"a node may read only the {len(graph):,} nodes before it, numbered "
                "from 0"
            )
            raise FormatViolation(f"{subject} reads node {shown(node_id)}", rule)
    return [graph.tensor(node_id) for node_id in node_ids]


def _read_constant(
    state: _GraphReadState,
    fields: Mapping[str, Any],
    tensor_type: TensorType,
    subject: str,
) -> Array:
    """Return the array of a constant, from the tensors or from its inline data."""
    if ("tensor" in fields) == ("data" in fields):
        both = "both 'tensor' and 'data'"
        neither = "neither 'tensor' nor 'data'"
        raise FormatViolation(
            f"{subject} has {both if 'data' in fields else neither}",
            "expected exactly one of the two",
        )
    if "tensor" in fields:
        return _take_tensor(state, fields["tensor"], tensor_type, subject)
    data = fields["data"]
    if not isinstance(data, str) or len(data) > 2 * MAX_INLINE_BYTES:
        rule = f"expected at most {MAX_INLINE_BYTES} bytes as a hexadecimal string"
        raise FormatViolation(f"{subject} has the data {shown(data)}", rule)
    if not _HEX_PATTERN.fullmatch(data) or len(data) != 2 * tensor_type.nbytes:
        rule = (
            f"{tensor_type} takes {tensor_type.nbytes} bytes, "
            "each written as two lower-case hexadecimal digits"
        )
        raise FormatViolation(f"{subject} has the data {shown(data)}", rule)
    raw = np.frombuffer(bytes.fromhex(data), np.uint8)
    return _view_as_type(raw, tensor_type, subject)


def _take_tensor(
    state: _GraphReadState, name: Any, tensor_type: TensorType, subject: str
) -> Array:
    """Return a tensor of the file, for one node only."""
    entry = state.layout.entries.get(name) if isinstance(name, str) else None
    if entry is None:
        raise FormatViolation(
            f"{subject} refers to tensor {shown(name)}",
            "the file has no tensor of this name",
        )
    if name in state.used_tensors:
        raise FormatViolation(
            f"{subject} refers to tensor {shown(name)}",
            "another node already uses this tensor",
        )
    if not _has_type(entry, tensor_type):
        raise FormatViolation(
            f"{subject} is declared as {tensor_type}",
            f"its tensor {shown(name)} is {list(entry.shape)} {entry.dtype}",
        )
    state.used_tensors.add(name)
    flat = state.layout.array(entry).reshape(-1).view(np.uint8)
    return _view_as_type(flat, tensor_type, subject)


def _has_type(entry: TensorEntry, tensor_type: TensorType) -> bool:
    """Return whether an entry has that tensor type."""
    return (
        entry.shape == tensor_type.shape
        and entry.dtype == tensor_type.dtype.label.upper()
    )


def _view_as_type(raw: ByteArray, tensor_type: TensorType, subject: str) -> Array:
    """Return bytes as an array of that type; a bool must be 0 or 1."""
    dtype = tensor_type.dtype.numpy
    if dtype.kind == "b" and raw.size and int(raw.max()) > 1:
        raise FormatViolation(
            f"{subject} has a bool of value {int(raw.max())}", "a bool must be 0 or 1"
        )
    return raw.view(dtype.newbyteorder("<")).reshape(tensor_type.shape)


def _charge_budget(state: _GraphReadState, tensor: Tensor, subject: str) -> None:
    """Subtract what a node takes from the budget."""
    graph = state.graph
    node = graph.node(tensor.id)
    types = tuple(graph.node(i).type for i in node.inputs)
    try:
        flops = float(registry.get(node.op).flops(types, node.type, node.attrs))
    except (RlxError, *_SHAPE_RULE_ERRORS) as error:
        rule = f"counting its flops raises {type(error).__name__}"
        raise FormatViolation(f"{subject} is invalid", rule) from None
    state.budget.consume(node.type.nbytes, flops, subject)


def _read_outputs(state: _GraphReadState, cursor: JsonCursor) -> tuple[str, ...]:
    """Set the graph's outputs and return their names."""
    outputs: dict[str, Tensor] = {}
    for position in cursor.iter_items():
        fields = cursor.read_value()
        if not isinstance(fields, dict) or fields.keys() != {"name", "node"}:
            raise FormatViolation(
                f"an output is {shown(fields)}",
                "expected an object with the keys 'name' and 'node'",
                position,
            )
        name = check_name(fields["name"], "the name of an output", position)
        if name in outputs:
            raise FormatViolation(
                f"two outputs are named {shown(name)}",
                "output names must be unique",
                position,
            )
        node_id = fields["node"]
        if type(node_id) is not int or not 0 <= node_id < len(state.graph):
            rule = f"the graph has {len(state.graph):,} nodes, numbered from 0"
            raise FormatViolation(
                f"output {shown(name)} refers to node {shown(node_id)}", rule, position
            )
        outputs[name] = state.graph.tensor(node_id)
    if not outputs:
        raise FormatViolation(
            "the graph has no outputs", "at least one is required", cursor.position
        )
    state.graph.set_outputs(list(outputs.values()))
    return tuple(outputs)
