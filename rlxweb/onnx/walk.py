"""The walk through a model: node by node into a draft, what is missing told at once.

Only nodes that the wanted outputs need are looked at. A node is converted by its
converter, by the model's own function of that name, or by the function that ONNX
defines it by; a node that none of them knows is noted, with what comes after it, and at
the end one error names them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlxweb.errors import (
    MissingOps,
    ModelError,
    OutOfMemory,
    RlxError,
    Unsupported,
    shown,
)
from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import library
from rlxweb.onnx.converters import Call, Registered, Value, converter_of
from rlxweb.onnx.draft import Draft, ours
from rlxweb.onnx.narrow import IN_BYTES, Narrow, in_bytes
from rlxweb.onnx.reading import read_function
from rlxweb.onnx.records import (
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    Ref,
    Weight,
)

DEEPEST_CALLS = 64
"""Functions that call each other, at most."""
MOST_NODES = 500_000
"""What a model is laid out to: bodies at each turn, functions at each call."""

_WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _Lacks(Exception):  # not an error by itself: the walk goes on and counts
    """A body gives what a missing op would have given."""


class _Gone:
    """The value of what a missing op would have given."""

    def __repr__(self) -> str:
        return "missing"


GONE = _Gone()


@dataclass(frozen=True)
class Scope:
    """The names that a graph or a function sees.

    values   by name; an inner graph has a copy and adds to it
    attrs    of the call of a function: what `Ref`s in its body mean
    opsets   versions by domain
    within   the calls that led here, for messages
    deep     how many of them
    """

    values: dict[str, Value]
    opsets: Mapping[str, int]
    attrs: Mapping[str, Any] | None = None
    within: str = ""
    deep: int = 0

    def value(self, name: str, doing: str) -> Value:
        if name not in self.values:
            raise ModelError(
                doing, f"{shown(name)} is used before anything gives it", _SORTED
            )
        return self.values[name]


_SORTED = "the nodes of a model stand in the order in which they compute"


@dataclass
class Walk:
    """One conversion of a model into a draft.

    missing  for each op that nothing converts, the places where it stands
    count    of the nodes gone through
    whole    the functions, by domain and name, in which nothing is missing
    """

    model: ModelRecord
    g: Draft
    doing: str
    missing: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0
    whole: set[tuple[str, str]] = field(default_factory=set)

    def outputs(self, given: Mapping[str, Value]) -> list[Value]:
        """The values of the model's outputs.

        given   of the model's inputs
        Errors  MissingOps, NeedsValues, ModelError, and those of shape rules.
        """
        scope = Scope(dict(given), self.model.opsets)
        outs = self._graph(self.model.graph, scope)
        if self.missing:
            raise MissingOps(self.doing, self.missing)
        return outs

    def _graph(self, graph: GraphRecord, scope: Scope) -> list[Value]:
        for name, weight in graph.weights.items():
            scope.values[name] = self._weight(weight)
        wanted = [v.name for v in graph.outputs]
        self._nodes(graph.nodes, wanted, scope)
        return [scope.value(name, f"{self.doing}, its outputs") for name in wanted]

    def _weight(self, weight: Weight) -> Value:
        if weight.dtype.name in IN_BYTES:
            return Narrow(self.g.weight(in_bytes(weight)), weight.dtype)
        return weight.array if ours(weight.dtype) is None else self.g.weight(weight)

    def _nodes(
        self, nodes: Sequence[NodeRecord], wanted: Sequence[str], scope: Scope
    ) -> None:
        for node in needed(nodes, wanted):
            outs = self._node(node, scope)
            for name, value in zip(node.outputs, outs, strict=False):
                if name:
                    scope.values[name] = value

    def _step(self) -> None:
        """One more node. Errors  Unsupported where there is no end of them."""
        self.count += 1
        if self.count > MOST_NODES:
            raise Unsupported(
                self.doing,
                f"laid out it has more than {MOST_NODES:,} nodes",
                "bodies are laid out at each turn, functions at each call",
            )

    def _node(self, node: NodeRecord, scope: Scope) -> Sequence[Value]:
        self._step()
        if scope.attrs is not None:
            node = replace(node, attrs=bound(node.attrs, scope.attrs))
        doing = f"{self.doing}, {scope.within}{node.place}, {node.label}"
        version = scope.opsets.get(node.domain, 0)
        values = [scope.value(n, doing) if n else None for n in node.inputs]
        if any(_is_gone(v) for v in values):
            if self._is_there(node, version):
                self._look_within(node, scope)
                return [GONE] * len(node.outputs)
            return self._note(node, version, scope)
        own = self.model.functions.get((node.domain, node.op))
        convert = None if own else converter_of(node.op, node.domain, version)
        if convert is None:
            own = own or self._defined(node, version, values)
            if own is None:
                return self._note(node, version, scope)
            return self._called(own, node, values, scope)
        try:
            outs = self._converted(convert, node, version, values, scope, doing)
        except _Lacks:
            return [GONE] * len(node.outputs)
        if len(outs) < sum(map(bool, node.outputs)):
            wanted = f"{len(node.outputs)} outputs are wanted, {len(outs)} are there"
            raise ModelError(doing, wanted)
        return outs

    def _converted(
        self,
        how: Registered,
        node: NodeRecord,
        version: int,
        values: list[Value],
        scope: Scope,
        doing: str,
    ) -> tuple[Value, ...]:
        def inner(body: GraphRecord, given: Sequence[Value]) -> list[Value]:
            return self.body(body, given, scope)

        call = Call(self.g, node, version, inner, doing)
        self._check(how, node, values, call)
        try:
            made = how.convert(call, *values, **node.attrs)
        except RlxError as error:
            if not error.doing.startswith(self.doing):
                error.doing = f"{doing}: {error.doing}" if error.doing else doing
            raise
        except MemoryError as error:
            problem = f"the host's memory is not enough for it: {error}"
            raise OutOfMemory(doing, problem) from None
        except _WRONG as error:  # what no converter looked for
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise ModelError(doing, "it cannot be converted", said) from error
        return made if isinstance(made, tuple) else (made,)

    def _check(
        self, how: Registered, node: NodeRecord, values: list[Value], call: Call
    ) -> None:
        """Inputs as many as it takes, attributes that it knows."""
        while values and values[-1] is None and len(values) > how.least:
            values.pop()
        if how.most is not None and len(values) > how.most:
            call.contradict(f"{len(values)} inputs", f"it takes at most {how.most}")
        values += [None] * (how.least - len(values))
        needed = [at for at in range(how.least) if at not in how.optional]
        given = sum(values[at] is not None for at in needed)
        if given < len(needed):
            call.contradict(f"{given} inputs are given", f"it needs {len(needed)}")
        for at, value in enumerate(values):
            if value is not None and not how.takes_anything(at):
                _check_tensor(call, at, value)
        if how.attrs is not None and (more := node.attrs.keys() - how.attrs):
            name = min(more)
            call.refuse(
                f"attribute {name}={shown(node.attrs[name])} is not known for it",
                "known: " + (", ".join(sorted(how.attrs)) or "none"),
            )

    def body(
        self, body: GraphRecord, given: Sequence[Value], scope: Scope
    ) -> list[Value]:
        """A body's outputs, for values of its inputs; it sees the names outside it."""
        if len(given) != len(body.inputs):
            raise ModelError(
                f"{self.doing}, body {shown(body.name)}",
                f"it declares {len(body.inputs)} inputs, {len(given)} are given",
            )
        names = dict(zip((d.name for d in body.inputs), given, strict=True))
        outs = self._graph(body, replace(scope, values={**scope.values, **names}))
        if any(_is_gone(one) for one in outs):
            raise _Lacks
        return outs

    def _called(
        self,
        function: FunctionRecord,
        node: NodeRecord,
        values: Sequence[Value],
        scope: Scope,
    ) -> list[Value]:
        """A call of a function, done by its body."""
        within = f"{scope.within}{node.place} ({node.label}), "
        if scope.deep >= DEEPEST_CALLS:
            raise ModelError(
                f"{self.doing}, {shown(function.name)}",
                f"functions call each other {scope.deep} deep",
                f"at most {DEEPEST_CALLS}; do they call themselves?",
            )
        given: dict[str, Value] = dict.fromkeys(function.inputs)
        given.update(zip(function.inputs, values, strict=False))
        attrs = {**function.attrs, **node.attrs}
        # A function of ONNX's own may leave out the domain that all models have.
        opsets = {**scope.opsets, **function.opsets}
        inner = Scope(given, opsets, attrs, within, scope.deep + 1)
        outs = [o for o, n in zip(function.outputs, node.outputs, strict=False) if n]
        self._nodes(function.nodes, outs, inner)
        return [
            inner.value(o, within) if n else None
            for o, n in zip(function.outputs, node.outputs, strict=False)
        ]

    def _defined(
        self, node: NodeRecord, version: int, values: Sequence[Value]
    ) -> FunctionRecord | None:
        """The function that ONNX defines the op by, for inputs of these types."""
        if not library.is_function(node.op, node.domain, version):
            return None
        types = [_type_message(v) for v in values]
        message = library.with_attributes(node.written, node.attrs)
        body = library.body_of(message, version, types)
        if body is None:
            return None
        return read_function(body, None, f"{self.doing}, {node.label}")

    def _note(self, node: NodeRecord, version: int, scope: Scope) -> list[Value]:
        """Keep in mind that an op is missing."""
        self._look_within(node, scope)
        domain = node.domain or "ai.onnx"
        name = f"{domain}.{node.op} (opset {version})"
        if not version:
            name = f"{domain}.{node.op} (of a domain that the model does not import)"
        self.missing.setdefault(name, []).append(f"{scope.within}{node.place}")
        return [GONE] * len(node.outputs)

    def look(self) -> dict[str, list[str]]:
        """What is missing, found without any types: in every branch and body.

        An op that ONNX defines by others only for some types counts as there.
        """
        scope = Scope({}, self.model.opsets)
        graph = self.model.graph
        for node in needed(graph.nodes, [v.name for v in graph.outputs]):
            self._look_at(node, scope)
        return self.missing

    def _look_at(self, node: NodeRecord, scope: Scope) -> None:
        self._step()
        version = scope.opsets.get(node.domain, 0)
        own = self.model.functions.get((node.domain, node.op))
        if not self._is_there(node, version):
            self._note(node, version, scope)
        elif own is not None and scope.deep < DEEPEST_CALLS:
            self._look_into(own, node, scope)
        else:
            self._look_within(node, scope)

    def _look_into(
        self, function: FunctionRecord, node: NodeRecord, scope: Scope
    ) -> None:
        """Note what is missing in a function, which is looked at once if nothing is."""
        key = function.domain, function.name
        if key in self.whole:
            return
        within = f"{scope.within}{node.place} ({node.label}), "
        inner = Scope({}, function.opsets, {}, within, scope.deep + 1)
        before = sum(map(len, self.missing.values()))
        for one in function.nodes:
            self._look_at(one, inner)
        if sum(map(len, self.missing.values())) == before:
            self.whole.add(key)

    def _look_within(self, node: NodeRecord, scope: Scope) -> None:
        """Note what is missing in the bodies of a node that is not converted."""
        for body in node.attrs.values():
            if isinstance(body, GraphRecord):
                for one in body.nodes:
                    self._look_at(one, scope)

    def _is_there(self, node: NodeRecord, version: int) -> bool:
        return (
            (node.domain, node.op) in self.model.functions
            or converter_of(node.op, node.domain, version) is not None
            or library.is_function(node.op, node.domain, version)
        )


