"""Tests of `./dev bench sweep picker`: table, JSON, refusals and Ctrl-C."""

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

from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceLost
from rlxweb.cost.decision import Candidate
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.select.device_and_adapter import CPU_PLACE
from tests.benchmarks import placement_sweep, sweep_command
from tests.benchmarks.fake_machine import MS, FakeMachine, make_candidate
from tests.benchmarks.placement_sweep import PlacementSweep, WelchCell
from tests.cli_runners import ROOT, CommandRunner, check_rejected
from tests.unit.cli.fake_calibrations import adapter_place

SMALL_GRID = (
    *("picker", "--device", "cpu", "--n-fft", "64", "--batch", "1,2,4"),
    *("--k", "4", "--segments", "2"),
)
A = make_candidate("fused", 1, Device.VULKAN, how="fused_op")
B = make_candidate("fast", 2, how="host")
InstallMachine = Callable[..., FakeMachine]


@pytest.fixture
def install_machine(monkeypatch: pytest.MonkeyPatch) -> InstallMachine:
    """Return a function that puts a simulated machine behind the command."""

    def install(
        machine: FakeMachine | None = None, *candidates: Candidate
    ) -> FakeMachine:
        machine = machine or FakeMachine({"fused": 30 * MS, "fast": 20 * MS})
        offered = candidates or (A, B)
        monkeypatch.setattr(
            placement_sweep, "welch_candidates", lambda *a, **k: offered
        )
        sweep = partial(PlacementSweep, runner=machine, clock=machine.clock)
        monkeypatch.setattr(sweep_command, "PlacementSweep", sweep)
        return machine

    return install


def machine_interrupted_at(values: int) -> FakeMachine:
    """Create a machine that is interrupted by Ctrl-C when a cell of so many values,
    rows times samples, is run.
    """

    class InterruptedMachine(FakeMachine):
        def __call__(self, candidate: Candidate, job: Any, x: Any) -> None:
            if x.size == values:
                raise KeyboardInterrupt
            super().__call__(candidate, job, x)

    return InterruptedMachine({"fused": 20 * MS, "fast": 20 * MS})


def test_the_table_and_the_numbers_below_it(
    call: CommandRunner, install_machine: InstallMachine
) -> None:
    """The table has pick, predicted and measured time, best and regrets; a summary
    follows.
    """
    install_machine()
    result = call(*SMALL_GRID)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
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


def test_the_record_has_every_candidate_of_every_cell(
    call: CommandRunner, install_machine: InstallMachine
) -> None:
    """JSON alone on stdout, the table on stderr."""
    install_machine()
    result = call(*SMALL_GRID, "--json", "-", "--rounds", 4)
    assert result.code == 0
    assert "regret over 3 cells" in result.err
    record = result.document
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


def test_without_devices_there_is_no_device_regret(
    call: CommandRunner, install_machine: InstallMachine
) -> None:
    """The device regret is null in JSON and absent from the text if there are no
    devices.
    """
    install_machine(None, B)
    result = call(*SMALL_GRID, "--json", "-")
    assert result.code == 0
    assert set(result.document["summary"]["device_regret"].values()) == {None}
    assert {c["device_regret"] for c in result.document["cells"]} == {None}
    assert "devices alone" not in result.err
    assert "nan" not in result.err


def test_cells_where_nothing_ran_are_shown_as_such(
    call: CommandRunner, install_machine: InstallMachine, tmp_path: Path
) -> None:
    """The sweep goes on, and the errors are in the record."""
    install_machine(FakeMachine({"fast": DeviceLost("run", "it went away")}), B)
    result = call(*SMALL_GRID, "--json", "-")
    assert result.code == 0
    assert result.err.count("nothing ran") == 3
    (row,) = result.document["cells"][0]["rows"]
    assert (row["error"], row["measured_ms"]) == ("run: it went away", None)
    assert result.document["summary"]["cells"] == 0
    assert "nan" not in result.err


