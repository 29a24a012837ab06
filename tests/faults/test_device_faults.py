"""Devices that disappear, refuse, fail or come late: the next one goes on, every
attempt is told, and `strict` goes nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, GraphDevices
from rlxweb.choose.again import LOST
from rlxweb.choose.fallback import run_with_fallback
from rlxweb.device import Device
from rlxweb.errors import (
    DeviceFallbackError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    ShaderRejected,
    Unsupported,
)
from tests.unit.runtime.fake_machine import FakeMachine, adding
from tests.unit.runtime.fake_machine import three_devices as three_devices

X = {"x": np.array([1, 2], np.float32)}
TWO = (Device.VULKAN, Device.CPU)
IN_RUN = [
    DeviceLost("run", "the device went away"),
    GpuTimeout("run", "no answer in 30 s"),
    OutOfMemory("run", "no memory left"),
    RuntimeError("a driver's own words"),
    MemoryError(),
]
IN_COMPILE = [
    ShaderRejected("pipeline", "line 3: error"),
    OutOfMemory("buffer", "no memory left"),
    DeviceLost("compile", "the device went away"),
    ValueError("a driver's own words"),
]


@pytest.fixture
def machine(three_devices: FakeMachine) -> FakeMachine:
    three_devices.only(*TWO)
    return three_devices


def runner() -> GraphDevices:
    made = GraphDevices(adding())
    made.set_param("w", np.zeros(2, np.float32))
    return made


@pytest.mark.parametrize("error", IN_RUN, ids=lambda e: type(e).__name__)
def test_a_failed_run_goes_on(machine: FakeMachine, error: Exception) -> None:
    machine.broken[Device.VULKAN] = error
    made = runner()
    device, (got,) = made.run_try(["vulkan", "cpu"], X)
    assert device is made.last_device is Device.CPU
    np.testing.assert_array_equal(got, X["x"])
    first, *again, second = made.attempts
    assert [str(a) for a in again] == [str(first)] * isinstance(error, LOST)
    assert first.device is Device.VULKAN
    assert first.error == (str(error) or type(error).__name__)
    assert first.cause is error
    assert second.error == ""
    assert f"vulkan: {first.error}" in made.explain()


@pytest.mark.parametrize("error", IN_COMPILE, ids=lambda e: type(e).__name__)
def test_a_failed_compile_goes_on(machine: FakeMachine, error: Exception) -> None:
    machine.refuses[Device.VULKAN] = error
    made = runner()
    assert made.run_try(["vulkan", "cpu"], X)[0] is Device.CPU
    assert made.attempts[0].error.startswith(str(error))


@pytest.mark.parametrize("error", IN_RUN, ids=lambda e: type(e).__name__)
def test_strict_goes_nowhere_else(machine: FakeMachine, error: Exception) -> None:
    machine.broken[Device.VULKAN] = error
    made = runner()
    with pytest.raises(DeviceFallbackError, match="all backends failed:") as found:
        made.run_try(["vulkan", "cpu"], X, strict=True)
    assert [d for d, _ in found.value.attempts] == [Device.VULKAN]
    assert machine.of(Device.CPU) == []
    assert len(made.attempts) == 1
    with pytest.raises(DeviceFallbackError):
        made.run_chain("vulkan", X, strict=True)


def test_when_all_fail_every_attempt_is_told(machine: FakeMachine) -> None:
    machine.broken[Device.VULKAN] = DeviceLost("run", "it went away")
    machine.refuses[Device.CPU] = Unsupported("compile", "an op is missing")
    made = runner()
    with pytest.raises(DeviceFallbackError) as found:
        made.run_try(["cuda", "vulkan", "cpu"], X)
    said = str(found.value).splitlines()
    assert said[-3:] == [
        "  vulkan: run: it went away",
        "  vulkan: run: it went away",
        "  cpu: compile: an op is missing",
    ]
    tried = [a.device.label for a in made.attempts]
    assert tried == ["cuda", "vulkan", "vulkan", "cpu"]


def test_a_lost_device_is_opened_anew_next_time(machine: FakeMachine) -> None:
    """A lost device is opened anew for the next run; others keep their programs."""
    machine.broken[Device.VULKAN] = DeviceLost("run", "it went away")
    made = runner()
    made.run_try(["vulkan", "cpu"], X)
    assert machine.of(Device.VULKAN)[0].closed
    machine.broken.clear()
    assert made.run_try(["vulkan", "cpu"], X)[0] is Device.VULKAN
    assert len(machine.of(Device.VULKAN)) == 3
    assert len(machine.of(Device.CPU)) == 1


def test_ctrl_c_is_not_a_failure(machine: FakeMachine) -> None:
    machine.broken[Device.VULKAN] = KeyboardInterrupt()
    made = runner()
    with pytest.raises(KeyboardInterrupt):
        made.run_try(["vulkan", "cpu"], X)
    assert machine.of(Device.CPU) == []


def test_run_chain_goes_on_by_itself(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain without a list goes on with the devices after the resolved one."""
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    machine.broken[Device.VULKAN] = GpuTimeout("run", "no answer")
    made = runner()
    assert made.run_chain(X)[0] is Device.CPU
    tried = [a.device for a in made.attempts]
    assert tried == [Device.VULKAN, Device.VULKAN, Device.CPU]


