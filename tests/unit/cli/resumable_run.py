"""Run over five recordings, and the output it leaves when it is interrupted or
completed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlxweb.batch import recording_analysis
from tests.cli_runners import CommandResult, CommandRunner

FILES = [f"{n}.npy" for n in range(5)]
WELCH_ARGS = "welch", *FILES, "--fs", 100, "-q"
OUT_ARGS = "--out", "o.parquet"
JOURNAL_PATH = Path(".o.parquet.unfinished")


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create five recordings in the working folder."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(72)
    for file in FILES:
        np.save(file, random.standard_normal((2, 600)))


@pytest.fixture
def uninterrupted_output(night: None, call: CommandRunner) -> bytes:
    """Return the output bytes of an uninterrupted run."""
    assert call(*WELCH_ARGS, "--out", "whole.parquet").code == 0
    return Path("whole.parquet").read_bytes()


def run_stopped_after(
    n: int, monkeypatch: pytest.MonkeyPatch, call: CommandRunner
) -> CommandResult:
    """Return the result of a run that is stopped after `n` recordings."""
    original, remaining = recording_analysis.analyse, iter(range(n))

    def analyse(*args: object) -> object:
        if next(remaining, None) is None:
            raise KeyboardInterrupt
        return original(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(recording_analysis, "analyse", analyse)
        result = call(*WELCH_ARGS, *OUT_ARGS)
    assert result.code == 130
    return result
