"""Conversion of an ONNX model for given input types: the graph, its params and its
outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.errors import DTypeError, Unsupported
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import format_shape, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import onnx_library_access
from rlxweb.onnx.constant_folding_graph import FoldingGraph, rlx_dtype_or_none
from rlxweb.onnx.converter_registry import NeedsValues, Value, constant_value
from rlxweb.onnx.model_conversion import ModelConversion
from rlxweb.onnx.model_records import ModelRecord, Weight
from rlxweb.onnx.model_signature import (
    check_output,
    flatten_input,
    flatten_inputs,
    port_from_declaration,
)
from rlxweb.onnx.sub_byte import SubByteTensor
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.device_graph_cache import DeviceGraphCache

Array = npt.NDArray[Any]

MAX_DECIDING_ELEMENTS = 4096
"""Maximum number of elements of an input whose values decide shapes or branches."""


@dataclass(frozen=True, slots=True)
class ComputedOutput:
    """Output of the model that the graph computes, by its index among the graph's
    outputs.

    dtype  that it has at home, where rlxweb has none for it
    """

    index: int
    dtype: np.dtype[Any] | None = None


@dataclass
class ConvertedModel:
    """Model converted to a graph.

    graph    computes what is not known; its inputs are those of the model that matter
    params   the weights in use
    outputs  for each output of the model: Computed, an array, a list of them, or None
    deciding_values  inputs whose values were used, with these values
    inputs   names of those that the graph has
    device_graphs  where it was compiled
    """

    graph: Graph
    params: dict[str, Weight]
    outputs: dict[str, Any]
    deciding_values: dict[str, bytes] = field(default_factory=dict)
    inputs: tuple[str, ...] = field(init=False)
    device_graphs: DeviceGraphCache = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = tuple(self.graph.named("input"))
        self.device_graphs = DeviceGraphCache(self.graph)

    def has_matching_values(self, arrays: Mapping[str, Array]) -> bool:
        """Return whether the deciding inputs have the values for which the model was
        converted.

        arrays   arrays of the same types, by name
        """
        return all(
            value_bytes(arrays[n]) == expected
            for n, expected in self.deciding_values.items()
        )

    def output_positions_to_keep(
        self, keep: bool | Collection[str]
    ) -> bool | tuple[int, ...]:
        """Return the positions, among the graph's outputs, of those that stay on the
        device.
        """
        if isinstance(keep, bool):
            return keep
        kept_outputs = [output for name, output in self.outputs.items() if name in keep]
        return tuple(
            sorted(
                {
                    output.index
                    for output in kept_outputs
                    if isinstance(output, ComputedOutput)
                }
            )
        )

    def collect_outputs(self, computed: list[Array]) -> dict[str, Any]:
        """Return the model's outputs by name, given the graph's computed outputs."""
        return {
            name: _resolve_output(output, computed)
            for name, output in self.outputs.items()
        }


def _resolve_output(output: Any, computed: list[Array]) -> Any:
    if isinstance(output, list):
        return [_resolve_output(item, computed) for item in output]
    if isinstance(output, ComputedOutput):
        array = computed[output.index]
        if output.dtype is not None and isinstance(array, np.ndarray):
            return array.astype(output.dtype)
        return (
            onnx_library_access.as_numeric_array(array)
            if isinstance(array, np.ndarray)
            else array
        )
    return (
        onnx_library_access.as_numeric_array(output).copy()
        if isinstance(output, np.ndarray)
        else output
    )


def value_bytes(array: Array) -> bytes:
    """Return bytes that are equal for arrays of one type with equal values."""
    return fetch_array(array).tobytes()


def fetch_array(array: Any) -> Array:
    """Return an array in host memory, read back from the device if it is there."""
    return array.numpy() if isinstance(array, DeviceArray) else array


class DataDependentShape(Unsupported):
    """Error for a shape that depends on values computed from a large input.

    `run` computes it first and goes on from there; there is no single graph.
    """


def convert_model(
    model: ModelRecord, arrays: Mapping[str, Any], context: str
) -> ConvertedModel:
    """Convert the model for inputs of these types, and for their values where these
    decide shapes or branches.

    Errors   MissingOps, ModelError, Unsupported, and those of shape rules; Undecided.
    """
    deciding_inputs = set(inputs_of_unsupported_dtype(arrays, context))
    while True:
        try:
            return _convert_once(model, arrays, deciding_inputs, context)
        except NeedsValues as request:
            if large_deciding_inputs(request, arrays, deciding_inputs):
                raise data_dependence_error(
                    request, arrays, deciding_inputs, context
                ) from None
            deciding_inputs |= request.input_names


def data_dependence_error(
    request: NeedsValues,
    arrays: Mapping[str, Any],
    deciding_inputs: set[str],
    context: str,
) -> Unsupported:
    """Return the error for a large input that decides shapes; DataDependentShape if few
    values decide.
    """
    name, *_ = large_deciding_inputs(request, arrays, deciding_inputs)
    array = flatten_inputs(arrays)[name]
    problem = f"the values of input '{name}' {format_shape(array.shape)} determine "
    problem += request.description
    rule = "an input whose values determine shapes or branches must have at most "
    rule += f"{MAX_DECIDING_ELEMENTS:,} elements"
    if numel(request.tensor.shape) <= MAX_DECIDING_ELEMENTS:
        hint = "use `run`, which first computes the values that determine shapes or "
        hint += "branches, then builds the rest of the model"
        return DataDependentShape(context, problem, rule, hint)
    hint = "make the values that determine shapes or branches a constant of the model, "
    hint += "or compute them from a smaller input"
    return Unsupported(context, problem, rule, hint)


def inputs_of_unsupported_dtype(
    arrays: Mapping[str, Any], context: str
) -> Iterator[str]:
    """Yield the inputs of dtypes that rlxweb does not have; their values are used
    during conversion.
    """
    for name, array in flatten_inputs(arrays).items():
        if rlx_dtype_or_none(array.dtype) is None:
            if array.size > MAX_DECIDING_ELEMENTS:
                raise DTypeError(
                    context,
                    f"input '{name}' has shape {format_shape(array.shape)} and "
                    f"dtype {array.dtype}",
                    "an input of an unsupported dtype must have at most "
                    f"{MAX_DECIDING_ELEMENTS:,} elements",
                )
            yield name


def large_deciding_inputs(
    request: NeedsValues, arrays: Mapping[str, Any], deciding_inputs: set[str]
) -> list[str]:
    """Return the requested inputs that are too large to have their values checked at
    each run.
    """
    arrays_by_name = flatten_inputs(arrays)
    new_names = sorted(request.input_names - deciding_inputs)
    return [n for n in new_names if arrays_by_name[n].size > MAX_DECIDING_ELEMENTS]


def _check_outputs(
    model: ModelRecord, output_values: Sequence[Value], context: str
) -> None:
    """Check the outputs of a model of fixed shapes against their declarations.

    Where dims are free, numbers among the declared ones are often those of whatever
    size it was exported with, and say nothing.
    """
    ports = [
        port_from_declaration(d)
        for d in model.graph.inputs
        if d.name not in model.graph.weights
    ]
    if not all(p.is_fixed for p in ports):
        return
    for declared, value in zip(model.graph.outputs, output_values, strict=True):
        if isinstance(value, Tensor):
            dtype = onnx_library_access.numpy_dtype(value.dtype).name
            check_output(declared, dtype, value.shape, context)
        elif isinstance(value, np.ndarray | SubByteTensor):
            check_output(declared, value.dtype.name, value.shape, context)


def convert_outputs(
    model: ModelRecord,
    arrays: Mapping[str, Any],
    deciding_inputs: set[str],
    context: str,
    g: FoldingGraph,
) -> list[Value]:
    """Convert the model into a FoldingGraph and return its outputs. Raises NeedsValues,
    and as `convert_model`.
    """

    def leaf_value(name: str, array: Array) -> Value:
        if name in deciding_inputs:
            return constant_value(g, fetch_array(array))
        return g.input(name, array.shape, as_dtype(array.dtype))

    def input_value(name: str, argument: Any) -> Value:
        if isinstance(argument, list):
            return [leaf_value(n, a) for n, a in flatten_input(name, argument)]
        return None if argument is None else leaf_value(name, argument)

    values = {name: input_value(name, argument) for name, argument in arrays.items()}
    output_values = ModelConversion(model, g, context).convert_outputs(values)
    _check_outputs(model, output_values, context)
    return output_values


def locate_outputs(
    model: ModelRecord, g: FoldingGraph, output_values: Sequence[Value]
) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the tensors to compute, and each output by name: a known value, or its
    index among those tensors.
    """
    computed: list[Tensor] = []

    def locate(value: Value) -> Any:
        if isinstance(value, list):
            return [locate(item) for item in value]
        if isinstance(value, SubByteTensor):
            located = locate(value.tensor)
            if isinstance(located, ComputedOutput):
                return ComputedOutput(located.index, value.dtype)
            return located.astype(value.dtype)
        if not isinstance(value, Tensor):
            return value
        array = g.known_array(value)
        if array is not None:
            return array
        if value.id not in [t.id for t in computed]:
            computed.append(value)
        return ComputedOutput([t.id for t in computed].index(value.id))

    names = [d.name for d in model.graph.outputs]
    return computed, {n: locate(v) for n, v in zip(names, output_values, strict=True)}


def _convert_once(
    model: ModelRecord,
    arrays: Mapping[str, Any],
    deciding_inputs: set[str],
    context: str,
) -> ConvertedModel:
    g = FoldingGraph(model.graph.name or "model")
    output_values = convert_outputs(model, arrays, deciding_inputs, context, g)
    computed, outputs = locate_outputs(model, g, output_values)
    graph, params = g.extract_graph(computed)
    arrays_by_name = flatten_inputs(arrays)
    deciding_values = {
        n: value_bytes(arrays_by_name[n]) for n in sorted(deciding_inputs)
    }
    return ConvertedModel(graph, params, outputs, deciding_values)
