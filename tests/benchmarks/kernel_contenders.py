"""Contenders in a case of `./dev bench kernels`: every kernel variant alone, unchecked
shaders, and the same work by hand in PyTorch and CuPy.

A contender is made when it is its turn: its program, its place on the device, and the
proof that its answer is right. Arrays come to a device once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rlxweb.backends.agreement import compare, oracle
from rlxweb.backends.array_library import library
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Array, Backend, Program, Resident
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.devices.place import Place
from rlxweb.errors import (
    AdapterMissing,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    RlxError,
)
from rlxweb.forked import cached_property
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from tests.benchmarks.kernel_cases import Case

BY_HAND = {"torch": "PyTorch", "cupy": "CuPy"}
UNCHECKED = "its choice, unchecked shaders"
_UNCHECKED_OF = ("Welch peaks", "fft", "matmul f32")
Go = Callable[[int], object]
"""So many runs; returns when all of the work is done."""


@dataclass(slots=True)
class Row:
    """How one contender did one case: the median time of a run, or why there is none.

    variant    the one way it was made to take, "" for its own choice
    chosen     what its own choice was
    judged     "right" or "wrong" by NumPy in float64, at both ends of the answer; ""
               where nobody looked: by hand
    is_short   no memory was left for it beside the others
    spoils     its device, or this process, may be of no more use
    """

    case: Case
    engine: str
    variant: str = ""
    chosen: str = ""
    is_peer: bool = False
    judged: str = ""
    max_error: float = math.nan
    ns: float = math.nan
    spread: float = math.nan
    samples: int = 0
    first_ns: float = math.nan
    why: str = ""
    is_short: bool = False
    spoils: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.case.label, self.engine, self.variant

    @property
    def name(self) -> str:
        """The contender's name, for people and for patterns."""
        return ", ".join(filter(None, self.key))

    def failed(self, error: Exception) -> None:
        """Note why the contender has no time."""
        self.why = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        self.is_short = (
            isinstance(error, MemoryError | OutOfMemory)
            or "out of memory" in str(error).lower()
        )
        if isinstance(error, RlxError):
            self.spoils = isinstance(error, DeviceLost | GpuTimeout)
        else:  # after a fault of a kernel CUDA refuses all that follows
            self.spoils = isinstance(error, RuntimeError) and not self.is_short


@dataclass(slots=True)
class Contender:
    """A way that could be timed: `make` opens it, and the stack closes it."""

    row: Row
    make: Callable[[ExitStack], Go]


@dataclass
class Given:
    """A case with its arrays, and those of them that lie on a device."""

    case: Case
    stack: ExitStack
    _there: dict[str, dict[str, Resident]] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        return self.case.build()

    @cached_property
    def arrays(self) -> dict[str, Array]:
        return self.case.feeds(self.graph)

    @cached_property
    def ends(self) -> list[Array]:
        """The first rows of the right answer and the last ones, in float64."""
        found = []
        for last in (False, True):
            graph = self.case.few(last)
            found += oracle(graph, self.case.ends(self.arrays, graph, last))
        return found

    def on(self, place: Place, engine: Backend) -> dict[str, Resident]:
        """The arrays on a device, for all of its contenders."""
        if place.label not in self._there:
            there: dict[str, Resident] = {}
            for name, array in self.arrays.items():
                there[name] = drive(engine.put(array))
                self.stack.callback(_free, engine, there[name])
            self._there[place.label] = there
        return self._there[place.label]

    def judge(self, row: Row, engine: Backend, program: Program, feeds: Any) -> None:
        """Compare both ends of the answer with NumPy's; what is wrong has no time."""
        (out,) = drive(engine.run_resident(program, feeds, [True]))
        assert isinstance(out, Resident)
        node = self.graph.node(self.graph.outputs[0])
        allowed = registry.get(node.op).tolerance
        row.judged, row.max_error = "right", 0.0
        for want, is_last in zip(self.ends, (False, True), strict=True):
            at = math.prod(out.shape) - want.size if is_last else 0
            part = drive(engine.part(out, at, want.shape))
            got = np.array(drive(engine.get(part)))
            found = compare(got, want, node.type.dtype, allowed, self.case.slack)
            row.max_error = max(row.max_error, found.max_error)
            if found.why and not row.why:
                end = "last" if is_last else "first"
                row.judged, row.why = "wrong", f"wrong, {end} rows: {found.why}"
        _free(engine, out)


