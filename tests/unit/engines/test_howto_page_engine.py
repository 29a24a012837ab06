"""The how-to page's engine, as a reader would write it, in every public call.

Its code is taken from the page, so the page is the test: nobody may ask an engine for
anything that the page does not mention.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.device import Device
from rlxweb.core.errors import Unsupported
from rlxweb.core.limits import tiny_limits
from rlxweb.engines.pool import pool
from rlxweb.engines.registry import ROWS, Row
from rlxweb.select.calibration import welch_jobs
from rlxweb.select.calibration.engine_calibration_lookup import measure_now
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, available_places
from tests.cli_runners import CommandRunner
from tests.howto_pages import apply_diff, code_blocks, copy_package, run_copy

MLX_PLACE = DevicePlace(Device.MLX)
SIGNALS = np.random.default_rng(3).standard_normal((6, 1024)).astype(np.float32)


def engine_source() -> str:
    """Return the page's complete engine, its first Python block."""
    return code_blocks("add-an-engine", "python")[0]


@pytest.fixture(params=["alone", "beside others"])
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Provide the page's engine as the device "mlx": alone, or together with the
    CPU.
    """
    names: dict[str, Any] = {}
    exec(compile(engine_source(), "add-an-engine.md", "exec"), names)
    page_engine = names["NodeByNode"]()

    async def open_page_engine(adapter: str) -> Any:
        return page_engine

    for label in [label for label in ROWS if label != "cpu"]:
        monkeypatch.delitem(ROWS, label)
    if request.param == "alone":
        monkeypatch.setenv("RLX_DENY_DEVICES", "cpu")
    monkeypatch.setitem(ROWS, "mlx", Row(open_page_engine))
    pool._engines.pop(("mlx", ""), None)
    yield page_engine
    pool._engines.pop(("mlx", ""), None)


def doubling_graph() -> rlx.Graph:
    graph = rlx.Graph("double")
    graph.set_outputs([graph.input("x", (4,)) * 2 + graph.param("w", (4,))])
    return graph


FEEDS = {"x": np.arange(4, dtype=np.float32)}
W = np.ones(4, np.float32)


def test_page_engine_runs_signal_calls(engine: Any) -> None:
    """The engine runs signal calls by name and by automatic choice, with the CPU's
    numbers.
    """
    want = rlx.welch_peaks(SIGNALS, fs=256, k=4, device="cpu")
    for device in ("mlx", None):
        got = rlx.welch_peaks(SIGNALS, fs=256, k=4, device=device)
        np.testing.assert_array_equal(got.bins, want.bins)
        np.testing.assert_allclose(got.power, want.power, rtol=1e-4)
        assert got.explain()
    by_name = rlx.welch_peaks(SIGNALS, fs=256, k=4, device="mlx")
    assert (by_name.device, by_name.engine) == (Device.MLX, engine.name)
    _, power = rlx.welch(SIGNALS, fs=256, device="mlx")
    _, want_power = rlx.welch(SIGNALS, fs=256, device="cpu")
    np.testing.assert_allclose(power, want_power, rtol=1e-4, atol=1e-7)


def test_page_engine_runs_graphs(engine: Any) -> None:
    """The engine runs graphs by name, on "auto" and through runners of every kind."""
    compiled = rlx.Session("auto").compile(doubling_graph())
    compiled.set_param("w", W)
    np.testing.assert_array_equal(compiled.run(FEEDS)[0], FEEDS["x"] * 2 + 1)
    assert compiled.explain()
    runner = rlx.GraphDevices(doubling_graph(), rlx.DevicePolicy.from_env())
    runner.set_param("w", W)
    assert Device.MLX in runner.devices
    for run in (runner.run_resolved, runner.run_fastest):
        np.testing.assert_array_equal(run(FEEDS)[0], FEEDS["x"] * 2 + 1)
    device, outs = runner.run_try(["mlx"], FEEDS)
    assert device is Device.MLX
    np.testing.assert_array_equal(outs[0], FEEDS["x"] * 2 + 1)
    assert runner.explain()
    rows = {row.label: row for row in rlx.device_report(doubling_graph())}
    assert rows["mlx"].supports_graph


def test_page_engine_keeps_arrays(engine: Any) -> None:
    """Arrays stay on an engine that does not implement device arrays, in the host's
    memory.
    """
    x = rlx.put(FEEDS["x"], "mlx")
    compiled = rlx.Session("mlx").compile(doubling_graph())
    compiled.set_param("w", x)
    (first,) = compiled.run({"x": x}, keep=True)
    compiled.set_param("w", first)
    np.testing.assert_array_equal(compiled.run({"x": x})[0], FEEDS["x"] * 5)
    assert (first.device, first.engine) == (Device.MLX, engine.name)
    got = rlx.welch_peaks(rlx.put(SIGNALS, "mlx"), fs=256, k=4)
    want = rlx.welch_peaks(SIGNALS, fs=256, k=4, device="cpu")
    np.testing.assert_array_equal(got.bins, want.bins)
    assert got.engine == engine.name


@pytest.mark.parametrize("engine", ["beside others"], indirect=True)
def test_page_engine_is_calibrated_and_predicted(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is calibrated without latency probes: runs, calls, kernels and Welch
    jobs.
    """
    small_grid = {kind: rows[:2] for kind, rows in welch_jobs.SIZE_GRID.items()}
    monkeypatch.setattr(welch_jobs, "SIZE_GRID", small_grid)
    quick = Stopwatch(1, samples=1, min_samples=1, budget_ns=1.0)
    record, path = measure_now(MLX_PLACE, watch=quick, budget_s=120.0)
    assert path is not None
    assert record.engine == engine.name
    kinds = {point.what for point in record.points}
    assert {"run", "call", "copy", "welch_fused"} <= kinds
    assert "submit" not in kinds
    decision = rlx.welch_peaks(SIGNALS, fs=256, k=4, device="mlx").decision
    assert decision.candidates[0].source == "calibrated"
    assert decision.candidates[0].terms is not None


