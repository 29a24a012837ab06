"""The live page's overview of a recording is its spectrogram, however it is divided."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.signal

from rlxweb.core.errors import RecordingWarning
from rlxweb.io import Group, open_recording
from tests.cli_runners import ROOT
from tests.edf_bdf_recordings import write_discontinuous, write_recording

FS = 64


@pytest.fixture
def overview() -> ModuleType:
    """Return the overview module as the Worker of the page loads it."""
    path = ROOT / "site" / "demo" / "live" / "overview.py"
    spec = importlib.util.spec_from_file_location("overview", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fetch_all_columns(
    module: ModuleType, group: Group, channel: int = 0
) -> tuple[dict, np.ndarray]:
    """Fetch all columns, in as many calls as the page would need."""
    parts, first_column, info = [], 0, {"columns": 1}
    while first_column < info["columns"]:
        info, power = module.columns_of(group, channel, 64, "hann", first_column)
        assert info["next"] == first_column + len(power)
        parts.append(power)
        first_column = info["next"]
    return info, np.concatenate(parts)


def merged_segments(x: np.ndarray, hop: int, merged: int) -> np.ndarray:
    """Return SciPy's segment powers, averaged over `merged` segments for each
    column.
    """
    _, _, power = scipy.signal.spectrogram(x, FS, "hann", 64, 64 - hop)
    return np.array(
        [
            power[:, start : start + merged].mean(1)
            for start in range(0, power.shape[1], merged)
        ]
    )


@pytest.mark.parametrize(("seconds", "hop", "merged"), [(10, 4, 1), (1000, 32, 5)])
@pytest.mark.parametrize("budget", [0, 10])
def test_columns_agree_with_scipy(
    overview: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: int,
    hop: int,
    merged: int,
    budget: int,
) -> None:
    """Columns of a channel are SciPy's, in few calls or many, and in small blocks."""
    path = write_recording(tmp_path / "a.edf", ("A", FS), ("B", FS), seconds=seconds)
    monkeypatch.setattr(overview, "BUDGET_S", budget)
    monkeypatch.setattr(overview, "SAMPLES", 1000)
    with open_recording(path) as recording:
        (group,) = recording.groups
        info, power = fetch_all_columns(overview, group, channel=1)
        expected = merged_segments(group.read()[1], hop, merged)
    assert (info["bins"], info["step"], info["begin_s"]) == (33, 1.0, 0.5)
    assert info["column_s"] == merged * hop / FS
    np.testing.assert_allclose(power, expected, rtol=1e-5)


def test_columns_over_a_gap_are_empty(overview: ModuleType, tmp_path: Path) -> None:
    """Columns that touch a gap are empty, and only those."""
    starts = ["0", "1", "2", "9", "10"]
    path = write_discontinuous(tmp_path / "d.edf", starts, ("A", FS))
    with pytest.warns(RecordingWarning, match="a gap of 6 s"):
        recording = open_recording(path)
    with recording:
        (group,) = recording.groups
        info, power = fetch_all_columns(overview, group)
        x = group.read()[0]
    hop = round(info["column_s"] * FS)
    column_starts = np.arange(info["columns"]) * hop
    expected = np.isfinite(
        [x[column_start : column_start + 64].sum() for column_start in column_starts]
    )
    np.testing.assert_array_equal(np.isfinite(power).all(axis=1), expected)
    np.testing.assert_array_equal(np.isnan(power).all(axis=1), ~expected)
    assert 0 < expected.sum() < len(expected)


def test_a_recording_shorter_than_a_segment_gives_one_column(
    overview: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(20.0))
    with open_recording(path, fs=10) as recording:
        info, power = fetch_all_columns(overview, recording.groups[0])
    assert (info["columns"], info["bins"], power.shape) == (1, 11, (1, 11))
