"""Conversion of a model node by node into a draft graph; all missing ops are reported
at once.

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

from rlxweb.core.errors import (
    MissingOps,
    ModelError,
    OutOfMemory,
    RlxError,
    Unsupported,
    shown,
)
from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.constant_folding_graph import FoldingGraph, rlx_dtype_or_none
from rlxweb.onnx.converter_registry import (
    ConversionContext,
    RegisteredConverter,
    Value,
    find_converter,
)
from rlxweb.onnx.model_reader import read_function
from rlxweb.onnx.model_records import (
    AttributeRef,
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    Weight,
)
from rlxweb.onnx.sub_byte import STORAGE_DTYPES, SubByteTensor, unpack_weight

MAX_CALL_DEPTH = 64
"""Maximum nesting depth of function calls."""
MAX_NODES = 500_000
"""Maximum number of converted nodes, loop bodies and functions expanded."""

_CONVERTER_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class _MissingOpInBody(
    Exception
):  # not an error by itself: the walk goes on and counts
    """Raised when a body's output depends on a missing op."""


class _MissingValue:
    """Placeholder for a value that a missing op would have computed."""

    def __repr__(self) -> str:
        return "missing"


MISSING_VALUE = _MissingValue()


@dataclass(frozen=True)
class NameScope:
    """Names that a graph or a function sees.

    values   by name; an inner graph has a copy and adds to it
    attrs    of the call of a function: what `AttributeRef`s in its body mean
    opsets   versions by domain
    call_path  the calls that led here, for messages
    call_depth  how many of them
    """

    values: dict[str, Value]
    opsets: Mapping[str, int]
    attrs: Mapping[str, Any] | None = None
    call_path: str = ""
    call_depth: int = 0

    def look_up(self, name: str, context: str) -> Value:
        """Return a value by name. Raises ModelError if it is used before it is
        computed.
        """
        if name not in self.values:
            raise ModelError(
                context,
                f"{shown(name)} is not computed by an earlier node",
                _ORDER_RULE,
            )
        return self.values[name]


_ORDER_RULE = "nodes must be listed in the order of computation"


