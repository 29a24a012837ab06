"""HDF5, NWB and MATLAB 7.3: arrays that h5py and pynwb wrote, read by slices."""

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
from rlxweb.errors import RecordingError, RecordingWarning, UnknownName, Unsupported
from rlxweb.io import open_recording
from tests.command_line import python
from tests.recordings import attempt, check_unreadable, read_with_warning

N, FS = 3000, 250.0
X = np.random.default_rng(5).normal(size=(3, N)).astype(np.float32)


def plain(path: Path, data: Any = X, name: str = "eeg", **how: Any) -> Path:
    with h5py.File(path, "w") as file:
        array = file.create_dataset(name, data=data, **how)
        array.attrs["fs"] = FS
        array.attrs["channel_names"] = ["a", "b", "c"]
        array.attrs["unit"] = "uV"
    return path


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"chunks": (1, 700), "compression": "gzip"},
        {"chunks": (3, 64), "shuffle": True, "compression": "lzf"},
    ],
)
def test_an_array_is_read_by_slices(tmp_path: Path, how: dict[str, Any]) -> None:
    """An array is read by slices, in chunks or not, with what attributes say."""
    path = plain(tmp_path / "a.h5", **how)
    with open_recording(path, channels=["c", "a"]) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs, group.dtype) == ("HDF5", FS, np.float32)
        assert [channel.unit for channel in group.channels] == ["uV", "uV"]
        for block in group.blocks(333, 100):
            wanted = X[[2, 0], block.start : block.stop]
            np.testing.assert_array_equal(block.data, wanted)
    with pytest.raises(RecordingError, match="closed"):
        group.read()


def test_a_recording_that_stays_open_ends_no_process(tmp_path: Path) -> None:
    """HDF5 would close it after Python is gone, and crash."""
    path = plain(tmp_path / "a.h5")
    code = f"import rlxweb as rlx; kept = rlx.read({str(path)!r}); print(kept.groups)"
    said = python("-c", code)
    assert (said.code, said.err) == (0, "")


def test_no_chunk_is_unpacked_twice_by_a_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are read of the file stay near its own size."""
    path = plain(tmp_path / "a.h5", chunks=(3, 1000), compression="gzip")
    with h5py.File(path) as file:
        packed = file["eeg"].id.get_storage_size()
    from rlxweb.io.source import ByteSource

    counted, peek = [0], ByteSource.peek

    def counting(self: ByteSource, offset: int, nbytes: int) -> bytes:
        counted[0] += nbytes
        return peek(self, offset, nbytes)

    with open_recording(path) as recording:
        monkeypatch.setattr(ByteSource, "peek", counting)
        for _ in recording.groups[0].blocks(130, 30):
            pass
    assert packed * 0.9 < counted[0] < packed * 1.5


def test_the_other_layout_and_a_clock_beside(tmp_path: Path) -> None:
    """The rate by an array of times, and by a number that goes by a rate's name."""
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


def test_several_arrays_are_to_be_named(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a/one"], file["two"], file["words"] = X, X[0], "text"
    check_unreadable(path, r"2 arrays.*'a/one', 'two'.*array=NAME")
    with open_recording(path, array="/a/one", fs=FS) as recording:
        assert len(recording.groups[0].channels) == 3
    with pytest.raises(UnknownName, match=r"no array 'a/on'.*did you mean 'a/one'"):
        open_recording(path, array="a/on", fs=FS)
    check_unreadable(path, "'words' holds", array="words", fs=FS)
    with h5py.File(path, "w") as file:
        file["cube"] = np.zeros((2, 2, 2))
    check_unreadable(path, "no array in it could be")
    check_unreadable(path, "has 3 axes", array="cube", fs=FS)


def test_what_lies_elsewhere_or_nowhere(tmp_path: Path) -> None:
    """Other files are not read; what was never written is told."""
    path = tmp_path / "a.h5"
    np.arange(100.0).tofile(tmp_path / "raw.bin")
    with h5py.File(path, "w") as file:
        outside = [(str(tmp_path / "raw.bin"), 0, 800)]
        file.create_dataset("x", (100,), "f8", external=outside)
    check_unreadable(path, "lie in other files", fs=FS)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2, 900), "f4", chunks=(2, 100))[:, :100] = 1
    read_with_warning(path, "a part of its array 'x' was never written", fs=FS)


