"""Recordings: groups are read in blocks within bounded memory and checked for finite
samples.
"""

from __future__ import annotations

import itertools
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import NotFinite, RecordingError, UsageError
from rlxweb.io import check_finite, npz_reader, open_recording
from tests.edf_bdf_recordings import EDFIO_TYPES

MEBI = 1 << 20


def save_array(path: Path, x: np.ndarray) -> Path:
    np.save(path, x)
    return path


@pytest.fixture
def zeros(tmp_path: Path) -> Path:
    """One channel of nine samples."""
    return save_array(tmp_path / "a.npy", np.zeros(9))


def test_reprs_stay_short_for_many_channels(tmp_path: Path) -> None:
    """The reprs give the number of channels, the rate and the length."""
    path = save_array(tmp_path / "a.npy", np.zeros((500, 40)))
    with open_recording(path, fs=250) as recording:
        (group,) = recording.groups
        summary = "500 channels at 250 Hz, 40 samples"
        assert repr(recording).endswith(f": NPY, {summary})")
        assert repr(group).endswith(f": {summary})")
        assert len(repr(group)) < 140
        block = next(group.blocks(16))
        assert repr(block) == "Block(0 to 16 of 500 channels)"


@given(samples=st.integers(1, 60), block=st.integers(1, 70), data=st.data())
def test_blocks_cover_every_sample_with_the_requested_overlap(
    tmp_path_factory: pytest.TempPathFactory,
    samples: int,
    block: int,
    data: st.DataObject,
) -> None:
    """Blocks start `overlap` before the end of the last; none is superfluous."""
    overlap = data.draw(st.integers(0, block - 1))
    x = np.arange(2.0 * samples).reshape(2, -1)
    path = save_array(tmp_path_factory.mktemp("npy") / "a.npy", x)
    with open_recording(path, fs=1) as recording:
        blocks = list(recording.groups[0].blocks(block, overlap))
    assert blocks[0].start == 0
    assert blocks[-1].stop == samples
    for previous, following in itertools.pairwise(blocks):
        assert following.start == previous.stop - overlap
        assert previous.stop - previous.start == block
        assert following.stop > previous.stop
    for sample_block in blocks:
        np.testing.assert_array_equal(
            sample_block.data, x[:, sample_block.start : sample_block.stop]
        )


@given(
    nperseg=st.integers(1, 20),
    hop=st.integers(1, 20),
    many=st.integers(0, 5),
    samples=st.integers(1, 200),
)
def test_every_window_lies_in_exactly_one_block(
    tmp_path_factory: pytest.TempPathFactory,
    nperseg: int,
    hop: int,
    many: int,
    samples: int,
) -> None:
    """The block length the docstring gives visits the windows of the whole signal."""
    hop = min(hop, nperseg)
    path = save_array(
        tmp_path_factory.mktemp("npy") / "a.npy", np.arange(float(samples))
    )
    window_starts = []
    with open_recording(path, fs=1) as recording:
        for block in recording.groups[0].blocks(nperseg + many * hop, nperseg - hop):
            last = block.data.shape[1] - nperseg
            window_starts += [
                block.start + offset for offset in range(0, last + 1, hop)
            ]
    assert window_starts == list(range(0, samples - nperseg + 1, hop))


@pytest.mark.parametrize(("block", "overlap"), [(0, 0), (-1, 0), (4, 4), (4, -1)])
def test_blocks_that_would_not_advance_are_refused(
    zeros: Path, block: int, overlap: int
) -> None:
    """The error is raised by the call, not by the first block."""
    with open_recording(zeros, fs=1) as recording, pytest.raises(UsageError):
        recording.groups[0].blocks(block, overlap)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (0, 10)])
def test_a_range_outside_the_recording_is_refused(
    zeros: Path, start: int, stop: int
) -> None:
    """No wrap-around and no silent shortening."""
    with open_recording(zeros, fs=1) as recording:
        assert recording.groups[0].read(4, 4).shape == (1, 0)
        with pytest.raises(UsageError, match="<= 9"):
            recording.groups[0].read(start, stop)


