"""What was asked of a graph whose sizes vary, as JSON, and back.

A file of such a graph holds the calls of its methods, as `rlxweb.ir.recording` has
them: a method's name, and values of few kinds. What is read is asked of a graph again,
by the methods that callers use, which check all they are given; no other is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.errors import shown
from rlxweb.graphfile.attributes import DTYPES, float_in
from rlxweb.graphfile.strict_json import Refused
from rlxweb.ir.dim import Dim
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ir.recording import Call, Ref
from rlxweb.ir.size import Extent, Size

Array = npt.NDArray[Any]
Stores = Callable[[Array], dict[str, Any]]
"""An array → what a file says of it."""
Takes = Callable[[Mapping[str, Any]], Array]

MOST_TEXT = 1024
MOST_PARTS = 65_536
MOST_COUNTED = 1 << 22
"""The integers of a call, multiplied: so much a method might make of them."""
_VIEWS = "reshape expand broadcast_to getitem narrow slice".split()
COUNTS_NOTHING = frozenset((*_VIEWS, "input", "param", "constant", "where", "apply"))
"""Methods that make nothing of integers but shapes and numbers, as elementwise ones."""
NOT_STORED = frozenset(("build",))
_RLX_METHODS = frozenset(
    "attention_kind binary compare fft_norm fft_real layer_norm2d ln matmul_with_shape "
    "reduce".split()
)
"""Methods that `Graph` had before `rlxweb.rlx.Graph` took RLX's names."""


def value_out(one: Any, store: Stores) -> Any:
    """A value of a call. Errors  Refused for what no file holds."""

    def out(part: Any) -> Any:
        return value_out(part, store)

    if one is None or isinstance(one, bool | str):
        return one
    if one is Ellipsis:
        return {"ellipsis": True}
    kinds: list[tuple[Any, Callable[[Any], Any]]] = [
        (int | np.integer, int),
        (float, lambda x: {"float": float(x).hex()}),
        (DType | np.dtype, lambda x: {"dtype": as_dtype(x).label}),
        (Ref, lambda x: {"node": x.id}),
        (Size, lambda x: {"size": size_out(x)}),
        (slice, lambda x: {"slice": [out(x.start), out(x.stop), out(x.step)]}),
        (tuple, lambda x: {"tuple": [out(part) for part in x]}),
        (list, lambda x: [out(part) for part in x]),
        (dict, lambda x: {"dict": {str(n): out(part) for n, part in x.items()}}),
        (np.ndarray | np.generic, lambda x: {"array": store(np.asarray(x))}),
    ]
    for kind, how in kinds:
        if isinstance(one, kind):
            return how(one)
    raise Refused(f"a {type(one).__name__} among its arguments", "numbers and arrays")


def size_out(size: Size | int) -> Any:
    """A size: an integer, or the terms of its sum."""
    if not isinstance(size, Size):
        return int(size)
    return [[n, [_atom_out(a) for a in atoms]] for atoms, n in size.terms.values()]


def _atom_out(atom: Any) -> Any:
    if isinstance(atom, Dim):
        return atom.name
    if isinstance(atom, Extent):
        return {"axis": [atom.tensor, atom.axis]}
    return {atom.sign: [size_out(atom.x), size_out(atom.y)]}


def call_out(call: Call, store: Stores) -> dict[str, Any]:
    """One call. Errors  Refused for one that no file holds."""
    if call.method in NOT_STORED:
        rule = "a file holds no code: bind the graph, and save that"
        raise Refused(f"it has a {call.method}() of a Python function", rule)
    return {
        "method": call.method,
        "args": [value_out(one, store) for one in call.args],
        "named": {n: value_out(one, store) for n, one in call.named.items()},
        "made": value_out(call.made, store),
    }


