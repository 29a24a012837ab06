"""Groups are read in blocks, within bounded memory, and checked for finite samples."""

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

from rlxweb.errors import NotFinite, RecordingError, UsageError
from rlxweb.io import check_finite, npz, open_recording
from tests.recordings import KINDS

MEBI = 1 << 20


def saved(path: Path, x: np.ndarray) -> Path:
    np.save(path, x)
    return path


@pytest.fixture
def zeros(tmp_path: Path) -> Path:
    """One channel of nine samples."""
    return saved(tmp_path / "a.npy", np.zeros(9))


def test_reprs_are_short_however_many_channels(tmp_path: Path) -> None:
    """What a notebook shows: how many there are, of what rate and length."""
    path = saved(tmp_path / "a.npy", np.zeros((500, 40)))
    with open_recording(path, fs=250) as recording:
        (group,) = recording.groups
        told = "500 channels at 250 Hz, 40 samples"
        assert repr(recording).endswith(f": NPY, {told})")
        assert repr(group).endswith(f": {told})")
        assert len(repr(group)) < 140
        block = next(group.blocks(16))
        assert repr(block) == "Block(0 to 16 of 500 channels)"


@given(samples=st.integers(1, 60), block=st.integers(1, 70), data=st.data())
def test_blocks_cover_every_sample_with_the_overlap_asked_for(
    tmp_path_factory: pytest.TempPathFactory,
    samples: int,
    block: int,
    data: st.DataObject,
) -> None:
    """Blocks start `overlap` before the end of the last; none is superfluous."""
    overlap = data.draw(st.integers(0, block - 1))
    x = np.arange(2.0 * samples).reshape(2, -1)
    path = saved(tmp_path_factory.mktemp("npy") / "a.npy", x)
    with open_recording(path, fs=1) as recording:
        blocks = list(recording.groups[0].blocks(block, overlap))
    assert blocks[0].start == 0
    assert blocks[-1].stop == samples
    for one, two in itertools.pairwise(blocks):
        assert two.start == one.stop - overlap
        assert one.stop - one.start == block
        assert two.stop > one.stop
    for piece in blocks:
        np.testing.assert_array_equal(piece.data, x[:, piece.start : piece.stop])


@given(
    nperseg=st.integers(1, 20),
    hop=st.integers(1, 20),
    many=st.integers(0, 5),
    samples=st.integers(1, 200),
)
def test_windows_are_seen_once_each(
    tmp_path_factory: pytest.TempPathFactory,
    nperseg: int,
    hop: int,
    many: int,
    samples: int,
) -> None:
    """The block length the docstring gives visits the windows of the whole signal."""
    hop = min(hop, nperseg)
    path = saved(tmp_path_factory.mktemp("npy") / "a.npy", np.arange(float(samples)))
    seen = []
    with open_recording(path, fs=1) as recording:
        for block in recording.groups[0].blocks(nperseg + many * hop, nperseg - hop):
            last = block.data.shape[1] - nperseg
            seen += [block.start + at for at in range(0, last + 1, hop)]
    assert seen == list(range(0, samples - nperseg + 1, hop))


@pytest.mark.parametrize(("block", "overlap"), [(0, 0), (-1, 0), (4, 4), (4, -1)])
def test_blocks_that_would_not_advance_are_refused(
    zeros: Path, block: int, overlap: int
) -> None:
    """The refusal comes with the call, not with the first block."""
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
def test_a_range_is_of_whole_numbers(zeros: Path, value: object) -> None:
    """A range of other than whole numbers is refused by name, with the call."""
    with open_recording(zeros, fs=1) as recording:
        (group,) = recording.groups
        for call, name in (
            (lambda: group.read(value), "start"),
            (lambda: group.read(0, value), "stop"),
            (lambda: group.blocks(value), "n_samples"),
            (lambda: group.stored_blocks(4, value), "overlap"),
        ):
            with pytest.raises(UsageError, match=f"{name} is .*a whole number"):
                call()


def test_a_closed_recording_is_not_read(zeros: Path) -> None:
    """Reading after `close` is one clear error."""
    recording = open_recording(zeros, fs=1)
    recording.close()
    recording.close()
    with pytest.raises(RecordingError, match="closed"):
        recording.groups[0].read()


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_threads_read_one_recording_at_once(tmp_path: Path, name: str) -> None:
    """Threads get the samples they ask for, of a file and of an unpacked array."""
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
            starts = [97 * at % 3900 for at in range(600)]
            got = list(pool.map(lambda at: read(at, at + 100), starts, timeout=60))
    finally:
        sys.setswitchinterval(before)
    for at, one in zip(starts, got, strict=True):
        np.testing.assert_array_equal(one, x[:, at : at + 100])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_forked_process_reads_beside_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A forked process shares the file's position, which must not matter."""
    x = np.random.default_rng(4).normal(size=(1, 200_000))
    monkeypatch.setattr(npz, "_IN_MEMORY_NBYTES", 1000)
    np.save(tmp_path / "a.npy", x)
    np.savez_compressed(tmp_path / "a.npz", x=x)
    with open_recording(tmp_path / name, fs=1) as recording:
        read = recording.groups[0].read
        read(0, 9)
        with subprocess_that(lambda: walk_is_right(read, x)) as ended:
            here = walk_is_right(read, x)
    assert here
    assert ended == [0]


def walk_is_right(read: Callable[[int, int], np.ndarray], x: np.ndarray) -> bool:
    starts = range(0, x.shape[1] - 50, 50)
    return all(np.array_equal(read(at, at + 50), x[:, at : at + 50]) for at in starts)


