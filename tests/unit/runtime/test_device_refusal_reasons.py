"""Errors of refused devices state the reason, whichever call named the device."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest

from rlxweb import (
    DevicePolicy,
    DeviceRouter,
    FlexibleSession,
    Graph,
    GraphDevices,
    Session,
)
from rlxweb.core.device import Device
from rlxweb.core.errors import (
    DeviceFallbackError,
    InputError,
    SessionClosed,
    Unsupported,
    UsageError,
)
from rlxweb.engines.protocol import Engine
from rlxweb.engines.registry import ROWS, Row
from rlxweb.gpu.adapter_selection import adapter_missing_error
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.runtime.device_benchmark import benchmark_devices
from rlxweb.select.fallback import run_with_fallback
from tests.unit.runtime.fake_machine import (
    FakeEngine,
    FakeMachine,
    X,
    add_graph,
    make_graph_devices,
)
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices


def doubling_graph(dtype: str = "f32") -> Graph:
    """Build the graph x [2] + x."""
    graph = Graph("doubled")
    x = graph.input("x", (2,), dtype)
    graph.set_outputs([x + x])
    return graph


def error_text(call: Callable[[], object], kind: type[Exception] = Unsupported) -> str:
    """Return the text of the error that a call raises."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_unsupported_dtype_is_named(machine: FakeMachine) -> None:
    """Fake engines have no f64; errors say so for a named device and for every allowed
    one.
    """
    graph, x = doubling_graph("f64"), {"x": np.ones(2)}
    policy = DevicePolicy.only("vulkan")
    for call in (
        lambda: GraphDevices(graph).run("vulkan", x),
        lambda: GraphDevices(graph).resolve("vulkan"),
        lambda: GraphDevices(graph).resolve_chain(["cuda", "vulkan"]),
        lambda: GraphDevices(graph, policy).run_resolved(x),
        lambda: GraphDevices(graph, policy).fastest(),
        lambda: GraphDevices(graph, policy, cost_mode="seed").resolve(),
        lambda: FlexibleSession(policy).compile_resolved(graph),
        lambda: FlexibleSession().compile_resolved(graph, "vulkan"),
    ):
        assert "f64" in error_text(call)
    message = error_text(GraphDevices(graph, DevicePolicy.only("vulkan gl")).resolve)
    assert "device Vulkan cannot run this graph" in message
    assert "device OpenGL cannot run this graph" in message


