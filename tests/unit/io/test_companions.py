"""Files that are one recording together: who leads to whom, by their names."""

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

from rlxweb.errors import RlxError
from rlxweb.io import open_recording
from rlxweb.io.companions import files_of, is_part, pointed_to
from rlxweb.io.formats import is_named_so
from rlxweb.io.stamp import stamp_of
from tests.recordings import check_unreadable
from tests.unit.io.test_mne_files import X, brainvision, eeglab


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
def test_a_part_is_told_from_a_recording(
    name: str, others: set[str], part: bool
) -> None:
    assert is_part(name, others | {name}) is part


def header_of(folder: Path, **names: str) -> Path:
    """A header of BrainVision with these names in it."""
    header = folder / "a.vhdr"
    lines = [f"{key}={name}" for key, name in names.items()]
    text = ["Brain Vision Data Exchange Header File Version 1.0", "[Common Infos]"]
    header.write_text("\n".join([*text, *lines, ""]))
    return header


def test_a_recording_of_brainvision_is_the_files_that_its_header_names(
    tmp_path: Path,
) -> None:
    """Below its folder too; markers under its own name count where MNE takes them."""
    header = header_of(tmp_path, DataFile="sub/other.dat", MarkerFile="gone.vmrk")
    (tmp_path / "sub").mkdir()
    for name in ("sub/other.dat", "a.vmrk", "a.eeg"):
        (tmp_path / name).touch()
    wanted = (header, tmp_path / "sub" / "other.dat", tmp_path / "a.vmrk")
    assert files_of(str(header)) == tuple(map(str, wanted))


@pytest.mark.parametrize("kind", ["sub/x.eeg", "other.fdt", "split"])
def test_a_stamp_is_of_all_files_that_are_read(tmp_path: Path, kind: str) -> None:
    """A file that is written again beside its header changes the recording."""
    if kind == "split":
        path = tmp_path / "a_raw.fif"
        fif_of_mne().save(path, split_size="2MB", buffer_size_sec=1, verbose="ERROR")
        parts = sorted(tmp_path.glob("a_raw-*.fif"))
        assert len(parts) == 3
    elif kind == "other.fdt":
        path = eeglab(tmp_path)
        parts = [moved_samples(path, kind)]
    else:
        path = brainvision(tmp_path)
        (tmp_path / "sub").mkdir()
        parts = [(tmp_path / "night.eeg").rename(tmp_path / kind)]
        text = path.read_text(encoding="utf-8").replace("night.eeg", kind)
        path.write_text(text, encoding="utf-8")
        parts.append(tmp_path / "night.vmrk")
    with open_recording(path) as recording:
        read = recording.groups[0].read()
    assert set(files_of(str(path))) == {str(path), *map(str, parts)}
    before = stamp_of(str(path))
    assert before
    for part in parts:
        os.utime(part, (1, 1))
        assert stamp_of(str(path)) != before
        before = stamp_of(str(path))
    assert read.shape[1]


def fif_of_mne() -> Any:
    info = mne.create_info(4, 1000.0, "eeg")
    return mne.io.RawArray(np.ones((4, 200_000)), info, verbose="ERROR")


def moved_samples(path: Path, name: str) -> Path:
    """The samples of a set of EEGLAB, in a file of that name beside it."""
    whole = scipy.io.loadmat(path)
    kept = {key: one for key, one in whole.items() if not key.startswith("_")}
    scipy.io.savemat(path, kept | {"data": name})
    target = path.parent / name
    if not name.startswith(("/", "..")):
        X.astype("<f4").T.tofile(target)
    return target


OUTSIDE = (
    "/etc/passwd",
    "../outside.eeg",
    "sub/../../outside.eeg",
    "C:\\outside.eeg",
    "C:outside.eeg",
    "\\\\host\\share\\outside.eeg",
    "sub\\outside.eeg",
)


@pytest.mark.parametrize("option", ["DataFile", "MarkerFile", "datafile "])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_header_of_brainvision_leads_nowhere_else(
    tmp_path: Path, option: str, name: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "outside.eeg").write_bytes(bytes(4000))
    header = brainvision(folder)
    text = header.read_text(encoding="utf-8")
    old = "MarkerFile=night.vmrk" if option == "MarkerFile" else "DataFile=night.eeg"
    assert old in text
    header.write_text(text.replace(old, f"{option}={name}"), encoding="utf-8")
    check_unreadable(header, "the header's own folder or below it")
    assert stamp_of(str(header)) == ""


def test_a_code_page_hides_no_name(tmp_path: Path) -> None:
    """UTF-7 writes DataFile so that a search of the bytes would not see it."""
    header = brainvision(tmp_path)
    text = header.read_text(encoding="utf-8").replace("UTF-8", "utf_7")
    text = text.replace("DataFile=night.eeg", "+AEQ-ataFile=/etc/passwd")
    header.write_text(text.replace("µ", "u"), encoding="utf-8")
    check_unreadable(header, "the header's own folder or below it")


@pytest.mark.parametrize("page", ["utf\0", "hex", "rot13", "no page", "idna", "ANSI"])
def test_an_odd_code_page_is_no_traceback(tmp_path: Path, page: str) -> None:
    header = brainvision(tmp_path)
    text = header.read_text(encoding="utf-8").replace("UTF-8", page)
    header.write_text(text, encoding="utf-8")
    with contextlib.suppress(RlxError):
        open_recording(header).close()
    assert files_of(str(header))