@dataclass
class ModelConversion:
    """One conversion of a model into a draft graph.

    missing_ops  for each op that nothing converts, the places where it stands
    node_count  of the nodes gone through
    complete_functions  the functions, by domain and name, in which nothing is missing
    """

    model: ModelRecord
    draft: FoldingGraph
    context: str
    missing_ops: dict[str, list[str]] = field(default_factory=dict)
    node_count: int = 0
    complete_functions: set[tuple[str, str]] = field(default_factory=set)

    def convert_outputs(self, inputs: Mapping[str, Value]) -> list[Value]:
        """Convert the model and return the values of its outputs.

        inputs  of the model's inputs
        Errors  MissingOps, NeedsValues, ModelError, and those of shape rules.
        """
        scope = NameScope(dict(inputs), self.model.opsets)
        output_values = self._convert_graph(self.model.graph, scope)
        if self.missing_ops:
            raise MissingOps(self.context, self.missing_ops)
        return output_values

    def _convert_graph(self, graph: GraphRecord, scope: NameScope) -> list[Value]:
        """Convert a graph in a scope and return the values of its outputs."""
        for name, weight in graph.weights.items():
            scope.values[name] = self._convert_weight(weight)
        output_names = [v.name for v in graph.outputs]
        self._convert_nodes(graph.nodes, output_names, scope)
        return [
            scope.look_up(name, f"{self.context}, outputs") for name in output_names
        ]

    def _convert_weight(self, weight: Weight) -> Value:
        """Return the draft's value for a weight; packed types and types that rlxweb
        lacks are handled separately.
        """
        if weight.dtype.name in STORAGE_DTYPES:
            return SubByteTensor(
                self.draft.add_weight(unpack_weight(weight)), weight.dtype
            )
        return (
            weight.array
            if rlx_dtype_or_none(weight.dtype) is None
            else self.draft.add_weight(weight)
        )

    def _convert_nodes(
        self, nodes: Sequence[NodeRecord], wanted: Sequence[str], scope: NameScope
    ) -> None:
        """Convert the nodes that the wanted names need, and add their outputs to the
        scope.
        """
        for node in needed_nodes(nodes, wanted):
            output_values = self._convert_node(node, scope)
            for name, value in zip(node.outputs, output_values, strict=False):
                if name:
                    scope.values[name] = value

    def _count_node(self) -> None:
        """Count one more node. Raises Unsupported above MAX_NODES."""
        self.node_count += 1
        if self.node_count > MAX_NODES:
            raise Unsupported(
                self.context,
                f"the model expands to more than {MAX_NODES:,} nodes",
                "a loop body is copied for each iteration, a function for each call",
            )

    def _convert_node(self, node: NodeRecord, scope: NameScope) -> Sequence[Value]:
        """Convert one node by its converter, by a function of the model, or by ONNX's
        definition.
        """
        self._count_node()
        if scope.attrs is not None:
            node = replace(node, attrs=resolve_attributes(node.attrs, scope.attrs))
        context = f"{self.context}, {scope.call_path}{node.location}, {node.label}"
        version = scope.opsets.get(node.domain, 0)
        values = [scope.look_up(n, context) if n else None for n in node.inputs]
        if any(_is_missing(v) for v in values):
            if self._is_supported(node, version):
                self._inspect_bodies(node, scope)
                return [MISSING_VALUE] * len(node.outputs)
            return self._record_missing(node, version, scope)
        function = self.model.functions.get((node.domain, node.op))
        converter = None if function else find_converter(node.op, node.domain, version)
        if converter is None:
            function = function or self._onnx_definition(node, version, values)
            if function is None:
                return self._record_missing(node, version, scope)
            return self._inline_function(function, node, values, scope)
        try:
            output_values = self._run_converter(
                converter, node, version, values, scope, context
            )
        except _MissingOpInBody:
            return [MISSING_VALUE] * len(node.outputs)
        if len(output_values) < sum(map(bool, node.outputs)):
            problem = f"the node declares {len(node.outputs)} outputs, but its op "
            problem += f"computes {len(output_values)}"
            raise ModelError(context, problem)
        return output_values

    def _run_converter(
        self,
        converter: RegisteredConverter,
        node: NodeRecord,
        version: int,
        values: list[Value],
        scope: NameScope,
        context: str,
    ) -> tuple[Value, ...]:
        """Run a node's converter and give its errors the node's location."""

        def convert_body(
            body: GraphRecord, body_inputs: Sequence[Value]
        ) -> list[Value]:
            return self.convert_body(body, body_inputs, scope)

        ctx = ConversionContext(self.draft, node, version, convert_body, context)
        self._check_node(converter, node, values, ctx)
        try:
            result = converter.convert(ctx, *values, **node.attrs)
        except RlxError as error:
            if not error.doing.startswith(self.context):
                error.doing = f"{context}: {error.doing}" if error.doing else context
            raise
        except MemoryError as error:
            problem = f"the host is out of memory: {error}"
            raise OutOfMemory(context, problem) from None
        except _CONVERTER_ERRORS as error:  # what no converter looked for
            message = " ".join(f"{type(error).__name__}: {error}".split())
            raise ModelError(
                context, "the node cannot be converted", message
            ) from error
        return result if isinstance(result, tuple) else (result,)

    def _check_node(
        self,
        converter: RegisteredConverter,
        node: NodeRecord,
        values: list[Value],
        ctx: ConversionContext,
    ) -> None:
        """Check the number and types of a node's inputs, and that its attributes are
        known.
        """
        while values and values[-1] is None and len(values) > converter.min_inputs:
            values.pop()
        if converter.max_inputs is not None and len(values) > converter.max_inputs:
            ctx.raise_invalid_model(
                f"got {len(values)} inputs", f"expected at most {converter.max_inputs}"
            )
        values += [None] * (converter.min_inputs - len(values))
        required = [
            index
            for index in range(converter.min_inputs)
            if index not in converter.optional_inputs
        ]
        given_count = sum(values[index] is not None for index in required)
        if given_count < len(required):
            ctx.raise_invalid_model(
                f"got {given_count} required inputs", f"expected {len(required)}"
            )
        for index, value in enumerate(values):
            if value is not None and not converter.accepts_non_tensor(index):
                _check_tensor(ctx, index, value)
        if converter.attr_names is not None and (
            unknown := node.attrs.keys() - converter.attr_names
        ):
            name = min(unknown)
            ctx.raise_unsupported(
                f"attribute {name}={shown(node.attrs[name])} is not supported",
                "supported: " + (", ".join(sorted(converter.attr_names)) or "none"),
            )

    def convert_body(
        self, body: GraphRecord, values: Sequence[Value], scope: NameScope
    ) -> list[Value]:
        """Convert a body for the values of its inputs and return its outputs; it sees
        the names outside it.
        """
        if len(values) != len(body.inputs):
            raise ModelError(
                f"{self.context}, body {shown(body.name)}",
                f"expected {len(body.inputs)} inputs, got {len(values)}",
            )
        named_values = dict(zip((d.name for d in body.inputs), values, strict=True))
        output_values = self._convert_graph(
            body, replace(scope, values={**scope.values, **named_values})
        )
        if any(_is_missing(value) for value in output_values):
            raise _MissingOpInBody
        return output_values

    def _inline_function(
        self,
        function: FunctionRecord,
        node: NodeRecord,
        values: Sequence[Value],
        scope: NameScope,
    ) -> list[Value]:
        """Convert a call of a function by converting the function's body."""
        call_path = f"{scope.call_path}{node.location} ({node.label}), "
        if scope.call_depth >= MAX_CALL_DEPTH:
            raise ModelError(
                f"{self.context}, {shown(function.name)}",
                f"function calls are nested more than {scope.call_depth} deep",
                f"at most {MAX_CALL_DEPTH} levels are supported",
                "check the functions for recursion",
            )
        arguments: dict[str, Value] = dict.fromkeys(function.inputs)
        arguments.update(zip(function.inputs, values, strict=False))
        attrs = {**function.attrs, **node.attrs}
        # A function of ONNX's own may leave out the domain that all models have.
        opsets = {**scope.opsets, **function.opsets}
        function_scope = NameScope(
            arguments, opsets, attrs, call_path, scope.call_depth + 1
        )
        output_names = [
            o for o, n in zip(function.outputs, node.outputs, strict=False) if n
        ]
        self._convert_nodes(function.nodes, output_names, function_scope)
        return [
            function_scope.look_up(o, call_path) if n else None
            for o, n in zip(function.outputs, node.outputs, strict=False)
        ]

    def _onnx_definition(
        self, node: NodeRecord, version: int, values: Sequence[Value]
    ) -> FunctionRecord | None:
        """Return the function by which ONNX defines the op for inputs of these types,
        or None.
        """
        if not onnx_library_access.is_function_op(node.op, node.domain, version):
            return None
        types = [_type_message(v) for v in values]
        message = onnx_library_access.substitute_attributes(node.message, node.attrs)
        body = onnx_library_access.function_body(message, version, types)
        if body is None:
            return None
        return read_function(body, None, f"{self.context}, {node.label}")

    def _record_missing(
        self, node: NodeRecord, version: int, scope: NameScope
    ) -> list[Value]:
        """Record a missing op and return placeholders for its outputs."""
        self._inspect_bodies(node, scope)
        domain = node.domain or "ai.onnx"
        name = f"{domain}.{node.op} (opset {version})"
        if not version:
            name = f"{domain}.{node.op} (the model does not import this domain)"
        self.missing_ops.setdefault(name, []).append(
            f"{scope.call_path}{node.location}"
        )
        return [MISSING_VALUE] * len(node.outputs)

    def find_missing(self) -> dict[str, list[str]]:
        """Return the missing ops of the model, found without types, in every branch and
        body.

        An op that ONNX defines by others only for some types counts as there.
        """
        scope = NameScope({}, self.model.opsets)
        graph = self.model.graph
        for node in needed_nodes(graph.nodes, [v.name for v in graph.outputs]):
            self._inspect_node(node, scope)
        return self.missing_ops

    def _inspect_node(self, node: NodeRecord, scope: NameScope) -> None:
        """Record the node's op if it is missing; otherwise inspect its function or its
        bodies.
        """
        self._count_node()
        version = scope.opsets.get(node.domain, 0)
        function = self.model.functions.get((node.domain, node.op))
        if not self._is_supported(node, version):
            self._record_missing(node, version, scope)
        elif function is not None and scope.call_depth < MAX_CALL_DEPTH:
            self._inspect_function(function, node, scope)
        else:
            self._inspect_bodies(node, scope)

    def _inspect_function(
        self, function: FunctionRecord, node: NodeRecord, scope: NameScope
    ) -> None:
        """Record the missing ops of a function; a complete function is inspected only
        once.
        """
        key = function.domain, function.name
        if key in self.complete_functions:
            return
        call_path = f"{scope.call_path}{node.location} ({node.label}), "
        function_scope = NameScope(
            {}, function.opsets, {}, call_path, scope.call_depth + 1
        )
        missing_before = sum(map(len, self.missing_ops.values()))
        for inner_node in function.nodes:
            self._inspect_node(inner_node, function_scope)
        if sum(map(len, self.missing_ops.values())) == missing_before:
            self.complete_functions.add(key)

    def _inspect_bodies(self, node: NodeRecord, scope: NameScope) -> None:
        """Record the missing ops in the bodies of a node that is not converted."""
        for body in node.attrs.values():
            if isinstance(body, GraphRecord):
                for inner_node in body.nodes:
                    self._inspect_node(inner_node, scope)

    def _is_supported(self, node: NodeRecord, version: int) -> bool:
        """Return whether a function, a converter or ONNX's definition exists for the
        node's op.
        """
        return (
            (node.domain, node.op) in self.model.functions
            or find_converter(node.op, node.domain, version) is not None
            or onnx_library_access.is_function_op(node.op, node.domain, version)
        )


