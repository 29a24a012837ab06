"""Profiled runs: their outputs and the time of each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.device import Device
from rlxweb.core.errors import (
    DeviceLost,
    InputError,
    RecordingError,
    SessionClosed,
    UsageError,
)
from rlxweb.cost.roofline import ProfileEntry
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import TIMESTAMP_FEATURE, AdapterRequest
from rlxweb.runtime.profile import Profile, profile_program
from rlxweb.select.device_and_adapter import CPU_PLACE
from tests.fake_gpu_port import InjectedFailure
from tests.gpu_ports import (
    compute_scaled,
    open_fake_port,
    open_native_port,
    scaled_graph,
    shader_source,
)
from tests.numpy_test_engine import NumpyTestEngine
from tests.run_in_threads import run_in_event_loop

X = np.linspace(-2, 2, 64 * 32, dtype=np.float32).reshape(64, 32)
W = np.linspace(-1, 1, 32 * 16, dtype=np.float32).reshape(32, 16)


def layer_graph() -> rlx.Graph:
    """Build a softmax of a GELU layer and a transpose of its input."""
    graph = rlx.Graph("layer")
    x, w = graph.input("x", X.shape), graph.param("w", W.shape)
    graph.set_outputs(
        [graph.softmax(graph.gelu(x @ w) + 1.0), graph.transpose(x, (1, 0))]
    )
    return graph


@pytest.fixture
def compiled() -> rlx.CompiledGraph:
    compiled_graph = rlx.Session("cpu").compile(layer_graph())
    compiled_graph.set_param("w", W)
    return compiled_graph


def test_profile_outputs_equal_run_outputs(compiled: rlx.CompiledGraph) -> None:
    """A profile's outputs equal those of `run` and belong to the caller."""
    profile = compiled.run({"x": X}, profile=True)
    for got, want in zip(profile.outputs, compiled.run({"x": X}), strict=True):
        np.testing.assert_array_equal(got, want)
        got[...] = 0
    assert profile.repeats == 1
    assert (profile.graph, profile.device) == ("layer", Device.CPU)


def test_steps_report_their_work(compiled: rlx.CompiledGraph) -> None:
    profile = compiled.profile({"x": X}, repeats=3)
    assert profile.how == "one step at a time"
    matmul_step = profile.steps[0]
    assert (matmul_step.label, matmul_step.kind) == ("matmul", "matmul")
    assert matmul_step.flops == 2 * 64 * 32 * 16
    assert matmul_step.nbytes == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert all(step.ns > 0 for step in profile.steps)
    assert not any(step.label == "transpose" for step in profile.steps)  # a view
    assert profile.upload.nbytes == X.nbytes
    assert profile.readback.nbytes == X.nbytes + 4 * 64 * 16
    assert profile.total_ns >= sum(step.ns for step in profile.steps)