@pytest.mark.parametrize("value", ["3", 3.5, [3], b"3"])
def test_ranges_must_be_whole_numbers(zeros: Path, value: object) -> None:
    """Arguments that are no whole numbers are refused by name as soon as the call is
    made.
    """
    with open_recording(zeros, fs=1) as recording:
        (group,) = recording.groups
        for call, name in (
            (lambda: group.read(value), "start"),
            (lambda: group.read(0, value), "stop"),
            (lambda: group.blocks(value), "n_samples"),
            (lambda: group.stored_blocks(4, value), "overlap"),
        ):
            with pytest.raises(UsageError, match=f"{name} is .*an integer number"):
                call()


def test_a_closed_recording_is_not_read(zeros: Path) -> None:
    """Reading after `close` is one clear error."""
    recording = open_recording(zeros, fs=1)
    recording.close()
    recording.close()
    with pytest.raises(RecordingError, match="closed"):
        recording.groups[0].read()


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_threads_read_one_recording_concurrently(tmp_path: Path, name: str) -> None:
    """Each thread gets the samples it requests, from a file and from an unpacked
    array.
    """
    x = np.random.default_rng(4).normal(size=(3, 4000))
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, x)
    else:
        np.savez_compressed(path, x=x)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with open_recording(path, fs=1) as recording, ThreadPoolExecutor(8) as pool:
            read = recording.groups[0].read
            starts = [97 * start % 3900 for start in range(600)]
            got = list(
                pool.map(lambda start: read(start, start + 100), starts, timeout=60)
            )
    finally:
        sys.setswitchinterval(before)
    for start, samples in zip(starts, got, strict=True):
        np.testing.assert_array_equal(samples, x[:, start : start + 100])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_forked_process_reads_concurrently_with_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A forked process shares the file's position, which must not matter."""
    x = np.random.default_rng(4).normal(size=(1, 200_000))
    monkeypatch.setattr(npz_reader, "_MAX_IN_MEMORY_NBYTES", 1000)
    np.save(tmp_path / "a.npy", x)
    np.savez_compressed(tmp_path / "a.npz", x=x)
    with open_recording(tmp_path / name, fs=1) as recording:
        read = recording.groups[0].read
        read(0, 9)
        with forked_check(lambda: reads_match(read, x)) as exit_codes:
            is_right_here = reads_match(read, x)
    assert is_right_here
    assert exit_codes == [0]


def reads_match(read: Callable[[int, int], np.ndarray], x: np.ndarray) -> bool:
    starts = range(0, x.shape[1] - 50, 50)
    return all(
        np.array_equal(read(start, start + 50), x[:, start : start + 50])
        for start in starts
    )


@contextmanager
def forked_check(condition: Callable[[], bool]) -> Iterator[list[int]]:
    """Check a condition in a forked process, whose exit code, known at the end, is 0 if
    it holds.
    """
    exit_codes: list[int] = []
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = int(not condition())
        finally:
            os._exit(code)
    try:
        yield exit_codes
    finally:
        exit_codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_a_file_truncated_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """A short read never yields a short block (or kills the process)."""
    path = save_array(tmp_path / "a.npy", np.zeros((2, 100_000)))
    with open_recording(path, fs=1) as recording:
        blocks = recording.groups[0].blocks(1000)
        next(blocks)
        with path.open("rb+") as file:
            file.truncate(300_000)
        with pytest.raises(RecordingError, match="ends early"):
            list(blocks)


def test_the_first_bad_sample_is_named(tmp_path: Path) -> None:
    """The error gives channel, absolute index and time of the earliest NaN or
    infinity.
    """
    x = np.zeros((3, 100))
    x[2, 40] = np.nan
    x[0, 41] = -np.inf
    with open_recording(save_array(tmp_path / "a.npy", x), fs=10) as recording:
        (group,) = recording.groups
        check_finite(group.read(0, 40), group)
        with pytest.raises(NotFinite, match=r"'ch3' is nan at sample 40 \(4\.000 s\)"):
            check_finite(group.read(), group)
        with pytest.raises(NotFinite, match="'ch1' is -inf at sample 41"):
            check_finite(group.read(41, 60), group, 41)


def test_integers_are_always_finite(tmp_path: Path) -> None:
    """The finiteness check accepts integers."""
    path = save_array(tmp_path / "a.npy", np.full((1, 4), -1, np.int16))
    with open_recording(path, fs=1) as recording:
        (group,) = recording.groups
        check_finite(group.read(), group)


