"""Custom devices, which RLX has no name for, and devices that are used only when
named.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.device import Device, fastest_among, parse_device, parse_device_list
from rlxweb.core.errors import (
    DeviceError,
    EnvironmentWarning,
    UnknownDevice,
    Unsupported,
)
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine
from rlxweb.engines.registry import ROWS, Row
from rlxweb.select.availability import DeviceRow, available_devices, is_available
from rlxweb.select.calibration.engine_calibration_lookup import (
    CANNOT_WAIT_REASON,
    EngineCalibration,
    engine_calibration,
    measure_if_profitable,
    measure_now,
)
from rlxweb.select.calibration.profitability import ProfitabilityPolicy
from rlxweb.select.device_and_adapter import (
    DevicePlace,
    available_places,
    distinct_places,
    engine_identity,
    parse_place,
)
from rlxweb.select.fallback import run_with_fallback
from rlxweb.select.policy import DevicePolicy
from rlxweb.select.resolve import resolve_device, resolve_device_chain
from tests.numpy_test_engine import NumpyTestEngine, NumpyTestEngineOpener

X = np.arange(8, dtype=np.float32)
SIGNAL = np.sin(np.arange(2048, dtype=np.float32) * 0.3)


@pytest.fixture
def opener(monkeypatch: pytest.MonkeyPatch) -> Iterator[NumpyTestEngineOpener]:
    """Machine with a CPU and an engine "made" that is used only when named."""
    opener = NumpyTestEngineOpener()
    for label in [label for label in ROWS if label != "cpu"]:
        monkeypatch.delitem(ROWS, label)
    monkeypatch.setitem(ROWS, "made", opener.registry_row())
    pool.close_all()
    yield opener
    pool.close_all()


def doubling_graph() -> rlx.Graph:
    graph = rlx.Graph("double")
    graph.set_outputs([graph.input("x", (8,)) * 2.0])
    return graph


def test_custom_device_is_a_singleton(opener: NumpyTestEngineOpener) -> None:
    """A custom device is one object however it is obtained, but no enum member."""
    custom_device = parse_device("made")
    assert (
        custom_device
        is parse_device(" MADE ")
        is Device("made")
        is parse_device(custom_device)
    )
    assert custom_device is pickle.loads(pickle.dumps(custom_device))
    assert custom_device is copy.copy(custom_device) is copy.deepcopy(custom_device)
    assert {custom_device: 1}[parse_device("made")] == 1
    assert custom_device == "made"
    assert isinstance(custom_device, Device)
    assert (
        custom_device.label,
        custom_device.display,
        f"{custom_device}",
        str(custom_device),
    ) == ("made", *["Made"] * 3)
    assert json.loads(json.dumps([custom_device, Device.CPU])) == ["made", "cpu"]
    assert repr(custom_device) == "<Device.MADE: 'made'>"
    assert custom_device not in list(Device)
    assert len(Device) == 12
    for device in Device:
        assert pickle.loads(pickle.dumps(device)) is device


def test_name_is_known_only_while_its_engine_is_registered(
    opener: NumpyTestEngineOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name without an engine is unknown, and a similar name is suggested."""
    with pytest.raises(UnknownDevice, match=r"did you mean 'made'\?"):
        parse_device("maed")
    assert parse_device_list("cpu,made") == (Device.CPU, Device("made"))
    monkeypatch.delitem(ROWS, "made")
    with pytest.raises(UnknownDevice, match="unknown device 'made'"):
        parse_device("made")
    with pytest.raises(ValueError, match="'made' is not a valid Device"):
        Device("made")


def test_custom_device_ranks_after_rlx_devices(opener: NumpyTestEngineOpener) -> None:
    """A device that "auto" may use ranks before the CPU, a named-only device after
    it.
    """
    assert fastest_among("made,cpu") is Device.CPU
    assert fastest_among(["made"]) == "made"
    ROWS["made"] = opener.registry_row(named_only=False)
    assert fastest_among("made,cpu,opengl") is Device.OPENGL
    assert fastest_among("cpu,made") == "made"


def test_auto_does_not_open_a_named_only_device(opener: NumpyTestEngineOpener) -> None:
    """A device that is not named is not even opened."""
    runner = rlx.GraphDevices(doubling_graph())
    assert runner.devices == available_devices() == (Device.CPU,)
    assert runner.run_chain({"x": X})[0] is Device.CPU
    assert [p.label for p in available_places()] == ["cpu"]
    rlx.Session("auto").compile(doubling_graph()).run({"x": X})
    assert rlx.welch_peaks(SIGNAL, fs=256, k=2).device is Device.CPU
    rows = {row.label: row for row in rlx.device_report()}
    assert not rows["made"].available
    assert rows["made"].blocker.startswith("named only")
    assert opener.opened == []


def row_summary(row: DeviceRow) -> tuple[bool, bool, str]:
    return row.available, row.named_only, row.engine


