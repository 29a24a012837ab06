"""FLAC files written by rlxweb: read alike by soundfile and rlxweb, or refused."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from rlxweb.core.errors import NotFinite, UsageError
from rlxweb.io import Recording, open_recording, prepared
from tests.edf_bdf_recordings import save_recording
from tests.unit.io.test_recording_writer import read_float64


@pytest.mark.parametrize("bits", [None, 16])
@pytest.mark.parametrize("fs", [1, 256, 44_100, 65_535, 65_540, 655_350])
def test_flac_is_read_by_soundfile_and_by_rlxweb(
    tmp_path: Path, bits: int | None, fs: int, rng: np.random.Generator
) -> None:
    x = rng.uniform(-1, 1, size=(3, 3000))
    x[0, :2] = -1, 1
    summary = save_recording(tmp_path / "a.flac", x, fs=fs, bits=bits)
    theirs, rate = soundfile.read(tmp_path / "a.flac")
    with open_recording(tmp_path / "a.flac") as recording:
        actual = read_float64(recording)
    assert rate == fs
    np.testing.assert_array_equal(theirs.T, actual)
    error = np.abs(x - actual).max(axis=1)
    assert [c.error for c in summary.groups[0].channels] == pytest.approx(error)
    assert error.max() <= 2.0 ** (1 - (bits or 24))


def test_flac_refuses_samples_it_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("FLAC supports at most 8", np.zeros((9, 5)), {}),
        ("an integer rate from 1 to 65535 Hz, or", np.zeros((1, 5)), {"fs": 655_351}),
        ("or a multiple of 10 Hz up to 655350", np.zeros((1, 5)), {"fs": 65_537}),
        ("flac supports 16 or 24", np.zeros((1, 5)), {"bits": 32}),
        ("full scale is 1", np.full((1, 5), 2.0), {}),
    ]
    for match, x, options in cases:
        with pytest.raises(UsageError, match=match):
            save_recording(path, x, **{"fs": 9, **options})
    with pytest.raises(NotFinite):
        save_recording(path, [[0.0, np.nan]], fs=9)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("fs", [99.97, 0.5, 65_536, 96_005, 1e6])
def test_the_rate_suggested_for_flac_can_be_written(tmp_path: Path, fs: float) -> None:
    recording = Recording.from_array(np.zeros((1, 20_000)), fs)
    with pytest.raises(
        UsageError, match="resample to a supported rate: resample="
    ) as caught:
        save_recording(tmp_path / "a.flac", recording)
    rate = int(re.findall(r"resample=(\d+);", str(caught.value))[0])
    other = prepared(recording.groups[0], resample=rate)
    save_recording(tmp_path / "a.flac", recording, groups=other)
    with open_recording(tmp_path / "a.flac") as resampled:
        assert resampled.groups[0].fs == rate


def test_flac_raises_write_errors() -> None:
    class FullDisk(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "no space left")

    with pytest.raises(OSError, match="no space left"):
        save_recording(FullDisk(), np.zeros((1, 9000)), fs=9, format="flac")
