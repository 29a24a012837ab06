"""Epochs on the command line: what MNE and SciPy make of the same, averaged."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import edfio
import mne
import numpy as np
import pytest
import scipy.signal
from numpy.typing import NDArray

import rlxweb as rlx
from rlxweb.io import cutting, epochs
from rlxweb.jobs import averaging, epoch_spectrogram
from tests.command_line import Call, check_refused

FS = 200.0
NAMES = ("Cz", "Pz", "Oz")
LEFT = np.arange(5.0, 55.0, 5.0)
RIGHT = np.arange(7.013, 55.0, 5.0)
SPAN = ("--tmin", "-0.2", "--tmax", "0.8")
STIM = ("--epochs", "stim*", *SPAN)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten epochs of two kinds each, one too near the end; one of the left is wild."""
    x = np.random.default_rng(5).normal(0, 20, (3, 12_000))
    x[2, 2010:2020] += 700.0
    notes = [edfio.EdfAnnotation(at, None, "Stim left") for at in (*LEFT, 59.9)]
    notes += [edfio.EdfAnnotation(at, None, "Stim right") for at in RIGHT]
    notes.append(edfio.EdfAnnotation(59.95, None, "Stim odd"))
    signals = [
        edfio.EdfSignal(
            row, FS, label=name, physical_dimension="uV", physical_range=(-1000, 1000)
        )
        for name, row in zip(NAMES, x, strict=True)
    ]
    path = tmp_path_factory.mktemp("epochs") / "a.edf"
    edfio.Edf(signals, annotations=notes).write(path)
    return path


def cut(path: Path, onsets: Any, low: float = -0.2, high: float = 0.8) -> NDArray[Any]:
    """(E, C, T) in microvolts, as edfio reads them."""
    x = np.stack([one.data for one in edfio.read_edf(path).signals])
    first = np.round(np.asarray(onsets) * FS).astype(int) + round(low * FS)
    return np.stack([x[:, at : at + round((high - low) * FS)] for at in first])


def arrays(call: Call, folder: Path, *asked: Any) -> dict[str, NDArray[Any]]:
    """What a run writes as NPZ."""
    out = folder / "o.npz"
    said = call(*asked, "--npz", out)
    assert said.code == 0, said.err
    with np.load(out) as found:
        return dict(found)


def test_whole_epochs_are_mnes(path: Path, tmp_path: Path, call: Call) -> None:
    raw = mne.io.read_raw_edf(path, verbose="error")
    events, kinds = mne.events_from_annotations(raw, regexp="Stim", verbose="error")
    theirs = mne.Epochs(
        *(raw, events, kinds),
        tmin=-0.2,
        tmax=0.8 - 1 / FS,  # which MNE takes in
        baseline=None,
        preload=True,
        verbose="error",
    )
    density = theirs.compute_psd(
        "welch", n_fft=200, n_overlap=0, fmin=0.0, fmax=np.inf, verbose="error"
    )
    got = arrays(call, tmp_path, "welch", path, *STIM, "--preset", "mne")
    assert (got["n_epochs"], got["n_dropped"]) == (len(theirs), 2) == (20, 2)
    wanted = density.average().get_data() * 1e12
    np.testing.assert_allclose(got["psd"], wanted, rtol=1e-9)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(
    ("flags", "how"),
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
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    small: bool,
    flags: Any,
    how: Any,
) -> None:
    """Segments stay in their epochs, in blocks that end within an epoch, too."""
    if small:
        monkeypatch.setattr(averaging, "BLOCK_BYTES", 8 * 3 * 200)
        monkeypatch.setattr(cutting, "_HELD_NBYTES", 8 * 3 * 90)
    got = arrays(call, tmp_path, "welch", path, *STIM, "--preset", "scipy", *flags)
    _, wanted = scipy.signal.welch(cut(path, [*LEFT, *RIGHT]), FS, **how)
    np.testing.assert_allclose(got["psd"], wanted.mean(axis=0), rtol=1e-9)


def test_a_spectrum_for_each_text(path: Path, call: Call) -> None:
    """Texts have a spectrum each, and the count of its epochs, in every output."""
    flags = (*STIM, "--by", "text", "--preset", "scipy", "--k", "2", "--reject", "500")
    said = call("welch", path, *flags, "--csv", "-", "--json", "/dev/null")
    assert said.code == 0
    rows = list(csv.DictReader(io.StringIO(said.out)))
    told = {(r["condition"], r["n_epochs"], r["n_dropped"]) for r in rows}
    assert told == {("Stim left", "9", "2"), ("Stim right", "10", "0")}
    assert "9 epochs of 'Stim left', -0.2 to 0.8 s, 2 dropped (1 outside" in said.err
    assert "no epoch of 'Stim odd' is left of 1: 1 beyond an end" in said.err
    calm = [at for at in LEFT if at != 10.0]
    f, wanted = scipy.signal.welch(cut(path, calm), FS, nperseg=200)
    at = wanted.mean(axis=0)[0].argmax()
    assert (float(rows[0]["hz"]), rows[0]["channel"]) == (f[at], "Cz")
    record = call("welch", path, *flags, "--json", "-").record
    (left, _) = record["files"][0]["groups"]
    assert left["epochs"]["counts"] == {"Stim left": 9}
    lost = {"outside the recording": 1, "annotated as bad": 0, "peak to peak": 1}
    assert left["epochs"]["dropped"] == lost
    assert record["settings"]["epochs"]["around"] == "stim*"


