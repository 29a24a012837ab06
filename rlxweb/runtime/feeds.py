"""Checks the arrays a caller hands in against what the graph asks for.

Accepts what `rlxweb.given` reads, any strides and byte order; Python lists take the
declared dtype. Never narrows an array's dtype and never guesses a name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.device import Device
from rlxweb.errors import InputError, RlxError
from rlxweb.given import named
from rlxweb.ir.binding import sizes_of
from rlxweb.ir.fitting import array_for, check_fits, fitted, unknown
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import TensorType
from rlxweb.ir.verify import must_be_bound
from rlxweb.runtime.device_array import DeviceArray

Array = npt.NDArray[Any]
Given = dict[str, Array | DeviceArray]


def check_feeds(graph: Graph, inputs: Mapping[str, Node], feeds: Any) -> Given:
    """Arrays by input name, dtype and shape right; None stands for none.

    Errors   InputError for a missing input, UnknownName for one the graph has not,
    DTypeError and ShapeError for arrays that do not fit; VerifyError where sizes vary.
    """
    doing = f"run '{graph.name}'"
    if feeds is None:
        feeds = {}
    check_given(doing, inputs, feeds)
    if graph.recording is not None:  # its shapes could not even be compared
        must_be_bound(graph, doing)
    return {name: as_input(doing, node, feeds[name]) for name, node in inputs.items()}


def check_inputs(graph: Graph, inputs: Mapping[str, Any] | None) -> dict[str, int]:
    """The sizes of a graph's dims, by the inputs of a run; empty where none vary.

    Errors   those of the inputs.
    """
    named, doing = graph.named("input"), f"run '{graph.name}'"
    if not graph.dims:
        check_feeds(graph, named, inputs)
        return {}
    feeds = shaped_feeds(doing, named, inputs)
    return sizes_of(graph, {name: x.shape for name, x in feeds.items()}, doing)


def shaped_feeds(doing: str, inputs: Mapping[str, Node], feeds: Any) -> Given:
    """Arrays by input name, dtypes right; shapes tell the sizes that vary.

    Errors   InputError for a missing input, UnknownName for one the graph has not,
    DTypeError.
    """
    given = {} if feeds is None else feeds
    check_given(doing, inputs, given)
    return {
        name: _as_typed(f"{doing}, input '{name}'", node, given[name])
        for name, node in inputs.items()
    }


def _as_typed(doing: str, node: Node, value: Any) -> Array | DeviceArray:
    """An input of the declared dtype and any shape. Errors  DTypeError, InputError."""
    dtype = node.type.dtype
    if type(value) is np.ndarray and value.dtype == dtype.numpy:
        return value
    try:
        array = value if isinstance(value, DeviceArray) else array_for(value, dtype)
    except RlxError as error:
        error.doing = doing
        raise
    check_fits(doing, array, TensorType(array.shape, dtype))
    return array


def check_given(doing: str, inputs: Mapping[str, Node], feeds: Any) -> None:
    """Every input, and no other? Errors  InputError, UnknownName."""
    if type(feeds) is not dict or not feeds.keys() <= inputs.keys():
        check_names(doing, inputs, feeds)
    missing = [name for name in inputs if name not in feeds]
    if missing:
        raise InputError(
            doing,
            f"input '{missing[0]}' was not given",
            f"{len(feeds)} of {len(inputs)} inputs given",
            f"pass {', '.join(repr(m) for m in missing)}",
        )


def check_names(doing: str, inputs: Mapping[str, Node], feeds: object) -> None:
    """Errors  InputError for no mapping, UnknownName for what the graph has not."""
    if not isinstance(feeds, Mapping):
        given = ", ".join(f"{name!r}: …" for name in inputs)
        raise InputError(
            doing,
            f"{named(feeds)} was given",
            "inputs are given by name, in a dict",
            f"pass {{{given}}}",
        )
    for name in feeds:
        if name not in inputs:
            raise unknown(doing, "input", str(name), inputs)


def param_named(doing: str, params: Mapping[str, Node], name: str) -> Node:
    """The param of that name. Errors  UnknownName for anything else."""
    found = params.get(name) if isinstance(name, str) else None
    if found is None:
        raise unknown(doing, "param", name, params)
    return found


def check_params_set(
    doing: str, params: Collection[str], unset: Collection[str]
) -> None:
    """Errors  InputError that names the params without a value, if there are any."""
    if unset:
        names = ", ".join(repr(name) for name in sorted(unset))
        raise InputError(
            doing,
            f"param {names} has no value",
            f"{len(unset)} of {len(params)} params unset",
            "call set_param first",
        )


def as_input(doing: str, node: Node, value: Any) -> Array | DeviceArray:
    """One array as the input or param `node` wants it."""
    want = node.type
    # Most are right as they are, and spared the words of errors.
    plain = type(value) is np.ndarray and value.dtype == want.dtype.numpy
    if plain and value.shape == want.shape:
        return value  # type: ignore[no-any-return]
    doing = f"{doing}, {node.op} '{node.name}'"
    if isinstance(value, DeviceArray):
        check_fits(doing, value, want)
        return value
    return fitted(doing, value, want)


def lying(inputs: object) -> dict[str, DeviceArray]:
    """Those of the inputs, by name, that lie on a device."""
    every = inputs.items() if isinstance(inputs, Mapping) else ()
    return {name: one for name, one in every if isinstance(one, DeviceArray)}


def lying_on(inputs: object, device: Device) -> frozenset[str]:
    """The names of those that lie on one device."""
    found = lying(inputs).items()
    return frozenset(name for name, one in found if one.device is device)


def may_change(array: Any) -> bool:
    """Can anybody write into an array, or into what it is a view of?"""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False
