"""The engine of the how-to page, as a reader would write it, in every public call.

Its code is taken from the page, so the page is the test: nobody may ask an engine for
anything that the page does not mention.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.registry import ROWS, Row
from rlxweb.calibration import welch_jobs
from rlxweb.calibration.known import measure_now
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place, available_places
from rlxweb.errors import Unsupported
from rlxweb.limits import shrunk
from tests.command_line import ROOT, Call, python

PAGE = Path(__file__).parents[3] / "site" / "pages" / "howto" / "add-a-backend.md"
PLACE = Place(Device.MLX)
ROWS_OF_X = np.random.default_rng(3).standard_normal((6, 1024)).astype(np.float32)


def block(kind: str, at: int = 0) -> str:
    """A block of the page; the first program is the engine and nothing else."""
    text = PAGE.read_text("utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)[at]


@pytest.fixture(params=["alone", "beside others"])
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The page's engine as the device "mlx": the only one, or beside the CPU."""
    names: dict[str, Any] = {}
    exec(compile(block("python"), str(PAGE), "exec"), names)
    made = names["NodeByNode"]()

    async def opened(adapter: str) -> Any:
        return made

    for label in [label for label in ROWS if label != "cpu"]:
        monkeypatch.delitem(ROWS, label)
    if request.param == "alone":
        monkeypatch.setenv("RLX_DENY_DEVICES", "cpu")
    monkeypatch.setitem(ROWS, "mlx", Row(opened))
    pool._open.pop(("mlx", ""), None)
    yield made
    pool._open.pop(("mlx", ""), None)


def doubled() -> rlx.Graph:
    graph = rlx.Graph("double")
    graph.set_outputs([graph.input("x", (4,)) * 2 + graph.param("w", (4,))])
    return graph


FEEDS = {"x": np.arange(4, dtype=np.float32)}
W = np.ones(4, np.float32)


def test_it_takes_part_in_the_signal_calls(engine: Any) -> None:
    """The engine runs signal calls by name and left open, with the CPU's numbers."""
    want = rlx.welch_peaks(ROWS_OF_X, fs=256, k=4, device="cpu")
    for device in ("mlx", None):
        found = rlx.welch_peaks(ROWS_OF_X, fs=256, k=4, device=device)
        np.testing.assert_array_equal(found.bins, want.bins)
        np.testing.assert_allclose(found.power, want.power, rtol=1e-4)
        assert found.explain()
    asked = rlx.welch_peaks(ROWS_OF_X, fs=256, k=4, device="mlx")
    assert (asked.device, asked.engine) == (Device.MLX, engine.name)
    _, power = rlx.welch(ROWS_OF_X, fs=256, device="mlx")
    _, right = rlx.welch(ROWS_OF_X, fs=256, device="cpu")
    np.testing.assert_allclose(power, right, rtol=1e-4, atol=1e-7)


def test_it_takes_part_in_graphs(engine: Any) -> None:
    """The engine runs graphs by name, on "auto" and through runners of every kind."""
    compiled = rlx.Session("auto").compile(doubled())
    compiled.set_param("w", W)
    np.testing.assert_array_equal(compiled.run(FEEDS)[0], FEEDS["x"] * 2 + 1)
    assert compiled.explain()
    one = rlx.GraphDevices(doubled(), rlx.DevicePolicy.from_env())
    one.set_param("w", W)
    assert Device.MLX in one.devices
    for run in (one.run_resolved, one.run_fastest):
        np.testing.assert_array_equal(run(FEEDS)[0], FEEDS["x"] * 2 + 1)
    device, outs = one.run_try(["mlx"], FEEDS)
    assert device is Device.MLX
    np.testing.assert_array_equal(outs[0], FEEDS["x"] * 2 + 1)
    assert one.explain()
    rows = {row.label: row for row in rlx.device_report(doubled())}
    assert rows["mlx"].supports_graph


