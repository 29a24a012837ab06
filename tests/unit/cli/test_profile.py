"""`rlxweb profile`: of a recording and of a graph; its files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlxweb.jobs.analysis import analyse_file
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.stages import Stages
from tests.command_line import Call, check_refused
from tests.recordings import written

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
    """2 channels at 100 Hz and one at 500 Hz, 10 s."""
    rates = ("EEG", 100), ("EOG", 100), ("ECG", 500)
    return str(written(tmp_path / "x.edf", *rates, seconds=10))


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "tiny.py").write_text(MODULE)
    return str(tmp_path / "tiny.py")


STAGES = [
    "open the file",
    "choose the engine",
    "read",
    "look for gaps",
    "estimate",
    "average",
    "search the peaks",
]


def test_a_recording_goes_stage_by_stage(call: Call, edf: str, tmp_path: Path) -> None:
    """What the table says is what the record says; all samples are counted."""
    trace = tmp_path / "t.json"
    said = call("profile", edf, "--device", "cpu", "--json", "-", "--trace", trace)
    record = said.record
    stages = {one["label"]: one for one in record["stages"]}
    assert list(stages) == STAGES
    samples = 2 * 1000 + 5000
    assert stages["read"]["bytes"] == 2 * samples  # EDF holds 16 bits
    assert stages["estimate"]["flops"] > 0
    assert stages["estimate"]["times"] == 2  # a block for each rate
    assert sum(one["ns"] for one in stages.values()) <= record["total_ns"]
    for label in STAGES:
        assert f"\n{label}  " in said.err
    drawn = json.loads(trace.read_text())["traceEvents"]
    assert {e["name"] for e in drawn if e["ph"] == "X"} == set(STAGES)


def test_profiling_changes_no_result(edf: str) -> None:
    stages = Stages()
    one = analyse_file(edf, Settings(device="cpu"), None, stages)
    other = analyse_file(edf, Settings(device="cpu"))
    for got, want in zip(one.groups, other.groups, strict=True):
        np.testing.assert_array_equal(got.power, want.power)
        np.testing.assert_array_equal(got.peaks.hz, want.peaks.hz)
    assert stages.parts()


@pytest.mark.requires_wgpu
def test_on_a_device_the_steps_of_a_block_follow(call: Call, edf: str) -> None:
    said = call("profile", edf, "--device", "vulkan", "--repeats", 2, "--json", "-")
    blocks = said.record["blocks"]
    assert [one["how"] for one in blocks] == ["device clock"] * 2
    assert all(step["ns"] > 0 for one in blocks for step in one["steps"])
    assert "one block on the device:" in said.err


def test_a_graph_of_the_callers_code(call: Call, module: str, tmp_path: Path) -> None:
    picture = tmp_path / "roof.svg"
    flags = "--device", "cpu", "--repeats", 3, "--json", "-", "--plot", picture
    said = call("profile", "--graph", f"{module}:ready", *flags)
    record = said.record
    assert record["schema"] == "rlxweb.profile/1"
    assert (record["graph"], record["repeats"]) == ("tiny", 3)
    assert [s["kind"] for s in record["steps"]] == ["matmul", "softmax", "gather"]
    assert "inputs: noise, and zeros for whole numbers" in said.err
    text = picture.read_text()
    assert "operations a byte" in text
    assert "GFLOP/s" in text


def test_weights_and_inputs_come_from_files(
    call: Call, module: str, tmp_path: Path
) -> None:
    weights, inputs = tmp_path / "w.npz", tmp_path / "x.npz"
    np.savez(weights, w=np.ones((16, 4), "f4"))
    np.savez(inputs, x=np.ones((8, 16), "f4"), rows=np.array([7, 0, 1], "i4"))
    files = "--weights", weights, "--inputs", inputs
    said = call("profile", "--graph", f"{module}:graph", *files, "--device", "cpu")
    assert said.code == 0
    assert "tiny on NumPy" in said.out
    assert "inputs: noise" not in said.out
    np.savez(inputs, x=np.ones((8, 16), "f4"))
    said = call("profile", "--graph", f"{module}:graph", *files, "--device", "cpu")
    check_refused(said, 2, "rows")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "nothing is named"),
        (["a.edf", "--graph", "b.py:c"], "a FILE and a graph are named"),
        (["a.edf", "--weights", "w.npz"], "--weights: it is a graph's"),
        (["--graph", "b.py:c", "--nperseg", "64"], "--nperseg: it is a FILE's"),
        (["--graph", "b.py"], "it names no graph"),
        (["--graph", "gone.py:g"], "profile gone.py:g: there is no file 'gone.py'"),
        (["gone.edf"], "gone.edf"),
        (["a.edf", "--plot", "roof.gif"], "the suffix is '.gif'"),
        (["a.edf", "--repeats", "0"], "0"),
    ],
)
def test_nonsense_is_refused_in_one_line(
    call: Call, flags: list[str], words: str
) -> None:
    said = call("profile", *flags)
    assert said.code in (1, 2)
    check_refused(said, said.code, words)


def test_no_file_is_left_of_a_run_that_fails(call: Call, tmp_path: Path) -> None:
    target = tmp_path / "p.json"
    said = call("profile", tmp_path / "gone.edf", "--json", target)
    assert said.code != 0
    assert not target.exists()
