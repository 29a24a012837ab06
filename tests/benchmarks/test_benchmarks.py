"""Tests of the benchmark itself: counts, verdicts, and agreement of the answers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import numpy as np
import pytest

from tests.benchmarks import (
    bands_command_process_cells,
    cpu_op_cells,
    cpu_welch_cells,
    handwritten_welch_shader,
    model_cells,
    model_files,
    peer_libraries,
    spectral_cells,
    welch_cells,
)
from tests.benchmarks.benchmark_cells import (
    QUICK_STOPWATCH,
    BenchmarkCell,
    CellResult,
    Goal,
    PeerEntry,
    run_cell,
)
from tests.benchmarks.report import SCHEMA, document
from tests.cli_runners import run_forked
from tests.suite_tiers import thin_out_cases


def counting_work(
    our_count: int, other_count: int, check: object = None
) -> BenchmarkCell:
    """Create a cell whose peers count to these numbers."""
    entries = (
        PeerEntry("ours", "here", lambda: sum(range(our_count)), True),
        PeerEntry("other", "here", lambda: sum(range(other_count))),
    )
    goal = Goal("ours", ("other", "absent"), 3.0)
    return BenchmarkCell("count", entries, (goal,), check or (lambda: None))


def test_goals_are_ratios_within_one_cell() -> None:
    """A losing row stays, and its goal is reported as missed."""
    fast = run_cell(counting_work(10, 200_000), QUICK_STOPWATCH)
    slow = run_cell(counting_work(200_000, 10), QUICK_STOPWATCH)
    assert [v.is_met for v in (*fast.goal_results, *slow.goal_results)] == [True, False]
    record = document([fast, slow], {}, {})
    assert record["schema"] == SCHEMA
    assert record["goals"]["met"] == 1
    (missed,) = record["goals"]["missed"]
    assert "MISSED" in missed
    assert [len(cell["rows"]) for cell in record["cells"]] == [2, 2]


def test_a_wrong_answer_leaves_no_rows() -> None:
    """A fast wrong answer is no result."""
    differ = Mock(side_effect=AssertionError("ours: 7 bins differ"))
    cell = run_cell(counting_work(1, 1, differ), QUICK_STOPWATCH)
    assert cell == CellResult("count", answer_error="ours: 7 bins differ")
    assert document([cell], {}, {})["wrong"] == ["count: ours: 7 bins differ"]


def test_the_peers_on_the_cpu_agree() -> None:
    """Plain NumPy, both SciPy methods and rlxweb find the same bins and powers."""
    x = np.random.default_rng(0).standard_normal((5, 384), dtype=np.float32)
    entries = list(welch_cells._host_entries(x, 256, 128))
    assert len(entries) == 5
    welch_cells._check_agreement(entries, x, 256, 128)


def test_unrolled_transform_is_a_dft() -> None:
    """The generated code, evaluated as Python, agrees with numpy.fft."""
    values = np.random.default_rng(1).standard_normal(16) + 1j
    lines = handwritten_welch_shader.WgslLines("t")
    variables = {f"a{i}": v.real for i, v in enumerate(values)}
    variables |= {f"b{i}": v.imag for i, v in enumerate(values)}
    out = lines.emit_dft([(f"a{i}", f"b{i}") for i in range(16)])
    for line in lines.statements:
        name, expression = line.removeprefix("let ").rstrip(";").split(" = ")
        variables[name] = eval(expression, {}, variables)
    spectrum = [variables[re] + 1j * variables[im] for re, im in out]
    np.testing.assert_allclose(spectrum, np.fft.fft(values), atol=1e-7)


@pytest.mark.requires_wgpu
@pytest.mark.slow
@pytest.mark.parametrize(
    "only",
    thin_out_cases(["hand softmax", "n=256 batch=32", "hand matmul", "hand 100"], 4),
)
def test_a_quick_run_writes_its_record(
    tmp_path: Path, only: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every peer answers correctly, all rows are kept, and later runs allocate
    nothing.
    """
    # The module would set these for good, and drivers would compile all anew.
    for name in ("MESA_SHADER_CACHE_DISABLE", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    from tests.benchmarks.__main__ import main

    args = "--quick", "--only", only, "--json", str(tmp_path / "r.json")
    assert main(args) == 0
    record = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert record["wrong"] == []
    (cell,) = [c for c in record["cells"] if not c["cell"].startswith("cpu")]
    assert only in cell["cell"]
    assert all(row["engine"] and row["ms"] > 0 for row in cell["rows"])
    assert cell["steady"]["created"] == {"buffers": 0, "pipelines": 0, "bind_groups": 0}
    assert cell["steady"]["live_grew_by"] == 0
    assert record["machine"]["adapters"]


def test_dev_bench_starts() -> None:
    """`python -m tests.benchmarks --help` lists the options."""
    result = run_forked("-m", "tests.benchmarks", "--help")
    assert result.code == 0, result
    assert "--quick" in result.out


def test_spectra_over_time_have_right_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy and MNE, which are installed, agree on spectra over time."""
    monkeypatch.setattr(spectral_cells, "SECONDS", 20)
    for _, make in spectral_cells.works():
        cell_work = make()
        assert sum(not entry.is_ours for entry in cell_work.entries) == 1
        cell_work.check()


def test_whole_processes_have_right_answers() -> None:
    """`rlxweb bands` and a script over MNE agree on the same recordings."""
    ((_, make),) = bands_command_process_cells.works()
    cell_work = make()
    try:
        for entry in cell_work.entries:
            entry.run()
        cell_work.check()
    finally:
        cell_work.close()


def test_every_cell_of_the_cpu_has_right_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every installed library is correct; a missing one is named with the reason."""
    monkeypatch.setattr(cpu_welch_cells, "SIZES", ((256, 2, 3), (105, 3, 17)))
    names = []
    for name, make in (
        *cpu_welch_cells.cell_factories(),
        *cpu_op_cells.cell_factories(),
    ):
        names.append(name)
        cell_work = make()
        cell_work.check()
        assert {entry.name for entry in cell_work.entries} >= {
            peer_libraries.NUMPY_PEER
        }
        cell_work.close()
    assert len(names) == 2 + len(cpu_op_cells.OPS)
    assert all(peer_libraries.missing_libraries().values())


def test_networks_give_the_same_answers() -> None:
    """Rlxweb and ONNX Runtime agree on a model file of the cell, and on MiniLM written
    op by op.
    """
    files = model_files.installed_models()
    for name in ("Silero, 1 s", "MiniLM 1x32"):
        work = model_cells._cpu_cell(name, files[name])
        assert len(work.entries) == 3
        try:
            work.check()
        finally:
            work.close()


def test_a_peer_that_hangs_is_stopped_by_a_timeout() -> None:
    with model_cells.time_limit(60):  # of others, which stays
        with (
            pytest.raises(TimeoutError, match=r"in 0\.05 s"),
            model_cells.time_limit(0.05),
        ):
            Event().wait(30)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
