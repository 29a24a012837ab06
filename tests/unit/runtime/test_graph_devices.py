"""GraphDevices, method by method, on a machine of fake engines and on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb import DevicePolicy, DeviceRouter, Graph, GraphDevices, Session
from rlxweb.core.device import Device
from rlxweb.core.errors import (
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
from rlxweb.engines.registry import ROWS, Row
from rlxweb.runtime.graph_devices import graph_param_names
from tests.unit.runtime.fake_machine import (
    THREE_DEVICES,
    FakeMachine,
    X,
    add_graph,
    make_graph_devices,
)
from tests.unit.runtime.fake_machine import machine as machine
from tests.unit.runtime.fake_machine import three_devices as three_devices


def test_param_set_before_first_compile_is_applied() -> None:
    graph_devices = GraphDevices(add_graph(), DevicePolicy.only(["cpu"]))
    graph_devices.set_param("w", [3, 4])
    (got,) = graph_devices.run("cpu", X)
    np.testing.assert_array_equal(got, [4, 6])


@pytest.mark.parametrize("kind", [GraphDevices, DeviceRouter])
def test_repr_names_graph_and_devices(kind: type) -> None:
    """The repr names the graph and its devices on one line, whatever the size of the
    graph.
    """
    runner = kind(add_graph(), DevicePolicy.only(["cpu"]))
    expected = f"GraphDevices({runner.graph!r} on cpu)" if kind is GraphDevices else ""
    assert repr(runner) == (expected or f"DeviceRouter({runner.runner!r})")
    assert len(repr(runner)) < 90


def test_identity_graph_on_cpu() -> None:
    graph = Graph("identity")
    graph.set_outputs([graph.input("x", (2,))])
    (got,) = GraphDevices(graph, DevicePolicy.only(["cpu"])).run("cpu", X)
    np.testing.assert_array_equal(got, X["x"])


def test_run_try_falls_back_from_cuda_to_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    missing_row = Row(ROWS["cuda"].open, present=lambda: "no driver")
    monkeypatch.setitem(ROWS, "cuda", missing_row)
    graph_devices = GraphDevices(add_graph())
    graph_devices.set_param("w", [3, 4])
    device, (got,) = graph_devices.run_try(["cuda", "cpu"], X)
    assert device is Device.CPU
    np.testing.assert_array_equal(got, [4, 6])
    assert [str(a) for a in graph_devices.attempts] == [
        "cuda: device CUDA is not available: no driver",
        "cpu: succeeded",
    ]


def test_params_reach_every_device(machine: FakeMachine) -> None:
    """Params reach compiled devices and later ones; the last write wins."""
    graph_devices = make_graph_devices()
    graph_devices.compile("cpu")
    graph_devices.set_param("w", np.array([5, 6], np.float32))
    graph_devices.set_param_typed("w", [7, 8], np.float32)
    graph_devices.compile("vulkan")
    assert [device for device, _ in machine.prepared_programs] == [
        Device.CPU,
        Device.VULKAN,
    ]
    for _, program in machine.prepared_programs:
        np.testing.assert_array_equal(program.params["w"], [7, 8])
    program.params.clear()
    graph_devices.sync_params_to_all()
    np.testing.assert_array_equal(program.params["w"], [7, 8])


def test_wrong_params_are_rejected(machine: FakeMachine) -> None:
    """Unknown names and missing values are refused before anything runs; RLX ignores
    unknown names.
    """
    graph_devices = GraphDevices(add_graph())
    with pytest.raises(UnknownName, match="no param 'W'; its params are 'w'"):
        graph_devices.set_param("W", np.zeros(2, np.float32))
    with pytest.raises(DTypeError):
        graph_devices.set_param("w", np.zeros(2, np.float64))
    with pytest.raises(InputError, match="param 'w' has no value"):
        graph_devices.run_try(["cpu"], X)
    assert graph_param_names(graph_devices.graph) == ("w",)


def test_param_is_copied(machine: FakeMachine) -> None:
    graph_devices, w = make_graph_devices(), np.ones(2, np.float32)
    graph_devices.set_param("w", w)
    w[:] = 9
    (got,) = graph_devices.run("cpu", X)
    np.testing.assert_array_equal(got, [2, 3])


def test_named_device_is_used_or_rejected(machine: FakeMachine) -> None:
    graph_devices = make_graph_devices()
    assert graph_devices.resolve("gl") is Device.OPENGL
    with pytest.raises(Unsupported, match=r"device CUDA is not available.*viable"):
        graph_devices.resolve("cuda")
    with pytest.raises(UnknownDevice):
        graph_devices.resolve("abacus")


def test_environment_names_a_device(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viable device from the environment is used; otherwise a warning gives the
    reason.
    """
    machine.install_only(*THREE_DEVICES, Device.TPU)
    graph_devices = make_graph_devices()
    monkeypatch.setenv("RLX_DEVICE", "tpu")
    assert graph_devices.resolve() is Device.TPU
    assert graph_devices.resolve_chain() is Device.TPU
    machine.install_only(*THREE_DEVICES)
    graph_devices = make_graph_devices()
    cpu_only = make_graph_devices(DevicePolicy.only(["cpu"]))
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=tpu .* policy allows cpu"):
        assert cpu_only.resolve() is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "ane")
    for devices in (graph_devices, cpu_only):
        with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=ane cannot run graph"):
            assert devices.resolve() in THREE_DEVICES
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "tpu,vulkan,cpu")
    assert graph_devices.resolve_chain() is Device.VULKAN
    assert graph_devices.resolve_chain("cpu") is Device.CPU
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "tpu,mlx")
    with pytest.raises(Unsupported, match=r"no device in chain \[TPU, MLX\] can run"):
        graph_devices.resolve_chain()


