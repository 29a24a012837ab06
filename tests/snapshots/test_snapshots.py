"""Comparison of the stored snapshots with what is generated, published and decided
now.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshots import snapshot_files
from tests.snapshots.snapshot_files import (
    LLVM_PARTS,
    PARTS,
    RULE,
    differences,
    generate,
    write,
)

REQUIRES_FAST = pytest.mark.requires_fast
PART_PARAMS = [
    pytest.param(p, marks=REQUIRES_FAST) if p in LLVM_PARTS else p for p in PARTS
]
WRITE_HINT = "if that is wanted, record it: python -m tests.snapshots write"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PART_PARAMS)
def test_output_equals_the_stored_snapshot(part: str) -> None:
    diff = differences(part, generate(part))
    assert not diff, f"{part} differs; {WRITE_HINT} {part}\n{diff}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a temporary folder in place of the stored snapshots."""
    monkeypatch.setattr(snapshot_files, "FOLDER", tmp_path)
    return tmp_path


def test_changed_character_of_kernels_shows_once(folder: Path) -> None:
    """A changed character shows once, however many kernels have it."""
    kernels = {"a": "first\nx = 1;\nlast", "b": "first\nx = 1;\nanother\nlast"}

    def kernel_files(letter: str) -> dict[str, str]:
        texts = [
            f"\n{RULE} {key}{letter}\n{text.replace('x', letter)}"
            for key, text in kernels.items()
        ]
        index = "".join(f"case: {key}{letter}\n" for key in kernels)
        name = "kernels-cuda"
        return {f"{name}.txt": index, f"{name}-texts.txt.xz": "".join(texts)}

    write("kernels-cuda", kernel_files("x"))
    assert differences("kernels-cuda", kernel_files("x")) == ""
    diff = differences("kernels-cuda", kernel_files("y")).split("\n")
    assert diff.count("-x = 1;") == diff.count("+y = 1;") == 1
    assert "… the same in 1 kernels more" in diff
    assert "-case: ax" in diff


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("power 0.12345", "power 0.12346", True),
        ("power 0.12345", "power 0.12349", False),
        ("power 9.9999", "power 10.0", True),
        ("power 1.0 at 15360", "power 1.0 at 15361", False),
        ("power 81234.0 1", "power 81235.0 1", True),
        ("power 0.5 1", "power 0.5 2", False),
        ("power 0.5", "energy 0.5", False),
    ],
)
def test_rounding_of_the_last_digit_is_no_difference(
    folder: Path, old: str, new: str, is_same: bool
) -> None:
    write("commands", {"commands-x.txt": old})
    assert (differences("commands", {"commands-x.txt": new}) == "") is is_same


def test_removed_line_is_a_difference(folder: Path) -> None:
    write("names", {"names.txt": "rlx.welch: function()\n"})
    assert "-rlx.welch: function()" in differences("names", {"names.txt": ""})
    write("names", {})
    assert not list(folder.iterdir())