@contextmanager
def subprocess_that(holds: Callable[[], bool]) -> Iterator[list[int]]:
    """A forked process whose exit code, known at the end, is 0 when that holds."""
    ended: list[int] = []
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = int(not holds())
        finally:
            os._exit(code)
    try:
        yield ended
    finally:
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_a_file_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """A short read never yields a short block (or kills the process)."""
    path = saved(tmp_path / "a.npy", np.zeros((2, 100_000)))
    with open_recording(path, fs=1) as recording:
        blocks = recording.groups[0].blocks(1000)
        next(blocks)
        with path.open("rb+") as file:
            file.truncate(300_000)
        with pytest.raises(RecordingError, match="ends early"):
            list(blocks)


def test_the_first_bad_sample_is_named(tmp_path: Path) -> None:
    """Channel, absolute index and time of the earliest NaN or infinity."""
    x = np.zeros((3, 100))
    x[2, 40] = np.nan
    x[0, 41] = -np.inf
    with open_recording(saved(tmp_path / "a.npy", x), fs=10) as recording:
        (group,) = recording.groups
        check_finite(group.read(0, 40), group)
        with pytest.raises(NotFinite, match=r"'ch3' is nan at sample 40 \(4\.000 s\)"):
            check_finite(group.read(), group)
        with pytest.raises(NotFinite, match="'ch1' is -inf at sample 41"):
            check_finite(group.read(41, 60), group, 41)


def test_integers_are_always_finite(tmp_path: Path) -> None:
    """The check has nothing to ask of integers."""
    path = saved(tmp_path / "a.npy", np.full((1, 4), -1, np.int16))
    with open_recording(path, fs=1) as recording:
        (group,) = recording.groups
        check_finite(group.read(), group)


@contextmanager
def peak() -> Iterator[list[int]]:
    """Holds, when the block has ended, the peak bytes allocated in it."""
    found: list[int] = []
    tracemalloc.start()
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def check_walk(
    path: Path, block: int, samples: int, *, most: float = 30 * MEBI, **options: object
) -> None:
    """Opened and walked, the file shows every sample and takes little memory."""
    with peak() as held, open_recording(path, **options) as recording:
        blocks = recording.groups[0].blocks(block)
        assert sum(piece.data.shape[1] for piece in blocks) == samples
    assert held[0] < most


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["channels-first", "samples-first"])
def test_a_large_npy_file_is_walked_in_little_memory(
    tmp_path: Path, layout: str
) -> None:
    """80 MB, sparse on disk, in either order of axes."""
    path = tmp_path / "big.npy"
    shape = (10, 2_000_000) if layout == "channels-first" else (2_000_000, 10)
    np.lib.format.open_memmap(path, "w+", "<f4", shape)
    check_walk(path, 100_000, 2_000_000, fs=1000, layout=layout)


@pytest.mark.slow
def test_a_large_wav_file_is_walked_in_little_memory(tmp_path: Path) -> None:
    """80 MB of 24-bit stereo."""
    import soundfile  # not there in WebAssembly, where the rest of the file runs

    path = tmp_path / "big.wav"
    soundfile.write(path, np.zeros((1, 2)), 48000, subtype="PCM_24")
    raw, nbytes = bytearray(path.read_bytes()), 80_000_004
    at = raw.index(b"data") + 4
    raw[at : at + 4] = nbytes.to_bytes(4, "little")
    path.write_bytes(bytes(raw[: at + 4]))
    with path.open("rb+") as file:
        file.truncate(at + 4 + nbytes)
    check_walk(path, 500_000, nbytes // 6)


def big_edf(folder: Path, kind: str) -> Path:
    """64 channels at 512 Hz for 600 s; all but the first second lies in a hole."""
    path = folder / f"big.{kind}"
    signal, whole, _ = KINDS[path.suffix]
    whole([signal(np.arange(512.0), 512, label=f"E{i}") for i in range(64)]).write(path)
    raw = bytearray(path.read_bytes())
    record = len(raw) - 256 * 65
    raw[236:244] = b"600     "
    path.write_bytes(bytes(raw))
    with path.open("rb+") as file:
        file.truncate(256 * 65 + 600 * record)
    assert path.stat().st_size > 39_000_000
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["edf", "bdf"])
def test_a_large_edf_file_is_walked_in_little_memory(tmp_path: Path, kind: str) -> None:
    """EDF and BDF are walked in little memory, where edfio loads BDF files whole."""
    check_walk(big_edf(tmp_path, kind), 20_000, 600 * 512)


def test_one_channel_of_a_large_edf_file_is_read_in_little_memory(
    tmp_path: Path,
) -> None:
    """A window of one channel lies in the records of all; few are held at a time."""
    with open_recording(big_edf(tmp_path, "edf"), channels=["E63"]) as recording:
        with peak() as held:
            x = recording.groups[0].read()
    assert held[0] < x.nbytes + 10 * MEBI


@pytest.mark.slow
def test_a_large_compressed_npz_file_is_walked_in_little_memory(tmp_path: Path) -> None:
    """The unpacked array lies in a temporary file, not in memory."""
    path = tmp_path / "big.npz"
    np.savez_compressed(path, x=np.zeros((2, 5_000_000), np.float32))
    check_walk(path, 100_000, 5_000_000, fs=1000)


@pytest.mark.slow
def test_a_long_csv_file_is_walked_in_little_memory(tmp_path: Path) -> None:
    """A long CSV file is walked in less than half of its own size."""
    path = tmp_path / "big.csv"
    path.write_bytes(b"1.250000000000,2.50000000000,3.750000000000,5.00\n" * 250_000)
    check_walk(path, 10_000, 250_000, most=path.stat().st_size / 2, fs=1000)
