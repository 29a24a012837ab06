"""Libraries that are installed and broken: a reason in the report, nobody's error.

Each is a package of a few lines that is found in place of the real one, in a process of
its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import Said, python

GARBAGE = "import os; print('<<garbage>>'); os.write(2, b'more of it')\n"
BROKEN = {
    "no native half": (
        "torch",
        "torch-cpu",
        "raise ImportError('libtorch_cpu.so: cannot open shared object file')",
        "ImportError: libtorch_cpu.so: cannot open shared object file",
    ),
    "another ABI": (
        "torch",
        "torch-cpu",
        f"{GARBAGE}raise RuntimeError('module compiled against ABI 0x9')",
        "RuntimeError: module compiled against ABI 0x9",
    ),
    "it ends the process": (
        "torch",
        "torch-cpu",
        f"{GARBAGE}import sys; sys.exit(7)",
        "SystemExit: 7",
    ),
    "nothing in it": ("torch", "torch-cpu", GARBAGE, "ImportError: cannot import name"),
    "recursion": ("torch", "torch-cpu", "def f(): f()\nf()", "RecursionError"),
}
EVERYTHING = """
import numpy as np, rlxweb as rlx
assert rlx.welch_peaks(np.ones(512, np.float32), fs=1, k=1).device == "cpu"
assert "cpu" in rlx.available_devices()
graph = rlx.Graph("g")
graph.set_outputs([graph.input("x", (4,)) * 2])
runner = rlx.GraphDevices(graph)
chain = ["torch-cpu", "jax-cpu", "cpu"]
device, (y,) = runner.run_chain(chain, {"x": np.ones(4, "f4")})
assert device == "cpu" and (y == 2).all()
"""


def in_place_of(module: str, text: str, folder: Path, *args: object) -> Said:
    """A process in which that module is this text."""
    home = folder / module
    home.mkdir()
    (home / "__init__.py").write_text(text, "utf-8")
    return python(*args, PYTHONPATH=f"{folder}:{Path(__file__).parents[2]}")


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_library_is_a_line_of_the_report(why: str, tmp_path: Path) -> None:
    """With what it raised; what it prints is not in the JSON."""
    module, label, text, words = BROKEN[why]
    report = ("-m", "rlxweb", "devices", label, "cpu", "--json")
    said = in_place_of(module, text, tmp_path, *report)
    assert said.code == 0, said.err
    row, cpu = said.record["devices"]
    assert cpu["available"]
    assert not row["available"]
    assert words in row["blocker"]


def test_nobody_else_notices(tmp_path: Path) -> None:
    """Who does not name it runs, and a chain goes on past it."""
    for module in ("jax", "cupy"):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise SystemExit(9)")
    said = in_place_of("torch", "1 / 0", tmp_path, "-c", EVERYTHING)
    assert said.code == 0, said.err


def test_naming_it_is_one_clear_error(tmp_path: Path) -> None:
    module, label, text, words = BROKEN["no native half"]
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n3,4\n")
    asked = ("-m", "rlxweb", "welch", file, "--fs", "1", "--device", label)
    said = in_place_of(module, text, tmp_path, *asked)
    assert said.code == 3
    (line,) = said.err.splitlines()
    assert line.startswith(f"rlxweb: open device '{label}': ")
    assert words in line
