"""A small file that claims to be a large one is refused, and nothing is allocated."""

from __future__ import annotations

import io
import struct
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from rlxweb.core.errors import NotWritten, RecordingError, RlxError
from rlxweb.io import file_limits, open_recording
from rlxweb.io.channel_selection import unique_names
from tests.edf_bdf_recordings import check_unreadable

MAX_NBYTES = 50 << 20
# Pyodide's Python comes without LZMA; there bz2 stands for it.
LZMA = zipfile.ZIP_LZMA if find_spec("_lzma") else zipfile.ZIP_BZIP2


def npy_bytes(
    shape: str, dtype: str = "<f8", data: bytes = b"", version: int = 1
) -> bytes:
    """An NPY file with this text for its shape."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    raw = text.encode() + b"\n"
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + len(raw).to_bytes(2 if version == 1 else 4, "little")
        + raw
        + data
    )


def npy_length(shape: str, nbytes: int) -> int:
    """Return the length of the NPZ member whose header `npy_bytes(shape)` makes."""
    return len(npy_bytes(shape)) + nbytes


def npz_bytes(
    *, claimed: int | None = None, method: int = zipfile.ZIP_DEFLATED, **members: bytes
) -> bytes:
    """A compressed NPZ file; its list of members says `claimed` for each length."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, raw in members.items():
            file.writestr(f"{name}.npy", raw)
    raw = bytearray(buffer.getvalue())
    offset = raw.find(b"PK\1\2")
    while claimed is not None and offset >= 0:
        raw[offset + 24 : offset + 28] = struct.pack("<I", claimed)
        offset = raw.find(b"PK\1\2", offset + 1)
    return bytes(raw)


def add_members(raw: bytes, method: int, **members: bytes) -> bytes:
    """Return the archive with more members, compressed by another method."""
    buffer = io.BytesIO(raw)
    with zipfile.ZipFile(buffer, "a", method) as file:
        for name, member in members.items():
            file.writestr(f"{name}.npy", member)
    return buffer.getvalue()


def channel_names_bytes(count: int, length: int) -> bytes:
    """Return the `channels` member of an NPZ file."""
    buffer = io.BytesIO()
    np.save(buffer, np.array(["a" * length] * count))
    return buffer.getvalue()


def edf_of_many_signals(count: int) -> bytes:
    """A header of `count` signals, each at a rate of its own, and no data."""
    fields = [b"0".ljust(8), b" " * 80, b" " * 80, b"01.01.01", b"01.01.01"]
    fields += [str(256 * (count + 1)).encode().ljust(8), b" " * 44]
    fields += [b"1".ljust(8), b"1".ljust(8), str(count).encode().ljust(4)]
    columns = [b"x" * 16, b" " * 80, b"uV".ljust(8), b"-1".ljust(8), b"1".ljust(8)]
    columns += [b"-9".ljust(8), b"9".ljust(8), b" " * 80]
    fields += [column * count for column in columns]
    fields += [str(i + 1).encode().ljust(8) for i in range(count)]
    return b"".join([*fields, b" " * 32 * count])


def wav_of_many_channels(channels: int) -> bytes:
    """Return a WAV file of one 8-bit frame."""
    frame = channels
    fmt = struct.pack("<HHIIHH", 1, channels, 8000, 0, frame, 8)
    head = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", 16) + fmt
    return head + b"data" + struct.pack("<I", frame) + bytes(frame)


