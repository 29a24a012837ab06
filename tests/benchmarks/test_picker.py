"""`./dev bench sweep picker`: table, JSON, refusals and Ctrl-C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlxweb.decision.candidate import Candidate
from rlxweb.device import Device
from rlxweb.devices.place import CPU
from rlxweb.errors import DeviceLost
from rlxweb.gpu.port import Want
from tests.benchmarks import picker, picker_sweep
from tests.benchmarks.made_picker import MS, Machine, way
from tests.benchmarks.picker_sweep import Cell, Sweep
from tests.command_line import ROOT, Call, check_refused
from tests.unit.cli.known import place_of

SMALL = (
    *("picker", "--device", "cpu", "--n-fft", "64", "--batch", "1,2,4"),
    *("--k", "4", "--segments", "2"),
)
A, B = way("fused", 1, Device.VULKAN, how="fused_op"), way("fast", 2, how="host")
Bench = Callable[..., Machine]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Puts a made-up machine behind the command; `seen` are the options it got."""

    def installed(machine: Machine | None = None, *ways: Candidate) -> Machine:
        machine = machine or Machine({"fused": 30 * MS, "fast": 20 * MS})
        found = ways or (A, B)
        monkeypatch.setattr(picker_sweep, "welch_candidates", lambda *a, **k: found)
        one = partial(Sweep, runner=machine, clock=machine.clock)
        monkeypatch.setattr(picker, "Sweep", one)
        return machine

    return installed


def interrupted_at(values: int) -> Machine:
    """Ctrl-C as soon as a cell of so many values, rows times samples, is run."""

    class Stopped(Machine):
        def __call__(self, candidate: Candidate, job: Any, x: Any) -> None:
            if x.size == values:
                raise KeyboardInterrupt
            super().__call__(candidate, job, x)

    return Stopped({"fused": 20 * MS, "fast": 20 * MS})


def test_the_table_and_the_numbers_below_it(call: Call, bench: Bench) -> None:
    """Pick, predicted and measured, the best, regrets; then what they come to."""
    bench()
    said = call(*SMALL)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    rows = [line.split() for line in lines if line.split()[:1] == ["64"]]
    assert [r[1] for r in rows] == ["1", "2", "4"]
    for cells in rows:
        assert cells[4:] == (
            "fused vulkan 1.00 ms 30.0 ms fast cpu 20.0 ms 1.50 1.00".split()
        )
    assert "regret over 3 cells: median 1.500, 90 % 1.500, worst 1.500" in lines
    assert "devices alone, CPU left out: median 1.000, 90 % 1.000, worst 1.000" in lines
    assert "model of cpu engine host: off by 900% (median)" in lines
    assert "model of vulkan engine fused_op: off by 2900% (median)" in lines
    losing = "losing: n 64 batch 4 k 4 segments 2: fused vulkan took 1.50 times"
    assert any(line.startswith(losing) for line in lines)


def test_the_record_holds_every_way_of_every_cell(call: Call, bench: Bench) -> None:
    """JSON alone on stdout, the table on stderr."""
    bench()
    said = call(*SMALL, "--json", "-", "--rounds", 4)
    assert said.code == 0
    assert "regret over 3 cells" in said.err
    record = said.record
    assert set(record) == {
        *("schema", "rlxweb", "versions", "machine", "engines", "rounds"),
        *("left_out", "cells", "summary"),
    }
    assert record["schema"] == "rlxweb.bench.picker/1"
    assert (record["rounds"], record["left_out"]) == (4, [])
    assert [name.split()[0] for name in record["engines"]] == ["NumPy"]
    assert {"python", "numpy"} <= set(record["versions"])
    cell = record["cells"][0]
    assert {k: v for k, v in cell.items() if k != "rows"} == {
        **{"n_fft": 64, "batch": 1, "k": 4, "segments": 2},
        **{"regret": 1.5, "device_regret": 1.0},
    }
    assert cell["rows"][0] == {
        **{"device": "vulkan", "engine": "vulkan engine", "strategy": "fused"},
        **{"how": "fused_op", "source": "calibrated", "error": ""},
        **{"predicted_ms": 1.0, "measured_ms": 30.0, "first_ms": 30.0},
        **{"spread": 0.0, "samples": 4},
    }
    assert [r["strategy"] for r in cell["rows"]] == ["fused", "fast"]
    summary = record["summary"]
    assert summary["regret"] == {"median": 1.5, "p90": 1.5, "worst": 1.5}
    assert summary["device_regret"] == {"median": 1.0, "p90": 1.0, "worst": 1.0}
    assert len(summary["losing"]) == 3


def test_without_devices_there_is_no_regret_of_theirs(call: Call, bench: Bench) -> None:
    """The devices' regret is null in JSON and not in the text where there are none."""
    bench(None, B)
    said = call(*SMALL, "--json", "-")
    assert said.code == 0
    assert set(said.record["summary"]["device_regret"].values()) == {None}
    assert {c["device_regret"] for c in said.record["cells"]} == {None}
    assert "devices alone" not in said.err
    assert "nan" not in said.err


