"""An engine that breaks is a row of the report: each way to, in a real process."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlxweb.gpu.drive import drive
from rlxweb.ir.op import registry
from rlxweb.smoke import answering
from rlxweb.smoke.answering import broad_first
from rlxweb.smoke.case import plain
from rlxweb.smoke.engine import Engine
from rlxweb.smoke.process import Bounds, Child
from rlxweb.smoke.run import MOST_CHILDREN, Outcome, Settings, Trying, word_of
from tests.waiting import until

forked = pytest.mark.usefixtures("forked_children")
CPU = Engine("cpu")
BOUNDS = Bounds(start_s=90.0, case_s=60.0, total_s=110.0, nbytes=2 << 30)
QUICK = Settings("quick", "samples/exp/*", BOUNDS)
BAD = "samples/exp/4"


def tried(sabotage: str = "", **more: object) -> Outcome:
    """The samples of exp on NumPy, one of them sabotaged."""
    bounds = replace(BOUNDS, **more)
    return Trying(CPU, replace(QUICK, sabotage=sabotage, bounds=bounds)).run()


def words(outcome: Outcome) -> Counter[str]:
    return Counter(row["word"] for row in outcome.rows.values())


def test_everything_is_right_and_timed() -> None:
    """The rows tell what was run, how near it came, and how long it took."""
    outcome = tried()
    assert word_of(outcome) == ("right", "")
    assert set(words(outcome)) == {"right"}
    assert (outcome.is_done, outcome.left) == (True, 0)
    assert outcome.engine.adapter.startswith("NumPy")
    row = outcome.rows[BAD]
    assert (row["family"], row["op"], row["raised"]) == ("samples", "exp", "")
    assert row["inputs"][0][1].startswith("f")
    assert 0 <= row["share"] <= 1
    assert row["cold_ms"] > 0
    assert row["warm_ms"] > 0


@forked
@pytest.mark.parametrize(
    ("kind", "word", "said"),
    [
        ("crash", "crashed", "SIGSEGV, segmentation fault"),
        ("abort", "crashed", "SIGABRT"),
        ("exit", "crashed", "exit code 7"),
        ("garbage", "crashed", "what is no answer: \\x1b[2Jno answer"),
        ("lose", "lost", "lost on purpose"),
    ],
)
def test_a_process_that_ends_is_a_row_and_the_rest_goes_on(
    kind: str, word: str, said: str
) -> None:
    """The row says what was running; the cases after it ran in a fresh process."""
    outcome = tried(f"{kind}:{BAD}")
    assert word_of(outcome)[0] == word
    assert said in word_of(outcome)[1]
    row = outcome.rows[BAD]
    assert (row["word"], row["op"]) == ("wrong", "exp")
    assert said in row["why"]
    assert row["inputs"]
    others = words(outcome)
    assert others == {"right": len(outcome.rows) - 1, "wrong": 1}


@forked
def test_a_case_that_never_ends_is_ended() -> None:
    outcome = tried(f"hang:{BAD}", case_s=2.0)
    assert word_of(outcome) == ("hung", f"no answer within 2 s, at {BAD}")
    assert words(outcome) == {"right": len(outcome.rows) - 1, "wrong": 1}


def test_a_process_that_takes_all_memory_is_ended() -> None:
    outcome = tried(f"memory:{BAD}", nbytes=1 << 29)
    word, why = word_of(outcome)
    assert word == "out of memory"
    assert "0.5 GiB are allowed" in why
    assert outcome.rows[BAD]["raised"] == "out of memory"


@forked
def test_an_engine_that_cannot_be_opened_has_no_rows() -> None:
    outcome = tried("open:cpu")
    assert word_of(outcome)[0] == "crashed"
    assert "while it was opened" in word_of(outcome)[1]
    assert not outcome.rows


@forked
def test_an_engine_that_breaks_always_is_given_up() -> None:
    """An engine is given up after so many processes; what is left says why."""
    outcome = tried("exit:samples")
    found = words(outcome)
    assert found == {"wrong": MOST_CHILDREN, "not run": len(outcome.rows) - 6}
    left = [row for row in outcome.rows.values() if row["word"] == "not run"]
    assert all("exit code 7" in row["why"] for row in left)


@forked
def test_the_time_for_all_cases_ends_too() -> None:
    outcome = tried(f"hang:{BAD}", total_s=3.0)
    assert word_of(outcome)[0] == "hung"
    assert "the 3 s for all cases of an engine are over" in word_of(outcome)[1]


@forked
@pytest.mark.parametrize("device", ["cpu", "torch-cpu"])
def test_a_kernel_broken_on_purpose_is_found_where_it_is(device: str) -> None:
    """The first wrong index is the one that was changed."""
    settings = replace(QUICK, sabotage="kernel:samples/exp/*")
    outcome = Trying(Engine(device), settings).run()
    assert word_of(outcome)[0] == "wrong"
    broken = [row for row in outcome.rows.values() if row["word"] == "wrong"]
    assert len(broken) > 5
    for row in broken:
        shape = row["inputs"][0][0]
        flat = 0
        for at, dim in zip(row["first"]["at"], shape, strict=True):
            flat = flat * dim + at
        size = 1
        for dim in shape:
            size *= dim
        assert (flat, row["wrong"]) == (size // 2, 1)


def descendants(pid: int) -> Iterator[int]:
    """The processes below this one."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            yield int(stat.parent.name)


