"""Command `rlxweb demo`: the peaks found are the rhythms in the demo recording."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlxweb.io import write_demo_recording
from tests.cli_runners import CommandRunner


def test_the_demo_finds_its_own_rhythms(tmp_path: Path, call: CommandRunner) -> None:
    """Each channel's strongest peaks lie at its rhythms, strongest first."""
    truth = write_demo_recording(tmp_path / "same.edf")
    result = call("demo", "--out", tmp_path / "out", "--json", "-")
    assert result.code == 0
    assert result.group["nperseg"] == 512
    for channel in result.group["channels"]:
        rhythms = truth.rhythms[channel["name"]]
        peaks_hz = [peak["hz"] for peak in channel["peaks"][: len(rhythms)]]
        np.testing.assert_allclose(peaks_hz, [r.hz for r in rhythms], atol=0.05)
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "rhythms in EEG Fp1: 6 Hz" in result.err


@pytest.mark.needs("matplotlib", "edfio")
@pytest.mark.parametrize("n_samples", [3, 100, 5000])
def test_user_file_of_any_length(
    tmp_path: Path, call: CommandRunner, n_samples: int
) -> None:
    """Segments last two seconds, or the whole file if it is shorter."""
    path = tmp_path / "mine.npy"
    np.save(path, np.random.default_rng(1).standard_normal(n_samples))
    out = tmp_path / "r.json"
    result = call("demo", path, "--fs", 250, "--out", tmp_path / "o", "--json", out)
    if n_samples < 8:
        assert result.code == 2
        assert "number of bins" in result.errors[-1]
        return
    assert result.code == 0
    (group,) = json.loads(out.read_text())["files"][0]["groups"]
    assert group["nperseg"] == min(500, n_samples)
    assert (tmp_path / "o" / "mine.png").exists()
