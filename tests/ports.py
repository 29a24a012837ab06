"""Ports for tests: a fake that is open, a native one that is closed, what holds of
every port before and after its life, and one shader.

`scaled` is the graph X * 2 + w, `source_of` the one shader it becomes, and `compute`
what the fake runs in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    SessionClosed,
    ShaderRejected,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Want
from tests.fake_port import Failure, FakePort, Kind

TELLS: dict[Kind, type[DeviceError]] = {
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
"""What each kind of failure must look like to the caller."""


def fake(*fail: Failure, **options: Any) -> FakePort:
    """An open fake that fails as told."""
    port = FakePort(fail, **options)
    drive(port.open(Want()))
    return port


@contextmanager
def native(adapter: Want, **options: Any) -> Iterator[NativePort]:
    """An open port on a real adapter, closed with the block."""
    port = NativePort(**options)
    drive(port.open(adapter))
    yield port
    drive(port.close())


def check_not_open(port: Any) -> None:
    """Check that a port that was never opened says so, and can be closed."""
    with pytest.raises(DeviceError, match="not open"):
        port.buffer(4, "storage")
    with pytest.raises(DeviceError, match="not open"):
        _ = port.facts
    drive(port.close())


def check_closes(port: Any) -> None:
    """Closing twice is fine and frees everything; every other verb is refused then."""
    handle = port.buffer(4, "storage")
    drive(port.close())
    drive(port.close())
    assert port.live == set()
    for verb in (
        lambda: port.buffer(4, "storage"),
        lambda: port.write(handle, 0, memoryview(b"1234")),
        lambda: port.submit([]),
        lambda: port.destroy(handle),
        lambda: drive(port.read(handle, 0, 4)),
        lambda: drive(port.timed([])),
        lambda: drive(port.pipeline("fn main() {}", (), {})),
        lambda: drive(port.open(Want())),
    ):
        with pytest.raises(SessionClosed, match="was closed"):
            verb()


def scaled(shape: tuple[int, ...] = (4, 3)) -> Graph:
    """X * 2 + w, as one region."""
    graph = Graph("scaled")
    x, w = graph.input("x", shape), graph.param("w", shape)
    graph.set_outputs([x * 2.0 + w])
    return graph


def compute(
    views: Sequence[memoryview], constants: Mapping[str, float], grid: tuple[int, ...]
) -> None:
    """What the region of `scaled` computes; its reads lie dense, outermost first."""
    w, x, out = (np.frombuffer(v, np.float32) for v in views[:3])
    out[:] = x * 2 + w


def prepared(backend: Any, graph: Graph) -> Any:
    """The graph as a program of the backend."""
    return drive(backend.prepare(compile_graph(graph, backend.target)))


def source_of(graph: Graph, port: FakePort | None = None) -> str:
    """The one shader that a graph needs."""
    port = port or fake()
    prepared(WebGpuBackend(port), graph)
    (made,) = port.pipelines.values()
    return made.source
