"""GraphDevices, method by method, on a machine of fake engines and on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, DeviceRouter, Graph, GraphDevices, Session
from rlxweb.backends.registry import ROWS, Row
from rlxweb.device import Device
from rlxweb.errors import (
    DeviceFallbackError,
    DeviceLost,
    DTypeError,
    EnvironmentWarning,
    InputError,
    UnknownDevice,
    UnknownName,
    Unsupported,
    UsageError,
)
from rlxweb.runtime.graph_devices import graph_param_names
from tests.unit.runtime.fake_machine import THREE, FakeMachine, X, adding, runner
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices


def test_a_param_set_before_the_first_compile_is_applied() -> None:
    made = GraphDevices(adding(), DevicePolicy.only(["cpu"]))
    made.set_param("w", [3, 4])
    (got,) = made.run("cpu", X)
    np.testing.assert_array_equal(got, [4, 6])


@pytest.mark.parametrize("kind", [GraphDevices, DeviceRouter])
def test_what_runs_a_graph_says_which_and_where(kind: type) -> None:
    """A runner says graph and device in a line, whatever the size of the graph."""
    made = kind(adding(), DevicePolicy.only(["cpu"]))
    about = f"GraphDevices({made.graph!r} on cpu)" if kind is GraphDevices else ""
    assert repr(made) == (about or f"DeviceRouter({made.runner!r})")
    assert len(repr(made)) < 90


def test_identity_comes_back_from_the_cpu() -> None:
    graph = Graph("identity")
    graph.set_outputs([graph.input("x", (2,))])
    (got,) = GraphDevices(graph, DevicePolicy.only(["cpu"])).run("cpu", X)
    np.testing.assert_array_equal(got, X["x"])


def test_run_try_goes_from_cuda_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Row(ROWS["cuda"].open, present=lambda: "no driver")
    monkeypatch.setitem(ROWS, "cuda", gone)
    made = GraphDevices(adding())
    made.set_param("w", [3, 4])
    device, (got,) = made.run_try(["cuda", "cpu"], X)
    assert device is Device.CPU
    np.testing.assert_array_equal(got, [4, 6])
    assert [str(a) for a in made.attempts] == [
        "cuda: device CUDA is not available: no driver",
        "cpu: succeeded",
    ]


def test_params_reach_every_device(machine: FakeMachine) -> None:
    """Params reach devices compiled and to come; the last write wins."""
    made = runner()
    made.compile("cpu")
    made.set_param("w", np.array([5, 6], np.float32))
    made.set_param_typed("w", [7, 8], np.float32)
    made.compile("vulkan")
    assert [device for device, _ in machine.prepared] == [Device.CPU, Device.VULKAN]
    for _, one in machine.prepared:
        np.testing.assert_array_equal(one.params["w"], [7, 8])
    one.params.clear()
    made.sync_params_to_all()
    np.testing.assert_array_equal(one.params["w"], [7, 8])


def test_wrong_params_are_refused(machine: FakeMachine) -> None:
    """RLX ignores an unknown name; a missing value is said before anything runs."""
    made = GraphDevices(adding())
    with pytest.raises(UnknownName, match="no param 'W'; it has 'w'"):
        made.set_param("W", np.zeros(2, np.float32))
    with pytest.raises(DTypeError):
        made.set_param("w", np.zeros(2, np.float64))
    with pytest.raises(InputError, match="param 'w' has no value"):
        made.run_try(["cpu"], X)
    assert graph_param_names(made.graph) == ("w",)


def test_a_param_is_kept_by_value(machine: FakeMachine) -> None:
    made, w = runner(), np.ones(2, np.float32)
    made.set_param("w", w)
    w[:] = 9
    (got,) = made.run("cpu", X)
    np.testing.assert_array_equal(got, [2, 3])


def test_a_hint_is_used_or_refused(machine: FakeMachine) -> None:
    made = runner()
    assert made.resolve("gl") is Device.OPENGL
    with pytest.raises(Unsupported, match=r"device CUDA is not available.*viable"):
        made.resolve("cuda")
    with pytest.raises(UnknownDevice):
        made.resolve("abacus")


def test_the_environment_names_a_device(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is viable is used; one that is not is warned about with the reason."""
    machine.only(*THREE, Device.TPU)
    made = runner()
    monkeypatch.setenv("RLX_DEVICE", "tpu")
    assert made.resolve() is Device.TPU
    assert made.resolve_chain() is Device.TPU
    machine.only(*THREE)
    made = runner()
    only = runner(DevicePolicy.only(["cpu"]))
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=tpu .* policy allows cpu"):
        assert only.resolve() is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "ane")
    for one in (made, only):
        with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=ane cannot run graph"):
            assert one.resolve() in THREE
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "tpu,vulkan,cpu")
    assert made.resolve_chain() is Device.VULKAN
    assert made.resolve_chain("cpu") is Device.CPU
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "tpu,mlx")
    with pytest.raises(Unsupported, match=r"no device in chain \[TPU, MLX\] can run"):
        made.resolve_chain()


