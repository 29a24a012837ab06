"""Recordings of several files: which file refers to which, by their names."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
import scipy.io

from rlxweb.core.errors import RlxError
from rlxweb.io import open_recording
from rlxweb.io.companion_files import find_header, is_companion, recording_files
from rlxweb.io.formats import has_recording_suffix
from rlxweb.io.modification_stamp import modification_stamp
from tests.edf_bdf_recordings import check_unreadable
from tests.unit.io.test_mne_reader import X, write_brainvision, write_eeglab


@pytest.mark.parametrize(
    ("name", "others", "part"),
    [
        ("a.eeg", {"a.vhdr"}, True),
        ("a.vmrk", {"a.VHDR"}, True),
        ("a.eeg", {"b.vhdr"}, False),
        ("a.fdt", {"a.set"}, True),
        ("a_raw-1.fif", {"a_raw.fif"}, True),
        ("a_raw-1.fif", {"b_raw.fif"}, False),
        ("a_raw-12.fif.gz", {"a_raw.fif.gz"}, True),
        ("x_split-02_meg.fif", {"x_split-01_meg.fif"}, True),
        ("x_split-01_meg.fif", {"x_split-01_meg.fif"}, False),
        ("a.edf", {"a.vhdr", "a.set"}, False),
    ],
)
def test_companions_are_distinguished_from_recordings(
    name: str, others: set[str], part: bool
) -> None:
    assert is_companion(name, others | {name}) is part


def write_brainvision_header(folder: Path, **names: str) -> Path:
    """Write a BrainVision header with these names in it."""
    header = folder / "a.vhdr"
    lines = [f"{key}={name}" for key, name in names.items()]
    text = ["Brain Vision Data Exchange Header File Version 1.0", "[Common Infos]"]
    header.write_text("\n".join([*text, *lines, ""]))
    return header


def test_brainvision_files_are_those_its_header_names(
    tmp_path: Path,
) -> None:
    """Files in subfolders count too, and markers under the header's own name if MNE
    takes them.
    """
    header = write_brainvision_header(
        tmp_path, DataFile="sub/other.dat", MarkerFile="gone.vmrk"
    )
    (tmp_path / "sub").mkdir()
    for name in ("sub/other.dat", "a.vmrk", "a.eeg"):
        (tmp_path / name).touch()
    expected = (header, tmp_path / "sub" / "other.dat", tmp_path / "a.vmrk")
    assert recording_files(str(header)) == tuple(map(str, expected))


@pytest.mark.parametrize("kind", ["sub/x.eeg", "other.fdt", "split"])
def test_the_stamp_covers_all_files_read(tmp_path: Path, kind: str) -> None:
    """Rewriting a companion file changes the recording's stamp."""
    if kind == "split":
        path = tmp_path / "a_raw.fif"
        make_mne_raw().save(path, split_size="2MB", buffer_size_sec=1, verbose="ERROR")
        parts = sorted(tmp_path.glob("a_raw-*.fif"))
        assert len(parts) == 3
    elif kind == "other.fdt":
        path = write_eeglab(tmp_path)
        parts = [move_eeglab_samples(path, kind)]
    else:
        path = write_brainvision(tmp_path)
        (tmp_path / "sub").mkdir()
        parts = [(tmp_path / "night.eeg").rename(tmp_path / kind)]
        text = path.read_text(encoding="utf-8").replace("night.eeg", kind)
        path.write_text(text, encoding="utf-8")
        parts.append(tmp_path / "night.vmrk")
    with open_recording(path) as recording:
        samples = recording.groups[0].read()
    assert set(recording_files(str(path))) == {str(path), *map(str, parts)}
    stamp = modification_stamp(str(path))
    assert stamp
    for part in parts:
        os.utime(part, (1, 1))
        assert modification_stamp(str(path)) != stamp
        stamp = modification_stamp(str(path))
    assert samples.shape[1]


def make_mne_raw() -> Any:
    info = mne.create_info(4, 1000.0, "eeg")
    return mne.io.RawArray(np.ones((4, 200_000)), info, verbose="ERROR")


