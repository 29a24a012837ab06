"""Shaders of software drivers are compiled one by one, before a program's first run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.webgpu_warm import NOTHING
from rlxweb.gpu.port import Dispatch


@pytest.mark.requires_wgpu
def test_each_shader_has_its_own_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shader that was compiled for another program is not dispatched again."""

    def compiled(n: int) -> Any:
        graph = rlx.Graph("warm")
        x = graph.input("x", (n, 40))
        graph.set_outputs([graph.softmax(graph.sum(x @ x.T, 1)), graph.cumsum(x, 0)])
        return rlx.Session("vulkan", adapter="llvmpipe").compile(graph)

    compiled(3)
    port = pool.backend("vulkan", "llvmpipe").port
    monkeypatch.setattr(pool.backend("vulkan", "llvmpipe")._warm, "_done", set())
    heard: list[str] = []
    submit, read = port.submit, port.read

    def submitting(*lists: Any) -> None:
        for one in (command for some in lists for command in some):
            if isinstance(one, Dispatch):
                heard.append("compiles" if one.grid == NOTHING else "runs")
        submit(*lists)

    async def reading(*asked: Any) -> Any:
        heard.append("waits")
        return await read(*asked)

    monkeypatch.setattr(port, "submit", submitting)
    monkeypatch.setattr(port, "read", reading)
    first = compiled(3)
    commands = first._placed.ready.program.commands
    shaders = len({one.pipeline for one in commands if isinstance(one, Dispatch)})
    assert heard == ["compiles", "waits"] * shaders
    assert shaders >= 4
    heard.clear()
    compiled(3)
    assert heard == []
    x = np.ones((3, 40), np.float32)
    np.testing.assert_allclose(first.run({"x": x})[0], [1 / 3] * 3, 1e-6)
    assert "compiles" not in heard
    assert heard.count("waits") == 1