def _check_tensor(call: Call, at: int, value: Value) -> None:
    """An input that has to be a tensor of a type of ours."""
    if isinstance(value, list):
        call.contradict(f"input {at} is a sequence", "a tensor is wanted")
    if not isinstance(value, Tensor):
        kind = "text" if value.dtype.kind in "OUS" else value.dtype
        types = ", ".join(d.value for d in DType)
        call.refuse(f"input {at} is {kind}", f"rlxweb's types are {types}")


def _is_gone(value: Value) -> bool:
    if isinstance(value, list):
        return any(_is_gone(v) for v in value)
    return value is GONE


def _type_message(value: Value) -> Any:
    """The type of a value as a message, for the choice of a function."""
    if isinstance(value, Tensor):
        return library.tensor_type(value.dtype.numpy, value.shape)
    if isinstance(value, np.ndarray | Narrow):
        return library.tensor_type(value.dtype, value.shape)
    if isinstance(value, list) and value:
        return library.sequence_type(_type_message(value[0]))
    return library.no_type()


def bound(attrs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a node of a function, `Ref`s replaced by what the call gives.

    One that the call does not give and that has no default is left out.
    """
    out = {}
    for name, value in attrs.items():
        if isinstance(value, Ref):
            value = given.get(value.name)
            if value is None:
                continue
        out[name] = value
    return out


def needed(nodes: Sequence[NodeRecord], wanted: Sequence[str]) -> Sequence[NodeRecord]:
    """The nodes, in their order, that these names need."""
    names, kept = set(wanted), []
    for node in reversed(nodes):
        if names.isdisjoint(node.outputs):
            continue
        kept.append(node)
        names.update(node.inputs, captured(node))
    return kept[::-1]


def captured(node: NodeRecord) -> Iterator[str]:
    """Every name that the bodies of a node use, their own among them."""
    for body in node.attrs.values():
        if isinstance(body, GraphRecord):
            yield from (v.name for v in body.outputs)
            for one in body.nodes:
                yield from one.inputs
                yield from captured(one)


def missing_in(model: ModelRecord) -> dict[str, tuple[str, ...]]:
    """The ops of a model that nothing converts, each with its places."""
    found = Walk(model, Draft("missing"), "look for missing ops").look()
    return {name: tuple(places) for name, places in found.items()}