BOMB = "(402653180,)"  # 3 GiB
HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "no samples of 1e9 channels": (
        "npy",
        lambda: npy_bytes("(1000000000, 0)"),
        r"1000000000 channels \(shape \[1000000000, 0\] is read as channels-first\); "
        "expected at most 65536.*layout='samples-first'",
    ),
    "2 million channels": (
        "npy",
        lambda: npy_bytes("(2000000, 1)", "|i1", bytes(2_000_000)),
        "2000000 channels.*at most 65536",
    ),
    "more samples than atoms": (
        "npy",
        lambda: npy_bytes("(3, 1152921504606846975)"),
        "truncated",
    ),
    "3,000 axes": (
        "npy",
        lambda: npy_bytes("(" + "9, " * 3000 + ")"),
        r"3000 axes.*9, …\]",
    ),
    "endless axes": ("npy", lambda: npy_bytes(f"({'9' * 4000},)"), "shape"),
    "a header of 4 GB": (
        "npy",
        lambda: npy_bytes("(3,)", version=2)[:8] + b"\xff" * 400,
        "4294967295 bytes in the header; expected at most 10000",
    ),
    "a header of brackets": (
        "npy",
        lambda: npy_bytes("(" * 4000),
        "header cannot be read",
    ),
    "a header of signs": (
        "npy",
        lambda: npy_bytes("(" + "-" * 9000 + "1,)"),
        "header cannot|says",
    ),
    "objects": ("npy", lambda: npy_bytes("(3,)", "|O", bytes(24)), "Python objects"),
    "an array of 3 GB": (
        "npz",
        lambda: npz_bytes(x=npy_bytes(BOMB), claimed=npy_length(BOMB, 8 * 402653180)),
        "bytes in the decompressed array; expected at most 2147483648.*numpy.savez:",
    ),
    "an array that is longer than it says": (
        "npz",
        lambda: npz_bytes(
            x=npy_bytes("(2,)", data=bytes(30 << 20)), claimed=npy_length("(2,)", 16)
        ),
        "damaged or truncated",
    ),
    "an array that is shorter than it says": (
        "npz",
        lambda: npz_bytes(
            x=npy_bytes("(99999999,)"), claimed=npy_length("(99999999,)", 8 * 99999999)
        ),
        "damaged or truncated|temporary folder",
    ),
    "a bomb of bz2": (
        "npz",
        lambda: npz_bytes(
            x=npy_bytes("(8388608,)", data=bytes(64 << 20)), method=zipfile.ZIP_BZIP2
        ),
        "'x' is compressed with zip method 12",
    ),
    "a bomb of LZMA beside an array": (
        "npz",
        lambda: add_members(
            npz_bytes(x=npy_bytes("(9,)", data=bytes(72))),
            LZMA,
            y=npy_bytes("(8388608,)", data=bytes(64 << 20)),
        ),
        "2 arrays are possible recordings",
    ),
    "5,000 arrays": (
        "npz",
        lambda: npz_bytes(**{f"a{i}": npy_bytes("()") for i in range(5000)}),
        "5000 arrays; expected at most 4096",
    ),
    "a long list of members": (
        "npz",
        lambda: npz_bytes(**{f"{i:04}{'a' * 1000}": b"" for i in range(1100)}),
        r"\d{7} bytes in member names; expected at most 1048576",
    ),
    "a name of 200,000 characters": (
        "npz",
        lambda: npz_bytes(
            x=npy_bytes("(1, 9)", data=bytes(72)),
            fs=npy_bytes("()", data=struct.pack("d", 8)),
            channels=channel_names_bytes(1, 200_000),
        ),
        "200000 characters in the name .* of channel 1; expected at most 1000",
    ),
    "9,999 rates": (
        "edf",
        lambda: edf_of_many_signals(9999),
        "no samples.*the file has 0",
    ),
    "65,535 channels": ("wav", lambda: wav_of_many_channels(65535), ""),
    "a million columns": (
        "csv",
        lambda: b"," * 1_000_000 + b"\n1\n",
        "1000001 columns; expected at most 65536",
    ),
    "a line without end": (
        "csv",
        lambda: b"1\n" + b"2" * 3_000_000,
        "line 2; expected at most 1048576",
    ),
    "a name of a megabyte": (
        "csv",
        lambda: b"a" * 1_000_000 + b"\n1\n",
        "1000000 characters",
    ),
    "a field beyond csv's limit": (
        "csv",
        lambda: b'"' + b"1" * 200_000 + b'"\n2\n',
        "first lines cannot .*field limit",
    ),
    "nothing but lines": ("csv", lambda: b"1\n" + b"\n" * 5_000_000, ""),
    "nothing but blanks": ("csv", lambda: b" " * 5_000_000, "no valid line ending"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_small_file_never_costs_much_memory(tmp_path: Path, name: str) -> None:
    """A header's claims cost a small file no memory; refusals name both numbers."""
    suffix, make, match = HOSTILE[name]
    path = tmp_path / f"hostile.{suffix}"
    path.write_bytes(make())
    tracemalloc.start()
    try:
        if match:
            check_unreadable(path, match, fs=None if suffix in ("wav", "npz") else 1)
        else:
            open_recording(path, fs=None if suffix == "wav" else 1).close()
        assert tracemalloc.get_traced_memory()[1] < MAX_NBYTES
    finally:
        tracemalloc.stop()


def test_a_compressed_array_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An array too large is not unpacked; a full temporary folder is reported."""
    path = tmp_path / "a.npz"
    path.write_bytes(HOSTILE["an array of 3 GB"][1]())
    temporary_file = Mock(side_effect=AssertionError("unpacked"))
    monkeypatch.setattr(tempfile, "TemporaryFile", temporary_file)
    check_unreadable(path, "decompressed array", fs=1)
    np.savez_compressed(path, x=np.zeros(2 << 20))
    temporary_file.side_effect = None
    temporary_file.return_value.write.side_effect = OSError(
        28, "No space left on device"
    )
    check_unreadable(path, r"temporary folder \(No space left.*TMPDIR", fs=1)
    temporary_file.return_value.close.assert_called_once()


def test_an_array_larger_than_the_free_space_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary folder is asked first."""
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(2 << 20))
    disk_usage = Mock(return_value=Mock(free=1000))
    monkeypatch.setattr("rlxweb.io.decompression_storage.shutil.disk_usage", disk_usage)
    with pytest.raises(
        NotWritten, match="16777344 bytes must be written, 1000 bytes are free"
    ):
        open_recording(path, fs=1)
    assert NotWritten.exit_code == 1


