"""Native programs: chains of small CPU steps fused into one native call.

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
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen import llvm_compiler
from rlxweb.codegen.data_movement_index_tables import (
    WORD_DTYPES,
    MemoryBlock,
    gather_values,
    is_concatenation,
    is_data_movement,
)
from rlxweb.codegen.elementwise_llvm import unsupported_reason
from rlxweb.codegen.jit_cache import JitCache, WasmJitCache, compile_cached
from rlxweb.codegen.llvm_native_program import (
    ProductTile,
    product_tiles,
    program_llvm_ir,
)
from rlxweb.codegen.native_calls import (
    WORD_NBYTES,
    array_address,
    function_address,
)
from rlxweb.codegen.native_elementwise import (
    RegionCode,
    RegionSpec,
    region_kernels,
)
from rlxweb.codegen.native_program_builder import (
    MAX_ELEMENTS,
    NativeProgramBuilder,
    ProgramFunctions,
)
from rlxweb.codegen.wasm_builder import IN_BROWSER, VECTOR_NBYTES, load_fused_module
from rlxweb.compiler.plan import Plan, PlanStep
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import registry
from rlxweb.ops.kernel_variant import KernelTable, load_kernels

MAX_WEIGHTS: Final = 1 << 22
"""Maximum elements of the params of all products of a native program, which may repack
them.
"""
MIN_STEPS: Final = 4
"""Minimum computing steps of a native program: fewer are not worth the copies."""
CONSTANT_OPS: Final = ("constant", "param")
"""Ops whose arrays are the same from run to run until a param is set."""
_KERNELS: Final = KernelTable(load_kernels("native program"))
_MAX_IDLE_ARENAS: Final = 4
"""Arenas that are cached for concurrent runs."""

NodeArrays = dict[int, Any]


class NativeProgramCode(NamedTuple):
    """Interpreter of native programs, and the addresses of the functions it calls."""

    walk: Callable[[int, int], None]
    move_address: int
    product_addresses: Mapping[ProductTile, int]


def _vector_bytes() -> int:
    """Return the bytes of a vector on this processor."""
    return VECTOR_NBYTES if IN_BROWSER else llvm_compiler.host_cpu().vector_nbytes


def _compile_native(key: object) -> NativeProgramCode:
    nbytes = _vector_bytes()
    code = compile_cached(program_llvm_ir(nbytes))

    def job_address(name: str) -> int:
        return function_address(code.get_function(name, None, c_void_p))

    return NativeProgramCode(
        code.get_function("walk", None, c_void_p, c_int64),
        job_address("move"),
        {tile: job_address(tile.name) for tile in product_tiles(nbytes)},
    )


def _compile_wasm(key: object) -> NativeProgramCode:
    """Compile the interpreter to WebAssembly. Errors  OSError."""
    from rlxweb.codegen.wasm_native_program import program_module

    all_tiles = product_tiles(_vector_bytes())
    names = "walk", "move", *(tile.name for tile in all_tiles)
    walk, *jobs = load_fused_module(program_module, *names)
    move, *products = map(function_address, jobs)
    return NativeProgramCode(walk, move, dict(zip(all_tiles, products, strict=True)))


native_program_kernels: JitCache[NativeProgramCode] = (
    WasmJitCache(_compile_wasm) if IN_BROWSER else JitCache(_compile_native)
)
"""JIT cache of the interpreter of native programs, under one key."""
_KERNEL_KEY: Final = "tape"


class ProgramUnit(NamedTuple):
    """Nodes computed in one pass: an elementwise region, or a single op.

    reads   of a region, in the order in which it is compiled
    """

    nodes: tuple[Node, ...]
    reads: tuple[int, ...] = ()

    @property
    def operand_ids(self) -> tuple[int, ...]:
        return self.reads or self.nodes[0].inputs


def unit_region_spec(graph: Graph, unit: ProgramUnit) -> RegionSpec:
    """Return the region spec of an elementwise unit, compiled as one row of
    elements.
    """
    is_scalar = tuple(graph.node(i).type.numel == 1 for i in unit.reads)
    ids = tuple(node.id for node in unit.nodes)
    return RegionSpec.from_nodes(graph, ids, unit.reads, is_scalar)


def step_units(graph: Graph, step: PlanStep) -> list[ProgramUnit]:
    """Return the passes of a step."""
    nodes = tuple(graph.node(i) for i in step.nodes)
    if step.kind == "region":
        return [ProgramUnit(nodes, tuple(step.reads))]
    return [
        ProgramUnit(
            (node,), _nonliteral_operands(graph, node) if _is_elementwise(node) else ()
        )
        for node in nodes
    ]


def _nonliteral_operands(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the operands of an op except for literals, which are part of its code."""
    return tuple(dict.fromkeys(i for i in node.inputs if not graph.node(i).is_literal))


def _is_elementwise(node: Node) -> bool:
    return isinstance(registry.get(node.op).lower, Expr)


