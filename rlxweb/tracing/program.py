"""A function traced for one signature: its graph, its inputs, how results are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlxweb.errors import ShapeError
from rlxweb.given import OnDevice, array_of
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing import vocabulary as vocabulary  # fills the tables
from rlxweb.tracing.around import Place, places_around
from rlxweb.tracing.place import refused
from rlxweb.tracing.trace import Captured, Trace, in_trace
from rlxweb.tracing.traced import DT, Traced
from rlxweb.tracing.trees import Same, Tree, flattened

Array = npt.NDArray[Any]


class Leaf(NamedTuple):
    """An array of the arguments: its place in them, its dtype and shape, and where it
    lies if it lies on a device.
    """

    path: str
    dtype: DT
    shape: tuple[Any, ...]
    device: str = ""

    def __str__(self) -> str:
        where = f" on {self.device}" if self.device else ""
        return f"{self.path}: {self.dtype.name} {show(self.shape)}{where}"


def leaf_of(path: str, value: Any, dims: tuple[Any, ...] | None) -> tuple[Leaf, Any]:
    """What tells an argument's array apart, and it as a run takes it.

    dims   its shape where sizes vary. Errors  ShapeError for one of another rank.
    """
    device, array = "", value
    if isinstance(value, OnDevice):
        device = str(array.device)
    else:
        array = array_of(value, f"argument {path}")
    shape = tuple(array.shape)
    if dims is not None and len(dims) != len(shape):
        problem, rule = f"its shape is {show(shape)}", f"dims has {show(dims)} for it"
        raise ShapeError(f"argument {path}", problem, rule)
    dtype = array.dtype.newbyteorder("=")
    return Leaf(path, dtype, shape if dims is None else dims, device), array


class Out(NamedTuple):
    """A result: the positions of its parts among the graph's outputs, and its dtype."""

    re: int
    im: int
    dtype: DT


class Program:
    """What one tracing left.

    graph    None where no result is computed from the arguments
    leaves   the arrays that come in
    around   what the function read from around itself
    """

    def __init__(
        self, trace: Trace, leaves: Sequence[Leaf], around: list[Place]
    ) -> None:
        self.leaves = tuple(leaves)
        self.around = around
        self.narrow = trace.narrow
        self.captured: list[Captured] = []
        self.graph: Graph | None = trace.graph
        self.tree: Tree
        self.results: list[Out | Array] = []

    @property
    def is_fresh(self) -> bool:
        """Is all that was built in still so?"""
        return all(place.is_same for place in self.around) and not any(
            one.changed for one in self.captured if not one.param
        )

    def params(self) -> dict[str, Array]:
        """The arrays from around the function, as the graph has them."""
        assert self.graph is not None
        kinds = {
            n: node.type.dtype.numpy for n, node in self.graph.named("param").items()
        }
        return {
            one.param: one.seen.astype(kinds[one.param], copy=False)
            for one in self.captured
            if one.param
        }

    def feeds(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The graph's inputs by name, of the arrays of a call."""
        assert self.graph is not None
        feeds: dict[str, Any] = {}
        for leaf, array in zip(self.leaves, arrays, strict=True):
            if leaf.dtype.kind == "c":
                feeds[f"{leaf.path}.real"] = array.real
                feeds[f"{leaf.path}.imag"] = array.imag
            else:
                feeds[leaf.path] = array
        if not self.narrow:
            return feeds
        for name, node in self.graph.named("input").items():
            if not isinstance(feeds[name], OnDevice):
                feeds[name] = np.asarray(feeds[name], node.type.dtype.numpy)
        return feeds

    def built(self, outs: Sequence[Any]) -> Any:
        """The function's result, of the outputs of a run."""
        return self.tree.built(iter([self._result(one, outs) for one in self.results]))

    def _result(self, one: Out | Array, outs: Sequence[Any]) -> Any:
        if not isinstance(one, Out):
            return one.copy() if isinstance(one, np.ndarray) else one
        re = outs[one.re]
        if isinstance(re, OnDevice):
            return re if one.im < 0 else (re, outs[one.im])
        if one.im < 0:
            whole = re.astype(one.dtype, copy=False)
        else:
            whole = np.empty(re.shape, one.dtype)
            whole.real, whole.imag = re, outs[one.im]
        return whole if whole.ndim else whole[()]


def traced(
    function: Callable[..., Any],
    name: str,
    tree: Tree,
    leaves: Sequence[Leaf],
    narrow: bool,
    call: Callable[[Any], Any],
) -> Program:
    """A function traced for arguments of this structure.

    tree    of the arguments by name
    call    calls the function with arguments by name
    Errors  TraceError for what it does that no graph can say; those of the function
    """
    trace = Trace(name, narrow)
    every = [_input(trace, leaf) for leaf in leaves]
    given = tree.built(iter(every))
    around = places_around(function, _objects_in(tree))
    with in_trace(trace):
        result = call(given)
    program = Program(trace, leaves, around)
    _finish(program, trace, result)
    del given, result, every
    program.captured = [one for one in trace.captured.values() if one.settle()]
    return program


def _input(trace: Trace, leaf: Leaf) -> Traced:
    dtype = trace.settled(leaf.dtype)
    kind = trace.part(dtype)
    if dtype.kind != "c":
        x = trace.graph.input(leaf.path, leaf.shape, kind)
        return Traced(trace, x, None, dtype, viewed=True)
    re, im = (
        trace.graph.input(f"{leaf.path}.{part}", leaf.shape, kind)
        for part in ("real", "imag")
    )
    return Traced(trace, re, im, dtype, viewed=True)


def _objects_in(tree: Tree) -> list[Any]:
    """The objects among the static arguments, whose attributes it may read."""
    if tree.kind == "static":
        return [tree.value]
    return [one for part in tree.parts for one in _objects_in(part)]


def _finish(program: Program, trace: Trace, result: Any) -> None:
    """Name the outputs of the graph, each once."""
    found: list[tuple[str, Any]] = []
    program.tree = flattened(result, "result", found, lambda value, path: Same(value))
    tensors: dict[int, tuple[int, Tensor]] = {}

    def position(tensor: Tensor) -> int:
        return tensors.setdefault(tensor.id, (len(tensors), tensor))[0]

    for path, one in found:
        if not isinstance(one, Traced):
            program.results.append(one)
            continue
        if one.trace is not trace:
            raise refused(path, "it was kept from another call, which has ended")
        im = -1 if one.im is None else position(one.im)
        program.results.append(Out(position(one.re), im, one.dtype))
    if tensors:
        trace.graph.set_outputs([tensor for _, tensor in tensors.values()])
    else:
        program.graph = None
