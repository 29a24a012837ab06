"""Analysis of one file: progress, compilation and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlxweb.batch import recording_analysis
from rlxweb.batch.file_job_protocol import analyse_sequentially
from rlxweb.batch.recording_analysis import analyse_file
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import OutOfMemory, RecordingError
from rlxweb.signal import welch_engine

SETTINGS = Settings(fs=100, device="cpu")


@pytest.fixture
def npy(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((2, 5000)))
    return str(tmp_path / "x.npy")


def test_progress_counts_every_sample_once(
    npy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress reports the total from the first block on and counts every sample
    once.
    """
    monkeypatch.setattr("rlxweb.batch.channel_group_power.BLOCK_NBYTES", 1 << 13)
    reports: list[tuple[int, int]] = []
    analyse_file(npy, SETTINGS, lambda total, done: reports.append((total, done)))
    assert len(reports) > 5
    assert {total for total, _ in reports} == {10_000}
    assert sum(done for _, done in reports) == 10_000


@pytest.mark.parametrize("is_long", [False, True])
def test_short_recordings_compile_no_kernels(
    npy: str, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """A recording too short to profit from kernels starts no compilation."""
    min_samples = 1 if is_long else 1 << 40
    monkeypatch.setattr(recording_analysis, "MIN_COMPILED_SAMPLES", min_samples)
    compilations: list[float] = []
    monkeypatch.setattr(
        welch_engine,
        "_compile_if_profitable",
        lambda *arguments: compilations.append(1),
    )
    analyse_file(npy, SETTINGS)
    assert bool(compilations) == is_long


def test_no_memory_is_an_error_of_the_file(
    npy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory is an error of the file, which names what was being done."""

    def analyse(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(recording_analysis, "analyse", analyse)
    with pytest.raises(OutOfMemory, match=r"x\.npy.*out of memory.*shorter segments"):
        analyse_file(npy, SETTINGS)


def test_sequential_analysis_yields_errors_and_continues(npy: str) -> None:
    missing_path = npy + ".gone"
    (first, error), (second, result) = analyse_sequentially(
        [missing_path, npy], SETTINGS
    )
    assert (first, second) == (missing_path, npy)
    assert isinstance(error, RecordingError)
    assert result.path == npy
