"""`rlxweb smoke`: tables, reports, exit codes and bad input."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from rlxweb.cli.smoke_console_report import print_report
from tests.cli_runners import CommandRunner, run_cli
from tests.unit.smoke import report_factory as made

pytestmark = pytest.mark.usefixtures("forked_children")
EXP_SAMPLES = ("--quick", "-k", "samples/exp/*")


def test_passing_engine_is_reported(call: CommandRunner, tmp_path: Path) -> None:
    """A passing engine has a line in the table, a summary below it and a JSON
    report.
    """
    path = tmp_path / "report.json"
    result = call("smoke", "--device", "cpu", *EXP_SAMPLES, "--json", path)
    assert result.code == 0, result
    assert "cpu NumPy" in result.out
    assert "1 of 1 engine right" in result.out
    report = json.loads(path.read_text("utf-8"))
    assert (report["schema"], report["exit_code"]) == ("rlxweb.smoke/1", 0)
    assert (report["level"], report["pattern"]) == ("quick", "samples/exp/*")
    (engine,) = report["engines"]
    assert engine["counts"]["right"] == len(engine["rows"]) > 5
    assert engine["backend"] == "numpy"


def test_required_engines_are_tested_with_the_named_devices(
    call: CommandRunner,
) -> None:
    """A required adapter that is missing is reported with those that are available."""
    result = call(
        "smoke", *EXP_SAMPLES, "--device", "cpu", "--require", "torch-cpu,cpu:none"
    )
    assert result.code == 4
    assert "torch-cpu PyTorch" in result.out
    assert "2 of 2 engines right" in result.out
    assert result.out.count("no adapter name contains 'none'") == 1
    assert "required device missing or without correct results: cpu:none" in result.out


@pytest.mark.parametrize(
    ("width", "shown_columns"),
    [
        (90, ("engine", "right", "wrong", "refused", "not run", "seconds", "GB/s")),
        (80, ("engine", "right", "wrong", "refused", "seconds")),
        (60, ("engine", "right", "wrong")),
        (40, ("engine", "wrong")),
    ],
)
def test_narrow_terminal_shows_the_most_important_columns(
    width: int, shown_columns: tuple[str, ...]
) -> None:
    """Every line fits, and the number of wrong cases is always shown."""
    screen = Console(file=StringIO(), width=width, force_terminal=True)
    rows = [made.make_row("samples/exp/0", "wrong"), made.make_row("samples/exp/1")]
    engine = made.make_engine("vulkan:llvmpipe (LLVM 15.0.6, 256 bits)", *rows)
    print_report(screen, made.make_report(engine, apart=[], partial=False), False)
    lines = Text.from_ansi(screen.file.getvalue()).plain.splitlines()
    table = lines[: lines.index(next(x for x in lines if "wrong." in x))]
    assert max(len(line.rstrip()) for line in table) <= width
    assert tuple(re.split(r"\s{2,}", table[1].strip())) == shown_columns


def test_interrupted_run_writes_a_partial_report(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a case: 130, and the report says that it is partial."""
    path = tmp_path / "report.json"
    case_options = ("-k", "samples/exp/* or samples/abs/*", "--device", "cpu")
    fault_options = ("--sabotage", "stop:samples/exp/3")
    result = run_cli("smoke", "--quick", *case_options, *fault_options, "--json", path)
    assert result.code == 130, result
    assert result.err.split() == ["rlxweb:", "stopped"]
    assert "interrupted: " in result.out
    report = json.loads(path.read_text("utf-8"))
    assert (report["partial"], report["exit_code"]) == (True, 130)
    (engine,) = report["engines"]
    words = {row["case"]: row["word"] for row in engine["rows"]}
    stop_index = list(words).index("samples/exp/3")
    assert 2 < stop_index < len(words) - 1
    assert [*words.values()] == ["right"] * stop_index + ["not run"] * (
        len(words) - stop_index
    )


