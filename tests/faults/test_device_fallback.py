"""Devices that disappear, refuse, fail or time out: the next one is tried, every
attempt is recorded, and `strict` tries no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, GraphDevices
from rlxweb.core.device import Device
from rlxweb.core.errors import (
    DeviceFallbackError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    ShaderRejected,
    Unsupported,
)
from rlxweb.select.device_loss_retry import DEVICE_LOST
from rlxweb.select.fallback import run_with_fallback
from tests.unit.runtime.fake_machine import FakeMachine, add_graph
from tests.unit.runtime.fake_machine import three_devices as three_devices

X = {"x": np.array([1, 2], np.float32)}
VULKAN_AND_CPU = (Device.VULKAN, Device.CPU)
RUN_ERRORS = [
    DeviceLost("run", "the device went away"),
    GpuTimeout("run", "no answer in 30 s"),
    OutOfMemory("run", "no memory left"),
    RuntimeError("a driver's own words"),
    MemoryError(),
]
COMPILE_ERRORS = [
    ShaderRejected("pipeline", "line 3: error"),
    OutOfMemory("buffer", "no memory left"),
    DeviceLost("compile", "the device went away"),
    ValueError("a driver's own words"),
]


@pytest.fixture
def machine(three_devices: FakeMachine) -> FakeMachine:
    three_devices.install_only(*VULKAN_AND_CPU)
    return three_devices


def make_runner() -> GraphDevices:
    runner = GraphDevices(add_graph())
    runner.set_param("w", np.zeros(2, np.float32))
    return runner


@pytest.mark.parametrize("error", RUN_ERRORS, ids=lambda e: type(e).__name__)
def test_failed_run_falls_back(machine: FakeMachine, error: Exception) -> None:
    machine.run_errors[Device.VULKAN] = error
    runner = make_runner()
    device, (got,) = runner.run_try(["vulkan", "cpu"], X)
    assert device is runner.last_device is Device.CPU
    np.testing.assert_array_equal(got, X["x"])
    first, *retries, second = runner.attempts
    assert [str(a) for a in retries] == [str(first)] * isinstance(error, DEVICE_LOST)
    assert first.device is Device.VULKAN
    assert first.error == (str(error) or type(error).__name__)
    assert first.cause is error
    assert second.error == ""
    assert f"vulkan: {first.error}" in runner.explain()


@pytest.mark.parametrize("error", COMPILE_ERRORS, ids=lambda e: type(e).__name__)
def test_failed_compile_falls_back(machine: FakeMachine, error: Exception) -> None:
    machine.prepare_errors[Device.VULKAN] = error
    runner = make_runner()
    assert runner.run_try(["vulkan", "cpu"], X)[0] is Device.CPU
    assert str(error) in runner.attempts[0].error


@pytest.mark.parametrize("error", RUN_ERRORS, ids=lambda e: type(e).__name__)
def test_strict_tries_no_other_device(machine: FakeMachine, error: Exception) -> None:
    machine.run_errors[Device.VULKAN] = error
    runner = make_runner()
    with pytest.raises(DeviceFallbackError, match="all backends failed:") as caught:
        runner.run_try(["vulkan", "cpu"], X, strict=True)
    assert [d for d, _ in caught.value.attempts] == [Device.VULKAN]
    assert machine.programs_on(Device.CPU) == []
    assert len(runner.attempts) == 1
    with pytest.raises(DeviceFallbackError):
        runner.run_chain("vulkan", X, strict=True)


def test_error_lists_every_attempt_when_all_fail(machine: FakeMachine) -> None:
    machine.run_errors[Device.VULKAN] = DeviceLost("run", "it went away")
    machine.prepare_errors[Device.CPU] = Unsupported("compile", "an op is missing")
    runner = make_runner()
    with pytest.raises(DeviceFallbackError) as caught:
        runner.run_try(["cuda", "vulkan", "cpu"], X)
    lines = str(caught.value).splitlines()
    assert lines[-3:] == [
        "  vulkan: run: it went away",
        "  vulkan: run: it went away",
        "  cpu: compile: an op is missing",
    ]
    tried = [a.device.label for a in runner.attempts]
    assert tried == ["cuda", "vulkan", "vulkan", "cpu"]


def test_lost_device_is_reopened_for_the_next_run(machine: FakeMachine) -> None:
    """A lost device is reopened for the next run; others keep their programs."""
    machine.run_errors[Device.VULKAN] = DeviceLost("run", "it went away")
    runner = make_runner()
    runner.run_try(["vulkan", "cpu"], X)
    assert machine.programs_on(Device.VULKAN)[0].closed
    machine.run_errors.clear()
    assert runner.run_try(["vulkan", "cpu"], X)[0] is Device.VULKAN
    assert len(machine.programs_on(Device.VULKAN)) == 3
    assert len(machine.programs_on(Device.CPU)) == 1


def test_ctrl_c_is_not_a_failure(machine: FakeMachine) -> None:
    machine.run_errors[Device.VULKAN] = KeyboardInterrupt()
    runner = make_runner()
    with pytest.raises(KeyboardInterrupt):
        runner.run_try(["vulkan", "cpu"], X)
    assert machine.programs_on(Device.CPU) == []


def test_run_chain_without_devices_falls_back(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain without a list continues with the devices after the resolved one."""
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    machine.run_errors[Device.VULKAN] = GpuTimeout("run", "no answer")
    runner = make_runner()
    assert runner.run_chain(X)[0] is Device.CPU
    tried = [a.device for a in runner.attempts]
    assert tried == [Device.VULKAN, Device.VULKAN, Device.CPU]


