"""Command `rlxweb info`: its report agrees with the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlxweb.cli.info_command import _format_clock
from tests.cli_runners import CommandRunner


@pytest.fixture
def path(place_files: Callable[[str], None], tmp_path: Path) -> Path:
    place_files("info.edf")
    return tmp_path / "info.edf"


def test_several_files_and_a_bad_one(
    path: Path, tmp_path: Path, call: CommandRunner
) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 250)), fs=250.0)
    bad = tmp_path / "bad.edf"
    bad.write_bytes(b"0       nothing")
    result = call("info", bad, path, tmp_path / "x.npz", "--keep-going", "--json", "-")
    assert result.code == 1
    assert [Path(f["path"]).name for f in result.document["files"]] == [
        "info.edf",
        "x.npz",
    ]
    assert len(result.document["failed"]) == 1
    assert "without a unit: ch1, ch2" in result.err
    assert "no annotations" in result.err
    assert not call("info", path, "--quiet").out


def test_file_defects_are_listed(path: Path, call: CommandRunner) -> None:
    path.write_bytes(path.read_bytes()[:-500])
    result = call("info", path)
    assert result.code == 0
    assert "  warning: " in result.out


def test_clock_format() -> None:
    assert [_format_clock(s) for s in (0, 59.9996, 3661.25, 86_399)] == [
        *("0:00:00", "0:01:00", "1:01:01.25", "23:59:59")
    ]


def test_recordings_of_other_software(
    call: CommandRunner, eeg_recordings: Path
) -> None:
    result = call("info", eeg_recordings / "test.edf", eeg_recordings / "test.bdf")
    assert result.code == 0
    assert "138 channels at 512 Hz" in result.out
    assert "72 channels at 2048 Hz" in result.out
