"""EDF files are padded to whole records, by little, and all readers read the same
samples.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import edfio
import mne
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.io import open_recording
from tests.edf_bdf_recordings import save_recording
from tests.unit.io.test_recording_writer import read_float64


@settings(max_examples=40, deadline=None)
@given(
    fs=st.one_of(
        st.floats(0.5, 5000),
        st.integers(1, 5000),
        st.integers(50, 500_000).map(lambda hundredths: hundredths / 100),
    ),
    seconds=st.floats(0.01, 100),
)
def test_padding_is_small_at_every_rate(fs: float, seconds: float) -> None:
    """rlxweb, edfio and MNE read back the same samples."""
    n_samples = min(20_000, max(1, round(fs * seconds)))
    x = np.random.default_rng(n_samples).normal(size=(1, n_samples))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.edf"
        summary = save_recording(path, x, fs=fs, begun=0)
        theirs = edfio.read_edf(path)
        (signal,) = theirs.signals
        by_edfio = signal.data
        by_mne = mne.io.read_raw_edf(path, verbose="error").get_data()[0]
        with open_recording(path) as recording:
            actual = read_float64(recording)[0]
    padding = len(actual) - n_samples
    record = len(actual) // theirs.num_data_records
    assert 0 <= padding < record
    assert padding <= 0.01 * n_samples or padding < max(fs, 1)
    assert summary.groups[0].fs == pytest.approx(fs, rel=1e-6)
    np.testing.assert_allclose(actual[:n_samples], x[0], atol=1e-3)
    np.testing.assert_allclose(by_edfio, actual, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_mne, actual, rtol=1e-9, atol=1e-12)
    additional = (f"samples={n_samples}",) if padding else ()
    assert theirs.recording.additional == additional
