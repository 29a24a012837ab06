"""A device that is refused: the error says why, whichever call named the device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlxweb import DevicePolicy, FlexibleSession, Graph, GraphDevices
from rlxweb.backends.protocol import Backend
from rlxweb.backends.registry import ROWS, Row
from rlxweb.device import Device
from rlxweb.errors import Unsupported
from rlxweb.gpu.adapters import missing
from rlxweb.gpu.port import Want
from tests.unit.runtime.fake_machine import FakeEngine, FakeMachine, X, adding, runner
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices


def doubled(dtype: str = "f32") -> Graph:
    graph = Graph("doubled")
    x = graph.input("x", (2,), dtype)
    graph.set_outputs([x + x])
    return graph


def said(call: Callable[[], object], kind: type[Exception] = Unsupported) -> str:
    with pytest.raises(kind) as found:
        call()
    return str(found.value)


def test_what_of_the_graph_a_device_cannot_run_is_said(machine: FakeMachine) -> None:
    """The fake engines have no f64: a device that is named, and every allowed one."""
    graph, x = doubled("f64"), {"x": np.ones(2)}
    only = DevicePolicy.only("vulkan")
    for call in (
        lambda: GraphDevices(graph).run("vulkan", x),
        lambda: GraphDevices(graph).resolve("vulkan"),
        lambda: GraphDevices(graph).resolve_chain(["cuda", "vulkan"]),
        lambda: GraphDevices(graph, only).run_resolved(x),
        lambda: GraphDevices(graph, only).fastest(),
        lambda: GraphDevices(graph, only, cost_mode="seed").resolve(),
        lambda: FlexibleSession(only).compile_resolved(graph),
        lambda: FlexibleSession().compile_resolved(graph, "vulkan"),
    ):
        assert "f64" in said(call)
    both = said(GraphDevices(graph, DevicePolicy.only("vulkan gl")).resolve)
    assert "device Vulkan cannot run this graph" in both
    assert "device OpenGL cannot run this graph" in both


def test_an_adapter_that_is_not_there_is_named(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the adapters that are."""

    async def opened(adapter: str) -> Backend:
        if adapter:
            want = Want(("vulkan",), name=adapter)
            raise missing(want, [("llvmpipe", f"its name has no {adapter!r}")])
        return FakeEngine(Device.VULKAN, machine)

    monkeypatch.setitem(ROWS, "vulkan", Row(opened))
    filters = {"vulkan": "RTX"}
    made = GraphDevices(doubled(), adapters=filters)
    session = FlexibleSession(adapters=filters)
    for call in (
        lambda: made.run("vulkan", X),
        lambda: made.resolve("vulkan"),
        lambda: made.resolve_chain(["tpu", "vulkan"]),
        lambda: session.compile_resolved(doubled(), "vulkan"),
        GraphDevices(doubled(), DevicePolicy.only("vulkan"), adapters=filters).resolve,
    ):
        text = said(call)
        assert "RTX" in text
        assert "llvmpipe" in text
    (row,) = [row for row in made.report() if row.label == "vulkan"]
    assert "RTX" in row.blocker
    assert "llvmpipe" in row.blocker


def test_the_setting_that_forbids_a_device_is_named(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy's part, and the variable where it is set."""
    made = runner(DevicePolicy.all().with_deny("opengl"))
    for call in (lambda: made.run("gl", X), lambda: made.resolve("gl")):
        text = said(call)
        assert "device OpenGL is denied by DevicePolicy: deny is opengl" in text
        assert "RLX_DENY_DEVICES" not in text
    made = runner(DevicePolicy.only("cpu"))
    assert "not in DevicePolicy allow-list: allow is cpu" in said(
        lambda: made.run("gl", X)
    )
    monkeypatch.setenv("RLX_DENY_DEVICES", "vk")
    monkeypatch.setenv("RLX_DEVICES", "cpu,vulkan")
    made = GraphDevices.from_env(adding())
    assert "RLX_DENY_DEVICES='vk'" in said(lambda: made.compile("vulkan"))
    assert "RLX_DEVICES='cpu,vulkan'" in said(lambda: made.compile("opengl"))
    rows = {row.label: row.blocker for row in made.report()}
    assert "RLX_DENY_DEVICES='vk'" in rows["vulkan"]
    assert "RLX_DEVICES='cpu,vulkan'" in rows["opengl"]
