"""HDF5, NWB and MATLAB 7.3: arrays written by h5py and pynwb are read by slices."""

from __future__ import annotations

import sys
import warnings
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pynwb
import pytest
from pynwb.ecephys import ElectricalSeries

import rlxweb as rlx
from rlxweb.core.errors import (
    RecordingError,
    RecordingWarning,
    UnknownName,
    Unsupported,
)
from rlxweb.io import open_recording
from tests.cli_runners import run_python
from tests.edf_bdf_recordings import check_unreadable, read_with_warning, try_reading

N, FS = 3000, 250.0
X = np.random.default_rng(5).normal(size=(3, N)).astype(np.float32)


def write_hdf5(path: Path, data: Any = X, name: str = "eeg", **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        array = file.create_dataset(name, data=data, **options)
        array.attrs["fs"] = FS
        array.attrs["channel_names"] = ["a", "b", "c"]
        array.attrs["unit"] = "uV"
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (1, 700), "compression": "gzip"},
        {"chunks": (3, 64), "shuffle": True, "compression": "lzf"},
    ],
)
def test_an_array_is_read_by_slices(tmp_path: Path, options: dict[str, Any]) -> None:
    """An array is read by slices, chunked or not, with the metadata of its
    attributes.
    """
    path = write_hdf5(tmp_path / "a.h5", **options)
    with open_recording(path, channels=["c", "a"]) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs, group.dtype) == ("HDF5", FS, np.float32)
        assert [channel.unit for channel in group.channels] == ["uV", "uV"]
        for block in group.blocks(333, 100):
            expected = X[[2, 0], block.start : block.stop]
            np.testing.assert_array_equal(block.data, expected)
    with pytest.raises(RecordingError, match="closed"):
        group.read()


def test_an_open_recording_does_not_crash_at_exit(tmp_path: Path) -> None:
    """HDF5 would close the file after Python's exit, and crash."""
    path = write_hdf5(tmp_path / "a.h5")
    code = f"import rlxweb as rlx; kept = rlx.read({str(path)!r}); print(kept.groups)"
    result = run_python("-c", code)
    assert (result.code, result.err) == (0, "")


def test_sequential_reads_unpack_each_chunk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of bytes read is close to the file's own size."""
    path = write_hdf5(tmp_path / "a.h5", chunks=(3, 1000), compression="gzip")
    with h5py.File(path) as file:
        packed = file["eeg"].id.get_storage_size()
    from rlxweb.io.byte_source import ByteSource

    counted, peek = [0], ByteSource.peek

    def counting_peek(self: ByteSource, offset: int, nbytes: int) -> bytes:
        counted[0] += nbytes
        return peek(self, offset, nbytes)

    with open_recording(path) as recording:
        monkeypatch.setattr(ByteSource, "peek", counting_peek)
        for _ in recording.groups[0].blocks(130, 30):
            pass
    assert packed * 0.9 < counted[0] < packed * 1.5


