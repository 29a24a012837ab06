"""A graph whose sizes vary: what was asked of it, to be asked again of numbers.

Every call of the graph's methods is written down. It is done at once, too, with some
sizes that the dims may have, so that what is wrong is said at the line that wrote it
and shapes are known: lengths of an axis that differ are a Size. To bind the dims is to
do all calls again with their sizes, by the rules that any graph has. What a program was
told of sizes while it built the graph is held on to, and checked then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.errors import (
    GraphError,
    RlxError,
    ShapeError,
    UsageError,
)
from rlxweb.ir.dim import Dim
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape import many, short, show
from rlxweb.ir.size import SAMPLES, SIGNS, Extent, Size, told
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


LEAVES = ("input", "param")
PLAIN = (
    *(*LEAVES, "bind", "recorded", "copied", "copy", "save", "set_outputs"),
    *("node", "nodes", "tensor", "shape_of", "named", "users"),
)
"""Methods of a graph that build nothing, or write down themselves what they do."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor of the graph, in a call."""

    id: int

    def __repr__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True)
class Call:
    """A method of the graph, what it was given and, as references, what it gave."""

    method: str
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    made: Any = None

    @property
    def operands(self) -> list[Ref]:
        """The tensors it was given."""
        return _tensors((self.args, dict(self.named)))


@dataclass(slots=True)
class Replay:
    """The calls, done on a graph of given sizes. Tells sizes there.

    ids  of tensors here, by those of the recorded graph
    """

    graph: Graph
    sizes: Mapping[str, int | Size]
    ids: dict[int, int]

    def of_dim(self, dim: Dim) -> int | Size:
        return self.sizes.get(dim.name, dim)

    def of_extent(self, extent: Extent) -> int | Size:
        return self.tensor(extent.tensor).shape[extent.axis]

    def tensor(self, at: int) -> Tensor:
        return self.graph.tensor(self.ids[at])

    def called(self, call: Call) -> Any:
        args = _changed(call.args, self._given)
        named = _changed(dict(call.named), self._given)
        return getattr(self.graph, call.method)(*args, **named)

    def _given(self, one: Any) -> Any:
        if isinstance(one, Ref):
            return self.tensor(one.id)
        return one.at(self) if isinstance(one, Size) else one

    def learned(self, made: Any, refs: Any) -> None:
        """What a call made here is what the references stand for."""
        both = zip(_tensors(made), _tensors(refs), strict=True)
        self.ids.update({ref.id: tensor.id for tensor, ref in both})

    def copy(self) -> Replay:
        return Replay(self.graph.copy(), self.sizes, dict(self.ids))

    @property
    def said(self) -> str:
        """`batch=5, n=31`."""
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())


