"""Every invalid file gives one RecordingError that names it."""

from __future__ import annotations

import os
import struct
import warnings
from pathlib import Path
from unittest.mock import Mock

import edfio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.errors import RecordingError, RecordingWarning, RlxError, UsageError
from rlxweb.io import byte_source, open_recording
from tests.edf_bdf_recordings import EDFIO_TYPES, check_unreadable, read_with_warning

SUFFIXES = ["edf", "bdf", "wav", "npy", "npz", "csv"]


def small_file(folder: Path, suffix: str) -> Path:
    """A small good recording of 2 channels and 20 samples."""
    path = folder / f"small.{suffix}"
    x = np.linspace(-1, 1, 40).reshape(2, 20)
    if suffix in ("edf", "bdf"):
        signal, file_type, _ = EDFIO_TYPES[path.suffix]
        note = edfio.EdfAnnotation(0, None, "x")
        file_type([signal(row, 10) for row in x], annotations=[note]).write(path)
    elif suffix == "wav":
        import soundfile  # not there in WebAssembly, where the rest of the file runs

        soundfile.write(path, x.T, 100, subtype="PCM_24", format="WAVEX")
    elif suffix == "npy":
        np.save(path, x)
    elif suffix == "npz":
        np.savez_compressed(path, x=x, fs=10.0)
    else:
        np.savetxt(path, x.T, delimiter=",", header="a,b", fmt="%.6f")
    return path


def read_all(path: Path) -> list[np.ndarray]:
    fs = 10 if path.suffix in (".npy", ".csv", ".dat") else None
    with open_recording(path, fs=fs) as recording:
        return [group.read() for group in recording.groups]


