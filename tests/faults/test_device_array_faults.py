"""Devices lost while arrays are on them: the error names what is lost, the rest
continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import DeviceLost, GpuTimeout, InputError, OutOfMemory
from rlxweb.engines.pool import pool
from rlxweb.gpu.coroutine_runner import run_blocking
from tests.fake_gpu_port import (
    FAILING_VERBS,
    FAILURE_KINDS,
    FailureKind,
    InjectedFailure,
)
from tests.faults.test_session_faults import FakeVulkan, make_layer, set_ones
from tests.faults.test_session_faults import fake_vulkan as fake_vulkan
from tests.gpu_ports import ERROR_TYPES

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def workload() -> str:
    """Put, compile, run with device inputs and outputs, set a param from the device,
    read back.
    """
    session = rlx.Session("vulkan")
    report = ""
    with rlx.put(X, "vulkan") as x:
        compiled = set_ones(session.compile(make_layer(3)))
        try:
            first, _ = compiled.run({"x": x}, keep=True)
            compiled.set_param("w", first)
            second, passed_through = compiled.run({"x": first}, keep=(0,))
            np.testing.assert_array_equal(second.numpy(), 3 * (X * 2 + 1))
            np.testing.assert_array_equal(passed_through, X * 2 + 1)
            report = " ".join(map(str, compiled.attempts))
        finally:
            compiled.close()
    session.close()
    return report


@pytest.mark.parametrize("kind", FAILURE_KINDS)
def test_every_failure_at_every_device_array_call(
    kind: FailureKind, fake_vulkan: Callable[..., FakeVulkan]
) -> None:
    """Every call may fail: the run is right or raises, and the next one is right.

    Nothing is left alive.
    """
    vulkan = fake_vulkan()
    workload()
    verbs = list(vulkan.ports[0].calls)
    for call_number, verb in enumerate(verbs, 1):
        if verb not in FAILING_VERBS[kind]:
            continue
        vulkan, report = fake_vulkan(InjectedFailure(call_number, kind)), ""
        try:
            report = workload()
        except ERROR_TYPES[kind] as error:
            report = str(error)
        assert report or kind == "lost-unseen", (
            f"{kind} at call {call_number} ({verb}) was silent"
        )
        if verb == "open":
            pool.close_all()
        workload()
        pool.close_all()
        assert all(not port.live_handles for port in vulkan.ports), (
            f"{kind} at call {call_number}"
        )


def compile_on_failing_device(
    fake_vulkan: Any, kind: FailureKind = "lost"
) -> tuple[Any, Any]:
    """Return a compiled layer and an array on a device whose next submission is its
    last.
    """
    vulkan = fake_vulkan()
    compiled = set_ones(rlx.Session("vulkan").compile(make_layer(3)))
    x = rlx.put(X, "vulkan")
    verb = "read" if kind == "timeout" else "submit"
    vulkan.ports[0]._pending.append(InjectedFailure(verb, kind))
    return compiled, x


@pytest.mark.parametrize(
    ("kind", "error"), [("lost", DeviceLost), ("timeout", GpuTimeout)]
)
def test_lost_input_is_named(
    kind: FailureKind, error: type[Exception], fake_vulkan: Callable[..., FakeVulkan]
) -> None:
    """The run is not retried; with the input put again it succeeds."""
    compiled, x = compile_on_failing_device(fake_vulkan, kind)
    expected = (
        "input 'x' existed only on the device, so the run cannot be repeated "
        "automatically; upload"
    )
    with pytest.raises(error, match=expected):
        compiled.run({"x": x})
    with pytest.raises(
        DeviceLost, match=r"was lost with its device, fake.*upload it again"
    ):
        x.numpy()
    assert "lost" in repr(x)
    with pytest.raises(DeviceLost, match="input 'x': the array was lost"):
        compiled.run({"x": x})
    new_x = rlx.put(X, "vulkan")
    y, _ = compiled.run({"x": new_x}, keep=True)
    np.testing.assert_array_equal(y.numpy(), X * 2 + 1)
    assert [a.error == "" for a in compiled.attempts] == [False, True]
    x.close()


def test_lost_run_from_host_is_retried_with_results_on_the_device(
    fake_vulkan: Callable[..., FakeVulkan],
) -> None:
    """A lost run from the host is retried; its results are on the new device."""
    compiled, _ = compile_on_failing_device(fake_vulkan)
    y, _ = compiled.run({"x": X}, keep=True)
    np.testing.assert_array_equal(y.numpy(), X * 2 + 1)
    assert [str(a) for a in compiled.attempts][1:] == ["vulkan: succeeded"]


def test_strict_run_is_not_retried(
    fake_vulkan: Callable[..., FakeVulkan],
) -> None:
    """A strict run is not retried, whether its results or its inputs are on the
    device.
    """
    compiled, _ = compile_on_failing_device(fake_vulkan)
    with pytest.raises(DeviceLost, match="asked to go"):
        compiled.run({"x": X}, keep=True, strict=True)
    with pytest.raises(DeviceLost):
        compiled.run({"x": rlx.put(X, "vulkan")}, strict=True)


def test_lost_param_is_named(fake_vulkan: Callable[..., FakeVulkan]) -> None:
    """The run that finds a param lost names it.

    Later runs ask for it, and it can be set again.
    """
    compiled, x = compile_on_failing_device(fake_vulkan)
    port = compiled._placement.prepared.engine.port
    port._pending.clear()
    compiled.set_param("w", x)
    port._pending.append(InjectedFailure("submit", "lost"))
    with pytest.raises(DeviceLost, match="param 'w' existed only on the device"):
        compiled.run({"x": X})
    for keep in (False, True):
        with pytest.raises(InputError, match="param 'w' has no value; 1 of 1"):
            compiled.run({"x": X}, keep=keep)
    compiled.set_param("w", rlx.put(X, "vulkan"))
    np.testing.assert_array_equal(compiled.run({"x": X})[0], X * 3)
    compiled.set_param("w", X)
    np.testing.assert_array_equal(compiled.run({"x": X})[0], X * 3)


def test_retry_after_another_threads_loss_asks_for_lost_params(
    fake_vulkan: Callable[..., FakeVulkan],
) -> None:
    """A param found lost by one thread is not replaced by zeros for the next."""
    compiled, x = compile_on_failing_device(fake_vulkan)
    compiled._placement.prepared.engine.port._pending.clear()
    compiled.set_param("w", x)
    compiled._placement.prepared.engine.port._pending.append(
        InjectedFailure("submit", "lost")
    )
    prepared = compiled._placement.prepared
    with pytest.raises(DeviceLost) as caught:
        compiled.run({"x": X})

    async def work(reprepared: Any) -> Any:
        raise AssertionError("it runs without the param")

    with pytest.raises(InputError, match="param 'w' has no value"):
        run_blocking(compiled._placement.retry_run(prepared, caught.value, work))


def test_put_without_memory_is_rejected(fake_vulkan: Callable[..., FakeVulkan]) -> None:
    """A `put` without memory is rejected, and the next one works."""
    vulkan = fake_vulkan()
    x = rlx.put(X, "vulkan")
    vulkan.ports[0]._pending.append(InjectedFailure("buffer", "out-of-memory"))
    with pytest.raises(OutOfMemory):
        rlx.put(X, "vulkan")
    np.testing.assert_array_equal(rlx.put(x, "vulkan").numpy(), X)


def test_graph_devices_name_a_lost_input(
    fake_vulkan: Callable[..., FakeVulkan],
) -> None:
    """An input that was lost with its device is named, and no other is tried.

    What the run needs lies on none.
    """
    vulkan = fake_vulkan()
    runner = rlx.GraphDevices(make_layer(3), rlx.DevicePolicy.only(["cpu", "vulkan"]))
    runner.set_param("w", np.ones((3, 4), np.float32))
    x = rlx.put(X, "vulkan")
    y, _ = runner.run_resolved({"x": x}, keep=True)
    assert (runner.last_device, y.device) == (rlx.Device.VULKAN,) * 2
    assert "input 'x' is already on this device" in runner.explain()
    vulkan.ports[-1]._pending.append(InjectedFailure("submit", "lost"))
    with pytest.raises(DeviceLost, match="input 'x' existed only on the device"):
        runner.run_resolved({"x": x})


@pytest.mark.parametrize("call", [rlx.welch, rlx.welch_peaks])
def test_lost_samples_are_named(
    call: Callable[..., Any], fake_vulkan: Callable[..., FakeVulkan]
) -> None:
    """Samples that were lost with their device are named, and no other method is
    tried.
    """
    vulkan = fake_vulkan()
    x = rlx.put(np.zeros((3, 256), np.float32), "vulkan")
    call(x)
    for verb in ("submit", "read"):
        vulkan.ports[-1]._pending.append(InjectedFailure(verb, "lost"))
        with pytest.raises(DeviceLost, match="x existed only on the device"):
            call(x)
        with pytest.raises(
            DeviceLost, match=r"^welch.*: the array was lost.*x existed only on"
        ):
            call(x)
        x = rlx.put(np.zeros((3, 256), np.float32), "vulkan")
