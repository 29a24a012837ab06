"""WAV files by `wave` and by soundfile are read with their exact values."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import wavfile

from rlxweb.core.errors import RecordingWarning
from rlxweb.io import open_recording
from tests.edf_bdf_recordings import check_unreadable, read_with_warning

TRAILING_CHUNK = b"LIST" + struct.pack("<I", 4) + b"adtl"


def wav_bytes(
    fmt: bytes,
    data: bytes,
    *,
    size: int | None = None,
    before: bytes = b"",
    order: str = "<",
) -> bytes:
    """Return a WAV file of the given format chunk, samples and byte order."""
    pack_length = struct.Struct(f"{order}I").pack
    body = b"WAVE" + before + b"fmt " + pack_length(len(fmt)) + fmt
    body += b"data" + pack_length(len(data) if size is None else size) + data
    return (b"RIFX" if order == ">" else b"RIFF") + pack_length(len(body)) + body


def format_chunk(
    bits: int,
    channels: int = 1,
    fs: int = 8000,
    tag: int = 1,
    *,
    width: int = 0,
    order: str = "<",
    extensible: bool = False,
) -> bytes:
    """Return a format chunk with `bits` valid bits in containers of `width` bytes."""
    width = width or bits // 8
    frame = channels * width
    start = channels, fs, fs * frame, frame
    if not extensible:
        return struct.pack(f"{order}HHIIHH", tag, *start, bits)
    guid = 0, 16, bytes.fromhex("800000aa00389b71")
    ends = 22, 8 * width if bits % 8 == 0 else bits, 0, tag, *guid
    return struct.pack(f"{order}HHIIHHHHIIHH8s", 0xFFFE, *start, bits, *ends)


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
def test_samples_of_every_width_equal_soundfile(
    tmp_path: Path, subtype: str, dtype: type, container: str, rng: np.random.Generator
) -> None:
    """Plain, extensible and RF64 files of all widths, three channels."""
    path = tmp_path / "a.wav"
    x = rng.uniform(-0.9, 0.9, (501, 3))
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
def test_integers_of_any_width_are_read_exactly(
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
    raw_samples = [raw[i : i + width] for i in range(0, len(raw), width)]
    integers = [
        int.from_bytes(p, "little", signed=width > 1) - (128 if width == 1 else 0)
        for p in raw_samples
    ]
    with open_recording(path) as recording:
        got = recording.groups[0].read().astype(np.float64) * 2.0 ** (8 * width - 1)
    np.testing.assert_array_equal(got, np.reshape(integers, (frames, channels)).T)


def test_chunks_before_the_samples_are_skipped(tmp_path: Path) -> None:
    """Chunks before the samples, of odd length with their pad byte, shift nothing."""
    path = tmp_path / "a.wav"
    chunk = b"LIST" + struct.pack("<I", 5) + b"hello\0"
    path.write_bytes(
        wav_bytes(format_chunk(16), struct.pack("<3h", 1, -2, 3), before=chunk)
    )
    with open_recording(path) as recording:
        got = recording.groups[0].read() * 32768
    assert got.tolist() == [[1.0, -2.0, 3.0]]


def test_chunks_after_the_samples_are_skipped(tmp_path: Path) -> None:
    """Chunks after the samples, even very many, are no error."""
    path = tmp_path / "a.wav"
    for chunks in (TRAILING_CHUNK, b"note\0\0\0\0" * 20_000, b"\0", b""):
        path.write_bytes(wav_bytes(format_chunk(16), b"\1\0" * 3) + chunks)
        with open_recording(path) as recording:
            assert recording.groups[0].n_samples == 3


def test_a_length_of_all_ones_means_to_the_end_of_the_file(tmp_path: Path) -> None:
    """Pipes write a length of all ones; the field cannot express lengths beyond 4
    GiB.
    """
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(format_chunk(8), b"\x80" * 8, size=0xFFFFFFFF))
    with path.open("r+b") as file:
        file.truncate(5 << 30)
    with pytest.warns(
        RecordingWarning, match=f"all {(5 << 30) - 44} samples to the end"
    ):
        recording = open_recording(path)
    with recording:
        assert recording.groups[0].read((5 << 30) - 50).tolist() == [[-1.0] * 6]


def test_channels_are_selected_by_name(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Channels are selected by the names rlxweb gives them, in the requested order."""
    path = tmp_path / "a.wav"
    x = rng.uniform(-0.5, 0.5, (64, 4))
    soundfile.write(path, x, 8000, subtype="DOUBLE")
    with open_recording(path, channels=["CH4", "ch2"]) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), x[:, [3, 1]].T)


