"""The graph: an append-only list of typed nodes, checked as it grows.

Insertion order is the topological order. `apply` is the one door through which nodes
come in: it canonicalises attributes, runs the op's shape rule and words its errors.
Named builder methods (matmul, softmax …) live in `builder.py`; ops in `rlxweb.ops`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, ClassVar, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlxweb.errors import GraphError, RlxError, ShapeError, did_you_mean, shown
from rlxweb.given import array_of
from rlxweb.ir.binding import bound
from rlxweb.ir.builder import Builder
from rlxweb.ir.dim import Declared, Dim, dims_of
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype, cast_whole
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.ir.recording import (
    PLAIN,
    Call,
    Recording,
    attributes,
    recording,
)
from rlxweb.ir.shape import as_shape, bad_dtype, many, short, show
from rlxweb.ir.size import Size
from rlxweb.ir.tensor import Tensor, listed
from rlxweb.names import from_above


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
        return f"Constant({show(self.array.shape)} {self.array.dtype})"


@dataclass(frozen=True, slots=True)
class Node:
    """One value: what computes it, from which earlier nodes, of which type."""

    id: int
    op: str
    inputs: tuple[int, ...]
    attrs: Mapping[str, Any]
    type: TensorType
    name: str = ""

    @property
    def is_literal(self) -> bool:
        """A constant of one finite element: handed to a shader as a number, unbound."""
        return (
            self.op == "constant"
            and self.type.numel == 1
            and self.type.dtype is not DType.BF16  # whose bits are no number of NumPy's
            and bool(np.isfinite(self.attrs["value"].array).all())
        )

    def __str__(self) -> str:
        args = ", ".join(f"%{i}" for i in self.inputs)
        attrs = ", ".join(f"{k}={v}" for k, v in self.attrs.items())
        both = ", ".join(p for p in (args, attrs) if p)
        label = f" '{self.name}'" if self.name else ""
        return f"%{self.id} = {self.op}({both}){label} : {self.type}"


@dataclass(slots=True)
class _Contents:
    """`checked` nodes came in through a door that runs the op's shape rule."""

    nodes: list[Node] = field(default_factory=list)
    checked: int = 0
    outputs: tuple[int, ...] = ()
    names: dict[str, int] = field(default_factory=dict)
    log: Recording | None = None


