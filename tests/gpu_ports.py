"""GPU ports for tests: an open fake port, a real wgpu port, checks for every port, and
one sample shader.

`scaled_graph` is the graph X * 2 + w, `shader_source` the one shader it becomes, and
`compute_scaled` what the fake runs in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    SessionClosed,
    ShaderRejected,
)
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.gpu.wgpu_port import WgpuPort
from tests.fake_gpu_port import FailureKind, FakePort, InjectedFailure

ERROR_TYPES: dict[FailureKind, type[DeviceError]] = {
    "no-adapter": AdapterMissing,
    "lost-at-birth": DeviceLost,
    "lost": DeviceLost,
    "lost-unseen": DeviceLost,
    "timeout": GpuTimeout,
    "out-of-memory": OutOfMemory,
    "shader-refused": ShaderRejected,
    "map-rejected": DeviceLost,
    "short-read": DeviceLost,
}
"""Exception type that the caller sees for each kind of failure."""


def open_fake_port(*failures: InjectedFailure, **options: Any) -> FakePort:
    """Return an open fake port with the given failures."""
    port = FakePort(failures, **options)
    run_blocking(port.open(AdapterRequest()))
    return port


@contextmanager
def open_native_port(request: AdapterRequest, **options: Any) -> Iterator[WgpuPort]:
    """Open a port on a real adapter and close it with the block."""
    port = WgpuPort(**options)
    run_blocking(port.open(request))
    yield port
    run_blocking(port.close())


def check_not_open(port: Any) -> None:
    """Check that a port that was never opened raises an error and can be closed."""
    with pytest.raises(DeviceError, match="not open"):
        port.create_buffer(4, "storage")
    with pytest.raises(DeviceError, match="not open"):
        _ = port.facts
    run_blocking(port.close())


def check_closed_port(port: Any) -> None:
    """Check that closing twice frees everything and that every other method raises
    then.
    """
    handle = port.create_buffer(4, "storage")
    run_blocking(port.close())
    run_blocking(port.close())
    assert port.live_handles == set()
    for method in (
        lambda: port.create_buffer(4, "storage"),
        lambda: port.write(handle, 0, memoryview(b"1234")),
        lambda: port.submit([]),
        lambda: port.destroy(handle),
        lambda: run_blocking(port.read(handle, 0, 4)),
        lambda: run_blocking(port.time_command_lists([])),
        lambda: run_blocking(port.create_pipeline("fn main() {}", (), {})),
        lambda: run_blocking(port.open(AdapterRequest())),
    ):
        with pytest.raises(SessionClosed, match="port is closed"):
            method()


def scaled_graph(shape: tuple[int, ...] = (4, 3)) -> Graph:
    """Return the graph X * 2 + w, a single elementwise region."""
    graph = Graph("scaled")
    x, w = graph.input("x", shape), graph.param("w", shape)
    graph.set_outputs([x * 2.0 + w])
    return graph


def compute_scaled(
    views: Sequence[memoryview], constants: Mapping[str, float], grid: tuple[int, ...]
) -> None:
    """Compute the region of `scaled_graph`; its inputs are dense, in row-major
    order.
    """
    w, x, out = (np.frombuffer(v, np.float32) for v in views[:3])
    out[:] = x * 2 + w


def prepare_graph(engine: Any, graph: Graph) -> Any:
    """Return the graph as a program of the engine."""
    return run_blocking(engine.prepare(compile_graph(graph, engine.target)))


def shader_source(graph: Graph, port: FakePort | None = None) -> str:
    """Return the source of the only shader that a graph needs."""
    port = port or open_fake_port()
    prepare_graph(WebGpuEngine(port), graph)
    (pipeline,) = port.pipelines.values()
    return pipeline.source