def can_run_natively(graph: Graph, unit: ProgramUnit, lanes: int) -> bool:
    """Return whether a unit is small, 32-bit and can be part of a native program."""
    first, out = unit.nodes[0], unit.nodes[-1].type
    moves_data = not unit.reads and is_data_movement(graph, first)
    # Where it moves them is known by now.
    operands = [
        graph.node(i)
        for i in (unit.operand_ids[:1] if moves_data else unit.operand_ids)
    ]
    types = [*(node.type for node in operands), out]
    if not operands or any(
        tensor_type.dtype not in WORD_DTYPES or not tensor_type.numel
        for tensor_type in types
    ):
        return False
    has_builder = bool(_KERNELS.for_op(first.op)) and not unit.reads
    weight_ops = CONSTANT_OPS if has_builder else ()
    sizes = [node.type.numel for node in operands if node.op not in weight_ops]
    if max([*sizes, out.numel]) > MAX_ELEMENTS:
        return False
    if has_builder:
        inputs = tuple(graph.node(i).type for i in first.inputs)
        return (
            registry.is_builtin(first.op)
            and out.dtype.is_float
            and _KERNELS.for_op(first.op)[0].can_run(inputs, out, first.attrs)
        )
    if unit.reads:
        return _can_compile_region(unit, out.numel >= lanes)
    return moves_data or is_concatenation(first)


def _can_compile_region(unit: ProgramUnit, fills_vector: bool) -> bool:
    """Return whether a region can be compiled; integers must fill a vector, as spare
    lanes compute on undefined numbers.
    """
    is_float = all(node.type.dtype.is_float for node in unit.nodes)
    return (fills_vector or is_float) and not unsupported_reason(unit.nodes)


@dataclass(slots=True)
class NativeProgramArena:
    """Native program bound to an arena of its own, for one run at a time."""

    arena: NDArray[np.float32]
    words: NDArray[np.int64]
    entries: NDArray[np.int64]
    inputs: list[tuple[int, NDArray[Any]]]
    """Ids of values from outside, and the views of the arena they are copied to."""


class NativeProgram:
    """Segment of a plan as a native program, with all that it keeps alive.

    code     the walker, which keeps the code there
    regions  the same of the regions
    """

    def __init__(
        self,
        builder: NativeProgramBuilder,
        code: NativeProgramCode,
        regions: Sequence[RegionCode],
        inputs: Mapping[int, MemoryBlock],
        outputs: Sequence[int],
        constants: Mapping[int, Any],
    ) -> None:
        self.builder, self.code, self.regions = builder, code, regions
        self.inputs, self.constants = inputs, constants
        self.outputs = [
            (i, builder.views[i], builder.graph.node(i).type.dtype.numpy)
            for i in outputs
        ]
        self.idle_arenas: list[NativeProgramArena] = []

    def has_same_constants(self, values: Mapping[int, Any]) -> bool:
        """Return whether the params are the same arrays as when the program was
        built.
        """
        return all(values[i] is array for i, array in self.constants.items())

    def make_arena(self) -> NativeProgramArena:
        """Relocate a copy of the program to a new arena."""
        builder = self.builder
        arena = np.zeros(builder.arena_size, np.float32)
        words = np.array(builder.words, np.int64)
        words[builder.relocations["arena"]] += array_address(arena)
        words[builder.relocations["words"]] += array_address(words)
        jobs = [(function, word * WORD_NBYTES) for function, word in builder.entries]
        entries = np.array(jobs, np.int64).reshape(-1, 2)
        entries[:, 1] += array_address(words)
        inputs = []
        for i, memory in self.inputs.items():
            dtype = builder.graph.node(i).type.dtype.numpy
            view = arena[memory.offset : memory.offset + memory.size].view(dtype)
            inputs.append((i, view.reshape(builder.graph.node(i).type.shape)))
        return NativeProgramArena(arena, words, entries, inputs)

    def run(self, values: NodeArrays) -> None:
        """Run the program: copy in the values it reads, and store those that are read
        later.
        """
        try:
            bound = self.idle_arenas.pop()
        except IndexError:
            bound = self.make_arena()
        for i, view in bound.inputs:
            view[...] = values[i]
        self.code.walk(array_address(bound.entries), len(bound.entries))
        for i, indexed_view, dtype in self.outputs:
            memory = indexed_view.block
            numbers = memory.constant
            if numbers is None:
                numbers = bound.arena[memory.offset : memory.offset + memory.size]
            values[i] = gather_values(indexed_view, numbers.view(dtype))
        if len(self.idle_arenas) < _MAX_IDLE_ARENAS:
            self.idle_arenas.append(bound)


UnitCalls = tuple[ProgramUnit | None, Sequence[Any]]
"""A unit, if it covers a single step, and the calls that compute the same."""


