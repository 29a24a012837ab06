"""Test `dev` and `.ci/run`: small, portable, and the README's commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli_runners import ROOT, run_python

DEV = ROOT / "dev"


def run_command(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Return the finished command with its output."""
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("script", [DEV, ROOT / ".ci" / "run"], ids=lambda p: p.name)
def test_the_scripts_can_be_run(script: Path) -> None:
    """The scripts carry their executable bit."""
    assert os.access(script, os.X_OK)


def test_dev_is_posix_sh() -> None:
    """The strictest shell on this machine parses it."""
    shell = shutil.which("dash") or "sh"
    assert run_command(shell, "-n", str(DEV)).stderr == ""
    assert DEV.read_text("utf-8").startswith("#!/bin/sh\n")


def test_dev_helps_from_anywhere(tmp_path: Path) -> None:
    """Help names each command, whatever the working directory."""
    result = run_command(str(DEV), "help", cwd=tmp_path)
    assert result.returncode == 0
    for command in ("demo", "test", "lint", "docs", "site", "bench"):
        assert f"\n  {command} " in result.stdout


def test_dev_refuses_an_unknown_command(tmp_path: Path) -> None:
    """A typing error is a usage error (2) and is named."""
    result = run_command(str(DEV), "tset", cwd=tmp_path)
    assert result.returncode == 2
    assert "tset" in result.stderr


def test_ci_runs_what_a_contributor_runs() -> None:
    """The CI script's one command is `./dev test`."""
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    code = [line for line in lines if line and not line.startswith("#")]
    assert code[-1].startswith("exec ./dev test")
    assert len(code) == 3


def test_the_readme_shows_both_commands_and_code_that_runs(tmp_path: Path) -> None:
    """The first screen has ./dev demo, ./dev test, and Python that works as printed."""
    first_screen = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:40])
    assert "./dev demo" in first_screen
    assert "./dev test" in first_screen
    code = first_screen.partition("```python\n")[2].partition("```")[0]
    assert "welch_peaks" in code
    result = run_python("-c", code, cwd=tmp_path)
    assert result.code == 0, result.err
    assert result.out.startswith("[10. 40.]")