def move_eeglab_samples(path: Path, name: str) -> Path:
    """Move the samples of an EEGLAB set to a file of this name in its folder."""
    contents = scipy.io.loadmat(path)
    variables = {
        key: value for key, value in contents.items() if not key.startswith("_")
    }
    scipy.io.savemat(path, variables | {"data": name})
    target = path.parent / name
    if not name.startswith(("/", "..")):
        X.astype("<f4").T.tofile(target)
    return target


OUTSIDE_NAMES = (
    "/etc/passwd",
    "../outside.eeg",
    "sub/../../outside.eeg",
    "C:\\outside.eeg",
    "C:outside.eeg",
    "\\\\host\\share\\outside.eeg",
    "sub\\outside.eeg",
)


@pytest.mark.parametrize("option", ["DataFile", "MarkerFile", "datafile "])
@pytest.mark.parametrize("name", OUTSIDE_NAMES)
def test_brainvision_headers_cannot_refer_outside(
    tmp_path: Path, option: str, name: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "outside.eeg").write_bytes(bytes(4000))
    header = write_brainvision(folder)
    text = header.read_text(encoding="utf-8")
    old = "MarkerFile=night.vmrk" if option == "MarkerFile" else "DataFile=night.eeg"
    assert old in text
    header.write_text(text.replace(old, f"{option}={name}"), encoding="utf-8")
    check_unreadable(header, "the header's folder or below it")
    assert modification_stamp(str(header)) == ""


def test_an_encoding_cannot_hide_a_name(tmp_path: Path) -> None:
    """UTF-7 writes DataFile so that a search of the bytes would not see it."""
    header = write_brainvision(tmp_path)
    text = header.read_text(encoding="utf-8").replace("UTF-8", "utf_7")
    text = text.replace("DataFile=night.eeg", "+AEQ-ataFile=/etc/passwd")
    header.write_text(text.replace("µ", "u"), encoding="utf-8")
    check_unreadable(header, "the header's folder or below it")


@pytest.mark.parametrize("page", ["utf\0", "hex", "rot13", "no page", "idna", "ANSI"])
def test_an_odd_encoding_gives_no_traceback(tmp_path: Path, page: str) -> None:
    header = write_brainvision(tmp_path)
    text = header.read_text(encoding="utf-8").replace("UTF-8", page)
    header.write_text(text, encoding="utf-8")
    with contextlib.suppress(RlxError):
        open_recording(header).close()
    assert recording_files(str(header))


