"""GraphDevices shared by callers and threads, and used after close."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rlxweb import DevicePolicy, Graph, GraphDevices
from rlxweb.core.device import Device
from rlxweb.core.errors import EnvironmentWarning, SessionClosed
from rlxweb.select.resolve import pick_device
from tests.run_in_threads import run_concurrently
from tests.unit.runtime.fake_machine import (
    FakeMachine,
    X,
    add_graph,
    make_graph_devices,
)
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices
from tests.unit.signal.fake_gpu import FakeGpu


def test_graph_changes_by_caller_have_no_effect(machine: FakeMachine) -> None:
    """GraphDevices copies its graph: changes to the given or the returned graph have no
    effect.
    """
    graph = Graph("moved")
    x = graph.input("x", (2,))
    graph.set_outputs([x * 2.0])
    graph_devices = GraphDevices(graph, DevicePolicy.only(["cpu"]))
    compiled_graph = graph_devices.compile("cpu")
    graph.set_outputs([x * 5.0])
    returned_graph = graph_devices.graph
    returned_graph.set_outputs([returned_graph.input("y", (3,))])
    np.testing.assert_array_equal(graph_devices.run("cpu", X)[0], X["x"] * 2)
    graph_devices.invalidate_cache()
    np.testing.assert_array_equal(graph_devices.run("cpu", X)[0], X["x"] * 2)
    assert compiled_graph is not graph_devices.compile("cpu")


def test_closed_graph_devices_raise(machine: FakeMachine) -> None:
    """Closed GraphDevices refuse every call."""
    graph_devices = make_graph_devices()
    graph_devices.run("cpu", X)
    graph_devices.close()
    for use in (
        lambda: graph_devices.run("cpu", X),
        lambda: graph_devices.run_chain(X),
        lambda: graph_devices.run_chain("vulkan", X),
        lambda: graph_devices.run_try(["cpu"], X),
        lambda: graph_devices.run_resolved("cpu", X),
        lambda: graph_devices.compile("cpu"),
        lambda: graph_devices.warm_all(),
        lambda: graph_devices.benchmark(X),
        lambda: graph_devices.set_param("w", np.zeros(2, np.float32)),
    ):
        with pytest.raises(
            SessionClosed, match="the devices of this graph were closed"
        ):
            use()
    graph_devices.close()
    assert all(program.closed for _, program in machine.prepared_programs)


def test_threads_share_one_compilation(machine: FakeMachine) -> None:
    """Threads share one compilation per device."""
    graph_devices = make_graph_devices()

    def work(k: int) -> None:
        for seed in range(20):
            (got,) = graph_devices.run(
                "vulkan", {"x": np.full(2, k * seed, np.float32)}
            )
            np.testing.assert_array_equal(got, [k * seed + 3, k * seed + 4])

    run_concurrently([partial(work, k) for k in range(6)])
    assert len(machine.programs_on(Device.VULKAN)) == 1


def test_only_viable_devices_are_resolved(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only viable devices are resolved, whatever the environment names."""
    graph = add_graph()
    choice = pick_device(graph, viable=(Device.TPU, Device.MLX))
    assert choice.device is Device.TPU
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=cpu"):
        choice_with_environment = pick_device(graph, viable=(Device.TPU, Device.MLX))
    assert choice_with_environment.device is Device.TPU