@contextmanager
def traced_peak() -> Iterator[list[int]]:
    """Yield a list that holds, after the block, the peak number of bytes allocated in
    it.
    """
    peak_nbytes: list[int] = []
    tracemalloc.start()
    try:
        yield peak_nbytes
        peak_nbytes.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def check_memory_of_reading(
    path: Path,
    block: int,
    samples: int,
    *,
    max_nbytes: float = 30 * MEBI,
    **options: object,
) -> None:
    """Check that reading a file block by block gives every sample and takes little
    memory.
    """
    with traced_peak() as peak_nbytes, open_recording(path, **options) as recording:
        blocks = recording.groups[0].blocks(block)
        assert sum(sample_block.data.shape[1] for sample_block in blocks) == samples
    assert peak_nbytes[0] < max_nbytes


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["channels-first", "samples-first"])
def test_a_large_npy_file_is_read_in_little_memory(tmp_path: Path, layout: str) -> None:
    """80 MB, sparse on disk, in either order of the axes."""
    path = tmp_path / "big.npy"
    shape = (10, 2_000_000) if layout == "channels-first" else (2_000_000, 10)
    np.lib.format.open_memmap(path, "w+", "<f4", shape)
    check_memory_of_reading(path, 100_000, 2_000_000, fs=1000, layout=layout)


@pytest.mark.slow
def test_a_large_wav_file_is_read_in_little_memory(tmp_path: Path) -> None:
    """80 MB of 24-bit stereo."""
    import soundfile  # not there in WebAssembly, where the rest of the file runs

    path = tmp_path / "big.wav"
    soundfile.write(path, np.zeros((1, 2)), 48000, subtype="PCM_24")
    raw, nbytes = bytearray(path.read_bytes()), 80_000_004
    offset = raw.index(b"data") + 4
    raw[offset : offset + 4] = nbytes.to_bytes(4, "little")
    path.write_bytes(bytes(raw[: offset + 4]))
    with path.open("rb+") as file:
        file.truncate(offset + 4 + nbytes)
    check_memory_of_reading(path, 500_000, nbytes // 6)


def write_big_edf(folder: Path, kind: str) -> Path:
    """Write 64 channels at 512 Hz for 600 s; all but the first second is a hole of the
    file.
    """
    path = folder / f"big.{kind}"
    signal_type, file_type, _ = EDFIO_TYPES[path.suffix]
    file_type(
        [signal_type(np.arange(512.0), 512, label=f"E{i}") for i in range(64)]
    ).write(path)
    raw = bytearray(path.read_bytes())
    record_nbytes = len(raw) - 256 * 65
    raw[236:244] = b"600     "
    path.write_bytes(bytes(raw))
    with path.open("rb+") as file:
        file.truncate(256 * 65 + 600 * record_nbytes)
    assert path.stat().st_size > 39_000_000
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["edf", "bdf"])
def test_a_large_edf_file_is_read_in_little_memory(tmp_path: Path, kind: str) -> None:
    """EDF and BDF are read block by block in little memory, where edfio loads BDF files
    whole.
    """
    check_memory_of_reading(write_big_edf(tmp_path, kind), 20_000, 600 * 512)


def test_one_channel_of_a_large_edf_file_is_read_in_little_memory(
    tmp_path: Path,
) -> None:
    """One channel is spread over the records of all channels; few records are held at a
    time.
    """
    with open_recording(write_big_edf(tmp_path, "edf"), channels=["E63"]) as recording:
        with traced_peak() as peak_nbytes:
            x = recording.groups[0].read()
    assert peak_nbytes[0] < x.nbytes + 10 * MEBI


@pytest.mark.slow
def test_a_large_compressed_npz_file_is_read_in_little_memory(tmp_path: Path) -> None:
    """The unpacked array lies in a temporary file, not in memory."""
    path = tmp_path / "big.npz"
    np.savez_compressed(path, x=np.zeros((2, 5_000_000), np.float32))
    check_memory_of_reading(path, 100_000, 5_000_000, fs=1000)


@pytest.mark.slow
def test_a_long_csv_file_is_read_in_little_memory(tmp_path: Path) -> None:
    """A long CSV file is read in less memory than half of its own size."""
    path = tmp_path / "big.csv"
    path.write_bytes(b"1.250000000000,2.50000000000,3.750000000000,5.00\n" * 250_000)
    check_memory_of_reading(
        path, 10_000, 250_000, max_nbytes=path.stat().st_size / 2, fs=1000
    )
