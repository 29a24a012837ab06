"""The computation graph: an append-only list of typed nodes, checked as it grows.

Insertion order is the topological order. `apply` is the one door through which nodes
come in: it canonicalises attributes, runs the op's shape rule and words its errors.
Named builder methods (matmul, softmax …) live in `builder.py`; ops in `rlxweb.ops`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import GraphError, RlxError, ShapeError, did_you_mean, shown
from rlxweb.core.lazy_names import load_provider
from rlxweb.ir.builder import Builder
from rlxweb.ir.builder_call_trace import (
    UNTRACED_METHODS,
    SizeTrace,
    TracedCall,
    call_attributes,
    trace_methods,
)
from rlxweb.ir.dim_binding import OpGraph, bind_graph
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype, cast_exact
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import (
    as_shape,
    as_tuple,
    bad_dtype,
    format_shape,
    short_repr,
)
from rlxweb.ir.sym_int import SymInt
from rlxweb.ir.symbolic_dim import DeclaredShape, Dim, symbolic_shape
from rlxweb.ir.tensor import Tensor, as_tensor_tuple


class Constant:
    """An array owned by a graph: read-only, native, compared and hashed by content."""

    __slots__ = ("_digest", "array")

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = np.array(array, array.dtype.newbyteorder("="), order="C")
        self.array.setflags(write=False)
        head = f"{self.array.dtype.str}{self.array.shape}".encode()
        self._digest = hashlib.sha256(head + self.array.tobytes()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        if self.array.size <= 4:
            return f"Constant({self.array.tolist()})"
        return f"Constant({format_shape(self.array.shape)} {self.array.dtype})"


class Node(NamedTuple):
    """A node of a graph: op, numbers of the input nodes, attributes and result type."""

    # A compilation makes some thousands, and no other frozen record is made as fast.

    id: int
    op: str
    inputs: tuple[int, ...]
    attrs: Mapping[str, Any]
    type: TensorType
    name: str = ""

    @property
    def is_literal(self) -> bool:
        """True for a constant of one finite element, which shaders contain as a
        number.
        """
        return (
            self.op == "constant"
            and self.type.numel == 1
            and self.type.dtype is not DType.BF16  # whose bits are no number of NumPy's
            and bool(np.isfinite(self.attrs["value"].array).all())
        )

    def __str__(self) -> str:
        args = ", ".join(f"%{i}" for i in self.inputs)
        attrs = ", ".join(f"{k}={v}" for k, v in self.attrs.items())
        arguments = ", ".join(p for p in (args, attrs) if p)
        label = f" '{self.name}'" if self.name else ""
        return f"%{self.id} = {self.op}({arguments}){label} : {self.type}"


@dataclass(slots=True)
class _GraphState:
    """Mutable state of a graph; `checked_count` counts the nodes whose op ran its shape
    rule.
    """

    nodes: list[Node] = field(default_factory=list)
    checked_count: int = 0
    outputs: tuple[int, ...] = ()
    names: dict[str, int] = field(default_factory=dict)
    size_trace: SizeTrace | None = None


@trace_methods(UNTRACED_METHODS)
class Graph(Builder):
    """A computation to be compiled: named inputs and params, nodes, outputs.

    >>> g = Graph("mlp")
    >>> x, w = g.input("x", (4, 8)), g.param("w", (8, 2))
    >>> g.set_outputs([g.relu(x @ w)])
    """

    def __init__(self, name: str = "graph") -> None:
        if not isinstance(name, str):
            raise GraphError("Graph", f"the name is {shown(name)}", "expected a string")
        self.name = name
        self._state = _GraphState()

    def input(
        self, name: str, shape: DeclaredShape, dtype: DTypeLike = "f32"
    ) -> Tensor:
        """Add an input, whose value is given at every run.

        shape  a size may vary from run to run: `Dim("batch")` or its name, the same for
               every axis that is as long; None or -1 for one of its own. Arithmetic on
               dims is a size too
        Errors   GraphError for a name that is taken or a dim that is declared
        otherwise; ShapeError, DTypeError.
        """
        sizes = symbolic_shape(shape, name)
        if self._state.size_trace is None and sizes is None:
            return self._add_leaf("input", name, shape, dtype)
        size_trace = self._state.size_trace or SizeTrace.from_graph(self)
        tensor: Tensor = size_trace.trace_call(
            self, "input", (name, sizes or shape, dtype), {}
        )
        self._state.size_trace = size_trace
        return tensor

    def param(
        self, name: str, shape: Sequence[int] | int, dtype: DTypeLike = "f32"
    ) -> Tensor:
        """Add a param, whose value is set once with `set_param` and kept on the
        device.
        """
        size_trace = self._state.size_trace
        if size_trace is None:
            return self._add_leaf("param", name, shape, dtype)
        if any(isinstance(d, SymInt) for d in as_tuple(shape) or ()):
            raise ShapeError(
                f"param {shown(name)} of graph '{self.name}'",
                f"the shape is {format_shape(as_tuple(shape) or ())}",
                "the shape of a param must be fixed",
                "use an input, or create a param of the largest size and slice it",
            )
        tensor: Tensor = size_trace.trace_call(self, "param", (name, shape, dtype), {})
        return tensor

    @property
    def recording(self) -> SizeTrace | None:
        """The trace of the calls since the graph has symbolic dims; None if it has
        none.
        """
        return self._state.size_trace

    @property
    def dims(self) -> dict[str, Dim]:
        """The dims whose sizes are bound at run time, by name."""
        return (
            {} if self._state.size_trace is None else dict(self._state.size_trace.dims)
        )

    def bind(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> Graph:
        """Rebuild the graph with these sizes of its dims, by the same rules.

        Dims that are left out stay: `graph.bind(batch=4)`.
        Errors   UnknownName; ShapeError for a size that a dim may not be, or with which
        the graph is wrong; those of the ops; OutOfMemory.
        """
        return bind_graph(self, {**(sizes or {}), **named})

    def recorded(self, call: TracedCall, kind: TensorType) -> Tensor:
        """Add the node that stands for a recorded call and return its tensor; called by
        the size trace.
        """
        inputs = tuple(ref.id for ref in call.operands)
        attrs = call_attributes(self, call)
        is_leaf = call.method in ("input", "param")
        name = str(call.args[0]) if is_leaf else str(call.kwargs.get("name", ""))
        node = Node(len(self._state.nodes), call.method, inputs, attrs, kind, name)
        self._state.nodes.append(node)
        self._state.checked_count += 1
        return Tensor(self, node.id)

    def _add_leaf(self, op: str, name: str, shape: Any, dtype: DTypeLike) -> Tensor:
        """Add an input or param after checking its name, shape and dtype."""
        is_valid_name = isinstance(name, str) and bool(name)
        if not is_valid_name or name in self._state.names:
            raise GraphError(
                f"{op} {shown(name)} of graph '{self.name}'",
                "the name is already used"
                if is_valid_name
                else "the name must be a non-empty string",
                hint="give each input and param of a graph a different name"
                if is_valid_name
                else "",
            )
        try:
            leaf_type = TensorType(as_shape(shape), as_dtype(dtype))
        except GraphError as error:
            error.doing = f"{op} {shown(name)} of graph '{self.name}'"
            raise
        node = self._append_node(op, (), {"name": name}, leaf_type, name)
        self._state.names[name] = node.id
        return node

    def constant(self, value: npt.ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
        """Add an array that is part of the graph.

        Python floats and float64 lists become f32 unless `dtype` says otherwise; NumPy
        arrays keep their dtype. Errors  DTypeError for a value the dtype cannot hold.
        """
        context = f"constant of graph '{self.name}'"
        array = as_array(value, context, allow_bfloat16=True)
        try:
            target_dtype = None if dtype is None else as_dtype(dtype)
            if target_dtype is None and not hasattr(value, "dtype"):
                target_dtype = {"f": DType.F32, "i": DType.I32}.get(array.dtype.kind)
            array = array if target_dtype is None else cast_exact(array, target_dtype)
            result_type = TensorType(as_shape(array.shape), as_dtype(array.dtype))
        except GraphError as error:
            error.doing = context
            raise
        return self._append_node(
            "constant", (), {"value": Constant(array)}, result_type, ""
        )

    def apply(
        self, op_name: str, *inputs: Tensor, name: str = "", **attrs: Any
    ) -> Tensor:
        """Add a node of a registered op and return its tensor.

        Errors   UnknownOp, AttributeRefused, ShapeError, DTypeError: each says which op
        was being added and to which operands.
        """
        op = registry.get(op_name)
        for tensor in inputs:
            if not isinstance(tensor, Tensor) or tensor.graph is not self:
                raise GraphError(
                    f"op '{op.name}' in graph '{self.name}'",
                    f"operand {short_repr(tensor)} is not a tensor of this graph",
                    hint="create the operand with the graph's input, param or constant "
                    "method",
                )
        ids = tuple([t.id for t in inputs])
        nodes = self._state.nodes
        types = tuple([nodes[i].type for i in ids])
        checked_attrs, result_type = infer_type(op, types, attrs, name)
        return self._append_node(op.name, ids, checked_attrs, result_type, name)

    def _append_node(
        self,
        op: str,
        inputs: tuple[int, ...],
        attrs: Mapping[str, Any],
        result_type: TensorType,
        name: str,
    ) -> Tensor:
        node = Node(len(self._state.nodes), op, inputs, attrs, result_type, name)
        self._state.nodes.append(node)
        self._state.checked_count += 1
        return Tensor(self, node.id)

    def copied(self, node: Node, operands: Sequence[Tensor]) -> Tensor:
        """Copy a node of another graph unchanged, on operands of the same types.

        Nothing is inferred again; whoever rewrites graphs keeps the types.
        """
        return Tensor(self, self.copy_node(node, tuple([t.id for t in operands])))

    def copy_node(self, node: Node, ids: tuple[int, ...]) -> int:
        """Copy a node as `copied` does, on the nodes of these ids; return its id."""
        nodes = self._state.nodes
        at = len(nodes)
        if node.op in ("input", "param"):
            if node.name in self._state.names:
                leaf_type = node.type
                leaf = self._add_leaf(
                    node.op, node.name, leaf_type.shape, leaf_type.dtype
                )
                return leaf.id
            self._state.names[node.name] = at
        if node.id != at or node.inputs != ids:  # else the graphs share the record
            node = Node(at, node.op, ids, node.attrs, node.type, node.name)
        nodes.append(node)
        self._state.checked_count += 1
        return at

    def subgraph(self, ids: Collection[int]) -> Graph:
        """Return a graph of some of the nodes, with all that they and the outputs read
        among them.
        """
        out, new_ids = Graph(self.name), {}
        nodes: list[Node] = []
        for node in self._state.nodes:
            if node.id not in ids:
                continue
            at = new_ids[node.id] = len(nodes)
            inputs = tuple([new_ids[i] for i in node.inputs])
            if node.id != at or inputs != node.inputs:
                node = Node(at, node.op, inputs, node.attrs, node.type, node.name)
            if node.op in ("input", "param"):
                out._state.names[node.name] = at
            nodes.append(node)
        out._state.nodes, out._state.checked_count = nodes, len(nodes)
        out._state.outputs = tuple([new_ids[i] for i in self._state.outputs])
        return out

    def set_outputs(self, outputs: Sequence[Tensor]) -> None:
        """Set the results, in the order in which `run` returns them."""
        context = f"outputs of graph '{self.name}'"
        tensors = as_tensor_tuple(outputs, context, "set_outputs([t])")
        for tensor in tensors:
            if not isinstance(tensor, Tensor) or tensor.graph is not self:
                raise GraphError(
                    context, f"{short_repr(tensor)} is not a tensor of this graph"
                )
        self._state.outputs = tuple(t.id for t in tensors)

    @property
    def is_checked(self) -> bool:
        """True if every node was added by a method that runs the op's shape rule."""
        return self._state.checked_count == len(self._state.nodes)

    @property
    def outputs(self) -> tuple[int, ...]:
        return self._state.outputs

    def node(self, at: int) -> Node:
        return self._state.nodes[at]

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._state.nodes)

    def tensor(self, at: int) -> Tensor:
        return Tensor(self, at)

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        return tensor.shape

    def named(self, op: str) -> dict[str, Node]:
        """Return the inputs (`named("input")`) or params (`named("param")`) by name."""
        return {n.name: n for n in self._state.nodes if n.op == op}

    def copy(self) -> Graph:
        """Return an independent graph of the same nodes and outputs."""
        out, state = Graph(self.name), self._state
        size_trace = None if state.size_trace is None else state.size_trace.copy()
        nodes, names = list(state.nodes), dict(state.names)
        out._state = replace(state, nodes=nodes, names=names, size_trace=size_trace)
        return out

    def save(
        self,
        file: str | PathLike[str] | IO[bytes],
        params: Mapping[str, Any] | None = None,
        *,
        outputs: Sequence[str] | None = None,
    ) -> None:
        """Write the graph with its params into one file, for `rlxweb.load`.

        The file is a safetensors file, with the graph in its metadata: other programs
        read the weights of it. The same graph and values give the same bytes.

        file     a path (usually NAME.rlxg), where the file appears whole or not at all,
                 or an open binary file
        params   arrays by name; a param left out has no value in the file
        outputs  names of the outputs; None: those of their nodes, or out0, out1 …
        Errors   VerifyError for no outputs; UnknownName, DTypeError, ShapeError for
        params that do not fit; GraphFileError for what no file holds; UsageError for
        what is no file; RecordingError where nothing can be written.
        """
        load_provider("save_graph")(self, file, params, outputs)

    @property
    def key(self) -> Hashable:
        """Hashable key, equal for graphs of equal nodes, names and outputs under the
        currently registered ops.
        """
        if (
            self._state.size_trace is not None
        ):  # sizes are not compared, but how they are said
            dims = tuple(map(repr, self.dims.values()))
            return self.name, registry.revision, str(self), dims
        nodes = tuple(
            (n.op, n.inputs, n.type, n.name, tuple(map(attr_key, n.attrs.items())))
            for n in self._state.nodes
        )
        return self.name, registry.revision, nodes, self.outputs

    def users(self, at: int | Tensor) -> tuple[int, ...]:
        """Return the nodes that read node `at`, once for each operand that is this
        node.

        at       number of a node, or its tensor
        Errors   GraphError for a node that the graph does not have.
        """
        node, count = at, len(self._state.nodes)
        if isinstance(at, Tensor) and at.graph is self:
            node = at.id
        if not isinstance(node, SupportsIndex) or not 0 <= index(node) < count:
            raise GraphError(
                f"users of a node of graph '{self.name}'",
                f"the graph has no node {short_repr(at)}",
                f"it has {count} node{'s' * (count != 1)}, numbered from 0",
            )
        at = index(node)
        return tuple(n.id for n in self._state.nodes for i in n.inputs if i == at)

    if not TYPE_CHECKING:  # to a type checker every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            """Return the method of an op that was not loaded yet; else raise
            AttributeError with a suggestion of a similar name.
            """
            if name[:1] != "_" and type(self).load_op_methods():
                return getattr(self, name)
            parts = [f"{type(self).__name__!r} object has no attribute {name!r}"]
            if not name.startswith("_"):  # what `copy`, `pickle` and NumPy look for
                if type(self) is Graph:
                    parts.append("for RLX's method names, use rlxweb.rlx.Graph")
                public = (
                    attribute for attribute in dir(type(self)) if attribute[0] != "_"
                )
                parts.append(did_you_mean(name, public))
            raise AttributeError("; ".join(part for part in parts if part))

    def __len__(self) -> int:
        return len(self._state.nodes)

    def __repr__(self) -> str:
        count = len(self)
        nodes = f"{count} node{'s' * (count != 1)}"
        n_outputs = len(self.outputs)
        outputs = f"{n_outputs} output{'s' * (n_outputs != 1)}"
        return f"Graph({shown(self.name)}: {nodes}, {outputs})"

    def __str__(self) -> str:
        lines = [f"  {n}" for n in self._state.nodes]
        outputs = ", ".join(f"%{i}" for i in self.outputs)
        return "\n".join([f"graph @{self.name} {{", *lines, f"  return {outputs}", "}"])


def attr_key(attr: tuple[str, Any]) -> Hashable:
    """Return a hashable key of an attribute that distinguishes 0.0 from -0.0 and 1 from
    True.
    """
    name, value = attr
    return name, type(value), repr(value) if isinstance(value, float) else value


def infer_type(
    op: Op, types: tuple[TensorType, ...], attrs: Mapping[str, Any], name: str = ""
) -> tuple[dict[str, Any], TensorType]:
    """Return an op's canonical attributes and result type; errors name the op and its
    operands.
    """
    try:
        checked_attrs = op.check_attrs(attrs)
        if op.has_trait("floats_only") and not all(t.dtype.is_float for t in types):
            raise bad_dtype(
                "the op accepts only floats",
                "expected bf16, f16, f32 or f64",
                "cast the operand first",
            )
        result_type = op.output_type(types, checked_attrs)
        as_shape(result_type.shape)
    except RlxError as error:
        if not error.doing:
            label = f" '{name}'" if name else ""
            error.doing = f"{op.name}{label} of " + (
                ", ".join(str(t) for t in types) or "no inputs"
            )
        raise
    return checked_attrs, result_type


def node_signature(graph: OpGraph, node: Node) -> tuple[Op, Types, TensorType, Attrs]:
    """Return op, input types, output type and attributes: the arguments of an op's
    rules.
    """
    inputs = tuple(graph.node(i).type for i in node.inputs)
    return registry.get(node.op), inputs, node.type, node.attrs
