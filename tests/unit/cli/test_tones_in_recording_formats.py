"""Round trip of test tones through recordings written by edfio, wave, soundfile and
NumPy.
"""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import edfio
import numpy as np
import pytest
import soundfile

from tests.cli_runners import CommandResult, CommandRunner

FS = 512
SECONDS = 20
TONES = (11.0, 37.5, 120.0)


def tones() -> np.ndarray:
    """Return one tone per channel, with a weaker one at 60 Hz and some noise, within
    ±0.8.
    """
    t = np.arange(FS * SECONDS) / FS
    noise = np.random.default_rng(2).standard_normal((len(TONES), len(t)))
    strong = np.sin(2 * np.pi * np.array(TONES)[:, None] * t)
    return 0.6 * strong + 0.15 * np.sin(2 * np.pi * 60 * t) + 0.01 * noise


def write_edf(path: Path) -> None:
    """Write an EDF file in microvolts, with an annotation channel."""
    signals = [
        edfio.EdfSignal(row * 100, FS, label=f"C{index}", physical_dimension="uV")
        for index, row in enumerate(tones())
    ]
    annotation = edfio.EdfAnnotation(0, None, "begin")
    edfio.Edf(signals, annotations=[annotation]).write(path)


def write_bdf(path: Path) -> None:
    """Write a 24-bit BDF file with a status channel."""
    rows = [*tones() * 100, np.zeros(FS * SECONDS)]
    signals = [
        edfio.BdfSignal(row, FS, label=label, physical_range=(-200, 200))
        for label, row in zip(("A1", "A2", "A3", "Status"), rows, strict=True)
    ]
    edfio.Bdf(signals).write(path)


def write_wave(path: Path, width: int) -> None:
    """Write integer PCM with the standard library."""
    codes = np.round(tones().T * 2 ** (8 * width - 1) * 0.99).astype(np.int64)
    if width == 1:
        codes += 128
    raw = (
        np.ascontiguousarray(codes, "<i8")
        .view(np.uint8)
        .reshape(*codes.shape, 8)[..., :width]
    )
    with wave.open(str(path), "wb") as file:
        file.setparams((len(TONES), width, FS, 0, "NONE", ""))
        file.writeframes(raw.tobytes())


def write_npz(path: Path) -> None:
    np.savez(path, x=tones().astype(np.float32), fs=float(FS))


def write_csv(path: Path) -> None:
    """Write a time column and one column per channel."""
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


def peak_frequencies(result: CommandResult) -> list[list[float]]:
    return [[peak["hz"] for peak in c["peaks"]] for c in result.group["channels"]]


@pytest.mark.parametrize("name", WRITERS)
def test_tones_are_recovered_from_every_format(
    tmp_path: Path, call: CommandRunner, name: str
) -> None:
    """The strongest peak of each channel is its tone, the second the common one."""
    path = tmp_path / name
    WRITERS[name](path)
    fs = ["--fs", FS] if name == "x.npy" else []
    result = call(
        *("welch", path, *fs, "--nperseg", 1024, "--k", 2, "--preset", "scipy"),
        *("--mode", "peaks", "--json", "-"),
    )
    assert result.code == 0, result.err
    np.testing.assert_allclose(
        peak_frequencies(result), [[hz, 60.0] for hz in TONES], atol=0.02
    )
    strongest_bin_result = call(
        "welch", path, *fs, "--nperseg", 1024, "--k", 1, "--json", "-"
    )
    assert peak_frequencies(strongest_bin_result) == [[hz] for hz in TONES]


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
    call: CommandRunner,
    name: str,
    channels: int,
    rate: int,
    left_out: list[str],
) -> None:
    """Check table, heatmap and JSON document of an EEG; mains hum stands out in one of
    them.
    """
    picture = tmp_path / "p.png"
    result = call(
        *("welch", eeg_recordings / name, "--nperseg", rate, "--preset", "scipy"),
        *("--mode", "peaks", "--k", 40, "--json", "-", "--plot", picture),
    )
    assert result.code == 0, result.err
    (file,), group = result.document["files"], result.group
    assert [entry["channel"] for entry in file["left_out"]] == left_out
    assert (len(group["channels"]), group["fs"]) == (channels, rate)
    assert {c["power_unit"] for c in group["channels"]} == {"µV²/Hz"}
    peaks = [peak for c in group["channels"] for peak in c["peaks"]]
    assert all(0 < peak["hz"] < rate / 2 and peak["power"] > 0 for peak in peaks)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "more channels" not in result.err
    if name == "test.edf":
        has_hum = [
            any(abs(p["hz"] - 50) < 0.5 for p in c["peaks"]) for c in group["channels"]
        ]
        assert sum(has_hum) > 100
