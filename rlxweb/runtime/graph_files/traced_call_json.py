"""Conversion of the traced calls of a graph with dynamic shapes to JSON and back.

A file of such a graph holds the calls of its methods, as `rlxweb.ir.builder_call_trace`
has them: a method's name, and values of few kinds. What is read is asked of a graph
again, by the methods that callers use, which check all they are given; no other is
called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import shown
from rlxweb.ir.builder_call_trace import TensorRef, TracedCall
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ir.sym_int import SymAxisLength, SymInt
from rlxweb.ir.symbolic_dim import Dim
from rlxweb.runtime.graph_files.attribute_json import DTYPE_BY_LABEL, float_from_json
from rlxweb.runtime.graph_files.strict_json import FormatViolation

Array = npt.NDArray[Any]
ArrayWriter = Callable[[Array], dict[str, Any]]
"""Function that stores an array and returns the JSON that refers to it."""
ArrayReader = Callable[[Mapping[str, Any]], Array]

MAX_TEXT_LENGTH = 1024
MAX_ITEMS = 65_536
MAX_INTEGER_PRODUCT = 1 << 22
"""Largest product of a call's integers, which bounds how much a method can build from
them.
"""
_VIEW_METHODS = "reshape expand broadcast_to getitem narrow slice".split()
FIXED_COST_METHODS = frozenset(
    (*_VIEW_METHODS, "input", "param", "constant", "where", "apply")
)
"""Methods that use integers only for shapes and values, as elementwise ones do."""
UNSTORABLE_METHODS = frozenset(("build",))
_REMOVED_METHODS = frozenset(
    "attention_kind binary compare fft_norm fft_real layer_norm2d ln matmul_with_shape "
    "reduce".split()
)
"""Methods that `Graph` had before `rlxweb.rlx.Graph` took RLX's names."""


def value_to_json(value: Any, store_array: ArrayWriter) -> Any:
    """Return a call's argument or result as JSON; raises FormatViolation for what no
    file holds.
    """

    def encode(item: Any) -> Any:
        return value_to_json(item, store_array)

    if value is None or isinstance(value, bool | str):
        return value
    if value is Ellipsis:
        return {"ellipsis": True}
    encoders: list[tuple[Any, Callable[[Any], Any]]] = [
        (int | np.integer, int),
        (float, lambda x: {"float": float(x).hex()}),
        (DType | np.dtype, lambda x: {"dtype": as_dtype(x).label}),
        (TensorRef, lambda x: {"node": x.id}),
        (SymInt, lambda x: {"size": size_to_json(x)}),
        (slice, lambda x: {"slice": [encode(x.start), encode(x.stop), encode(x.step)]}),
        (tuple, lambda x: {"tuple": [encode(item) for item in x]}),
        (list, lambda x: [encode(item) for item in x]),
        (dict, lambda x: {"dict": {str(n): encode(item) for n, item in x.items()}}),
        (np.ndarray | np.generic, lambda x: {"array": store_array(np.asarray(x))}),
    ]
    for kind, encoder in encoders:
        if isinstance(value, kind):
            return encoder(value)
    raise FormatViolation(
        f"an argument is a {type(value).__name__}",
        "a file can store only numbers, strings, dtypes, tensors and arrays",
    )


def size_to_json(size: SymInt | int) -> Any:
    """Return a size as JSON: an integer, or the terms of its sum."""
    if not isinstance(size, SymInt):
        return int(size)
    return [
        [factor, [_atom_to_json(atom) for atom in atoms]]
        for atoms, factor in size.terms.values()
    ]


def _atom_to_json(atom: Any) -> Any:
    """Return one factor of a symbolic size as JSON."""
    if isinstance(atom, Dim):
        return atom.name
    if isinstance(atom, SymAxisLength):
        return {"axis": [atom.tensor_id, atom.axis]}
    return {atom.op: [size_to_json(atom.x), size_to_json(atom.y)]}


def call_to_json(call: TracedCall, store_array: ArrayWriter) -> dict[str, Any]:
    """Return one call as JSON; raises FormatViolation for one that no file holds."""
    if call.method in UNSTORABLE_METHODS:
        problem = f"the graph calls {call.method}() with a Python function"
        rule = "a file cannot store code; bind the graph, and save the bound graph"
        raise FormatViolation(problem, rule)
    return {
        "method": call.method,
        "args": [value_to_json(value, store_array) for value in call.args],
        "named": {
            n: value_to_json(value, store_array) for n, value in call.kwargs.items()
        },
        "made": value_to_json(call.results, store_array),
    }


