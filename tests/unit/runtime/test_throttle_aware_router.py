"""DeviceRouter: throttling detected from its own run times, with a bounded response."""

from __future__ import annotations

from itertools import repeat

import numpy as np
import pytest

from rlxweb import DevicePolicy, DeviceRouter, Graph
from rlxweb.core.device import Device
from rlxweb.core.errors import ShaderRejected, UnknownName
from rlxweb.runtime.throttle_aware_router import MIN_REBENCH_INTERVAL_S, REBENCH_RUNS
from tests.unit.runtime.fake_machine import FakeMachine, add_graph
from tests.unit.runtime.fake_machine import three_devices as three_devices

X = {"x": np.array([1, 2], np.float32)}
TWO_DEVICES = (Device.CPU, Device.VULKAN)


@pytest.fixture
def machine(three_devices: FakeMachine) -> FakeMachine:
    three_devices.install_only(*TWO_DEVICES)
    three_devices.run_durations = {
        Device.CPU: repeat(0.010),
        Device.VULKAN: repeat(0.020),
    }
    return three_devices


def make_router(machine: FakeMachine, **options: object) -> DeviceRouter:
    """Build a router of x + 0 that uses the machine's clock."""
    router = DeviceRouter(add_graph(), clock=machine.clock, **options)
    router.set_param("w", np.zeros(2, np.float32))
    return router


def test_construction_compiles_every_device(machine: FakeMachine) -> None:
    router = make_router(machine)
    assert router.devices() == ("vulkan", "cpu")
    assert len(machine.prepared_programs) == 2
    device, (got,) = router.run("vulkan", X)
    assert device is Device.VULKAN
    np.testing.assert_array_equal(got, X["x"])
    np.testing.assert_array_equal(router.run_on("cpu", X)[0], X["x"])
    assert router.run_chain(["vulkan", "cpu"], X)[0] is Device.VULKAN
    assert router.run(X, "vulkan")[0] == router.run(X, device="vulkan")[0] == "vulkan"
    with pytest.warns(DeprecationWarning, match="chain= is deprecated, use device="):
        assert router.run_chain(X, chain=["vulkan", "cpu"])[0] is Device.VULKAN
    router.set_param_typed("w", np.array([1, 1], "<f4").tobytes(), "f32")
    np.testing.assert_array_equal(router.run_on("cpu", X)[0], X["x"] + 1)


def test_construction_fails_if_any_device_fails(machine: FakeMachine) -> None:
    machine.prepare_errors[Device.VULKAN] = ShaderRejected("pipeline", "line 3")
    with pytest.raises(ShaderRejected):
        make_router(machine)


def test_steady_runs_do_not_recompile_or_benchmark(machine: FakeMachine) -> None:
    router = make_router(machine)
    for _ in range(100):
        router.run("cpu", X)
    assert len(machine.prepared_programs) == 2
    assert machine.programs_on(Device.VULKAN)[0].runs == 0


def test_throttling_triggers_rare_benchmarks(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that becomes slower triggers timing of all devices without compiling, at
    most every 30 s.
    """
    router = make_router(machine)
    for _ in range(20):
        router.run("cpu", X)
    assert not router.is_throttled(Device.CPU)
    machine.now += 60
    machine.run_durations[Device.CPU] = repeat(0.030)
    while not router.is_throttled(Device.CPU):
        router.run("cpu", X)
    vulkan_program = machine.programs_on(Device.VULKAN)[0]
    assert vulkan_program.runs == 0
    assert router.run(X)[0] is Device.VULKAN  # by now the faster one
    assert vulkan_program.runs == 1 + REBENCH_RUNS + 1
    assert len(machine.prepared_programs) == 2
    runs = vulkan_program.runs
    machine.run_durations[Device.VULKAN] = repeat(0.500)
    for _ in range(12):
        router.run(X, "vulkan")
    assert router.is_throttled(Device.VULKAN)
    assert vulkan_program.runs == runs + 12  # the half minute is not over
    machine.now += MIN_REBENCH_INTERVAL_S
    assert router.run(X)[0] is Device.CPU
    for name in ("RLX_DEVICE", "RLX_FORCE_DEVICE"):
        with monkeypatch.context() as environment:
            environment.setenv(name, "vulkan")
            assert router.run(X)[0] is Device.VULKAN  # named, over what was timed
    assert router.run(X)[0] is Device.CPU


def test_rebenchmarking_can_be_disabled(machine: FakeMachine) -> None:
    router = make_router(machine, rebench_on_throttle=False)
    for duration in [0.01] * 20 + [0.1] * 20:
        machine.run_durations[Device.CPU] = repeat(duration)
        router.run("cpu", X)
    assert router.is_throttled(Device.CPU)
    assert machine.programs_on(Device.VULKAN)[0].runs == 0


def test_failed_attempts_do_not_count_as_throttling(machine: FakeMachine) -> None:
    machine.run_errors[Device.VULKAN] = RuntimeError("down")
    machine.run_durations[Device.VULKAN] = repeat(5.0)
    router = make_router(machine)
    for _ in range(20):
        router.run("cpu", X)
    for _ in range(20):
        assert router.run_chain(["vulkan", "cpu"], X)[0] is Device.CPU
    assert not router.is_throttled(Device.CPU)


def test_unknown_names_are_rejected(machine: FakeMachine) -> None:
    router = make_router(machine)
    with pytest.raises(UnknownName):
        router.set_param("v", np.zeros(2, np.float32))
    with pytest.raises(UnknownName):
        router.run_chain({"y": X["x"]})


def test_on_the_real_cpu() -> None:
    graph = Graph("double")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    router = DeviceRouter(graph, DevicePolicy.only(["cpu"]))
    np.testing.assert_array_equal(router.run(X)[1][0], [2, 4])
    router.close()