def test_table_json_and_trace_agree(
    compiled: rlx.CompiledGraph, tmp_path: Path
) -> None:
    profile = compiled.profile({"x": X}, repeats=2)
    text = str(profile)
    assert "layer on NumPy" in text
    assert "medians of 2 runs" in text
    assert "roof: " in text
    record = json.loads(json.dumps(profile.as_json()))
    assert [s["label"] for s in record["steps"]] == [s.label for s in profile.steps]
    for step in record["steps"]:
        assert step["label"] in text
        assert step["of_roof"] > 0
    profile.save_trace(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    traced_names = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X"}
    assert traced_names >= {step.label for step in profile.steps}
    assert repr(profile).startswith("Profile('layer' on NumPy")
    with pytest.raises(RecordingError):
        profile.save_trace(tmp_path / "nowhere" / "t.json")


def test_profile_in_event_loop(compiled: rlx.CompiledGraph) -> None:
    async def profile_twice() -> tuple[Profile, Profile]:
        single = await compiled.run_async({"x": X}, profile=True)
        return single, await compiled.profile_async({"x": X}, 2)

    single, repeated = run_in_event_loop(profile_twice())
    assert (single.repeats, repeated.repeats) == (1, 2)
    np.testing.assert_array_equal(single.outputs[0], repeated.outputs[0])


def test_device_arrays_can_be_profiled(compiled: rlx.CompiledGraph) -> None:
    profile = compiled.run({"x": compiled.put(X)}, profile=True)
    np.testing.assert_array_equal(profile.outputs[0], compiled.run({"x": X})[0])


def test_invalid_profiles_are_rejected(compiled: rlx.CompiledGraph) -> None:
    with pytest.raises(UsageError, match="keep is True; a profiled run"):
        compiled.run({"x": X}, keep=True, profile=True)  # type: ignore[call-overload]
    for repeats in (0, -3):
        with pytest.raises(UsageError, match=f"repeats is {repeats}"):
            compiled.profile({"x": X}, repeats)
    with pytest.raises(InputError, match="'x'"):
        compiled.profile({})
    without_params = rlx.Session("cpu").compile(layer_graph())
    with pytest.raises(InputError, match="param 'w' has no value"):
        without_params.profile({"x": X})
    compiled.close()
    with pytest.raises(SessionClosed):
        compiled.profile({"x": X})


def test_params_are_returned(compiled: rlx.CompiledGraph) -> None:
    (name,) = compiled.params()
    assert name == "w"
    np.testing.assert_array_equal(compiled.params()["w"], W)
    assert rlx.Session("cpu").compile(layer_graph()).params() == {}


def profile_on_engine(
    engine: Engine, graph: rlx.Graph, feeds: Any, repeats: int = 1
) -> Profile:
    """Profile a graph on an engine and release its program."""
    program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    try:
        return run_blocking(profile_program(engine, program, feeds, CPU_PLACE, repeats))
    finally:
        run_blocking(program.close())


def test_engine_without_steps_is_timed_as_a_whole() -> None:
    graph = rlx.Graph("whole")
    x = graph.input("x", X.shape)
    graph.set_outputs([graph.softmax(x) @ graph.transpose(x, (1, 0))])
    profile = profile_on_engine(NumpyTestEngine(), graph, {"x": X})
    (step,) = profile.steps
    assert profile.how == "whole run"
    assert step.label == "whole run of 2 steps"
    assert step.flops >= 2 * 64 * 32 * 64
    assert "as a whole, not in steps" in str(profile)


def test_steps_are_timed_by_waiting_without_timestamps() -> None:
    """Each step is waited for on a port whose device has no timestamps."""
    graph = scaled_graph()
    port = open_fake_port(kernels={shader_source(graph): compute_scaled})
    assert TIMESTAMP_FEATURE not in port.facts.features
    x, w = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones((4, 3), np.float32)
    engine = WebGpuEngine(port)
    program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    run_blocking(program.set_param("w", w))
    profile = run_blocking(profile_program(engine, program, {"x": x}, CPU_PLACE, 2))
    assert profile.how == "one step at a time"
    np.testing.assert_array_equal(profile.outputs[0], 2 * x + 1)
    assert [step.ns > 0 for step in profile.steps] == [True]


def test_lost_device_raises() -> None:
    graph = scaled_graph()
    port = open_fake_port(
        InjectedFailure("read", "lost"), kernels={shader_source(graph): compute_scaled}
    )
    engine = WebGpuEngine(port)
    program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
    ones = np.ones((4, 3), np.float32)
    run_blocking(program.set_param("w", ones))
    with pytest.raises(DeviceLost):
        run_blocking(profile_program(engine, program, {"x": ones}, CPU_PLACE, 1))


def test_device_clock_times_every_step(adapter: AdapterRequest) -> None:
    """The device's clock times every step on a real driver, and no handles leak."""
    with open_native_port(adapter) as port:
        assert TIMESTAMP_FEATURE in port.facts.features
        engine = WebGpuEngine(port)
        graph = rlx.Graph("two")
        x = graph.input("x", X.shape)
        graph.set_outputs([graph.softmax(x @ graph.constant(W))])
        program = run_blocking(engine.prepare(compile_graph(graph, engine.target)))
        profile = run_blocking(profile_program(engine, program, {"x": X}, CPU_PLACE, 3))
        assert profile.how == "device clock"
        want = run_blocking(engine.run(program, {"x": X}))
        np.testing.assert_array_equal(profile.outputs[0], want[0])
        assert [step.kind for step in profile.steps] == ["matmul", "softmax"]
        assert all(0 < step.ns < 1e9 for step in profile.steps)
        live = len(port.live_handles)
        run_blocking(engine.run_timed(program, {"x": X}))
        assert len(port.live_handles) == live


def test_pool_engines_can_profile() -> None:
    """The pool's default engine profiles through the public API."""
    assert isinstance(pool.engine("cpu", ""), Engine)
    compiled_graph = rlx.Session("cpu").compile(layer_graph())
    compiled_graph.set_param("w", W)
    assert isinstance(compiled_graph.run({"x": X}, profile=True).steps[0], ProfileEntry)