def test_missing_adapter_is_named(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing adapter is reported with the adapters that exist."""

    async def open_engine(adapter: str) -> Engine:
        if adapter:
            request = AdapterRequest(("vulkan",), name=adapter)
            raise adapter_missing_error(
                request, [("llvmpipe", f"its name does not contain {adapter!r}")]
            )
        return FakeEngine(Device.VULKAN, machine)

    monkeypatch.setitem(ROWS, "vulkan", Row(open_engine))
    filters = {"vulkan": "RTX"}
    graph_devices = GraphDevices(doubling_graph(), adapters=filters)
    session = FlexibleSession(adapters=filters)
    for call in (
        lambda: graph_devices.run("vulkan", X),
        lambda: graph_devices.resolve("vulkan"),
        lambda: graph_devices.resolve_chain(["tpu", "vulkan"]),
        lambda: session.compile_resolved(doubling_graph(), "vulkan"),
        GraphDevices(
            doubling_graph(), DevicePolicy.only("vulkan"), adapters=filters
        ).resolve,
    ):
        text = error_text(call)
        assert "RTX" in text
        assert "llvmpipe" in text
    (row,) = [row for row in graph_devices.report() if row.label == "vulkan"]
    assert "RTX" in row.blocker
    assert "llvmpipe" in row.blocker


def test_chain_errors_give_each_reason(machine: FakeMachine) -> None:
    """Chain errors give each device's reason and the name of the call."""

    async def fail_to_open(adapter: str) -> Engine:
        raise AssertionError("it was opened")

    missing_row = Row(fail_to_open, present=lambda: "no driver")
    machine.monkeypatch.setitem(ROWS, "cuda", missing_row)
    graph_devices = make_graph_devices(DevicePolicy.all().with_deny("gl"))
    text = error_text(lambda: graph_devices.run_chain("cuda", X), DeviceFallbackError)
    assert text.startswith("run_chain of")
    assert "cuda: device CUDA is not available: no driver" in text
    text = error_text(
        lambda: graph_devices.run_try(["cuda", "gl"], X), DeviceFallbackError
    )
    assert text.startswith("run_try of")
    assert "no driver" in text
    assert "opengl: device OpenGL is denied by DevicePolicy" in text
    chain = ["cuda"]
    text = error_text(
        lambda: run_with_fallback(doubling_graph(), chain, fail_to_open),
        DeviceFallbackError,
    )
    assert "no driver" in text


def test_missing_allowed_device_has_a_reason(
    machine: FakeMachine,
) -> None:
    """Errors about a missing allowed device give the reason in every call."""

    async def fail_to_open(adapter: str) -> Engine:
        raise AssertionError("it was opened")

    missing_row = Row(fail_to_open, present=lambda: "no driver")
    machine.monkeypatch.setitem(ROWS, "cuda", missing_row)
    policy = DevicePolicy.only("cuda")
    for mode in ("calibrated", "seed"):
        graph_devices = GraphDevices(doubling_graph(), policy, cost_mode=mode)
        for call in (
            graph_devices.fastest,
            graph_devices.resolve,
            graph_devices.compile_fastest,
        ):
            text = error_text(call)
            assert "no driver" in text
            assert "no device is allowed" not in text
    with pytest.raises(DeviceFallbackError, match=r"cuda: .*no driver") as caught:
        graph_devices.run_chain(X)
    assert [device for device, _ in caught.value.attempts] == [Device.CUDA]
    machine.monkeypatch.setenv("RLX_DEVICES", "cuda")
    assert "no driver" in error_text(lambda: Session().compile(doubling_graph()))


def test_only_tried_devices_are_reported(machine: FakeMachine) -> None:
    graph_devices = make_graph_devices()
    for call in (graph_devices.run_chain, graph_devices.run_try):
        with pytest.raises(DeviceFallbackError, match="empty fallback chain") as caught:
            call([], X)
        assert caught.value.attempts == graph_devices.attempts == ()
        unpickled = pickle.loads(pickle.dumps(caught.value))
        assert str(unpickled) == str(caught.value)
    machine.monkeypatch.setenv("RLX_FORCE_DEVICE", "cuda")
    with pytest.raises(DeviceFallbackError, match=r"run_chain .*\s+cuda: ") as caught:
        graph_devices.run_chain(X)
    assert [device for device, _ in caught.value.attempts] == [Device.CUDA]
    assert [attempt.device for attempt in graph_devices.attempts] == [Device.CUDA]


def test_denying_setting_is_named(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors name the policy field and the environment variable that sets it."""
    graph_devices = make_graph_devices(DevicePolicy.all().with_deny("opengl"))
    for call in (
        lambda: graph_devices.run("gl", X),
        lambda: graph_devices.resolve("gl"),
    ):
        text = error_text(call)
        assert "device OpenGL is denied by DevicePolicy: deny is opengl" in text
        assert "RLX_DENY_DEVICES" not in text
    graph_devices = make_graph_devices(DevicePolicy.only("cpu"))
    assert "not in DevicePolicy allow-list: allow is cpu" in error_text(
        lambda: graph_devices.run("gl", X)
    )
    monkeypatch.setenv("RLX_DENY_DEVICES", "vk")
    monkeypatch.setenv("RLX_DEVICES", "cpu,vulkan")
    graph_devices = GraphDevices.from_env(add_graph())
    assert "RLX_DENY_DEVICES='vk'" in error_text(
        lambda: graph_devices.compile("vulkan")
    )
    assert "RLX_DEVICES='cpu,vulkan'" in error_text(
        lambda: graph_devices.compile("opengl")
    )
    rows = {row.label: row.blocker for row in graph_devices.report()}
    assert "RLX_DENY_DEVICES='vk'" in rows["vulkan"]
    assert "RLX_DEVICES='cpu,vulkan'" in rows["opengl"]


@pytest.mark.parametrize("runs", [0, -1])
def test_benchmark_without_runs_is_rejected(machine: FakeMachine, runs: int) -> None:
    for call in (
        lambda: make_graph_devices().benchmark(X, runs),
        lambda: benchmark_devices(doubling_graph(), X, runs),
    ):
        assert f"runs is {runs}; it must be at least 1" in error_text(call, UsageError)
    assert machine.prepared_programs == []


def test_batches_must_be_iterable(machine: FakeMachine) -> None:
    graph_devices = make_graph_devices()
    for call in (graph_devices.map, graph_devices.compile("cpu").map):
        text = error_text(lambda call=call: call(3), InputError)
        assert "map of 'adding': batches is 3" in text


def test_closed_router_suggests_a_new_one(machine: FakeMachine) -> None:
    router = DeviceRouter(doubling_graph())
    router.close()
    assert "new DeviceRouter" in error_text(lambda: router.run(X), SessionClosed)
