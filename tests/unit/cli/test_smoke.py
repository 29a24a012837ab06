"""`rlxweb smoke` as its users run it: tables, reports, exit codes, bad input."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from rlxweb.cli.smoke_table import show_report
from tests.command_line import Call, check_refused, spawn
from tests.unit.smoke import made_report as made

pytestmark = pytest.mark.usefixtures("forked_children")
EXP = ("--quick", "-k", "samples/exp/*")


def test_one_engine_that_is_right(call: Call, tmp_path: Path) -> None:
    """A right engine has a line in the table, a sum below it and a JSON record."""
    path = tmp_path / "report.json"
    said = call("smoke", "--device", "cpu", *EXP, "--json", path)
    assert said.code == 0, said
    assert "cpu NumPy" in said.out
    assert "1 of 1 engine right" in said.out
    report = json.loads(path.read_text("utf-8"))
    assert (report["schema"], report["exit_code"]) == ("rlxweb.smoke/1", 0)
    assert (report["level"], report["pattern"]) == ("quick", "samples/exp/*")
    (engine,) = report["engines"]
    assert engine["counts"]["right"] == len(engine["rows"]) > 5
    assert engine["backend"] == "numpy"


def test_the_report_may_be_the_output(call: Call) -> None:
    said = call("smoke", "--device", "cpu", *EXP, "--json", "-")
    assert said.record["engines"][0]["word"] == "right"


def test_a_wrong_engine_is_told_in_words(call: Call) -> None:
    """A wrong engine is told with its cases, where, and what should stand there."""
    broken = ("--sabotage", "kernel:samples/exp/*")
    said = call("smoke", "--device", "cpu", "--quick", "-k", "exp", *broken)
    assert said.code == 1
    assert "cpu NumPy" in said.out
    assert "cases are wrong: only of exp" in said.out
    assert "elements are wrong, first at" in said.out
    assert "0 of 1 engine right" in said.out


def test_a_crash_is_a_line_and_not_the_end(call: Call) -> None:
    said = call("smoke", "--device", "cpu", *EXP, "--sabotage", "abort:samples/exp/3")
    assert said.code == 1
    assert "crashed" in said.out
    assert "SIGABRT" in said.out
    assert "samples/exp/3" in said.out


def test_a_lost_device_has_its_own_code(call: Call) -> None:
    said = call("smoke", "--device", "cpu", *EXP, "--sabotage", "lose:samples/exp/3")
    assert said.code == 75
    assert "lost on purpose" in said.out


def test_verbose_shows_every_case_and_what_is_missing(call: Call) -> None:
    said = call("smoke", *EXP, "-v", "--device", "cpu", "--device", "cuda")
    assert said.code == 4
    assert "samples/exp/0" in said.out
    assert "required, but not right: cuda" in said.out


def test_nothing_to_test(call: Call) -> None:
    said = call("smoke", *EXP, "--device", "cuda")
    assert said.code == 3
    assert "0 of 0 engines right" in said.out
    assert "cuda: missing: no NVIDIA driver" in said.out  # also without -v


def test_what_is_required_is_tried_beside_the_devices(call: Call) -> None:
    """A required adapter that is not there is told with those that are."""
    said = call("smoke", *EXP, "--device", "cpu", "--require", "torch-cpu,cpu:none")
    assert said.code == 4
    assert "torch-cpu PyTorch" in said.out
    assert "2 of 2 engines right" in said.out
    assert said.out.count("no adapter's name holds 'none'") == 1
    assert "required, but not right: cpu:none" in said.out


@pytest.mark.parametrize(
    ("width", "left"),
    [
        (90, ("engine", "right", "wrong", "refused", "not run", "seconds", "GB/s")),
        (80, ("engine", "right", "wrong", "refused", "seconds")),
        (60, ("engine", "right", "wrong")),
        (40, ("engine", "wrong")),
    ],
)
def test_a_narrow_terminal_gets_the_columns_that_matter(
    width: int, left: tuple[str, ...]
) -> None:
    """No line of the table is wider, and what is wrong is always there."""
    screen = Console(file=StringIO(), width=width, force_terminal=True)
    rows = [made.row("samples/exp/0", "wrong"), made.row("samples/exp/1")]
    engine = made.engine("vulkan:llvmpipe (LLVM 15.0.6, 256 bits)", *rows)
    show_report(screen, made.report(engine, apart=[], partial=False), False)
    lines = Text.from_ansi(screen.file.getvalue()).plain.splitlines()
    table = lines[: lines.index(next(x for x in lines if "wrong." in x))]
    assert max(len(line.rstrip()) for line in table) <= width
    assert tuple(re.split(r"\s{2,}", table[1].strip())) == left


def test_a_required_device_that_is_missing(call: Call) -> None:
    said = call("smoke", *EXP, "--device", "cpu", "--require", "cpu,rocm")
    assert said.code == 4
    assert "required, but not right: rocm" in said.out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--device", "vulkn"], ("unknown device 'vulkn'", "vulkan")),
        (["--require", "cpu,gppu"], ("unknown device 'gppu'",)),
        (["-k", "soft and"], ("a word is missing",)),
        (["-k", "no-such-op", "--device", "cpu"], ("no case has such a name",)),
        (["--json", "/no/such/folder/f.json"], ("there is no folder",)),
        (["--json", "/"], ("is a folder",)),
        (["--deadline", "0"], ("deadline",)),
        (["--icd", "/no/such/icd.json"], ("icd",)),
        (["--sabotage", "crush:x", "--device", "cpu"], ("no kind 'crush'",)),
    ],
)
def test_bad_input_is_refused(call: Call, given: list[str], words: tuple[str]) -> None:
    """Bad input is refused at once, in one line that says what to do."""
    said = call("smoke", "--quick", *given)
    check_refused(said, 2, *words)


def test_stopping_writes_what_is_done(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a case: 130, and the report says that it is partial."""
    path = tmp_path / "report.json"
    two = ("-k", "samples/exp/* or samples/abs/*", "--device", "cpu")
    stop = ("--sabotage", "stop:samples/exp/3")
    said = spawn("smoke", "--quick", *two, *stop, "--json", path)
    assert said.code == 130, said
    assert said.err.split() == ["rlxweb:", "stopped"]
    assert "stopped before the end" in said.out
    report = json.loads(path.read_text("utf-8"))
    assert (report["partial"], report["exit_code"]) == (True, 130)
    (engine,) = report["engines"]
    found = {row["case"]: row["word"] for row in engine["rows"]}
    at = list(found).index("samples/exp/3")
    assert 2 < at < len(found) - 1
    assert [*found.values()] == ["right"] * at + ["not run"] * (len(found) - at)


