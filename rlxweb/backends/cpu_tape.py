"""Chains of small work on the CPU as one call of machine code each: tapes.

A network that is asked for 32 ms of sound at a time computes for some microseconds and
hears as long of Python between any two steps. So steps that follow each other and are
small become a tape: NumPy's numbers are copied into an arena, one call goes through all
of it, and what is read later is copied out. Until the code is there, and where it can
not be said, the steps are run one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from functools import partial
from math import prod
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_region_text import why_not
from rlxweb.backends.cpu_regions import (
    Region,
    RegionCode,
    region_kernels,
)
from rlxweb.backends.tape_record import (
    RECORDERS,
    Functions,
    Record,
)
from rlxweb.backends.tape_views import (
    IN_32_BITS,
    Memory,
    joins,
    only_moves,
    values_of,
)
from rlxweb.compile.plan import Plan, Step
from rlxweb.host.compiled import address
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry
from rlxweb.ir.shape import normal_axes
from rlxweb.machine import library
from rlxweb.machine.jobs import WORD, address_of
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.tape import Tile, tape_text, tiles
from rlxweb.machine.wasm import IN_A_TAB, VECTOR, opened_fused
from rlxweb.machine.workshop import WasmWorkshop, Workshop
from rlxweb.recipes.conv_calls import convolution

MOST: Final = 1 << 14
"""Elements of a value."""
MOST_PRODUCTS: Final = 3 << 17
"""Multiplications of an op: a tape is one thread's."""
MOST_WEIGHTS: Final = 1 << 22
"""Elements of the params of all products of a tape: it may lay them out anew."""
LEAST_STEPS: Final = 4
"""That compute: fewer are not worth the copies."""
_MOST_PARTS: Final = 8
"""Products of a batch, each an entry of its own."""
_MOST_SUMMED: Final = 1 << 12
"""Elements of a sum in single precision."""
LEAVES: Final = ("constant", "param")
"""What is the same array from run to run, until a param is set."""
_SPARE: Final = 4
"""Arenas that are kept for runs at the same time."""

Arrays = dict[int, Any]


class TapeCode(NamedTuple):
    """The walker, and the addresses of what it calls."""

    walk: Callable[[int, int], None]
    move: int
    products: Mapping[Tile, int]


def _nbytes() -> int:
    """Of the vectors here."""
    return VECTOR if IN_A_TAB else library.processor().nbytes


def _made(about: object) -> TapeCode:
    nbytes = _nbytes()
    code = code_of(tape_text(nbytes))

    def job(name: str) -> int:
        return address_of(code.function(name, None, c_void_p))

    return TapeCode(
        code.function("walk", None, c_void_p, c_int64),
        job("move"),
        {tile: job(tile.name) for tile in tiles(nbytes)},
    )


def _made_in_a_tab(about: object) -> TapeCode:
    """The same as WebAssembly. Errors  OSError."""
    from rlxweb.machine.wasm_tape import tape_module

    every = tiles(_nbytes())
    names = "walk", "move", *(tile.name for tile in every)
    walk, *jobs = opened_fused(tape_module, *names)
    move, *products = map(address_of, jobs)
    return TapeCode(walk, move, dict(zip(every, products, strict=True)))


tape_kernels: Workshop[TapeCode] = (
    WasmWorkshop(_made_in_a_tab, fast_mode) if IN_A_TAB else Workshop(_made, fast_mode)
)
"""What walks tapes, under one name."""
_NAME: Final = "tape"


class Unit(NamedTuple):
    """Nodes of one pass: an elementwise region, or one op as it stands.

    reads   of a region, in the order in which it is compiled
    """

    nodes: tuple[Node, ...]
    reads: tuple[int, ...] = ()

    @property
    def needs(self) -> tuple[int, ...]:
        return self.reads or self.nodes[0].inputs


def region_of_unit(graph: Graph, unit: Unit) -> Region:
    """What elementwise work is compiled for: one row of elements."""
    spread = tuple(graph.node(i).type.numel == 1 for i in unit.reads)
    ids = tuple(node.id for node in unit.nodes)
    return Region.of(graph, ids, unit.reads, spread)


def units_of(graph: Graph, step: Step) -> list[Unit]:
    """The passes of a step."""
    nodes = tuple(graph.node(i) for i in step.nodes)
    if step.kind == "region":
        return [Unit(nodes, tuple(step.reads))]
    return [
        Unit((node,), _own_reads(graph, node) if _is_elementwise(node) else ())
        for node in nodes
    ]


def _own_reads(graph: Graph, node: Node) -> tuple[int, ...]:
    """What an op alone reads: numbers that are known are in its code."""
    return tuple(dict.fromkeys(i for i in node.inputs if not graph.node(i).is_literal))


