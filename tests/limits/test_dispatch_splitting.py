"""Check that dispatches are folded, split and gathered to meet tiny device limits.

That the answers stay right is tested op by op (tests/ops); here the commands are looked
at, so that the limits cannot pass because nothing was large enough to meet them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.core.errors import LimitExceeded
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest, BufferCopy, Command, Dispatch
from rlxweb.gpu.wgpu_port import WgpuPort
from tests.engines_under_test import EngineUnderTest

pytestmark = pytest.mark.requires_wgpu


class CommandRecordingPort:
    """Port that keeps the submitted commands."""

    def __init__(self, port: Any) -> None:
        self.port = port
        self.commands: list[Command] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def submit(self, *lists: Sequence[Command]) -> None:
        for commands in lists:
            self.commands += commands
        self.port.submit(*lists)

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        grids = [c.grid for c in self.commands if isinstance(c, Dispatch)]
        return [grid for grid in grids if 0 not in grid]  # those only compile


def recording_engine(
    adapter: AdapterRequest, limits: Limits
) -> tuple[EngineUnderTest, CommandRecordingPort]:
    """Return an engine on a port that itself enforces the limits, and that port."""
    native_port = WgpuPort()
    run_blocking(native_port.open(replace(adapter, limits=limits)))
    port = CommandRecordingPort(native_port)
    return EngineUnderTest("recorded", WebGpuEngine(port)), port  # type: ignore[arg-type]


def test_large_dispatches_are_folded(adapter: AdapterRequest) -> None:
    """A dispatch of 65,537 workgroups and more is folded at the usual limits."""
    runner, port = recording_engine(adapter, replace(AdapterRequest().limits))
    rows = 65_537 * 64
    graph = Graph()
    graph.set_outputs([graph.cast(graph.input("x", (rows,), "bool"), "i32")])
    x = np.arange(rows) % 3 == 0
    (out,) = runner.run(graph, {"x": x})
    np.testing.assert_array_equal(out, x)
    assert len(port.grids) == 1
    assert max(port.grids[0]) <= 65_535
    run_blocking(runner.engine.close())


def test_bindings_over_the_limit_are_split(adapter: AdapterRequest) -> None:
    """Chunks have at most 4 KiB, each folded to at most seven workgroups per axis."""
    runner, port = recording_engine(adapter, tiny_limits())
    graph = Graph()
    x = graph.input("x", (6000,))
    graph.set_outputs([graph.exp(x)])
    x = np.linspace(-1, 1, 6000, dtype=np.float32)
    (out,) = runner.run(graph, {"x": x})
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-5)
    assert len(port.grids) >= 6
    for command in port.commands:
        if isinstance(command, Dispatch):
            assert all(span.nbytes <= 4096 for span in command.bindings)
            assert max(command.grid) <= 7
    assert any(grid[1] > 1 for grid in port.grids) or len(port.grids) > 6
    run_blocking(runner.engine.close())


def test_a_long_sum_is_carried_across_chunks(adapter: AdapterRequest) -> None:
    """A sum with one output is carried across many chunks, each counted once."""
    runner, port = recording_engine(adapter, tiny_limits())
    graph = Graph()
    graph.set_outputs([graph.sum(graph.input("x", (5000,), "i32"))])
    x = np.arange(5000, dtype=np.int32)
    (out,) = runner.run(graph, {"x": x})
    assert out == x.sum()
    assert len(port.grids) >= 5
    run_blocking(runner.engine.close())


def test_too_many_operands_are_gathered(adapter: AdapterRequest) -> None:
    """Four buffers on three bindings: two operands are copied side by side."""
    runner, port = recording_engine(adapter, tiny_limits())
    graph = Graph()
    c, x, y = graph.input("c", (9,), "bool"), graph.input("x", 9), graph.input("y", 9)
    graph.set_outputs([graph.where(c, x, y)])
    feeds = {
        "c": np.arange(9) % 2 == 0,
        "x": np.arange(9, dtype=np.float32),
        "y": -np.arange(9, dtype=np.float32),
    }
    (out,) = runner.run(graph, feeds)
    np.testing.assert_array_equal(out, np.where(feeds["c"], feeds["x"], feeds["y"]))
    assert (
        sum(isinstance(c, BufferCopy) for c in port.commands) == 3
    )  # two, and the result
    run_blocking(runner.engine.close())


def test_session_limits_can_be_lowered(adapter: AdapterRequest) -> None:
    """A Session with lower `limits=` gives the same result as with the device's own."""
    graph = Graph()
    x = graph.input("x", (40, 100))
    graph.set_outputs([graph.softmax(x * 2.0, axis=0)])
    feeds = {"x": np.random.default_rng(0).uniform(-1, 1, (40, 100)).astype(np.float32)}
    label = adapter.backends[0]
    full_limits = Session(label, adapter=adapter.name).compile(graph)
    lowered_limits = Session(label, adapter=adapter.name, limits=tiny_limits()).compile(
        graph
    )
    np.testing.assert_allclose(
        full_limits.run(feeds)[0], lowered_limits.run(feeds)[0], rtol=1e-5
    )
    full_limits.close()
    lowered_limits.close()


def test_unsplittable_buffers_raise_limit_exceeded(adapter: AdapterRequest) -> None:
    """A buffer over the device's largest raises an error with both numbers and leaves
    nothing behind.
    """
    limits = replace(tiny_limits(), max_buffer_size=1 << 16)
    runner, port = recording_engine(adapter, limits)
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (1 << 15,)))])
    with pytest.raises(LimitExceeded, match=r"131,072 bytes; .* at most 65,536 "):
        runner.run(graph, {"x": np.zeros(1 << 15, np.float32)})
    assert port.live_handles == set(runner.engine.pipelines.handles())
    run_blocking(runner.engine.close())
