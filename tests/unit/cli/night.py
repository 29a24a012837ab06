"""Five recordings that a run is to do, and what it leaves when nobody disturbs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlxweb.jobs import analysis
from tests.command_line import Call, Said

FILES = [f"{n}.npy" for n in range(5)]
ARGS = "welch", *FILES, "--fs", 100, "-q"
OUT = "--out", "o.parquet"
NOTES = Path(".o.parquet.unfinished")


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five recordings in the folder that is worked in."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(72)
    for file in FILES:
        np.save(file, random.standard_normal((2, 600)))


@pytest.fixture
def whole(night: None, call: Call) -> bytes:
    """The bytes of a run that nobody disturbed."""
    assert call(*ARGS, "--out", "whole.parquet").code == 0
    return Path("whole.parquet").read_bytes()


def stopped_after(n: int, monkeypatch: pytest.MonkeyPatch, call: Call) -> Said:
    """What a run says that is stopped when `n` recordings are done."""
    really, left = analysis.analyse, iter(range(n))

    def analyse(*args: object) -> object:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return really(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(analysis, "analyse", analyse)
        said = call(*ARGS, *OUT)
    assert said.code == 130
    return said
