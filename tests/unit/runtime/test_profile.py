"""Profiled runs: the outputs of a run, and where its time went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.cost.roofline import Spent
from rlxweb.device import Device
from rlxweb.devices.place import CPU
from rlxweb.errors import (
    DeviceLost,
    InputError,
    RecordingError,
    SessionClosed,
    UsageError,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import STAMPS, Want
from rlxweb.runtime.profile import Profile, profiled
from tests.fake_port import Failure
from tests.made_engine import MadeEngine
from tests.ports import compute, fake, native, scaled, source_of
from tests.threads import in_a_loop

X = np.linspace(-2, 2, 64 * 32, dtype=np.float32).reshape(64, 32)
W = np.linspace(-1, 1, 32 * 16, dtype=np.float32).reshape(32, 16)


def layer() -> rlx.Graph:
    graph = rlx.Graph("layer")
    x, w = graph.input("x", X.shape), graph.param("w", W.shape)
    graph.set_outputs(
        [graph.softmax(graph.gelu(x @ w) + 1.0), graph.transpose(x, (1, 0))]
    )
    return graph


@pytest.fixture
def compiled() -> rlx.CompiledGraph:
    made = rlx.Session("cpu").compile(layer())
    made.set_param("w", W)
    return made


def test_the_outputs_are_the_runs(compiled: rlx.CompiledGraph) -> None:
    """A profile's outputs are those of `run`, and the caller's own."""
    found = compiled.run({"x": X}, profile=True)
    for got, want in zip(found.outputs, compiled.run({"x": X}), strict=True):
        np.testing.assert_array_equal(got, want)
        got[...] = 0
    assert found.repeats == 1
    assert (found.graph, found.device) == ("layer", Device.CPU)


def test_each_step_says_what_it_did(compiled: rlx.CompiledGraph) -> None:
    found = compiled.profile({"x": X}, repeats=3)
    assert found.how == "one step at a time"
    product = found.steps[0]
    assert (product.label, product.kind) == ("matmul", "matmul")
    assert product.flops == 2 * 64 * 32 * 16
    assert product.nbytes == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert all(step.ns > 0 for step in found.steps)
    assert not any(step.label == "transpose" for step in found.steps)  # a view
    assert found.upload.nbytes == X.nbytes
    assert found.readback.nbytes == X.nbytes + 4 * 64 * 16
    assert found.total_ns >= sum(step.ns for step in found.steps)


def test_the_table_the_record_and_the_trace_agree(
    compiled: rlx.CompiledGraph, tmp_path: Path
) -> None:
    found = compiled.profile({"x": X}, repeats=2)
    text = str(found)
    assert "layer on NumPy" in text
    assert "medians of 2 runs" in text
    assert "roof: " in text
    record = json.loads(json.dumps(found.as_json()))
    assert [s["label"] for s in record["steps"]] == [s.label for s in found.steps]
    for step in record["steps"]:
        assert step["label"] in text
        assert step["of_roof"] > 0
    found.save_trace(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    drawn = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X"}
    assert drawn >= {step.label for step in found.steps}
    assert repr(found).startswith("Profile('layer' on NumPy")
    with pytest.raises(RecordingError):
        found.save_trace(tmp_path / "nowhere" / "t.json")


def test_beside_an_event_loop(compiled: rlx.CompiledGraph) -> None:
    async def both() -> tuple[Profile, Profile]:
        one = await compiled.run_async({"x": X}, profile=True)
        return one, await compiled.profile_async({"x": X}, 2)

    one, many = in_a_loop(both())
    assert (one.repeats, many.repeats) == (1, 2)
    np.testing.assert_array_equal(one.outputs[0], many.outputs[0])


def test_arrays_that_lie_on_the_device_are_taken(compiled: rlx.CompiledGraph) -> None:
    found = compiled.run({"x": compiled.put(X)}, profile=True)
    np.testing.assert_array_equal(found.outputs[0], compiled.run({"x": X})[0])


def test_what_cannot_be_profiled_is_refused(compiled: rlx.CompiledGraph) -> None:
    with pytest.raises(UsageError, match="keep is True; a profiled run"):
        compiled.run({"x": X}, keep=True, profile=True)  # type: ignore[call-overload]
    for repeats in (0, -3):
        with pytest.raises(UsageError, match=f"repeats is {repeats}"):
            compiled.profile({"x": X}, repeats)
    with pytest.raises(InputError, match="'x'"):
        compiled.profile({})
    bare = rlx.Session("cpu").compile(layer())
    with pytest.raises(InputError, match="param 'w' has no value"):
        bare.profile({"x": X})
    compiled.close()
    with pytest.raises(SessionClosed):
        compiled.profile({"x": X})


def test_params_are_told(compiled: rlx.CompiledGraph) -> None:
    (name,) = compiled.params()
    assert name == "w"
    np.testing.assert_array_equal(compiled.params()["w"], W)
    assert rlx.Session("cpu").compile(layer()).params() == {}


def on_it(engine: Backend, graph: rlx.Graph, feeds: Any, repeats: int = 1) -> Profile:
    program = drive(engine.prepare(compile_graph(graph, engine.target)))
    try:
        return drive(profiled(engine, program, feeds, CPU, repeats))
    finally:
        drive(engine.release(program))


def test_an_engine_that_knows_no_steps_is_timed_whole() -> None:
    graph = rlx.Graph("whole")
    x = graph.input("x", X.shape)
    graph.set_outputs([graph.softmax(x) @ graph.transpose(x, (1, 0))])
    found = on_it(MadeEngine(), graph, {"x": X})
    (step,) = found.steps
    assert found.how == "whole run"
    assert step.label == "whole run of 2 steps"
    assert step.flops >= 2 * 64 * 32 * 64
    assert "steps are not told apart" in str(found)


def test_without_a_clock_each_step_is_waited_for() -> None:
    """Each step is waited for on a port whose device has no time stamps."""
    graph = scaled()
    port = fake(kernels={source_of(graph): compute})
    assert STAMPS not in port.facts.features
    x, w = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones((4, 3), np.float32)
    engine = WebGpuBackend(port)
    program = drive(engine.prepare(compile_graph(graph, engine.target)))
    drive(engine.set_param(program, "w", w))
    found = drive(profiled(engine, program, {"x": x}, CPU, 2))
    assert found.how == "one step at a time"
    np.testing.assert_array_equal(found.outputs[0], 2 * x + 1)
    assert [step.ns > 0 for step in found.steps] == [True]


def test_a_device_that_is_lost_raises() -> None:
    graph = scaled()
    port = fake(Failure("read", "lost"), kernels={source_of(graph): compute})
    engine = WebGpuBackend(port)
    program = drive(engine.prepare(compile_graph(graph, engine.target)))
    ones = np.ones((4, 3), np.float32)
    drive(engine.set_param(program, "w", ones))
    with pytest.raises(DeviceLost):
        drive(profiled(engine, program, {"x": ones}, CPU, 1))


def test_by_the_clock_of_the_device(adapter: Want) -> None:
    """The device's clock times every step on a real driver; nothing is left there."""
    with native(adapter) as port:
        assert STAMPS in port.facts.features
        engine = WebGpuBackend(port)
        graph = rlx.Graph("two")
        x = graph.input("x", X.shape)
        graph.set_outputs([graph.softmax(x @ graph.constant(W))])
        program = drive(engine.prepare(compile_graph(graph, engine.target)))
        found = drive(profiled(engine, program, {"x": X}, CPU, 3))
        assert found.how == "device clock"
        want = drive(engine.run(program, {"x": X}))
        np.testing.assert_array_equal(found.outputs[0], want[0])
        assert [step.kind for step in found.steps] == ["matmul", "softmax"]
        assert all(0 < step.ns < 1e9 for step in found.steps)
        live = len(port.live)
        drive(engine.timed(program, {"x": X}))
        assert len(port.live) == live


def test_the_pools_engines_profile_too() -> None:
    """The pool's default engine profiles by its public way, too."""
    assert isinstance(pool.backend("cpu", ""), Backend)
    made = rlx.Session("cpu").compile(layer())
    made.set_param("w", W)
    assert isinstance(made.run({"x": X}, profile=True).steps[0], Spent)
