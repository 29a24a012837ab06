"""Inputs and outputs of a model, and the binding of a run's arrays and dims to them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.array_coercion import as_array, describe_type
from rlxweb.core.errors import (
    DTypeError,
    InputError,
    ModelError,
    RlxError,
    ShapeError,
    UnknownName,
    did_you_mean,
)
from rlxweb.core.fork_safety import cached_property
from rlxweb.ir.dtype import DType, cast_exact, cast_hint, dtype_name
from rlxweb.ir.shape_arithmetic import Shape, format_shape
from rlxweb.onnx.constant_folding_graph import rlx_dtype_or_none
from rlxweb.onnx.model_records import DeclaredValue, ValueType
from rlxweb.runtime.device_array import DeviceArray

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ModelPort:
    """Input or output of a model.

    dtype  rlxweb's, where it has the type; else NumPy's name of it
    dims   a number, a name or None (free) for each dimension; None: any rank
    kind   "tensor", "sequence" or "optional"; of the last two, dtype and dims are their
           element's
    """

    name: str
    dtype: DType | str
    dims: tuple[int | str | None, ...] | None
    kind: str = "tensor"

    def __str__(self) -> str:
        dims = "[…]" if self.dims is None else format_dims(self.dims)
        kind = "" if self.kind == "tensor" else f"{self.kind} of "
        return f"{self.name}: {kind}{dims} {self.dtype}"

    @property
    def is_fixed(self) -> bool:
        """Return whether the port is a tensor whose whole shape is known."""
        return (
            self.kind == "tensor"
            and self.dims is not None
            and all(isinstance(d, int) for d in self.dims)
        )

    def zeros(self, sizes: Mapping[str, int] | None = None) -> Array:
        """Return an array of zeros of the port's shape that takes no memory.

        sizes    of named dims; of those that are free and not among them 1
        """
        assert isinstance(self.dtype, DType)
        dim_sizes = sizes or {}
        dims = self.dims or ()
        shape = [d if isinstance(d, int) else dim_sizes.get(d or "", 1) for d in dims]
        return np.broadcast_to(np.zeros((), self.dtype.numpy), shape)


def format_dims(dims: tuple[int | str | None, ...]) -> str:
    """Format dims for messages: `[batch, 3, ?]`."""
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


def port_from_declaration(declared: DeclaredValue) -> ModelPort:
    """Return the port of a declared value."""
    value_type, element_type = declared.type, declared.type
    while element_type is not None and element_type.element is not None:
        element_type = element_type.element
    kind_name = "tensor" if value_type is None else value_type.kind
    if element_type is None or element_type.dtype is None:
        return ModelPort(declared.name, "anything", None, kind_name)
    return ModelPort(
        declared.name, _port_dtype(element_type), element_type.dims, kind_name
    )


def _port_dtype(value_type: ValueType) -> DType | str:
    """Return rlxweb's dtype of a value type, or the name of a dtype that rlxweb
    lacks.
    """
    assert value_type.dtype is not None
    return rlx_dtype_or_none(value_type.dtype) or (
        "text" if value_type.dtype.kind == "O" else value_type.dtype.name
    )


@dataclass
class InputBinding:
    """Arrays of one run by input, and the sizes that they give the free dims.

    dims  by name, with the input that bound it
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, tuple[int, str]] = field(default_factory=dict)

    @cached_property
    def cache_key(self) -> Hashable:
        """Cache key that is equal for runs that one conversion serves; valid once all
        inputs are bound.
        """
        return tuple((name, type_key(a)) for name, a in self.arrays.items())

    @cached_property
    def flat_arrays(self) -> dict[str, Array]:
        """Every array by name, sequences flattened; valid once all inputs are bound."""
        return flatten_inputs(self.arrays)


def type_key(value: Any) -> Hashable:
    """Return a hashable key of an input's type: shape and dtype of every array."""
    if isinstance(value, list):
        return tuple(map(type_key, value))
    return None if value is None else (value.shape, value.dtype)


def bind_inputs(
    ports: Mapping[str, ModelPort], inputs: Any, context: str
) -> InputBinding:
    """Check a run's arrays against the model's inputs and bind the free dims.

    Errors   InputError for a missing input, UnknownName, DTypeError, ShapeError.
    """
    if not isinstance(inputs, Mapping):
        example = ", ".join(f"{name!r}: …" for name in ports)
        raise InputError(
            context,
            f"got {describe_type(inputs)}",
            "expected a dict of inputs by name",
            f"pass {{{example}}}",
        )
    for name in inputs:
        if name not in ports:
            raise UnknownName(
                context,
                f"the model has no input {name!r}",
                "its inputs: " + (", ".join(map(repr, ports)) or "none"),
                did_you_mean(str(name), ports),
            )
    binding = InputBinding()
    missing = [n for n, p in ports.items() if n not in inputs and p.kind != "optional"]
    if missing:
        raise InputError(
            context,
            f"input '{missing[0]}' was not given",
            f"{len(inputs)} of {len(ports)} inputs given",
            f"pass {', '.join(map(repr, missing))}",
        )
    for name, port in ports.items():
        input_context = f"{context}, input '{name}'"
        binding.arrays[name] = _coerce_input(
            port, inputs.get(name), binding, input_context
        )
    return binding