@dataclass(slots=True)
class Recording:
    """What was asked of a graph since it has dims.

    first   its nodes before
    dims    by name
    calls   in order
    tries   the calls on graphs of sizes that the dims may have
    held    what Python code was told of sizes: sign, both sides, and the answer
    shapes  those it was told of tensors
    token   what it shares with its copies
    """

    first: Graph
    dims: dict[str, Dim] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    tries: list[Replay] = field(default_factory=list)
    held: list[tuple[str, Size, Size | int, bool]] = field(default_factory=list)
    shapes: dict[int, tuple[int | Size, ...]] = field(default_factory=dict)
    token: object = field(default_factory=object)

    @classmethod
    def of(cls, graph: Graph) -> Recording:
        """Of a graph that has no dims yet."""
        made = cls(graph.copy())
        ids = {node.id: node.id for node in graph.nodes()}
        made.tries = [Replay(graph.copy(), {}, dict(ids)) for _ in range(SAMPLES)]
        return made

    def copy(self) -> Recording:
        return Recording(
            self.first,
            dict(self.dims),
            list(self.calls),
            [one.copy() for one in self.tries],
            list(self.held),
            dict(self.shapes),
            self.token,
        )

    def hold(self, sign: str, x: Size, y: Size | int, answer: bool) -> None:
        self.held.append((sign, x, y, answer))

    def know(self, dim: Dim, doing: str) -> Dim:
        """The dim of that name. Errors  GraphError where it may be other sizes."""
        known = self.dims.setdefault(dim.name, dim)
        if known.ends != dim.ends:
            raise GraphError(
                doing,
                f"{dim!r} is another than {known!r}",
                "one name is one dim",
                "use the same Dim, or another name",
            )
        for at, one in enumerate(self.tries):
            one.sizes = {**one.sizes, dim.name: known.samples[at]}
        return known

    def call(
        self, graph: Graph, method: str, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Do a call on every graph of sizes, and write it down. Errors  the call's."""
        before = dict(self.dims)
        try:
            call = Call(
                method,
                _changed(args, lambda one: self._kept(graph, method, one)),
                _changed(named, lambda one: self._kept(graph, method, one)),
            )
            made = [self._tried(one, call) for one in self.tries]
        except RlxError:
            self.dims = before
            raise
        outlines = {repr(_changed(one, lambda _: Ref(0))) for one in made}
        if len(outlines) > 1:
            raise UsageError(
                f"{method} of graph '{graph.name}'",
                "how many tensors it gives depends on sizes that a run binds",
                hint="ask for a number of them that is known",
            )
        every = zip(*map(_tensors, made), strict=True)
        new = iter([self._added(graph, call, tensors) for tensors in every])
        found = _changed(made[0], lambda one: next(new) if _is_ours(one) else one)
        refs = _changed(found, lambda one: Ref(one.id) if _is_ours(one) else one)
        for one, own in zip(self.tries, made, strict=True):
            one.learned(own, refs)
        self.calls.append(Call(method, call.args, call.named, refs))
        return found

    def _kept(self, graph: Graph, method: str, one: Any) -> Any:
        """What was given, as nobody changes it later."""
        if isinstance(one, Tensor):
            if one.graph is not graph:
                raise GraphError(
                    f"{method} in graph '{graph.name}'",
                    f"operand {short(one)} is not a tensor of this graph",
                    hint="make it with this graph's input, param or constant",
                )
            return Ref(one.id)
        if isinstance(one, Size):
            for atom in one.made_of:
                if isinstance(atom, Extent) and atom.of is not self.token:
                    raise GraphError(
                        f"{method} in graph '{graph.name}'",
                        f"size {one} is of another graph's tensor",
                    )
                if isinstance(atom, Dim):
                    self.know(atom, f"{method} in graph '{graph.name}'")
        if isinstance(one, np.ndarray):
            one = one.copy()
            one.flags.writeable = False
        return one

    def _tried(self, one: Replay, call: Call) -> Any:
        try:
            return one.called(call)
        except RlxError as error:
            if one.sizes:
                error.doing = f"{error.doing} (tried with {one.said})"
            raise

    def _added(self, graph: Graph, call: Call, tensors: Sequence[Tensor]) -> Tensor:
        """The node that stands for what a call made, one tensor for each try."""
        at = len(graph)
        shapes = [t.shape for t in tensors]
        if len(set(map(len, shapes))) > 1:
            raise UsageError(
                f"{call.method} of graph '{graph.name}'",
                "the rank of what it gives depends on sizes that a run binds",
            )
        shape = self._input_shape(call)
        if shape is None:
            lengths = enumerate(zip(*shapes, strict=True))
            shape = tuple(self._length(at, axis, every) for axis, every in lengths)
        kind = TensorType(shape, tensors[0].dtype)  # type: ignore[arg-type]
        return graph.recorded(call, kind)

    def _input_shape(self, call: Call) -> tuple[int | Size, ...] | None:
        """Of an input as it was declared, with this recording to answer."""
        if call.method != "input":
            return None
        return tuple(many(call.args[1]) or ())

    def _length(self, at: int, axis: int, every: tuple[int, ...]) -> int | Size:
        if len(set(every)) == 1:
            return every[0]
        extent = Extent(self.token, at, axis, every, self._text(every))
        return Size({(extent.key,): ((extent,), 1)}, self)

    def _text(self, every: tuple[int, ...]) -> str:
        """The first simple size that is so long for all sizes that were tried."""
        dims = list(self.dims.values())
        for size in (*dims, *(x * y for x in dims for y in dims)):
            assert isinstance(size, Size)
            a, b = size.samples[:2]
            times = (every[1] - every[0]) // (b - a) if a != b else 0
            rest = every[0] - times * a
            if times and tuple(times * n + rest for n in size.samples) == every:
                return str(size * times + rest)
            part = a // every[0] if every[0] else 0
            if part > 1 and tuple(n // part for n in size.samples) == every:
                return str(size // part)
        return "?"

    def told_shape(self, at: int, shape: Sequence[int | Size]) -> Any:
        """The shape of a tensor, which Python code knows from now on."""
        mine = (Size(d.terms, self) if isinstance(d, Size) else d for d in shape)
        self.shapes[at] = told_now = tuple(mine)
        return told_now

    def tried(self, outputs: Sequence[int], at: int = 0) -> Graph:
        """The graph of one of the sizes that were tried, with these outputs."""
        first = self.tries[at].copy()
        first.graph.set_outputs([first.tensor(at) for at in outputs])
        return first.graph

    def replayed(self, graph: Graph, sizes: Mapping[str, int]) -> Replay:
        """All calls on a graph, with these dims bound.

        Errors   those of the calls; ShapeError where what was built does not hold.
        """
        now = Replay(graph, sizes, {n.id: n.id for n in self.first.nodes()})
        for call in self.calls:
            made = now.called(call)
            if len(_tensors(made)) != len(_tensors(call.made)):
                raise ShapeError(
                    f"{call.method} of graph '{graph.name}'",
                    f"it gives {len(_tensors(made))} tensors",
                    f"{len(_tensors(call.made))} were built upon",
                )
            now.learned(made, call.made)
        self.check_held(now)
        return now

    def check_held(self, now: Replay) -> None:
        """What Python code was told holds there too, of what is there.

        Errors  ShapeError.
        """
        hint = "build the graph for these sizes, or say with Dim(…) what they may be"
        for sign, x, y, answer in self.held:
            left, right = told(x, now), told(y, now)
            if bool(SIGNS[sign](left, right)) is not answer:
                raise ShapeError(
                    f"is {x} {sign} {y}?",
                    f"it was {answer} where the graph was built, and is not here",
                    f"{left} {sign} {right}",
                    hint,
                )
        for at, shape in self.shapes.items():
            if at not in now.ids:
                continue  # it has no such tensor any more
            here = now.tensor(at).shape
            both = zip(shape, here, strict=True)
            if any(isinstance(d, int) and d != n for d, n in both):
                raise ShapeError(
                    f"the shape of %{at}",
                    f"it is {show(here)}",
                    f"the graph was built where it is {show(shape)}",
                    hint,
                )


def _is_ours(one: Any) -> bool:
    return isinstance(one, Tensor | Ref)


def _changed(value: Any, how: Callable[[Any], Any]) -> Any:
    """What was given, with `how` done to everything in its lists, dicts and slices."""
    if isinstance(value, tuple):
        parts = [_changed(one, how) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Iterator | list):
        return [_changed(one, how) for one in value]
    if isinstance(value, Mapping):
        return {key: _changed(one, how) for key, one in value.items()}
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return slice(*(_changed(one, how) for one in ends))
    return how(value)


def _tensors(value: Any) -> list[Any]:
    """The tensors, or references, in what a call gave, in order."""
    found: list[Any] = []
    _changed(value, lambda one: found.append(one) if _is_ours(one) else None)
    return found


def attributes(graph: Any, call: Call) -> dict[str, Any]:
    """What a call was given besides tensors, by parameter, to be shown."""
    given: dict[str, Any] = dict(call.named)
    names = list(signature(getattr(type(graph), call.method)).parameters)[1:]
    for at, one in enumerate(call.args):
        given[names[min(at, len(names) - 1)]] = one
    return {n: one for n, one in given.items() if not _tensors(one)}


def recording(plain: Sequence[str]) -> Callable[[type[Any]], type[Any]]:
    """A class of graphs whose public methods are written down where sizes vary.

    plain   names of those that are not
    """

    def made(kind: type[Any]) -> type[Any]:
        found = {name: getattr(kind, name) for name in dir(kind) if name[0] != "_"}
        methods = {
            name: method
            for name, method in found.items()
            if isfunction(method) and name not in plain
        }
        known: dict[Any, Any] = {}
        for name, method in methods.items():
            if method not in known:  # else it is one of two names
                own = method.__name__
                called = own if methods.get(own) is method else name
                known[method] = _written_down(called, method)
            setattr(kind, name, known[method])
        kind.BUILDS = frozenset((*methods, *LEAVES))
        return kind

    return made


def _written_down(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        log = self.recording
        if log is None:
            return method(self, *args, **named)
        return log.call(self, name, args, named)

    return call