def test_policy_or_variable_naming_the_device_opens_it(
    opener: NumpyTestEngineOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom_device = parse_device("made")
    assert is_available("made")
    assert DevicePolicy.all().permits("made")
    assert not DevicePolicy.all().with_deny("made").permits("made")
    assert DevicePolicy.only("made").candidates == (custom_device,)
    assert DevicePolicy.all().with_prefer("made").candidates[0] is custom_device
    assert rlx.GraphDevices(doubling_graph(), DevicePolicy.only("made")).devices == (
        custom_device,
    )
    (row,) = rlx.device_report(policy=DevicePolicy.only("made"))
    assert row_summary(row) == (True, True, "Made 1.0")
    monkeypatch.setenv("RLX_DEVICES", "made")
    assert rlx.welch_peaks(SIGNAL, fs=256, k=2).device is custom_device


def test_every_entry_point_runs_on_the_named_device(
    opener: NumpyTestEngineOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom_device, graph = parse_device("made"), doubling_graph()
    runner = rlx.GraphDevices(graph)
    router = rlx.DeviceRouter(graph)
    outputs = {
        "session": rlx.Session("made").compile(graph).run({"x": X})[0],
        "run": runner.run("made", {"x": X})[0],
        "resolved": runner.run_resolved("made", {"x": X})[0],
        "try": runner.run_try(["made", "cpu"], {"x": X})[1][0],
        "chain": runner.run_chain(["made"], {"x": X})[1][0],
        "router": router.run_chain(["made"], {"x": X})[1][0],
    }
    for entry_point, out in outputs.items():
        np.testing.assert_array_equal(out, X * 2, entry_point)
    assert runner.last_device is custom_device
    assert runner.run_chain("made", {"x": X})[0] is custom_device
    assert runner.devices == (Device.CPU,)
    assert resolve_device(graph, "made") is custom_device
    assert resolve_device_chain(graph, "made,cpu") is custom_device
    assert run_with_fallback(graph, "made", lambda d: d.label)[1] == "made"
    peaks = rlx.welch_peaks(SIGNAL, fs=256, k=2, device="made")
    assert peaks.device is custom_device
    assert "Made" in peaks.explain() or "made" in peaks.explain()
    monkeypatch.setenv("RLX_DEVICE", "made")
    assert resolve_device(graph) is custom_device
    assert rlx.GraphDevices(graph).resolve() is custom_device
    monkeypatch.delenv("RLX_DEVICE")
    monkeypatch.setenv("RLX_DEVICE_CHAIN", "made")
    assert rlx.GraphDevices(graph).run_chain({"x": X})[0] is custom_device


def test_denied_device_is_refused_even_when_named(
    opener: NumpyTestEngineOpener,
) -> None:
    runner = rlx.GraphDevices(doubling_graph(), DevicePolicy.all().with_deny("made"))
    with pytest.raises(Unsupported, match="Made"):
        runner.run("made", {"x": X})
    assert opener.opened == []


@pytest.mark.parametrize("label", ["cpu", "tpu", "made"])
@pytest.mark.parametrize("variable", ["RLX_DENY_DEVICES", "RLX_DEVICES"])
def test_variables_deny_what_no_call_names(
    opener: NumpyTestEngineOpener,
    monkeypatch: pytest.MonkeyPatch,
    label: str,
    variable: str,
) -> None:
    """A variable keeps any device, our own or another package's, from being chosen or
    named by RLX_DEVICE; a call that names it runs on it, unless it has the policy.
    """
    for row in ("tpu", "made"):
        monkeypatch.setitem(ROWS, row, opener.registry_row(named_only=False))
    others = [other for other in ("cpu", "tpu", "made") if other != label]
    is_deny = variable == "RLX_DENY_DEVICES"
    monkeypatch.setenv(variable, label if is_deny else ",".join(others))
    graph, device = doubling_graph(), parse_device(label)
    assert rlx.Session().compile(graph).device is not device
    monkeypatch.setenv("RLX_DEVICE", label)
    with pytest.warns(EnvironmentWarning, match=f"RLX_DEVICE={label} cannot run"):
        assert rlx.Session().compile(graph).device is not device
    monkeypatch.delenv("RLX_DEVICE")
    assert rlx.Session(label).compile(graph).device is device
    assert rlx.welch_peaks(SIGNAL, fs=256, k=2, device=label).device is device
    assert rlx.GraphDevices(graph).run(label, {"x": X})
    with pytest.raises(Unsupported, match=f"device {device} is .*DevicePolicy"):
        rlx.GraphDevices.from_env(graph).run(label, {"x": X})


def test_run_refuses_an_output_of_another_dtype(
    opener: NumpyTestEngineOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine whose own `run` does not check is checked at a graph's first run."""
    run = NumpyTestEngine.run

    async def run_in_64_bits(*args: Any) -> list[Any]:
        return [output.astype(np.float64) for output in await run(*args)]

    monkeypatch.setattr(NumpyTestEngine, "run", run_in_64_bits)
    compiled = rlx.Session("made").compile(doubling_graph())
    for _ in range(2):
        with pytest.raises(
            DeviceError,
            match=r"^run 'double' on Made 1.0: the engine returned output 0 as "
            r"\[8\] float64; the graph declares it as \[8\] f32",
        ):
            compiled.run({"x": X})


def test_missing_device_gives_the_reason_everywhere(
    opener: NumpyTestEngineOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing device is refused with the reason and how to get it."""

    async def fail_if_opened(adapter: str) -> Engine:
        raise AssertionError("it was tried")

    missing_row = Row(fail_if_opened, present=lambda: "no driver", hint="install one")
    monkeypatch.setitem(ROWS, "cuda", missing_row)
    runner = rlx.GraphDevices(doubling_graph())
    for request in (
        lambda: rlx.Session("cuda"),
        lambda: runner.run("cuda", {"x": X}),
        lambda: runner.resolve("cuda"),
        lambda: rlx.welch_peaks(SIGNAL, fs=256, k=2, device="cuda"),
    ):
        with pytest.raises(DeviceError, match=r"no driver;.* install one"):
            request()


def test_browser_keeps_only_waiting_engines_from_blocking_code(
    opener: NumpyTestEngineOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A synchronous engine is priced and measured in a browser as elsewhere."""
    place = parse_place("made")
    for name in ("can_wait", "can_block"):
        monkeypatch.setattr(
            f"rlxweb.select.calibration.engine_calibration_lookup.{name}", lambda: False
        )
    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.LAZY_BUDGET_S", 0.1
    )
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    before = engine_calibration(place, ())
    assert isinstance(before, EngineCalibration)
    assert before.source == "assumed"
    opener.opened[0].waits = True
    assert engine_calibration(place, ()) == CANNOT_WAIT_REASON
    places = DevicePlace(Device.CPU), place
    measure_if_profitable(places, lambda p: ("run",), 1e12, ProfitabilityPolicy())
    assert engine_calibration(place, ()) == CANNOT_WAIT_REASON
    opener.opened[0].waits = False
    measure_if_profitable(places, lambda p: ("run",), 1e12, ProfitabilityPolicy())
    now = engine_calibration(place, ())
    assert isinstance(now, EngineCalibration)
    assert now.source == "calibrated"


def test_two_shader_compilers_are_two_engines(
    opener: NumpyTestEngineOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shader measurements of one compiler do not apply to the other."""
    monkeypatch.setitem(ROWS, "other", opener.registry_row())
    places = parse_place("made"), parse_place("other")
    assert distinct_places(places) == places[:1]
    with_tint = replace(NumpyTestEngine.identity, compiler="Tint 7")
    opener.opened[1].identity = with_tint
    assert distinct_places(places) == places
    assert engine_identity(places[0]) != engine_identity(places[1])
    opener.opened[0].identity = with_tint
    assert distinct_places(places) == places[:1]


def test_named_device_is_measured_and_priced(opener: NumpyTestEngineOpener) -> None:
    """A calibration is stored under the engine's own name, and `explain` shows its
    price.
    """
    assert parse_place("made:x") == DevicePlace(parse_device("made"), "x")
    record, _ = measure_now(parse_place("made"), budget_s=0.2)
    assert (record.engine, record.backend, record.device) == (
        "Made 1.0",
        "made",
        "made",
    )
    runner = rlx.GraphDevices(doubling_graph(), DevicePolicy.only(["made", "cpu"]))
    runner.run_resolved({"x": X})
    assert "Made 1.0     predicted" in runner.explain()


@pytest.mark.parametrize(
    ("label", "engine"),
    [
        pytest.param("torch-cpu", "PyTorch", marks=pytest.mark.requires_torch),
        pytest.param("jax-cpu", "JAX", marks=pytest.mark.requires_jax),
        pytest.param("mlx", "MLX", marks=pytest.mark.requires_mlx),
    ],
)
def test_library_engines_run_when_named(label: str, engine: str) -> None:
    """A library's engine computes peaks and a graph correctly when named."""
    x = np.random.default_rng(5).standard_normal((3, 2048)).astype(np.float32)
    peaks = rlx.welch_peaks(x, fs=256, k=3, device=label)
    reference = rlx.welch_peaks(x, fs=256, k=3, device="cpu")
    assert (peaks.device.label, peaks.engine.partition(" ")[0]) == (label, engine)
    np.testing.assert_array_equal(peaks.bins, reference.bins)
    np.testing.assert_allclose(peaks.power, reference.power, rtol=1e-4)
    graph = rlx.Graph("product")
    a = graph.input("a", (8, 16))
    graph.set_outputs([graph.softmax(a @ graph.param("w", (16, 4)))])
    runner = rlx.GraphDevices(graph)
    w = x[0, :64].reshape(16, 4)
    runner.set_param("w", w)
    inputs = {"a": x[1, :128].reshape(8, 16)}
    device, (out,) = runner.run_chain([label, "cpu"], inputs)
    assert device.label == label
    np.testing.assert_allclose(out, runner.run("cpu", inputs)[0], rtol=1e-4, atol=1e-6)
