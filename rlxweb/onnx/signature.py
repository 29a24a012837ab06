"""What a model takes and gives: its inputs, and their dims as a run binds them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.errors import (
    DTypeError,
    InputError,
    ModelError,
    RlxError,
    ShapeError,
    UnknownName,
    did_you_mean,
)
from rlxweb.forked import cached_property
from rlxweb.given import array_of, named
from rlxweb.ir.dtype import DType, cast_whole, how_to_cast, shown_dtype
from rlxweb.ir.shape import Shape, show
from rlxweb.onnx.draft import ours
from rlxweb.onnx.records import Declared, ValueType
from rlxweb.runtime.device_array import DeviceArray

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output of a model.

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
        dims = "[…]" if self.dims is None else show_dims(self.dims)
        kind = "" if self.kind == "tensor" else f"{self.kind} of "
        return f"{self.name}: {kind}{dims} {self.dtype}"

    @property
    def is_fixed(self) -> bool:
        """Is its whole shape known?"""
        return (
            self.kind == "tensor"
            and self.dims is not None
            and all(isinstance(d, int) for d in self.dims)
        )

    def zeros(self, sizes: Mapping[str, int] | None = None) -> Array:
        """An array for a tensor of a type of ours, which takes no memory.

        sizes    of named dims; of those that are free and not among them 1
        """
        assert isinstance(self.dtype, DType)
        named = sizes or {}
        dims = self.dims or ()
        shape = [d if isinstance(d, int) else named.get(d or "", 1) for d in dims]
        return np.broadcast_to(np.zeros((), self.dtype.numpy), shape)


def show_dims(dims: tuple[int | str | None, ...]) -> str:
    """`[batch, 3, ?]`."""
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


def port_of(declared: Declared) -> Port:
    """The port of a declared value."""
    kind, inner = declared.type, declared.type
    while inner is not None and inner.element is not None:
        inner = inner.element
    word = "tensor" if kind is None else kind.kind
    if inner is None or inner.dtype is None:
        return Port(declared.name, "anything", None, word)
    return Port(declared.name, _dtype(inner), inner.dims, word)


def _dtype(kind: ValueType) -> DType | str:
    assert kind.dtype is not None
    return ours(kind.dtype) or ("text" if kind.dtype.kind == "O" else kind.dtype.name)


@dataclass
class Binding:
    """What one run gives: arrays by input, and what the free dims are with them.

    dims  by name, with the input that bound it
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, tuple[int, str]] = field(default_factory=dict)

    @cached_property
    def key(self) -> Hashable:
        """Equal for runs that one conversion serves, once all inputs are bound."""
        return tuple((name, shape_key(a)) for name, a in self.arrays.items())

    @cached_property
    def leaves(self) -> dict[str, Array]:
        """Every array by name, once all inputs are bound; see `leaves`."""
        return every_leaf(self.arrays)


def shape_key(given: Any) -> Hashable:
    """The type of what is given for an input: of an array its shape and dtype."""
    if isinstance(given, list):
        return tuple(map(shape_key, given))
    return None if given is None else (given.shape, given.dtype)


def bind(ports: Mapping[str, Port], given: Any, doing: str) -> Binding:
    """The arrays of a run, each held against its input and the dims that others bound.

    Errors   InputError for a missing input, UnknownName, DTypeError, ShapeError.
    """
    if not isinstance(given, Mapping):
        wanted = ", ".join(f"{name!r}: …" for name in ports)
        raise InputError(
            doing,
            f"{named(given)} was given",
            "inputs are given by name, in a dict",
            f"pass {{{wanted}}}",
        )
    for name in given:
        if name not in ports:
            raise UnknownName(
                doing,
                f"the model has no input {name!r}",
                "it has " + (", ".join(map(repr, ports)) or "no inputs"),
                did_you_mean(str(name), ports),
            )
    binding = Binding()
    missing = [n for n, p in ports.items() if n not in given and p.kind != "optional"]
    if missing:
        raise InputError(
            doing,
            f"input '{missing[0]}' was not given",
            f"{len(given)} of {len(ports)} inputs given",
            f"pass {', '.join(map(repr, missing))}",
        )
    for name, port in ports.items():
        what = f"{doing}, input '{name}'"
        binding.arrays[name] = _value(port, given.get(name), binding, what)
    return binding


