"""EEGLAB sets whose samples are in a separate file, and sets that are stored as
HDF5.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import scipy.io

from rlxweb.io import open_recording
from tests.edf_bdf_recordings import check_unreadable
from tests.unit.io.test_mne_reader import FS, NAMES, N, X, write_eeglab


def test_a_set_may_have_its_samples_in_another_file(tmp_path: Path) -> None:
    """Samples of a .set may be in a .fdt file in its folder, which is read in
    blocks.
    """
    path = write_eeglab(tmp_path)
    contents = scipy.io.loadmat(path)
    X.astype("<f4").T.tofile(tmp_path / "night.fdt")
    variables = {
        name: value for name, value in contents.items() if not name.startswith("_")
    }
    scipy.io.savemat(path, variables | {"data": "night.fdt"})
    with open_recording(path) as recording:
        (group,) = recording.groups
        expected = X.astype("f4")[:, 99:2000]
        np.testing.assert_allclose(group.read(99, 2000), expected, rtol=1e-13)
    check_unreadable(tmp_path / "night.fdt", r"open '.*night\.set' instead")
    (tmp_path / "night.fdt").unlink()
    check_unreadable(path, "MNE cannot read the file as EEGLAB")


def test_a_matlab_7_3_set_is_read(tmp_path: Path) -> None:
    """A .set file of MATLAB 7.3 is HDF5, and read by MNE all the same."""
    path = tmp_path / "new.set"
    numbers = {"nbchan": 3, "srate": FS, "pnts": N, "trials": 1, "xmin": 0, "xmax": 1}
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in {**numbers, "data": X}.items():
            array = file.create_dataset(name, data=np.atleast_2d(value).T * 1.0)
            array.attrs["MATLAB_class"] = np.bytes_("double")
        labels = []
        for i, name in enumerate(NAMES):
            codes = np.array([[ord(letter)] for letter in name], "u2")
            text = file.create_dataset(f"#refs#/{i}", data=codes)
            text.attrs.update({"MATLAB_class": np.bytes_("char")})
            text.attrs["MATLAB_int_decode"] = np.int32(2)
            labels.append([text.ref])
        file["chanlocs/labels"] = np.array(labels, h5py.ref_dtype)
        file["chanlocs"].attrs["MATLAB_class"] = np.bytes_("struct")
    raw = bytearray(path.read_bytes())
    raw[:19], raw[124:128] = b"MATLAB 7.3 MAT-file", b"\0\2IM"
    path.write_bytes(raw)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs, group.names) == ("EEGLAB", FS, NAMES)
        np.testing.assert_allclose(group.read(), X, rtol=0, atol=1e-5)
