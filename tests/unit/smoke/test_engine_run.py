"""Smoke run of one engine: each kind of failure becomes a row of the report, in a real
process.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.op import registry
from rlxweb.smoke import case_runner
from rlxweb.smoke.case import sample_cases
from rlxweb.smoke.case_runner import order_broad_first
from rlxweb.smoke.child_process import ChildLimits, ChildProcess
from rlxweb.smoke.engine_run import (
    MAX_CHILDREN,
    EngineOutcome,
    EngineRun,
    SmokeSettings,
    engine_status,
)
from rlxweb.smoke.smoke_engine import SmokeEngine
from tests.wait_with_deadline import wait_until

needs_forked_children = pytest.mark.usefixtures("forked_children")
CPU = SmokeEngine("cpu")
BOUNDS = ChildLimits(start_s=90.0, case_s=60.0, total_s=110.0, nbytes=2 << 30)
QUICK_SETTINGS = SmokeSettings("quick", "samples/exp/*", BOUNDS)
SABOTAGED_CASE = "samples/exp/4"


def run_sabotaged(sabotage: str = "", **changed_bounds: object) -> EngineOutcome:
    """Run the samples of exp on NumPy, one of them sabotaged."""
    bounds = replace(BOUNDS, **changed_bounds)
    return EngineRun(
        CPU, replace(QUICK_SETTINGS, sabotage=sabotage, limits=bounds)
    ).run()


def count_words(outcome: EngineOutcome) -> Counter[str]:
    return Counter(row["word"] for row in outcome.rows.values())


def test_all_rows_are_right_and_timed() -> None:
    """The rows have the case, its error and its times."""
    outcome = run_sabotaged()
    assert engine_status(outcome) == ("right", "")
    assert set(count_words(outcome)) == {"right"}
    assert (outcome.is_done, outcome.not_run_count) == (True, 0)
    assert outcome.engine.adapter.startswith("NumPy")
    row = outcome.rows[SABOTAGED_CASE]
    assert (row["family"], row["op"], row["raised"]) == ("samples", "exp", "")
    assert row["inputs"][0][1].startswith("f")
    assert 0 <= row["share"] <= 1
    assert row["cold_ms"] > 0
    assert row["warm_ms"] > 0


@needs_forked_children
@pytest.mark.parametrize(
    ("kind", "word", "message"),
    [
        ("crash", "crashed", "SIGSEGV, segmentation fault"),
        ("abort", "crashed", "SIGABRT"),
        ("exit", "crashed", "exit code 7"),
        ("garbage", "crashed", "an invalid message: \\x1b[2Jno answer"),
        ("lose", "lost", "lost on purpose"),
    ],
)
def test_a_process_that_dies_is_a_row_and_the_rest_continues(
    kind: str, word: str, message: str
) -> None:
    """The row names the running case; the cases after it run in a new process."""
    outcome = run_sabotaged(f"{kind}:{SABOTAGED_CASE}")
    assert engine_status(outcome)[0] == word
    assert message in engine_status(outcome)[1]
    row = outcome.rows[SABOTAGED_CASE]
    assert (row["word"], row["op"]) == ("wrong", "exp")
    assert message in row["why"]
    assert row["inputs"]
    others = count_words(outcome)
    assert others == {"right": len(outcome.rows) - 1, "wrong": 1}


@needs_forked_children
def test_a_hanging_case_is_stopped() -> None:
    outcome = run_sabotaged(f"hang:{SABOTAGED_CASE}", case_s=2.0)
    assert engine_status(outcome) == (
        "hung",
        f"no answer within 2 s, while running {SABOTAGED_CASE}",
    )
    assert count_words(outcome) == {"right": len(outcome.rows) - 1, "wrong": 1}


def test_a_process_that_takes_all_memory_is_stopped() -> None:
    outcome = run_sabotaged(f"memory:{SABOTAGED_CASE}", nbytes=1 << 29)
    word, why = engine_status(outcome)
    assert word == "out of memory"
    assert "the limit is 0.5 GiB" in why
    assert outcome.rows[SABOTAGED_CASE]["raised"] == "out of memory"


@needs_forked_children
def test_an_engine_that_cannot_be_opened_has_no_rows() -> None:
    outcome = run_sabotaged("open:cpu")
    assert engine_status(outcome)[0] == "crashed"
    assert "while opening the device" in engine_status(outcome)[1]
    assert not outcome.rows


@needs_forked_children
def test_an_engine_that_always_fails_is_given_up() -> None:
    """An engine is given up after MOST_CHILDREN processes; the rows not run have the
    reason.
    """
    outcome = run_sabotaged("exit:samples")
    counts = count_words(outcome)
    assert counts == {"wrong": MAX_CHILDREN, "not run": len(outcome.rows) - 6}
    left = [row for row in outcome.rows.values() if row["word"] == "not run"]
    assert all("exit code 7" in row["why"] for row in left)


@needs_forked_children
def test_the_time_for_all_cases_is_limited() -> None:
    outcome = run_sabotaged(f"hang:{SABOTAGED_CASE}", total_s=3.0)
    assert engine_status(outcome)[0] == "hung"
    assert (
        "all cases of the engine together took longer than 3 s"
        in engine_status(outcome)[1]
    )


@needs_forked_children
@pytest.mark.parametrize("device", ["cpu", "torch-cpu"])
def test_a_deliberately_broken_kernel_is_located(device: str) -> None:
    """The first wrong index is the one that was changed."""
    settings = replace(QUICK_SETTINGS, sabotage="kernel:samples/exp/*")
    outcome = EngineRun(SmokeEngine(device), settings).run()
    assert engine_status(outcome)[0] == "wrong"
    broken = [row for row in outcome.rows.values() if row["word"] == "wrong"]
    assert len(broken) > 5
    for row in broken:
        shape = row["inputs"][0][0]
        flat = 0
        for index, dim in zip(row["first"]["at"], shape, strict=True):
            flat = flat * dim + index
        size = 1
        for dim in shape:
            size *= dim
        assert (flat, row["wrong"]) == (size // 2, 1)


def child_processes(pid: int) -> Iterator[int]:
    """Iterate over the process ids of a process's children."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            yield int(stat.parent.name)