def matlab(path: Path, **arrays: Any) -> Path:
    """A file as MATLAB saves with -v7.3: 512 bytes before HDF5, axes turned about."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in arrays.items():
            array = file.create_dataset(name, data=np.atleast_2d(value).T)
            array.attrs["MATLAB_class"] = np.bytes_("double")
    raw = bytearray(path.read_bytes())
    raw[:38] = b"MATLAB 7.3 MAT-file, Platform: GLNXA64"
    path.write_bytes(raw)
    return path


def test_matlab_has_its_axes_the_other_way(tmp_path: Path) -> None:
    """(channels, samples) there is (channels, samples) here; a vector is a channel."""
    path = matlab(tmp_path / "a.mat", eeg=X.astype(float), Fs=FS)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs) == ("MATLAB", FS)
        np.testing.assert_array_equal(group.read(), X)
    path = matlab(tmp_path / "b.mat", eeg=X.T.astype(float), Fs=FS)
    with open_recording(path, layout="samples-first") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    for vector in (X[:1], X[:1].T):
        path = matlab(tmp_path / "c.mat", eeg=vector.astype(float))
        with open_recording(path, fs=FS) as recording:
            np.testing.assert_array_equal(recording.groups[0].read(), X[:1])


# --- NWB ------------------------------------------------------------------------------


def nwb(path: Path, *series: Any, labels: bool = True) -> Path:
    """Electrodes E0 to E3; `series` are made of the file and some of its electrodes."""
    began = datetime(2024, 1, 1, 22, 15, 30, tzinfo=UTC)
    file = pynwb.NWBFile("a test", "id", began)
    device = file.create_device("amplifier")
    group = file.create_electrode_group("g", "d", "cortex", device)
    if labels:
        file.add_electrode_column("label", "name")
    for at in range(4):
        named = {"label": f"E{at}"} if labels else {}
        file.add_electrode(group=group, location="x", **named)
    for make in series:
        file.add_acquisition(make(file))
    file.add_trial(start_time=4.0, stop_time=4.5)
    with pynwb.NWBHDF5IO(path, "w") as out:
        out.write(file)
    return path


def electrical(data: Any, **more: Any) -> Any:
    def make(file: Any) -> Any:
        region = file.create_electrode_table_region([3, 0, 1], "some")
        how = {"rate": FS, "starting_time": 2.0, **more}
        return ElectricalSeries(name="ES", data=data, electrodes=region, **how)

    return make


def test_annotations_at_complex_times_are_refused(tmp_path: Path) -> None:
    path = nwb(tmp_path / "a.nwb", electrical(X.T[:, :3]))
    with h5py.File(path, "r+") as file:
        del file["intervals/trials/start_time"]
        file["intervals/trials/start_time"] = np.array([4.0 + 1j])
    with open_recording(path) as recording:
        with pytest.raises(RecordingError, match=r"start_time.* holds complex numbers"):
            _ = recording.annotations


@pytest.mark.parametrize("labels", [True, False])
def test_a_series_of_nwb_is_in_microvolts(tmp_path: Path, labels: bool) -> None:
    """Counts by conversion, conversion of each channel, and offset; times and names."""
    counts = np.round(X.T * 100).astype(np.int16)
    own = [1.0, 2.0, 4.0]
    scale = {"conversion": 1e-8, "offset": 1e-6, "channel_conversion": own}
    path = nwb(tmp_path / "a.nwb", electrical(counts, **scale), labels=labels)
    with open_recording(path) as recording:
        (group,) = recording.groups
        names = ("E3", "E0", "E1")
        numbers = ("electrode 3", "electrode 0", "electrode 1")
        assert group.names == (names if labels else numbers)
        assert (recording.format, group.fs, group.digital) == ("NWB", FS, np.int16)
        assert {channel.unit for channel in group.channels} == {"uV"}
        wanted = counts.T * np.array(own)[:, None] * 1e-2 + 1
        np.testing.assert_allclose(group.read(), wanted, rtol=0, atol=1e-9)
        assert (recording.begun, recording.date) == (80_132.0, date(2024, 1, 1))
        assert [tuple(one) for one in recording.annotations] == [(2.0, 0.5, "trials")]
    with open_recording(path, start="trials", stop="@22:15:36") as recording:
        assert recording.groups[0].n_samples == 2 * FS


def test_floats_and_timestamps(tmp_path: Path) -> None:
    """The rate by even timestamps, the unit as it is where it is no voltage."""

    def warm(file: Any) -> Any:
        times = 1.5 + np.arange(N) / 50
        return pynwb.TimeSeries(name="t", data=X[0], timestamps=times, unit="degC")

    path = nwb(tmp_path / "a.nwb", electrical(X.T * 1e-6), warm)
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
    def bent(file: Any) -> Any:
        times = np.arange(N) / 50 + (np.arange(N) > 1000)
        return pynwb.TimeSeries(name="t", data=X[0], timestamps=times, unit="V")

    path = nwb(tmp_path / "a.nwb", bent)
    uneven = (
        "its array of timestamps is not evenly spaced.*1 gap of up to 1.02 s; 50 Hz"
    )
    check_unreadable(path, f"rate is unknown; {uneven}")
    with (
        pytest.warns(RecordingWarning, match=uneven),
        open_recording(path, fs=50) as it,
    ):
        assert it.groups[0].fs == 50.0
    with pytest.raises(RecordingError, match=f"fs=25 was given, .*{uneven}"):
        open_recording(path, fs=25)


def test_a_recording_has_equal_peaks_in_nwb(
    tmp_path: Path, eeg_recordings: Path
) -> None:
    """A recording has equal peaks through EDF and through NWB, in volts there."""
    with open_recording(eeg_recordings / "test.edf", channels=["A*"]) as recording:
        (group,) = recording.groups
        x, fs = group.read()[:3], group.fs
    path = nwb(tmp_path / "a.nwb", electrical(x.T * 1e-6, rate=fs))
    with open_recording(path) as recording:
        (group,) = recording.groups
        found = rlx.welch_peaks(group.read(), group.fs, k=3)
    wanted = rlx.welch_peaks(x, fs, k=3)
    np.testing.assert_array_equal(found.bins, wanted.bins)
    np.testing.assert_allclose(found.power, wanted.power, rtol=1e-9)


# --- damage ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "packed", "NWB", "MATLAB"])
def test_damage_gives_samples_or_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    """A file that is cut or has bytes changed gives samples or an error of ours."""
    if kind == "NWB":
        path = nwb(tmp_path / "a.nwb", electrical(X.T * 1e-6))
    elif kind == "MATLAB":
        path = matlab(tmp_path / "a.mat", eeg=X.astype(float), Fs=FS)
    else:
        how = {"chunks": (3, 100), "compression": "gzip"} if kind == "packed" else {}
        path = plain(tmp_path / "a.h5", **how)
    whole, chance = path.read_bytes(), np.random.default_rng(4)
    outcomes = set()
    for at in range(40):
        raw = bytearray(whole)
        if at < 10:
            raw = raw[: int(chance.integers(40, len(raw)))]
        for place in chance.integers(40, min(len(raw), 6000), 4):
            raw[place] = chance.integers(256)
        path.write_bytes(bytes(raw))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes.add(attempt(path))
    assert "refused" in outcomes


def test_a_url_and_a_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    path = plain(tmp_path / "a.h5", chunks=(1, 700))
    with fsspec.open("memory://a.h5", "wb") as file:
        file.write(path.read_bytes())
    with open_recording("memory://a.h5") as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(Unsupported, match=r"h5py.*rlxweb\[hdf5\]"):
        open_recording(path)