def plan_segments(
    plan: Plan,
    unit_calls: Sequence[UnitCalls],
    run_calls: Callable[[Sequence[Any], NodeArrays], None],
) -> list[Callable[[NodeArrays], None]] | None:
    """Split a plan's calls into segments to be run in order; None if none becomes a
    native program.

    run_calls  (calls, values): one by one
    """
    graph, lanes = plan.graph, _vector_bytes() // 4
    runs: list[tuple[bool, list[UnitCalls]]] = []
    for unit, calls in unit_calls:
        is_native = unit is not None and can_run_natively(graph, unit, lanes)
        if not runs or runs[-1][0] is not is_native:
            runs.append((is_native, []))
        runs[-1][1].append((unit, calls))
    runs = [(is_native and _is_profitable(graph, run), run) for is_native, run in runs]
    if not any(is_native for is_native, _ in runs):
        return None
    constant_ids = frozenset(n.id for n in graph.nodes() if n.op in CONSTANT_OPS)
    segments: list[Callable[[NodeArrays], None]] = []
    live_ids = set(graph.outputs)
    for is_native, run in reversed(runs):
        fallback = partial(run_calls, [call for _, calls in run for call in calls])
        segment: Callable[[NodeArrays], None] = fallback
        if is_native:
            units = _present_units(run)
            result_ids = [unit.nodes[-1].id for unit in units]
            outputs = [i for i in result_ids if i in live_ids]
            segment = PlanSegment(graph, units, constant_ids, outputs, fallback)
        segments.append(segment)
        live_ids |= {i for _, calls in run for call in calls for i in call.inputs}
    return segments[::-1]


def _present_units(run: Sequence[UnitCalls]) -> list[ProgramUnit]:
    return [unit for unit, _ in run if unit is not None]


def _is_profitable(graph: Graph, run: Sequence[UnitCalls]) -> bool:
    """Return whether a run of units computes enough and has few enough weights."""
    units = _present_units(run)
    products = [
        unit for unit in units if _KERNELS.for_op(unit.nodes[0].op) and not unit.reads
    ]
    weights = {
        i
        for unit in products
        for i in unit.operand_ids
        if graph.node(i).op in CONSTANT_OPS
    }
    elements = sum(graph.node(i).type.numel for i in weights)
    computing_count = len(products) + sum(1 for unit in units if unit.reads)
    return computing_count >= MIN_STEPS and elements <= MAX_WEIGHTS


class PlanSegment:
    """Consecutive units, run as a native program once it can be built.

    constant_ids  nodes whose arrays are the same from run to run
    outputs  the nodes that others read
    fallback  the same calls one by one
    """

    def __init__(
        self,
        graph: Graph,
        units: Sequence[ProgramUnit],
        constant_ids: frozenset[int],
        outputs: Sequence[int],
        fallback: Callable[[NodeArrays], None],
    ) -> None:
        self.graph, self.units = graph, units
        self.constant_ids, self.outputs = constant_ids, outputs
        self.fallback = fallback
        self.regions = [unit_region_spec(graph, unit) for unit in units if unit.reads]
        result_ids = {node.id for unit in units for node in unit.nodes}
        self.reads = tuple(
            dict.fromkeys(
                i for unit in units for i in unit.operand_ids if i not in result_ids
            )
        )
        self.program: NativeProgram | None = None
        self._previous_constants: dict[int, Any] = {}

    def __call__(self, values: NodeArrays) -> None:
        program = self.program
        if program is None or not program.has_same_constants(values):
            program = self.program = self._build_program(values)
        if program is not None:
            program.run(values)
            return
        start = perf_counter()
        self.fallback(values)
        seconds = perf_counter() - start
        native_program_kernels.record_fallback_time(_KERNEL_KEY, seconds)
        for key in self.regions:
            region_kernels.record_fallback_time(key, seconds)

    def _build_program(self, values: NodeArrays) -> NativeProgram | None:
        """Build the native program if all the code it calls is compiled.

        What was another array a run ago may be another in the next.
        """
        constants = {i: values[i] for i in self.reads if i in self.constant_ids}
        previous, self._previous_constants = self._previous_constants, constants
        if any(previous.get(i) is not item for i, item in constants.items()):
            return None
        code = native_program_kernels.get_kernel(_KERNEL_KEY)
        if code is None:
            return None
        regions = {}
        for key in self.regions:
            region_code = region_kernels.get_kernel(key)
            if region_code is None:
                return None
            regions[key] = region_code
        functions = ProgramFunctions(code.move_address, code.product_addresses, regions)
        builder = NativeProgramBuilder(self.graph, functions, _vector_bytes() // 4)
        for i, value in constants.items():
            builder.add_constant(i, value)
        inputs = {i: builder.add_input(i) for i in self.reads if i not in constants}
        for item in self.units:
            node = item.nodes[0]
            if item.reads:
                builder.add_region(unit_region_spec(self.graph, item))
            elif kernels := _KERNELS.for_op(node.op):
                kernels[0].build(builder, node)
            elif is_concatenation(node):
                builder.add_concatenation(node)
            else:
                builder.add_data_movement(node)
        return NativeProgram(
            builder, code, [*regions.values()], inputs, self.outputs, constants
        )