def test_no_process_is_left_behind() -> None:
    """No process is left behind by one that hangs and is given up."""
    before = set(child_processes(os.getpid()))
    run_sabotaged(f"hang:{SABOTAGED_CASE}", case_s=1.5)
    assert set(child_processes(os.getpid())) <= before


@needs_forked_children
def test_an_interrupt_keeps_finished_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C keeps the rows that the child had written but that were not yet read."""
    children: list[ChildProcess] = []

    class RecordedChild(ChildProcess):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            children.append(self)

    monkeypatch.setattr("rlxweb.smoke.engine_run.ChildProcess", RecordedChild)

    def interrupt_run(outcome: EngineOutcome, case: str) -> None:
        (child,) = children
        lines = child._stdout_lines._lines
        wait_until(
            lambda: any(SABOTAGED_CASE in line for line in list(lines)),
            "the child has gone on up to where it hangs",
        )
        raise KeyboardInterrupt

    trying = EngineRun(
        CPU, replace(QUICK_SETTINGS, sabotage=f"hang:{SABOTAGED_CASE}"), interrupt_run
    )
    with pytest.raises(KeyboardInterrupt):
        trying.run()
    counts = count_words(trying.outcome)
    assert counts["right"] == 4
    assert counts["not run"] == len(trying.outcome.rows) - 4
    assert trying.outcome.rows[SABOTAGED_CASE]["why"] == "the run was interrupted"


def test_long_driver_output_is_truncated(tmp_path: Path) -> None:
    """Only the end of a driver's output is kept, and it is quoted when the driver
    crashed.
    """
    loud = tmp_path / "loud.py"
    loud.write_text(
        "import sys\ndef main():\n    print('noise ' * 2_000_000, file=sys.stderr)\n"
        "    sys.exit('the driver gave up')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    child = ChildProcess({}, BOUNDS, environment, "loud")
    try:
        assert list(child.messages(float("inf"))) == []
        assert child.ending.kind == "crashed"
        assert child.ending.reason.endswith("exit code 1; the driver gave up")
        assert len(child._stderr_tail) == 4096
    finally:
        child.close()


@needs_forked_children
def test_the_child_exits_with_its_parent() -> None:
    """The child exits when its input closes, whatever it is doing."""
    request = {
        "engine": CPU.as_json(),
        "level": "quick",
        "pattern": "",
        "sabotage": "hang:samples",
        "done": [],
    }
    child = ChildProcess(request, BOUNDS)
    try:
        for message in child.messages(float("inf")):
            if "begun" in message:
                break
        stdin = child._process.stdin
        assert stdin is not None
        stdin.close()
        assert child._process.wait(timeout=60) == 1
    finally:
        child.close()


def test_the_quick_level_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick level runs a case of every kind; the remaining rows have a reason."""
    monkeypatch.setattr(case_runner, "QUICK_TIME_S", 0.0)
    messages: list[dict[str, Any]] = []
    request = {
        "engine": CPU.as_json(),
        "level": "quick",
        "pattern": "exp",
        "sabotage": "",
        "done": [],
    }
    run_blocking(
        case_runner.run_engine_cases(
            request, lambda **message: messages.append(message)
        )
    )
    (names,) = (message["cases"] for message in messages if "cases" in message)
    ran = [message["begun"] for message in messages if "begun" in message]
    assert ran == names[: len(ran)]
    assert {n.split("/")[0] for n in ran} == {n.split("/")[0] for n in names}
    assert len(ran) < len(names)
    assert messages[-1]["enough"].startswith("the quick level stops after")

    trying = EngineRun(CPU, QUICK_SETTINGS)
    for line in messages:
        trying._handle_message(line)
    trying.outcome.is_done = True
    trying._explain_not_run()
    assert engine_status(trying.outcome) == ("right", "")
    left = [r for r in trying.outcome.rows.values() if r["word"] == "not run"]
    assert {row["why"] for row in left} == {messages[-1]["enough"]}


def test_broad_first_starts_with_one_case_of_every_kind() -> None:
    """No case is lost, and later rounds keep their order."""
    cases = [*sample_cases(registry.get("exp")), *sample_cases(registry.get("add"))]
    ordered, first = order_broad_first(cases)
    assert [case.op for case in ordered[:first]] == ["exp", "add"]
    assert sorted(c.name for c in ordered) == sorted(c.name for c in cases)
    exp = [c.name for c in ordered if c.op == "exp"]
    assert exp == [c.name for c in cases if c.op == "exp"]
