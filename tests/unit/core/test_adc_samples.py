"""Integer samples of a converter: their physical values, accepted types and reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.adc_samples import Digital, is_digital_dtype
from rlxweb.core.errors import DTypeError, NotFinite, ShapeError, UsageError
from rlxweb.io import open_recording
from tests.edf_bdf_recordings import write_recording


def test_each_row_has_a_gain_and_an_offset_of_its_own() -> None:
    """Physical values are float64 and computed in EDF's order: add, then multiply."""
    counts = np.array([[1, -2, 3], [4, 5, -6]], np.int16)
    gain, offset = np.array([0.1, 3.0]), np.array([0.25, -1e6])
    samples = Digital(counts, gain, offset)
    expected = (counts + offset[:, None]) * gain[:, None]
    np.testing.assert_array_equal(np.asarray(samples), expected)
    assert samples.physical().dtype == np.float64
    assert (samples.shape, samples.ndim) == ((2, 3), 2)
    np.testing.assert_array_equal(Digital(counts[0], 2.0, 1), (counts[0] + 1) * 2.0)


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "i2", "u2", ">i2", "i4", "u4", "i8", "u8"]
)
def test_wide_types_are_accepted_when_their_values_fit(dtype: str) -> None:
    counts = np.array([0, 1, 1]).astype(dtype)
    np.testing.assert_array_equal(Digital(counts), [0.0, 1.0, 1.0])
    assert is_digital_dtype(np.dtype(dtype)) == (np.dtype(dtype).itemsize <= 2)


@given(st.integers(-(2**40), 2**40))
def test_twenty_four_bits_are_the_limit(count: int) -> None:
    """Counts have 24 bits at most; the error for larger ones gives their range."""
    if -(2**23) <= count < 2**23:
        assert Digital([[count]]).physical()[0, 0] == count
    else:
        with pytest.raises(
            DTypeError, match=f"{count}.*24-bit integers, from -8388608 to"
        ):
            Digital([[0, count]])


@pytest.mark.parametrize(
    ("arguments", "error"),
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
def test_invalid_digital_samples_are_refused(
    arguments: dict[str, Any], error: type
) -> None:
    with pytest.raises(error, match=r"^digital samples: "):
        Digital(**arguments)


def check_stored(path: Path, dtype: type, **options: Any) -> None:
    """Check that stored integers have the dtype and represent the values that are
    read.
    """
    with open_recording(path, **options) as recording:
        (group,) = recording.groups
        stored = group.read_stored()
        assert isinstance(stored, Digital)
        assert stored.counts.dtype == group.digital == dtype
        np.testing.assert_array_equal(stored.physical(), group.read())
        block_data = [block.data for block in group.stored_blocks(101)]
        counts = [part.counts for part in block_data if isinstance(part, Digital)]
        np.testing.assert_array_equal(np.concatenate(counts, axis=1), stored.counts)
        assert group.read_stored(3, 3).shape == (len(group.channels), 0)


@pytest.mark.parametrize(("kind", "dtype"), [(".edf", np.int16), (".bdf", np.int32)])
def test_eeg_is_stored_as_integers(tmp_path: Path, kind: str, dtype: type) -> None:
    check_stored(write_recording(tmp_path / f"x{kind}", ("a", 64), ("b", 64)), dtype)


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
def test_arrays_of_short_integers_are_stored_as_integers(
    tmp_path: Path, dtype: type
) -> None:
    """Arrays of short integers are stored and read with their own dtype."""
    x = np.random.default_rng(1).integers(0, 100, (2, 301)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    check_stored(tmp_path / "x.npy", dtype, fs=100)
    with open_recording(tmp_path / "x.npy", fs=100) as recording:
        assert recording.groups[0].read().dtype == dtype


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.float32])
def test_wider_types_are_stored_as_values(tmp_path: Path, dtype: type) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 9), dtype))
    with open_recording(tmp_path / "x.npy", fs=100) as recording:
        (group,) = recording.groups
        assert group.digital is None
        assert isinstance(group.read_stored(), np.ndarray)
