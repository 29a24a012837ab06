"""Files larger than the memory budget: memory use does not grow with the file."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli_runners import run_python

NBYTES = 128 << 20
MAX_GROWTH_MB = 110
# The high-water mark of this process alone; ru_maxrss would begin with the parent's.
PEAK_MEMORY_SOURCE = """
import re
def mark():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s+(\\d+)", file.read())[1]) // 1024
"""
ANALYSE_SCRIPT = """
import sys
from rlxweb.batch.settings import Settings
from rlxweb.cli.welch_output_options import WelchOutputOptions
from rlxweb.cli.welch_command import run_welch_job
before = mark()
fs = float(sys.argv[2]) or None
options, settings = WelchOutputOptions(quiet=True), Settings(fs=fs, device="cpu")
(result,) = run_welch_job([sys.argv[1]], settings, options).results
print(mark() - before, sum(g.n_samples * len(g.names) for g in result.groups))
"""


def sparse_npy(path: Path) -> int:
    """Write 4 channels of float32, of which only the header takes disk space; return
    the sample count.
    """
    shape = (4, NBYTES // 16)
    np.lib.format.open_memmap(path, "w+", "<f4", shape)
    return shape[0] * shape[1]


def sparse_wav(path: Path) -> int:
    """Write 2 channels of 16-bit samples; return the sample count."""
    format_chunk = struct.pack("<IHHIIHH", 16, 1, 2, 44_100, 176_400, 4, 16)
    riff_header = b"RIFF" + struct.pack("<I", 36 + NBYTES) + b"WAVEfmt " + format_chunk
    with path.open("wb") as file:
        file.write(riff_header + b"data" + struct.pack("<I", NBYTES))
        file.truncate(file.tell() + NBYTES)
    return NBYTES // 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the mark from /proc")
@pytest.mark.parametrize(("kind", "fs"), [("npy", 100), ("wav", 0)])
def test_128_mb_file_is_analysed_in_blocks(tmp_path: Path, kind: str, fs: int) -> None:
    """Analysis takes at most 110 MB over the imports and reads every sample."""
    path = tmp_path / f"long.{kind}"
    samples = {"npy": sparse_npy, "wav": sparse_wav}[kind](path)
    result = run_python(
        "-c", PEAK_MEMORY_SOURCE + ANALYSE_SCRIPT, path, fs, timeout=600
    )
    assert result.code == 0, result.err
    growth_mb, n_read = map(int, result.out.split())
    assert n_read == samples
    assert growth_mb <= MAX_GROWTH_MB


SAVE_SCRIPT = """
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
def test_128_mb_file_is_written_in_blocks(tmp_path: Path, kind: str) -> None:
    """Writing a file of any format holds only blocks in memory."""
    path = tmp_path / "long.npy"
    samples = sparse_npy(path)
    result = run_python(
        "-c",
        PEAK_MEMORY_SOURCE + SAVE_SCRIPT,
        path,
        tmp_path / f"x.{kind}",
        timeout=600,
    )
    assert result.code == 0, result.err
    growth_mb, n_written = map(int, result.out.split())
    assert n_written == samples
    assert growth_mb <= MAX_GROWTH_MB