def test_no_process_is_left_behind() -> None:
    """No process is left behind by one that hangs and is given up."""
    before = set(descendants(os.getpid()))
    tried(f"hang:{BAD}", case_s=1.5)
    assert set(descendants(os.getpid())) <= before


@forked
def test_stopping_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while nothing was read for long: what the child had written is there."""
    children: list[Child] = []

    class Kept(Child):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            children.append(self)

    monkeypatch.setattr("rlxweb.smoke.run.Child", Kept)

    def heard(outcome: Outcome, case: str) -> None:
        (child,) = children
        lines = child._said._lines
        until(
            lambda: any(BAD in line for line in list(lines)),
            "the child has gone on up to where it hangs",
        )
        raise KeyboardInterrupt

    trying = Trying(CPU, replace(QUICK, sabotage=f"hang:{BAD}"), heard)
    with pytest.raises(KeyboardInterrupt):
        trying.run()
    found = words(trying.outcome)
    assert found["right"] == 4
    assert found["not run"] == len(trying.outcome.rows) - 4
    assert trying.outcome.rows[BAD]["why"] == "the run was broken off"


def test_a_driver_that_prints_without_end_fills_no_disk(tmp_path: Path) -> None:
    """The end of what a driver prints is kept, and told where it crashed."""
    loud = tmp_path / "loud.py"
    loud.write_text(
        "import sys\ndef main():\n    print('noise ' * 2_000_000, file=sys.stderr)\n"
        "    sys.exit('the driver gave up')\n"
    )
    found = {**os.environ, "PYTHONPATH": str(tmp_path)}
    child = Child({}, BOUNDS, found, "loud")
    try:
        assert list(child.lines(float("inf"))) == []
        assert child.ending.word == "crashed"
        assert child.ending.why.endswith("exit code 1; the driver gave up")
        assert len(child._tail) == 4096
    finally:
        child.close()


@forked
def test_the_child_ends_with_its_parent() -> None:
    """The child ends when its input closes, whatever it is at."""
    asked = {
        "engine": CPU.as_json(),
        "level": "quick",
        "pattern": "",
        "sabotage": "hang:samples",
        "done": [],
    }
    child = Child(asked, BOUNDS)
    try:
        for told in child.lines(float("inf")):
            if "begun" in told:
                break
        stdin = child._process.stdin
        assert stdin is not None
        stdin.close()
        assert child._process.wait(timeout=60) == 1
    finally:
        child.close()


def test_quick_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick level has a case of every kind; what is left says why it is not run."""
    monkeypatch.setattr(answering, "ENOUGH_S", 0.0)
    told: list[dict[str, Any]] = []
    asked = {
        "engine": CPU.as_json(),
        "level": "quick",
        "pattern": "exp",
        "sabotage": "",
        "done": [],
    }
    drive(answering.answer(asked, lambda **said: told.append(said)))
    (names,) = (said["cases"] for said in told if "cases" in said)
    ran = [said["begun"] for said in told if "begun" in said]
    assert ran == names[: len(ran)]
    assert {n.split("/")[0] for n in ran} == {n.split("/")[0] for n in names}
    assert len(ran) < len(names)
    assert told[-1]["enough"].endswith("enough at the quick level")

    trying = Trying(CPU, QUICK)
    for line in told:
        trying._take(line)
    trying.outcome.is_done = True
    trying._explain_what_is_left()
    assert word_of(trying.outcome) == ("right", "")
    left = [r for r in trying.outcome.rows.values() if r["word"] == "not run"]
    assert {row["why"] for row in left} == {told[-1]["enough"]}


def test_broad_first_begins_with_one_of_every_kind() -> None:
    """Nothing is lost, and later rounds keep their order."""
    every = [*plain(registry.get("exp")), *plain(registry.get("add"))]
    ordered, first = broad_first(every)
    assert [case.op for case in ordered[:first]] == ["exp", "add"]
    assert sorted(c.name for c in ordered) == sorted(c.name for c in every)
    exp = [c.name for c in ordered if c.op == "exp"]
    assert exp == [c.name for c in every if c.op == "exp"]
