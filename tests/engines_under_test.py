"""Run one graph on many engines and compare the results with NumPy in float64.

Owns the engines of the tests (a port per adapter and limits, opened once per process)
and the poison that makes unwritten memory show; the comparison is the package's own,
`rlxweb.engines.reference_comparison`. Knows no op by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.limits import Limits
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.jax_engine import open_jax
from rlxweb.engines.mlx_engine import open_mlx
from rlxweb.engines.reference_comparison import (
    compare_to_reference,
    graph_dtypes,
    named_feeds,
    reference_outputs,
    rounding_errors,
    single_op_graph,
)
from rlxweb.engines.torch_engine import open_torch
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.engines.webgpu.pipeline_cache import PipelineCache
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest, BufferUsage, Command
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.ir.graph import Graph
from rlxweb.ops.kernel_variant import KernelTable
from rlxweb.runtime.input_validation import validate_array, validate_feeds

Array = npt.NDArray[Any]
__all__ = [
    "Array",
    "EngineUnderTest",
    "PoisonedPort",
    "describe_mismatch",
    "engine",
    "graph_dtypes",
    "missing_features",
    "named_feeds",
    "reference_outputs",
    "rounding_errors",
    "single_op_graph",
    "strided_view",
]


def describe_mismatch(*arguments: Any) -> str:
    """Describe why a result is wrong, or return ""; see `compare_to_reference`."""
    return compare_to_reference(*arguments).reason


GUARD_BYTES = np.full(64, 0x2A2A_2A2A, np.uint32).tobytes()
# As float32 a NaN, as float16 two of them, as an integer far from any answer.
POISON_BYTES = np.uint32(0x7FE0_7FE1).tobytes()


class PoisonedPort:
    """Port whose buffers hold NaN before each submission unless the host wrote them.

    A pooled buffer is not zeroed, so an element that a kernel forgets, or reads before
    it is written, must show; drivers hide both by handing out zeros.
    """

    def __init__(self, port: Any) -> None:
        self.port = port
        self.unwritten_nbytes: dict[int, int] = {}
        # Software adapters take long to compile a shader, and little to keep it.
        self.pipelines = PipelineCache(port, 1024, 1 << 30, trusted_shaders="proven")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def create_buffer(
        self, nbytes: int, usage: BufferUsage, *, is_host_written: bool = False
    ) -> int:
        handle: int = self.port.create_buffer(
            nbytes, usage, is_host_written=is_host_written
        )
        if usage == "storage":
            self.unwritten_nbytes[handle] = -(-nbytes // 4) * 4
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        self.unwritten_nbytes.pop(handle, None)
        self.port.write(handle, offset, data)

    def submit(self, *lists: Sequence[Command]) -> None:
        for handle, nbytes in self.unwritten_nbytes.items():
            self.port.write(handle, 0, memoryview(POISON_BYTES * (nbytes // 4)))
        self.port.submit(*lists)

    def destroy(self, handle: int) -> None:
        self.unwritten_nbytes.pop(handle, None)
        self.port.destroy(handle)


def adapter_engine(
    request: AdapterRequest, limits: Limits | None = None, **options: Any
) -> WebGpuEngine:
    """Return an engine on the tests' port of an adapter, which itself enforces
    `limits`.
    """
    if limits is not None:
        request = AdapterRequest(
            request.backends, request.name, request.features, limits
        )
    port = _open_port(request)
    return WebGpuEngine(port, pipelines=port.pipelines, **options)


class GuardedPort:
    """Port whose storage buffers end in guard bytes, checked when they are freed.

    Guards (reliability.md L5): every storage buffer is made longer than asked for, the
    end is filled with sentinels, and in the end every sentinel must still be there.
    """

    def __init__(self, port: Any) -> None:
        self.port = port
        self.guard_offsets: dict[int, int] = {}
        self.checked_count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def create_buffer(
        self, nbytes: int, usage: BufferUsage, *, is_host_written: bool = False
    ) -> int:
        if usage != "storage":
            handle = self.port.create_buffer(
                nbytes, usage, is_host_written=is_host_written
            )
            return int(handle)
        end = -(-nbytes // 4) * 4
        handle: int = self.port.create_buffer(end + len(GUARD_BYTES), usage)
        self.port.write(handle, end, memoryview(GUARD_BYTES))
        self.guard_offsets[handle] = end
        return handle

    def destroy(self, handle: int) -> None:
        end = self.guard_offsets.pop(handle, None)
        if end is not None:
            guard = run_blocking(self.port.read(handle, end, len(GUARD_BYTES)))
            assert bytes(guard) == GUARD_BYTES, (
                f"buffer {handle} was written past its end"
            )
            self.checked_count += 1
        self.port.destroy(handle)


@dataclass(frozen=True, slots=True)
class EngineUnderTest:
    """Engine of a test, with the way its plans are compiled."""

    name: str
    engine: Any
    optimise: bool = True

    def run(self, graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
        """Return the outputs, with every device object freed again."""
        with self.prepare(graph) as run:
            return run(feeds)

    @contextmanager
    def prepare(self, graph: Graph) -> Iterator[Callable[[Any], list[Array]]]:
        """Yield a function that runs the graph any number of times; free it at the
        end.
        """
        plan = compile_graph(graph, self.engine.target, optimise=self.optimise)
        program = run_blocking(self.engine.prepare(plan))

        def run(feeds: Mapping[str, Any]) -> list[Array]:
            inputs = {n: feeds[n] for n in graph.named("input")}
            for name, node in graph.named("param").items():
                array = validate_array("param", node, feeds[name])
                run_blocking(program.set_param(name, array))
            arrays = validate_feeds(graph, graph.named("input"), inputs)
            outputs: list[Array] = run_blocking(self.engine.run(program, arrays))
            return outputs

        try:
            yield run
        finally:
            run_blocking(program.close())


@cache
def _open_port(request: AdapterRequest) -> PoisonedPort:
    port = WgpuPort()
    run_blocking(port.open(request))
    return PoisonedPort(port)


def guarded_engine(request: AdapterRequest) -> EngineUnderTest:
    """Return the adapter's engine with guard bytes behind every buffer."""
    port = _open_port(request)
    guarded_port: Any = GuardedPort(port)
    return EngineUnderTest(
        "guarded", WebGpuEngine(guarded_port, pipelines=port.pipelines)
    )