@pytest.mark.parametrize(
    ("subtype", "container", "endian"),
    [
        *((s, "WAV", "BIG") for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32")),
        *((s, "WAV", "BIG") for s in ("FLOAT", "DOUBLE")),
        *((s, c, "FILE") for s in ("ULAW", "ALAW") for c in ("WAV", "WAVEX", "RF64")),
    ],
)
def test_big_endian_and_companded_files_equal_soundfile(
    tmp_path: Path, subtype: str, container: str, endian: str
) -> None:
    """RIFX of every width, and both companding laws with all their values."""
    path = tmp_path / "a.wav"
    x = np.linspace(-1, 1, 2 * 4096).reshape(-1, 2) ** 3
    soundfile.write(path, x, 8000, subtype=subtype, format=container, endian=endian)
    expected, _ = soundfile.read(path, dtype="float64")
    with open_recording(path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), expected.T)
    assert len(np.unique(expected)) >= 250


@given(data=st.data(), order=st.sampled_from("<>"), extensible=st.booleans())
def test_integers_of_1_to_64_bits_equal_scipy(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    order: str,
    extensible: bool,
) -> None:
    """Integers of 1 to 64 bits in any container and byte order equal SciPy's."""
    path = tmp_path_factory.mktemp("wav") / "a.wav"
    bits = data.draw(st.integers(1, 64))
    width = -(-bits // 8)
    channels, frames = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 9))
    fmt = format_chunk(bits, channels, width=width, order=order, extensible=extensible)
    body = data.draw(st.binary(min_size=channels * frames * width, max_size=600))
    body = body[: channels * frames * width]
    path.write_bytes(wav_bytes(fmt, body, order=order))
    _, expected = wavfile.read(path)
    scale = 2.0 ** (1 - 8 * expected.itemsize)
    integers = expected.reshape(frames, channels).T.astype(np.float64)
    with open_recording(path) as recording:
        got = recording.groups[0].read()
    np.testing.assert_array_equal(got, (integers - 128 * (width == 1)) * scale)


def test_integers_may_lie_in_wider_containers(tmp_path: Path) -> None:
    """24 bits in 4 bytes: the upper bits count, and so does what lies below them."""
    x = np.array([[1 << 30, -(1 << 31), 3 << 8]], "<i4")
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(format_chunk(24, width=4), x.tobytes()))
    with open_recording(path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read() * 2.0**31, x)


def test_contradicting_sample_sizes_are_decided_by_majority(tmp_path: Path) -> None:
    """47 bits cannot lie in the 2 bytes that the frame and the rate agree upon."""
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(format_chunk(47, width=2), struct.pack("<2h", 5, -5)))
    (got,) = read_with_warning(path, "2 bytes per frame, .* need 6; 2 bytes are used")
    assert (got * 32768).tolist() == [[5.0, -5.0]]


@pytest.mark.parametrize("bits", [0, 8, 16])
def test_the_bits_of_companded_samples_are_ignored(tmp_path: Path, bits: int) -> None:
    """The header may state 0 or 16 bits for a companding law; a sample is one byte all
    the same.
    """
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(format_chunk(bits, tag=7, width=1), bytes(range(256))))
    with open_recording(path) as recording:
        (got,) = recording.groups[0].read()
    path.write_bytes(wav_bytes(format_chunk(8, tag=7), bytes(range(256))))
    np.testing.assert_array_equal(got, soundfile.read(path)[0])


def test_an_ambisonic_file_is_read(tmp_path: Path) -> None:
    """An ambisonic file is read though its subformat has a GUID of its own."""
    path = tmp_path / "a.wav"
    fmt = format_chunk(16, extensible=True)[:-12] + bytes.fromhex(
        "2107d3118644c8c1ca000000"
    )
    path.write_bytes(wav_bytes(fmt, struct.pack("<2h", 5, -5)))
    with open_recording(path) as recording:
        assert (recording.groups[0].read() * 32768).tolist() == [[5.0, -5.0]]


@pytest.mark.parametrize("padded", [True, False])
def test_an_odd_chunk_may_lack_its_padding(tmp_path: Path, padded: bool) -> None:
    """An odd chunk may lack the byte of padding that some writers forget."""
    path = tmp_path / "a.wav"
    chunk = b"note" + struct.pack("<I", 3) + b"abc" + b"\0" * padded
    path.write_bytes(
        wav_bytes(format_chunk(16), struct.pack("<2h", 7, 8), before=chunk)
    )
    with open_recording(path) as recording:
        assert (recording.groups[0].read() * 32768).tolist() == [[7.0, 8.0]]