@pytest.mark.parametrize("name", ["/etc/x.fdt", "../x.fdt", "C:\\x.fdt", "a\\x.fdt"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_eeglab_sets_cannot_refer_outside(
    tmp_path: Path, name: str, packed: bool, nested: bool
) -> None:
    path = write_eeglab(tmp_path)
    contents = scipy.io.loadmat(path)
    variables = {
        key: value for key, value in contents.items() if not key.startswith("_")
    }
    variables["data"] = name
    scipy.io.savemat(
        path, {"EEG": variables} if nested else variables, do_compression=packed
    )
    check_unreadable(path, "the header's folder or below it")


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("name", ["/x_raw.fif", "../x_rw.fif"])
def test_split_fif_files_cannot_continue_outside(
    tmp_path: Path, name: str, listed: bool
) -> None:
    """The next part must be in the folder, by the chain of tags and by their
    directory.
    """
    path = tmp_path / "a_raw.fif"
    make_mne_raw().save(path, split_size="2MB", buffer_size_sec=1, verbose="ERROR")
    raw = path.read_bytes()
    offset = raw.index(b"a_raw-1.fif")
    assert len(name) <= 11
    path.write_bytes(raw[:offset] + name.encode().ljust(11, b"_") + raw[offset + 11 :])
    if listed:
        path.write_bytes(add_fif_directory(path.read_bytes(), offset - 16))
    check_unreadable(path, "the header's folder or below it")


def add_fif_directory(raw: bytes, changed_offset: int) -> bytes:
    """Return a FIF file with a tag directory; the tag at `place` differs except in the
    directory.
    """
    tags, offset = [], 0
    while offset >= 0:
        kind, type_, nbytes, next_offset = struct.unpack_from(">4i", raw, offset)
        tags.append(struct.pack(">4i", kind, type_, nbytes, offset))
        offset = next_offset if next_offset else offset + 16 + nbytes
        offset = -1 if offset >= len(raw) else offset
    patched = bytearray(raw)
    patched[changed_offset : changed_offset + 4] = struct.pack(">i", 200)
    pointer = 16 + 20  # the second tag, behind that of the file's number
    assert struct.unpack_from(">i", patched, pointer)[0] == 101
    struct.pack_into(">i", patched, pointer + 16, len(raw))
    patched += struct.pack(">4i", 102, 32, 16 * len(tags), -1) + b"".join(tags)
    return bytes(patched)


def test_a_fif_file_that_continues_in_itself_is_refused(tmp_path: Path) -> None:
    """MNE would read it for ever."""
    path = tmp_path / "a_raw.fif"
    make_mne_raw().save(path, split_size="2MB", buffer_size_sec=1, verbose="ERROR")
    path.rename(tmp_path / "a_raw-1.fif")
    check_unreadable(tmp_path / "a_raw-1.fif", "which was already read")


def write_two_file_recording(folder: Path, kind: str) -> tuple[Path, Path]:
    """Write a recording of two files; return its path and that of the second file."""
    if kind == "fif":
        path = folder / "a_raw.fif"
        make_mne_raw().save(path, split_size="2MB", buffer_size_sec=1, verbose="ERROR")
        return path, folder / "a_raw-1.fif"
    if kind == "set":
        path = write_eeglab(folder)
        return path, move_eeglab_samples(path, "other.fdt")
    return write_brainvision(folder), folder / ("night." + kind)


COMPANION_KINDS = ("eeg", "vmrk", "set", "fif")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here")
@pytest.mark.parametrize("kind", COMPANION_KINDS)
@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
def test_no_pipe_and_no_device_is_opened(tmp_path: Path, kind: str, what: str) -> None:
    path, part = write_two_file_recording(tmp_path, kind)
    part.unlink()
    if what == "pipe":
        os.mkfifo(part)
    elif what == "folder":
        part.mkdir()
    else:
        part.symlink_to("/dev/zero")
    match = (
        "expected a file, got a folder" if what == "folder" else "not a regular file"
    )
    check_unreadable(path, match)


@pytest.mark.parametrize("kind", COMPANION_KINDS)
def test_git_annex_links_are_followed(tmp_path: Path, kind: str) -> None:
    """Links of git-annex, to files named by their digest, are followed."""
    path, _ = write_two_file_recording(tmp_path, kind)
    with open_recording(path) as recording:
        expected = recording.groups[0].read()
    store = tmp_path / ".git" / "annex" / "objects"
    store.mkdir(parents=True)
    for i, file in enumerate(sorted(tmp_path.iterdir())):
        if file.is_file():
            file.rename(store / f"MD5E-{i}{file.suffix}")
            file.symlink_to(
                os.path.join(".git/annex/objects", f"MD5E-{i}{file.suffix}")
            )
    with open_recording(path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), expected)


def test_sample_files_point_to_their_header(tmp_path: Path) -> None:
    assert find_header(str(tmp_path / "a.fdt")) is None
    (tmp_path / "a.set").touch()
    header = find_header(str(tmp_path / "a.fdt"))
    assert header == ("the samples of an EEGLAB set", str(tmp_path / "a.set"))
    assert find_header("s3://bucket/a.eeg") is None


def test_suffixes_of_recordings() -> None:
    """A suffix may have two parts; a hidden file has none."""
    for name in ("a.EDF", "a_raw.fif.gz", "a.vhdr", "a.nwb", "a.opus", "a.zarr"):
        assert has_recording_suffix(name)
    for name in ("a.gz", "a.eeg", "a.mat", ".edf", "edf", "a.txt"):
        assert not has_recording_suffix(name)