def test_cells_where_nothing_ran_are_shown_as_such(
    call: Call, bench: Bench, tmp_path: Path
) -> None:
    """The sweep goes on, and the errors are in the record."""
    bench(Machine({"fast": DeviceLost("run", "it went away")}), B)
    said = call(*SMALL, "--json", "-")
    assert said.code == 0
    assert said.err.count("nothing ran") == 3
    (one,) = said.record["cells"][0]["rows"]
    assert (one["error"], one["measured_ms"]) == ("run: it went away", None)
    assert said.record["summary"]["cells"] == 0
    assert "nan" not in said.err


def test_what_does_not_fit_is_left_out_by_name(call: Call, bench: Bench) -> None:
    """A cell that does not fit is named in text and record; the rest is measured."""
    machine = bench()
    args = [*SMALL, "--max-gib", 1e-6, "--json", "-"]
    said = call(*args)
    assert [c["batch"] for c in said.record["cells"]] == [1, 2]
    (why,) = said.record["left_out"]
    assert why.startswith("n 64 batch 4 k 4 segments 2: it takes ")
    assert f"left out: {why}" in said.err.splitlines()
    assert {x.shape[0] for _, x in machine.seen} == {1, 2}
    said = call(*SMALL, "--max-gib", 1e-9, "--json", "-")
    assert said.code == 0
    assert said.record["cells"] == []
    assert "no cell was measured" in said.err