def test_a_forced_device_is_the_only_one(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forced device is what `resolve` says and `run_chain` tries.

    One that is not viable is an error; a device in the call comes before it.
    """
    machine.only(Device.CPU, Device.TPU)
    monkeypatch.setenv("RLX_FORCE_DEVICE", "tpu")
    made = runner()
    assert made.resolve() is made.fastest() is Device.TPU
    assert made.run_chain(X)[0] is Device.TPU
    machine.broken[Device.TPU] = RuntimeError("down")
    again = runner()
    with pytest.raises(DeviceFallbackError, match=r"tpu: down$"):
        again.run_chain(X)
    assert again.run_chain("cpu", X)[0] is Device.CPU
    only = runner(DevicePolicy.only(["cpu"]))
    with pytest.raises(Unsupported, match=r"RLX_FORCE_DEVICE=tpu.* are \[CPU\]"):
        only.resolve()
    with pytest.raises(DeviceFallbackError, match="RLX_FORCE_DEVICE=tpu"):
        only.run_chain(X)


def test_a_policy_that_leaves_nothing(machine: FakeMachine) -> None:
    made = GraphDevices(adding(), DevicePolicy.only([]))
    assert made.devices == ()
    with pytest.raises(Unsupported, match="no backend can lower this graph"):
        made.resolve()


def test_the_fastest_by_prediction_and_its_explanation(machine: FakeMachine) -> None:
    """A graph this small stays on the CPU, and every number is told."""
    made = runner()
    assert made.fastest() is Device.CPU
    assert made.resolve() is Device.CPU
    assert made.decision is not None
    text = made.explain()
    assert "predicted" in text
    assert "launch" in text


def test_each_device_is_compiled_once(machine: FakeMachine) -> None:
    made = runner()
    assert made.compile("vulkan") is made.compile(Device.VULKAN)
    assert made.warm_all() == made.devices
    assert len(machine.prepared) == 3
    assert made.compile_fastest() is made.compile("cpu")
    assert made.compile_resolved("opengl") is made.compile("opengl")
    assert made.compile_chain("vulkan") is made.compile("vulkan")
    assert made.compile_resolved_with_inputs("vulkan", X).device is Device.VULKAN
    assert len(machine.prepared) == 3


def test_what_is_compiled_runs() -> None:
    """Graphs compiled by any way of naming the device run with their params."""
    made = GraphDevices(adding(), DevicePolicy.only("cpu"))
    made.set_param("w", np.array([3, 4], np.float32))
    for compiled in (
        made.compile("cpu"),
        made.compile_fastest(),
        made.compile_resolved(),
        made.compile_chain("cpu"),
        made.compile_resolved_with_inputs(None, X),
    ):
        np.testing.assert_array_equal(compiled.run(X)[0], [4, 6])
        assert compiled.device == "cpu"


def test_devices_that_cannot_are_told_apart(machine: FakeMachine) -> None:
    made = runner(DevicePolicy.all().with_deny("opengl"))
    with pytest.raises(Unsupported, match="device CUDA is not available"):
        made.compile("cuda")
    with pytest.raises(Unsupported, match="device OpenGL is denied by DevicePolicy"):
        made.compile("opengl")


def test_the_first_error_ends_warm_all(machine: FakeMachine) -> None:
    machine.refuses[Device.VULKAN] = Unsupported("compile", "no")
    with pytest.raises(Unsupported, match="no"):
        runner().warm_all()


def test_every_way_to_run(machine: FakeMachine) -> None:
    made = runner()
    for got in (
        made.run("vulkan", X),
        made.run_resolved("opengl", X),
        made.run_fastest(X),
        made.run_resolved_with_inputs("vulkan", X),
        made.run_chain("cpu", X)[1],
        made.run_chain(["tpu", "cpu"], X)[1],
        made.run_chain(X)[1],
    ):
        np.testing.assert_array_equal(got[0], [4, 6])
    assert made.last_device is Device.CPU


def test_seed_mode_picks_by_published_constants(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product large enough for RLX's CUDA; the environment still comes first."""
    machine.only(Device.CPU, Device.CUDA)
    graph = Graph("product")
    x = graph.input("x", (512, 512))
    graph.set_outputs([x @ x])
    made = GraphDevices(graph, cost_mode="seed")
    assert made.fastest() is made.resolve() is Device.CUDA
    assert "RLX's published constants" in made.explain()
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert made.resolve() is Device.CPU
    for kind in (GraphDevices, DeviceRouter):
        with pytest.raises(UsageError, match="'seed' or 'calibrated'"):
            kind(graph, cost_mode="guess")


def test_inputs_are_checked_before_any_device_is_tried(machine: FakeMachine) -> None:
    """Wrong inputs would fail everywhere: they are the caller's error."""
    made = runner()
    with pytest.raises(UnknownName, match="no input 'y'"):
        made.run_try(["cpu", "vulkan"], {"y": X["x"]})
    assert machine.prepared == []


def test_an_empty_chain(machine: FakeMachine) -> None:
    with pytest.raises(
        DeviceFallbackError, match=r"run_try .*: empty fallback chain"
    ) as found:
        runner().run_try([], X)
    assert found.value.attempts == ()


def test_run_chain_follows_the_environment(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "tpu,opengl")
    made = runner()
    assert made.run_chain(X)[0] is Device.OPENGL
    assert [a.device for a in made.attempts] == [Device.TPU, Device.OPENGL]


def clocked(machine: FakeMachine, took: dict[Device, list[int]]) -> GraphDevices:
    """A runner whose clock moves by what each run is told to take."""
    machine.takes = {device: iter(times) for device, times in took.items()}
    made = GraphDevices(adding(), clock=machine.clock)
    made.set_param("w", np.zeros(2, np.float32))
    return made


def test_the_first_run_is_not_counted(machine: FakeMachine) -> None:
    """The warm-up is slow everywhere; medians of the rest decide."""
    made = clocked(
        machine,
        {
            Device.CPU: [9000, 50, 70, 60],
            Device.VULKAN: [10, 90, 90, 90],
            Device.OPENGL: [9000, 40, 500, 20],
        },
    )
    rows = made.benchmark(X, 3)
    assert [(r.label, r.median_exec_ns) for r in rows] == [
        ("opengl", 40.0),
        ("cpu", 60.0),
        ("vulkan", 90.0),
    ]
    assert all(r.runs == 3 for r in rows)


def test_a_benchmark_policy_remembers_its_winner(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment comes before it; what it names and cannot run is passed over."""
    took = {d: [9, 10 + at] * 20 for at, d in enumerate(reversed(THREE))}
    made = clocked(machine, took)
    made.set_policy(DevicePolicy.all().with_benchmark_pick(1))
    assert made.resolve_with_inputs(None, X) is Device.OPENGL
    runs = [one.runs for _, one in machine.prepared]
    assert made.resolve_with_inputs(None, X) is Device.OPENGL
    assert [one.runs for _, one in machine.prepared] == runs
    assert made.resolve_with_inputs("cpu", X) is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert made.resolve_with_inputs(None, X) is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "ane")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=ane"):
        assert made.resolve_with_inputs(None, X) is Device.OPENGL
    monkeypatch.delenv("RLX_DEVICE")
    made.invalidate_cache()
    made.resolve_with_inputs(None, X)
    assert len(machine.prepared) > 3


def test_a_device_that_fails_the_benchmark_comes_last(machine: FakeMachine) -> None:
    machine.broken[Device.CPU] = RuntimeError("a driver fell over")
    rows = runner().benchmark(X, 1)
    assert rows[-1].device is Device.CPU
    assert rows[-1].error == "a driver fell over"
    assert all(not r.error for r in rows[:2])


def test_a_device_that_failed_the_benchmark_is_compiled_again(
    machine: FakeMachine,
) -> None:
    """A device that failed the benchmark may be lost: only it is compiled again."""
    machine.broken[Device.VULKAN] = DeviceLost("run", "it went away")
    made = runner()
    assert [r.label for r in made.benchmark(X, 1) if r.error] == ["vulkan"]
    machine.broken.clear()
    made.run("vulkan", X, strict=True)
    (cpu,) = machine.of(Device.CPU)
    *_, benchmarked, latest = machine.of(Device.VULKAN)
    assert (cpu.closed, benchmarked.closed, latest.closed) == (False, True, False)


def test_invalidating_keeps_params(machine: FakeMachine) -> None:
    made = runner()
    made.run("cpu", X)
    ((_, first),) = machine.prepared
    made.invalidate_cache()
    assert first.closed
    (got,) = made.run("cpu", X)
    np.testing.assert_array_equal(got, [4, 6])
    assert len(machine.of(Device.CPU)) == 2


def test_a_new_policy_starts_over(machine: FakeMachine) -> None:
    made = runner()
    made.run("vulkan", X)
    made.set_policy(DevicePolicy.only(["cpu"]))
    assert made.devices == (Device.CPU,)
    assert made.policy.allow == (Device.CPU,)
    with pytest.raises(Unsupported):
        made.run("vulkan", X)
    made.close()
    made.close()


def test_constructors(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEVICES", "cpu")
    assert GraphDevices.from_env(adding()).devices == (Device.CPU,)
    policy = DevicePolicy.only(["vulkan"])
    assert GraphDevices.with_policy(adding(), policy).devices == (Device.VULKAN,)


@pytest.mark.parametrize("given", ["cpu", ["cpu"], 3])
def test_a_policy_is_a_policy(given: Any) -> None:
    """A policy that is none is refused where it is given, not by the first run."""
    graph = Graph("net")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    with pytest.raises(UsageError, match="a DevicePolicy is wanted"):
        GraphDevices(graph, given)
    with pytest.raises(UsageError, match="a DevicePolicy is wanted"):
        GraphDevices(graph).set_policy(given)


@pytest.mark.parametrize("name", [3, b"llvm", None])
def test_the_name_of_an_adapter_is_text(name: Any) -> None:
    """The name of an adapter is text, also in a map of adapters and for a session."""
    graph = Graph("net")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    with pytest.raises(UsageError, match="part of an adapter's name is wanted"):
        Session("cpu", adapter=name)
    with pytest.raises(UsageError, match="part of an adapter's name is wanted"):
        GraphDevices(graph, adapters={"cpu": name}).run("cpu", {"x": np.ones(2, "f4")})
