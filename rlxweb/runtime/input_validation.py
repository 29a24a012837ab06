"""Validation of the arrays a caller hands in against the graph's inputs and params.

Accepts what `rlxweb.core.array_coercion` reads, any strides and byte order; Python
lists take the declared dtype. Never narrows an array's dtype and never guesses a name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.device import Device
from rlxweb.core.errors import InputError, RlxError
from rlxweb.ir.array_validation import (
    check_array_type,
    coerce_array,
    coerce_to_type,
    unknown_name_error,
    unset_params_clause,
)
from rlxweb.ir.dim_binding import infer_dim_sizes
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import TensorType
from rlxweb.ir.verify import require_bound
from rlxweb.runtime.device_array import DeviceArray

Array = npt.NDArray[Any]
Feeds = dict[str, Array | DeviceArray]


def validate_feeds(graph: Graph, inputs: Mapping[str, Node], feeds: Any) -> Feeds:
    """Return arrays by input name, of the declared dtypes and shapes; None stands for
    no inputs.

    Errors   InputError for a missing input, UnknownName for one the graph has not,
    DTypeError and ShapeError for arrays that do not fit; VerifyError where sizes vary.
    """
    context = f"run '{graph.name}'"
    if feeds is None:
        feeds = {}
    check_inputs_complete(context, inputs, feeds)
    if graph.recording is not None:  # its shapes could not even be compared
        require_bound(graph, context)
    return {
        name: validate_array(context, node, feeds[name])
        for name, node in inputs.items()
    }


def infer_dim_sizes_from_inputs(
    graph: Graph, inputs: Mapping[str, Any] | None
) -> dict[str, int]:
    """Return the sizes of a graph's dims by the inputs of a run; empty for a graph
    without dims.

    Errors   those of the inputs.
    """
    input_nodes, context = graph.named("input"), f"run '{graph.name}'"
    if not graph.dims:
        validate_feeds(graph, input_nodes, inputs)
        return {}
    feeds = validate_dynamic_feeds(context, input_nodes, inputs)
    return infer_dim_sizes(graph, {name: x.shape for name, x in feeds.items()}, context)


def validate_dynamic_feeds(
    context: str, inputs: Mapping[str, Node], feeds: Any
) -> Feeds:
    """Return arrays by input name, of the declared dtypes; their shapes give the dim
    sizes.

    Errors   InputError for a missing input, UnknownName for one the graph has not,
    DTypeError.
    """
    arrays = {} if feeds is None else feeds
    check_inputs_complete(context, inputs, arrays)
    return {
        name: _validate_dtype(f"{context}, input '{name}'", node, arrays[name])
        for name, node in inputs.items()
    }


def _validate_dtype(context: str, node: Node, value: Any) -> Array | DeviceArray:
    """Return an input of the declared dtype and any shape; raises DTypeError,
    InputError.
    """
    dtype = node.type.dtype
    if type(value) is np.ndarray and value.dtype == dtype.numpy:
        return value
    try:
        array = value if isinstance(value, DeviceArray) else coerce_array(value, dtype)
    except RlxError as error:
        error.doing = context
        raise
    check_array_type(context, array, TensorType(array.shape, dtype))
    return array


def check_inputs_complete(context: str, inputs: Mapping[str, Node], feeds: Any) -> None:
    """Check that every input is given, and no other; raises InputError, UnknownName."""
    if type(feeds) is not dict or not feeds.keys() <= inputs.keys():
        check_input_names(context, inputs, feeds)
    missing = [name for name in inputs if name not in feeds]
    if missing:
        raise InputError(
            context,
            f"input '{missing[0]}' was not given",
            f"{len(feeds)} of {len(inputs)} inputs given",
            f"pass {', '.join(repr(m) for m in missing)}",
        )


def check_input_names(context: str, inputs: Mapping[str, Node], feeds: object) -> None:
    """Raise InputError for no mapping, UnknownName for a name that the graph has
    not.
    """
    if not isinstance(feeds, Mapping):
        example = ", ".join(f"{name!r}: …" for name in inputs)
        raise InputError(
            context,
            f"got {describe_type(feeds)}",
            "inputs must be a dict of arrays by name",
            f"pass {{{example}}}",
        )
    for name in feeds:
        if name not in inputs:
            raise unknown_name_error(context, "input", str(name), inputs)


def find_param(context: str, params: Mapping[str, Node], name: str) -> Node:
    """Return the param of that name; raises UnknownName for anything else."""
    node = params.get(name) if isinstance(name, str) else None
    if node is None:
        raise unknown_name_error(context, "param", name, params)
    return node


def check_params_set(
    context: str, params: Collection[str], unset: Collection[str]
) -> None:
    """Raise InputError that names the params without a value, if there are any."""
    if unset:
        raise InputError(
            context,
            unset_params_clause(sorted(unset)),
            f"{len(unset)} of {len(params)} params unset",
            "call set_param first",
        )


def validate_array(context: str, node: Node, value: Any) -> Array | DeviceArray:
    """Return one array coerced to the dtype and shape of the input or param `node`."""
    expected = node.type
    # Most are right as they are, and spared the words of errors.
    has_dtype = type(value) is np.ndarray and value.dtype == expected.dtype.numpy
    if has_dtype and value.shape == expected.shape:
        return value  # type: ignore[no-any-return]
    context = f"{context}, {node.op} '{node.name}'"
    if isinstance(value, DeviceArray):
        check_array_type(context, value, expected)
        return value
    return coerce_to_type(context, value, expected)


def select_device_arrays(inputs: object) -> dict[str, DeviceArray]:
    """Return the inputs that are on a device, by name."""
    items = inputs.items() if isinstance(inputs, Mapping) else ()
    return {name: array for name, array in items if isinstance(array, DeviceArray)}


def input_names_on(inputs: object, device: Device) -> frozenset[str]:
    """Return the names of the inputs that are on one device."""
    items = select_device_arrays(inputs).items()
    return frozenset(name for name, array in items if array.device is device)


def is_mutable(array: Any) -> bool:
    """Return whether anybody can write into an array, or into what it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False