def read_or_error(path: Path) -> list[np.ndarray] | RlxError:
    """Return the samples or the RlxError; any other exception propagates."""
    try:
        return read_all(path)
    except RlxError as error:
        return error


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    """Missing file and missing folder give different advice."""
    check_unreadable(
        tmp_path / f"gone.{suffix}", rf"gone\.{suffix}.*the file does not exist"
    )
    check_unreadable(
        tmp_path / "nowhere" / f"gone.{suffix}", r"folder .* does not exist either"
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_file_is_refused(tmp_path: Path, suffix: str) -> None:
    """No bytes, no recording, whatever the name promises."""
    path = tmp_path / f"nothing.{suffix}"
    path.touch()
    check_unreadable(path, r"nothing\..*is empty; 0 bytes")


@pytest.mark.parametrize("argument", [3, None, True, [1.0], {}, np.zeros(3), object()])
def test_invalid_path_types_are_named(argument: object) -> None:
    """The message names the type; arrays, above all, need no file."""
    pattern = f"expected a path, got {describe_type(argument)};.*welch_peaks"
    with pytest.raises(UsageError, match=pattern):
        open_recording(argument)


def test_a_name_may_be_bytes_and_need_not_be_text(tmp_path: Path) -> None:
    """The recording and the messages give the name as the system writes it."""
    path = small_file(tmp_path, "wav")
    for name in (os.fsencode(path), os.fsencode(path) + b"\xff"):
        Path(os.fsdecode(name)).write_bytes(path.read_bytes())
        with open_recording(name) as recording:
            assert recording.path == os.fsdecode(name)
            assert recording.groups[0].n_samples == 20
        Path(os.fsdecode(name)).write_bytes(path.read_bytes()[:30])
        with pytest.raises(RecordingError) as caught:
            open_recording(name)
        assert path.name in str(caught.value)
        path = small_file(tmp_path, "wav")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """A folder is distinguished from a file."""
    check_unreadable(tmp_path, "expected a file, got a folder")


def test_a_file_below_a_file_is_refused(tmp_path: Path) -> None:
    """A path through a file, or one no system takes, is an error like the others."""
    (tmp_path / "a").write_text("1\n")
    for name in (str(tmp_path / "a" / "b.csv"), "a\0b.csv", "x" * 5000):
        with pytest.raises(RecordingError):
            open_recording(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    """A named pipe would block for ever."""
    os.mkfifo(tmp_path / "pipe.wav")
    check_unreadable(tmp_path / "pipe.wav", "not a regular file")


def test_an_unreadable_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's permission error becomes a RecordingError (root may read
    anything).
    """
    path = small_file(tmp_path, "wav")
    denied = PermissionError(13, "Permission denied", str(path))
    monkeypatch.setattr(byte_source, "open_regular_file", Mock(side_effect=denied))
    check_unreadable(path, r"small\.wav.*do not have permission to read")


@pytest.mark.parametrize("suffix", [s for s in SUFFIXES if s != "csv"])
def test_a_name_that_promises_another_format_is_refused(
    tmp_path: Path, suffix: str
) -> None:
    """The bytes decide; the message says what was expected and what is there."""
    path = tmp_path / f"text.{suffix}"
    path.write_text("hello, world\n")
    check_unreadable(path, rf"suffix is \.{suffix}.*hello")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_wrong_suffix_does_not_matter(tmp_path: Path, suffix: str) -> None:
    """A good file under another known name is read as what it is."""
    path = small_file(tmp_path, suffix)
    expected = read_all(path)
    odd = path.rename(tmp_path / "odd.dat")
    fs = 10 if suffix in ("npy", "csv") else None
    with open_recording(odd, fs=fs) as recording:
        got = [group.read() for group in recording.groups]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"Brain Vision Data Exchange Marker File", "a BrainVision marker file"),
        (b"\xfd7zXZ\x00", "compressed with xz"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\xff\xfe1\0,\0", "UTF-16"),
        (b"\x01\x02\x03\x04", "the file format is not supported"),
    ],
)
def test_a_foreign_format_is_named(tmp_path: Path, head: bytes, what: str) -> None:
    """Other known formats are recognised, and the supported ones are listed."""
    path = tmp_path / "other.dat"
    path.write_bytes(head + bytes(100))
    check_unreadable(path, rf"{what}.*EDF, BDF, WAV")


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_an_array_truncated_at_any_byte_is_refused(tmp_path: Path, suffix: str) -> None:
    """A truncated array is no recording."""
    path = small_file(tmp_path, suffix)
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        got = read_or_error(path)
        assert isinstance(got, RecordingError)
        assert path.name in str(got)


@pytest.mark.parametrize("suffix", ["edf", "bdf", "wav"])
def test_a_file_truncated_at_any_byte_keeps_its_complete_samples(
    tmp_path: Path, suffix: str
) -> None:
    """Truncation never gives wrong samples: complete ones are read with a warning that
    says how much is missing; a truncated header is an error.
    """
    path = small_file(tmp_path, suffix)
    raw = path.read_bytes()
    (expected,) = read_all(path)
    lengths = []
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = read_or_error(path)
        if isinstance(got, RecordingError):
            lengths.append(0)
            assert path.name in str(got)
            continue
        assert [w.category for w in caught] == [RecordingWarning]
        assert "missing" in str(caught[0].message)
        lengths.append(got[0].shape[1])
        np.testing.assert_array_equal(got[0], expected[:, : lengths[-1]])
    assert lengths == sorted(lengths)
    assert 0 < lengths[-1] < expected.shape[1]


@pytest.mark.filterwarnings("ignore::rlxweb.core.errors.RecordingWarning")
def test_a_truncated_table_is_refused_or_keeps_its_complete_rows(
    tmp_path: Path,
) -> None:
    """Text has no stored length: complete rows are read, half a row is not."""
    path = small_file(tmp_path, "csv")
    raw = path.read_bytes()
    expected = read_all(path)[0]
    second_row = raw.index(b"\n", raw.index(b"\n") + 1) + 1
    for length in range(second_row, len(raw)):
        path.write_bytes(raw[:length])
        got = read_or_error(path)
        if not isinstance(got, RecordingError):
            complete_rows = got[0].shape[1] - 1
            np.testing.assert_array_equal(
                got[0][:, :complete_rows], expected[:, :complete_rows]
            )


@pytest.mark.filterwarnings("ignore::rlxweb.core.errors.RecordingWarning")
@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.data())
def test_a_file_with_any_bytes_changed_never_escapes_the_error_tree(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject
) -> None:
    """Random damage gives samples or an RlxError, never another exception."""
    path = small_file(tmp_path_factory.mktemp("fuzz"), suffix)
    raw = bytearray(path.read_bytes())
    damaged_nbytes = min(len(raw), 1100)
    for offset in data.draw(
        st.lists(st.integers(0, damaged_nbytes - 1), min_size=1, max_size=6)
    ):
        raw[offset] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw))
    got = read_or_error(path)
    if isinstance(got, RlxError):
        assert got.exit_code == 2
    else:
        assert all(x.size for x in got)


@pytest.mark.filterwarnings("ignore::rlxweb.core.errors.RecordingWarning")
@given(
    head=st.sampled_from(
        [b"", b"RIFF", b"PK\x03\x04", b"\x93NUMPY\x01\0", b"0       "]
    ),
    body=st.binary(max_size=400),
)
def test_arbitrary_bytes_never_escape_the_error_tree(
    tmp_path_factory: pytest.TempPathFactory, head: bytes, body: bytes
) -> None:
    """Files that were never a recording give samples or an RlxError as well."""
    path = tmp_path_factory.mktemp("fuzz") / "x.dat"
    path.write_bytes(head + body)
    got = read_or_error(path)
    assert not isinstance(got, RlxError) or got.exit_code == 2


def test_a_wav_chunk_that_claims_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    """A forged length is compared with the file before anything is read."""
    path = tmp_path / "huge.wav"
    fmt = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    path.write_bytes(
        b"RIFF\xff\xff\xff\x7fWAVEfmt \x10\0\0\0"
        + fmt
        + b"data\xff\xff\xff\x7f"
        + b"\0\0"
    )
    (got,) = read_with_warning(path, "2147483647 bytes of samples, the file has 2")
    assert got.shape == (1, 1)
