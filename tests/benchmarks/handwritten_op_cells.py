"""Benchmark cells of single ops on lavapipe against handwritten shaders on the same
adapter.

Each op is timed twice: resident (the inputs lie on the device, four bytes are awaited),
which is what the published figures are, and as a call (upload, run, read back).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import BufferCopy, BufferRange, DeviceFacts
from tests.benchmarks import handwritten_shaders
from tests.benchmarks.benchmark_cells import (
    BenchmarkCell,
    Goal,
    PeerEntry,
    resource_growth,
)
from tests.benchmarks.machine_facts import find_lavapipe
from tests.benchmarks.raw_wgpu_device import RawDevice, RawKernel

CHAIN_LENGTH = 4 << 20
N_ADDS = 100
MAX_TIME_RATIO = 3.0

Arrays = Mapping[str, np.ndarray]


def cell_factories() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and its factory; none without the adapter."""
    facts = find_lavapipe()
    if facts is None:
        return
    for name, make in (
        ("by hand matmul 512", _matmul),
        ("by hand softmax [1024, 1024]", _softmax),
        ("by hand chain gelu(2x+1)·y of 4M", _chain),
        ("by hand 100 dependent adds [1024]", _adds),
    ):
        yield name, lambda name=name, make=make: make(name, facts)


class LavapipeGraph:
    """One of our graphs on lavapipe, with its inputs on the device."""

    def __init__(
        self,
        build: Callable[[rlx.Graph, Callable[..., Any]], Any],
        arrays: Arrays,
        optimise: bool = True,
    ) -> None:
        self.arrays = dict(arrays)
        session = rlx.Session("vulkan", adapter="llvmpipe", optimise=optimise)
        self.compiled_with_inputs = session.compile(
            _build_graph(build, arrays, "input")
        )
        self.compiled_with_params = session.compile(
            _build_graph(build, arrays, "param")
        )
        for name, array in arrays.items():
            self.compiled_with_params.set_param(name, array)
        prepared = self.compiled_with_params._placement.prepared
        self.program, self.port = prepared.program, prepared.engine.port
        self.commands = [self._shorten_readback(c) for c in self.program.commands]

    def _shorten_readback(self, command: Any) -> Any:
        """Cut the read-back to four bytes, which leaves the work and a wait."""
        if (
            isinstance(command, BufferCopy)
            and command.target == self.program.readback_handle
        ):
            source = command.source
            return BufferCopy(
                BufferRange(source.handle, source.offset, 4), command.target, 0
            )
        return command

    def run_call(self) -> np.ndarray:
        (out,) = self.compiled_with_inputs.run(self.arrays)
        return np.asarray(out)

    def run_on_device(self) -> None:
        self.port.submit(self.commands)
        run_blocking(self.port.read(self.program.readback_handle, 0, 4))

    def resource_growth(self) -> dict[str, Any]:
        """Count what three more calls compile and allocate."""
        return resource_growth(self.port, self.run_call)

    def close(self) -> None:
        self.compiled_with_inputs.close()
        self.compiled_with_params.close()


def _build_graph(
    build: Callable[[rlx.Graph, Callable[..., Any]], Any],
    arrays: Arrays,
    leaf_kind: str,
) -> rlx.Graph:
    graph = rlx.Graph("bench")
    leaves = {
        n: getattr(graph, leaf_kind)(n, a.shape, "f32") for n, a in arrays.items()
    }
    graph.set_outputs([build(graph, **leaves)])
    return graph


@dataclass(slots=True)
class HandwrittenOp:
    """One op in raw wgpu: its buffers, its kernels and the read-back of the answer."""

    device: RawDevice
    arrays: Sequence[np.ndarray]
    shape: tuple[int, ...]
    inputs: list[Any] = field(default_factory=list)
    output: Any = None
    staging_buffer: Any = None

    def __post_init__(self) -> None:
        nbytes = 4 * int(np.prod(self.shape))
        self.inputs = [self.device.storage(array) for array in self.arrays]
        self.output = self.device.storage(nbytes)
        self.staging_buffer = self.device.staging(nbytes)

    def make_kernel(self, source: str, grid: tuple[int, ...]) -> RawKernel:
        return self.device.kernel(source, (*self.inputs, self.output), grid)

    def run_call(self, kernels: Sequence[RawKernel]) -> np.ndarray:
        for buffer, array in zip(self.inputs, self.arrays, strict=True):
            self.device.queue.write_buffer(buffer, 0, array)
        (out,) = self.device.run(kernels, [(self.output, self.staging_buffer)])
        return out.reshape(self.shape)


def _make_cell(
    name: str,
    facts: DeviceFacts,
    ours: LavapipeGraph,
    handwritten: HandwrittenOp,
    variants: Mapping[str, Sequence[RawKernel]],
    expected: np.ndarray,
    published: Sequence[float],
) -> BenchmarkCell:
    """Return a cell of our two rows, two per handwritten variant, and NumPy's
    answer.
    """
    entries = [
        PeerEntry("rlxweb, resident", facts.name, ours.run_on_device, True),
        PeerEntry("rlxweb, call", facts.name, ours.run_call, True),
    ]
    for (variant, kernels), ms in zip(variants.items(), published, strict=True):
        entries += [
            PeerEntry(
                f"hand-written{variant}, resident",
                facts.name,
                lambda kernels=kernels: handwritten.device.run(kernels),
                published_ms=ms,
            ),
            PeerEntry(
                f"hand-written{variant}, call",
                facts.name,
                lambda kernels=kernels: handwritten.run_call(kernels),
            ),
        ]
    goals = [
        Goal(
            f"rlxweb, {kind}",
            tuple(f"hand-written{variant}, {kind}" for variant in variants),
            MAX_TIME_RATIO,
        )
        for kind in ("resident", "call")
    ]

    def check() -> None:
        for entry in entries:
            if entry.name.endswith("call"):
                _check_close(entry.name, entry.run(), expected)

    def close() -> None:
        ours.close()
        handwritten.device.close()

    return BenchmarkCell(
        name, tuple(entries), tuple(goals), check, ours.resource_growth, close
    )


