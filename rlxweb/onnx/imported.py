"""One conversion of a model for given types of its inputs: the graph, and the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.errors import DTypeError, Unsupported
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import library
from rlxweb.onnx.converters import NeedsValues, Value, held
from rlxweb.onnx.draft import Draft, ours
from rlxweb.onnx.narrow import Narrow
from rlxweb.onnx.records import ModelRecord, Weight
from rlxweb.onnx.signature import check_output, every_leaf, leaves, port_of
from rlxweb.onnx.walk import Walk
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.on_devices import OnDevices

Array = npt.NDArray[Any]

MOST_DECIDING = 4096
"""Elements of an input whose values decide shapes or branches, at most."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The place of an output among those that the graph computes.

    dtype  that it has at home, where rlxweb has none for it
    """

    at: int
    dtype: np.dtype[Any] | None = None


@dataclass
class Imported:
    """A model as a graph.

    graph    computes what is not known; its inputs are those of the model that matter
    params   the weights in use
    outputs  for each output of the model: Computed, an array, a list of them, or None
    decided  inputs whose values were used, with these values
    inputs   names of those that the graph has
    places   where it was compiled
    """

    graph: Graph
    params: dict[str, Weight]
    outputs: dict[str, Any]
    decided: dict[str, bytes] = field(default_factory=dict)
    inputs: tuple[str, ...] = field(init=False)
    places: OnDevices = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = tuple(self.graph.named("input"))
        self.places = OnDevices(self.graph)

    def fits(self, given: Mapping[str, Array]) -> bool:
        """Have the deciding inputs the values for which this was made?

        given    arrays of the same types, by name
        """
        return all(values_of(given[n]) == was for n, was in self.decided.items())

    def staying(self, keep: bool | Collection[str]) -> bool | tuple[int, ...]:
        """The positions, in the graph, of the outputs that stay on the device."""
        if isinstance(keep, bool):
            return keep
        kept = [one for name, one in self.outputs.items() if name in keep]
        return tuple(sorted({one.at for one in kept if isinstance(one, Computed)}))

    def results(self, computed: list[Array]) -> dict[str, Any]:
        """The model's outputs by name, of what the graph computed."""
        return {name: _filled(one, computed) for name, one in self.outputs.items()}


def _filled(one: Any, computed: list[Array]) -> Any:
    if isinstance(one, list):
        return [_filled(each, computed) for each in one]
    if isinstance(one, Computed):
        made = computed[one.at]
        if one.dtype is not None and isinstance(made, np.ndarray):
            return made.astype(one.dtype)
        return library.numbers(made) if isinstance(made, np.ndarray) else made
    return library.numbers(one).copy() if isinstance(one, np.ndarray) else one


def values_of(array: Array) -> bytes:
    """Equal for arrays of one type that have equal values."""
    return fetched(array).tobytes()


def fetched(array: Any) -> Array:
    """An array whose values decide, brought home from where it lies."""
    return array.numpy() if isinstance(array, DeviceArray) else array


class Undecided(Unsupported):
    """A shape depends on what the model computes of an input that is large.

    `run` computes it first and goes on from there; there is no single graph.
    """


def converted(model: ModelRecord, arrays: Mapping[str, Any], doing: str) -> Imported:
    """The model for inputs of these types, and of these values where they decide.

    Errors   MissingOps, ModelError, Unsupported, and those of shape rules; Undecided.
    """
    decided = set(foreign_inputs(arrays, doing))
    while True:
        try:
            return _once(model, arrays, decided, doing)
        except NeedsValues as wanted:
            if large_ones(wanted, arrays, decided):
                raise undecided(wanted, arrays, decided, doing) from None
            decided |= wanted.names


def undecided(
    wanted: NeedsValues, arrays: Mapping[str, Any], decided: set[str], doing: str
) -> Unsupported:
    """What is raised where a large input decides; Undecided if it is by few values."""
    name, *_ = large_ones(wanted, arrays, decided)
    given = every_leaf(arrays)[name]
    problem = f"{wanted.what} depends on the values of input '{name}' "
    problem += show(given.shape)
    if numel(wanted.tensor.shape) <= MOST_DECIDING:
        rule = f"at most {MOST_DECIDING:,} elements of an input decide a graph"
        hint = "`run` computes it on the way, and goes on from there"
        return Undecided(doing, problem, rule, hint)
    rule = f"inputs that decide shapes have at most {MOST_DECIDING:,} elements"
    hint = "make it a constant of the model, or give it as an input of its own"
    return Unsupported(doing, problem, rule, hint)


