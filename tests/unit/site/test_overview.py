"""The live page's overview of a recording is its spectrogram, however it is cut."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.signal

from rlxweb.errors import RecordingWarning
from rlxweb.io import Group, open_recording
from tests.command_line import ROOT
from tests.recordings import discontinuous, written

FS = 64


@pytest.fixture
def overview() -> ModuleType:
    """The overview as the Worker of the page loads it."""
    path = ROOT / "site" / "demo" / "live" / "overview.py"
    spec = importlib.util.spec_from_file_location("overview", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def whole(module: ModuleType, group: Group, at: int = 0) -> tuple[dict, np.ndarray]:
    """Fetch all columns, in as many calls as the page would need."""
    parts, first, facts = [], 0, {"columns": 1}
    while first < facts["columns"]:
        facts, power = module.columns_of(group, at, 64, "hann", first)
        assert facts["next"] == first + len(power)
        parts.append(power)
        first = facts["next"]
    return facts, np.concatenate(parts)


def means(x: np.ndarray, hop: int, merged: int) -> np.ndarray:
    """SciPy's segments of a signal, so many to a column."""
    _, _, power = scipy.signal.spectrogram(x, FS, "hann", 64, 64 - hop)
    return np.array(
        [power[:, a : a + merged].mean(1) for a in range(0, power.shape[1], merged)]
    )


@pytest.mark.parametrize(("seconds", "hop", "merged"), [(10, 4, 1), (1000, 32, 5)])
@pytest.mark.parametrize("budget", [0, 10])
def test_columns_are_those_of_scipy(
    overview: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: int,
    hop: int,
    merged: int,
    budget: int,
) -> None:
    """Columns of a channel are SciPy's, in few calls or many, in small blocks."""
    path = written(tmp_path / "a.edf", ("A", FS), ("B", FS), seconds=seconds)
    monkeypatch.setattr(overview, "BUDGET_S", budget)
    monkeypatch.setattr(overview, "SAMPLES", 1000)
    with open_recording(path) as recording:
        (group,) = recording.groups
        facts, power = whole(overview, group, at=1)
        expected = means(group.read()[1], hop, merged)
    assert (facts["bins"], facts["step"], facts["begin_s"]) == (33, 1.0, 0.5)
    assert facts["column_s"] == merged * hop / FS
    np.testing.assert_allclose(power, expected, rtol=1e-5)


def test_columns_over_a_gap_are_empty(overview: ModuleType, tmp_path: Path) -> None:
    """Columns that touch a gap are empty, and only those."""
    starts = ["0", "1", "2", "9", "10"]
    path = discontinuous(tmp_path / "d.edf", starts, ("A", FS))
    with pytest.warns(RecordingWarning, match="a gap of 6 s"):
        recording = open_recording(path)
    with recording:
        (group,) = recording.groups
        facts, power = whole(overview, group)
        x = group.read()[0]
    hop = round(facts["column_s"] * FS)
    begins = np.arange(facts["columns"]) * hop
    expected = np.isfinite([x[at : at + 64].sum() for at in begins])
    np.testing.assert_array_equal(np.isfinite(power).all(axis=1), expected)
    np.testing.assert_array_equal(np.isnan(power).all(axis=1), ~expected)
    assert 0 < expected.sum() < len(expected)


def test_a_recording_shorter_than_a_segment_is_one(
    overview: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(20.0))
    with open_recording(path, fs=10) as recording:
        facts, power = whole(overview, recording.groups[0])
    assert (facts["columns"], facts["bins"], power.shape) == (1, 11, (1, 11))