class TracedCallReplayer:
    """Replays the calls of a file on a graph.

    dims  by name
    take  the arrays that the file says
    """

    def __init__(
        self, graph: Graph, dims: Mapping[str, Dim], take: ArrayReader
    ) -> None:
        self._graph, self._dims, self._load_array = graph, dims, take

    def replay(self, data: Any, subject: str) -> TracedCall:
        """Make the call on the graph and return its record; raises FormatViolation and
        the method's errors.
        """
        if not isinstance(data, dict) or not data.keys() <= {
            *("method", "args", "named", "made", "tensor")
        }:
            raise FormatViolation(
                f"{subject} is {shown(data)}",
                "expected an object with the keys 'method', 'args', 'named' and "
                "'made', and, for a param, also 'tensor'",
            )
        method, args, named = (data.get(k) for k in ("method", "args", "named"))
        is_known = isinstance(method, str) and method in type(self._graph).BUILDS
        if method in _REMOVED_METHODS:
            raise FormatViolation(
                f"{subject} calls {method}(), which rlxweb.Graph no longer has",
                "only methods of rlxweb.Graph are allowed; build the graph with "
                "rlxweb.rlx.Graph and save it again",
            )
        if not is_known or method in UNSTORABLE_METHODS:
            raise FormatViolation(
                f"{subject} has the method {shown(method)}",
                "only methods that add ops are allowed",
            )
        assert isinstance(method, str)
        if not isinstance(args, list) or not isinstance(named, dict):
            invalid = ("args", args) if not isinstance(args, list) else ("named", named)
            raise FormatViolation(
                f"{invalid[0]!r} of {subject} is {shown(invalid[1])}",
                "'args' must be a list, and 'named' an object",
            )
        arguments = [self.read_value(value) for value in args]
        keyword_arguments = {
            name: self.read_value(value) for name, value in named.items()
        }
        if (
            _scales_with_integers(method)
            and _integer_product([*arguments, keyword_arguments]) > MAX_INTEGER_PRODUCT
        ):
            problem = f"{subject} ({method}) has integers that are too large"
            rule = (
                f"the product of the integers must be at most {MAX_INTEGER_PRODUCT:,}"
            )
            raise FormatViolation(problem, rule)
        first_node = len(self._graph)
        getattr(self._graph, method)(*arguments, **keyword_arguments)
        trace = self._graph.recording
        if trace is None:
            raise FormatViolation(
                f"{subject} comes before any input with dims",
                "an input with dims must come first",
            )
        if value_to_json(trace.calls[-1].results, _reject_array) != data.get("made"):
            problem = f"{subject} declares the results {shown(data.get('made'))}"
            rule = "expected the nodes that this call creates, numbered from "
            rule += f"%{first_node}"
            raise FormatViolation(problem, rule)
        return trace.calls[-1]

    def read_value(self, data: Any) -> Any:
        """Return a value as a method takes it; raises FormatViolation."""
        if data is None or isinstance(data, bool | int):
            return data
        if isinstance(data, str) and len(data) <= MAX_TEXT_LENGTH:
            return data
        if isinstance(data, list) and len(data) <= MAX_ITEMS:
            return [self.read_value(item) for item in data]
        if not isinstance(data, dict) or len(data) != 1:
            problem = f"a value is {shown(data)}"
            rule = (
                "expected null, a bool, an integer, a string of at most "
                f"{MAX_TEXT_LENGTH:,} characters, a list of at most {MAX_ITEMS:,} "
                "items, or an object whose only key is the kind of the value"
            )
            raise FormatViolation(problem, rule)
        ((kind, content),) = data.items()
        items = (
            content if isinstance(content, list) and len(content) <= MAX_ITEMS else None
        )
        if kind == "tuple" and items is not None:
            return tuple(self.read_value(item) for item in items)
        if kind == "slice" and items is not None and len(items) == 3:
            return slice(*map(self.read_value, items))
        if kind == "dict" and isinstance(content, dict):
            return {name: self.read_value(item) for name, item in content.items()}
        return self._read_leaf(kind, content)

    def _read_leaf(self, kind: str, content: Any) -> Any:
        """Return a value that holds no others."""
        if kind == "float":
            return float_from_json(content, "a value")
        if kind == "dtype" and isinstance(content, str) and content in DTYPE_BY_LABEL:
            return DTYPE_BY_LABEL[content]
        if kind == "ellipsis" and content is True:
            return Ellipsis
        if kind == "node":
            return self._graph.tensor(self._read_node_id(content))
        if kind == "size":
            return self.read_size(content)
        if kind == "array" and isinstance(content, dict):
            return self._load_array(content)
        raise FormatViolation(
            f"a value has kind {shown(kind)} and content {shown(content)}",
            "expected valid content of one of the kinds array, dict, dtype, "
            "ellipsis, float, node, size, slice or tuple",
        )

    def _read_node_id(self, data: Any) -> int:
        """Return the id of a node that exists already."""
        if type(data) is not int or not 0 <= data < len(self._graph):
            rule = (
                f"only the {len(self._graph):,} nodes created so far, numbered from 0, "
                "can be used"
            )
            raise FormatViolation(f"a value refers to node {shown(data)}", rule)
        return data

    def read_size(self, data: Any) -> Any:
        """Return a symbolic size, or an integer; raises FormatViolation."""
        if type(data) is int:
            return data
        total: Any = 0
        if not isinstance(data, list) or not 0 < len(data) <= MAX_TEXT_LENGTH:
            raise FormatViolation(
                f"a size is {shown(data)}",
                f"expected an integer or a list of 1 to {MAX_TEXT_LENGTH:,} terms",
            )
        for term in data:
            match term:
                case [int() as factor, list() as atoms] if (
                    len(atoms) <= MAX_TEXT_LENGTH
                ):
                    total = total + factor * prod(
                        self._read_atom(atom) for atom in atoms
                    )
                case _:
                    raise FormatViolation(
                        f"a term is {shown(term)}",
                        "expected an integer and a list of at most "
                        f"{MAX_TEXT_LENGTH:,} factors",
                    )
        return total

    def _read_atom(self, data: Any) -> Any:
        """Return one factor of a symbolic size; raises FormatViolation."""
        match data:
            case str() if data in self._dims:
                return self._dims[data]
            case {"axis": [node, int() as axis]} if len(data) == 1:
                shape: Any = self._graph.node(self._read_node_id(node)).type.shape
                if 0 <= axis < len(shape):
                    return shape[axis]
            case {"//": [x, y]} if len(data) == 1:
                return self.read_size(x) // self.read_size(y)
            case {"%": [x, y]} if len(data) == 1:
                return self.read_size(x) % self.read_size(y)
        raise FormatViolation(
            f"a factor of a size is {shown(data)}",
            "expected a dim, an axis of a node, a quotient (//) or a remainder (%)",
        )


