"""`rlxweb smoke` reports: HTML page, JUnit, known failures and comparison with an
earlier run.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli_runners import CommandRunner

pytestmark = pytest.mark.usefixtures("forked_children")
EXP_SAMPLES = ("--quick", "--device", "cpu", "-k", "samples/exp/*")
FAULT_OPTIONS = ("--sabotage", "kernel:samples/exp/3")


@pytest.fixture
def known_failures_file(tmp_path: Path) -> Path:
    """A file that lists one case as known to be wrong on NumPy."""
    path = tmp_path / "known.toml"
    path.write_text(
        '[[failure]]\nbackend = "numpy"\ncase = "samples/exp/3"\n'
        'reason = "made up"\nevidence = "this test"\n',
        "utf-8",
    )
    return path


def test_all_report_formats_are_written_together(
    call: CommandRunner, tmp_path: Path
) -> None:
    """All report formats describe the same run."""
    paths = {
        report_format: tmp_path / f"report.{report_format}"
        for report_format in ("json", "html", "junit")
    }
    options = [
        word
        for report_format, path in paths.items()
        for word in (f"--{report_format}", path)
    ]
    result = call("smoke", *EXP_SAMPLES, *FAULT_OPTIONS, *options)
    assert result.code == 1
    report = json.loads(paths["json"].read_text("utf-8"))
    assert report["exit_code"] == 1
    root = ET.parse(paths["junit"]).getroot()
    assert root.get("failures") == "1"
    assert root.get("tests") == str(len(report["engines"][0]["rows"]) + 1)
    html = paths["html"].read_text("utf-8")
    assert "samples/exp/3" in html
    assert html.startswith("<!doctype html>")


def test_known_failure_does_not_fail_the_run(
    call: CommandRunner, known_failures_file: Path, tmp_path: Path
) -> None:
    """A known failure is reported, fails no run, and is reported when it passes
    again.
    """
    path = tmp_path / "report.json"
    options = ("--known-failures", known_failures_file, "--json", path)
    result = call("smoke", *EXP_SAMPLES, *FAULT_OPTIONS, *options)
    assert result.code == 0, result
    assert "cpu: 1 case wrong, as listed in the known failures" in result.out
    (engine,) = json.loads(path.read_text("utf-8"))["engines"]
    assert (engine["word"], engine["counts"]["known"]) == ("right", 1)

    result = call("smoke", *EXP_SAMPLES, *options)
    assert result.code == 0, result
    assert (
        "1 case right although listed as known failures; first case: samples/exp/3"
        in result.out
    )
    assert f"{known_failures_file}:1" in result.out.replace("\n", "")
    assert call("smoke", *EXP_SAMPLES, *options, "--strict-known").code == 1


@pytest.mark.parametrize("fault", ["abort", "lose"])
def test_crash_in_a_known_failure_still_fails(
    call: CommandRunner, known_failures_file: Path, fault: str
) -> None:
    """A crash or a lost device is not excused in a case that is known to be wrong."""
    fault_options = ("--sabotage", f"{fault}:samples/exp/3")
    assert (
        call(
            "smoke",
            *EXP_SAMPLES,
            *fault_options,
            "--known-failures",
            known_failures_file,
        ).code
        > 0
    )


def test_changes_since_an_earlier_report_are_listed(
    call: CommandRunner, tmp_path: Path
) -> None:
    """Changes are in the table and the report; the exit code is 1 for cases that became
    wrong.
    """
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert call("smoke", *EXP_SAMPLES, "--json", old).code == 0
    result = call("smoke", *EXP_SAMPLES, "--compare", old, "--slower", "1000")
    assert result.code == 0
    assert re.search(r"changes since .*: none", " ".join(result.out.split()))
    result = call(
        "smoke", *EXP_SAMPLES, *FAULT_OPTIONS, "--compare", old, "--json", new
    )
    assert result.code == 1
    assert "became wrong" in result.out
    lines = json.loads(new.read_text("utf-8"))["comparison"]["lines"]
    assert lines[0]["subject"] == "samples/exp/3"
    result = call("smoke", *EXP_SAMPLES, "--compare", new)
    assert result.code == 0
    assert "1 became right" in result.out


def test_changed_or_removed_engine_is_no_regression(
    call: CommandRunner, tmp_path: Path
) -> None:
    """An engine that changed or is gone is no reason for exit code 1."""
    old = tmp_path / "old.json"
    call("smoke", *EXP_SAMPLES, "--json", old)
    report = json.loads(old.read_text("utf-8"))
    report["engines"][0]["driver"] = "an older Python"
    report["engines"].append(report["engines"][0] | {"key": "gone", "rows": []})
    old.write_text(json.dumps(report), "utf-8")
    result = call("smoke", *EXP_SAMPLES, "--compare", old, "--slower", "1000")
    assert result.code == 0
    assert "other driver" in result.out
    assert "was an older Python" in result.out
    assert "1 disappeared" in result.out
