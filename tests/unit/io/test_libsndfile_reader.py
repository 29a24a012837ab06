"""Audio by soundfile: FLAC, AIFF, Ogg, MP3 and others give the values of a WAV file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from rlxweb.core.adc_samples import Digital
from rlxweb.core.errors import RecordingError, Unsupported
from rlxweb.io import open_recording, sequential_decoder_seeking
from tests.edf_bdf_recordings import check_unreadable, read_with_warning, try_reading

FS, N = 8000, 120_000
T = np.arange(N) / FS
RNG = np.random.default_rng(11)
X = np.stack([0.4 * np.sin(2 * np.pi * hz * T) for hz in (440, 1000)], axis=1)
X += RNG.normal(0, 0.01, X.shape)
LOSSLESS = [
    ("a.flac", "PCM_16", None),
    ("a.flac", "PCM_24", None),
    ("a.flac", "PCM_S8", None),
    ("a.aiff", "PCM_16", None),
    ("a.aiff", "PCM_24", None),
    ("a.aiff", "PCM_U8", None),
    ("a.aiff", "PCM_32", None),
    ("a.aiff", "FLOAT", None),
    ("a.au", "ULAW", None),
    ("a.au", "ALAW", None),
    ("a.au", "DOUBLE", None),
    ("a.caf", "PCM_24", None),
    ("a.w64", "PCM_16", None),
]
LOSSY = [("a.ogg", "VORBIS"), ("a.opus", "OPUS"), ("a.mp3", "MPEG_LAYER_III")]
# In WAV files 8 bits have no sign.
WAV_SUBTYPES = {"PCM_S8": "PCM_U8"}


def write_audio(path: Path, subtype: str, **options: Any) -> Path:
    """Write with libsndfile in small chunks, since long ones break its Vorbis
    writer.
    """
    bits = {"PCM_16": 16, "PCM_24": 24, "PCM_S8": 8, "PCM_U8": 8}.get(subtype)
    x = X
    if bits is not None:  # else writers round in ways of their own
        x = np.round(X * 2 ** (bits - 1)).astype(np.int32) << (32 - bits)
    form = "OGG" if path.suffix == ".opus" else None
    fs = 48_000 if path.suffix == ".opus" else FS
    with soundfile.SoundFile(path, "w", fs, 2, subtype, format=form, **options) as file:
        for start in range(0, N, 1000):
            file.write(x[start : start + 1000])
    return path


def read_samples(path: Path, **options: Any) -> np.ndarray:
    with open_recording(path, **options) as recording:
        (group,) = recording.groups
        return group.read()


@pytest.mark.parametrize(("name", "subtype", "endian"), LOSSLESS)
def test_values_equal_those_of_a_wav_file(
    tmp_path: Path, name: str, subtype: str, endian: str | None
) -> None:
    """Integers and their gain are exact; so are the values, by soundfile's own
    reading.
    """
    path = write_audio(tmp_path / name, subtype)
    wav = write_audio(tmp_path / "a.wav", WAV_SUBTYPES.get(subtype, subtype))
    with open_recording(path) as recording, open_recording(wav) as wav_recording:
        (group,), (expected,) = recording.groups, wav_recording.groups
        assert (group.fs, group.names, group.dtype) == (
            FS,
            ("ch1", "ch2"),
            expected.dtype,
        )
        assert group.digital == expected.digital
        stored, expected_stored = group.read_stored(), expected.read_stored()
        if isinstance(stored, Digital) and isinstance(expected_stored, Digital):
            np.testing.assert_array_equal(stored.counts, expected_stored.counts)
            np.testing.assert_array_equal(stored.gain, expected_stored.gain)
        np.testing.assert_array_equal(group.read(), expected.read())
        oracle = soundfile.read(path, dtype="float64")[0].T
        np.testing.assert_array_equal(group.read(), oracle.astype(group.dtype))
        joined_blocks = np.concatenate([b.data for b in group.blocks(7001)], axis=1)
        np.testing.assert_array_equal(joined_blocks, group.read())
        np.testing.assert_array_equal(group.read(500, 900), group.read()[:, 500:900])


@pytest.mark.parametrize(("name", "subtype"), LOSSY)
def test_lossy_samples_do_not_depend_on_the_read_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, subtype: str
) -> None:
    """Samples are the same in overlapping blocks, back and forth, with a small
    cache.
    """
    path = write_audio(tmp_path / name, subtype)
    with soundfile.SoundFile(path) as file:
        parts = []
        while len(part := file.read(1 << 16, dtype="float32")):
            parts.append(part)
    whole = np.concatenate(parts).T
    monkeypatch.setattr(sequential_decoder_seeking, "MAX_CACHED_NBYTES", 1)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert group.n_samples == N
        for block in group.blocks(9000, 2000):
            expected = whole[:, block.start : block.stop]
            np.testing.assert_array_equal(block.data, expected)
        for start in (100_000, 0, 70_000, 69_000):
            actual = group.read(start, start + 3000)
            np.testing.assert_array_equal(actual, whole[:, start : start + 3000])
    # What is packed with loss is near what was written, at its time.
    assert np.abs(whole[:, 5000:90_000] - X[5000:90_000].T).max() < 0.1
    with open_recording(path, channels="ch2") as recording:
        np.testing.assert_array_equal(recording.groups[0].read()[0], whole[1])


def write_mp3_without_length(path: Path, x: np.ndarray) -> Path:
    """Write a variable bit rate MP3 without the header that holds its length."""
    options: dict[str, Any] = {"subtype": "MPEG_LAYER_III", "bitrate_mode": "VARIABLE"}
    with soundfile.SoundFile(path, "w", 44_100, 2, **options) as file:
        for start in range(0, len(x), 1000):
            file.write(x[start : start + 1000])
    raw = path.read_bytes()
    assert b"Xing" in raw[:200]
    path.write_bytes(raw.replace(b"Xing", bytes(4), 1))
    return path


def test_an_mp3_without_its_length_is_counted(tmp_path: Path) -> None:
    """Libsndfile guesses from the length of the first frames."""
    path = write_mp3_without_length(tmp_path / "a.mp3", np.concatenate([X] * 6))
    guess = soundfile.info(path).frames
    actual = read_samples(path)
    assert 6 * N <= actual.shape[1] < 6 * N + 5000 < guess


def test_an_mp3_with_an_underestimated_length_is_refused(tmp_path: Path) -> None:
    """An MP3 without its length is refused where libsndfile guesses too few frames."""
    path = write_mp3_without_length(
        tmp_path / "a.mp3", np.concatenate([X, *[X * 0] * 5])
    )
    assert soundfile.info(path).frames < 4 * N
    check_unreadable(path, "the header declares no length.*convert the file to FLAC")


@pytest.mark.parametrize(
    ("name", "subtype", "match"),
    [
        ("a.aiff", "PCM_16", "file length differs"),
        ("a.au", "PCM_16", "file length differs"),
        ("a.ogg", "VORBIS", "last page is missing"),
        ("a.mp3", "MPEG_LAYER_III", "header declares 120000 samples"),
    ],
)
def test_the_rest_of_a_truncated_file_is_read(
    tmp_path: Path, name: str, subtype: str, match: str
) -> None:
    """The samples that a truncated file still has are read with a warning."""
    path = write_audio(tmp_path / name, subtype)
    whole = read_samples(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (x,) = read_with_warning(path, match)
    assert 0.3 * N < x.shape[1] < 0.7 * N
    np.testing.assert_array_equal(x[:, :40_000], whole[:, :40_000])


def test_a_truncated_flac_is_refused_at_its_end(tmp_path: Path) -> None:
    """The samples before are read."""
    path = write_audio(tmp_path / "a.flac", "PCM_16")
    whole = read_samples(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with open_recording(path) as recording:
        (group,) = recording.groups
        np.testing.assert_array_equal(group.read(0, 30_000), whole[:, :30_000])
        with pytest.raises(RecordingError, match=r"a\.flac.*(ends early|libsndfile)"):
            group.read()


@pytest.mark.parametrize("name", ["a.flac", "a.ogg", "a.mp3", "a.aiff", "a.caf"])
@pytest.mark.filterwarnings("ignore::rlxweb.core.errors.RecordingWarning")
def test_damage_gives_samples_or_a_recording_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """Damage raises no other exception and prints no traceback from C callbacks."""
    subtype = {".ogg": "VORBIS", ".mp3": "MPEG_LAYER_III"}.get(Path(name).suffix)
    path = write_audio(tmp_path / name, subtype or "PCM_16")
    whole, rng = path.read_bytes(), np.random.default_rng(2)
    outcomes = set()
    for trial in range(20):
        raw = bytearray(whole)
        if trial < 6:
            raw = raw[: int(rng.integers(4, 3000))]
        for offset in rng.integers(4, min(len(raw), 3000), 5):
            raw[offset] = rng.integers(256)
        path.write_bytes(bytes(raw))
        outcomes.add(try_reading(path))
    assert name == "a.aiff" or "refused" in outcomes
    assert "Traceback" not in capfd.readouterr().err


def test_reading_a_closed_recording_is_refused(tmp_path: Path) -> None:
    """Reading samples of a closed recording raises an error that says so."""
    path = write_audio(tmp_path / "a.flac", "PCM_16")
    with open_recording(path) as recording:
        (group,) = recording.groups
    with pytest.raises(RecordingError, match="closed"):
        group.read(0, 100)


def test_missing_soundfile_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_audio(tmp_path / "a.flac", "PCM_16")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(Unsupported, match=r"soundfile.*rlxweb\[audio\]"):
        open_recording(path)


def test_a_url_is_read_by_ranges(tmp_path: Path) -> None:
    import fsspec

    path = write_audio(tmp_path / "a.flac", "PCM_24")
    with fsspec.open("memory://a.flac", "wb") as file:
        file.write(path.read_bytes())
    with open_recording("memory://a.flac") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), read_samples(path))


def test_invalid_data_after_the_magic_bytes_is_refused(tmp_path: Path) -> None:
    for magic in (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"FORM....AIFF", b"caff"):
        path = tmp_path / "x.dat"
        path.write_bytes(magic + bytes(200))
        check_unreadable(path, "libsndfile cannot read the file|contains no samples")


COMPRESSED_SUBTYPES = [
    ("a.wav", "IMA_ADPCM", 2),
    ("a.wav", "MS_ADPCM", 2),
    ("a.wav", "GSM610", 1),
    ("a.wav", "G721_32", 1),
    ("a.wav", "NMS_ADPCM_24", 1),
    ("a.aiff", "IMA_ADPCM", 2),
    ("a.aiff", "GSM610", 1),
    ("a.w64", "GSM610", 1),
]


@pytest.mark.parametrize(("name", "subtype", "channels"), COMPRESSED_SUBTYPES)
def test_compressed_samples_are_read_in_every_container(
    tmp_path: Path, name: str, subtype: str, channels: int
) -> None:
    """A WAV file is no exception: what libsndfile reads is read."""
    path = tmp_path / name
    soundfile.write(path, X[:, :channels], FS, subtype)
    expected = soundfile.read(path, dtype="float32", always_2d=True)[0].T
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, len(group.channels)) == (FS, channels)
        np.testing.assert_array_equal(group.read(), expected)
        np.testing.assert_array_equal(
            group.read(70_001, 70_444), expected[:, 70001:70444]
        )


def test_compressed_wav_without_soundfile_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile.write(tmp_path / "a.wav", X, FS, "IMA_ADPCM")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(Unsupported, match=r"IMA ADPCM.*rlxweb\[audio\]"):
        open_recording(tmp_path / "a.wav")