ALL_ENGINES = ("cpu", "vulkan:llvmpipe", "vulkan:SwiftShader", "opengl", "dawn")
ALL_ENGINES += ("torch-cpu", "jax-cpu", "mlx")
FULL_TIER_CASES = (
    "variants/*",
    "chains/*",
    "graphs/*",
    "edges/*",
    "*/softmax/*",
    "special/add/*",
)
"""Cases that tests/ops does not run on every engine, and the samples of one op."""


def bad_rows(report: dict[str, Any]) -> list[str]:
    """Return lines on everything that is neither right nor refused; the quick level may
    skip some cases.
    """
    engine_lines = [
        f"{engine['key']}: {engine['word']}" for engine in report["engines"]
    ]
    bad_engines = [
        line for line in engine_lines if not line.endswith((": right", ": missing"))
    ]
    rows = [row for engine in report["engines"] for row in engine["rows"]]
    unexpected_rows = [
        row
        for row in rows
        if row["word"] not in ("right", "refused", "known")
        and not row["why"].startswith("the quick level stops after")
    ]
    return bad_engines + [
        f"{row['case']}: {row['word']}: {row['why']}" for row in unexpected_rows
    ]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.requires_wgpu
def test_every_engine_of_this_machine_is_right(tmp_path: Path) -> None:
    """All eight engines that a machine without a GPU can have give no wrong result.

    Every op on each of them is the matter of tests/ops, and on Dawn of test_dawn.
    """
    path = tmp_path / "report.json"
    options = (
        "--require",
        ",".join(ALL_ENGINES),
        "--json",
        path,
        "-k",
        " or ".join(FULL_TIER_CASES),
    )
    result = run_cli("smoke", "--quick", *options, timeout=2900)
    report = json.loads(path.read_text("utf-8"))
    assert bad_rows(report) == []
    assert result.code == 0, result.out
    check_all_families_ran(report)


DEFAULT_TIER_CASES = (
    "*/softmax/*",
    "special/add/*",
    "chains/bias-gelu/7x13",
    "graphs/0",
)
"""One op in every family, for the default tier."""
BROKEN_CASE = "samples/softmax/2"


def check_all_families_ran(report: dict[str, Any]) -> None:
    """Check that every family ran, on adapters whose compiler is known."""
    assert report["apart"] == []
    (adapter,) = (
        engine
        for engine in report["engines"]
        if engine["key"].startswith(ALL_ENGINES[1])
    )
    assert {row["family"] for row in adapter["rows"]} >= {
        *("samples", "views", "special", "variants", "chains", "graphs")
    }
    assert "naga" in adapter["compiler"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.requires_wgpu
def test_injected_kernel_fault_is_found_on_every_engine(
    call: CommandRunner, tmp_path: Path, is_full_tier: bool
) -> None:
    """A broken kernel is found at the right index on every engine, and nothing else.

    The exit code is 1. Other tiers than the full one ask no engines of other libraries.
    """
    path = tmp_path / "report.json"
    requested_engines = ALL_ENGINES if is_full_tier else ALL_ENGINES[:2]
    options = (
        "-k",
        " or ".join(DEFAULT_TIER_CASES),
        "--sabotage",
        f"kernel:{BROKEN_CASE}",
        "--json",
        path,
    )
    devices = [word for name in requested_engines for word in ("--device", name)]
    result = call("smoke", "--quick", *devices, *options)
    assert result.code == 1, result
    report = json.loads(path.read_text("utf-8"))
    engines = report["engines"]
    available_engines = [engine for engine in engines if engine["word"] != "missing"]
    assert {engine["device"] for engine in available_engines} >= {
        name.partition(":")[0] for name in requested_engines
    }
    for engine in available_engines:
        (row,) = (row for row in engine["rows"] if row["case"] == BROKEN_CASE)
        assert (row["word"], row["wrong"]) == ("wrong", 1), engine["key"]
        rows, columns = row["inputs"][0][0]
        middle = divmod(rows * columns // 2, columns)
        assert tuple(row["first"]["at"]) == middle, engine["key"]
        engine["rows"].remove(row)
        engine["word"] = "right"
    assert bad_rows(report) == []
    check_all_families_ran(report)
