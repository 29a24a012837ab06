"""How our ops are said with those of ONNX: the table, and what writes a graph down.

An op that is exactly one of ONNX needs nothing but its name there (`Op.onnx`). Any
other has a form, registered under our name in one of the files of FORMS:

    @writes("rsqrt")
    def _rsqrt(w: Writer, node: Node, x: str) -> str:
        return w.add("Reciprocal", w.add("Sqrt", x))

A form gets the names of the operands and gives the name of the result. An op without a
form is written as the ops that it is composed of; one that only moves elements, as a
table of their places. What is left cannot be written, and is told by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import View
from rlxweb.ir.op import TensorType, registry
from rlxweb.onnx import library

Array = npt.NDArray[Any]
Form = Callable[..., str]

FORMS = ("written_math", "written_moves", "written_nn", "written_quantized")
MOST_PLACES = 1 << 20
"""Elements of a table of places; a larger one is not worth a file."""

_forms: dict[str, tuple[Form, Callable[[Writer, Node], bool]]] = {}


def writes(
    *ops: str,
    only: Callable[[Writer, Node], bool] = lambda w, node: True,
) -> Callable[[Form], Form]:
    """Register a form for ops of ours by name.

    only  says of which nodes it is one, by the types of their operands and the version
          that is written
    """

    def register(form: Form) -> Form:
        _forms.update(dict.fromkeys(ops, (form, only)))
        return form

    return register


@cache
def _loaded() -> None:
    for name in FORMS:
        import_module(f"rlxweb.onnx.{name}")


@dataclass
class Writer:
    """A graph on its way into ONNX.

    graph    where the types of operands are looked up
    opset    the version that is written
    nodes    messages, in order
    weights  arrays by name
    taken    names that values have already
    """

    graph: Graph
    opset: int
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    _count: int = 0

    def name(self) -> str:
        """A name that nothing has."""
        while True:
            self._count += 1
            name = f"v{self._count}"
            if name not in self.taken:
                return name

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A node of ONNX; the name of its first output."""
        return self.several(op, 1, *inputs, **attrs)[0]

    def several(self, op: str, outputs: int, *inputs: str, **attrs: Any) -> list[str]:
        """A node of several outputs; those that nobody names are still there."""
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(library.made_node(op, inputs, names, attrs))
        return names

    def hold(self, array: Any, dtype: Any = None) -> str:
        """A known array."""
        name = self.name()
        self.weights[name] = np.asarray(array, dtype)
        return name

    def ints(self, *values: int) -> str:
        """Integers as ONNX wants them for shapes and axes."""
        return self.hold(np.array(values, np.int64))

    def like(self, value: float, kind: TensorType) -> str:
        """One number in the type of an operand."""
        return self.hold(np.array(value), kind.dtype.numpy)

    def cast(self, x: str, dtype: DType) -> str:
        return self.add("Cast", x, to=library.number_of(dtype.numpy))

    def type_of(self, node: Node, at: int = 0) -> TensorType:
        """The type of an operand."""
        return self.graph.node(node.inputs[at]).type

    def shape(self, x: str, dims: Sequence[int]) -> str:
        """Under another shape, in which 0 is 0."""
        return self.add("Reshape", x, self.ints(*dims), allowzero=1)


def form_of(w: Writer, node: Node) -> Form | None:
    """How a node is written; None: not as it stands."""
    _loaded()
    found = _forms.get(node.op)
    if found is not None and found[1](w, node):
        return found[0]
    op = registry.get(node.op)
    if op.onnx and library.has_op(op.onnx[0], "", w.opset):
        return _exactly
    if isinstance(op.lower, View) and is_small(w, node):
        return by_places
    return None


def _exactly(w: Writer, node: Node, *operands: str) -> str:
    name = registry.get(node.op).onnx[0]
    return w.add(name, *operands, **plain(node.attrs))


def plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as ONNX has them: bools are numbers."""
    return {n: int(v) if isinstance(v, bool) else v for n, v in attrs.items()}


def is_small(w: Writer, node: Node) -> bool:
    """Is a table of places for it worth a file?"""
    return node.type.numel <= MOST_PLACES


def by_places(w: Writer, node: Node, x: str) -> str:
    """An op that only moves elements: each by its place in the flat operand."""
    kind = w.type_of(node)
    places = np.arange(kind.numel, dtype=np.int64).reshape(kind.shape)
    table = registry.get(node.op).reference(np, dict(node.attrs), places)
    return w.add("Gather", w.shape(x, (-1,)), w.hold(table, np.int64), axis=0)


def by_places_or_value(w: Writer, node: Node, x: str) -> str:
    """The same for an op that puts its `value` where no element goes."""
    kind = w.type_of(node)
    places = np.arange(kind.numel, dtype=np.int64).reshape(kind.shape)
    attrs = {**node.attrs, "value": -1.0}
    table = np.asarray(registry.get(node.op).reference(np, attrs, places))
    value = w.shape(w.like(node.attrs["value"], kind), (1,))
    flat = w.add("Concat", w.shape(x, (kind.numel,)), value, axis=0)
    at = w.hold(np.where(table < 0, kind.numel, table), np.int64)
    return w.add("Gather", flat, at, axis=0)