def test_page_engine_on_the_command_line(engine: Any, call: CommandRunner) -> None:
    """The commands devices, explain and calibrate name the engine."""
    result = call("devices", "--json")
    assert result.code == 0, result.err
    rows = {row["device"]: row for row in json.loads(result.out)["devices"]}
    assert (rows["mlx"]["available"], rows["mlx"]["engine"]) == (True, engine.name)
    result = call("explain", "--batch", "4", "--device", "mlx")
    assert result.code == 0, result.err
    assert engine.name in result.out
    result = call("calibrate", "--device", "mlx", "--json", "--budget-s", "0.1")
    assert result.code == 0, result.err
    assert json.loads(result.out)["records"][0]["engine"] == engine.name


def test_unsupported_verb_is_refused(engine: Any) -> None:
    """A verb that an engine lacks is refused with the reason, without
    AttributeError.
    """
    assert MLX_PLACE in available_places()
    assert CPU_PLACE in available_places()
    with pytest.raises(Unsupported, match="only wgpu devices support limits"):
        rlx.Session("mlx", limits=tiny_limits())


def test_one_file_and_one_registry_row_make_an_engine(tmp_path: Path) -> None:
    """The page's diff, applied to a copy of the package, adds an engine."""
    copy_package(tmp_path)
    engines = tmp_path / "rlxweb" / "engines"
    (engines / "node_by_node.py").write_text(engine_source(), "utf-8")
    (diff,) = code_blocks("add-an-engine", "diff")
    apply_diff(tmp_path, diff)
    code = (
        "import numpy as np, rlxweb as rlx\n"
        "print(rlx.__file__)\n"
        "x = np.sin(np.arange(512, dtype=np.float32))\n"
        "print(rlx.welch_peaks(x, fs=1, k=1, device='node-by-node').engine)\n"
        "print(rlx.parse_device('node-by-node').display)\n"
        "print(*rlx.available_devices())\n"
    )
    package_file, engine, display, device_line = run_copy(tmp_path, code)
    assert Path(package_file).is_relative_to(tmp_path)
    assert engine.endswith("node by node")
    assert display == "Node by node"
    devices = device_line.split()
    assert devices[-1] == "CPU"
    assert "Node by node" in device_line