def _coerce_input(
    port: ModelPort, value: Any, binding: InputBinding, context: str
) -> Any:
    """Return the array, list of arrays or None for one input, checked against its
    port.
    """
    if port.kind == "sequence" and not isinstance(value, list | tuple):
        raise InputError(context, f"got {describe_type(value)}", "expected a list")
    if port.kind == "sequence" or (port.kind == "optional" and _is_array_list(value)):
        return [_coerce_input_array(port, element, context) for element in value]
    if value is None and port.kind == "optional":
        return None
    array = _coerce_input_array(port, value, context)
    _bind_dims(port, array.shape, binding, context)
    return array


def _is_array_list(value: Any) -> bool:
    """Return whether the value is a list of arrays; a list of numbers would be one
    array.
    """
    return isinstance(value, list | tuple) and all(
        hasattr(element, "shape") for element in value
    )


def _coerce_input_array(port: ModelPort, value: Any, context: str) -> Array:
    """Return one array of an input, checked against the port's dtype."""
    if not isinstance(port.dtype, DType):
        return _coerce_unsupported_array(port, value, context)
    expected_dtype = port.dtype.numpy
    if type(value) is np.ndarray and value.dtype == expected_dtype:
        return value
    is_on_device = isinstance(value, DeviceArray)
    try:
        array: Any = value if is_on_device else as_array(value, allow_bfloat16=True)
        if isinstance(value, bool | int | float | list | tuple):
            return cast_exact(array, port.dtype)
    except RlxError as error:
        error.doing = context
        raise
    if array.dtype.newbyteorder("=") != expected_dtype:
        raise DTypeError(
            context,
            f"the array has dtype {dtype_name(array.dtype)}",
            f"the model declares dtype {port.dtype}",
            cast_hint(port.dtype),
        )
    result: Array = array if is_on_device else array.astype(expected_dtype, copy=False)
    return result


def check_output(
    declared: DeclaredValue, dtype: str, shape: Shape, context: str
) -> None:
    """Raise ModelError if an output's dtype or shape differs from its declaration.

    A dimension's number is held against only where `declared` has one.
    """
    value_type = declared.type
    if value_type is None or value_type.kind != "tensor" or value_type.dtype is None:
        return
    dtype_matches = value_type.dtype.name == dtype or value_type.dtype.kind == "O"
    dims = value_type.dims
    shape_matches = dims is None or (
        len(dims) == len(shape)
        and all(
            d == n or not isinstance(d, int) for d, n in zip(dims, shape, strict=True)
        )
    )
    if not dtype_matches or not shape_matches:
        raise ModelError(
            f"{context}, output '{declared.name}'",
            f"the declared type is {value_type}",
            f"the nodes compute {format_shape(shape)} {dtype}",
            "the model is inconsistent: export it again",
        )


def _coerce_unsupported_array(port: ModelPort, value: Any, context: str) -> Array:
    """Return an array of a dtype that rlxweb lacks; its values are used during
    conversion.

    Whatever a model does with them is done while it is converted.
    """
    if port.dtype == "text":
        raise DTypeError(
            context, "the model expects text", "only numbers are supported"
        )
    array = np.asarray(value)
    if array.dtype.name != port.dtype:
        raise DTypeError(
            context,
            f"the array has dtype {array.dtype}",
            f"the model declares dtype {port.dtype}",
            f"pass an array of dtype {port.dtype}",
        )
    return array


def _bind_dims(
    port: ModelPort, shape: tuple[int, ...], binding: InputBinding, context: str
) -> None:
    """Bind the port's free dims to the array's shape and check all dims."""
    if port.dims is None:
        return
    if len(shape) != len(port.dims):
        raise ShapeError(
            context,
            f"the array has shape {format_shape(shape)}",
            f"the model declares shape {format_dims(port.dims)}",
        )
    for axis, (size, dim) in enumerate(zip(shape, port.dims, strict=True)):
        if isinstance(dim, str):
            bound_size, bound_by = binding.dims.setdefault(dim, (size, port.name))
            if bound_size != size:
                raise ShapeError(
                    context,
                    f"dimension {axis} ('{dim}') is {size}",
                    f"'{dim}' is {bound_size} in input '{bound_by}'",
                    "pass equal sizes for dims of the same name",
                )
        elif dim is not None and dim != size:
            raise ShapeError(
                context,
                f"the array has shape {format_shape(shape)}",
                f"the model declares shape {format_dims(port.dims)}",
                "reshape the array",
            )


def flatten_input(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of an input by name; the elements of a sequence are numbered."""
    if isinstance(value, list):
        for index, array in enumerate(value):
            yield f"{name}[{index}]", array
    elif value is not None:
        yield name, value


def flatten_inputs(arrays: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of all inputs by name, sequences flattened."""
    return {
        n: a for name, value in arrays.items() for n, a in flatten_input(name, value)
    }
