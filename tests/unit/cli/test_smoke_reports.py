"""`rlxweb smoke`: the page, JUnit, known failures, and what changed since."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.command_line import Call, check_refused

pytestmark = pytest.mark.usefixtures("forked_children")
EXP = ("--quick", "--device", "cpu", "-k", "samples/exp/*")
BROKEN = ("--sabotage", "kernel:samples/exp/3")


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """One case is known to be wrong on NumPy."""
    path = tmp_path / "known.toml"
    path.write_text(
        '[[failure]]\nbackend = "numpy"\ncase = "samples/exp/3"\n'
        'reason = "made up"\nevidence = "this test"\n',
        "utf-8",
    )
    return path


def test_every_form_is_written_at_once(call: Call, tmp_path: Path) -> None:
    """The forms of a report hold the same run."""
    paths = {form: tmp_path / f"report.{form}" for form in ("json", "html", "junit")}
    given = [word for form, path in paths.items() for word in (f"--{form}", path)]
    said = call("smoke", *EXP, *BROKEN, *given)
    assert said.code == 1
    report = json.loads(paths["json"].read_text("utf-8"))
    assert report["exit_code"] == 1
    root = ET.parse(paths["junit"]).getroot()
    assert root.get("failures") == "1"
    assert root.get("tests") == str(len(report["engines"][0]["rows"]) + 1)
    html = paths["html"].read_text("utf-8")
    assert "samples/exp/3" in html
    assert html.startswith("<!doctype html>")


def test_a_known_failure_fails_no_run(call: Call, known: Path, tmp_path: Path) -> None:
    """A known failure is told, fails no run, and is told when it is right again."""
    path = tmp_path / "report.json"
    given = ("--known-failures", known, "--json", path)
    said = call("smoke", *EXP, *BROKEN, *given)
    assert said.code == 0, said
    assert "cpu: 1 case wrong as known" in said.out
    (engine,) = json.loads(path.read_text("utf-8"))["engines"]
    assert (engine["word"], engine["counts"]["known"]) == ("right", 1)

    said = call("smoke", *EXP, *given)
    assert said.code == 0, said
    assert "1 case right though known to fail, samples/exp/3 first" in said.out
    assert f"{known}:1" in said.out.replace("\n", "")
    assert call("smoke", *EXP, *given, "--strict-known").code == 1


@pytest.mark.parametrize("kind", ["abort", "lose"])
def test_a_crash_is_not_excused(call: Call, known: Path, kind: str) -> None:
    """A crash or a lost device is not excused in a case that is known to be wrong."""
    hook = ("--sabotage", f"{kind}:samples/exp/3")
    assert call("smoke", *EXP, *hook, "--known-failures", known).code > 0


def test_what_changed_is_told(call: Call, tmp_path: Path) -> None:
    """Changes are in the table and the report; exit 1 for what became wrong."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert call("smoke", *EXP, "--json", old).code == 0
    said = call("smoke", *EXP, "--compare", old, "--slower", "1000")
    assert said.code == 0
    assert "nothing changed" in said.out
    said = call("smoke", *EXP, *BROKEN, "--compare", old, "--json", new)
    assert said.code == 1
    assert "became wrong" in said.out
    lines = json.loads(new.read_text("utf-8"))["comparison"]["lines"]
    assert lines[0]["subject"] == "samples/exp/3"
    said = call("smoke", *EXP, "--compare", new)
    assert said.code == 0
    assert "1 became right" in said.out


def test_a_case_that_became_wrong_counts_though_it_is_no_other_failure(
    call: Call, tmp_path: Path
) -> None:
    """An engine that crashed once and is gone now, say, is no reason for exit 1."""
    old = tmp_path / "old.json"
    call("smoke", *EXP, "--json", old)
    report = json.loads(old.read_text("utf-8"))
    report["engines"][0]["driver"] = "an older Python"
    report["engines"].append(report["engines"][0] | {"key": "gone", "rows": []})
    old.write_text(json.dumps(report), "utf-8")
    said = call("smoke", *EXP, "--compare", old, "--slower", "1000")
    assert said.code == 0
    assert "other driver" in said.out
    assert "was an older Python" in said.out
    assert "1 disappeared" in said.out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--html", "/no/such/folder/f.html"], ("--html", "there is no folder")),
        (["--junit", "/"], ("--junit", "is a folder")),
        (["--json", "-", "--html", "-"], ("--json and --html", "name one file")),
        (["--compare", "/no/such.json"], ("No such file",)),
        (["--known-failures", "/no/such.toml"], ("No such file", "none")),
        (["--slower", "1"], ("1.01",)),
        (["--site", "/tmp"], ("--site", "none is asked for")),
        (["--browser", "no-such-browser", "--site", "/"], ("no-such-browser",)),
        (["--browser", "by-hand", "--site", "/"], ("pyodide.mjs", "./dev site")),
    ],
)
def test_bad_input_is_refused_at_once(
    call: Call, given: list[str], words: tuple[str, ...]
) -> None:
    """Bad input is refused before anything is run."""
    check_refused(call("smoke", *EXP, *given), 2, *words)