ARRAY_LIBRARIES = {"torch-cpu": open_torch, "jax-cpu": open_jax, "mlx": open_mlx}
"""Array libraries whose engines compute on any machine's CPU."""


@cache
def engine(
    request: AdapterRequest | str | None,
    *,
    limits: Limits | None = None,
    optimise: bool = True,
    variants: bool = True,
) -> EngineUnderTest:
    """Return the engine of NumPy (None), of an array library (by name) or of an
    adapter.
    """
    name_parts = [] if optimise else ["unoptimised"]
    if not variants:
        name_parts.append("without variants")
    if request is None:
        numpy = CpuEngine() if variants else CpuEngine(variants=())
        return EngineUnderTest(" ".join(["NumPy", *name_parts]), numpy, optimise)
    if isinstance(request, str):
        engine = run_blocking(ARRAY_LIBRARIES[request]("cpu"))
        if not variants:
            engine.kernels = KernelTable()
        return EngineUnderTest(" ".join([engine.name, *name_parts]), engine, optimise)
    if limits is not None:
        name_parts.append("shrunk")
    engine_options: dict[str, Any] = {} if variants else {"variants": ()}
    engine = adapter_engine(request, limits, **engine_options)
    return EngineUnderTest(" ".join([engine.name, *name_parts]), engine, optimise)


def missing_features(runner: EngineUnderTest, names: Iterable[str]) -> set[str]:
    """Return the given types and features that an engine does not have."""
    supported = {dtype.value for dtype in runner.engine.target.array_dtypes}
    if isinstance(runner.engine, WebGpuEngine):
        supported |= runner.engine.kernel_selector.hardware.features
    return {*names} - supported


# --- what else is compared ---------------------------------------------------------


def strided_view(array: Array, seed: int = 0) -> Array:
    """Return equal values with another memory layout: transposed, reversed and with
    gaps.
    """
    if not array.ndim:
        return array
    padded = np.empty(tuple(2 * d + 1 for d in array.shape[::-1]), array.dtype)
    view = padded[tuple(slice(1, 2 * d + 1, 2) for d in array.shape[::-1])].T
    if seed % 2:
        view = view[tuple(slice(None, None, -1) for _ in array.shape)]
    view[...] = array
    return view
