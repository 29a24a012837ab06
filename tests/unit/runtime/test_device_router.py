"""The router: throttling seen in its own run times, and a bound on what follows."""

from __future__ import annotations

from itertools import repeat

import numpy as np
import pytest

from rlxweb import DevicePolicy, DeviceRouter, Graph
from rlxweb.device import Device
from rlxweb.errors import ShaderRejected, UnknownName
from rlxweb.runtime.device_router import REBENCH_EVERY_S, REBENCH_RUNS
from tests.unit.runtime.fake_machine import FakeMachine, adding
from tests.unit.runtime.fake_machine import three_devices as three_devices

X = {"x": np.array([1, 2], np.float32)}
TWO = (Device.CPU, Device.VULKAN)


@pytest.fixture
def machine(three_devices: FakeMachine) -> FakeMachine:
    three_devices.only(*TWO)
    three_devices.takes = {Device.CPU: repeat(0.010), Device.VULKAN: repeat(0.020)}
    return three_devices


def router_of(machine: FakeMachine, **options: object) -> DeviceRouter:
    made = DeviceRouter(adding(), clock=machine.clock, **options)
    made.set_param("w", np.zeros(2, np.float32))
    return made


def test_every_device_is_compiled_at_once(machine: FakeMachine) -> None:
    made = router_of(machine)
    assert made.devices() == ("vulkan", "cpu")
    assert len(machine.prepared) == 2
    device, (got,) = made.run("vulkan", X)
    assert device is Device.VULKAN
    np.testing.assert_array_equal(got, X["x"])
    np.testing.assert_array_equal(made.run_on("cpu", X)[0], X["x"])
    assert made.run_chain(["vulkan", "cpu"], X)[0] is Device.VULKAN
    assert made.run(X, "vulkan")[0] == made.run(X, device="vulkan")[0] == "vulkan"
    with pytest.warns(DeprecationWarning, match="chain= is called device="):
        assert made.run_chain(X, chain=["vulkan", "cpu"])[0] is Device.VULKAN
    made.set_param_typed("w", np.array([1, 1], "<f4").tobytes(), "f32")
    np.testing.assert_array_equal(made.run_on("cpu", X)[0], X["x"] + 1)


def test_an_error_of_any_device_ends_construction(machine: FakeMachine) -> None:
    machine.refuses[Device.VULKAN] = ShaderRejected("pipeline", "line 3")
    with pytest.raises(ShaderRejected):
        router_of(machine)


def test_steady_runs_compile_and_time_nothing_anew(machine: FakeMachine) -> None:
    made = router_of(machine)
    for _ in range(100):
        made.run("cpu", X)
    assert len(machine.prepared) == 2
    assert machine.of(Device.VULKAN)[0].runs == 0


def test_a_slower_device_is_noticed_once_in_a_while(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half as slow again: the devices are timed, none compiled; then peace for 30 s."""
    made = router_of(machine)
    for _ in range(20):
        made.run("cpu", X)
    assert not made.is_throttled(Device.CPU)
    machine.now += 60
    machine.takes[Device.CPU] = repeat(0.030)
    while not made.is_throttled(Device.CPU):
        made.run("cpu", X)
    other = machine.of(Device.VULKAN)[0]
    assert other.runs == 0
    assert made.run(X)[0] is Device.VULKAN  # by now the faster one
    assert other.runs == 1 + REBENCH_RUNS + 1
    assert len(machine.prepared) == 2
    runs = other.runs
    machine.takes[Device.VULKAN] = repeat(0.500)
    for _ in range(12):
        made.run(X, "vulkan")
    assert made.is_throttled(Device.VULKAN)
    assert other.runs == runs + 12  # the half minute is not over
    machine.now += REBENCH_EVERY_S
    assert made.run(X)[0] is Device.CPU
    for name in ("RLX_DEVICE", "RLX_FORCE_DEVICE"):
        with monkeypatch.context() as outside:
            outside.setenv(name, "vulkan")
            assert made.run(X)[0] is Device.VULKAN  # named, over what was timed
    assert made.run(X)[0] is Device.CPU


def test_it_can_be_switched_off(machine: FakeMachine) -> None:
    made = router_of(machine, rebench_on_throttle=False)
    for took in [0.01] * 20 + [0.1] * 20:
        machine.takes[Device.CPU] = repeat(took)
        made.run("cpu", X)
    assert made.is_throttled(Device.CPU)
    assert machine.of(Device.VULKAN)[0].runs == 0


def test_time_lost_on_others_is_not_held_against_a_device(machine: FakeMachine) -> None:
    machine.broken[Device.VULKAN] = RuntimeError("down")
    machine.takes[Device.VULKAN] = repeat(5.0)
    made = router_of(machine)
    for _ in range(20):
        made.run("cpu", X)
    for _ in range(20):
        assert made.run_chain(["vulkan", "cpu"], X)[0] is Device.CPU
    assert not made.is_throttled(Device.CPU)


def test_unknown_names_are_refused(machine: FakeMachine) -> None:
    made = router_of(machine)
    with pytest.raises(UnknownName):
        made.set_param("v", np.zeros(2, np.float32))
    with pytest.raises(UnknownName):
        made.run_chain({"y": X["x"]})


def test_on_the_real_cpu() -> None:
    graph = Graph("double")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    made = DeviceRouter(graph, DevicePolicy.only(["cpu"]))
    np.testing.assert_array_equal(made.run(X)[1][0], [2, 4])
    made.close()
