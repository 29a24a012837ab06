"""The router: throttling seen in its own run times, and a bound on what follows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from rlxweb import DevicePolicy, DeviceRouter, Graph
from rlxweb.device import Device
from rlxweb.errors import ShaderRejected, UnknownName
from rlxweb.runners import router
from tests.unit.runners.fakes import FakeMachine, adding, only_there

X = {"x": np.array([1, 2], np.float32)}
TWO = (Device.CPU, Device.VULKAN)


@dataclass
class Lab:
    """Two devices, a clock, and how long a run takes on each."""

    now: float = 0.0
    takes: dict[Device, float] = field(default_factory=dict)
    machine: FakeMachine = field(default_factory=FakeMachine)

    def router(self, **options: object) -> DeviceRouter:
        for device in TWO:
            self.machine.on_run[device] = lambda device=device: self._wait(device)
        made = DeviceRouter(
            adding(),
            compile_with=self.machine.compile,
            clock=lambda: self.now,
            **options,
        )
        made.set_param("w", np.zeros(2, np.float32))
        return made

    def _wait(self, device: Device) -> None:
        self.now += self.takes[device]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    only_there(monkeypatch, *TWO)
    return Lab(takes={Device.CPU: 0.010, Device.VULKAN: 0.020})


def test_every_device_is_compiled_at_once(lab: Lab) -> None:
    made = lab.router()
    assert made.devices() == ("vulkan", "cpu")
    assert len(lab.machine.made) == 2
    device, (got,) = made.run(X, "vulkan")
    assert device is Device.VULKAN
    np.testing.assert_array_equal(got, X["x"])
    np.testing.assert_array_equal(made.run_on("cpu", X)[0], X["x"])
    assert made.run_chain(X, ["vulkan", "cpu"])[0] is Device.VULKAN


def test_an_error_of_any_device_ends_construction(lab: Lab) -> None:
    lab.machine.refuses[Device.VULKAN] = ShaderRejected("pipeline", "line 3")
    with pytest.raises(ShaderRejected):
        lab.router()


def test_steady_runs_compile_and_time_nothing_anew(lab: Lab) -> None:
    made = lab.router()
    for _ in range(100):
        made.run(X, "cpu")
    assert len(lab.machine.made) == 2
    assert lab.machine.of(Device.VULKAN)[0].runs == 0


def test_a_slower_device_is_noticed_once_in_a_while(lab: Lab) -> None:
    """Half as slow again: the devices are timed, none compiled; then peace for 30 s."""
    made = lab.router()
    for _ in range(20):
        made.run(X, "cpu")
    assert not made.is_throttled(Device.CPU)
    lab.now += 60
    lab.takes[Device.CPU] = 0.030
    while not made.is_throttled(Device.CPU):
        made.run(X, "cpu")
    other = lab.machine.of(Device.VULKAN)[0]
    assert other.runs == 0
    assert made.run(X)[0] is Device.VULKAN  # by now the faster one
    assert other.runs == 1 + router.REBENCH_RUNS + 1
    assert len(lab.machine.made) == 2
    runs = other.runs
    lab.takes[Device.VULKAN] = 0.500
    for _ in range(12):
        made.run(X, "vulkan")
    assert made.is_throttled(Device.VULKAN)
    assert other.runs == runs + 12  # the half minute is not over
    lab.now += router.REBENCH_EVERY_S
    assert made.run(X)[0] is Device.CPU


def test_it_can_be_switched_off(lab: Lab) -> None:
    made = lab.router(rebench_on_throttle=False)
    for took in [0.01] * 20 + [0.1] * 20:
        lab.takes[Device.CPU] = took
        made.run(X, "cpu")
    assert made.is_throttled(Device.CPU)
    assert lab.machine.of(Device.VULKAN)[0].runs == 0


def test_time_lost_on_others_is_not_held_against_a_device(lab: Lab) -> None:
    lab.machine.broken[Device.VULKAN] = RuntimeError("down")
    lab.takes[Device.VULKAN] = 5.0
    made = lab.router()
    for _ in range(20):
        made.run(X, "cpu")
    for _ in range(20):
        assert made.run_chain(X, ["vulkan", "cpu"])[0] is Device.CPU
    assert not made.is_throttled(Device.CPU)


def test_unknown_names_are_refused(lab: Lab) -> None:
    made = lab.router()
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
