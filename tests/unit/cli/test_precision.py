"""Float precision follows one rule on the command line, in the environment variable and
in Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import rlxweb as rlx
from rlxweb.core.errors import DTypeError, EnvironmentWarning
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.io import open_recording
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import write_recording
from tests.unit.signal.fake_gpu import DEVICE_LABEL, ENGINE_NAME, FakeGpu

RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 2000))


def save_npy(path: Path, x: np.ndarray) -> Path:
    np.save(path, x)
    return path


def write_integer_recording(folder: Path, kind: str) -> Path:
    """Write a recording of two channels, 20 s at 100 Hz."""
    path = folder / kind
    if path.suffix in (".edf", ".bdf"):
        return write_recording(path, ("a", 100), ("b", 100), seconds=20)
    if path.suffix == ".wav":
        subtype = {"short.wav": "PCM_16", "long.wav": "PCM_24"}[kind]
        soundfile.write(path, X[:2].T / 9, 100, subtype=subtype)
        return path
    return save_npy(path, (1000 * X[:2]).astype(np.int16))


@pytest.mark.parametrize("preset", ["rlx", "scipy", "mne"])
@pytest.mark.parametrize("kind", ["x.edf", "x.bdf", "short.wav", "long.wav", "x.npy"])
def test_integer_recordings_run_on_a_device(
    tmp_path: Path, call: CommandRunner, kind: str, preset: str, adapter: AdapterRequest
) -> None:
    """Integer samples run on a device without options, with the CPU's peaks and nearly
    its spectra.
    """
    path, rate_options = write_integer_recording(tmp_path, kind), []
    if kind == "x.npy":
        rate_options = ["--fs", 100]
    args = (
        "welch",
        path,
        *rate_options,
        "--preset",
        preset,
        "--k",
        3,
        "--json",
        "-",
        "--npz",
    )
    device = "--device", adapter.backends[0], "--adapter", adapter.name
    cpu_result = call(*args, tmp_path / "here.npz", "--device", "cpu")
    device_result = call(*args, tmp_path / "there.npz", *device)
    assert device_result.code == 0, device_result.err
    assert (cpu_result.group["dtype"], device_result.group["dtype"]) == (
        "float64",
        "float32",
    )
    assert cpu_result.group["samples"] == device_result.group["samples"] == "int24"
    with np.load(tmp_path / "here.npz") as a, np.load(tmp_path / "there.npz") as b:
        assert b["psd"].dtype == np.float64
        np.testing.assert_allclose(b["psd"], a["psd"], rtol=2e-5)
        bins = b["bins"]
        np.testing.assert_array_equal(bins, a["bins"])
    with open_recording(path, fs=100 if rate_options else None) as recording:
        (group,) = recording.groups
        samples = group.read_stored()
    place: dict[str, Any] = {"device": adapter.backends[0], "adapter": adapter.name}
    peaks = rlx.welch_peaks(samples, group.fs, k=3, preset=preset, **place)
    np.testing.assert_array_equal(peaks.bins, bins)


def test_fastest_device_is_chosen_by_default(
    tmp_path: Path, call: CommandRunner, two: FakeGpu
) -> None:
    """An EEG of many channels runs on the GPU, unless float64 is requested."""
    names = [(f"E{index}", 200) for index in range(60)]
    path = write_recording(tmp_path / "x.edf", *names, seconds=60)
    args = "welch", path, "-q", "--preset", "scipy", "--json", "-"
    group = call(*args).group
    assert (group["device"], group["engine"]) == (DEVICE_LABEL, ENGINE_NAME)
    candidates = {c["device"]: c for c in group["decision"]["candidates"]}
    assert (
        candidates[DEVICE_LABEL]["terms"]["host_ns"] > 0
    )  # the walk that makes float32 of them
    float64_group = call(*args, "--precision", "f64").group
    assert float64_group["device"] == "cpu"
    blockers = {
        c["device"]: c["blocker"] for c in float64_group["decision"]["candidates"]
    }
    assert (
        blockers[DEVICE_LABEL]
        == "float64 was requested, but every device except the CPU computes in float32"
    )
    explanation = call("explain", path, "--json").document["jobs"][0]
    assert explanation["candidates"][0]["device"] == DEVICE_LABEL


NARROWED_SAMPLES = {
    "float64": (
        X,
        "the samples are float64, but every device except the CPU computes in float32",
    ),
    "int32": (
        (X * 9).astype(np.int32),
        "the samples are int32; float32 represents only integers of up to 24",
    ),
    "uint64": (
        (X * X).astype(np.uint64),
        "the samples are uint64; float32 represents only integers of up to",
    ),
}


@pytest.mark.parametrize("dtype", NARROWED_SAMPLES)
def test_implicit_narrowing_is_rejected_everywhere(
    tmp_path: Path, call: CommandRunner, gpu: FakeGpu, dtype: str
) -> None:
    """A named device rejects narrowing; precision f32 allows it, as flag or
    argument.
    """
    x, message = NARROWED_SAMPLES[dtype]
    args = (
        "welch",
        save_npy(tmp_path / "x.npy", x),
        "--fs",
        9,
        "-q",
        "--device",
        DEVICE_LABEL,
    )
    words = (
        message,
        "samples are never converted to float32 automatically",
        "--precision f32",
    )
    check_rejected(call(*args), 2, *words)
    assert call(*args, "--precision", "f32").code == 0
    for function in (rlx.welch, rlx.welch_peaks):
        with pytest.raises(DTypeError, match=message) as caught:
            function(x, device=DEVICE_LABEL)
        assert "pass precision='f32' to convert the samples" in str(caught.value)
        function(x, device=DEVICE_LABEL, precision="f32")


def test_requested_float64_is_rejected_by_a_device(
    tmp_path: Path, call: CommandRunner, gpu: FakeGpu
) -> None:
    """The advice depends on which option to leave out would help."""
    message = (
        "float64 was requested, but every device except the CPU computes in float32"
    )
    int16_samples = (1000 * X).astype(np.int16)
    for x, python_advice, flag_advice in (
        (int16_samples, "leave precision='f64' out", "leave --precision f64 out"),
        (
            X,
            "pass precision='f32' to convert the samples",
            "pass --precision f32 to convert",
        ),
    ):
        path = save_npy(tmp_path / "x.npy", x)
        args = "welch", path, "--fs", 9, "--device", DEVICE_LABEL, "--precision", "f64"
        check_rejected(call(*args), 2, message, flag_advice, "--device cpu")
        with pytest.raises(DTypeError, match=message) as caught:
            rlx.welch_peaks(x, device=DEVICE_LABEL, precision="f64")
        assert python_advice in str(caught.value)


@pytest.mark.filterwarnings("default")
def test_environment_variable_follows_the_same_rule(
    tmp_path: Path, call: CommandRunner, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_DEVICE never narrows: float64 stays on the CPU with a warning."""
    monkeypatch.setenv("RLX_DEVICE", DEVICE_LABEL)
    float64_path = save_npy(tmp_path / "wide.npy", X)
    result = call("welch", float64_path, "--fs", 9, "-q", "--json", "-")
    assert (result.group["device"], result.group["dtype"]) == ("cpu", "float64")
    assert f"RLX_DEVICE={DEVICE_LABEL} cannot run this job" in result.err
    assert "pass --precision f32 to convert the samples" in result.err
    with pytest.warns(
        EnvironmentWarning, match="pass precision='f32' to convert the samples"
    ):
        assert rlx.welch_peaks(X).device.label == "cpu"
    int16_path = save_npy(tmp_path / "short.npy", (1000 * X).astype(np.int16))
    result = call("welch", int16_path, "--fs", 9, "-q", "--json", "-")
    assert (result.group["device"], result.err) == (DEVICE_LABEL, "")
    assert rlx.welch_peaks((1000 * X).astype(np.int16)).device.label == DEVICE_LABEL
