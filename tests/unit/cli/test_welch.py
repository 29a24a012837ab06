"""`rlxweb welch`: results, tables and files, checked against SciPy."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.signal

from rlxweb.batch import channel_group_power
from rlxweb.cli.welch_outputs import CSV_COLUMNS
from rlxweb.gpu.wgpu_libraries import list_adapters
from rlxweb.io import open_recording
from tests.cli_runners import CommandRunner
from tests.edf_bdf_recordings import write_recording
from tests.unit.cli.shared_files import WELCH as X


@pytest.fixture
def npy(place_files: Callable[[str], None], tmp_path: Path) -> Path:
    place_files("welch.npy")
    return tmp_path / "welch.npy"


@pytest.mark.parametrize("preset", ["scipy", "mne"])
def test_spectra_equal_scipy(
    npy: Path, tmp_path: Path, call: CommandRunner, preset: str
) -> None:
    """NPZ holds whole spectra; CSV and JSON hold the peaks of the same numbers."""
    files = {n: tmp_path / f"o.{n}" for n in ("npz", "csv", "json")}
    result = call(
        *("welch", npy, "--fs", 250, "--nperseg", 400, "--preset", preset, "--k", 7),
        *(arg for n, path in files.items() for arg in (f"--{n}", path)),
    )
    assert result.code == 0
    preset_arguments = {
        "scipy": {},
        "mne": {"window": scipy.signal.get_window("hamming", 400)},
    }
    hz, power = scipy.signal.welch(
        X,
        250,
        nperseg=400,
        noverlap=200 if preset == "scipy" else 0,
        **preset_arguments[preset],
    )
    strongest = np.argsort(-power, axis=1, kind="stable")[:, :7]
    with np.load(files["npz"]) as arrays:
        np.testing.assert_allclose(arrays["freqs"], hz)
        np.testing.assert_array_equal(arrays["bins"], strongest)
        np.testing.assert_array_equal(arrays["hz"], hz[strongest])
        if preset == "scipy":
            np.testing.assert_allclose(arrays["psd"], power, rtol=1e-9)
        assert arrays["channels"].tolist() == ["ch1", "ch2", "ch3"]
        assert str(arrays["file"]) == str(npy)
        peak_power = arrays["power"]
    with files["csv"].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [float(row["power"]) for row in rows] == peak_power.ravel().tolist()
    assert [int(row["bin"]) for row in rows] == strongest.ravel().tolist()
    assert [int(row["rank"]) for row in rows] == list(range(1, 8)) * 3
    (group,) = json.loads(files["json"].read_text())["files"][0]["groups"]
    powers = [[p["power"] for p in c["peaks"]] for c in group["channels"]]
    assert powers == peak_power.tolist()


@pytest.mark.parametrize("two_rates", [False, True])
def test_npz_output_can_be_read_as_a_recording(
    tmp_path: Path, call: CommandRunner, two_rates: bool
) -> None:
    """Results are read back from NPZ with rate, names and units of the recording."""
    rates = [("EEG", 100), ("EOG", 100), *[("ECG", 500)] * two_rates]
    out = tmp_path / "o.npz"
    call("welch", write_recording(tmp_path / "x.edf", *rates, seconds=10), "--npz", out)
    prefix = "f0_g0_" if two_rates else ""
    for name in ("psd", "hz", "power"):
        with open_recording(out, array=prefix + name) as recording:
            (group,) = recording.groups
            assert (group.fs, group.names) == (100, ("EEG", "EOG"))
            assert {channel.unit for channel in group.channels} == {"uV"}
            with np.load(out) as arrays:
                np.testing.assert_array_equal(group.read(), arrays[prefix + name])
    assert call("welch", out, "--array", f"{prefix}psd", "--nperseg", 64).code == 0
    result = call("welch", out)
    assert result.code == 2
    assert "arrays are possible recordings" in result.err
    assert "--array" in result.err


def test_several_files_are_one_json_document(
    npy: Path, tmp_path: Path, call: CommandRunner
) -> None:
    """Several files give one JSON document, one table each, and a picture per file with
    its stem in the name.
    """
    np.save(tmp_path / "y.npy", X[0])
    plot, out = tmp_path / "p.png", tmp_path / "o.npz"
    result = call(
        *("welch", npy, tmp_path / "y.npy", "--fs", 100),
        *("--json", "-", "--plot", plot, "--npz", out),
    )
    assert result.code == 0
    assert [Path(f["path"]).name for f in result.document["files"]] == [
        "welch.npy",
        "y.npy",
    ]
    assert {p.name for p in tmp_path.glob("*.png")} == {"p-welch.png", "p-y.png"}
    with np.load(out) as arrays:
        np.testing.assert_allclose(arrays["f0_g0_psd"][0], arrays["f1_g0_psd"][0])


@pytest.mark.parametrize("nbytes", [1, 1 << 13, 1 << 17])
def test_small_blocks_give_the_same_spectra(
    tmp_path: Path,
    npy: Path,
    call: CommandRunner,
    monkeypatch: pytest.MonkeyPatch,
    nbytes: int,
) -> None:
    """Small blocks, and few channels at a time, change the numbers by rounding at
    most.
    """
    args = "welch", npy, "--fs", 9, "--nperseg", 300, "--noverlap", 111, "--npz"
    call(*args, tmp_path / "whole.npz")
    monkeypatch.setattr(channel_group_power, "BLOCK_NBYTES", nbytes)
    call(*args, tmp_path / "parts.npz")
    with np.load(tmp_path / "whole.npz") as a, np.load(tmp_path / "parts.npz") as b:
        np.testing.assert_allclose(a["psd"], b["psd"], rtol=1e-12)
        np.testing.assert_array_equal(a["bins"], b["bins"])


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_a_device_gives_the_same_peaks(
    tmp_path: Path, npy: Path, call: CommandRunner, mode: str
) -> None:
    """The requested device computes, and its name is reported."""
    args = "welch", npy, "--fs", 9, "--k", 5, "--mode", mode, "--npz"
    name = list_adapters()[0].name
    gpu = "--device", "GPU", "--adapter", name, "--precision", "f32", "--json", "-"
    call(*args, tmp_path / "cpu.npz")
    result = call(*args, tmp_path / "gpu.npz", *gpu)
    assert result.code == 0, result.err
    group = result.group
    assert (group["device"], group["dtype"]) == ("gpu", "float32")
    assert name in group["engine"]
    assert group["decision"]["why"] == "it was requested"
    with np.load(tmp_path / "cpu.npz") as a, np.load(tmp_path / "gpu.npz") as b:
        np.testing.assert_allclose(a["psd"], b["psd"], rtol=2e-4, atol=1e-3)
        np.testing.assert_array_equal(a["bins"], b["bins"])


@pytest.mark.requires_wgpu
def test_naming_an_adapter_selects_a_gpu(npy: Path, call: CommandRunner) -> None:
    name = list_adapters()[0].name
    args = "welch", npy, "--fs", 9, "--json", "-", "--adapter", name
    assert call(*args, "--precision", "f32").group["device"] == "gpu"


def test_summary_lines_name_the_device(npy: Path, call: CommandRunner) -> None:
    """`--explain` prints the reason and every candidate; `--quiet` leaves the table
    out.
    """
    result = call("welch", npy, "--fs", 9, "--explain", "-q")
    first, second, *rest = result.out.splitlines()
    assert first.startswith(f"{npy} at 9 Hz ran on NumPy")
    assert second.startswith("fast on NumPy")
    assert "predicted" in second
    assert any("launch" in line and "compute" in line for line in rest)
    assert call("welch", npy, "--fs", 9, "-q").out == ""


@pytest.mark.filterwarnings("default")
def test_repeated_warning_is_printed_once(
    tmp_path: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning about a variable is printed once, however often the variable is
    read.
    """
    monkeypatch.setenv("RLX_FORCE_DEVICE", "abacus")
    np.save(tmp_path / "x.npy", np.sin(np.arange(900.0)))
    result = call("welch", tmp_path / "x.npy", "--fs", 9)
    assert result.err.count("RLX_FORCE_DEVICE='abacus' is ignored") == 1