@recording(PLAIN)
class Graph(Builder):
    """A computation to be compiled: named inputs and params, nodes, outputs.

    >>> g = Graph("mlp")
    >>> x, w = g.input("x", (4, 8)), g.param("w", (8, 2))
    >>> g.set_outputs([g.relu(x @ w)])
    """

    BUILDS: ClassVar[frozenset[str]]
    """Names of the methods that add to it: those that a recording writes down."""

    def __init__(self, name: str = "graph") -> None:
        if not isinstance(name, str):
            raise GraphError("Graph", f"its name is {shown(name)}", "a text is wanted")
        self.name = name
        self._all = _Contents()

    def input(self, name: str, shape: Declared, dtype: DTypeLike = "f32") -> Tensor:
        """A value given at every run.

        shape  a size may vary from run to run: `Dim("batch")` or its name, the same for
               every axis that is as long; None or -1 for one of its own. Arithmetic on
               dims is a size too
        Errors   GraphError for a name that is taken or a dim that is declared
        otherwise; ShapeError, DTypeError.
        """
        sizes = dims_of(shape, name)
        if self._all.log is None and sizes is None:
            return self._leaf("input", name, shape, dtype)
        log = self._all.log or Recording.of(self)
        made: Tensor = log.call(self, "input", (name, sizes or shape, dtype), {})
        self._all.log = log
        return made

    def param(
        self, name: str, shape: Sequence[int] | int, dtype: DTypeLike = "f32"
    ) -> Tensor:
        """A value set once with `set_param` and kept on the device."""
        log = self._all.log
        if log is None:
            return self._leaf("param", name, shape, dtype)
        if any(isinstance(d, Size) for d in many(shape) or ()):
            raise ShapeError(
                f"param {shown(name)} of graph '{self.name}'",
                f"its shape is {show(many(shape) or ())}",
                "a param has one shape, whatever a run binds",
                "make it an input, or cut a param of the largest size",
            )
        made: Tensor = log.call(self, "param", (name, shape, dtype), {})
        return made

    @property
    def recording(self) -> Recording | None:
        """What was asked of the graph since it has dims; None where it has none."""
        return self._all.log

    @property
    def dims(self) -> dict[str, Dim]:
        """The dims whose sizes a run binds, by name."""
        return {} if self._all.log is None else dict(self._all.log.dims)

    def bind(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> Graph:
        """The graph for these sizes of its dims: built again, by the same rules.

        Dims that are left out stay: `graph.bind(batch=4)`.
        Errors   UnknownName; ShapeError for a size that a dim may not be, or with which
        the graph is wrong; those of the ops; OutOfMemory.
        """
        return bound(self, {**(sizes or {}), **named})

    def recorded(self, call: Call, kind: TensorType) -> Tensor:
        """The node that stands for a call; made by the recording of it."""
        inputs, attrs = tuple(ref.id for ref in call.operands), attributes(self, call)
        is_leaf = call.method in ("input", "param")
        name = str(call.args[0]) if is_leaf else str(call.named.get("name", ""))
        node = Node(len(self._all.nodes), call.method, inputs, attrs, kind, name)
        self._all.nodes.append(node)
        self._all.checked += 1
        return Tensor(self, node.id)

    def _leaf(self, op: str, name: str, shape: Any, dtype: DTypeLike) -> Tensor:
        doing = f"{op} {shown(name)} of graph '{self.name}'"
        is_name = isinstance(name, str) and bool(name)
        if not is_name or name in self._all.names:
            raise GraphError(
                doing,
                "the name is taken" if is_name else "a name is needed, as text",
                hint="inputs and params of a graph have distinct names",
            )
        try:
            kind = TensorType(as_shape(shape), as_dtype(dtype))
        except GraphError as error:
            error.doing = doing
            raise
        node = self._append(op, (), {"name": name}, kind, name)
        self._all.names[name] = node.id
        return node

    def constant(self, value: npt.ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
        """An array that is part of the graph.

        Python floats and float64 lists become f32 unless `dtype` says otherwise; NumPy
        arrays keep their dtype. Errors  DTypeError for a value the dtype cannot hold.
        """
        doing = f"constant of graph '{self.name}'"
        array = array_of(value, doing, bfloat16=True)
        try:
            want = None if dtype is None else as_dtype(dtype)
            if want is None and not hasattr(value, "dtype"):
                want = {"f": DType.F32, "i": DType.I32}.get(array.dtype.kind)
            array = array if want is None else cast_whole(array, want)
            kind = TensorType(as_shape(array.shape), as_dtype(array.dtype))
        except GraphError as error:
            error.doing = doing
            raise
        return self._append("constant", (), {"value": Constant(array)}, kind, "")

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
                    f"operand {short(tensor)} is not a tensor of this graph",
                    hint="make it with this graph's input, param or constant",
                )
        types = tuple(self.node(t.id).type for t in inputs)
        checked, kind = typed(op, types, attrs, name)
        ids = tuple(t.id for t in inputs)
        return self._append(op.name, ids, checked, kind, name)

    def _append(
        self,
        op: str,
        inputs: tuple[int, ...],
        attrs: Mapping[str, Any],
        kind: TensorType,
        name: str,
    ) -> Tensor:
        node = Node(len(self._all.nodes), op, inputs, attrs, kind, name)
        self._all.nodes.append(node)
        self._all.checked += 1
        return Tensor(self, node.id)

    def copied(self, node: Node, operands: Sequence[Tensor]) -> Tensor:
        """A node of another graph as it stands, on operands of the same types.

        Nothing is inferred again; whoever rewrites graphs keeps the types.
        """
        if node.op in ("input", "param"):
            return self._leaf(node.op, node.name, node.type.shape, node.type.dtype)
        ids = tuple(t.id for t in operands)
        return self._append(node.op, ids, node.attrs, node.type, node.name)

    def set_outputs(self, outputs: Sequence[Tensor]) -> None:
        """Name the results, in the order `run` will return them."""
        doing = f"outputs of graph '{self.name}'"
        found = listed(outputs, doing, "set_outputs([t])")
        for tensor in found:
            if not isinstance(tensor, Tensor) or tensor.graph is not self:
                raise GraphError(
                    doing, f"{short(tensor)} is not a tensor of this graph"
                )
        self._all.outputs = tuple(t.id for t in found)

    @property
    def is_checked(self) -> bool:
        """Did every node come in through a door that runs the op's shape rule?"""
        return self._all.checked == len(self._all.nodes)

    @property
    def outputs(self) -> tuple[int, ...]:
        return self._all.outputs

    def node(self, at: int) -> Node:
        return self._all.nodes[at]

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._all.nodes)

    def tensor(self, at: int) -> Tensor:
        return Tensor(self, at)

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        return tensor.shape

    def named(self, op: str) -> dict[str, Node]:
        """Inputs (`named("input")`) or params (`named("param")`) by name."""
        return {n.name: n for n in self._all.nodes if n.op == op}

    def copy(self) -> Graph:
        """The same nodes and outputs; what is added to one is not in the other."""
        out, now = Graph(self.name), self._all
        log = None if now.log is None else now.log.copy()
        nodes, names = list(now.nodes), dict(now.names)
        out._all = replace(now, nodes=nodes, names=names, log=log)
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
        from_above("save_graph")(self, file, params, outputs)

    @property
    def key(self) -> Hashable:
        """Equal for graphs of equal nodes, names and outputs, by the ops of today."""
        if self._all.log is not None:  # sizes are not compared, but how they are said
            dims = tuple(map(repr, self.dims.values()))
            return self.name, registry.changes, str(self), dims
        nodes = tuple(
            (n.op, n.inputs, n.type, n.name, tuple(map(told_apart, n.attrs.items())))
            for n in self._all.nodes
        )
        return self.name, registry.changes, nodes, self.outputs

    def users(self, at: int | Tensor) -> tuple[int, ...]:
        """Nodes that read node `at`, once per operand they read it as.

        at       number of a node, or its tensor
        Errors   GraphError for a node that the graph does not have.
        """
        node, count = at, len(self._all.nodes)
        if isinstance(at, Tensor) and at.graph is self:
            node = at.id
        if not isinstance(node, SupportsIndex) or not 0 <= index(node) < count:
            raise GraphError(
                f"users of a node of graph '{self.name}'",
                f"it has no node {short(at)}",
                f"it has {count} node{'s' * (count != 1)}, counted from 0",
            )
        at = index(node)
        return tuple(n.id for n in self._all.nodes for i in n.inputs if i == at)

    if not TYPE_CHECKING:  # to a type checker every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError that suggests the method that was meant."""
            parts = [f"{type(self).__name__!r} object has no attribute {name!r}"]
            if not name.startswith("_"):  # what `copy`, `pickle` and NumPy look for
                if type(self) is Graph:
                    parts.append("RLX's method names are those of rlxweb.rlx.Graph")
                public = (one for one in dir(type(self)) if one[0] != "_")
                parts.append(did_you_mean(name, public))
            raise AttributeError("; ".join(part for part in parts if part))

    def __len__(self) -> int:
        return len(self._all.nodes)

    def __repr__(self) -> str:
        count = len(self)
        nodes = f"{count} node{'s' * (count != 1)}"
        return f"Graph({shown(self.name)}: {nodes}, {len(self.outputs)} returned)"

    def __str__(self) -> str:
        lines = [f"  {n}" for n in self._all.nodes]
        back = ", ".join(f"%{i}" for i in self.outputs)
        return "\n".join([f"graph @{self.name} {{", *lines, f"  return {back}", "}"])


def told_apart(attr: tuple[str, Any]) -> Hashable:
    """What 0.0 and -0.0, or 1 and True, do not share."""
    name, value = attr
    return name, type(value), repr(value) if isinstance(value, float) else value


def typed(
    op: Op, types: tuple[TensorType, ...], attrs: Mapping[str, Any], name: str = ""
) -> tuple[dict[str, Any], TensorType]:
    """Canonical attributes and output type; errors get the op and operands as doing."""
    try:
        checked = op.check_attrs(attrs)
        if op.has("floats_only") and not all(t.dtype.is_float for t in types):
            raise bad_dtype(
                "takes floats only", "bf16, f16, f32 or f64", "cast the operand first"
            )
        kind = op.output_type(types, checked)
        as_shape(kind.shape)
    except RlxError as error:
        if not error.doing:
            label = f" '{name}'" if name else ""
            error.doing = f"{op.name}{label} of " + (
                ", ".join(str(t) for t in types) or "no inputs"
            )
        raise
    return checked, kind
