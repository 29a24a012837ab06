"""Files larger than what may be held: the job's memory does not grow with the file."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import python

NBYTES = 128 << 20
MOST_MB = 110
# The high-water mark of this process alone; ru_maxrss would begin with the parent's.
MARK = """
import re
def mark():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s+(\\d+)", file.read())[1]) // 1024
"""
RUN = """
import sys
from rlxweb.jobs.settings import Settings
from rlxweb.cli.wanted import Wanted
from rlxweb.cli.welch_command import run_job
before = mark()
fs = float(sys.argv[2]) or None
wanted, settings = Wanted(quiet=True), Settings(fs=fs, device="cpu")
(result,) = run_job([sys.argv[1]], settings, wanted).results
print(mark() - before, sum(g.n_samples * len(g.names) for g in result.groups))
"""


def sparse_npy(path: Path) -> int:
    """4 channels of float32, of which only the header is on the disk."""
    shape = (4, NBYTES // 16)
    np.lib.format.open_memmap(path, "w+", "<f4", shape)
    return shape[0] * shape[1]


def sparse_wav(path: Path) -> int:
    """2 channels of 16 bits."""
    form = struct.pack("<IHHIIHH", 16, 1, 2, 44_100, 176_400, 4, 16)
    head = b"RIFF" + struct.pack("<I", 36 + NBYTES) + b"WAVEfmt " + form
    with path.open("wb") as file:
        file.write(head + b"data" + struct.pack("<I", NBYTES))
        file.truncate(file.tell() + NBYTES)
    return NBYTES // 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the mark from /proc")
@pytest.mark.parametrize(("kind", "fs"), [("npy", 100), ("wav", 0)])
def test_a_file_of_128_mb_is_walked_in_blocks(
    tmp_path: Path, kind: str, fs: int
) -> None:
    """A walk takes at most 110 MB over the imports and sees every sample."""
    path = tmp_path / f"long.{kind}"
    samples = {"npy": sparse_npy, "wav": sparse_wav}[kind](path)
    said = python("-c", MARK + RUN, path, fs, timeout=600)
    assert said.code == 0, said.err
    grown, seen = map(int, said.out.split())
    assert seen == samples
    assert grown <= MOST_MB


WRITE = """
import sys
from rlxweb.io import open_recording
before = mark()
with open_recording(sys.argv[1], fs=1000) as recording:
    (own,) = recording.save(sys.argv[2], begun=0).groups
print(mark() - before, own.n_samples * len(own.channels))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the mark from /proc")
@pytest.mark.parametrize("kind", ["edf", "npz"])
def test_a_file_of_128_mb_is_written_in_blocks(tmp_path: Path, kind: str) -> None:
    """Writing a file of any format holds no more than the blocks."""
    path = tmp_path / "long.npy"
    samples = sparse_npy(path)
    said = python("-c", MARK + WRITE, path, tmp_path / f"x.{kind}", timeout=600)
    assert said.code == 0, said.err
    grown, written = map(int, said.out.split())
    assert written == samples
    assert grown <= MOST_MB
