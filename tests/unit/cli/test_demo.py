"""`rlxweb demo`: the peaks found are the rhythms put in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlxweb.io import write_demo_recording
from tests.command_line import Call, check_refused


def test_the_demo_finds_its_own_rhythms(tmp_path: Path, call: Call) -> None:
    """Each channel's strongest peaks lie at its rhythms, strongest first."""
    truth = write_demo_recording(tmp_path / "same.edf")
    said = call("demo", "--out", tmp_path / "out", "--json", "-")
    assert said.code == 0
    assert said.group["nperseg"] == 512
    for channel in said.group["channels"]:
        rhythms = truth.rhythms[channel["name"]]
        found = [peak["hz"] for peak in channel["peaks"][: len(rhythms)]]
        np.testing.assert_allclose(found, [r.hz for r in rhythms], atol=0.05)
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "put into EEG Fp1: 6 Hz" in said.err


@pytest.mark.needs("matplotlib", "edfio")
def test_the_demo_says_what_it_did(tmp_path: Path, call: Call) -> None:
    """Table, device, reason and the place of the picture."""
    said = call("demo", "--out", tmp_path, "--device", "cpu")
    assert said.code == 0
    assert "strongest peak" in said.out
    assert "ran on NumPy" in said.out
    assert "it was asked for" in said.out
    assert f"picture: {tmp_path / 'demo.png'}" in said.err


@pytest.mark.needs("matplotlib", "edfio")
def test_advice_that_needs_another_command_names_it(tmp_path: Path, call: Call) -> None:
    """The demo has few options; what it has is advised as everywhere."""
    out = "--out", tmp_path
    np.savez(tmp_path / "x.npz", a=np.ones((1, 900)), b=np.ones((1, 900)), fs=9)
    said = call("demo", tmp_path / "x.npz", *out)
    check_refused(said, 2, "with `rlxweb welch`: name it: --array NAME")
    np.save(tmp_path / "x.npy", np.full((1, 900), np.nan))
    check_refused(
        call("demo", tmp_path / "x.npy", *out), 2, "unknown; NPY", ": --fs HZ"
    )
    said = call("demo", tmp_path / "x.npy", *out, "--fs", 9)
    check_refused(said, 2, "with `rlxweb welch`: repair", "or pass --nan propagate")


@pytest.mark.needs("matplotlib", "edfio")
@pytest.mark.parametrize("n_samples", [3, 100, 5000])
def test_a_file_of_the_user_of_any_length(
    tmp_path: Path, call: Call, n_samples: int
) -> None:
    """Segments of two seconds, or the whole file where it is shorter."""
    path = tmp_path / "mine.npy"
    np.save(path, np.random.default_rng(1).standard_normal(n_samples))
    out = tmp_path / "r.json"
    said = call("demo", path, "--fs", 250, "--out", tmp_path / "o", "--json", out)
    if n_samples < 8:
        assert said.code == 2
        assert "number of bins" in said.errors[-1]
        return
    assert said.code == 0
    (group,) = json.loads(out.read_text())["files"][0]["groups"]
    assert group["nperseg"] == min(500, n_samples)
    assert (tmp_path / "o" / "mine.png").exists()
