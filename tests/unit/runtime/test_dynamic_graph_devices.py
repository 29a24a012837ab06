"""Dynamic graphs on every device that runs them, and RLX's costs of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, DeviceRouter, FlexibleSession, Graph, GraphDevices
from rlxweb.core.device import Device
from rlxweb.core.errors import DTypeError, InputError, ShapeError
from rlxweb.cost import (
    CpuCostModel,
    GraphIoOptions,
    MetalCostModel,
    WgpuCostModel,
    estimate_graph_cost,
    estimate_graph_cost_with_io,
    fastest_device_for,
    pick_best_device,
    profile_graph_io,
    profile_graph_io_outputs,
)
from rlxweb.cost.work_kinds import assumed_cpu
from rlxweb.devices import benchmark_devices, device_report

W = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
CPU_ONLY = DevicePolicy.only(["cpu"])


def layer_graph() -> Graph:
    """Build softmax(x @ w) with a dynamic number of rows."""
    graph = Graph("layer")
    x, w = graph.input("x", ("N", 16)), graph.param("w", (16, 4))
    graph.set_outputs([graph.softmax(x @ w, -1)])
    return graph


def random_inputs(n: int) -> dict[str, Any]:
    """Return random inputs with n rows."""
    return {"x": np.random.default_rng(n).normal(size=(n, 16)).astype(np.float32)}


def reference_output(inputs: dict[str, Any]) -> Any:
    """Return the softmax by its definition, in float64."""
    powers = np.exp(inputs["x"].astype(np.float64) @ W.astype(np.float64))
    return powers / powers.sum(-1, keepdims=True)


@pytest.fixture
def runner() -> GraphDevices:
    runner = GraphDevices(layer_graph(), CPU_ONLY)
    runner.set_param("w", W)
    return runner


RUN_CALLS: dict[str, Callable[[GraphDevices, Any], Any]] = {
    "run": lambda r, x: r.run("cpu", x),
    "run_resolved": lambda r, x: r.run_resolved(x),
    "run_fastest": lambda r, x: r.run_fastest(x),
    "run_resolved_with_inputs": lambda r, x: r.run_resolved_with_inputs(x),
    "run_try": lambda r, x: r.run_try(["cpu"], x)[1],
    "run_chain": lambda r, x: r.run_chain(x)[1],
    "map": lambda r, x: r.map([x, x])[1],
    "compile": lambda r, x: r.compile("cpu").run(x),
    "compile_fastest": lambda r, x: r.compile_fastest().run(x),
}


@pytest.mark.parametrize("name", RUN_CALLS)
def test_every_run_method_accepts_every_size(runner: GraphDevices, name: str) -> None:
    for n in (1, 7, 300, 7):
        inputs = random_inputs(n)
        (got,) = RUN_CALLS[name](runner, inputs)
        np.testing.assert_allclose(got, reference_output(inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.requires_wgpu
def test_devices_agree_and_are_timed() -> None:
    runner = GraphDevices(layer_graph(), DevicePolicy.only(["vulkan", "cpu"]))
    runner.set_param("w", W)
    assert runner.devices == (Device.VULKAN, Device.CPU)
    for n in (3, 200):
        for device in runner.devices:
            (got,) = runner.run(device, random_inputs(n))
            np.testing.assert_allclose(
                got, reference_output(random_inputs(n)), rtol=1e-4, atol=1e-5
            )
    assert [row.error for row in runner.benchmark(random_inputs(9), 1)] == ["", ""]


def test_routers_and_sessions_accept_dynamic_graphs() -> None:
    inputs = random_inputs(5)
    router = DeviceRouter(layer_graph(), CPU_ONLY)
    router.set_param("w", W)
    np.testing.assert_allclose(
        router.run(inputs)[1][0], reference_output(inputs), rtol=1e-5
    )
    compiled = FlexibleSession(CPU_ONLY).compile_resolved(layer_graph())
    compiled.set_param("w", W)
    np.testing.assert_allclose(
        compiled.run(inputs)[0], reference_output(inputs), rtol=1e-5
    )
    picked = GraphDevices(layer_graph(), CPU_ONLY.with_benchmark_pick(1))
    picked.set_param("w", W)
    np.testing.assert_allclose(
        picked.run_resolved_with_inputs(inputs)[0], reference_output(inputs), rtol=1e-5
    )
    (row,) = benchmark_devices(layer_graph(), inputs, 1, CPU_ONLY, params={"w": W})
    assert row.error == ""


def test_the_device_is_chosen_for_the_sizes_of_the_run(runner: GraphDevices) -> None:
    """Predicted times are those of the bound graph."""
    few, many = random_inputs(2), random_inputs(20000)
    costs = []
    for inputs in (few, many):
        runner.run_fastest(inputs)
        (candidate,) = runner.decision.candidates if runner.decision else ()
        costs.append(candidate.predicted_ns)
    assert costs[1] > 3 * costs[0]


def test_inputs_are_validated_as_in_a_session(runner: GraphDevices) -> None:
    graph = layer_graph()
    y = graph.input("y", ("N",))
    graph.set_outputs([y * 2])
    two_input_devices = GraphDevices(graph, CPU_ONLY)
    two_input_devices.set_param("w", W)
    for call in RUN_CALLS.values():
        with pytest.raises(InputError, match="input 'x' was not given"):
            call(runner, {})
        with pytest.raises(DTypeError, match="the array has dtype float64"):
            call(runner, {"x": np.ones((2, 16))})
        with pytest.raises(ShapeError, match=r"declares shape \[N, 16\]"):
            call(runner, {"x": np.ones(16, np.float32)})
        with pytest.raises(ShapeError, match="is 3; input 'x' sets 'N' to 2"):
            call(
                two_input_devices,
                {"x": random_inputs(2)["x"], "y": np.ones(3, np.float32)},
            )


def test_report_and_fastest_device_accept_dynamic_graphs() -> None:
    (row,) = (r for r in device_report(layer_graph()) if r.device is Device.CPU)
    assert row.supports_graph
    for mode in ("seed", "calibrated"):
        assert fastest_device_for(layer_graph(), CPU_ONLY, cost_mode=mode) is Device.CPU


# RLX counts an unknown size as 0: of the layer only the param's 256 bytes are known.
KNOWN_SIZE_PROFILE = {
    "kernel_launches": 2,
    "sync_points": 0,
    "host_output_bytes": 0,
    "device_traffic_bytes": 256,
}


def test_unknown_sizes_count_as_zero_in_a_profile() -> None:
    profile = profile_graph_io(layer_graph())
    assert json.loads(json.dumps(profile.as_json())) == KNOWN_SIZE_PROFILE
    assert profile.host_readback_bytes(unified_memory=False) == 64
    assert json.loads(
        json.dumps(profile_graph_io_outputs(layer_graph(), [0]).as_json())
    ) == (KNOWN_SIZE_PROFILE)
    spectra = Graph("spectra")
    spectra.set_outputs([spectra.fft(spectra.input("x", ("N", 64)))])
    hosted = profile_graph_io(spectra, GraphIoOptions(fft_host_sync=True))
    assert (hosted.sync_points, hosted.device_traffic_bytes) == (1, 0)


def test_ops_are_counted_like_in_the_bound_graph() -> None:
    """Ops are counted as in the bound graph, whichever builder method added them."""
    graph = Graph("built")
    x = graph.input("x", ("N", 64))
    spectrum = graph.apply("fft", graph.concat([x, x - x], axis=1))
    peaks = graph.welch_peaks(spectrum, 4, 1)
    enlarged = graph.interpolate(graph.input("i", (1, 1, 2, 2)), 4)
    graph.set_outputs([spectrum, peaks, enlarged])
    by_id = profile_graph_io_outputs(graph, node_ids=[enlarged, spectrum])
    assert by_id.host_output_bytes == 64
    for options in (None, GraphIoOptions(fft_host_sync=True)):
        profile = profile_graph_io(graph, options)
        bound_profile = profile_graph_io(graph.bind(N=8), options)
        assert profile.kernel_launches == bound_profile.kernel_launches
        assert profile.sync_points == bound_profile.sync_points
        assert profile.host_output_bytes == 64
    runner = GraphDevices(graph, CPU_ONLY)
    inputs = {"x": np.ones((3, 64), np.float32), "i": np.ones((1, 1, 2, 2), np.float32)}
    assert [y.shape for y in runner.run("cpu", inputs)] == [
        (3, 128),
        (3, 8),
        (1, 1, 4, 4),
    ]
    cpu = CpuCostModel.seed()
    launches = profile_graph_io(graph).kernel_launches
    # The images alone are known: two steps, of 2 x 4 and 4 x 4 numbers.
    assert estimate_graph_cost(graph, cpu) >= 3000 + 300 * launches


def test_unknown_sizes_cost_only_launches() -> None:
    """Graphs of unknown sizes cost two dispatches and a round trip, by the constants of
    semantics B.4.
    """
    for model, dispatch, round_trip in (
        (CpuCostModel.seed(), 300, 3000),
        (WgpuCostModel.seed(), 5000, 80000),
    ):
        assert estimate_graph_cost(layer_graph(), model) == round_trip + 2 * dispatch
    cpu = CpuCostModel.seed()
    with_io = estimate_graph_cost_with_io(
        layer_graph(), cpu, profile_graph_io(layer_graph())
    )
    assert with_io == 3600 + 256 / 30 + 64 / 30
    assert pick_best_device(layer_graph(), [MetalCostModel.seed(), cpu]) is Device.CPU
    attention = Graph("attention")
    q = attention.input("q", (2, "N", 2, 8))
    attention.set_outputs([attention.attention(q, q, q, num_heads=2, head_dim=8)])
    assert estimate_graph_cost(attention, cpu) == 3300
    measured = CpuCostModel.from_record(assumed_cpu(), Device.CPU)
    assert 0 < estimate_graph_cost(layer_graph(), measured) < 1e6
