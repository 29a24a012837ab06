"""`rlxweb welch`: results, tables and files, checked against SciPy."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import edfio
import numpy as np
import pytest
import scipy.signal
import soundfile

from rlxweb.batch import channel_group_power
from rlxweb.cli.welch_outputs import CSV_COLUMNS
from rlxweb.gpu.wgpu_libraries import list_adapters
from rlxweb.io import open_recording
from tests.cli_runners import CommandRunner, check_rejected
from tests.edf_bdf_recordings import write_recording
from tests.numpy_welch_peaks_reference import reference_welch

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 5000)) + 0.3


@pytest.fixture
def npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


def test_json_on_stdout_is_one_document(npy: Path, call: CommandRunner) -> None:
    """The table moves to stderr, so that a pipe gets one document with its schema."""
    result = call("welch", npy, "--fs", 250, "--json", "-", "--explain")
    assert result.code == 0
    document = result.document
    assert document["schema"] == "rlxweb.welch/1"
    assert {"rlxweb", "versions", "settings", "files"} <= set(document)
    assert document["settings"]["nperseg"] == 256
    group = result.group
    assert (group["fs"], group["n_samples"], group["n_segments"]) == (250, 5000, 38)
    assert group["device"] == "cpu"
    assert group["engine"].startswith("NumPy")
    assert set(group["decision"]) == {"what", "why", "numbers", "candidates"}
    assert [c["name"] for c in group["channels"]] == ["ch1", "ch2", "ch3"]
    assert [len(c["peaks"]) for c in group["channels"]] == [16, 16, 16]
    assert "strongest bin" in result.err


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


def test_rlx_preset_is_unscaled_mean_power(
    npy: Path, tmp_path: Path, call: CommandRunner
) -> None:
    """The rlx preset is a symmetric Hann window, half overlap and the unscaled
    one-sided power.
    """
    call("welch", npy, "--fs", 1, "--npz", tmp_path / "o.npz")
    with np.load(tmp_path / "o.npz") as arrays:
        np.testing.assert_allclose(arrays["psd"], reference_welch(X, 256), rtol=1e-9)


def test_peaks_mode_refines_frequency_and_prominence(
    tmp_path: Path, call: CommandRunner
) -> None:
    """The parabola finds a tone between two bins; weak maxima can be excluded."""
    t = np.arange(8000) / 100
    np.save(tmp_path / "x.npy", np.sin(2 * np.pi * 12.34 * t))
    args = "welch", tmp_path / "x.npy", "--fs", 100, "--preset", "scipy", "--json", "-"
    result = call(*args, "--mode", "peaks", "--k", 3, "--prominence", 0.01)
    ((peak,),) = [c["peaks"] for c in result.group["channels"]]
    assert peak["hz"] == pytest.approx(12.34, abs=0.01)
    assert peak["prominence"] > 0.01


def test_rates_are_groups_and_equal_labels_are_numbered(
    tmp_path: Path, call: CommandRunner
) -> None:
    """Rates have axes of their own; the annotation channel is listed as left out."""
    rates = ("EEG", 100), ("EEG", 100), ("ECG", 500)
    annotation = edfio.EdfAnnotation(0, None, "x")
    write_recording(tmp_path / "x.edf", *rates, seconds=10, annotations=[annotation])
    out = tmp_path / "o.npz"
    result = call("welch", tmp_path / "x.edf", "--json", "-", "--npz", out, "--k", 2)
    (file,) = result.document["files"]
    names = [[c["name"] for c in g["channels"]] for g in file["groups"]]
    assert names == [["EEG", "EEG (2)"], ["ECG"]]
    assert [g["fs"] for g in file["groups"]] == [100, 500]
    assert [entry["channel"] for entry in file["left_out"]] == ["EDF Annotations"]
    assert "skipped channel 'EDF Annotations'" in result.err
    with np.load(out) as arrays:
        assert arrays["f0_g0_psd"].shape == (2, 129)
        assert arrays["f0_g1_freqs"][-1] == 250


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


def test_channels_are_selected_by_name_and_pattern(
    tmp_path: Path, call: CommandRunner
) -> None:
    labels = "EEG Fp1", "EEG Cz", "EOG", "ECG"
    write_recording(tmp_path / "x.edf", *((label, 100) for label in labels), seconds=9)
    args = "welch", tmp_path / "x.edf", "--json", "-", "-c", "ecg, EEG*", "-c", "EOG"
    names = [c["name"] for c in call(*args).group["channels"]]
    assert names == ["ECG", "EEG Fp1", "EEG Cz", "EOG"]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (['"b, left"'], ["b, left"]),
        (['c, "b, left" '], ["c", "b, left"]),
        (['"c"', "b?*"], ["c", "b, left"]),
        (['5" tube,c'], ['5" tube', "c"]),
    ],
)
def test_a_name_with_a_comma_is_quoted(
    tmp_path: Path, call: CommandRunner, patterns: list[str], names: list[str]
) -> None:
    """A name is quoted as in CSV; a quote inside a name is part of it."""
    channels = np.array(["b, left", "c", '5" tube'])
    np.savez(tmp_path / "x.npz", x=X, fs=100.0, channels=channels)
    flags = [word for pattern in patterns for word in ("-c", pattern)]
    result = call("welch", tmp_path / "x.npz", *flags, "--json", "-")
    assert [channel["name"] for channel in result.group["channels"]] == names


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
        "x.npy",
        "y.npy",
    ]
    assert {p.name for p in tmp_path.glob("*.png")} == {"p-x.png", "p-y.png"}
    with np.load(out) as arrays:
        np.testing.assert_allclose(arrays["f0_g0_psd"][0], arrays["f1_g0_psd"][0])


def test_non_finite_samples_are_accepted_on_request(
    tmp_path: Path, call: CommandRunner
) -> None:
    """The bad row has no peaks in JSON or CSV; the other row is complete."""
    x = X[:2].copy()
    x[1, 30] = np.nan
    np.save(tmp_path / "x.npy", x)
    args = "welch", tmp_path / "x.npy", "--fs", 9, "--nan", "propagate", "--k", 2
    outputs = "--csv", tmp_path / "o.csv", "--plot", tmp_path / "p.png"
    result = call(*args, "--json", "-", *outputs)
    assert result.code == 0
    good, bad = result.group["channels"]
    assert bad["peaks"] == []
    assert all(p["power"] > 0 for p in good["peaks"])
    assert (tmp_path / "p.png").exists()


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


@pytest.mark.parametrize("command", ["welch", "explain"])
def test_default_peak_count_is_limited_by_the_bins(
    npy: Path, call: CommandRunner, command: str
) -> None:
    """Fewer bins than the default 16 peaks are all shown, unless 16 were requested."""
    args = command, npy, "--fs", 250, "--nperseg", 20
    result = call(*args, *(["--json", "-"] if command == "welch" else ["--json"]))
    if command == "welch":
        assert len(result.group["channels"][0]["peaks"]) == 11
    else:
        assert result.document["jobs"][0]["numbers"]["k"] == 11
    check_rejected(call(*args, "--k", 16), 2, "k is 16", "1 to 11")


def test_only_the_first_segments_are_read(
    tmp_path: Path, npy: Path, call: CommandRunner
) -> None:
    """`--nsegments` averages the beginning of the recording and stops there."""
    args = "welch", npy, "--fs", 9, "--preset", "scipy", "--nsegments", 3
    result = call(*args, "--json", "-", "--npz", tmp_path / "o.npz")
    assert result.group["n_segments"] == 3
    _, power = scipy.signal.welch(X[:, : 256 + 2 * 128], 9, nperseg=256)
    with np.load(tmp_path / "o.npz") as arrays:
        np.testing.assert_allclose(arrays["psd"], power, rtol=1e-9)


def test_single_precision_files_stay_single(
    tmp_path: Path, call: CommandRunner
) -> None:
    """float32 samples give float32 results, unless float64 is requested."""
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    args = "welch", tmp_path / "x.npy", "--fs", 9, "--json", "-", "--device", "cpu"
    assert call(*args).group["dtype"] == "float32"
    float64_result = call(*args, "--precision", "f64")
    assert float64_result.group["dtype"] == "float64"


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


def test_integer_wav_samples_are_scaled_to_full_scale(
    tmp_path: Path, call: CommandRunner
) -> None:
    """A sine of half amplitude has the same power whatever the sample width."""
    path = tmp_path / "x.wav"
    tone = np.sin(2 * np.pi * 125 * np.arange(8000) / 1000)
    soundfile.write(path, np.round(tone * 2**14).astype(np.int16), 1000)
    args = "welch", path, "--preset", "scipy", "--window", "boxcar", "--k", 1
    ((peak,),) = [c["peaks"] for c in call(*args, "--json", "-").group["channels"]]
    assert peak["hz"] == 125
    assert peak["power"] * 1000 / 256 == pytest.approx(0.5**2 / 2, rel=1e-3)


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