def _free(engine: Backend, resident: Resident) -> None:
    drive(engine.free(resident))


def contenders(
    given: Given, places: Sequence[Place], with_peers: bool
) -> Iterator[Contender]:
    """All who could do it, those first that a caller would get."""
    for place in places:
        yield from _of_engine(given, place)
    for name, peer in given.case.peers.items() if with_peers else ():
        yield from by_hand(given, name, peer)


def _of_engine(given: Given, place: Place) -> Iterator[Contender]:
    row = partial(Row, given.case, place.label)
    try:
        backend = pool.backend(place.device.label, place.adapter)
    except RlxError as error:
        gone = row()
        gone.failed(error)
        yield Contender(gone, lambda stack: lambda times: None)
        return
    own = row(chosen=chosen(backend, given.graph))
    yield Contender(own, partial(_ready, given, place, own, lambda: backend))
    for way in ways(backend, given.graph):
        if way == own.chosen:
            continue
        forced = row(way)
        how = partial(backend.forced, way)
        yield Contender(forced, partial(_ready, given, place, forced, how))
    if isinstance(backend, WebGpuBackend) and given.case.name in _UNCHECKED_OF:
        trusting = row(UNCHECKED, own.chosen)
        how = partial(_unchecked, backend)
        yield Contender(trusting, partial(_ready, given, place, trusting, how))


def _unchecked(backend: WebGpuBackend) -> Backend:
    rows, limits = backend.recipes.rows, backend.limits
    return WebGpuBackend(backend.port, limits=limits, variants=rows, trusts="all")


def _ready(
    given: Given,
    place: Place,
    row: Row,
    engine_of: Callable[[], Backend],
    stack: ExitStack,
) -> Go:
    """The program, its arrays, and is the answer right? Errors  those of the engine."""
    engine = engine_of()
    program = drive(engine.prepare(compile_graph(given.graph, engine.target)))
    stack.callback(lambda: drive(engine.release(program)))
    feeds = given.on(place, engine)
    given.judge(row, engine, program, feeds)
    return partial(_repeat, engine, program, feeds)


def _repeat(
    engine: Backend, program: Program, feeds: Mapping[str, Resident], times: int
) -> None:
    drive(engine.repeat(program, feeds, times))


def _asked(graph: Graph) -> tuple[Any, ...] | None:
    """The graph's one op as a table of variants is asked; None of several."""
    nodes = [n for n in graph.nodes() if not registry.get(n.op).has("leaf")]
    if len(nodes) != 1:
        return None
    node = nodes[0]
    types = tuple(graph.node(i).type for i in node.inputs)
    return registry.get(node.op), types, node.type, dict(node.attrs)


def ways(backend: Backend, graph: Graph) -> tuple[str, ...]:
    """The ways of a graph's one op; () of a graph of several."""
    asked = _asked(graph)
    return () if asked is None else backend.variants_for(*asked)


def chosen(backend: Backend, graph: Graph) -> str:
    """What the engine takes of them by itself; "" where it does not tell."""
    asked = _asked(graph)
    if asked is None or not isinstance(backend, WebGpuBackend):
        return ""
    found = backend.recipes.choose(*asked)
    return "" if found is None else found.variant


# --- by hand --------------------------------------------------------------------------


def peer_library(name: str) -> Any:
    """The module, if it computes on a GPU here. Errors  AdapterMissing."""
    doing = f"use {BY_HAND[name]}"
    lib = library(name, doing, "")
    try:
        there = lib.cuda.is_available()
    except Exception as error:  # each library fails in ways of its own
        raise AdapterMissing(doing, str(error) or type(error).__name__) from None
    if not there:
        raise AdapterMissing(doing, "it sees no GPU")
    return lib


def by_hand(given: Given, name: str, peer: Callable[..., Any]) -> Iterator[Contender]:
    """The work in a library on its GPU; nothing where there is none."""
    try:
        lib = peer_library(name)
    except AdapterMissing:
        return
    row = Row(given.case, f"{BY_HAND[name]} by hand", is_peer=True)

    def make(stack: ExitStack) -> Go:
        if name == "torch":
            put, wait = partial(lib.as_tensor, device="cuda"), lib.cuda.synchronize
        else:
            put, wait = lib.asarray, lib.cuda.Device().synchronize
        there = [put(array) for array in given.arrays.values()]
        stack.callback(there.clear)

        def go(times: int) -> None:
            for _ in range(times):
                peer(lib, *there)
            wait()

        return go

    yield Contender(row, make)