def test_forced_device_is_the_only_one(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forced device is the only one that `resolve` returns and `run_chain` tries.

    One that is not viable is an error; a device in the call comes before it.
    """
    machine.install_only(Device.CPU, Device.TPU)
    monkeypatch.setenv("RLX_FORCE_DEVICE", "tpu")
    graph_devices = make_graph_devices()
    assert graph_devices.resolve() is graph_devices.fastest() is Device.TPU
    assert graph_devices.run_chain(X)[0] is Device.TPU
    machine.run_errors[Device.TPU] = RuntimeError("down")
    failing_devices = make_graph_devices()
    with pytest.raises(DeviceFallbackError, match=r"tpu: down$"):
        failing_devices.run_chain(X)
    assert failing_devices.run_chain("cpu", X)[0] is Device.CPU
    cpu_only = make_graph_devices(DevicePolicy.only(["cpu"]))
    with pytest.raises(Unsupported, match=r"RLX_FORCE_DEVICE=tpu.* are \[CPU\]"):
        cpu_only.resolve()
    with pytest.raises(DeviceFallbackError, match="RLX_FORCE_DEVICE=tpu"):
        cpu_only.run_chain(X)


def test_policy_without_devices(machine: FakeMachine) -> None:
    graph_devices = GraphDevices(add_graph(), DevicePolicy.only([]))
    assert graph_devices.devices == ()
    with pytest.raises(Unsupported, match="no backend can lower this graph"):
        graph_devices.resolve()


def test_fastest_by_prediction_with_explanation(machine: FakeMachine) -> None:
    """A small graph stays on the CPU and the explanation lists the predicted times."""
    graph_devices = make_graph_devices()
    assert graph_devices.fastest() is Device.CPU
    assert graph_devices.resolve() is Device.CPU
    assert graph_devices.decision is not None
    text = graph_devices.explain()
    assert "predicted" in text
    assert "launch" in text


def test_each_device_compiles_once(machine: FakeMachine) -> None:
    graph_devices = make_graph_devices()
    assert graph_devices.compile("vulkan") is graph_devices.compile(Device.VULKAN)
    assert graph_devices.warm_all() == graph_devices.devices
    assert len(machine.prepared_programs) == 3
    assert graph_devices.compile_fastest() is graph_devices.compile("cpu")
    assert graph_devices.compile_resolved("opengl") is graph_devices.compile("opengl")
    assert graph_devices.compile_chain("vulkan") is graph_devices.compile("vulkan")
    assert (
        graph_devices.compile_resolved_with_inputs("vulkan", X).device is Device.VULKAN
    )
    assert len(machine.prepared_programs) == 3


def test_compiled_graphs_run() -> None:
    """Graphs compiled by every compile method run with their params."""
    graph_devices = GraphDevices(add_graph(), DevicePolicy.only("cpu"))
    graph_devices.set_param("w", np.array([3, 4], np.float32))
    for compiled in (
        graph_devices.compile("cpu"),
        graph_devices.compile_fastest(),
        graph_devices.compile_resolved(),
        graph_devices.compile_chain("cpu"),
        graph_devices.compile_resolved_with_inputs(None, X),
    ):
        np.testing.assert_array_equal(compiled.run(X)[0], [4, 6])
        assert compiled.device == "cpu"


def test_missing_and_denied_devices_differ(machine: FakeMachine) -> None:
    graph_devices = make_graph_devices(DevicePolicy.all().with_deny("opengl"))
    with pytest.raises(Unsupported, match="device CUDA is not available"):
        graph_devices.compile("cuda")
    with pytest.raises(Unsupported, match="device OpenGL is denied by DevicePolicy"):
        graph_devices.compile("opengl")


def test_warm_all_stops_at_first_error(machine: FakeMachine) -> None:
    machine.prepare_errors[Device.VULKAN] = Unsupported("compile", "no")
    with pytest.raises(Unsupported, match="no"):
        make_graph_devices().warm_all()


def test_every_run_method(machine: FakeMachine) -> None:
    graph_devices = make_graph_devices()
    for got in (
        graph_devices.run("vulkan", X),
        graph_devices.run_resolved("opengl", X),
        graph_devices.run_fastest(X),
        graph_devices.run_resolved_with_inputs("vulkan", X),
        graph_devices.run_chain("cpu", X)[1],
        graph_devices.run_chain(["tpu", "cpu"], X)[1],
        graph_devices.run_chain(X)[1],
    ):
        np.testing.assert_array_equal(got[0], [4, 6])
    assert graph_devices.last_device is Device.CPU


def test_seed_mode_uses_published_constants(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large product is placed on CUDA by RLX's constants; the environment has
    precedence.
    """
    machine.install_only(Device.CPU, Device.CUDA)
    graph = Graph("product")
    x = graph.input("x", (512, 512))
    graph.set_outputs([x @ x])
    graph_devices = GraphDevices(graph, cost_mode="seed")
    assert graph_devices.fastest() is graph_devices.resolve() is Device.CUDA
    assert "chosen by RLX's published constants" in graph_devices.explain()
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert graph_devices.resolve() is Device.CPU
    for kind in (GraphDevices, DeviceRouter):
        with pytest.raises(UsageError, match="'seed' or 'calibrated'"):
            kind(graph, cost_mode="guess")


def test_inputs_are_checked_before_any_device(machine: FakeMachine) -> None:
    """Invalid inputs would fail on every device and are the caller's error."""
    graph_devices = make_graph_devices()
    with pytest.raises(UnknownName, match="no input 'y'"):
        graph_devices.run_try(["cpu", "vulkan"], {"y": X["x"]})
    assert machine.prepared_programs == []


def test_empty_chain(machine: FakeMachine) -> None:
    with pytest.raises(
        DeviceFallbackError, match=r"run_try .*: empty fallback chain"
    ) as caught:
        make_graph_devices().run_try([], X)
    assert caught.value.attempts == ()


def test_run_chain_follows_the_environment(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "tpu,opengl")
    graph_devices = make_graph_devices()
    assert graph_devices.run_chain(X)[0] is Device.OPENGL
    assert [a.device for a in graph_devices.attempts] == [Device.TPU, Device.OPENGL]


def timed_graph_devices(
    machine: FakeMachine, durations: dict[Device, list[int]]
) -> GraphDevices:
    """Build GraphDevices whose clock advances by the given durations of each device's
    runs.
    """
    machine.run_durations = {device: iter(times) for device, times in durations.items()}
    graph_devices = GraphDevices(add_graph(), clock=machine.clock)
    graph_devices.set_param("w", np.zeros(2, np.float32))
    return graph_devices


def test_warm_up_run_is_not_counted(machine: FakeMachine) -> None:
    """The slow warm-up is ignored; the medians of the other runs decide."""
    graph_devices = timed_graph_devices(
        machine,
        {
            Device.CPU: [9000, 50, 70, 60],
            Device.VULKAN: [10, 90, 90, 90],
            Device.OPENGL: [9000, 40, 500, 20],
        },
    )
    rows = graph_devices.benchmark(X, 3)
    assert [(r.label, r.median_exec_ns) for r in rows] == [
        ("opengl", 40.0),
        ("cpu", 60.0),
        ("vulkan", 90.0),
    ]
    assert all(r.runs == 3 for r in rows)


def test_benchmark_policy_caches_its_winner(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has precedence over the winner; a device it names that cannot run
    is skipped.
    """
    durations = {
        device: [9, 10 + index] * 20
        for index, device in enumerate(reversed(THREE_DEVICES))
    }
    graph_devices = timed_graph_devices(machine, durations)
    graph_devices.set_policy(DevicePolicy.all().with_benchmark_pick(1))
    assert graph_devices.resolve_with_inputs(None, X) is Device.OPENGL
    runs = [program.runs for _, program in machine.prepared_programs]
    assert graph_devices.resolve_with_inputs(None, X) is Device.OPENGL
    assert [program.runs for _, program in machine.prepared_programs] == runs
    assert graph_devices.resolve_with_inputs("cpu", X) is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert graph_devices.resolve_with_inputs(None, X) is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "ane")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=ane"):
        assert graph_devices.resolve_with_inputs(None, X) is Device.OPENGL
    monkeypatch.delenv("RLX_DEVICE")
    graph_devices.invalidate_cache()
    graph_devices.resolve_with_inputs(None, X)
    assert len(machine.prepared_programs) > 3


def test_failing_device_comes_last_in_benchmark(machine: FakeMachine) -> None:
    machine.run_errors[Device.CPU] = RuntimeError("a driver fell over")
    rows = make_graph_devices().benchmark(X, 1)
    assert rows[-1].device is Device.CPU
    assert rows[-1].error == "a driver fell over"
    assert all(not r.error for r in rows[:2])


def test_device_lost_in_benchmark_is_recompiled(
    machine: FakeMachine,
) -> None:
    """A device lost during the benchmark is compiled again, and only that one."""
    machine.run_errors[Device.VULKAN] = DeviceLost("run", "it went away")
    graph_devices = make_graph_devices()
    assert [r.label for r in graph_devices.benchmark(X, 1) if r.error] == ["vulkan"]
    machine.run_errors.clear()
    graph_devices.run("vulkan", X, strict=True)
    (cpu,) = machine.programs_on(Device.CPU)
    *_, benchmarked, latest = machine.programs_on(Device.VULKAN)
    assert (cpu.closed, benchmarked.closed, latest.closed) == (False, True, False)


def test_invalidating_keeps_params(machine: FakeMachine) -> None:
    graph_devices = make_graph_devices()
    graph_devices.run("cpu", X)
    ((_, first),) = machine.prepared_programs
    graph_devices.invalidate_cache()
    assert first.closed
    (got,) = graph_devices.run("cpu", X)
    np.testing.assert_array_equal(got, [4, 6])
    assert len(machine.programs_on(Device.CPU)) == 2


def test_new_policy_resets_devices(machine: FakeMachine) -> None:
    graph_devices = make_graph_devices()
    graph_devices.run("vulkan", X)
    graph_devices.set_policy(DevicePolicy.only(["cpu"]))
    assert graph_devices.devices == (Device.CPU,)
    assert graph_devices.policy.allow == (Device.CPU,)
    with pytest.raises(Unsupported):
        graph_devices.run("vulkan", X)
    graph_devices.close()
    graph_devices.close()


def test_constructors(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEVICES", "cpu")
    assert GraphDevices.from_env(add_graph()).devices == (Device.CPU,)
    policy = DevicePolicy.only(["vulkan"])
    assert GraphDevices.with_policy(add_graph(), policy).devices == (Device.VULKAN,)


@pytest.mark.parametrize("policy", ["cpu", ["cpu"], 3])
def test_invalid_policy_is_rejected(policy: Any) -> None:
    """An invalid policy is refused at construction instead of at the first run."""
    graph = Graph("net")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    with pytest.raises(UsageError, match="expected a DevicePolicy"):
        GraphDevices(graph, policy)
    with pytest.raises(UsageError, match="expected a DevicePolicy"):
        GraphDevices(graph).set_policy(policy)


@pytest.mark.parametrize("name", [3, b"llvm", None])
def test_adapter_name_must_be_text(name: Any) -> None:
    """The name of an adapter is text, also in a map of adapters and for a session."""
    graph = Graph("net")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    with pytest.raises(UsageError, match="expected part of an adapter's name"):
        Session("cpu", adapter=name)
    with pytest.raises(UsageError, match="expected part of an adapter's name"):
        GraphDevices(graph, adapters={"cpu": name}).run("cpu", {"x": np.ones(2, "f4")})
