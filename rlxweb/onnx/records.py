"""A model of ONNX as plain records: what the file says, and where it says it.

Made by `reading.py`; nothing that comes after it looks at the file's own messages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rlxweb.forked import cached_property
from rlxweb.ir.shape import Shape, show

Dims = tuple[int | str | None, ...]
"""A number, a name, or None for a dimension of which nothing is said."""


@dataclass(frozen=True, slots=True)
class Ref:
    """An attribute of a function's body that is given by whoever calls the function."""

    name: str


@dataclass(frozen=True, slots=True)
class ValueType:
    """What a value is declared as.

    dtype    of a tensor's elements, in NumPy's words; object for text
    dims     None where not even the rank is said
    element  of a sequence or an optional: what is in it
    """

    kind: Literal["tensor", "sequence", "optional", "other"]
    dtype: np.dtype[Any] | None = None
    dims: Dims | None = None
    element: ValueType | None = None

    def __str__(self) -> str:
        if self.kind != "tensor":
            return f"{self.kind} of {self.element}" if self.element else self.kind
        if self.dims is None:
            return f"[…] {self.dtype}"
        dims = ", ".join("?" if d is None else str(d) for d in self.dims)
        return f"[{dims}] {self.dtype}"


@dataclass(frozen=True, slots=True)
class Declared:
    """A value by name with what is said of it; None where nothing is."""

    name: str
    type: ValueType | None = None


@dataclass
class Weight:
    """A tensor of the file, read when its array is asked for.

    dtype  in NumPy's words: the `onnx` package knows small types that we have not
    lies   where its numbers are: "the model", or a file beside it
    is_derived  it is computed of another one: a matrix in words for a kernel, say
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    read: Callable[[], npt.NDArray[Any]] = field(repr=False)
    lies: str = "the model"
    is_derived: bool = False
    _made: dict[Hashable, Weight] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def made(
        self,
        key: Hashable,
        dtype: np.dtype[Any],
        function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
        shape: Shape | None = None,
    ) -> Weight:
        """A weight that is computed of this one's numbers when it is read.

        key    what tells the function from others: there is one for each, which all
               conversions of a model share
        shape  None: the same
        """
        found = self._made.get(key)
        if found is None:
            found = Weight(
                self.name,
                self.shape if shape is None else shape,
                dtype,
                lambda: np.asarray(function(self.read()), dtype),
                self.lies,
                is_derived=True,
            )
        return self._made.setdefault(key, found)

    @cached_property
    def array(self) -> npt.NDArray[Any]:
        """Its numbers, read-only. Errors  ModelError where they cannot be had."""
        array = self.read()
        array.setflags(write=False)
        return array

    def __str__(self) -> str:
        return f"{show(self.shape)} {self.dtype}"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One call of an op.

    inputs   names; "" for one that is left out
    outputs  names; "" for one that nobody wants
    attrs    numbers, text, tuples of them, Weights, graphs, and `Ref`s in functions
    place    where it stands, for messages: "node 12 'conv1'"
    written  the file's own message, for what the `onnx` package is asked about it
    """

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    place: str
    written: Any = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """`Conv`, or `com.microsoft.FusedConv`."""
        return f"{self.domain}.{self.op}" if self.domain else self.op


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """A graph: the model's own, a branch or a body."""

    name: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    weights: Mapping[str, Weight]
    nodes: tuple[NodeRecord, ...]


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """A function of the model, or the one that ONNX defines an op by.

    attrs  names of those that a call may give, with their defaults; None: it has none
    """

    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    opsets: Mapping[str, int]
    nodes: tuple[NodeRecord, ...]


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model: its graph, its functions by (domain, name), its opsets by domain."""

    graph: GraphRecord
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionRecord]
    producer: str = ""