def test_samples_first_layout_and_rate_arrays(tmp_path: Path) -> None:
    """The rate is found in an array of times, and in a number with a rate's name."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["run/eeg"] = X.T
        file["run/time"] = np.arange(N) / 128
    with open_recording(path, layout="samples-first") as recording:
        (group,) = recording.groups
        assert (group.fs, len(group.channels)) == (128.0, 3)
        np.testing.assert_array_equal(group.read(), X)
    with h5py.File(path, "a") as file:
        del file["run/time"]
        file["run/sfreq"] = 64
    with open_recording(path, layout="samples-first") as recording:
        assert recording.groups[0].fs == 64.0
    with h5py.File(path, "a") as file:
        del file["run/sfreq"]
    check_unreadable(path, "rate is unknown; no attribute fs", layout="samples-first")


def test_integers_stay_integers(tmp_path: Path) -> None:
    """Integers stay integers, with scale_factor and add_offset where they have them."""
    path = tmp_path / "a.h5"
    counts = np.arange(600, dtype=np.int16).reshape(2, 300)
    with h5py.File(path, "w") as file:
        file["x"] = counts
        file["x"].attrs.update({"fs": FS, "scale_factor": 0.5, "add_offset": 1.0})
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert group.digital == np.int16
        np.testing.assert_array_equal(group.read(), counts * 0.5 + 1)


def test_several_arrays_need_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a/one"], file["two"], file["words"] = X, X[0], "text"
    check_unreadable(path, r"2 arrays.*'a/one', 'two'.*array=NAME")
    with open_recording(path, array="/a/one", fs=FS) as recording:
        assert len(recording.groups[0].channels) == 3
    with pytest.raises(
        UnknownName, match=r"no array is named 'a/on'.*did you mean 'a/one'"
    ):
        open_recording(path, array="a/on", fs=FS)
    check_unreadable(path, "'words' has dtype", array="words", fs=FS)
    with h5py.File(path, "w") as file:
        file["cube"] = np.zeros((2, 2, 2))
    check_unreadable(path, "no array suitable as a recording")
    check_unreadable(path, "has 3 axes", array="cube", fs=FS)


def test_external_and_unwritten_data(tmp_path: Path) -> None:
    """Other files are not read; data that were never written are warned of."""
    path = tmp_path / "a.h5"
    np.arange(100.0).tofile(tmp_path / "raw.bin")
    with h5py.File(path, "w") as file:
        external_files = [(str(tmp_path / "raw.bin"), 0, 800)]
        file.create_dataset("x", (100,), "f8", external=external_files)
    check_unreadable(path, "is stored in other files", fs=FS)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2, 900), "f4", chunks=(2, 100))[:, :100] = 1
    read_with_warning(path, "part of array 'x' was never written", fs=FS)


def write_matlab(path: Path, **arrays: Any) -> Path:
    """Write a file as MATLAB saves with -v7.3: 512 bytes before HDF5, axes
    transposed.
    """
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in arrays.items():
            array = file.create_dataset(name, data=np.atleast_2d(value).T)
            array.attrs["MATLAB_class"] = np.bytes_("double")
    raw = bytearray(path.read_bytes())
    raw[:38] = b"MATLAB 7.3 MAT-file, Platform: GLNXA64"
    path.write_bytes(raw)
    return path


def test_matlab_axes_are_transposed(tmp_path: Path) -> None:
    """MATLAB's (channels, samples) stays (channels, samples); a vector is a channel."""
    path = write_matlab(tmp_path / "a.mat", eeg=X.astype(float), Fs=FS)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs) == ("MATLAB", FS)
        np.testing.assert_array_equal(group.read(), X)
    path = write_matlab(tmp_path / "b.mat", eeg=X.T.astype(float), Fs=FS)
    with open_recording(path, layout="samples-first") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    for vector in (X[:1], X[:1].T):
        path = write_matlab(tmp_path / "c.mat", eeg=vector.astype(float))
        with open_recording(path, fs=FS) as recording:
            np.testing.assert_array_equal(recording.groups[0].read(), X[:1])


# --- NWB ------------------------------------------------------------------------------


def write_nwb(path: Path, *series: Any, labels: bool = True) -> Path:
    """Write an NWB file with electrodes E0 to E3; `series` are functions that make a
    series of the file.
    """
    session_start = datetime(2024, 1, 1, 22, 15, 30, tzinfo=UTC)
    file = pynwb.NWBFile("a test", "id", session_start)
    device = file.create_device("amplifier")
    group = file.create_electrode_group("g", "d", "cortex", device)
    if labels:
        file.add_electrode_column("label", "name")
    for i in range(4):
        label_column = {"label": f"E{i}"} if labels else {}
        file.add_electrode(group=group, location="x", **label_column)
    for make in series:
        file.add_acquisition(make(file))
    file.add_trial(start_time=4.0, stop_time=4.5)
    with pynwb.NWBHDF5IO(path, "w") as out:
        out.write(file)
    return path


def electrical_series_maker(data: Any, **options: Any) -> Any:
    def make(file: Any) -> Any:
        region = file.create_electrode_table_region([3, 0, 1], "some")
        arguments = {"rate": FS, "starting_time": 2.0, **options}
        return ElectricalSeries(name="ES", data=data, electrodes=region, **arguments)

    return make


def test_annotations_at_complex_times_are_refused(tmp_path: Path) -> None:
    path = write_nwb(tmp_path / "a.nwb", electrical_series_maker(X.T[:, :3]))
    with h5py.File(path, "r+") as file:
        del file["intervals/trials/start_time"]
        file["intervals/trials/start_time"] = np.array([4.0 + 1j])
    with open_recording(path) as recording:
        with pytest.raises(
            RecordingError, match=r"start_time.* contains complex numbers"
        ):
            _ = recording.annotations


@pytest.mark.parametrize("labels", [True, False])
def test_an_nwb_series_is_in_microvolts(tmp_path: Path, labels: bool) -> None:
    """Counts are scaled by conversion, conversion of each channel, and offset; times
    and names are read.
    """
    counts = np.round(X.T * 100).astype(np.int16)
    channel_factors = [1.0, 2.0, 4.0]
    scale = {"conversion": 1e-8, "offset": 1e-6, "channel_conversion": channel_factors}
    path = write_nwb(
        tmp_path / "a.nwb", electrical_series_maker(counts, **scale), labels=labels
    )
    with open_recording(path) as recording:
        (group,) = recording.groups
        names = ("E3", "E0", "E1")
        numbers = ("electrode 3", "electrode 0", "electrode 1")
        assert group.names == (names if labels else numbers)
        assert (recording.format, group.fs, group.digital) == ("NWB", FS, np.int16)
        assert {channel.unit for channel in group.channels} == {"uV"}
        expected = counts.T * np.array(channel_factors)[:, None] * 1e-2 + 1
        np.testing.assert_allclose(group.read(), expected, rtol=0, atol=1e-9)
        assert (recording.begun, recording.date) == (80_132.0, date(2024, 1, 1))
        assert [tuple(annotation) for annotation in recording.annotations] == [
            (2.0, 0.5, "trials")
        ]
    with open_recording(path, start="trials", stop="@22:15:36") as recording:
        assert recording.groups[0].n_samples == 2 * FS