def test_options_reach_the_sweep(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole grid by default, a few small cells with --quick."""
    seen: list[tuple[Sweep, list[Cell]]] = []

    class Empty(Sweep):
        def run(self, cells: Sequence[Cell]) -> Any:
            seen.append((self, list(cells)))
            return iter(())

    monkeypatch.setattr(picker, "Sweep", Empty)
    here = "picker", "--device", "cpu", "--device", "CPU"
    options = "--rounds", 9, "--budget-s", 5, "--max-gib", 2, "--min-segments", 1
    assert call(*here, *options).code == 0
    assert call(*here, "--quick").code == 0
    assert call(*here, "--quick", "--rounds", 5).code == 0
    assert call(*here, "--quick", "--n-fft", "128,128, 32").code == 0
    (full, cells), (quick, few), (fair, _), (_, own) = seen
    assert (full.rounds, full.budget_s, full.max_gib) == (9, 5.0, 2.0)
    assert (full.min_segments, full.places) == (1, [CPU])
    assert {c.n_fft for c in cells} == {64, 256, 1024, 4096}
    assert {c.batch for c in cells} == {1, 8, 32, 256, 1024, 8192}
    assert {(c.k, c.segments) for c in cells} == {(4, 2), (4, 8), (16, 2), (16, 8)}
    assert len(cells) == 4 * 6 * 4
    assert (quick.rounds, quick.min_segments, fair.rounds) == (3, None, 5)
    assert 0 < len(few) < 20
    assert max(c.gib for c in few) < 0.01
    assert {c.n_fft for c in own} == {32, 128}
    assert len(own) == len(few)


def test_engines_are_measured_before_the_sweep(
    call: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every engine is measured before the sweep, not in the middle of it."""
    machine, calls = bench(), []

    def record_for(*place: object) -> None:
        calls.append((place[:2], len(machine.log)))

    monkeypatch.setattr(picker, "record_for", record_for)
    assert call(*SMALL).code == 0
    assert calls == []  # RLX_CALIBRATION=off
    machine.log.clear()
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    assert call(*SMALL).code == 0
    assert calls == [((Device.CPU, ""), 0)]


def test_ctrl_c_keeps_what_was_measured(
    call: Call, bench: Bench, tmp_path: Path
) -> None:
    """Table, and record of the cells before it; the exit code tells."""
    bench(interrupted_at(2 * 96))
    out = tmp_path / "o.json"
    said = call(*SMALL, "--json", out)
    assert said.code == 130
    told = [line for line in said.err.splitlines() if line]
    assert told == ["rlxweb: stopped"]
    assert "regret over 1 cell: median 1.000" in said.out
    assert "left out: 2 cells: stopped" in said.out
    record = json.loads(out.read_text("utf-8"))
    assert [c["batch"] for c in record["cells"]] == [1]
    assert record["left_out"] == ["2 cells: stopped"]


def test_cells_left_out_before_ctrl_c_are_not_counted_as_stopped(
    call: Call, bench: Bench
) -> None:
    """A cell that is too large is not counted with those that Ctrl-C stopped.

    One cell is run, one too large, one interrupted, and one never begun.
    """
    bench(interrupted_at(2 * 96))
    cells = "--n-fft", "1,64", "--batch", "2,100", "--k", 1
    said = call(*SMALL, *cells, "--max-gib", 7.3e-7, "--json", "-")
    assert said.code == 130
    assert [(c["n_fft"], c["batch"]) for c in said.record["cells"]] == [(1, 2)]
    too_large, stopped = said.record["left_out"]
    assert too_large.startswith("n 1 batch 100 ")
    assert stopped == "2 cells: stopped"


def test_ctrl_c_at_once_still_leaves_a_record(
    call: Call, bench: Bench, tmp_path: Path
) -> None:
    bench(interrupted_at(96))
    said = call(*SMALL, "--json", "-")
    assert said.code == 130
    assert said.record["cells"] == []
    assert said.record["left_out"] == ["3 cells: stopped"]
    assert "no cell was measured, so there is no regret" in said.err


REFUSED = {
    "no number": (("--n-fft", "64,x"), "--n-fft: '64,x'; whole numbers from 1"),
    "no numbers": (("--batch", " , "), "--batch: ' , '; whole numbers from 1"),
    "nothing": (("--segments", ""), "--segments: ''; whole numbers from 1"),
    "zero": (("--segments", "2,0"), "--segments: '2,0'; whole numbers from 1"),
    "half": (("--batch", "1.5"), "--batch: '1.5'; whole numbers from 1"),
    "absurd": (("--batch", f"1,{10**400}"), "whole numbers from 1 to"),
    "more digits than Python reads": (("--batch", "9" * 5000), "--batch: "),
    "more peaks than bins": (("--n-fft", "64,8", "--k", "6"), "n_fft 8 has 5 bins"),
    "too few rounds": (("--rounds", 2), "2 is not in the range x>=3"),
    "no budget": (("--budget-s", 0), "0.0 is not above 0"),
    "less than no budget": (("--budget-s", -1), "-1.0 is not above 0"),
    "a budget that is no number": (("--budget-s", "nan"), "nan is not above 0"),
    "no memory": (("--max-gib", 0), "0.0 is not above 0"),
    "no number of GiB": (("--max-gib", "nan"), "nan is not above 0"),
    "no segments": (("--min-segments", 0), "0 is not in the range"),
    "more segments than a cell has": (
        ("--segments", "8,2", "--min-segments", 3),
        "it is 3; at most 2, the fewest of --segments",
    ),
    "an unknown device": (("--device", "abacus"), "unknown device 'abacus'"),
    "an unknown option": (("--fast",), "No such option"),
    "an argument": (("x.npy",), "unexpected extra argument"),
    "a folder that is not there": (
        ("--json", "gone/o.json"),
        "there is no such folder",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nonsense_is_refused_before_anything_is_run(
    call: Call, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Nonsense is refused in one line with exit code 2, and no file is written."""
    machine = bench()
    monkeypatch.chdir(tmp_path)
    args, text = REFUSED[case]
    check_refused(call(*SMALL, *args), 2, text)
    assert machine.log == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requires_wgpu
def test_a_device_that_is_not_there_ends_with_3(call: Call, bench: Bench) -> None:
    machine = bench()
    for name in ("cuda", "vulkan:abacus"):
        check_refused(call("picker", "--device", name, "--quick"), 3)
    assert machine.log == []


def test_bench_alone_shows_its_help(call: Call) -> None:
    said = call()
    assert said.code == 2
    assert "picker" in said.out + said.err


def test_a_real_sweep_in_a_process_of_its_own(tmp_path: Path) -> None:
    """A few small cells on NumPy: every output is there and says the same."""
    out = tmp_path / "o.json"
    args = "picker", "--device", "cpu", "--n-fft", "64,256", "--batch", "1,4"
    more = "--k", "4", "--segments", "2", "--rounds", 3, "--min-segments", 1
    folder = {**os.environ, "RLX_CACHE_DIR": str(tmp_path / "c")}
    command = sys.executable, "-m", "tests.benchmarks.picker"
    done = subprocess.run(
        [*command, *args, *map(str, more), "--json", str(out)],
        env=folder,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(out.read_text("utf-8"))
    assert len(record["cells"]) == 4
    for cell in record["cells"]:
        assert {r["strategy"] for r in cell["rows"]} == {"fast", "ultra"}
        for row in cell["rows"]:
            assert (row["error"], row["samples"]) == ("", 3)
            assert min(row["first_ms"], row["measured_ms"]) > 0
        least = min(r["measured_ms"] for r in cell["rows"])
        assert cell["regret"] == pytest.approx(cell["rows"][0]["measured_ms"] / least)
    assert f"worst {record['summary']['regret']['worst']:.3f}" in done.stdout


def test_a_device_that_was_never_measured_is_left_out_of_the_race(
    call: Call, adapter: Want
) -> None:
    """An unmeasured device has no prediction where measuring is forbidden."""
    args = *SMALL, "--device", place_of(adapter), "--rounds", 3, "--json", "-"
    said = call(*args)
    assert said.code == 0
    assert len(said.record["engines"]) == 2
    rows = [r for c in said.record["cells"] for r in c["rows"]]
    assert {r["device"] for r in rows} == {"cpu"}