def foreign_inputs(arrays: Mapping[str, Any], doing: str) -> Iterator[str]:
    """The inputs whose types rlxweb has not: what is done with them is done here."""
    for name, array in every_leaf(arrays).items():
        if ours(array.dtype) is None:
            if array.size > MOST_DECIDING:
                raise DTypeError(
                    doing,
                    f"input '{name}' is {show(array.shape)} {array.dtype}",
                    f"of a type it has not rlxweb takes {MOST_DECIDING:,} elements",
                )
            yield name


def large_ones(
    wanted: NeedsValues, arrays: Mapping[str, Any], decided: set[str]
) -> list[str]:
    """The inputs whose values are too many to be looked at for each run."""
    given = every_leaf(arrays)
    new = sorted(wanted.names - decided)
    return [n for n in new if given[n].size > MOST_DECIDING]


def _check(model: ModelRecord, outs: Sequence[Value], doing: str) -> None:
    """The outputs of a model of fixed shapes are what it declares.

    Where dims are free, numbers among the declared ones are often those of whatever
    size it was exported with, and say nothing.
    """
    ports = [
        port_of(d) for d in model.graph.inputs if d.name not in model.graph.weights
    ]
    if not all(p.is_fixed for p in ports):
        return
    for declared, value in zip(model.graph.outputs, outs, strict=True):
        if isinstance(value, Tensor):
            dtype = library.numpy_of(value.dtype).name
            check_output(declared, dtype, value.shape, doing)
        elif isinstance(value, np.ndarray | Narrow):
            check_output(declared, value.dtype.name, value.shape, doing)


def walked(
    model: ModelRecord,
    arrays: Mapping[str, Any],
    decided: set[str],
    doing: str,
    g: Draft,
) -> list[Value]:
    """The model's outputs in a draft. Errors  as `converted`; NeedsValues."""

    def leaf(name: str, array: Array) -> Value:
        if name in decided:
            return held(g, fetched(array))
        return g.input(name, array.shape, as_dtype(array.dtype))

    def value(name: str, given: Any) -> Value:
        if isinstance(given, list):
            return [leaf(n, a) for n, a in leaves(name, given)]
        return None if given is None else leaf(name, given)

    values = {name: value(name, given) for name, given in arrays.items()}
    outs = Walk(model, g, doing).outputs(values)
    _check(model, outs, doing)
    return outs


def placed(
    model: ModelRecord, g: Draft, outs: Sequence[Value]
) -> tuple[list[Tensor], dict[str, Any]]:
    """What is computed, and each output by name: known, or where it is among those."""
    computed: list[Tensor] = []

    def place(one: Value) -> Any:
        if isinstance(one, list):
            return [place(each) for each in one]
        if isinstance(one, Narrow):
            held = place(one.tensor)
            if isinstance(held, Computed):
                return Computed(held.at, one.dtype)
            return held.astype(one.dtype)
        if not isinstance(one, Tensor):
            return one
        array = g.known(one)
        if array is not None:
            return array
        if one.id not in [t.id for t in computed]:
            computed.append(one)
        return Computed([t.id for t in computed].index(one.id))

    names = [d.name for d in model.graph.outputs]
    return computed, {n: place(v) for n, v in zip(names, outs, strict=True)}


def _once(
    model: ModelRecord, arrays: Mapping[str, Any], decided: set[str], doing: str
) -> Imported:
    g = Draft(model.graph.name or "model")
    outs = walked(model, arrays, decided, doing, g)
    computed, outputs = placed(model, g, outs)
    graph, params = g.finished(computed)
    given = every_leaf(arrays)
    decisive = {n: values_of(given[n]) for n in sorted(decided)}
    return Imported(graph, params, outputs, decisive)