@pytest.mark.parametrize(
    ("raw", "match", "values"),
    [
        (
            wav_bytes(format_chunk(16), b"\1\0" * 40, size=16080),
            "truncated: .* declares 16080 bytes of samples, the file has 80; "
            ".*last 1 s are missing",
            [1.0] * 40,
        ),
        (
            wav_bytes(format_chunk(16), b"\1\0" * 3, size=0xFFFFFFFF),
            "declares no valid length.*all 3",
            [1] * 3,
        ),
        (
            wav_bytes(format_chunk(16), b"\1\0" * 3, size=0),
            r"declares no valid length \(0\)",
            [1] * 3,
        ),
        (
            wav_bytes(format_chunk(16), b"\1\0" * 3 + b"\2\0" * 9, size=6),
            "18 bytes after the samples are skipped",
            [1] * 3,
        ),
        (
            wav_bytes(format_chunk(16), b"\1\0\2\0\3"),
            "frame is incomplete: 5 bytes of samples, 2 bytes per",
            [1, 2],
        ),
        (
            wav_bytes(format_chunk(16), b"\1\0\2\0\3", size=8),
            "8 bytes of samples, the file has 5",
            [1, 2],
        ),
        (
            wav_bytes(format_chunk(16)[:12] + struct.pack("<HH", 1, 16), b"\1\0\2\0"),
            "declares 1 bytes per frame, but 1 channels of 16 bits need 2; 2 bytes are",
            [1, 2],
        ),
        (
            wav_bytes(
                format_chunk(16)[:12] + struct.pack("<HH", 6, 16), b"\1\0\2\0\3\0"
            ),
            "declares 6 bytes per frame, but 1 channels of 16 bits need 2; 2 bytes are",
            [1, 2, 3],
        ),
    ],
)
def test_an_incomplete_file_is_read_with_a_warning(
    tmp_path: Path, raw: bytes, match: str, values: list[float]
) -> None:
    """A wrong length is handled as in soundfile, with a warning of what is missing."""
    path = tmp_path / "cut.wav"
    path.write_bytes(raw)
    (got,) = read_with_warning(path, match)
    assert (got * 32768).tolist() == [values]
    assert soundfile.read(path, dtype="int16")[0].tolist() in (values, [])


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (
            wav_bytes(format_chunk(16), b"", size=80),
            "no samples.*80 bytes of samples, the file has 0",
        ),
        (
            wav_bytes(format_chunk(16), b"\0", size=80),
            "no samples.*80 bytes of samples, the file has 1",
        ),
        (
            wav_bytes(format_chunk(16), b"") + TRAILING_CHUNK,
            "no samples; 1 channels, 0 samples",
        ),
        (
            wav_bytes(format_chunk(16, tag=2), b"\0" * 8),
            "libsndfile cannot read the file",
        ),
        (
            wav_bytes(format_chunk(16, tag=999), b"\0" * 8),
            "libsndfile cannot read the file",
        ),
        (
            wav_bytes(format_chunk(0, width=2), b"\0" * 8),
            "0 bits; PCM supports 1 to 64",
        ),
        (wav_bytes(format_chunk(65, width=9), b"\0" * 8), "65 bits"),
        (wav_bytes(format_chunk(16, tag=3), b"\0" * 8), "float supports 32 or 64 bits"),
        (wav_bytes(format_chunk(16, channels=0), b"\0" * 8), "0 channels"),
        (wav_bytes(format_chunk(16, fs=0), b"\0" * 8), "0 Hz"),
        (wav_bytes(format_chunk(16)[:10], b""), "too short"),
        (
            wav_bytes(format_chunk(16, tag=0xFFFE) + b"\0" * 24, b"\0" * 8),
            "unknown subformat",
        ),
        (b"RIFX" + wav_bytes(format_chunk(16), b"")[4:], "ends early|ends before"),
        (b"RIFF\0\0\0\0AVI LIST", "the form type is not WAVE"),
        (b"RIFF\x10\0\0\0WAVEdata\x04\0\0\0\0\0\0\0", "come before the format"),
        (
            wav_bytes(format_chunk(16), b"\0" * 8, before=b"note\0\0\0\0" * 10_000),
            "10000 chunks",
        ),
    ],
    ids=range(16),
)
def test_a_broken_wav_file_is_refused(tmp_path: Path, raw: bytes, match: str) -> None:
    """Each fault has a message of its own, with both numbers where there are two."""
    path = tmp_path / "bad.wav"
    path.write_bytes(raw)
    check_unreadable(path, match)
