"""Where data lies is where it is computed: open sessions, GraphDevices, their words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb import GraphDevices, Session
from rlxweb.errors import InputError, UnknownName
from tests.unit.runtime.test_device_array import X, average
from tests.unit.runtime.test_device_array import compiled as compiled
from tests.unit.runtime.test_device_array import device as device


@pytest.mark.requires_wgpu
def test_an_open_run_goes_where_its_data_lies() -> None:
    """An open run goes where its data lies and says so; another device is refused."""
    runner = GraphDevices(average(), rlx.DevicePolicy.only(["cpu", "vulkan"]))
    mean = np.zeros((4, 3), np.float32)
    runner.set_param("mean", mean)
    x = rlx.put(X, "vulkan")
    for run in (runner.run_resolved, runner.run_fastest, runner.run_chain):
        found: Any = run({"x": x}, keep=True)
        found = found[1] if isinstance(found, tuple) else found
        np.testing.assert_array_equal(found[0].numpy(), X * 0.25)
        assert runner.last_device is rlx.Device.VULKAN
        assert "(vulkan): input 'x' lies there" in runner.explain()
    with pytest.raises(InputError, match="lies on device 'vulkan'"):
        runner.run("cpu", {"x": x})
    device, _ = runner.run_try(["cpu", "vulkan"], {"x": x})
    assert device is rlx.Device.VULKAN
    router = rlx.DeviceRouter(average(), rlx.DevicePolicy.only(["cpu", "vulkan"]))
    router.set_param("mean", mean)
    where, (found, _) = router.run({"x": x}, keep=True)
    assert (where, found.device) == (rlx.Device.VULKAN,) * 2


@pytest.mark.requires_wgpu
def test_an_open_session_compiles_where_the_data_lies() -> None:
    """An open session tells the data's place; an unknown input is named."""
    session, x = Session(), rlx.put(X, "vulkan")
    compiled = session.compile(average(), {"x": x})
    assert compiled.device is rlx.Device.VULKAN
    assert "(vulkan): input 'x' lies there" in compiled.explain()
    compiled.set_param("mean", np.zeros((4, 3), np.float32))
    np.testing.assert_array_equal(compiled.run({"x": x})[0], X * 0.25)
    assert session.compile(average(), {"x": X}).device is rlx.Device.CPU
    with pytest.raises(UnknownName, match="compile 'average': the graph has no input"):
        session.compile(average(), {"y": x})
    with pytest.raises(InputError, match="in a dict"):
        session.compile(average(), [x])  # type: ignore[arg-type]


def test_explain_says_what_stays(compiled: Any) -> None:
    """Params on the device, and what the last run took and left there."""
    assert "lie" not in compiled.explain()
    compiled.run({"x": compiled.put(X)}, keep=(1,))
    said = "last run: inputs that lay there: 'x'; outputs that stayed: 1"
    assert said in compiled.explain()
    (mean, _) = compiled.run({"x": X}, keep=True)
    assert (
        "inputs that lay there: none; outputs that stayed: 0, 1" in compiled.explain()
    )
    compiled.set_param("mean", mean)
    assert "params that lie on the device alone: 'mean'" in compiled.explain()
    compiled.set_param("mean", X)
    assert "params" not in compiled.explain().split("plan of")[0]


@pytest.mark.requires_wgpu
def test_a_param_that_lies_on_one_device_is_no_others() -> None:
    """Devices compiled already refuse it, and so does compiling for another later."""
    both = rlx.DevicePolicy.only(["cpu", "vulkan"])
    runner = GraphDevices(average(), both)
    runner.set_param("mean", rlx.put(X, "vulkan"))
    np.testing.assert_array_equal(runner.run_resolved({"x": X})[0], X)
    assert runner.last_device is rlx.Device.VULKAN
    assert "param 'mean' lies there" in runner.explain()
    with pytest.raises(InputError, match="param 'mean': the array lies on"):
        runner.run("cpu", {"x": X})
    runner.set_param("mean", X)
    runner.run("cpu", {"x": X})
    with pytest.raises(InputError, match="compiled for 'cpu' too"):
        runner.set_param("mean", rlx.put(X, "vulkan"))
    np.testing.assert_array_equal(runner.run("vulkan", {"x": X})[0], X)
