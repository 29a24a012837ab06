"""Warm-up: software drivers compile shaders one by one, before a program's first
run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.engines.pool import pool
from rlxweb.engines.webgpu.warm_up import EMPTY_GRID
from rlxweb.gpu.port_protocol import Dispatch


@pytest.mark.requires_wgpu
def test_each_shader_is_warmed_up_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shader that was compiled for another program is not dispatched again."""

    def compile_graph_of_rows(n: int) -> Any:
        graph = rlx.Graph("warm")
        x = graph.input("x", (n, 40))
        graph.set_outputs([graph.softmax(graph.sum(x @ x.T, 1)), graph.cumsum(x, 0)])
        return rlx.Session("vulkan", adapter="llvmpipe").compile(graph)

    compile_graph_of_rows(3)
    port = pool.engine("vulkan", "llvmpipe").port
    monkeypatch.setattr(pool.engine("vulkan", "llvmpipe")._warm_up, "_warmed_up", set())
    events: list[str] = []
    submit, read = port.submit, port.read

    def record_submit(*lists: Any) -> None:
        for item in (command for command_list in lists for command in command_list):
            if isinstance(item, Dispatch):
                events.append("compiles" if item.grid == EMPTY_GRID else "runs")
        submit(*lists)

    async def record_read(*arguments: Any) -> Any:
        events.append("waits")
        return await read(*arguments)

    monkeypatch.setattr(port, "submit", record_submit)
    monkeypatch.setattr(port, "read", record_read)
    first = compile_graph_of_rows(3)
    commands = first._placement.prepared.program.commands
    shaders = len(
        {command.pipeline for command in commands if isinstance(command, Dispatch)}
    )
    assert events == ["compiles", "waits"] * shaders
    assert shaders >= 4
    events.clear()
    compile_graph_of_rows(3)
    assert events == []
    x = np.ones((3, 40), np.float32)
    np.testing.assert_allclose(first.run({"x": x})[0], [1 / 3] * 3, 1e-6)
    assert "compiles" not in events
    assert events.count("waits") == 1
