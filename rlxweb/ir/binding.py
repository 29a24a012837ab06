"""The dims of a graph as numbers: given by the caller, or by the arrays of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from rlxweb.errors import OutOfMemory, RlxError, ShapeError
from rlxweb.ir.dim import Dim
from rlxweb.ir.fitting import unknown
from rlxweb.ir.shape import short, show
from rlxweb.ir.size import Extent, Size

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph, Node


def bound(graph: Graph, given: Mapping[str, Any]) -> Graph:
    """See `Graph.bind`."""
    log, known = graph.recording, graph.dims
    said = ", ".join(f"{name}={short(size)}" for name, size in given.items())
    doing = f"bind graph '{graph.name}' to {said or 'nothing'}"
    for name in given:
        if name not in known:
            raise unknown(doing, "dim", str(name), known)
    sizes = {name: known[name].check(size, doing) for name, size in given.items()}
    if log is None or not given:
        return graph.copy()
    try:
        now = log.replayed(log.first.copy(), sizes)
        now.graph.set_outputs([now.tensor(i) for i in graph.outputs])
    except RlxError as error:
        error.doing = f"{doing}: {error.doing}"
        raise
    except MemoryError as error:
        raise OutOfMemory(
            doing,
            f"the host's memory is not enough: {error}",
            hint="bind smaller sizes",
        ) from None
    return now.graph


def sample_bound(graph: Graph) -> Graph:
    """The graph with sizes that its dims may have; itself where no size varies.

    Answers what does not depend on the sizes: which ops there are, of which types.
    """
    if graph.recording is None or not graph.dims:
        return graph
    return graph.recording.tried(graph.outputs)


Ops: TypeAlias = "Graph | UnboundOps"
"""A graph of ops, whose sizes may be unknown."""


@dataclass(frozen=True, slots=True)
class UnboundOps:
    """The ops of a graph whose sizes vary; sizes that are unknown are a dim.

    ids   of nodes here, by those of the graph
    """

    name: str
    outputs: tuple[int, ...]
    every: tuple[Node, ...]
    ids: Mapping[int, int]

    def nodes(self) -> tuple[Node, ...]:
        return self.every

    def node(self, at: int) -> Node:
        return self.every[at]


def ops_of(graph: Graph) -> Ops:
    """The graph, or of one whose sizes vary the ops that its methods add.

    A size is unknown where it differs between the sizes that the graph was tried with.
    """
    log = graph.recording
    if log is None or not graph.dims:
        return graph
    first, *others = (log.tried(graph.outputs, at) for at in range(len(log.tries)))
    unknown = next(iter(graph.dims.values()))
    every = []
    for node in first.nodes():
        shapes = [_shape_at(other, node) for other in others]
        shape: Any = tuple(
            size if all(s is not None and s[axis] == size for s in shapes) else unknown
            for axis, size in enumerate(node.type.shape)
        )
        every.append(replace(node, type=replace(node.type, shape=shape)))
    ids = log.tries[0].ids
    return UnboundOps(graph.name, tuple(first.outputs), tuple(every), ids)


def _shape_at(graph: Graph, like: Node) -> Sequence[int] | None:
    """The shape of the same node for other sizes; None where there is another one."""
    if like.id >= len(graph):
        return None
    found = graph.node(like.id)
    same = found.op == like.op and found.type.rank == like.type.rank
    return found.type.shape if same else None


@dataclass
class _Found:
    """Dims as far as they are known, each with the input that told it."""

    sizes: dict[str, int] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)

    def of_dim(self, dim: Dim) -> int | Size:
        return self.sizes.get(dim.name, dim)

    def of_extent(self, extent: Extent) -> int | Size:
        raise ShapeError("", f"size {extent.text} is one of a tensor")

    def know(self, dim: Dim, size: int, at: int, name: str, doing: str) -> None:
        """A dim's size. Errors  ShapeError for one it may not be."""
        self.sizes[dim.name] = dim.check(size, f"{doing}, input '{name}', axis {at}")
        self.by[dim.name] = name


def sizes_of(
    graph: Graph, shapes: Mapping[str, Sequence[int]], doing: str
) -> dict[str, int]:
    """What the dims of a graph are, by the shapes of what is given for its inputs.

    Errors   ShapeError for shapes that contradict what is declared, each other, or what
    a dim may be; and for dims that no input tells.
    """
    found = _Found()
    later: list[tuple[str, int, Size, int]] = []
    for name, node in graph.named("input").items():
        declared: Sequence[Any] = node.type.shape
        if len(declared) != len(shapes[name]):
            raise _unlike(node, shapes[name], doing)
        for at, (want, have) in enumerate(zip(declared, shapes[name], strict=True)):
            if isinstance(want, Size):
                later.append((name, at, want, have))
            elif want != have:
                raise _unlike(node, shapes[name], doing)
    while later:
        left = [one for one in later if not _told(found, *one, doing)]
        if len(left) == len(later):
            break
        later = left
    for name in graph.dims:
        if name not in found.sizes:
            raise ShapeError(
                doing,
                f"dim '{name}' is told by no input's shape",
                "a run binds a dim by an axis that is as long",
                f"graph.bind({name}=…) binds it, or give an input an axis of it",
            )
    return {name: found.sizes[name] for name in graph.dims}


def _unlike(node: Node, shape: Sequence[int], doing: str) -> ShapeError:
    return ShapeError(
        f"{doing}, input '{node.name}'",
        f"the array is {show(shape)}",
        f"the graph declares {show(node.type.shape)}",
        "reshape it",
    )


def _told(found: _Found, name: str, at: int, want: Size, have: int, doing: str) -> bool:
    """Is an axis as long as it is to be, or does it tell a dim? False: not yet known.

    Errors   ShapeError.
    """
    of = list(want.made_of)
    new = {d.name: d for d in of if isinstance(d, Dim) and d.name not in found.sizes}
    if len(new) > 1 or not all(isinstance(one, Dim) for one in of):
        # What the rules of ops say is held against the array when all dims are bound.
        return not new
    if not new:
        size = want.at(found)
        if size != have:
            said = f"it is {size} with what other inputs have"
            if str(want) in found.by:
                said = f"input '{found.by[str(want)]}' has {size} for it"
            raise ShapeError(
                f"{doing}, input '{name}'",
                f"dimension {at}, '{want}', is {have}",
                said,
                "the same name is the same size",
            )
        return True
    (dim,) = new.values()
    solved = _solved(found, want, dim, have)
    if solved is None:
        return False
    found.know(dim, solved, at, name, doing)
    if want.at(found) != have:
        raise ShapeError(
            f"{doing}, input '{name}'",
            f"dimension {at} is {have}",
            f"it is {want}, of a whole '{dim.name}'",
        )
    return True


def _solved(found: _Found, want: Size, dim: Dim, have: int) -> int | None:
    """The dim for which a size is `have`; None where that is no linear question."""

    def at(size: int) -> int:
        sizes = {**found.sizes, dim.name: size}
        made = want.at(_Found(sizes))
        assert isinstance(made, int)
        return made

    try:
        zero, one, two = at(0), at(1), at(2)
    except ShapeError:  # it divides something
        return None
    if one == zero or two - one != one - zero:
        return None
    return (have - zero) // (one - zero)