def test_arrays_stay_on_it(engine: Any) -> None:
    """Arrays stay on an engine that says nothing of them, in the host's memory."""
    x, compiled = rlx.put(FEEDS["x"], "mlx"), rlx.Session("mlx").compile(doubled())
    compiled.set_param("w", x)
    (first,) = compiled.run({"x": x}, keep=True)
    compiled.set_param("w", first)
    np.testing.assert_array_equal(compiled.run({"x": x})[0], FEEDS["x"] * 5)
    assert (first.device, first.engine) == (Device.MLX, engine.name)
    found = rlx.welch_peaks(rlx.put(ROWS_OF_X, "mlx"), fs=256, k=4)
    want = rlx.welch_peaks(ROWS_OF_X, fs=256, k=4, device="cpu")
    np.testing.assert_array_equal(found.bins, want.bins)
    assert found.engine == engine.name


@pytest.mark.parametrize("engine", ["beside others"], indirect=True)
def test_it_is_calibrated_and_then_priced(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is calibrated without trips: runs, calls, kernels and Welch jobs."""
    fewer = {one: rows[:2] for one, rows in welch_jobs.GRID.items()}
    monkeypatch.setattr(welch_jobs, "GRID", fewer)
    quick = Stopwatch(1, samples=1, least=1, budget_ns=1.0)
    record, path = measure_now(PLACE, watch=quick, budget_s=120.0)
    assert path is not None
    assert record.engine == engine.name
    kinds = {point.what for point in record.points}
    assert {"run", "call", "copy", "welch_fused"} <= kinds
    assert "submit" not in kinds
    found = rlx.welch_peaks(ROWS_OF_X, fs=256, k=4, device="mlx").decision
    assert found.candidates[0].source == "calibrated"
    assert found.candidates[0].terms is not None


def test_it_is_on_the_command_line(engine: Any, call: Call) -> None:
    """The commands devices, explain and calibrate name the engine."""
    said = call("devices", "--json")
    assert said.code == 0, said.err
    rows = {row["device"]: row for row in json.loads(said.out)["devices"]}
    assert (rows["mlx"]["available"], rows["mlx"]["engine"]) == (True, engine.name)
    said = call("explain", "--batch", "4", "--device", "mlx")
    assert said.code == 0, said.err
    assert engine.name in said.out
    said = call("calibrate", "--device", "mlx", "--json", "--budget-s", "0.1")
    assert said.code == 0, said.err
    assert json.loads(said.out)["records"][0]["engine"] == engine.name


def test_what_it_does_not_offer_is_refused(engine: Any) -> None:
    """A verb that an engine lacks is refused with the reason, no AttributeError."""
    assert PLACE in available_places()
    assert CPU in available_places()
    with pytest.raises(Unsupported, match="limits can be set for wgpu devices only"):
        rlx.Session("mlx", limits=shrunk())


def patched(text: str, diff: str) -> str:
    """The text with every hunk in the place of its lines, which occur once."""
    for hunk in diff.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_one_file_and_one_row_are_an_engine(tmp_path: Path) -> None:
    """The page's diff, put into a copy of the package, makes an engine."""
    # With what was compiled: else Python would compile all of it anew.
    shutil.copytree(ROOT / "rlxweb", tmp_path / "rlxweb")
    backends = tmp_path / "rlxweb" / "backends"
    (backends / "node_by_node.py").write_text(block("python"), "utf-8")
    registry = backends / "registry.py"
    changed = patched(registry.read_text("utf-8"), block("diff"))
    registry.write_text(changed, "utf-8")
    code = (
        "import numpy as np, rlxweb as rlx\n"
        "print(rlx.__file__)\n"
        "x = np.sin(np.arange(512, dtype=np.float32))\n"
        "print(rlx.welch_peaks(x, fs=1, k=1, device='node-by-node').engine)\n"
        "print(rlx.parse_device('node-by-node').display)\n"
        "print(*rlx.available_devices())\n"
    )
    said = python("-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert said.code == 0, said.err
    where, engine, display, there = said.out.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert engine.endswith("node by node")
    assert display == "Node by node"
    assert there.endswith("Node by node CPU")
