"""A device that is refused: the error says why, whichever call named the device."""

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
from rlxweb.backends.protocol import Backend
from rlxweb.backends.registry import ROWS, Row
from rlxweb.choose.fallback import run_with_fallback
from rlxweb.device import Device
from rlxweb.errors import (
    DeviceFallbackError,
    InputError,
    SessionClosed,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.adapters import missing
from rlxweb.gpu.port import Want
from rlxweb.runtime.device_benchmark import benchmark_devices
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
    """A missing adapter is named with those that are there."""

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


def test_what_a_chain_cannot_use_has_its_reason(machine: FakeMachine) -> None:
    """A chain tells each device's own reason, and the call by its own name."""

    async def never(adapter: str) -> Backend:
        raise AssertionError("it was opened")

    gone = Row(never, present=lambda: "no driver")
    machine.monkeypatch.setitem(ROWS, "cuda", gone)
    made = runner(DevicePolicy.all().with_deny("gl"))
    text = said(lambda: made.run_chain("cuda", X), DeviceFallbackError)
    assert text.startswith("run_chain of")
    assert "cuda: device CUDA is not available: no driver" in text
    text = said(lambda: made.run_try(["cuda", "gl"], X), DeviceFallbackError)
    assert text.startswith("run_try of")
    assert "no driver" in text
    assert "opengl: device OpenGL is denied by DevicePolicy" in text
    chain = ["cuda"]
    text = said(lambda: run_with_fallback(doubled(), chain, never), DeviceFallbackError)
    assert "no driver" in text


def test_an_allowed_device_that_is_missing_has_its_reason(
    machine: FakeMachine,
) -> None:
    """An allowed device that is missing has its reason, whatever is asked."""

    async def never(adapter: str) -> Backend:
        raise AssertionError("it was opened")

    gone = Row(never, present=lambda: "no driver")
    machine.monkeypatch.setitem(ROWS, "cuda", gone)
    only = DevicePolicy.only("cuda")
    for mode in ("calibrated", "seed"):
        made = GraphDevices(doubled(), only, cost_mode=mode)
        for call in (made.fastest, made.resolve, made.compile_fastest):
            text = said(call)
            assert "no driver" in text
            assert "no device is allowed" not in text
    with pytest.raises(DeviceFallbackError, match=r"cuda: .*no driver") as found:
        made.run_chain(X)
    assert [device for device, _ in found.value.attempts] == [Device.CUDA]
    machine.monkeypatch.setenv("RLX_DEVICES", "cuda")
    assert "no driver" in said(lambda: Session().compile(doubled()))


def test_no_device_is_blamed_that_was_not_tried(machine: FakeMachine) -> None:
    made = runner()
    for call in (made.run_chain, made.run_try):
        with pytest.raises(DeviceFallbackError, match="empty fallback chain") as found:
            call([], X)
        assert found.value.attempts == made.attempts == ()
        again = pickle.loads(pickle.dumps(found.value))
        assert str(again) == str(found.value)
    machine.monkeypatch.setenv("RLX_FORCE_DEVICE", "cuda")
    with pytest.raises(DeviceFallbackError, match=r"run_chain .*\s+cuda: ") as found:
        made.run_chain(X)
    assert [device for device, _ in found.value.attempts] == [Device.CUDA]
    assert [attempt.device for attempt in made.attempts] == [Device.CUDA]


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


@pytest.mark.parametrize("runs", [0, -1])
def test_a_benchmark_of_no_runs_is_refused(machine: FakeMachine, runs: int) -> None:
    for call in (
        lambda: runner().benchmark(X, runs),
        lambda: benchmark_devices(doubled(), X, runs),
    ):
        assert f"runs is {runs}; it must be at least 1" in said(call, UsageError)
    assert machine.prepared == []


def test_batches_are_an_iterable(machine: FakeMachine) -> None:
    made = runner()
    for call in (made.map, made.compile("cpu").map):
        text = said(lambda call=call: call(3), InputError)
        assert "map of 'adding': batches is 3" in text


def test_a_closed_router_says_what_to_make_anew(machine: FakeMachine) -> None:
    router = DeviceRouter(doubled())
    router.close()
    assert "new DeviceRouter" in said(lambda: router.run(X), SessionClosed)
