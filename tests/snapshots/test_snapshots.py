"""Records of what is generated, published and decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshots import recorded
from tests.snapshots.recorded import NEED_LLVM, PARTS, RULE, differences, made, write

FAST = pytest.mark.requires_fast
EACH = [pytest.param(p, marks=FAST) if p in NEED_LLVM else p for p in PARTS]
WRITE = "if that is wanted, record it: python -m tests.snapshots write"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", EACH)
def test_nothing_differs_from_what_is_recorded(part: str) -> None:
    found = differences(part, made(part))
    assert not found, f"{part} differs; {WRITE} {part}\n{found}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for records in place of ours."""
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    return tmp_path


def test_a_character_of_a_kernel_shows(folder: Path) -> None:
    """A character of kernels shows once, however many of them have it."""
    kernels = {"a": "first\nx = 1;\nlast", "b": "first\nx = 1;\nanother\nlast"}

    def packed(letter: str) -> dict[str, str]:
        texts = [
            f"\n{RULE} {key}{letter}\n{text.replace('x', letter)}"
            for key, text in kernels.items()
        ]
        index = "".join(f"case: {key}{letter}\n" for key in kernels)
        name = "kernels-cuda"
        return {f"{name}.txt": index, f"{name}-texts.txt.xz": "".join(texts)}

    write("kernels-cuda", packed("x"))
    assert differences("kernels-cuda", packed("x")) == ""
    found = differences("kernels-cuda", packed("y")).split("\n")
    assert found.count("-x = 1;") == found.count("+y = 1;") == 1
    assert "… the same in 1 kernels more" in found
    assert "-case: ax" in found


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
def test_a_digit_that_is_rounded_either_way_is_no_difference(
    folder: Path, old: str, new: str, is_same: bool
) -> None:
    write("commands", {"commands-x.txt": old})
    assert (differences("commands", {"commands-x.txt": new}) == "") is is_same


def test_what_is_gone_is_a_difference(folder: Path) -> None:
    write("names", {"names.txt": "rlx.welch: function()\n"})
    assert "-rlx.welch: function()" in differences("names", {"names.txt": ""})
    write("names", {})
    assert not list(folder.iterdir())