EVERY = ("cpu", "vulkan:llvmpipe", "vulkan:SwiftShader", "opengl", "dawn")
EVERY += ("torch-cpu", "jax-cpu", "mlx")
FEW = ("variants/*", "chains/*", "graphs/*", "edges/*", "*/softmax/*", "special/add/*")
"""What tests/ops does not ask of every engine, and of the samples, which it does ask
of each, those of one op.
"""


def bad_rows(report: dict[str, Any]) -> list[str]:
    """What is neither right nor refused, in words; the quick level may leave some."""
    words = [f"{one['key']}: {one['word']}" for one in report["engines"]]
    bad = [w for w in words if not w.endswith((": right", ": missing"))]
    rows = [row for one in report["engines"] for row in one["rows"]]
    odd = [
        row
        for row in rows
        if row["word"] not in ("right", "refused", "known")
        and not row["why"].endswith("enough at the quick level")
    ]
    return bad + [f"{row['case']}: {row['word']}: {row['why']}" for row in odd]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.requires_wgpu
def test_every_engine_of_this_machine_is_right(tmp_path: Path) -> None:
    """0 wrong, on all eight that a machine without a GPU can have.

    Every op on each of them is the matter of tests/ops, and on Dawn of test_dawn.
    """
    path = tmp_path / "report.json"
    required = ("--require", ",".join(EVERY), "--json", path, "-k", " or ".join(FEW))
    said = spawn("smoke", "--quick", *required, timeout=2900)
    report = json.loads(path.read_text("utf-8"))
    assert bad_rows(report) == []
    assert said.code == 0, said.out
    check_whole(report)


FEWER = ("*/softmax/*", "special/add/*", "chains/bias-gelu/7x13", "graphs/0")
"""One op in every family, for the default tier."""
BROKEN = "samples/softmax/2"


def check_whole(report: dict[str, Any]) -> None:
    """Every family ran, on adapters of which the compiler is known."""
    assert report["apart"] == []
    (adapter,) = (e for e in report["engines"] if e["key"].startswith(EVERY[1]))
    assert {row["family"] for row in adapter["rows"]} >= {
        *("samples", "views", "special", "variants", "chains", "graphs")
    }
    assert "naga" in adapter["compiler"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.requires_wgpu
def test_a_kernel_broken_on_purpose_is_found_on_every_engine(
    call: Call, tmp_path: Path, is_full_tier: bool
) -> None:
    """A broken kernel is found at the right index on every engine, and nothing else.

    The exit code is 1. Other tiers than the full one ask no engines of other libraries.
    """
    path = tmp_path / "report.json"
    asked = EVERY if is_full_tier else EVERY[:2]
    one = ("-k", " or ".join(FEWER), "--sabotage", f"kernel:{BROKEN}", "--json", path)
    devices = [word for name in asked for word in ("--device", name)]
    said = call("smoke", "--quick", *devices, *one)
    assert said.code == 1, said
    report = json.loads(path.read_text("utf-8"))
    engines = report["engines"]
    there = [engine for engine in engines if engine["word"] != "missing"]
    assert {engine["device"] for engine in there} >= {
        name.partition(":")[0] for name in asked
    }
    for engine in there:
        (row,) = (row for row in engine["rows"] if row["case"] == BROKEN)
        assert (row["word"], row["wrong"]) == ("wrong", 1), engine["key"]
        rows, columns = row["inputs"][0][0]
        middle = divmod(rows * columns // 2, columns)
        assert tuple(row["first"]["at"]) == middle, engine["key"]
        engine["rows"].remove(row)
        engine["word"] = "right"
    assert bad_rows(report) == []
    check_whole(report)