def _check_tensor(ctx: ConversionContext, index: int, value: Value) -> None:
    """Check that an input is a tensor of a dtype that rlxweb has."""
    if isinstance(value, list):
        ctx.raise_invalid_model(f"input {index} is a sequence", "must be a tensor")
    if not isinstance(value, Tensor):
        kind = "text" if value.dtype.kind in "OUS" else value.dtype
        types = ", ".join(d.value for d in DType)
        ctx.raise_unsupported(
            f"input {index} has dtype {kind}", f"supported dtypes: {types}"
        )


def _is_missing(value: Value) -> bool:
    """Return whether a value, or an element of a sequence, is missing."""
    if isinstance(value, list):
        return any(_is_missing(v) for v in value)
    return value is MISSING_VALUE


def _type_message(value: Value) -> Any:
    """Return the ONNX type message of a value, used to select a function's
    definition.
    """
    if isinstance(value, Tensor):
        return onnx_library_access.tensor_type_message(value.dtype.numpy, value.shape)
    if isinstance(value, np.ndarray | SubByteTensor):
        return onnx_library_access.tensor_type_message(value.dtype, value.shape)
    if isinstance(value, list) and value:
        return onnx_library_access.sequence_type_message(_type_message(value[0]))
    return onnx_library_access.empty_type_message()