def test_python_says_the_same_in_two_lines(
    path: Path, tmp_path: Path, call: Call
) -> None:
    with rlx.read(path) as recording:
        found = epochs(recording, "Stim*", -0.2, 0.8, reject=500)
    assert found.counts == {"Stim left": 9, "Stim right": 10}
    assert (len(found.dropped), len(found.rejected)) == (2, 1)
    spectrum = rlx.welch(found["stim right"], nperseg=100).mean("epoch")
    flags = (*STIM, "--reject", "500", "--preset", "scipy", "--nperseg", "100")
    got = arrays(call, tmp_path, "welch", path, *flags, "--by", "text")
    np.testing.assert_allclose(got["f0_g1_psd"], spectrum.power, rtol=1e-9)
    bands = rlx.band_power_of(spectrum)
    said = call(
        "bands", path, *flags[:-4], "--by", "text", "--segment-s", "0.5", "--csv", "-"
    )
    rows = list(csv.DictReader(io.StringIO(said.out)))
    power = [float(r["power"]) for r in rows if r["condition"] == "Stim right"]
    np.testing.assert_allclose(power, bands.absolute.reshape(-1), rtol=1e-9)


def test_filters_run_over_the_recording_before_it_is_cut(
    path: Path, tmp_path: Path, call: Call
) -> None:
    flags = (*STIM, "--highpass", "2", "-r", "average", "--preset", "scipy")
    got = arrays(call, tmp_path, "welch", path, *flags)
    x = np.stack([one.data for one in edfio.read_edf(path).signals])
    sos = scipy.signal.butter(4, 2.0, "highpass", fs=FS, output="sos")
    x = scipy.signal.sosfiltfilt(sos, x - x.mean(0), axis=-1)
    first = np.round(np.array([*LEFT, *RIGHT]) * FS).astype(int) - 40
    parts = np.stack([x[:, at : at + 200] for at in first])
    _, wanted = scipy.signal.welch(parts, FS, nperseg=200)
    np.testing.assert_allclose(got["psd"], wanted.mean(axis=0), rtol=1e-8)


def test_bands_of_epochs_are_typed(path: Path, tmp_path: Path, call: Call) -> None:
    import pyarrow.parquet as pq

    files = {"--parquet": tmp_path / "b.parquet", "--plot": tmp_path / "b.png"}
    flags = [one for pair in files.items() for one in pair]
    said = call("bands", path, *STIM, *flags)
    assert said.code == 0, said.err
    assert "20 epochs of 'stim*' (Stim left 10, Stim right 10)" in said.out
    table = pq.read_table(files["--parquet"])
    assert table["n_epochs"].to_pylist() == [20] * 15
    assert str(table.schema.field("n_dropped").type) == "int64"
    out = tmp_path / "p.parquet"
    assert call("welch", path, *STIM, "--by", "text", "--out", out).code == 0
    peaks = pq.read_table(out)
    assert set(peaks["condition"].to_pylist()) == {"Stim left", "Stim right"}


def test_what_is_annotated_as_bad_is_left_out_as_mne_does(
    tmp_path: Path, call: Call
) -> None:
    """What overlaps it by a sample; a bad moment between the samples counts too."""
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
    theirs = mne.Epochs(raw, events, kinds, **span, preload=True, verbose="error")
    with rlx.read(path) as recording:
        ours = epochs(recording, "go", 0.0, 1.0)
        every = epochs(recording, "go", 0.0, 1.0, keep_bad=True)
    kept = [round(note.onset * FS) for note in ours.events]
    assert kept == theirs.events[:, 0].tolist()
    assert (len(every), len(ours.bad)) == (13, 13 - len(kept))
    assert len(ours.bad) > 2
    flags = ("--epochs", "go", "--tmax", "1", "--json", "-")
    told = call("welch", path, *flags).group["epochs"]
    assert told["dropped"]["annotated as bad"] == len(ours.bad)
    assert call("welch", path, *flags, "--keep-bad").group["epochs"]["n_epochs"] == 13
    said = call("welch", path, "--epochs", "go", "--tmin", "-1", "--tmax", "24")
    check_refused(said, 2, "annotated as bad; it has 30 s; keep those: --keep-bad")


