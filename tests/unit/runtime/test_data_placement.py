"""Data placement: runs go to the device that holds the data, and explanations say
so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb import GraphDevices, Session
from rlxweb.core.errors import InputError, UnknownName
from tests.unit.runtime.test_device_array import X, average_graph
from tests.unit.runtime.test_device_array import compiled as compiled
from tests.unit.runtime.test_device_array import device as device


@pytest.mark.requires_wgpu
def test_open_run_uses_the_device_of_its_data() -> None:
    """A run without a device uses the device of its data and says so; another device is
    refused.
    """
    runner = GraphDevices(average_graph(), rlx.DevicePolicy.only(["cpu", "vulkan"]))
    mean = np.zeros((4, 3), np.float32)
    runner.set_param("mean", mean)
    x = rlx.put(X, "vulkan")
    for run in (runner.run_resolved, runner.run_fastest, runner.run_chain):
        outputs: Any = run({"x": x}, keep=True)
        outputs = outputs[1] if isinstance(outputs, tuple) else outputs
        np.testing.assert_array_equal(outputs[0].numpy(), X * 0.25)
        assert runner.last_device is rlx.Device.VULKAN
        assert "(vulkan): input 'x' is already on this device" in runner.explain()
    with pytest.raises(InputError, match="is on device 'vulkan'"):
        runner.run("cpu", {"x": x})
    device, _ = runner.run_try(["cpu", "vulkan"], {"x": x})
    assert device is rlx.Device.VULKAN
    router = rlx.DeviceRouter(average_graph(), rlx.DevicePolicy.only(["cpu", "vulkan"]))
    router.set_param("mean", mean)
    router_device, (outputs, _) = router.run({"x": x}, keep=True)
    assert (router_device, outputs.device) == (rlx.Device.VULKAN,) * 2


@pytest.mark.requires_wgpu
def test_open_session_compiles_on_the_device_of_its_data() -> None:
    """A session without a device explains the placement by its data; an unknown input
    is named.
    """
    session, x = Session(), rlx.put(X, "vulkan")
    compiled = session.compile(average_graph(), {"x": x})
    assert compiled.device is rlx.Device.VULKAN
    assert "(vulkan): input 'x' is already on this device" in compiled.explain()
    compiled.set_param("mean", np.zeros((4, 3), np.float32))
    np.testing.assert_array_equal(compiled.run({"x": x})[0], X * 0.25)
    assert session.compile(average_graph(), {"x": X}).device is rlx.Device.CPU
    with pytest.raises(UnknownName, match="compile 'average': the graph has no input"):
        session.compile(average_graph(), {"y": x})
    with pytest.raises(InputError, match="must be a dict"):
        session.compile(average_graph(), [x])  # type: ignore[arg-type]


def test_explain_lists_device_data(compiled: Any) -> None:
    """The explanation lists params on the device and the last run's device inputs and
    outputs.
    """
    assert "lie" not in compiled.explain()
    compiled.run({"x": compiled.put(X)}, keep=(1,))
    message = (
        "inputs already on the device in the last run: 'x'; outputs kept on the "
        "device, by position: 1"
    )
    assert message in compiled.explain()
    (mean, _) = compiled.run({"x": X}, keep=True)
    assert (
        "inputs already on the device in the last run: none; outputs kept on the "
        "device, by position: 0, 1" in compiled.explain()
    )
    compiled.set_param("mean", mean)
    assert "params stored only on the device: 'mean'" in compiled.explain()
    compiled.set_param("mean", X)
    assert "params" not in compiled.explain().split("plan of")[0]


@pytest.mark.requires_wgpu
def test_device_param_excludes_other_devices() -> None:
    """A param on one device is refused for other devices, compiled before or later."""
    policy = rlx.DevicePolicy.only(["cpu", "vulkan"])
    runner = GraphDevices(average_graph(), policy)
    runner.set_param("mean", rlx.put(X, "vulkan"))
    np.testing.assert_array_equal(runner.run_resolved({"x": X})[0], X)
    assert runner.last_device is rlx.Device.VULKAN
    assert "param 'mean' is already on this device" in runner.explain()
    with pytest.raises(InputError, match="param 'mean': the array is on"):
        runner.run("cpu", {"x": X})
    runner.set_param("mean", X)
    runner.run("cpu", {"x": X})
    with pytest.raises(InputError, match="also compiled for 'cpu'"):
        runner.set_param("mean", rlx.put(X, "vulkan"))
    np.testing.assert_array_equal(runner.run("vulkan", {"x": X})[0], X)