def resolve_attributes(
    attrs: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a node's attributes with every `AttributeRef` replaced by the value from
    the call.

    One that the call does not give and that has no default is left out.
    """
    resolved = {}
    for name, value in attrs.items():
        if isinstance(value, AttributeRef):
            value = arguments.get(value.name)
            if value is None:
                continue
        resolved[name] = value
    return resolved


def needed_nodes(
    nodes: Sequence[NodeRecord], wanted: Sequence[str]
) -> Sequence[NodeRecord]:
    """Return the nodes that these names depend on, in order."""
    names, result = set(wanted), []
    for node in reversed(nodes):
        if names.isdisjoint(node.outputs):
            continue
        result.append(node)
        names.update(node.inputs, captured_names(node))
    return result[::-1]


def captured_names(node: NodeRecord) -> Iterator[str]:
    """Yield every name that the bodies of a node use, including their own names."""
    for body in node.attrs.values():
        if isinstance(body, GraphRecord):
            yield from (v.name for v in body.outputs)
            for inner_node in body.nodes:
                yield from inner_node.inputs
                yield from captured_names(inner_node)


def find_missing_ops(model: ModelRecord) -> dict[str, tuple[str, ...]]:
    """Return the ops of a model that nothing converts, each with the locations of its
    nodes.
    """
    missing_ops = ModelConversion(
        model, FoldingGraph("missing"), "looking for missing ops"
    ).find_missing()
    return {name: tuple(locations) for name, locations in missing_ops.items()}