def _is_elementwise(node: Node) -> bool:
    return isinstance(registry.get(node.op).lower, Expr)


def may_be_taped(graph: Graph, unit: Unit, lanes: int) -> bool:
    """Is it small, of numbers of 32 bits, and can it be said?"""
    first, out = unit.nodes[0], unit.nodes[-1].type
    moves = not unit.reads and only_moves(graph, first)
    # Where it moves them is known by now.
    given = [graph.node(i) for i in (unit.needs[:1] if moves else unit.needs)]
    types = [*(node.type for node in given), out]
    if not given or any(one.dtype not in IN_32_BITS or not one.numel for one in types):
        return False
    is_recorded = first.op in RECORDERS and not unit.reads
    weights = LEAVES if is_recorded else ()
    sizes = [node.type.numel for node in given if node.op not in weights]
    if max([*sizes, out.numel]) > MOST:
        return False
    if is_recorded:
        known = registry.is_ours(first.op) and out.dtype.is_float
        return known and _products(graph, first) <= MOST_PRODUCTS
    if unit.reads:
        return _region_may(unit, out.numel >= lanes)
    return moves or joins(first)


def _region_may(unit: Unit, is_whole: bool) -> bool:
    """What fills no vector is computed beside numbers that nobody gave."""
    floats = all(node.type.dtype.is_float for node in unit.nodes)
    return (is_whole or floats) and not why_not(unit.nodes)


def _products(graph: Graph, node: Node) -> int:
    """Multiplications of an op; too many where it is no work for a tape."""
    types = [graph.node(i).type for i in node.inputs]
    out, too_many = node.type, MOST_PRODUCTS + 1
    if node.op == "matmul":
        x, y = types
        if x.rank < 2 or y.rank < 2:
            return too_many
        parts = 1 if y.rank == 2 else prod(out.shape[:-2])
        return out.numel * x.shape[-1] if parts <= _MOST_PARTS else too_many
    if node.op == "conv":
        one = convolution(types[0].shape, types[1].shape, node.attrs)
        parts = one.batch * one.groups
        terms = one.channels[0] * prod(one.windows.kernel)
        windows = prod(one.windows.out)
        fits = parts <= _MOST_PARTS and terms * windows <= MOST and terms
        return out.numel * terms if fits else too_many
    axes = normal_axes(node.attrs["axes"], types[0].rank)
    count = prod(types[0].shape[at] for at in axes)
    return types[0].numel if count <= _MOST_SUMMED else too_many


@dataclass(slots=True)
class Held:
    """A tape with an arena of its own: for one run at a time."""

    arena: NDArray[np.float32]
    words: NDArray[np.int64]
    entries: NDArray[np.int64]
    inputs: list[tuple[int, NDArray[Any]]]
    """Values from outside, and where they are copied to, flat."""


class Tape:
    """A segment recorded, with all that it holds.

    code     the walker, which keeps the code there
    regions  the same of the regions
    """

    def __init__(
        self,
        record: Record,
        code: TapeCode,
        regions: Sequence[RegionCode],
        given: Mapping[int, Memory],
        outputs: Sequence[int],
        fixed: Mapping[int, Any],
    ) -> None:
        self.record, self.code, self.regions = record, code, regions
        self.given, self.fixed = given, fixed
        self.outputs = [
            (i, record.seen[i], record.graph.node(i).type.dtype.numpy) for i in outputs
        ]
        self.spare: list[Held] = []

    def fits(self, values: Mapping[int, Any]) -> bool:
        """Are params what they were?"""
        return all(values[i] is one for i, one in self.fixed.items())

    def held(self) -> Held:
        """A copy of the record over an arena of its own."""
        record = self.record
        arena = np.zeros(record.size, np.float32)
        words = np.array(record.words, np.int64)
        words[record.told["arena"]] += address(arena)
        words[record.told["words"]] += address(words)
        jobs = [(function, at * WORD) for function, at in record.entries]
        entries = np.array(jobs, np.int64).reshape(-1, 2)
        entries[:, 1] += address(words)
        inputs = []
        for i, memory in self.given.items():
            kind = record.graph.node(i).type.dtype.numpy
            place = arena[memory.at : memory.at + memory.size].view(kind)
            inputs.append((i, place.reshape(record.graph.node(i).type.shape)))
        return Held(arena, words, entries, inputs)

    def run(self, values: Arrays) -> None:
        """From the values that it reads to those that are read later."""
        try:
            held = self.spare.pop()
        except IndexError:
            held = self.held()
        for i, place in held.inputs:
            place[...] = values[i]
        self.code.walk(address(held.entries), len(held.entries))
        for i, seen, dtype in self.outputs:
            memory = seen.memory
            numbers = memory.fixed
            if numbers is None:
                numbers = held.arena[memory.at : memory.at + memory.size]
            values[i] = values_of(seen, numbers.view(dtype))
        if len(self.spare) < _SPARE:
            self.spare.append(held)


