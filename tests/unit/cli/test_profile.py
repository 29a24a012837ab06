"""`rlxweb profile` of recordings and graphs: its files and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlxweb.batch.recording_analysis import analyse_file
from rlxweb.batch.settings import Settings
from rlxweb.batch.stage_timing import StageTimer
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import write_recording

MODULE = """
import numpy as np
import rlxweb as rlx

graph = rlx.Graph("tiny")
x, w = graph.input("x", (8, 16)), graph.param("w", (16, 4))
rows = graph.input("rows", (3,), "i32")
graph.set_outputs([graph.softmax(x @ w), graph.gather(x, rows)])

def ready():
    one = rlx.Session("cpu").compile(graph)
    one.set_param("w", np.ones((16, 4), "f4"))
    return one
"""


@pytest.fixture
def edf(tmp_path: Path) -> str:
    """A recording with 2 channels at 100 Hz and one at 500 Hz, 10 s long."""
    rates = ("EEG", 100), ("EOG", 100), ("ECG", 500)
    return str(write_recording(tmp_path / "x.edf", *rates, seconds=10))


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "tiny.py").write_text(MODULE)
    return str(tmp_path / "tiny.py")


STAGES = [
    "open the file",
    "choose the engine",
    "read",
    "check for non-finite samples",
    "estimate",
    "average",
    "find the peaks",
]


def test_recording_is_profiled_by_stage(
    call: CommandRunner, edf: str, tmp_path: Path
) -> None:
    """The table agrees with the JSON document; all samples are counted."""
    trace = tmp_path / "t.json"
    result = call("profile", edf, "--device", "cpu", "--json", "-", "--trace", trace)
    document = result.document
    stages = {stage["label"]: stage for stage in document["stages"]}
    assert list(stages) == STAGES
    samples = 2 * 1000 + 5000
    assert stages["read"]["bytes"] == 2 * samples  # EDF holds 16 bits
    assert stages["estimate"]["flops"] > 0
    assert stages["estimate"]["times"] == 2  # a block for each rate
    assert sum(stage["ns"] for stage in stages.values()) <= document["total_ns"]
    for label in STAGES:
        assert f"\n{label}  " in result.err
    trace_events = json.loads(trace.read_text())["traceEvents"]
    assert {e["name"] for e in trace_events if e["ph"] == "X"} == set(STAGES)


def test_profiling_does_not_change_results(edf: str) -> None:
    stages = StageTimer()
    profiled = analyse_file(edf, Settings(device="cpu"), None, stages)
    plain = analyse_file(edf, Settings(device="cpu"))
    for got, want in zip(profiled.groups, plain.groups, strict=True):
        np.testing.assert_array_equal(got.power, want.power)
        np.testing.assert_array_equal(got.peaks.hz, want.peaks.hz)
    assert stages.merged_stages()


@pytest.mark.requires_wgpu
def test_device_profile_lists_the_steps_of_a_block(
    call: CommandRunner, edf: str
) -> None:
    result = call("profile", edf, "--device", "vulkan", "--repeats", 2, "--json", "-")
    blocks = result.document["blocks"]
    assert [block["how"] for block in blocks] == ["device clock"] * 2
    assert all(step["ns"] > 0 for block in blocks for step in block["steps"])
    assert "one block on the device:" in result.err


def test_graph_from_a_python_file_is_profiled(
    call: CommandRunner, module: str, tmp_path: Path
) -> None:
    picture = tmp_path / "roof.svg"
    flags = "--device", "cpu", "--repeats", 3, "--json", "-", "--plot", picture
    result = call("profile", "--graph", f"{module}:ready", *flags)
    document = result.document
    assert document["schema"] == "rlxweb.profile/1"
    assert (document["graph"], document["repeats"]) == ("tiny", 3)
    assert [s["kind"] for s in document["steps"]] == ["matmul", "softmax", "gather"]
    assert "inputs: random noise, zeros for integer inputs" in result.err
    text = picture.read_text()
    assert "operations per byte" in text
    assert "GFLOP/s" in text


def test_weights_and_inputs_come_from_files(
    call: CommandRunner, module: str, tmp_path: Path
) -> None:
    weights, inputs = tmp_path / "w.npz", tmp_path / "x.npz"
    np.savez(weights, w=np.ones((16, 4), "f4"))
    np.savez(inputs, x=np.ones((8, 16), "f4"), rows=np.array([7, 0, 1], "i4"))
    file_options = "--weights", weights, "--inputs", inputs
    result = call(
        "profile", "--graph", f"{module}:graph", *file_options, "--device", "cpu"
    )
    assert result.code == 0
    assert "tiny on NumPy" in result.out
    assert "inputs: random noise" not in result.out
    np.savez(inputs, x=np.ones((8, 16), "f4"))
    result = call(
        "profile", "--graph", f"{module}:graph", *file_options, "--device", "cpu"
    )
    check_rejected(result, 2, "rows")
