"""Integers as a converter gave them: what they stand for, which are taken, how read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.digital import Digital, is_digital
from rlxweb.errors import DTypeError, NotFinite, ShapeError, UsageError
from rlxweb.io import open_recording
from tests.recordings import written


def test_each_row_has_a_gain_and_an_offset_of_its_own() -> None:
    """Physical values are float64, by the order of EDF: add, then multiply."""
    counts = np.array([[1, -2, 3], [4, 5, -6]], np.int16)
    gain, offset = np.array([0.1, 3.0]), np.array([0.25, -1e6])
    one = Digital(counts, gain, offset)
    expected = (counts + offset[:, None]) * gain[:, None]
    np.testing.assert_array_equal(np.asarray(one), expected)
    assert one.physical().dtype == np.float64
    assert (one.shape, one.ndim) == ((2, 3), 2)
    np.testing.assert_array_equal(Digital(counts[0], 2.0, 1), (counts[0] + 1) * 2.0)


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "i2", "u2", ">i2", "i4", "u4", "i8", "u8"]
)
def test_wide_types_are_taken_when_their_values_fit(dtype: str) -> None:
    counts = np.array([0, 1, 1]).astype(dtype)
    np.testing.assert_array_equal(Digital(counts), [0.0, 1.0, 1.0])
    assert is_digital(np.dtype(dtype)) == (np.dtype(dtype).itemsize <= 2)


@given(st.integers(-(2**40), 2**40))
def test_twenty_four_bits_are_the_limit(count: int) -> None:
    """Counts have 24 bits at most; beyond them their reach is told."""
    if -(2**23) <= count < 2**23:
        assert Digital([[count]]).physical()[0, 0] == count
    else:
        with pytest.raises(DTypeError, match=f"{count}.*24 bits hold -8388608 to"):
            Digital([[0, count]])


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"counts": [[1.0]]}, DTypeError),
        ({"counts": [[[1]]]}, ShapeError),
        ({"counts": [[1, 2]], "gain": [1.0, 2.0]}, ShapeError),
        ({"counts": [[1, 2]], "offset": [[1.0]]}, ShapeError),
        ({"counts": [[1, 2]], "gain": np.nan}, NotFinite),
        ({"counts": [[1, 2]], "offset": np.inf}, NotFinite),
        ({"counts": [[1], [2]], "gain": [1.0, 0.0]}, UsageError),
    ],
)
def test_what_has_no_meaning_is_refused(how: dict[str, Any], error: type) -> None:
    with pytest.raises(error, match=r"^digital samples: "):
        Digital(**how)


def check_stored(path: Path, dtype: type, **how: Any) -> None:
    """Integers of the dtype, whose physical values are those that are read."""
    with open_recording(path, **how) as recording:
        (group,) = recording.groups
        stored = group.read_stored()
        assert isinstance(stored, Digital)
        assert stored.counts.dtype == group.digital == dtype
        np.testing.assert_array_equal(stored.physical(), group.read())
        walked = [block.data for block in group.stored_blocks(101)]
        counts = [part.counts for part in walked if isinstance(part, Digital)]
        np.testing.assert_array_equal(np.concatenate(counts, axis=1), stored.counts)
        assert group.read_stored(3, 3).shape == (len(group.channels), 0)


@pytest.mark.parametrize(("kind", "dtype"), [(".edf", np.int16), (".bdf", np.int32)])
def test_eeg_is_stored_as_integers(tmp_path: Path, kind: str, dtype: type) -> None:
    check_stored(written(tmp_path / f"x{kind}", ("a", 64), ("b", 64)), dtype)


@pytest.mark.parametrize(
    ("subtype", "dtype"),
    [("PCM_U8", np.int16), ("PCM_16", np.int16), ("PCM_24", np.int32)],
)
def test_pcm_of_up_to_24_bits_is_stored_as_integers(
    tmp_path: Path, subtype: str, dtype: type
) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (301, 2))
    soundfile.write(tmp_path / "x.wav", x, 1000, subtype=subtype)
    check_stored(tmp_path / "x.wav", dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_arrays_of_short_integers_are_stored_as_such(
    tmp_path: Path, dtype: type
) -> None:
    """Arrays of short integers are stored as such, and read as such too."""
    x = np.random.default_rng(1).integers(0, 100, (2, 301)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    check_stored(tmp_path / "x.npy", dtype, fs=100)
    with open_recording(tmp_path / "x.npy", fs=100) as recording:
        assert recording.groups[0].read().dtype == dtype


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.float32])
def test_what_may_need_more_bits_is_stored_as_values(
    tmp_path: Path, dtype: type
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 9), dtype))
    with open_recording(tmp_path / "x.npy", fs=100) as recording:
        (group,) = recording.groups
        assert group.digital is None
        assert isinstance(group.read_stored(), np.ndarray)