@pytest.mark.parametrize("name", ["/etc/x.fdt", "../x.fdt", "C:\\x.fdt", "a\\x.fdt"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_a_set_of_eeglab_leads_nowhere_else(
    tmp_path: Path, name: str, packed: bool, nested: bool
) -> None:
    path = eeglab(tmp_path)
    whole = scipy.io.loadmat(path)
    kept = {key: one for key, one in whole.items() if not key.startswith("_")}
    kept["data"] = name
    scipy.io.savemat(path, {"EEG": kept} if nested else kept, do_compression=packed)
    check_unreadable(path, "the header's own folder or below it")


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("name", ["/x_raw.fif", "../x_rw.fif"])
def test_a_fif_file_goes_on_nowhere_else(
    tmp_path: Path, name: str, listed: bool
) -> None:
    """A sequel lies in the folder, by the chain of tags and by their directory."""
    path = tmp_path / "a_raw.fif"
    fif_of_mne().save(path, split_size="2MB", buffer_size_sec=1, verbose="ERROR")
    raw = path.read_bytes()
    place = raw.index(b"a_raw-1.fif")
    assert len(name) <= 11
    path.write_bytes(raw[:place] + name.encode().ljust(11, b"_") + raw[place + 11 :])
    if listed:
        path.write_bytes(with_directory(path.read_bytes(), place - 16))
    check_unreadable(path, "the header's own folder or below it")


def with_directory(raw: bytes, place: int) -> bytes:
    """A FIF file with a directory; the tag at `place` is another but in that."""
    tags, at = [], 0
    while at >= 0:
        kind, type_, nbytes, after = struct.unpack_from(">4i", raw, at)
        tags.append(struct.pack(">4i", kind, type_, nbytes, at))
        at = after if after else at + 16 + nbytes
        at = -1 if at >= len(raw) else at
    whole = bytearray(raw)
    whole[place : place + 4] = struct.pack(">i", 200)
    pointer = 16 + 20  # the second tag, behind that of the file's number
    assert struct.unpack_from(">i", whole, pointer)[0] == 101
    struct.pack_into(">i", whole, pointer + 16, len(raw))
    whole += struct.pack(">4i", 102, 32, 16 * len(tags), -1) + b"".join(tags)
    return bytes(whole)


def test_a_fif_file_that_goes_on_in_itself_is_refused(tmp_path: Path) -> None:
    """MNE would read it for ever."""
    path = tmp_path / "a_raw.fif"
    fif_of_mne().save(path, split_size="2MB", buffer_size_sec=1, verbose="ERROR")
    path.rename(tmp_path / "a_raw-1.fif")
    check_unreadable(tmp_path / "a_raw-1.fif", "a file before it")


def parts_of(folder: Path, kind: str) -> tuple[Path, Path]:
    """A recording that two files are, and the second of them."""
    if kind == "fif":
        path = folder / "a_raw.fif"
        fif_of_mne().save(path, split_size="2MB", buffer_size_sec=1, verbose="ERROR")
        return path, folder / "a_raw-1.fif"
    if kind == "set":
        path = eeglab(folder)
        return path, moved_samples(path, "other.fdt")
    return brainvision(folder), folder / ("night." + kind)


PARTS = ("eeg", "vmrk", "set", "fif")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here")
@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
def test_no_pipe_and_no_device_is_opened(tmp_path: Path, kind: str, what: str) -> None:
    path, part = parts_of(tmp_path, kind)
    part.unlink()
    if what == "pipe":
        os.mkfifo(part)
    elif what == "folder":
        part.mkdir()
    else:
        part.symlink_to("/dev/zero")
    match = "it is a folder" if what == "folder" else "not a regular file"
    check_unreadable(path, match)


@pytest.mark.parametrize("kind", PARTS)
def test_links_to_files_are_followed_as_git_annex_has_them(
    tmp_path: Path, kind: str
) -> None:
    """Links of git-annex, to files named by their digest, are followed."""
    path, _ = parts_of(tmp_path, kind)
    with open_recording(path) as recording:
        wanted = recording.groups[0].read()
    store = tmp_path / ".git" / "annex" / "objects"
    store.mkdir(parents=True)
    for at, file in enumerate(sorted(tmp_path.iterdir())):
        if file.is_file():
            file.rename(store / f"MD5E-{at}{file.suffix}")
            file.symlink_to(
                os.path.join(".git/annex/objects", f"MD5E-{at}{file.suffix}")
            )
    with open_recording(path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), wanted)


def test_samples_lead_back_to_their_header(tmp_path: Path) -> None:
    assert pointed_to(str(tmp_path / "a.fdt")) is None
    (tmp_path / "a.set").touch()
    found = pointed_to(str(tmp_path / "a.fdt"))
    assert found == ("the samples of an EEGLAB set", str(tmp_path / "a.set"))
    assert pointed_to("s3://bucket/a.eeg") is None


def test_suffixes_of_recordings() -> None:
    """A suffix may have two parts; a hidden file has none."""
    for name in ("a.EDF", "a_raw.fif.gz", "a.vhdr", "a.nwb", "a.opus", "a.zarr"):
        assert is_named_so(name)
    for name in ("a.gz", "a.eeg", "a.mat", ".edf", "edf", "a.txt"):
        assert not is_named_so(name)
