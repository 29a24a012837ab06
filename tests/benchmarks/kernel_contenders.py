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

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import (
    AdapterMissing,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    RlxError,
)
from rlxweb.core.fork_safety import cached_property
from rlxweb.engines.array_library import import_library
from rlxweb.engines.capabilities import HasVariants, repeat, with_variant
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Array, DeviceBuffer, Engine, Program
from rlxweb.engines.reference_comparison import compare_to_reference, reference_outputs
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph, node_signature
from rlxweb.ir.op import registry
from rlxweb.select.device_and_adapter import DevicePlace
from tests.benchmarks.kernel_cases import KernelCase

PEER_TITLES = {"torch": "PyTorch", "cupy": "CuPy"}
UNCHECKED_VARIANT = "its choice, unchecked shaders"
_UNCHECKED_CASES = ("Welch peaks", "fft", "matmul f32")
RunMany = Callable[[int], object]
"""Do so many runs; return when all of the work is done."""


@dataclass(slots=True)
class ContenderRow:
    """Result of one contender in one case: the median time of a run, or why there is
    none.

    variant    the one way it was made to take, "" for its own choice
    default_variant  what its own choice was
    verdict    "right" or "wrong" by NumPy in float64, at both ends of the answer; ""
               where nobody looked: by hand
    lacks_memory  no memory was left for it beside the others
    spoils_process  its device, or this process, may be of no more use
    """

    case: KernelCase
    engine: str
    variant: str = ""
    chosen: str = ""
    is_peer: bool = False
    verdict: str = ""
    max_error: float = math.nan
    ns: float = math.nan
    spread: float = math.nan
    samples: int = 0
    first_ns: float = math.nan
    failure: str = ""
    lacks_memory: bool = False
    spoils_process: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.case.label, self.engine, self.variant

    @property
    def name(self) -> str:
        """The contender's name, for people and for patterns."""
        return ", ".join(filter(None, self.key))

    def record_failure(self, error: Exception) -> None:
        """Record why the contender has no time."""
        self.failure = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        self.lacks_memory = (
            isinstance(error, MemoryError | OutOfMemory)
            or "out of memory" in str(error).lower()
        )
        if isinstance(error, RlxError):
            self.spoils_process = isinstance(error, DeviceLost | GpuTimeout)
        else:  # after a fault of a kernel CUDA refuses all that follows
            self.spoils_process = (
                isinstance(error, RuntimeError) and not self.lacks_memory
            )


@dataclass(slots=True)
class Contender:
    """Contender that could be timed: `make` opens it, and the stack closes it."""

    row: ContenderRow
    make: Callable[[ExitStack], RunMany]


@dataclass
class CaseData:
    """A case with its arrays, and their copies on devices."""

    case: KernelCase
    stack: ExitStack
    _device_buffers: dict[str, dict[str, DeviceBuffer]] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        return self.case.build()

    @cached_property
    def arrays(self) -> dict[str, Array]:
        return self.case.make_feeds(self.graph)

    @cached_property
    def expected_ends(self) -> list[Array]:
        """First rows of the right answer and the last ones, in float64."""
        outputs = []
        for last in (False, True):
            graph = self.case.few(last)
            outputs += reference_outputs(
                graph, self.case.slice_feeds(self.arrays, graph, last)
            )
        return outputs

    def device_buffers(
        self, place: DevicePlace, engine: Engine
    ) -> dict[str, DeviceBuffer]:
        """Return the arrays on a device, shared by all of its contenders."""
        if place.label not in self._device_buffers:
            buffers: dict[str, DeviceBuffer] = {}
            for name, array in self.arrays.items():
                buffers[name] = run_blocking(engine.put(array))
                self.stack.callback(_free, engine, buffers[name])
            self._device_buffers[place.label] = buffers
        return self._device_buffers[place.label]

    def check_answer(
        self, row: ContenderRow, engine: Engine, program: Program, feeds: Any
    ) -> None:
        """Compare both ends of the answer with NumPy's; a wrong result has no time."""
        (output,) = run_blocking(engine.run(program, feeds, [True]))
        assert isinstance(output, DeviceBuffer)
        node = self.graph.node(self.graph.outputs[0])
        tolerance = registry.get(node.op).tolerance
        row.verdict, row.max_error = "right", 0.0
        for expected, is_last in zip(self.expected_ends, (False, True), strict=True):
            offset = math.prod(output.shape) - expected.size if is_last else 0
            part = output.part(offset, expected.shape)
            actual = np.array(run_blocking(engine.get(part)))
            comparison = compare_to_reference(
                actual, expected, node.type.dtype, tolerance, self.case.extra_tolerance
            )
            row.max_error = max(row.max_error, comparison.max_error)
            if comparison.reason and not row.failure:
                end = "last" if is_last else "first"
                row.verdict, row.failure = (
                    "wrong",
                    f"wrong, {end} rows: {comparison.reason}",
                )
        _free(engine, output)


def _free(engine: Engine, buffer: DeviceBuffer) -> None:
    buffer.free()