class CallReader:
    """Asks the calls of a file of a graph.

    dims  by name
    take  the arrays that the file says
    """

    def __init__(self, graph: Graph, dims: Mapping[str, Dim], take: Takes) -> None:
        self._graph, self._dims, self._take = graph, dims, take

    def asked(self, given: Any, what: str) -> Call:
        """Do what one call says. Errors  Refused, and those of the methods."""
        if not isinstance(given, dict) or not given.keys() <= {
            *("method", "args", "named", "made", "tensor")
        }:
            raise Refused(f"{what} is {shown(given)}", "method, args, named, made")
        method, args, named = (given.get(k) for k in ("method", "args", "named"))
        is_known = isinstance(method, str) and method in self._graph.BUILDS
        if method in _RLX_METHODS:
            raise Refused(
                f"{what} asks for {method}(), a method that rlxweb.Graph no longer has",
                "methods that add ops: build the graph by rlxweb.rlx.Graph and save it "
                "anew",
            )
        if not is_known or method in NOT_STORED:
            raise Refused(f"{what} asks for {shown(method)}", "methods that add ops")
        assert isinstance(method, str)
        if not isinstance(args, list) or not isinstance(named, dict):
            raise Refused(f"{what} has {shown(args)}", "a list, and values by name")
        values = [self.value(one) for one in args]
        by_name = {name: self.value(one) for name, one in named.items()}
        if _counts(method) and _counted([*values, by_name]) > MOST_COUNTED:
            rule = f"integers that make {MOST_COUNTED:,} elements at most"
            raise Refused(f"{what}, {method}, has large integers", rule)
        before = len(self._graph)
        getattr(self._graph, method)(*values, **by_name)
        log = self._graph.recording
        if log is None:
            raise Refused(f"{what} comes before an input with dims", "such an input")
        if value_out(log.calls[-1].made, _no_array) != given.get("made"):
            problem = f"{what} is said to make {shown(given.get('made'))}"
            raise Refused(problem, f"it makes nodes from %{before} on")
        return log.calls[-1]

    def value(self, given: Any) -> Any:
        """A value as a method takes it. Errors  Refused."""
        if given is None or isinstance(given, bool | int):
            return given
        if isinstance(given, str) and len(given) <= MOST_TEXT:
            return given
        if isinstance(given, list) and len(given) <= MOST_PARTS:
            return [self.value(one) for one in given]
        if not isinstance(given, dict) or len(given) != 1:
            raise Refused(f"a value is {shown(given)}", "one of a known kind")
        ((kind, inner),) = given.items()
        many = inner if isinstance(inner, list) and len(inner) <= MOST_PARTS else None
        if kind == "tuple" and many is not None:
            return tuple(self.value(one) for one in many)
        if kind == "slice" and many is not None and len(many) == 3:
            return slice(*map(self.value, many))
        if kind == "dict" and isinstance(inner, dict):
            return {name: self.value(one) for name, one in inner.items()}
        return self._leaf(kind, inner)

    def _leaf(self, kind: str, inner: Any) -> Any:
        if kind == "float":
            return float_in(inner, "a value")
        if kind == "dtype" and isinstance(inner, str) and inner in DTYPES:
            return DTYPES[inner]
        if kind == "ellipsis" and inner is True:
            return Ellipsis
        if kind == "node":
            return self._graph.tensor(self._node(inner))
        if kind == "size":
            return self.size(inner)
        if kind == "array" and isinstance(inner, dict):
            return self._take(inner)
        raise Refused(
            f"a value is of kind {shown(kind)}: {shown(inner)}", "a known one"
        )

    def _node(self, given: Any) -> int:
        if type(given) is not int or not 0 <= given < len(self._graph):
            rule = f"those before it are 0 to {len(self._graph) - 1}"
            raise Refused(f"a value is node {shown(given)}", rule)
        return given

    def size(self, given: Any) -> Any:
        """A size, or an integer. Errors  Refused."""
        if type(given) is int:
            return given
        total: Any = 0
        if not isinstance(given, list) or not 0 < len(given) <= MOST_TEXT:
            raise Refused(f"a size is {shown(given)}", "a list of terms")
        for term in given:
            match term:
                case [int() as times, list() as atoms] if len(atoms) <= MOST_TEXT:
                    total = total + times * prod(self._atom(one) for one in atoms)
                case _:
                    raise Refused(f"a term is {shown(term)}", "a number and atoms")
        return total

    def _atom(self, given: Any) -> Any:
        match given:
            case str() if given in self._dims:
                return self._dims[given]
            case {"axis": [node, int() as axis]} if len(given) == 1:
                shape: Any = self._graph.node(self._node(node)).type.shape
                if 0 <= axis < len(shape):
                    return shape[axis]
            case {"//": [x, y]} if len(given) == 1:
                return self.size(x) // self.size(y)
            case {"%": [x, y]} if len(given) == 1:
                return self.size(x) % self.size(y)
        raise Refused(
            f"part of a size is {shown(given)}", "a dim, or an axis of a node"
        )


def _no_array(array: Array) -> dict[str, Any]:
    raise Refused("an array among results", "tensors alone")


def _counts(method: str) -> bool:
    """Might a method make as much as its integers say?"""
    is_elementwise = method in registry and registry.get(method).has("elementwise")
    return method not in COUNTS_NOTHING and not is_elementwise


def _counted(value: Any) -> int:
    """The integers that a method is given, multiplied; sizes as they are tried."""
    if isinstance(value, Size):
        return max(1, *map(abs, value.samples))
    if isinstance(value, int) and not isinstance(value, bool):
        return max(1, abs(value))
    parts: Any = ()
    if isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    made = 1
    for part in parts:
        made = min(made * _counted(part), 1 << 63)
    return made


def dim_out(dim: Dim) -> dict[str, Any]:
    """A dim as JSON."""
    low, high, of = dim.ends
    return {"name": dim.name, "min": low, "max": high, "multiple_of": of}


def dim_in(given: Any) -> Dim:
    """Errors  Refused, and those of Dim."""
    if not isinstance(given, dict) or given.keys() != {
        *("name", "min", "max", "multiple_of")
    }:
        raise Refused(f"a dim is {shown(given)}", "name, min, max, multiple_of")
    ends = [given[key] for key in ("min", "max", "multiple_of")]
    if any(type(end) is not int for end in ends if end is not None):
        raise Refused(f"a dim is {shown(given)}", "whole numbers")
    if any(abs(end) >= 1 << 40 for end in ends if end is not None):
        raise Refused(f"a dim is {shown(given)}", "numbers below 2^40")
    if not isinstance(given["name"], str) or len(given["name"]) > MOST_TEXT:
        raise Refused(f"a dim is {shown(given)}", "a name")
    return Dim(given["name"], *ends)