def _value(port: Port, given: Any, binding: Binding, doing: str) -> Any:
    if port.kind == "sequence" and not isinstance(given, list | tuple):
        raise InputError(doing, f"{named(given)} was given", "a list is wanted")
    if port.kind == "sequence" or (port.kind == "optional" and _is_arrays(given)):
        return [_array(port, one, doing) for one in given]
    if given is None and port.kind == "optional":
        return None
    array = _array(port, given, doing)
    _bind_dims(port, array.shape, binding, doing)
    return array


def _is_arrays(given: Any) -> bool:
    """A list of arrays, where one of numbers would be an array itself."""
    return isinstance(given, list | tuple) and all(hasattr(g, "shape") for g in given)


def _array(port: Port, given: Any, doing: str) -> Array:
    if not isinstance(port.dtype, DType):
        return _foreign(port, given, doing)
    wanted = port.dtype.numpy
    if type(given) is np.ndarray and given.dtype == wanted:
        return given
    is_there = isinstance(given, DeviceArray)
    try:
        array: Any = given if is_there else array_of(given, bfloat16=True)
        if isinstance(given, bool | int | float | list | tuple):
            return cast_whole(array, port.dtype)
    except RlxError as error:
        error.doing = doing
        raise
    if array.dtype.newbyteorder("=") != wanted:
        raise DTypeError(
            doing,
            f"the array is {shown_dtype(array.dtype)}",
            f"the model declares {port.dtype}",
            how_to_cast(port.dtype),
        )
    same: Array = array if is_there else array.astype(wanted, copy=False)
    return same


def check_output(declared: Declared, dtype: str, shape: Shape, doing: str) -> None:
    """An output as the model declares it. Errors  ModelError.

    A dimension's number is held against only where `declared` has one.
    """
    kind = declared.type
    if kind is None or kind.kind != "tensor" or kind.dtype is None:
        return
    same = kind.dtype.name == dtype or kind.dtype.kind == "O"
    dims = kind.dims
    fits = dims is None or (
        len(dims) == len(shape)
        and all(
            d == n or not isinstance(d, int) for d, n in zip(dims, shape, strict=True)
        )
    )
    if not same or not fits:
        raise ModelError(
            f"{doing}, output '{declared.name}'",
            f"it is declared as {kind}",
            f"its nodes give {show(shape)} {dtype}",
            "the model contradicts itself: export it again",
        )


def _foreign(port: Port, given: Any, doing: str) -> Array:
    """An array of a type that rlxweb has none for: its values are used, not its bytes.

    Whatever a model does with them is done while it is converted.
    """
    if port.dtype == "text":
        raise DTypeError(doing, "the model wants text", "rlxweb computes with numbers")
    array = np.asarray(given)
    if array.dtype.name != port.dtype:
        raise DTypeError(
            doing,
            f"the array is {array.dtype}",
            f"the model declares {port.dtype}",
            "rlxweb's own types are " + ", ".join(d.value for d in DType),
        )
    return array


def _bind_dims(
    port: Port, shape: tuple[int, ...], binding: Binding, doing: str
) -> None:
    if port.dims is None:
        return
    if len(shape) != len(port.dims):
        raise ShapeError(
            doing,
            f"the array is {show(shape)}",
            f"the model declares {show_dims(port.dims)}",
        )
    for at, (have, want) in enumerate(zip(shape, port.dims, strict=True)):
        if isinstance(want, str):
            bound, by = binding.dims.setdefault(want, (have, port.name))
            if bound != have:
                raise ShapeError(
                    doing,
                    f"dimension {at}, '{want}', is {have}",
                    f"input '{by}' has {bound} for it",
                    "the same name is the same size",
                )
        elif want is not None and want != have:
            raise ShapeError(
                doing,
                f"the array is {show(shape)}",
                f"the model declares {show_dims(port.dims)}",
                "reshape it",
            )


def leaves(name: str, given: Any) -> Iterator[tuple[str, Array]]:
    """The arrays of an input by name; those of a sequence are numbered."""
    if isinstance(given, list):
        for at, one in enumerate(given):
            yield f"{name}[{at}]", one
    elif given is not None:
        yield name, given


def every_leaf(arrays: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of all inputs by name."""
    return {n: a for name, given in arrays.items() for n, a in leaves(name, given)}
