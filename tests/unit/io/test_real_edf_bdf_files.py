"""EDF and BDF files of real recorders are read as edfio reads them."""

from __future__ import annotations

from pathlib import Path

import edfio
import numpy as np

from rlxweb.io import open_recording


def test_an_edf_file_of_139_channels_is_read(eeg_recordings: Path) -> None:
    """Channels but status and annotations are read at 512 Hz, in microvolts."""
    path = eeg_recordings / "test.edf"
    signals = [s for s in edfio.read_edf(path).signals if s.label != "Status"]
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert recording.format == "EDF+C"
        assert (group.fs, len(group.channels), group.n_samples) == (512.0, 138, 3072)
        assert [name for name, _ in recording.left_out] == ["Status", "EDF Annotations"]
        assert {channel.unit for channel in group.channels} == {"uV"}
        expected = np.array([s.data for s in signals])
        np.testing.assert_array_equal(group.read(), expected)
        joined_blocks = np.concatenate([b.data for b in group.blocks(700)], axis=1)
        np.testing.assert_array_equal(joined_blocks, expected)


def test_a_bdf_file_of_73_channels_is_read(eeg_recordings: Path) -> None:
    """Channels but status are read at 2,048 Hz; the status channel by its name."""
    path = eeg_recordings / "test.bdf"
    signals = edfio.read_bdf(path).signals
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, len(group.channels), group.n_samples) == (2048.0, 72, 2048)
        assert [name for name, _ in recording.left_out] == ["Status"]
        expected = np.array([s.data for s in signals[:72]])
        np.testing.assert_array_equal(group.read(), expected)
    with open_recording(path, channels=["Status", "O*"]) as recording:
        (group,) = recording.groups
        assert group.names == ("Status", "O1", "Oz", "O2")
        np.testing.assert_array_equal(group.read()[0], signals[72].data)
