"""One rule of precision: the same from the command line, the environment and Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import rlxweb as rlx
from rlxweb.errors import DTypeError, EnvironmentWarning
from rlxweb.gpu.port import Want
from rlxweb.io import open_recording
from tests.command_line import Call, check_refused
from tests.recordings import written
from tests.unit.signal.pretend_gpu import LABEL, NAME, PretendGpu

RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 2000))


def saved(path: Path, x: np.ndarray) -> Path:
    np.save(path, x)
    return path


def made(folder: Path, kind: str) -> Path:
    """A recording of two channels, 20 s at 100 Hz."""
    path = folder / kind
    if path.suffix in (".edf", ".bdf"):
        return written(path, ("a", 100), ("b", 100), seconds=20)
    if path.suffix == ".wav":
        subtype = {"short.wav": "PCM_16", "long.wav": "PCM_24"}[kind]
        soundfile.write(path, X[:2].T / 9, 100, subtype=subtype)
        return path
    return saved(path, (1000 * X[:2]).astype(np.int16))


@pytest.mark.parametrize("preset", ["rlx", "scipy", "mne"])
@pytest.mark.parametrize("kind", ["x.edf", "x.bdf", "short.wav", "long.wav", "x.npy"])
def test_recordings_of_integers_run_on_a_device(
    tmp_path: Path, call: Call, kind: str, preset: str, adapter: Want
) -> None:
    """Integers run on a device unasked, with the CPU's peaks and nearly its spectra."""
    path, asked = made(tmp_path, kind), []
    if kind == "x.npy":
        asked = ["--fs", 100]
    args = "welch", path, *asked, "--preset", preset, "--k", 3, "--json", "-", "--npz"
    device = "--device", adapter.backends[0], "--adapter", adapter.name
    here = call(*args, tmp_path / "here.npz", "--device", "cpu")
    there = call(*args, tmp_path / "there.npz", *device)
    assert there.code == 0, there.err
    assert (here.group["dtype"], there.group["dtype"]) == ("float64", "float32")
    assert here.group["samples"] == there.group["samples"] == "int24"
    with np.load(tmp_path / "here.npz") as a, np.load(tmp_path / "there.npz") as b:
        assert b["psd"].dtype == np.float64
        np.testing.assert_allclose(b["psd"], a["psd"], rtol=2e-5)
        bins = b["bins"]
        np.testing.assert_array_equal(bins, a["bins"])
    with open_recording(path, fs=100 if asked else None) as recording:
        (group,) = recording.groups
        samples = group.read_stored()
    where: dict[str, Any] = {"device": adapter.backends[0], "adapter": adapter.name}
    found = rlx.welch_peaks(samples, group.fs, k=3, preset=preset, **where)
    np.testing.assert_array_equal(found.bins, bins)


def test_left_open_a_recording_goes_where_it_is_fastest(
    tmp_path: Path, call: Call, two: PretendGpu
) -> None:
    """An EEG of many channels goes to the GPU, unless float64 is asked for."""
    names = [(f"E{at}", 200) for at in range(60)]
    path = written(tmp_path / "x.edf", *names, seconds=60)
    args = "welch", path, "-q", "--preset", "scipy", "--json", "-"
    group = call(*args).group
    assert (group["device"], group["engine"]) == (LABEL, NAME)
    ways = {c["device"]: c for c in group["decision"]["candidates"]}
    assert ways[LABEL]["terms"]["host_ns"] > 0  # the walk that makes float32 of them
    wide = call(*args, "--precision", "f64").group
    assert wide["device"] == "cpu"
    blocked = {c["device"]: c["blocker"] for c in wide["decision"]["candidates"]}
    assert blocked[LABEL] == "float64 was asked for and devices compute float32"
    explained = call("explain", path, "--json").record["jobs"][0]
    assert explained["candidates"][0]["device"] == LABEL


REFUSED = {
    "float64": (X, "the samples are float64 and devices compute float32"),
    "int32": ((X * 9).astype(np.int32), "the samples are int32 and float32 holds 24"),
    "uint64": ((X * X).astype(np.uint64), "the samples are uint64 and float32 holds"),
}


@pytest.mark.parametrize("dtype", REFUSED)
def test_what_would_be_narrowed_is_refused_everywhere(
    tmp_path: Path, call: Call, gpu: PretendGpu, dtype: str
) -> None:
    """A named device refuses to narrow; precision f32 narrows, by flag or argument."""
    x, said = REFUSED[dtype]
    args = "welch", saved(tmp_path / "x.npy", x), "--fs", 9, "-q", "--device", LABEL
    words = said, "nothing is narrowed unasked", "--precision f32"
    check_refused(call(*args), 2, *words)
    assert call(*args, "--precision", "f32").code == 0
    for function in (rlx.welch, rlx.welch_peaks):
        with pytest.raises(DTypeError, match=said) as caught:
            function(x, device=LABEL)
        assert "pass precision='f32' to narrow them" in str(caught.value)
        function(x, device=LABEL, precision="f32")


def test_float64_asked_for_is_refused_by_a_device(
    tmp_path: Path, call: Call, gpu: PretendGpu
) -> None:
    """What to leave out depends on what would run without it."""
    said = "float64 was asked for and devices compute float32"
    short = (1000 * X).astype(np.int16)
    for x, python, flag in (
        (short, "leave precision='f64' out", "leave --precision f64 out"),
        (X, "pass precision='f32' to narrow them", "pass --precision f32 to narrow"),
    ):
        path = saved(tmp_path / "x.npy", x)
        args = "welch", path, "--fs", 9, "--device", LABEL, "--precision", "f64"
        check_refused(call(*args), 2, said, flag, "--device cpu")
        with pytest.raises(DTypeError, match=said) as caught:
            rlx.welch_peaks(x, device=LABEL, precision="f64")
        assert python in str(caught.value)


@pytest.mark.filterwarnings("default")
def test_the_environment_follows_the_same_rule(
    tmp_path: Path, call: Call, gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_DEVICE never narrows: float64 stays on the CPU with a warning."""
    monkeypatch.setenv("RLX_DEVICE", LABEL)
    wide = saved(tmp_path / "wide.npy", X)
    said = call("welch", wide, "--fs", 9, "-q", "--json", "-")
    assert (said.group["device"], said.group["dtype"]) == ("cpu", "float64")
    assert f"RLX_DEVICE={LABEL} cannot run this job" in said.err
    assert "pass --precision f32 to narrow them" in said.err
    with pytest.warns(EnvironmentWarning, match="pass precision='f32' to narrow them"):
        assert rlx.welch_peaks(X).device.label == "cpu"
    short = saved(tmp_path / "short.npy", (1000 * X).astype(np.int16))
    said = call("welch", short, "--fs", 9, "-q", "--json", "-")
    assert (said.group["device"], said.err) == (LABEL, "")
    assert rlx.welch_peaks((1000 * X).astype(np.int16)).device.label == LABEL
