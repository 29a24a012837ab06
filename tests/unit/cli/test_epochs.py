"""Epochs on the command line, compared with MNE and SciPy, and averaged."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import edfio
import mne
import numpy as np
import pytest
import scipy.signal
from numpy.typing import NDArray

import rlxweb as rlx
from rlxweb.batch import channel_group_power, epoch_spectrogram
from rlxweb.io import epoch_selection, epochs
from tests.cli_runners import CommandRunner, check_rejected
from tests.unit.cli.shared_files import EVENT_FS as FS
from tests.unit.cli.shared_files import LEFT_ONSETS, RIGHT_ONSETS

SPAN_ARGS = ("--tmin", "-0.2", "--tmax", "0.8")
STIM_ARGS = ("--epochs", "stim*", *SPAN_ARGS)


@pytest.fixture
def path(place_files: Callable[[str], None], tmp_path: Path) -> Path:
    """Ten epochs of two kinds each, one too near the end; one of the left kind is an
    artifact.
    """
    place_files("events.edf")
    return tmp_path / "events.edf"


def cut_epochs(
    path: Path, onsets: Any, low: float = -0.2, high: float = 0.8
) -> NDArray[Any]:
    """Return the epochs in microvolts, as edfio reads them, shape (E, C, T)."""
    x = np.stack([signal.data for signal in edfio.read_edf(path).signals])
    first = np.round(np.asarray(onsets) * FS).astype(int) + round(low * FS)
    return np.stack([x[:, at : at + round((high - low) * FS)] for at in first])


def run_to_arrays(
    call: CommandRunner, folder: Path, *args: Any
) -> dict[str, NDArray[Any]]:
    """Return the arrays that a run writes as NPZ."""
    out = folder / "o.npz"
    result = call(*args, "--npz", out)
    assert result.code == 0, result.err
    with np.load(out) as npz:
        return dict(npz)


def test_full_epochs_match_mne(path: Path, tmp_path: Path, call: CommandRunner) -> None:
    raw = mne.io.read_raw_edf(path, verbose="error")
    events, kinds = mne.events_from_annotations(raw, regexp="Stim", verbose="error")
    mne_epochs = mne.Epochs(
        *(raw, events, kinds),
        tmin=-0.2,
        tmax=0.8 - 1 / FS,  # which MNE takes in
        baseline=None,
        preload=True,
        verbose="error",
    )
    density = mne_epochs.compute_psd(
        "welch", n_fft=200, n_overlap=0, fmin=0.0, fmax=np.inf, verbose="error"
    )
    got = run_to_arrays(call, tmp_path, "welch", path, *STIM_ARGS, "--preset", "mne")
    assert (got["n_epochs"], got["n_dropped"]) == (len(mne_epochs), 2) == (20, 2)
    expected = density.average().get_data() * 1e12
    np.testing.assert_allclose(got["psd"], expected, rtol=1e-9)


@pytest.mark.parametrize("small_blocks", [False, True])
@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ((), {"nperseg": 200}),
        (("--nperseg", "64"), {"nperseg": 64}),
        (("--nperseg", "50", "--noverlap", "40"), {"nperseg": 50, "noverlap": 40}),
    ],
)
def test_segments_stay_in_their_epochs(
    *,
    path: Path,
    tmp_path: Path,
    call: CommandRunner,
    monkeypatch: pytest.MonkeyPatch,
    small_blocks: bool,
    flags: Any,
    options: Any,
) -> None:
    """Segments stay in their epochs, also in blocks that end within an epoch."""
    if small_blocks:
        monkeypatch.setattr(channel_group_power, "BLOCK_NBYTES", 8 * 3 * 200)
        monkeypatch.setattr(epoch_selection, "_MAX_READ_NBYTES", 8 * 3 * 90)
    got = run_to_arrays(
        call, tmp_path, "welch", path, *STIM_ARGS, "--preset", "scipy", *flags
    )
    _, expected = scipy.signal.welch(
        cut_epochs(path, [*LEFT_ONSETS, *RIGHT_ONSETS]), FS, **options
    )
    np.testing.assert_allclose(got["psd"], expected.mean(axis=0), rtol=1e-9)


def test_each_text_has_a_spectrum(path: Path, call: CommandRunner) -> None:
    """Texts have a spectrum each, with the count of their epochs, in every output."""
    flags = (
        *STIM_ARGS,
        "--by",
        "text",
        "--preset",
        "scipy",
        "--k",
        "2",
        "--reject",
        "500",
    )
    result = call("welch", path, *flags, "--csv", "-", "--json", "/dev/null")
    assert result.code == 0
    rows = list(csv.DictReader(io.StringIO(result.out)))
    counts = {(r["condition"], r["n_epochs"], r["n_dropped"]) for r in rows}
    assert counts == {("Stim left", "9", "2"), ("Stim right", "10", "0")}
    assert "9 epochs of 'Stim left', -0.2 to 0.8 s, 2 dropped (1 outside" in result.err
    assert (
        "none of 1 epochs of 'Stim odd' remains: 1 outside the recording" in result.err
    )
    kept_onsets = [at for at in LEFT_ONSETS if at != 10.0]
    f, expected = scipy.signal.welch(cut_epochs(path, kept_onsets), FS, nperseg=200)
    at = expected.mean(axis=0)[0].argmax()
    assert (float(rows[0]["hz"]), rows[0]["channel"]) == (f[at], "Cz")
    document = call("welch", path, *flags, "--json", "-").document
    (left, _) = document["files"][0]["groups"]
    assert left["epochs"]["counts"] == {"Stim left": 9}
    dropped = {"outside the recording": 1, "annotated as bad": 0, "peak to peak": 1}
    assert left["epochs"]["dropped"] == dropped
    assert document["settings"]["epochs"]["around"] == "stim*"


def test_python_interface_gives_same_result(
    path: Path, tmp_path: Path, call: CommandRunner
) -> None:
    with rlx.read(path) as recording:
        stimulus_epochs = epochs(recording, "Stim*", -0.2, 0.8, reject=500)
    assert stimulus_epochs.counts == {"Stim left": 9, "Stim right": 10}
    assert (len(stimulus_epochs.dropped), len(stimulus_epochs.rejected)) == (2, 1)
    spectrum = rlx.welch(stimulus_epochs["stim right"], nperseg=100).mean("epoch")
    flags = (*STIM_ARGS, "--reject", "500", "--preset", "scipy", "--nperseg", "100")
    got = run_to_arrays(call, tmp_path, "welch", path, *flags, "--by", "text")
    np.testing.assert_allclose(got["f0_g1_psd"], spectrum.power, rtol=1e-9)
    bands = rlx.band_power_of(spectrum)
    result = call(
        "bands", path, *flags[:-4], "--by", "text", "--segment-s", "0.5", "--csv", "-"
    )
    rows = list(csv.DictReader(io.StringIO(result.out)))
    power = [float(r["power"]) for r in rows if r["condition"] == "Stim right"]
    np.testing.assert_allclose(power, bands.absolute.reshape(-1), rtol=1e-9)


def test_filters_run_before_epochs_are_cut(
    path: Path, tmp_path: Path, call: CommandRunner
) -> None:
    flags = (*STIM_ARGS, "--highpass", "2", "-r", "average", "--preset", "scipy")
    got = run_to_arrays(call, tmp_path, "welch", path, *flags)
    x = np.stack([signal.data for signal in edfio.read_edf(path).signals])
    sos = scipy.signal.butter(4, 2.0, "highpass", fs=FS, output="sos")
    x = scipy.signal.sosfiltfilt(sos, x - x.mean(0), axis=-1)
    first = np.round(np.array([*LEFT_ONSETS, *RIGHT_ONSETS]) * FS).astype(int) - 40
    parts = np.stack([x[:, at : at + 200] for at in first])
    _, expected = scipy.signal.welch(parts, FS, nperseg=200)
    np.testing.assert_allclose(got["psd"], expected.mean(axis=0), rtol=1e-8)


def test_parquet_of_epochs_has_typed_columns(
    path: Path, tmp_path: Path, call: CommandRunner
) -> None:
    import pyarrow.parquet as pq

    files = {"--parquet": tmp_path / "b.parquet", "--plot": tmp_path / "b.png"}
    flags = [arg for pair in files.items() for arg in pair]
    result = call("bands", path, *STIM_ARGS, *flags)
    assert result.code == 0, result.err
    assert "20 epochs of 'stim*' (Stim left 10, Stim right 10)" in result.out
    table = pq.read_table(files["--parquet"])
    assert table["n_epochs"].to_pylist() == [20] * 15
    assert str(table.schema.field("n_dropped").type) == "int64"
    out = tmp_path / "p.parquet"
    assert call("welch", path, *STIM_ARGS, "--by", "text", "--out", out).code == 0
    peaks = pq.read_table(out)
    assert set(peaks["condition"].to_pylist()) == {"Stim left", "Stim right"}


def test_bad_annotations_drop_epochs_like_mne(
    tmp_path: Path, call: CommandRunner
) -> None:
    """An epoch that overlaps a bad annotation by a sample is dropped; a bad moment
    between samples counts too.
    """
    x = np.random.default_rng(1).normal(0, 20, (2, 6000))
    notes = [edfio.EdfAnnotation(at, None, "go") for at in range(2, 28, 2)]
    bad = [(4.75, 0.2), (8.0, 0.0), (12.5, 3.0), (17.0, 0.995), (20.0, 0.005)]
    notes += [
        edfio.EdfAnnotation(at, span or None, f"{'BAD' if n % 2 else 'bad'}_{n}")
        for n, (at, span) in enumerate(bad)
    ]
    signals = [edfio.EdfSignal(row, FS, physical_range=(-200, 200)) for row in x]
    path = tmp_path / "bad.edf"
    edfio.Edf(signals, annotations=notes).write(path)
    raw = mne.io.read_raw_edf(path, verbose="error")
    events, kinds = mne.events_from_annotations(raw, regexp="go", verbose="error")
    span = {"tmin": 0.0, "tmax": 1.0 - 1 / FS, "baseline": None}
    mne_epochs = mne.Epochs(raw, events, kinds, **span, preload=True, verbose="error")
    with rlx.read(path) as recording:
        good_epochs = epochs(recording, "go", 0.0, 1.0)
        all_epochs = epochs(recording, "go", 0.0, 1.0, keep_bad=True)
    first_samples = [round(note.onset * FS) for note in good_epochs.events]
    assert first_samples == mne_epochs.events[:, 0].tolist()
    assert (len(all_epochs), len(good_epochs.bad)) == (13, 13 - len(first_samples))
    assert len(good_epochs.bad) > 2
    flags = ("--epochs", "go", "--tmax", "1", "--json", "-")
    summary = call("welch", path, *flags).group["epochs"]
    assert summary["dropped"]["annotated as bad"] == len(good_epochs.bad)
    assert call("welch", path, *flags, "--keep-bad").group["epochs"]["n_epochs"] == 13
    result = call("welch", path, "--epochs", "go", "--tmin", "-1", "--tmax", "24")
    check_rejected(
        result,
        2,
        "annotated as bad; the recording is 30 s long; keep bad epochs: --keep-bad",
    )


# --- over time --------------------------------------------------------------------


def test_spectrograms_are_averaged_over_epochs(
    path: Path, tmp_path: Path, call: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time counts from the annotation; only a few epochs are in memory at once."""
    monkeypatch.setattr(epoch_spectrogram, "BLOCK_NBYTES", 60_000)
    flags = ("--epochs", "Stim left", *SPAN_ARGS, "--overlap", "0.5", "--fmax", "60")
    got = run_to_arrays(call, tmp_path, "spectrogram", path, *flags)
    f, t, expected = scipy.signal.spectrogram(
        cut_epochs(path, LEFT_ONSETS), FS, "hann", 50, 25
    )
    np.testing.assert_allclose(got["power"], expected.mean(0)[:, f <= 60], rtol=1e-9)
    np.testing.assert_allclose(got["t"], t - 0.2)
    assert got["n_epochs"] == 10
    with rlx.read(path) as recording:
        stimulus_epochs = epochs(recording, "Stim left", -0.2, 0.8)
    spectrogram = rlx.spectrogram(
        stimulus_epochs, window="hann", nperseg=50, noverlap=25
    ).mean()
    np.testing.assert_allclose(spectrogram.t, got["t"])
    np.testing.assert_allclose(spectrogram.values[:, f <= 60], got["power"], rtol=1e-9)
    few_columns = run_to_arrays(
        call, tmp_path, "spectrogram", path, *flags, "--columns", "4"
    )
    pairs = got["power"][..., :6].reshape(3, -1, 3, 2).mean(-1)
    np.testing.assert_allclose(few_columns["power"][..., :3], pairs)


def test_spectrogram_over_baseline(
    path: Path, tmp_path: Path, call: CommandRunner
) -> None:
    """A baseline divides by its mean, as in MNE's apply_baseline."""
    flags = ("--epochs", "Stim right", "--tmin", "-0.5", "--tmax", "0.5")
    plain = run_to_arrays(call, tmp_path, "spectrogram", path, *flags)
    got = run_to_arrays(
        call, tmp_path, "spectrogram", path, *flags, "--baseline", "-0.5:0"
    )
    expected = mne.baseline.rescale(
        *(plain["power"], plain["t"], (-0.5, 0.0), "ratio"), verbose="error"
    )
    np.testing.assert_allclose(got["power"], expected)
    assert got["baseline"].tolist() == [-0.5, 0.0]
    result = call(
        "spectrogram",
        path,
        *flags,
        "--baseline",
        "-0.5:0",
        "--plot",
        tmp_path / "s.png",
    )
    assert "relative to baseline" in result.out
    assert " dB" in result.out