Way = tuple[Unit | None, Sequence[Any]]
"""A unit, if it is one step's own, and the calls that are the same."""


def segments_of(
    plan: Plan,
    ways: Sequence[Way],
    call_all: Callable[[Sequence[Any], Arrays], None],
) -> list[Callable[[Arrays], None]] | None:
    """All that a plan computes, one part after the other; None without a tape.

    call_all   (calls, values): one by one
    """
    graph, lanes = plan.graph, _nbytes() // 4
    runs: list[tuple[bool, list[Way]]] = []
    for unit, calls in ways:
        taped = unit is not None and may_be_taped(graph, unit, lanes)
        if not runs or runs[-1][0] is not taped:
            runs.append((taped, []))
        runs[-1][1].append((unit, calls))
    runs = [(taped and _is_worth_it(graph, run), run) for taped, run in runs]
    if not any(taped for taped, _ in runs):
        return None
    leaves = frozenset(n.id for n in graph.nodes() if n.op in LEAVES)
    parts: list[Callable[[Arrays], None]] = []
    wanted = set(graph.outputs)
    for taped, run in reversed(runs):
        slowly = partial(call_all, [call for _, calls in run for call in calls])
        part: Callable[[Arrays], None] = slowly
        if taped:
            units = _units(run)
            made = [unit.nodes[-1].id for unit in units]
            outputs = [i for i in made if i in wanted]
            part = Segment(graph, units, leaves, outputs, slowly)
        parts.append(part)
        wanted |= {i for _, calls in run for call in calls for i in call.inputs}
    return parts[::-1]


def _units(run: Sequence[Way]) -> list[Unit]:
    return [unit for unit, _ in run if unit is not None]


def _is_worth_it(graph: Graph, run: Sequence[Way]) -> bool:
    """Does it compute enough, with not too many weights?"""
    units = _units(run)
    products = [u for u in units if u.nodes[0].op in RECORDERS and not u.reads]
    weights = {i for u in products for i in u.needs if graph.node(i).op in LEAVES}
    elements = sum(graph.node(i).type.numel for i in weights)
    computing = len(products) + sum(1 for u in units if u.reads)
    return computing >= LEAST_STEPS and elements <= MOST_WEIGHTS


class Segment:
    """Units that follow each other, run as a tape once that can be.

    leaves   nodes whose arrays are the same from run to run
    outputs  the nodes that others read
    slowly   the same calls one by one
    """

    def __init__(
        self,
        graph: Graph,
        units: Sequence[Unit],
        leaves: frozenset[int],
        outputs: Sequence[int],
        slowly: Callable[[Arrays], None],
    ) -> None:
        self.graph, self.units = graph, units
        self.leaves, self.outputs = leaves, outputs
        self.slowly = slowly
        self.regions = [region_of_unit(graph, one) for one in units if one.reads]
        made = {node.id for one in units for node in one.nodes}
        self.reads = tuple(
            dict.fromkeys(i for one in units for i in one.needs if i not in made)
        )
        self.tape: Tape | None = None
        self._before: dict[int, Any] = {}

    def __call__(self, values: Arrays) -> None:
        tape = self.tape
        if tape is None or not tape.fits(values):
            tape = self.tape = self._taped(values)
        if tape is not None:
            tape.run(values)
            return
        begun = perf_counter()
        self.slowly(values)
        spent = perf_counter() - begun
        tape_kernels.spent(_NAME, spent)
        for key in self.regions:
            region_kernels.spent(key, spent)

    def _taped(self, values: Arrays) -> Tape | None:
        """The tape, if all the code that it calls is there.

        What was another array a run ago may be another in the next.
        """
        fixed = {i: values[i] for i in self.reads if i in self.leaves}
        before, self._before = self._before, fixed
        if any(before.get(i) is not one for i, one in fixed.items()):
            return None
        code = tape_kernels.ready(_NAME)
        if code is None:
            return None
        regions = {}
        for key in self.regions:
            made = region_kernels.ready(key)
            if made is None:
                return None
            regions[key] = made
        functions = Functions(code.move, code.products, regions)
        record = Record(self.graph, functions, _nbytes() // 4)
        for i, value in fixed.items():
            record.fixed(i, value)
        given = {i: record.given(i) for i in self.reads if i not in fixed}
        for one in self.units:
            node = one.nodes[0]
            if one.reads:
                record.region(region_of_unit(self.graph, one))
            elif node.op in RECORDERS:
                RECORDERS[node.op](record, node)
            elif joins(node):
                record.joins(node)
            else:
                record.moves(node)
        return Tape(record, code, [*regions.values()], given, self.outputs, fixed)