def test_floats_and_timestamps(tmp_path: Path) -> None:
    """The rate follows from even timestamps; a unit other than volts is kept."""

    def make_temperatures(file: Any) -> Any:
        times = 1.5 + np.arange(N) / 50
        return pynwb.TimeSeries(name="t", data=X[0], timestamps=times, unit="degC")

    path = write_nwb(
        tmp_path / "a.nwb", electrical_series_maker(X.T * 1e-6), make_temperatures
    )
    check_unreadable(path, "2 arrays.*'acquisition/ES', 'acquisition/t'.*array=NAME")
    with open_recording(path, array="acquisition/t/data") as recording:
        (group,) = recording.groups
        assert (group.fs, group.channels[0].unit) == (50.0, "degC")
        assert (group.dtype, recording.begun) == (np.float32, 80_131.5)
        np.testing.assert_array_equal(group.read()[0], X[0])
    with open_recording(path, array="acquisition/ES") as recording:
        x = recording.groups[0].read()
        np.testing.assert_allclose(x, X, rtol=1e-6)


def test_uneven_timestamps_give_no_rate(tmp_path: Path) -> None:
    def make_uneven_series(file: Any) -> Any:
        times = np.arange(N) / 50 + (np.arange(N) > 1000)
        return pynwb.TimeSeries(name="t", data=X[0], timestamps=times, unit="V")

    path = write_nwb(tmp_path / "a.nwb", make_uneven_series)
    uneven = "the timestamps array is not evenly spaced.*1 gap of up to 1.02 s; 50 Hz"
    check_unreadable(path, f"rate is unknown; {uneven}")
    with (
        pytest.warns(RecordingWarning, match=uneven),
        open_recording(path, fs=50) as recording,
    ):
        assert recording.groups[0].fs == 50.0
    with pytest.raises(RecordingError, match=f"got fs=25, but .*{uneven}"):
        open_recording(path, fs=25)


def test_a_recording_has_equal_peaks_in_nwb(
    tmp_path: Path, eeg_recordings: Path
) -> None:
    """A recording has equal peaks as EDF and as NWB, which is in volts."""
    with open_recording(eeg_recordings / "test.edf", channels=["A*"]) as recording:
        (group,) = recording.groups
        x, fs = group.read()[:3], group.fs
    path = write_nwb(tmp_path / "a.nwb", electrical_series_maker(x.T * 1e-6, rate=fs))
    with open_recording(path) as recording:
        (group,) = recording.groups
        peaks = rlx.welch_peaks(group.read(), group.fs, k=3)
    expected = rlx.welch_peaks(x, fs, k=3)
    np.testing.assert_array_equal(peaks.bins, expected.bins)
    np.testing.assert_allclose(peaks.power, expected.power, rtol=1e-9)


# --- damage ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "packed", "NWB", "MATLAB"])
def test_damage_gives_samples_or_a_recording_error(tmp_path: Path, kind: str) -> None:
    """A truncated or changed file gives samples or a RecordingError."""
    if kind == "NWB":
        path = write_nwb(tmp_path / "a.nwb", electrical_series_maker(X.T * 1e-6))
    elif kind == "MATLAB":
        path = write_matlab(tmp_path / "a.mat", eeg=X.astype(float), Fs=FS)
    else:
        options = (
            {"chunks": (3, 100), "compression": "gzip"} if kind == "packed" else {}
        )
        path = write_hdf5(tmp_path / "a.h5", **options)
    whole, rng = path.read_bytes(), np.random.default_rng(4)
    outcomes = set()
    for trial in range(40):
        raw = bytearray(whole)
        if trial < 10:
            raw = raw[: int(rng.integers(40, len(raw)))]
        for offset in rng.integers(40, min(len(raw), 6000), 4):
            raw[offset] = rng.integers(256)
        path.write_bytes(bytes(raw))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes.add(try_reading(path))
    assert "refused" in outcomes


def test_a_url_and_a_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    path = write_hdf5(tmp_path / "a.h5", chunks=(1, 700))
    with fsspec.open("memory://a.h5", "wb") as file:
        file.write(path.read_bytes())
    with open_recording("memory://a.h5") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(Unsupported, match=r"h5py.*rlxweb\[hdf5\]"):
        open_recording(path)
