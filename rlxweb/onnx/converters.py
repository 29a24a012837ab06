"""Converters: how an op of ONNX is said with ours. The table, and how one is written.

An op that is exactly one of ours needs none: its name stands on our record (`Op.onnx`).
Any other has a converter in the file of its family, registered under its ONNX name:

    @converts("LeakyRelu")
    def _leaky_relu(call: Call, x: Tensor, *, alpha: float = 0.01) -> Tensor:
        return call.g.where(x >= 0.0, x, x * alpha)

    @converts("Squeeze", since=13)
    def _squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        dropped = None if axes is None else call.ints(axes, "axes")
        return squeezed(call.g, x, dropped)

- The node's inputs come by position, None for one that is left out; a parameter without
  a default must be given. Its attributes come by keyword, with ONNX's defaults in the
  signature: strings, floats, ints, tuples of them, `Weight` for a tensor, `GraphRecord`
  for a body. An attribute that the signature does not name is refused. What several ops
  have is one TypedDict: `**where: Unpack[Where]`.
- Values are tensors of `call.g`, the draft, which takes every call of a `Graph` and
  folds: an op of known operands is computed at once. `call.known(x, "what")` gives the
  array of a value that must be known, `call.ints(x, "what")` its integers. Where it
  depends on an input of the model, the model is converted again for that input's value;
  so nothing is guessed and no shape is unknown. `call.g.known(x)` is None instead.
- A value whose type rlxweb has none for (text, small floats …) is a bare NumPy array;
  one of 4 or 2 bits may be a `Narrow`; a sequence is a list, an optional without a
  value is None.
- One output: a tensor. Several: a tuple in ONNX's order; `call.wants(1)` tells whether
  the second is used, None stands for one that is not.
- `since` is the op's version from which on the converter is right, until the next one
  registered for it or through version `until`; `domain` is another than ONNX's own.
- What cannot be done is refused with `call.refuse(problem, rule, hint)`; errors of
  shape rules get the node's place by themselves.
- An op with no converter that ONNX itself defines by other ops is done by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, NoReturn, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from rlxweb.errors import ModelError, Unsupported, shown
from rlxweb.ir.op import Op, registry
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx import library
from rlxweb.onnx.draft import Draft, ours
from rlxweb.onnx.narrow import Narrow
from rlxweb.onnx.records import GraphRecord, NodeRecord

FAMILIES = (
    "constants",
    "elementwise",
    "movement",
    "reduction",
    "linalg",
    "norms",
    "picking",
    "regions",
    "region_maxima",
    "grams",
    "resize",
    "selection",
    "lists",
    "transforms",
    "windows",
    "quantized",
    "control",
    "recurrent",
    "attention",
    "rotary",
    "microsoft",
    "microsoft_attention",
    "trees",
    "classical",
    "support_vectors",
    "microsoft_packed",
    "microsoft_quantized",
    "microsoft_tables",
)
"""The files of converters: `rlxweb/onnx/NAME.py` each. A new family adds its line."""

Value = Any
"""A Tensor, a list of them (a sequence), a NumPy array of a type we have not, a Narrow,
None."""
Converter = Callable[..., Any]

_NEWEST = 1 << 31

_table: dict[tuple[str, str], list[tuple[int, int, Registered]]] = {}


class NeedsValues(Exception):  # not an error: it asks
    """What has to be known depends on these inputs of the model.

    tensor   of the draft, whose values are asked for
    """

    def __init__(self, names: set[str], what: str, tensor: Tensor) -> None:
        super().__init__(names, what)
        self.names = names
        self.what = what
        self.tensor = tensor


@dataclass(frozen=True, slots=True)
class Registered:
    """A converter and what its signature says.

    least  how many inputs it is called with at least
    most   how many it takes; None: any number
    attrs  the attributes it knows; None: any, it looks itself
    anything  the places of inputs that may be more than tensors of ours; from `more` on
              all of them
    optional  of the least those that may be left out all the same
    """

    convert: Converter
    least: int
    most: int | None
    attrs: frozenset[str] | None
    anything: frozenset[int] = frozenset()
    more: int | None = None
    optional: frozenset[int] = frozenset()

    def takes_anything(self, place: int) -> bool:
        """May that input be a sequence, or an array of a type that rlxweb has not?"""
        return place in self.anything or (self.more is not None and place >= self.more)


def converts(
    *ops: str, since: int = 1, until: int = _NEWEST, domain: str = ""
) -> Callable[[Converter], Converter]:
    """Register a converter for ops of ONNX by name."""

    def register(convert: Converter) -> Converter:
        made = _registered(convert)
        for op in ops:
            versions = _table.setdefault((domain, op), [])
            if any(since == at for at, *_ in versions):
                raise ValueError(f"{op} of version {since} has a converter")
            versions.append((since, until, made))
        return convert

    return register


def _registered(convert: Converter) -> Registered:
    _, *rest = signature(convert).parameters.values()
    places = [p for p in rest if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    any_number = any(p.kind is Parameter.VAR_POSITIONAL for p in rest)
    known = {p.name for p in rest if p.kind is Parameter.KEYWORD_ONLY}
    more = [p.name for p in rest if p.kind is Parameter.VAR_KEYWORD]
    shared = [get_args(get_type_hints(convert)[name]) for name in more]
    for (kind,) in filter(None, shared):
        known |= get_type_hints(kind).keys()
    last = next((p for p in rest if p.kind is Parameter.VAR_POSITIONAL), None)
    return Registered(
        convert,
        sum(p.default is Parameter.empty for p in places),
        None if any_number else len(places),
        frozenset(known) if all(shared) else None,
        frozenset(at for at, p in enumerate(places) if _is_open(p)),
        len(places) if last is not None and _is_open(last) else None,
        frozenset(
            at
            for at, p in enumerate(places)
            if p.default is Parameter.empty and "None" in str(p.annotation)
        ),
    )


def _is_open(parameter: Parameter) -> bool:
    """Does its annotation say more than Tensor?"""
    return "Value" in str(parameter.annotation)


@cache
def _loaded() -> None:
    for name in FAMILIES:
        import_module(f"rlxweb.onnx.{name}")


def converter_of(op: str, domain: str, version: int) -> Registered | None:
    """What converts an op at an opset's version; None: nothing does."""
    _loaded()
    versions = _table.get((domain, op), ())
    fits = [one for one in versions if one[0] <= version <= one[1]]
    if fits:
        return max(fits, key=lambda one: one[0])[2]
    same = same_ops(registry.changes).get(op) if not domain else None
    return None if same is None else _as_it_is(same)