def list_contenders(
    case_data: CaseData, places: Sequence[DevicePlace], with_peers: bool
) -> Iterator[Contender]:
    """Yield all contenders, first those that a caller would get."""
    for place in places:
        yield from _engine_contenders(case_data, place)
    for name, peer in case_data.case.peers.items() if with_peers else ():
        yield from library_contenders(case_data, name, peer)


def _engine_contenders(case_data: CaseData, place: DevicePlace) -> Iterator[Contender]:
    make_row = partial(ContenderRow, case_data.case, place.label)
    try:
        engine = pool.engine(place.device.label, place.adapter)
    except RlxError as error:
        missing_row = make_row()
        missing_row.record_failure(error)
        yield Contender(missing_row, lambda stack: lambda times: None)
        return
    default_row = make_row(chosen=default_variant(engine, case_data.graph))
    yield Contender(
        default_row,
        partial(_prepare_run, case_data, place, default_row, lambda: engine),
    )
    for variant in variant_names(engine, case_data.graph):
        if variant == default_row.chosen:
            continue
        variant_row = make_row(variant)
        is_own = variant in registry
        open_engine = partial(with_variant, engine, "" if is_own else variant)
        yield Contender(
            variant_row,
            partial(_prepare_run, case_data, place, variant_row, open_engine),
        )
    if isinstance(engine, WebGpuEngine) and case_data.case.name in _UNCHECKED_CASES:
        unchecked_row = make_row(UNCHECKED_VARIANT, default_row.chosen)
        open_engine = partial(_unchecked_engine, engine)
        yield Contender(
            unchecked_row,
            partial(_prepare_run, case_data, place, unchecked_row, open_engine),
        )


def _unchecked_engine(engine: WebGpuEngine) -> Engine:
    rows, limits = engine.kernel_selector.kernels.variants, engine.limits
    return WebGpuEngine(
        engine.port, limits=limits, variants=rows, trusted_shaders="all"
    )


def _prepare_run(
    case_data: CaseData,
    place: DevicePlace,
    row: ContenderRow,
    open_engine: Callable[[], Engine],
    stack: ExitStack,
) -> RunMany:
    """Prepare the program and its arrays and check the answer. Errors  those of the
    engine.
    """
    engine = open_engine()
    program = run_blocking(
        engine.prepare(compile_graph(case_data.graph, engine.target))
    )
    stack.callback(lambda: run_blocking(program.close()))
    feeds = case_data.device_buffers(place, engine)
    case_data.check_answer(row, engine, program, feeds)
    return partial(_repeat_runs, engine, program, feeds)


def _repeat_runs(
    engine: Engine, program: Program, feeds: Mapping[str, DeviceBuffer], count: int
) -> None:
    run_blocking(repeat(engine, program, feeds, count))


def _variant_request(graph: Graph) -> tuple[Any, ...] | None:
    """Return the graph's one op as the arguments of a look-up of variants; None for
    several ops.
    """
    nodes = [n for n in graph.nodes() if not registry.get(n.op).has_trait("leaf")]
    if len(nodes) != 1:
        return None
    return node_signature(graph, nodes[0])


def variant_names(engine: Engine, graph: Graph) -> tuple[str, ...]:
    """Return the variants of a graph's one op, the op's own kernel last, by the op's
    name; () for a graph of several.
    """
    request = _variant_request(graph)
    if request is None or not isinstance(engine, HasVariants):
        return ()
    return (*engine.variants_for(*request), request[0].name)


def default_variant(engine: Engine, graph: Graph) -> str:
    """Return the variant that the engine selects by itself for a graph's one op; ""
    where it does not tell.
    """
    request = _variant_request(graph)
    if request is None or not isinstance(engine, HasVariants):
        return ""
    program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    variants = set(program.kernel_variants.values())
    run_blocking(program.close())
    return variants.pop() if variants else request[0].name


# --- by hand --------------------------------------------------------------------------


def peer_library(name: str) -> Any:
    """Return the module, if it computes on a GPU here. Errors  AdapterMissing."""
    context = f"use {PEER_TITLES[name]}"
    lib = import_library(name, context, "")
    try:
        has_gpu = lib.cuda.is_available()
    except Exception as error:  # each library fails in ways of its own
        raise AdapterMissing(context, str(error) or type(error).__name__) from None
    if not has_gpu:
        raise AdapterMissing(context, "it sees no GPU")
    return lib


def library_contenders(
    case_data: CaseData, name: str, peer: Callable[..., Any]
) -> Iterator[Contender]:
    """Yield the same work in a library on its GPU; nothing where there is none."""
    try:
        lib = peer_library(name)
    except AdapterMissing:
        return
    row = ContenderRow(case_data.case, f"{PEER_TITLES[name]} by hand", is_peer=True)

    def make(stack: ExitStack) -> RunMany:
        if name == "torch":
            to_device = partial(lib.as_tensor, device="cuda")
            synchronize = lib.cuda.synchronize
        else:
            to_device, synchronize = lib.asarray, lib.cuda.Device().synchronize
        device_arrays = [to_device(array) for array in case_data.arrays.values()]
        stack.callback(device_arrays.clear)

        def run_many(count: int) -> None:
            for _ in range(count):
                peer(lib, *device_arrays)
            synchronize()

        return run_many

    yield Contender(row, make)