def _reject_array(array: Array) -> dict[str, Any]:
    """Raise FormatViolation: a call's results hold no arrays."""
    raise FormatViolation("a call returns an array", "results must be tensors")


def _scales_with_integers(method: str) -> bool:
    """Return whether a method may build as much as its integers say."""
    is_elementwise = method in registry and registry.get(method).has_trait(
        "elementwise"
    )
    return method not in FIXED_COST_METHODS and not is_elementwise


def _integer_product(value: Any) -> int:
    """Return the product of the integers that a method is given; sizes count by their
    samples.
    """
    if isinstance(value, SymInt):
        return max(1, *map(abs, value.samples))
    if isinstance(value, int) and not isinstance(value, bool):
        return max(1, abs(value))
    items: Any = ()
    if isinstance(value, list | tuple):
        items = value
    elif isinstance(value, dict):
        items = value.values()
    product = 1
    for item in items:
        product = min(product * _integer_product(item), 1 << 63)
    return product


def dim_to_json(dim: Dim) -> dict[str, Any]:
    """Return a dim as JSON."""
    low, high, multiple = dim.ends
    return {"name": dim.name, "min": low, "max": high, "multiple_of": multiple}


def dim_from_json(data: Any) -> Dim:
    """Return the dim of its JSON; raises FormatViolation, and the errors of Dim."""
    if not isinstance(data, dict) or data.keys() != {
        *("name", "min", "max", "multiple_of")
    }:
        problem = f"a dim is {shown(data)}"
        rule = "expected an object with the keys name, min, max and multiple_of"
        raise FormatViolation(problem, rule)
    ends = [data[key] for key in ("min", "max", "multiple_of")]
    if any(type(end) is not int for end in ends if end is not None):
        rule = "min, max and multiple_of must be integers or null"
        raise FormatViolation(f"a dim is {shown(data)}", rule)
    if any(abs(end) >= 1 << 40 for end in ends if end is not None):
        rule = "min, max and multiple_of must be below 2^40 in absolute value"
        raise FormatViolation(f"a dim is {shown(data)}", rule)
    if not isinstance(data["name"], str) or len(data["name"]) > MAX_TEXT_LENGTH:
        rule = f"name must be a string of at most {MAX_TEXT_LENGTH:,} characters"
        raise FormatViolation(f"a dim is {shown(data)}", rule)
    return Dim(data["name"], *ends)
