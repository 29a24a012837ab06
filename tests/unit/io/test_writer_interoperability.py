"""Recordings written by rlxweb are read back by MNE, SciPy, soundfile, pyarrow and
pandas.
"""

from __future__ import annotations

import datetime
import json
import struct
from pathlib import Path

import mne
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.io.wavfile
import soundfile

from rlxweb.io import Annotation, open_recording, wav_writer
from tests.edf_bdf_recordings import save_recording

X = np.random.default_rng(5).normal(0, 50, (3, 1280))
NAMES = ["Fp1", "Fp2", "Cz"]
ANNOTATIONS = (
    Annotation(0.5, 0.0, "Licht aus, größer"),
    Annotation(1.25, 2.0, "sleep"),
)
OPTIONS = {"fs": 256, "channels": NAMES, "units": "uV", "annotations": ANNOTATIONS}


@pytest.mark.parametrize("kind", ["edf", "bdf"])
def test_mne_reads_edf_and_bdf(tmp_path: Path, kind: str) -> None:
    """MNE reads samples, names, rate, annotations and the time of day."""
    day = datetime.date(2002, 3, 2)
    result = save_recording(
        tmp_path / f"a.{kind}", X, begun=3661.0, date=day, **OPTIONS
    )
    read = mne.io.read_raw_edf if kind == "edf" else mne.io.read_raw_bdf
    raw = read(tmp_path / f"a.{kind}", preload=True, verbose="error")
    assert raw.ch_names == NAMES
    assert raw.info["sfreq"] == 256
    step = max(channel.step for channel in result.groups[0].channels)
    np.testing.assert_allclose(raw.get_data() * 1e6, X, atol=0.51 * step)
    annotations = raw.annotations
    assert [*annotations.description] == [annotation.text for annotation in ANNOTATIONS]
    np.testing.assert_allclose(annotations.onset, [0.5, 1.25])
    np.testing.assert_allclose(annotations.duration, [0, 2])
    assert raw.info["meas_date"].isoformat() == "2002-03-02T01:01:01+00:00"


@pytest.mark.parametrize("n_channels", [1, 2, 3])
@pytest.mark.parametrize("bits", [16, 24, 32, 64])
def test_scipy_and_soundfile_read_wav(
    tmp_path: Path, bits: int, n_channels: int
) -> None:
    """SciPy and soundfile read the same numbers, which equal the samples to half a
    step.
    """
    path, x = tmp_path / "a.wav", X[:n_channels, :-1] / 256
    result = save_recording(path, x, fs=8000, bits=bits)
    max_error = max(channel.error for channel in result.groups[0].channels)
    fs, stored = scipy.io.wavfile.read(path)
    scale = {"i": 2.0 ** (8 * stored.itemsize - 1), "f": 1.0}[stored.dtype.kind]
    values = np.atleast_2d(stored.T) / scale
    soundfile_values, rate = soundfile.read(path, always_2d=True)
    assert (fs, rate) == (8000, 8000)
    assert np.abs(values - x).max() == pytest.approx(max_error)
    np.testing.assert_array_equal(soundfile_values.T, values)


def test_a_wav_file_over_4_gib_is_rf64(tmp_path: Path) -> None:
    """Lengths over 4 GiB are stored in the ds64 chunk; soundfile reads the header of
    such a file.
    """
    n_samples = 3 << 28
    head = wav_writer._build_header(2, 48_000, n_samples, 32)
    path = tmp_path / "long.wav"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + n_samples * 8)  # holes: nothing on the disk
    assert struct.unpack("<4sI4s4s", head[:16]) == (
        b"RF64",
        0xFFFFFFFF,
        b"WAVE",
        b"ds64",
    )
    info = soundfile.info(str(path))
    assert (info.frames, info.channels, info.samplerate) == (n_samples, 2, 48_000)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "i4"])
def test_pandas_and_pyarrow_read_parquet(tmp_path: Path, dtype: str) -> None:
    """Each channel is a column, bit by bit; the rest is in the schema."""
    x = (128 + X / 10).astype(dtype)
    save_recording(tmp_path / "a.parquet", x, begun=7.5, **OPTIONS)
    frame = pd.read_parquet(tmp_path / "a.parquet")
    assert [*frame.columns] == NAMES
    np.testing.assert_array_equal(frame.to_numpy().T, x)
    assert {kind.str[1:] for kind in frame.dtypes} == {dtype}
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert json.loads(schema.metadata[b"rlxweb"]) == {
        "recording": 1,
        "fs": 256.0,
        "units": dict.fromkeys(NAMES, "uV"),
        "begun": 7.5,
        "date": None,
        "annotations": [[*annotation] for annotation in ANNOTATIONS],
    }
    assert schema.field("Cz").metadata[b"unit"] == b"uV"
    with open_recording(tmp_path / "a.parquet") as recording:
        (group,) = recording.groups
        np.testing.assert_array_equal(group.read(), x)
        assert (group.fs, group.names) == (256.0, tuple(NAMES))
        assert {channel.unit for channel in group.channels} == {"uV"}
        assert recording.begun == 7.5
        assert recording.annotations == ANNOTATIONS


def test_parquet_is_written_in_row_groups(tmp_path: Path) -> None:
    """Parquet is written in row groups, so that a reader holds one at a time."""
    x = np.arange(300_000.0)
    save_recording(tmp_path / "a.parquet", x, fs=1000)
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert file.num_row_groups == 5
    np.testing.assert_array_equal(file.read().column(0).to_numpy(), x)
