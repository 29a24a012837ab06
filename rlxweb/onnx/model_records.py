"""Plain records of an ONNX model: the file's contents and their locations in it.

Made by `model_reader.py`; nothing that comes after it looks at the file's own messages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rlxweb.core.fork_safety import cached_property
from rlxweb.ir.shape_arithmetic import Shape, format_shape

Dims = tuple[int | str | None, ...]
"""A number, a name, or None for each dimension; None means that nothing is declared
about it.
"""


@dataclass(frozen=True, slots=True)
class AttributeRef:
    """Reference, in a function's body, to an attribute that the caller of the function
    supplies.
    """

    name: str


@dataclass(frozen=True, slots=True)
class ValueType:
    """Declared type of a value.

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
class DeclaredValue:
    """Name of a value and its declared type, or None if no type is declared."""

    name: str
    type: ValueType | None = None


@dataclass
class Weight:
    """Tensor of the model's file, read lazily when its array is requested.

    dtype  in NumPy's words: the `onnx` package knows small types that we have not
    location  where its numbers are: "the model", or a file beside it
    is_derived  it is computed of another one: a matrix in words for a kernel, say
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    read: Callable[[], npt.NDArray[Any]] = field(repr=False)
    location: str = "the model"
    is_derived: bool = False
    _derived: dict[Hashable, Weight] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def derive(
        self,
        key: Hashable,
        dtype: np.dtype[Any],
        function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
        shape: Shape | None = None,
    ) -> Weight:
        """Return a weight that is computed from this one's array when it is read,
        cached by key.

        key    what tells the function from others: there is one for each, which all
               conversions of a model share
        shape  None: the same
        """
        derived = self._derived.get(key)
        if derived is None:
            derived = Weight(
                self.name,
                self.shape if shape is None else shape,
                dtype,
                lambda: np.asarray(function(self.read()), dtype),
                self.location,
                is_derived=True,
            )
        return self._derived.setdefault(key, derived)

    @cached_property
    def array(self) -> npt.NDArray[Any]:
        """The tensor's values, read-only. Raises ModelError if they cannot be read."""
        array = self.read()
        array.setflags(write=False)
        return array

    def __str__(self) -> str:
        return f"{format_shape(self.shape)} {self.dtype}"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node: a call of an operator.

    inputs   names; "" for one that is left out
    outputs  names; "" for one that nobody wants
    attrs    numbers, text, tuples of them, Weights, graphs, and `AttributeRef`s in
             functions
    location  where it stands, for messages: "node 12 'conv1'"
    message  the file's own message, for what the `onnx` package is asked about it
    """

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    location: str
    message: Any = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """The operator's name for messages: `Conv`, or `com.microsoft.FusedConv`."""
        return f"{self.domain}.{self.op}" if self.domain else self.op


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """Record of a graph: the model's main graph, a branch or a loop body."""

    name: str
    inputs: tuple[DeclaredValue, ...]
    outputs: tuple[DeclaredValue, ...]
    weights: Mapping[str, Weight]
    nodes: tuple[NodeRecord, ...]


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """Function defined by the model, or the function by which ONNX defines an operator.

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
    """Record of a model: its graph, its functions by (domain, name), its opset versions
    by domain.
    """

    graph: GraphRecord
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionRecord]
    producer: str = ""