def _check_close(name: str, actual: Any, expected: np.ndarray) -> None:
    worst = float(np.max(np.abs(actual - expected)) / np.max(np.abs(expected)))
    assert worst < 2e-5, f"{name}: relative error {worst:.2g}"


def _noise(*shape: int) -> np.ndarray:
    """Return noise that is the same for each call with that shape."""
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def _matmul(name: str, facts: DeviceFacts) -> BenchmarkCell:
    a, b = _noise(2, 512, 512)
    ours = LavapipeGraph(lambda g, a, b: g.matmul(a, b), {"a": a, "b": b})
    handwritten = HandwrittenOp(RawDevice(facts.name), (a, b), (512, 512))
    kernels = [
        handwritten.make_kernel(*handwritten_shaders.matmul_shader(512, 512, 512))
    ]
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return _make_cell(name, facts, ours, handwritten, {"": kernels}, expected, [22.0])


def _softmax(name: str, facts: DeviceFacts) -> BenchmarkCell:
    x = _noise(1024, 1024)
    ours = LavapipeGraph(lambda g, x: g.softmax(x), {"x": x})
    handwritten = HandwrittenOp(RawDevice(facts.name), (x,), x.shape)
    kernels = [
        handwritten.make_kernel(handwritten_shaders.softmax_shader(1024), (1024,))
    ]
    exponentials = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)
    return _make_cell(name, facts, ours, handwritten, {"": kernels}, expected, [2.50])


def _chain(name: str, facts: DeviceFacts) -> BenchmarkCell:
    x, y = _noise(2, CHAIN_LENGTH)
    ours = LavapipeGraph(
        lambda g, x, y: g.gelu_approx(x * 2.0 + 1.0) * y, {"x": x, "y": y}
    )
    handwritten = HandwrittenOp(RawDevice(facts.name), (x, y), x.shape)
    variants = {
        f" ({form})": [
            handwritten.make_kernel(
                handwritten_shaders.gelu_chain_shader(form), (CHAIN_LENGTH // 1024,)
            )
        ]
        for form in handwritten_shaders.GELU_FORMS
    }
    t = x.astype(np.float64) * 2 + 1
    expected = 0.5 * t * (1 + np.tanh(0.7978845608 * (t + 0.044715 * t**3))) * y
    return _make_cell(name, facts, ours, handwritten, variants, expected, [7.7, 6.96])


def _adds(name: str, facts: DeviceFacts) -> BenchmarkCell:
    """Build a cell of 100 additions: fused by us, and as 100 dispatches by both
    sides.
    """
    x = _noise(1024)

    def build(graph: rlx.Graph, x: Any) -> Any:
        for _ in range(N_ADDS):
            x = x + 1.0
        return x

    ours = LavapipeGraph(build, {"x": x})
    unfused = LavapipeGraph(build, {"x": x}, optimise=False)
    handwritten = HandwrittenOp(RawDevice(facts.name), (x,), x.shape)
    forward = handwritten.make_kernel(handwritten_shaders.ADD_SHADER, (16,))
    backward = handwritten.device.kernel(
        handwritten_shaders.ADD_SHADER,
        (handwritten.output, handwritten.inputs[0]),
        forward.grid,
    )
    # 99 dispatches there and back, the last one there: the answer lies in `output`.
    steps = ([forward, backward] * N_ADDS)[: N_ADDS - 1]
    last_buffer = handwritten.device.storage(x.nbytes)
    last_step = handwritten.device.kernel(
        handwritten_shaders.ADD_SHADER, (handwritten.output, last_buffer), forward.grid
    )
    handwritten.output = last_buffer
    fused = handwritten.make_kernel(
        handwritten_shaders.fused_adds_shader(N_ADDS), (16,)
    )
    variants = {", 100 dispatches": [*steps, last_step], ", fused": [fused]}
    expected = x + np.float64(N_ADDS)
    cell = _make_cell(name, facts, ours, handwritten, variants, expected, [2.58, 0.10])
    return _with_unfused(cell, unfused, facts)


def _with_unfused(
    cell: BenchmarkCell, unfused: LavapipeGraph, facts: DeviceFacts
) -> BenchmarkCell:
    """Add our graph compiled without fusing, which is 100 dispatches as well."""
    name = "rlxweb unfused, resident"

    def close() -> None:
        unfused.close()
        cell.close()

    goal = Goal(name, ("hand-written, 100 dispatches, resident",), MAX_TIME_RATIO)
    return replace(
        cell,
        entries=(
            *cell.entries,
            PeerEntry(name, facts.name, unfused.run_on_device, True),
        ),
        goals=(*cell.goals, goal),
        close=close,
    )