@lru_cache(maxsize=2)
def same_ops(changes: int) -> dict[str, Op]:
    """Our ops by the names of the ONNX ops that are exactly the same.

    changes  of the registry: a later one is read anew
    """
    return {name: op for op in registry for name in op.onnx}


def _as_it_is(op: Op) -> Registered:
    def convert(call: Call, *inputs: Tensor, **attrs: Any) -> Tensor:
        return call.g.apply(op.name, *inputs, **attrs)

    least, most = op.arity_range()
    return Registered(convert, least, most, frozenset(a.name for a in op.attrs))


@dataclass(frozen=True)
class Call:
    """One node that is being converted: what a converter is handed.

    g        the draft, which takes every call of a Graph
    node     its record
    version  of the opset of its domain
    inner    (body, its inputs' values) → its outputs' values, outer names seen
    doing    for messages: the model and the place
    """

    g: Draft
    node: NodeRecord
    version: int
    inner: Callable[[GraphRecord, Sequence[Value]], list[Value]] = field(repr=False)
    doing: str = ""

    def wants(self, output: int) -> bool:
        """Is that output used?"""
        return output < len(self.node.outputs) and bool(self.node.outputs[output])

    def known(self, value: Value, what: str) -> npt.NDArray[Any]:
        """The array of a value that must be known to go on.

        what     it is, for messages: "axes"
        Errors   NeedsValues, which the import answers by giving the inputs' values, or
        by computing these
        """
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, Narrow):
            return self.known(value.tensor, what).astype(value.dtype)
        if not isinstance(value, Tensor):
            self.refuse(f"{what} is {shown(value)}", "a tensor is wanted")
        array = self.g.known(value)
        if array is not None:
            return library.numbers(array)
        if names := self.g.inputs_behind(value):
            raise NeedsValues(names, f"{what} of {self.doing}", value)
        return library.numbers(self.g.evaluated(value))

    def ints(self, value: Value, what: str) -> tuple[int, ...]:
        """The integers of a value that must be known; a single number is one."""
        array = self.known(value, what)
        if array.dtype.kind not in "iub":
            self.refuse(f"{what} is of {array.dtype}", "integers are wanted")
        return tuple(int(v) for v in array.reshape(-1))

    def number(self, value: Value, what: str) -> Any:
        """The one number of a value that must be known, as Python's."""
        array = self.known(value, what)
        if array.size != 1:
            self.refuse(f"{what} has {array.size} elements", "one is wanted")
        return array.reshape(-1)[0].item()

    def found(self, x: Tensor, what: str) -> Tensor:
        """The places [rank, count] (i32) of what is not zero; the count gets known."""
        if x.id not in self.g.counts:
            self.g.counts[x.id] = self.g.count_nonzero(x)
        count = int(self.number(self.g.counts[x.id], what))
        return self.g.nonzero(x, count)[0]

    def hold(self, array: Any) -> Value:
        """A known value: a tensor, or the array itself where we have no such type."""
        return held(self.g, array)

    def refuse(self, problem: str, rule: str = "", hint: str = "") -> NoReturn:
        """Raise Unsupported for what rlxweb does not do of an operator."""
        raise Unsupported(self.doing, problem, rule, hint)

    def contradict(self, problem: str, rule: str = "") -> NoReturn:
        """Raise ModelError for what no valid model contains."""
        raise ModelError(self.doing, problem, rule)


def held(g: Draft, array: Any) -> Value:
    """See `Call.hold`."""
    array = np.asarray(array)
    return array if ours(array.dtype) is None else g.hold(array)
