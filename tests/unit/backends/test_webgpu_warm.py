"""Shaders of software drivers are compiled one by one, before a program's first run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends import webgpu_warm
from rlxweb.backends.pool import pool
from rlxweb.backends.webgpu_warm import LEAST_SHARED, NOTHING
from rlxweb.errors import AdapterMissing, ShaderRejected
from rlxweb.gpu.port import Dispatch


@pytest.mark.requires_wgpu
def test_each_shader_has_its_own_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that was compiled for another program is not dispatched again."""

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


def many(n: int) -> rlx.Graph:
    """A graph of a dozen shaders."""
    graph = rlx.Graph("many")
    x = graph.input("x", (n, 40))
    graph.set_outputs(
        [
            graph.softmax(x),
            graph.cumsum(x, 0),
            graph.rms_norm(x, graph.constant(np.ones(40, np.float32))),
            x @ x.T,
            graph.exp(x),
            graph.topk(x, 3),
            graph.sum(graph.tanh(x), 0),
            graph.transpose(x, (1, 0)),
        ]
    )
    return graph


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The backend on lavapipe, as if it had compiled nothing, on two processors."""
    rlx.Session("vulkan", adapter="llvmpipe").compile(many(2))
    backend = pool.backend("vulkan", "llvmpipe")
    monkeypatch.setattr(backend._warm, "_done", set())
    monkeypatch.setattr(webgpu_warm, "usable_cpus", lambda: 2)
    return backend


def check(n: int) -> None:
    """Right on lavapipe, whoever compiled."""
    x = np.random.default_rng(n).standard_normal((n, 40)).astype(np.float32)
    ours = rlx.Session("vulkan", adapter="llvmpipe").compile(many(n)).run({"x": x})
    theirs = rlx.Session("cpu").compile(many(n)).run({"x": x})
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, two, 1e-4, 1e-5)


@pytest.mark.requires_wgpu
def test_another_device_compiles_some_of_many(
    cold: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened and closed, and every shader is dispatched on the first as well."""
    others, elsewhere = list[Any](), list[Any]()
    another, compiled = cold.port.another, webgpu_warm._compiled

    async def opened() -> Any:
        others.append(await another())
        return others[-1]

    async def compiling(port: Any, launch: Any) -> None:
        elsewhere.append(launch.shader)
        await compiled(port, launch)

    monkeypatch.setattr(cold.port, "another", opened)
    monkeypatch.setattr(webgpu_warm, "_compiled", compiling)
    check(2)
    (other,) = others
    assert not other.live
    assert other.created["pipelines"] == len(elsewhere)
    assert len(cold._warm._done) >= max(LEAST_SHARED, len(elsewhere))
    others.clear()
    check(2)
    assert others == []


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("when", ["opened", "compiling", "alone"])
def test_without_it_nothing_is_missing(
    cold: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A device that cannot be had, or breaks, or a machine of one processor."""

    async def refused(*given: Any) -> Any:
        if when == "opened":
            raise AdapterMissing("open", "there is no second one")
        raise ShaderRejected("compile", "not here")

    if when == "alone":
        monkeypatch.setattr(webgpu_warm, "usable_cpus", lambda: 1)
    name = "another" if when != "compiling" else "_compiled"
    monkeypatch.setattr(
        cold.port if when != "compiling" else webgpu_warm, name, refused
    )
    check(2)
    assert len(cold._warm._done) >= LEAST_SHARED
