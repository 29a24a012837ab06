"""Files that are one recording together: who leads to whom, by their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlxweb.io.companions import is_part, led_to, pointed_to
from rlxweb.io.formats import is_named_so
from rlxweb.io.stamp import stamp_of


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


def test_a_header_of_brainvision_names_its_files(tmp_path: Path) -> None:
    """Wherever it says, in its own folder; $b is its own name."""
    header = tmp_path / "a.vhdr"
    header.write_text(
        "DataFile=C:\\old\\other.dat\nMarkerFile = $b.vmrk\n; DataFile=x\n"
    )
    for name in ("other.dat", "a.vmrk", "a.eeg"):
        (tmp_path / name).touch()
    assert led_to(str(header)) == tuple(
        str(tmp_path / name) for name in ("a.vmrk", "other.dat")
    )
    assert led_to(str(tmp_path / "gone.vhdr")) == ()


def test_a_stamp_is_of_all_parts(tmp_path: Path) -> None:
    """A file that is written again beside its header changes the recording."""
    for head, part in (("a.set", "a.fdt"), ("b_raw.fif", "b_raw-1.fif")):
        (tmp_path / head).write_text("x")
        alone = stamp_of(str(tmp_path / head))
        (tmp_path / part).write_text("y")
        both = stamp_of(str(tmp_path / head))
        os.utime(tmp_path / part, (1, 1))
        assert len({alone, both, stamp_of(str(tmp_path / head))}) == 3


def test_samples_lead_back_to_their_header(tmp_path: Path) -> None:
    assert pointed_to(str(tmp_path / "a.fdt")) is None
    (tmp_path / "a.set").touch()
    found = pointed_to(str(tmp_path / "a.fdt"))
    assert found == ("the samples of an EEGLAB set", str(tmp_path / "a.set"))
    assert pointed_to("s3://bucket/a.eeg") is None


def test_suffixes_of_recordings() -> None:
    """Of two parts too; a hidden file is none."""
    for name in ("a.EDF", "a_raw.fif.gz", "a.vhdr", "a.nwb", "a.opus", "a.zarr"):
        assert is_named_so(name)
    for name in ("a.gz", "a.eeg", "a.mat", ".edf", "edf", "a.txt"):
        assert not is_named_so(name)
