"""GraphDevices shared: by callers that keep their graph, by threads, after its end."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, GraphDevices
from rlxweb.choose.resolve import decide_device
from rlxweb.device import Device
from rlxweb.errors import EnvironmentWarning, SessionClosed
from tests.threads import at_once
from tests.unit.runtime.fake_machine import FakeMachine, X, adding, runner
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices
from tests.unit.signal.pretend_gpu import PretendGpu


def test_what_a_caller_does_to_a_graph_changes_no_answer(machine: FakeMachine) -> None:
    """A runner keeps graphs of its own: neither one handed in nor one handed out."""
    graph = Graph("moved")
    x = graph.input("x", (2,))
    graph.set_outputs([x * 2.0])
    made = GraphDevices(graph, DevicePolicy.only(["cpu"]))
    one = made.compile("cpu")
    graph.set_outputs([x * 5.0])
    handed_out = made.graph
    handed_out.set_outputs([handed_out.input("y", (3,))])
    np.testing.assert_array_equal(made.run("cpu", X)[0], X["x"] * 2)
    made.invalidate_cache()
    np.testing.assert_array_equal(made.run("cpu", X)[0], X["x"] * 2)
    assert one is not made.compile("cpu")


def test_closed_devices_say_so(machine: FakeMachine) -> None:
    """Closed devices refuse whatever they are asked to do with a graph."""
    made = runner()
    made.run("cpu", X)
    made.close()
    for use in (
        lambda: made.run("cpu", X),
        lambda: made.run_chain(X),
        lambda: made.run_chain("vulkan", X),
        lambda: made.run_try(["cpu"], X),
        lambda: made.run_resolved("cpu", X),
        lambda: made.compile("cpu"),
        lambda: made.warm_all(),
        lambda: made.benchmark(X),
        lambda: made.set_param("w", np.zeros(2, np.float32)),
    ):
        with pytest.raises(SessionClosed, match="these devices were closed"):
            use()
    made.close()
    assert all(one.closed for _, one in machine.prepared)


def test_threads_share_one_compilation(machine: FakeMachine) -> None:
    """Threads share one compilation per device, and none is lost."""
    made = runner()

    def work(k: int) -> None:
        for seed in range(20):
            (got,) = made.run("vulkan", {"x": np.full(2, k * seed, np.float32)})
            np.testing.assert_array_equal(got, [k * seed + 3, k * seed + 4])

    at_once([partial(work, k) for k in range(6)])
    assert len(machine.of(Device.VULKAN)) == 1


def test_only_viable_devices_are_resolved(
    gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only viable devices are resolved, whatever the environment names."""
    graph = adding()
    only = decide_device(graph, viable=(Device.TPU, Device.MLX))
    assert only.device is Device.TPU
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=cpu"):
        again = decide_device(graph, viable=(Device.TPU, Device.MLX))
    assert again.device is Device.TPU
