"""One file of a run: what is found in it, and what is said when it cannot be done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlxweb.errors import OutOfMemory, RecordingError
from rlxweb.jobs import analysis
from rlxweb.jobs.analysis import analyse_file
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import one_by_one
from rlxweb.signal import engine

SETTINGS = Settings(fs=100, device="cpu")


@pytest.fixture
def npy(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((2, 5000)))
    return str(tmp_path / "x.npy")


def test_progress_tells_every_sample_once(
    npy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of samples is told from the first block on, and every one once."""
    monkeypatch.setattr("rlxweb.jobs.averaging.BLOCK_BYTES", 1 << 13)
    told: list[tuple[int, int]] = []
    analyse_file(npy, SETTINGS, lambda whole, done: told.append((whole, done)))
    assert len(told) > 5
    assert {whole for whole, _ in told} == {10_000}
    assert sum(done for _, done in told) == 10_000


@pytest.mark.parametrize("is_long", [False, True])
def test_short_recordings_have_nothing_compiled(
    npy: str, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """No kernel will ever compute them, so none is begun beside them."""
    least = 1 if is_long else 1 << 40
    monkeypatch.setattr(analysis, "COMPILED_SAMPLES", least)
    told: list[float] = []
    monkeypatch.setattr(engine, "_compile_if_worth_it", lambda *all_: told.append(1))
    analyse_file(npy, SETTINGS)
    assert bool(told) == is_long


def test_no_memory_is_an_error_of_the_file(
    npy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory is an error of the file, which names what was being done."""

    def analyse(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(analysis, "analyse", analyse)
    with pytest.raises(OutOfMemory, match=r"x\.npy.*out of memory.*shorter segments"):
        analyse_file(npy, SETTINGS)


def test_one_by_one_hands_out_errors_and_goes_on(npy: str) -> None:
    gone = npy + ".gone"
    (first, bad), (second, good) = one_by_one([gone, npy], SETTINGS)
    assert (first, second) == (gone, npy)
    assert isinstance(bad, RecordingError)
    assert good.path == npy