@pytest.mark.parametrize(
    "run",
    [
        lambda made, **how: made.run("vulkan", X, **how),
        lambda made, **how: made.run_resolved("vulkan", X, **how),
        lambda made, **how: made.run_resolved_with_inputs("vulkan", X, **how),
        lambda made, **how: made.run_try(["vulkan"], X, **how)[1],
        lambda made, **how: made.run_chain("vulkan", X, **how)[1],
    ],
)
def test_a_device_asked_for_is_opened_anew(
    machine: FakeMachine, run: Callable[..., list[Any]]
) -> None:
    """A device asked for is opened anew with its params, unless the run is strict."""
    machine.once[Device.VULKAN] = DeviceLost("run", "it went away")
    made = runner()
    made.set_param("w", np.ones(2, np.float32))
    (got,) = run(made)
    np.testing.assert_array_equal(got, X["x"] + 1)
    assert [a.device for a in made.attempts] == [Device.VULKAN] * 2
    assert [bool(a.error) for a in made.attempts] == [True, False]
    machine.once[Device.VULKAN] = DeviceLost("run", "it went away")
    with pytest.raises((DeviceLost, DeviceFallbackError), match="it went away"):
        run(made, strict=True)


def test_a_device_asked_for_is_never_swapped(machine: FakeMachine) -> None:
    """A device lost twice raises both errors and is not swapped; a chain goes on."""
    machine.broken[Device.VULKAN] = DeviceLost("run", "it went away")
    made = runner()
    with pytest.raises(DeviceLost, match="tried again on Vulkan: run: it went away"):
        made.run("vulkan", X)
    assert machine.of(Device.CPU) == []
    device, (got,) = made.run_chain("vulkan", X)
    assert device is Device.CPU
    np.testing.assert_array_equal(got, X["x"])
    with pytest.raises(
        DeviceFallbackError,
        match=r"run_chain of .*\s+cuda: device CUDA is not available",
    ):
        made.run_chain("cuda", X)


def test_a_policy_without_devices_is_an_attempt() -> None:
    made = GraphDevices(adding(), DevicePolicy.only([]))
    made.set_param("w", np.zeros(2, np.float32))
    with pytest.raises(DeviceFallbackError, match=r"run_chain .*no device is allowed"):
        made.run_chain(X)


def test_the_bare_function_falls_back_too() -> None:
    """`run_with_fallback` goes on to the CPU where CUDA is not here."""
    graph = Graph("exp")
    graph.set_outputs([graph.exp(graph.input("x", (2,)))])
    seen = []
    device, result = run_with_fallback(
        graph, ["cuda", "cpu"], lambda d: seen.append(d) or "done"
    )
    assert (device, result, seen) == (Device.CPU, "done", [Device.CPU])
    with pytest.raises(DeviceFallbackError) as found:
        run_with_fallback(graph, ["cpu"], lambda d: 1 / 0)
    assert found.value.attempts[0][1] == "division by zero"
    assert found.value.exit_code == 3