@pytest.mark.parametrize(
    "run",
    [
        lambda runner, **options: runner.run("vulkan", X, **options),
        lambda runner, **options: runner.run_resolved("vulkan", X, **options),
        lambda runner, **options: runner.run_resolved_with_inputs(
            "vulkan", X, **options
        ),
        lambda runner, **options: runner.run_try(["vulkan"], X, **options)[1],
        lambda runner, **options: runner.run_chain("vulkan", X, **options)[1],
    ],
)
def test_requested_device_is_reopened(
    machine: FakeMachine, run: Callable[..., list[Any]]
) -> None:
    """A requested device is reopened with its params, unless the run is strict."""
    machine.next_run_errors[Device.VULKAN] = DeviceLost("run", "it went away")
    runner = make_runner()
    runner.set_param("w", np.ones(2, np.float32))
    (got,) = run(runner)
    np.testing.assert_array_equal(got, X["x"] + 1)
    assert [a.device for a in runner.attempts] == [Device.VULKAN] * 2
    assert [bool(a.error) for a in runner.attempts] == [True, False]
    machine.next_run_errors[Device.VULKAN] = DeviceLost("run", "it went away")
    with pytest.raises((DeviceLost, DeviceFallbackError), match="it went away"):
        run(runner, strict=True)


def test_requested_device_is_never_replaced(machine: FakeMachine) -> None:
    """A device lost twice raises both errors and is not replaced; a chain continues."""
    machine.run_errors[Device.VULKAN] = DeviceLost("run", "it went away")
    runner = make_runner()
    with pytest.raises(DeviceLost, match="retried on Vulkan: run: it went away"):
        runner.run("vulkan", X)
    assert machine.programs_on(Device.CPU) == []
    device, (got,) = runner.run_chain("vulkan", X)
    assert device is Device.CPU
    np.testing.assert_array_equal(got, X["x"])
    with pytest.raises(
        DeviceFallbackError,
        match=r"run_chain of .*\s+cuda: device CUDA is not available",
    ):
        runner.run_chain("cuda", X)


def test_policy_without_devices_raises() -> None:
    runner = GraphDevices(add_graph(), DevicePolicy.only([]))
    runner.set_param("w", np.zeros(2, np.float32))
    with pytest.raises(DeviceFallbackError, match=r"run_chain .*no device is allowed"):
        runner.run_chain(X)


def test_run_with_fallback_falls_back() -> None:
    """`run_with_fallback` continues with the CPU where CUDA is missing."""
    graph = Graph("exp")
    graph.set_outputs([graph.exp(graph.input("x", (2,)))])
    devices_tried = []
    device, result = run_with_fallback(
        graph, ["cuda", "cpu"], lambda d: devices_tried.append(d) or "done"
    )
    assert (device, result, devices_tried) == (Device.CPU, "done", [Device.CPU])
    with pytest.raises(DeviceFallbackError) as caught:
        run_with_fallback(graph, ["cpu"], lambda d: 1 / 0)
    assert caught.value.attempts[0][1] == "division by zero"
    assert caught.value.exit_code == 3