def test_cells_that_do_not_fit_are_skipped_and_named(
    call: CommandRunner, install_machine: InstallMachine
) -> None:
    """A cell that does not fit is named in text and record; the rest is measured."""
    machine = install_machine()
    args = [*SMALL_GRID, "--max-gib", 1e-6, "--json", "-"]
    result = call(*args)
    assert [c["batch"] for c in result.document["cells"]] == [1, 2]
    (reason,) = result.document["left_out"]
    assert reason.startswith("n 64 batch 4 k 4 segments 2: it takes ")
    assert f"left out: {reason}" in result.err.splitlines()
    assert {x.shape[0] for _, x in machine.call_arguments} == {1, 2}
    result = call(*SMALL_GRID, "--max-gib", 1e-9, "--json", "-")
    assert result.code == 0
    assert result.document["cells"] == []
    assert "no cell was measured" in result.err


def test_options_reach_the_sweep(
    call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole grid by default, a few small cells with --quick."""
    sweeps: list[tuple[PlacementSweep, list[WelchCell]]] = []

    class Empty(PlacementSweep):
        def run(self, cells: Sequence[WelchCell]) -> Any:
            sweeps.append((self, list(cells)))
            return iter(())

    monkeypatch.setattr(sweep_command, "PlacementSweep", Empty)
    arguments = "picker", "--device", "cpu", "--device", "CPU"
    options = "--rounds", 9, "--budget-s", 5, "--max-gib", 2, "--min-segments", 1
    assert call(*arguments, *options).code == 0
    assert call(*arguments, "--quick").code == 0
    assert call(*arguments, "--quick", "--rounds", 5).code == 0
    assert call(*arguments, "--quick", "--n-fft", "128,128, 32").code == 0
    (full, cells), (quick, quick_cells), (custom, _), (_, chosen_cells) = sweeps
    assert (full.rounds, full.budget_s, full.max_gib) == (9, 5.0, 2.0)
    assert (full.min_segments, full.places) == (1, [CPU_PLACE])
    assert {c.n_fft for c in cells} == {64, 256, 1024, 4096}
    assert {c.batch for c in cells} == {1, 8, 32, 256, 1024, 8192}
    assert {(c.k, c.segments) for c in cells} == {(4, 2), (4, 8), (16, 2), (16, 8)}
    assert len(cells) == 4 * 6 * 4
    assert (quick.rounds, quick.min_segments, custom.rounds) == (3, None, 5)
    assert 0 < len(quick_cells) < 20
    assert max(c.gib for c in quick_cells) < 0.01
    assert {c.n_fft for c in chosen_cells} == {32, 128}
    assert len(chosen_cells) == len(quick_cells)


def test_engines_are_measured_before_the_sweep(
    call: CommandRunner,
    install_machine: InstallMachine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every engine is measured before the sweep, not in the middle of it."""
    machine, calls = install_machine(), []

    def record_for(*place: object) -> None:
        calls.append((place[:2], len(machine.called_strategies)))

    monkeypatch.setattr(sweep_command, "record_for", record_for)
    assert call(*SMALL_GRID).code == 0
    assert calls == []  # RLX_CALIBRATION=off
    machine.called_strategies.clear()
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    assert call(*SMALL_GRID).code == 0
    assert calls == [((Device.CPU, ""), 0)]


def test_ctrl_c_keeps_what_was_measured(
    call: CommandRunner, install_machine: InstallMachine, tmp_path: Path
) -> None:
    """Ctrl-C keeps the table and the record of the cells before it; the exit code is
    130.
    """
    install_machine(machine_interrupted_at(2 * 96))
    out = tmp_path / "o.json"
    result = call(*SMALL_GRID, "--json", out)
    assert result.code == 130
    error_lines = [line for line in result.err.splitlines() if line]
    assert error_lines == ["rlxweb: stopped"]
    assert "regret over 1 cell: median 1.000" in result.out
    assert "left out: 2 cells: stopped" in result.out
    record = json.loads(out.read_text("utf-8"))
    assert [c["batch"] for c in record["cells"]] == [1]
    assert record["left_out"] == ["2 cells: stopped"]


def test_cells_left_out_before_ctrl_c_are_not_counted_as_stopped(
    call: CommandRunner, install_machine: InstallMachine
) -> None:
    """A cell that is too large is not counted with those that Ctrl-C stopped.

    One cell is run, one too large, one interrupted, and one never begun.
    """
    install_machine(machine_interrupted_at(2 * 96))
    cells = "--n-fft", "1,64", "--batch", "2,100", "--k", 1
    result = call(*SMALL_GRID, *cells, "--max-gib", 7.3e-7, "--json", "-")
    assert result.code == 130
    assert [(c["n_fft"], c["batch"]) for c in result.document["cells"]] == [(1, 2)]
    too_large, stopped = result.document["left_out"]
    assert too_large.startswith("n 1 batch 100 ")
    assert stopped == "2 cells: stopped"


def test_ctrl_c_at_once_still_leaves_a_record(
    call: CommandRunner, install_machine: InstallMachine, tmp_path: Path
) -> None:
    install_machine(machine_interrupted_at(96))
    result = call(*SMALL_GRID, "--json", "-")
    assert result.code == 130
    assert result.document["cells"] == []
    assert result.document["left_out"] == ["3 cells: stopped"]
    assert "no cell was measured, so there is no regret" in result.err


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
        "the folder does not exist",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_options_are_refused_before_anything_is_run(
    call: CommandRunner,
    install_machine: InstallMachine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    """Invalid options are refused in one line with exit code 2, and no file is
    written.
    """
    machine = install_machine()
    monkeypatch.chdir(tmp_path)
    args, text = REFUSED[case]
    check_rejected(call(*SMALL_GRID, *args), 2, text)
    assert machine.called_strategies == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requires_wgpu
def test_a_missing_device_ends_with_exit_code_3(
    call: CommandRunner, install_machine: InstallMachine
) -> None:
    machine = install_machine()
    for name in ("cuda", "vulkan:abacus"):
        check_rejected(call("picker", "--device", name, "--quick"), 3)
    assert machine.called_strategies == []


def test_command_without_arguments_shows_help(call: CommandRunner) -> None:
    result = call()
    assert result.code == 2
    assert "picker" in result.out + result.err


def test_a_real_sweep_in_a_process_of_its_own(tmp_path: Path) -> None:
    """A few small cells on NumPy: every output is there and says the same."""
    out = tmp_path / "o.json"
    args = "picker", "--device", "cpu", "--n-fft", "64,256", "--batch", "1,4"
    grid_options = "--k", "4", "--segments", "2", "--rounds", 3, "--min-segments", 1
    environment = {**os.environ, "RLX_CACHE_DIR": str(tmp_path / "c")}
    command = sys.executable, "-m", "tests.benchmarks.sweep_command"
    process = subprocess.run(
        [*command, *args, *map(str, grid_options), "--json", str(out)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    record = json.loads(out.read_text("utf-8"))
    assert len(record["cells"]) == 4
    for cell in record["cells"]:
        assert {r["strategy"] for r in cell["rows"]} == {"fast", "ultra"}
        for row in cell["rows"]:
            assert (row["error"], row["samples"]) == ("", 3)
            assert min(row["first_ms"], row["measured_ms"]) > 0
        min_ms = min(r["measured_ms"] for r in cell["rows"])
        assert cell["regret"] == pytest.approx(cell["rows"][0]["measured_ms"] / min_ms)
    assert f"worst {record['summary']['regret']['worst']:.3f}" in process.stdout


def test_an_uncalibrated_device_is_skipped(
    call: CommandRunner, adapter: AdapterRequest
) -> None:
    """An unmeasured device has no prediction where measuring is forbidden."""
    args = *SMALL_GRID, "--device", adapter_place(adapter), "--rounds", 3, "--json", "-"
    result = call(*args)
    assert result.code == 0
    assert len(result.document["engines"]) == 2
    rows = [r for c in result.document["cells"] for r in c["rows"]]
    assert {r["device"] for r in rows} == {"cpu"}
