"""WAV files by `wave` and by soundfile come back with their exact values."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.io import open_recording
from tests.recordings import check_unreadable

RNG = np.random.default_rng(5)


def riff(
    fmt: bytes, data: bytes, *, size: int | None = None, before: bytes = b""
) -> bytes:
    """A WAV file of the given format chunk and samples."""
    body = b"WAVE" + before + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    body += b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def pcm(bits: int, channels: int = 1, fs: int = 8000, tag: int = 1) -> bytes:
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, fs, fs * frame, frame, bits)


def write_wave(path: Path, raw: bytes, channels: int, width: int, fs: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, fs, 0, "NONE", ""))
        file.writeframes(raw)


@pytest.mark.parametrize(
    ("subtype", "dtype"),
    [
        ("PCM_U8", np.float32),
        ("PCM_16", np.float32),
        ("PCM_24", np.float32),
        ("PCM_32", np.float64),
        ("FLOAT", np.float32),
        ("DOUBLE", np.float64),
    ],
)
@pytest.mark.parametrize("container", ["WAV", "WAVEX", "RF64"])
def test_every_width_equals_soundfile(
    tmp_path: Path, subtype: str, dtype: type, container: str
) -> None:
    """Plain, extensible and RF64 files of all widths, three channels."""
    path = tmp_path / "a.wav"
    x = RNG.uniform(-0.9, 0.9, (501, 3))
    soundfile.write(path, x, 44100, subtype=subtype, format=container)
    expected, fs = soundfile.read(path, dtype="float64")
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert recording.format == "WAV"
        assert group.fs == fs == 44100
        assert group.dtype == dtype
        assert group.names == ("ch1", "ch2", "ch3")
        assert group.read().dtype == dtype
        np.testing.assert_array_equal(group.read(), expected.T)
        np.testing.assert_array_equal(group.read(17, 400), expected[17:400].T)


@given(
    width=st.sampled_from([1, 2, 3, 4]),
    channels=st.integers(1, 4),
    frames=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_integers_of_any_width_come_back_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    width: int,
    channels: int,
    frames: int,
    seed: int,
) -> None:
    """Samples times full scale are the integers that `wave` wrote."""
    path = tmp_path_factory.mktemp("wav") / "a.wav"
    raw = np.random.default_rng(seed).bytes(width * channels * frames)
    write_wave(path, raw, channels, width, 1000)
    pieces = [raw[i : i + width] for i in range(0, len(raw), width)]
    whole = [
        int.from_bytes(p, "little", signed=width > 1) - (128 if width == 1 else 0)
        for p in pieces
    ]
    with open_recording(path) as recording:
        got = recording.groups[0].read().astype(np.float64) * 2.0 ** (8 * width - 1)
    np.testing.assert_array_equal(got, np.reshape(whole, (frames, channels)).T)


def test_chunks_before_the_samples_are_passed_over(tmp_path: Path) -> None:
    """Notes of odd length, with their pad byte, do not shift the samples."""
    path = tmp_path / "a.wav"
    note = b"LIST" + struct.pack("<I", 5) + b"hello\0"
    path.write_bytes(riff(pcm(16), struct.pack("<3h", 1, -2, 3), before=note))
    with open_recording(path) as recording:
        got = recording.groups[0].read() * 32768
    assert got.tolist() == [[1.0, -2.0, 3.0]]


def test_one_channel_of_many_is_read_alone(tmp_path: Path) -> None:
    """Channels are picked by the names rlxweb gives them, in the order asked."""
    path = tmp_path / "a.wav"
    x = RNG.uniform(-0.5, 0.5, (64, 4))
    soundfile.write(path, x, 8000, subtype="DOUBLE")
    with open_recording(path, channels=["CH4", "ch2"]) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), x[:, [3, 1]].T)


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (riff(pcm(16), b"\0" * 8, size=80), "cut short.*80 bytes.*8 are there"),
        (riff(pcm(16), b"\0" * 7), "middle of a frame"),
        (riff(pcm(16, tag=7), b"\0" * 8), "mu-law"),
        (riff(pcm(16, tag=999), b"\0" * 8), "format 999"),
        (riff(pcm(12), b"\0" * 8), "12 bits"),
        (riff(pcm(16, tag=3), b"\0" * 8), "float has 32, 64"),
        (riff(pcm(16, channels=0), b"\0" * 8), "0 channels"),
        (riff(pcm(16, fs=0), b"\0" * 8), "0 Hz"),
        (riff(pcm(16)[:12] + struct.pack("<HH", 3, 16), b"\0" * 6), "contradicts"),
        (riff(pcm(16)[:10], b""), "too short"),
        (riff(pcm(16, tag=0xFFFE) + b"\0" * 24, b"\0" * 8), "unknown subformat"),
        (riff(pcm(16), b""), "no samples"),
        (b"RIFX" + riff(pcm(16), b"")[4:], "big-endian"),
        (b"RIFF\0\0\0\0AVI LIST", "is none"),
        (b"RIFF\x10\0\0\0WAVEdata\x04\0\0\0\0\0\0\0", "before their format"),
    ],
)
def test_a_broken_wav_file_is_refused(tmp_path: Path, raw: bytes, match: str) -> None:
    """Each fault has its own message, with both numbers where there are two."""
    path = tmp_path / "bad.wav"
    path.write_bytes(raw)
    check_unreadable(path, match)
