"""The how-to pages of the manual as a reader follows them: their code, and a copy of
the package that it changes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.cli_runners import ROOT, run_python

HOWTO = ROOT / "site" / "pages" / "howto"


def code_blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    text = (HOWTO / f"{page}.md").read_text("utf-8")
    return re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```$", text, re.M | re.S)


def copy_package(folder: Path) -> None:
    """Copy the package and its shaders into a folder.

    With what was compiled: else Python would compile all of it anew.
    """
    for name in ("rlxweb", "shaders"):
        shutil.copytree(ROOT / name, folder / name)


def apply_diff(folder: Path, diff: str) -> None:
    """Apply every hunk to the file that a diff names; the lines that it replaces must
    occur once.
    """
    header, *hunks = diff.split("@@\n")
    path = folder / header.splitlines()[-1].removeprefix("+++ b/")
    text = path.read_text("utf-8")
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text, "utf-8")


def run_copy(folder: Path, program: str) -> list[str]:
    """Run a program with the copied package; return the lines that it prints."""
    result = run_python("-c", program, cwd=folder, PYTHONPATH=str(folder))
    assert result.code == 0, result.err
    return result.out.splitlines()
