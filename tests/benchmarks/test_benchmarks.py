"""The benchmark itself: what it counts, how it judges, and that its answers agree."""

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
    cpu_cells,
    cpu_op_cells,
    hand_welch,
    libraries,
    model_cells,
    model_files,
    script_cells,
    spectral_cells,
    welch_cells,
)
from tests.benchmarks.cells import QUICK, Cell, Entry, Goal, Work, run
from tests.benchmarks.report import SCHEMA, document
from tests.command_line import forked
from tests.tiers import thinned


def work(ours: int, other: int, check: object = None) -> Work:
    """A cell whose peers count to these numbers."""
    entries = (
        Entry("ours", "here", lambda: sum(range(ours)), True),
        Entry("other", "here", lambda: sum(range(other))),
    )
    goal = Goal("ours", ("other", "absent"), 3.0)
    return Work("count", entries, (goal,), check or (lambda: None))


def test_goals_are_ratios_within_one_cell() -> None:
    """A losing row stays, and its goal is reported as missed."""
    fast, slow = run(work(10, 200_000), QUICK), run(work(200_000, 10), QUICK)
    assert [v.met for v in (*fast.verdicts, *slow.verdicts)] == [True, False]
    record = document([fast, slow], {}, {})
    assert record["schema"] == SCHEMA
    assert record["goals"]["met"] == 1
    (missed,) = record["goals"]["missed"]
    assert "MISSED" in missed
    assert [len(cell["rows"]) for cell in record["cells"]] == [2, 2]


def test_a_wrong_answer_leaves_no_rows() -> None:
    """A fast wrong answer is no result."""
    differ = Mock(side_effect=AssertionError("ours: 7 bins differ"))
    cell = run(work(1, 1, differ), QUICK)
    assert cell == Cell("count", wrong="ours: 7 bins differ")
    assert document([cell], {}, {})["wrong"] == ["count: ours: 7 bins differ"]


def test_the_peers_on_the_cpu_agree() -> None:
    """Plain NumPy, both SciPy ways and rlxweb find the same bins and powers."""
    x = np.random.default_rng(0).standard_normal((5, 384), dtype=np.float32)
    entries = list(welch_cells._host_entries(x, 256, 128))
    assert len(entries) == 5
    welch_cells._check(entries, x, 256, 128)


def test_the_straight_line_transform_is_a_dft() -> None:
    """The generated lines, read as Python, give numpy.fft's answer."""
    values = np.random.default_rng(1).standard_normal(16) + 1j
    lines = hand_welch.Lines("t")
    names = {f"a{i}": v.real for i, v in enumerate(values)}
    names |= {f"b{i}": v.imag for i, v in enumerate(values)}
    out = lines.transform([(f"a{i}", f"b{i}") for i in range(16)])
    for line in lines.text:
        name, expression = line.removeprefix("let ").rstrip(";").split(" = ")
        names[name] = eval(expression, {}, names)
    found = [names[re] + 1j * names[im] for re, im in out]
    np.testing.assert_allclose(found, np.fft.fft(values), atol=1e-7)


@pytest.mark.requires_wgpu
@pytest.mark.slow
@pytest.mark.parametrize(
    "only", thinned(["hand softmax", "n=256 batch=32", "hand matmul", "hand 100"], 4)
)
def test_a_quick_run_writes_its_record(
    tmp_path: Path, only: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right answers from every peer, all rows kept, and nothing made by later runs."""
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
    said = forked("-m", "tests.benchmarks", "--help")
    assert said.code == 0, said
    assert "--quick" in said.out


def test_spectra_over_time_have_right_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy and MNE, which are here, have right spectra over time."""
    monkeypatch.setattr(spectral_cells, "SECONDS", 20)
    for _, make in spectral_cells.works():
        made = make()
        assert sum(not entry.ours for entry in made.entries) == 1
        made.check()


def test_whole_processes_have_right_answers() -> None:
    """`rlxweb bands`, and what a script over MNE makes of the same recordings."""
    ((_, make),) = script_cells.works()
    made = make()
    try:
        for entry in made.entries:
            entry.peer()
        made.check()
    finally:
        made.close()


def test_every_cell_of_the_cpu_has_right_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every library that is here is right; a missing one is named with its reason."""
    monkeypatch.setattr(cpu_cells, "SIZES", ((256, 2, 3), (105, 3, 17)))
    names = []
    for name, make in (*cpu_cells.works(), *cpu_op_cells.works()):
        names.append(name)
        made = make()
        made.check()
        assert {entry.name for entry in made.entries} >= {libraries.BASE}
        made.close()
    assert len(names) == 2 + len(cpu_op_cells.OPS)
    assert all(libraries.missing().values())


def test_networks_answer_alike() -> None:
    """Ours and ONNX Runtime's on a file of the cell, and on MiniLM written op by op."""
    known = model_files.known()
    for name in ("Silero, 1 s", "MiniLM 1x32"):
        work = model_cells._on_cpu(name, known[name])
        assert len(work.entries) == 3
        try:
            work.check()
        finally:
            work.close()


def test_a_peer_without_end_is_left_out() -> None:
    with model_cells.within(60):  # of others, which stays
        with pytest.raises(TimeoutError, match=r"in 0\.05 s"), model_cells.within(0.05):
            Event().wait(30)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