def test_channels_may_be_as_many_as_allowed(tmp_path: Path) -> None:
    """The limit itself is still read."""
    np.save(tmp_path / "a.npy", np.zeros((file_limits.CHANNELS, 1), np.int8))
    with open_recording(tmp_path / "a.npy", fs=1) as recording:
        assert len(recording.groups[0].channels) == file_limits.CHANNELS


def test_names_are_made_unique_in_linear_time() -> None:
    """Equal labels by the ten thousand, and names that are in their way."""
    numbered = unique_names(["a"] * 60_000)
    assert numbered[-1] == "a (60000)"
    with_conflicts = unique_names(
        ["a"] * 30_000 + [f"a ({i})" for i in range(2, 30_002)]
    )
    assert with_conflicts[29_999] == "a (60000)"
    assert len(set(with_conflicts)) == 60_000


@pytest.mark.parametrize("hint_for", ["zzz", "a" * 5000])
def test_a_wrong_name_among_many_is_reported_briefly(
    tmp_path: Path, hint_for: str
) -> None:
    """Similar names are searched for among the first few thousand only."""
    path = tmp_path / "a.csv"
    names = [f"{'x' * 900}{i}" for i in range(1000)]
    path.write_text(",".join(names) + "\n" + ",".join("1" * 1000) + "\n")
    with pytest.raises(RlxError, match="no channel is named") as caught:
        open_recording(path, fs=1, channels=hint_for)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw.replace(b"\n", b" "),
        lambda raw: raw.replace(b"1", b"x"),
        lambda raw: b"",
    ],
)
def test_a_table_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    """A changed table gives a RecordingError, and no row is read twice."""
    path = tmp_path / "a.csv"
    raw = b"1,2\n" * 50_000
    path.write_bytes(raw)
    with open_recording(path, fs=1) as recording:
        path.write_bytes(change(raw))
        with pytest.raises(RecordingError, match=r"changed|ends early|is not a number"):
            recording.groups[0].read()
