"""Recordings made by edfio, wave, soundfile and NumPy give back the tones put in."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import edfio
import numpy as np
import pytest
import soundfile

from tests.command_line import Call, Said

FS = 512
SECONDS = 20
TONES = (11.0, 37.5, 120.0)


def tones() -> np.ndarray:
    """One tone per channel, with a weaker one at 60 Hz and some noise, within ±0.8."""
    t = np.arange(FS * SECONDS) / FS
    noise = np.random.default_rng(2).standard_normal((len(TONES), len(t)))
    strong = np.sin(2 * np.pi * np.array(TONES)[:, None] * t)
    return 0.6 * strong + 0.15 * np.sin(2 * np.pi * 60 * t) + 0.01 * noise


def write_edf(path: Path) -> None:
    """Write an EDF file in microvolts, with an annotation channel."""
    signals = [
        edfio.EdfSignal(row * 100, FS, label=f"C{at}", physical_dimension="uV")
        for at, row in enumerate(tones())
    ]
    note = edfio.EdfAnnotation(0, None, "begin")
    edfio.Edf(signals, annotations=[note]).write(path)


def write_bdf(path: Path) -> None:
    """24 bits, with a status channel."""
    rows = [*tones() * 100, np.zeros(FS * SECONDS)]
    signals = [
        edfio.BdfSignal(row, FS, label=label, physical_range=(-200, 200))
        for label, row in zip(("A1", "A2", "A3", "Status"), rows, strict=True)
    ]
    edfio.Bdf(signals).write(path)


def write_wave(path: Path, width: int) -> None:
    """Integer PCM by the standard library."""
    whole = np.round(tones().T * 2 ** (8 * width - 1) * 0.99).astype(np.int64)
    if width == 1:
        whole += 128
    raw = (
        np.ascontiguousarray(whole, "<i8")
        .view(np.uint8)
        .reshape(*whole.shape, 8)[..., :width]
    )
    with wave.open(str(path), "wb") as file:
        file.setparams((len(TONES), width, FS, 0, "NONE", ""))
        file.writeframes(raw.tobytes())


def write_npz(path: Path) -> None:
    np.savez(path, x=tones().astype(np.float32), fs=float(FS))


def write_csv(path: Path) -> None:
    """A time column and one column a channel."""
    columns = np.vstack([np.arange(FS * SECONDS) / FS, tones()]).T
    np.savetxt(path, columns, delimiter=",", header="time,a,b,c", comments="")


WRITERS: dict[str, Callable[[Path], None]] = {
    "x.edf": write_edf,
    "x.bdf": write_bdf,
    "u8.wav": lambda path: write_wave(path, 1),
    "i16.wav": lambda path: write_wave(path, 2),
    "i24.wav": lambda path: write_wave(path, 3),
    "i32.wav": lambda path: write_wave(path, 4),
    "f32.wav": lambda path: soundfile.write(path, tones().T, FS, subtype="FLOAT"),
    "f64.wav": lambda path: soundfile.write(path, tones().T, FS, subtype="DOUBLE"),
    "ex.wav": lambda path: soundfile.write(
        path, tones().T, FS, subtype="PCM_24", format="WAVEX"
    ),
    "x.npy": lambda path: np.save(path, np.asfortranarray(tones())),
    "x.npz": write_npz,
    "x.csv": write_csv,
}


def peaks_of(said: Said) -> list[list[float]]:
    return [[peak["hz"] for peak in c["peaks"]] for c in said.group["channels"]]


@pytest.mark.parametrize("name", WRITERS)
def test_the_tones_put_in_come_out(tmp_path: Path, call: Call, name: str) -> None:
    """The strongest peak of each channel is its tone, the next the common one."""
    path = tmp_path / name
    WRITERS[name](path)
    fs = ["--fs", FS] if name == "x.npy" else []
    said = call(
        *("welch", path, *fs, "--nperseg", 1024, "--k", 2, "--preset", "scipy"),
        *("--mode", "peaks", "--json", "-"),
    )
    assert said.code == 0, said.err
    np.testing.assert_allclose(peaks_of(said), [[hz, 60.0] for hz in TONES], atol=0.02)
    bins = call("welch", path, *fs, "--nperseg", 1024, "--k", 1, "--json", "-")
    assert peaks_of(bins) == [[hz] for hz in TONES]


@pytest.mark.parametrize(
    ("name", "channels", "rate", "left_out"),
    [
        ("test.edf", 138, 512, ["Status", "EDF Annotations"]),
        ("test.bdf", 72, 2048, ["Status"]),
    ],
)
def test_recordings_of_many_channels(
    tmp_path: Path,
    eeg_recordings: Path,
    call: Call,
    name: str,
    channels: int,
    rate: int,
    left_out: list[str],
) -> None:
    """Table, heatmap and record of an EEG; mains hum stands out in one of them."""
    picture = tmp_path / "p.png"
    said = call(
        *("welch", eeg_recordings / name, "--nperseg", rate, "--preset", "scipy"),
        *("--mode", "peaks", "--k", 40, "--json", "-", "--plot", picture),
    )
    assert said.code == 0, said.err
    (file,), group = said.record["files"], said.group
    assert [one["channel"] for one in file["left_out"]] == left_out
    assert (len(group["channels"]), group["fs"]) == (channels, rate)
    assert {c["power_unit"] for c in group["channels"]} == {"µV²/Hz"}
    every = [peak for c in group["channels"] for peak in c["peaks"]]
    assert all(0 < peak["hz"] < rate / 2 and peak["power"] > 0 for peak in every)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "more channels" not in said.err
    if name == "test.edf":
        hum = [
            any(abs(p["hz"] - 50) < 0.5 for p in c["peaks"]) for c in group["channels"]
        ]
        assert sum(hum) > 100