# --- over time --------------------------------------------------------------------


def test_spectrograms_are_averaged_over_epochs(
    path: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time counts from the annotation; a few epochs are held at once."""
    monkeypatch.setattr(epoch_spectrogram, "BLOCK_BYTES", 60_000)
    flags = ("--epochs", "Stim left", *SPAN, "--overlap", "0.5", "--fmax", "60")
    got = arrays(call, tmp_path, "spectrogram", path, *flags)
    f, t, wanted = scipy.signal.spectrogram(cut(path, LEFT), FS, "hann", 50, 25)
    np.testing.assert_allclose(got["power"], wanted.mean(0)[:, f <= 60], rtol=1e-9)
    np.testing.assert_allclose(got["t"], t - 0.2)
    assert got["n_epochs"] == 10
    with rlx.read(path) as recording:
        found = epochs(recording, "Stim left", -0.2, 0.8)
    ours = rlx.spectrogram(found, window="hann", nperseg=50, noverlap=25).mean()
    np.testing.assert_allclose(ours.t, got["t"])
    np.testing.assert_allclose(ours.values[:, f <= 60], got["power"], rtol=1e-9)
    few = arrays(call, tmp_path, "spectrogram", path, *flags, "--columns", "4")
    pairs = got["power"][..., :6].reshape(3, -1, 3, 2).mean(-1)
    np.testing.assert_allclose(few["power"][..., :3], pairs)


def test_powers_over_a_baseline(path: Path, tmp_path: Path, call: Call) -> None:
    """A baseline divides by the mean before, as MNE's apply_baseline has it."""
    flags = ("--epochs", "Stim right", "--tmin", "-0.5", "--tmax", "0.5")
    plain = arrays(call, tmp_path, "spectrogram", path, *flags)
    got = arrays(call, tmp_path, "spectrogram", path, *flags, "--baseline", "-0.5:0")
    wanted = mne.baseline.rescale(
        *(plain["power"], plain["t"], (-0.5, 0.0), "ratio"), verbose="error"
    )
    np.testing.assert_allclose(got["power"], wanted)
    assert got["baseline"].tolist() == [-0.5, 0.0]
    said = call(
        "spectrogram",
        path,
        *flags,
        "--baseline",
        "-0.5:0",
        "--plot",
        tmp_path / "s.png",
    )
    assert "over baseline" in said.out
    assert " dB" in said.out


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ("welch", ["--epochs", "Foo", "--tmax", "1"], "there are 'Stim left', 'Stim"),
        ("welch", ["--epochs", "Stim*"], "an epoch needs an end; give --tmax S"),
        ("welch", ["--epochs", " ", "--tmax", "1"], "no annotation is named"),
        ("bands", ["--tmin", "1"], "--tmin: it is of epochs"),
        ("bands", ["--by", "text"], "--by: it is of epochs"),
        ("spectrogram", ["--reject", "9"], "--reject: it is of epochs"),
        ("welch", ["--keep-bad"], "--keep-bad: it is of epochs"),
        ("spectrogram", ["--baseline", "0:1"], "--baseline: it is of epochs"),
        ("spectrogram", [*STIM, "--baseline", "0"], "'0' is no stretch"),
        ("spectrogram", [*STIM, "--baseline", "2:3"], "no segment has its middle"),
        ("welch", ["--epochs", "Stim*", "--tmin", "1", "--tmax", "1"], "after tmin, 1"),
        ("welch", [*STIM, "--nperseg", "256"], "has 256 samples (1.28 s); an epoch"),
        (
            "bands",
            [*STIM, "--segment-s", "2"],
            "200 Hz has 200 (1 s); use a smaller --",
        ),
        ("spectrogram", [*STIM, "--segment-s", "2"], "an epoch at 200 Hz has 200 (1"),
        ("welch", [*STIM, "--reject", "1"], "2 beyond an end, 20 above peak to peak"),
        ("welch", ["--epochs", "Stim*", "--tmax", "90"], "is left of 22: 22 beyond an"),
        ("welch", [*STIM, "--reject", "0"], "0.0 is not in the range"),
    ],
)
def test_epochs_that_cannot_be(
    path: Path, call: Call, command: str, more: list[str], said: str
) -> None:
    check_refused(call(command, path, *more), 2, said)


def test_a_file_without_annotations(tmp_path: Path, call: Call) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 900)))
    said = call("welch", tmp_path / "x.npy", "--fs", 100, *STIM)
    check_refused(said, 2, "no annotation is called 'stim*'; it has no annotations")
