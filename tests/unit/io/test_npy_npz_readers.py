"""NPY and NPZ files are read as NumPy wrote them, and invalid ones are refused."""

from __future__ import annotations

import io
import zipfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import RecordingWarning, UnknownName, UsageError
from rlxweb.io import npy_reader, npz_reader, open_recording
from tests.edf_bdf_recordings import check_unreadable, read_with_warning

DTYPES = "i1 u1 <i2 >i2 <u2 >i4 u4 i8 u8 f4 >f4 f8 >f8".split()


@given(
    dtype=st.sampled_from(DTYPES),
    channels=st.integers(1, 4),
    samples=st.integers(1, 50),
    fortran=st.booleans(),
    transposed=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_any_dtype_order_and_layout_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    dtype: str,
    channels: int,
    samples: int,
    fortran: bool,
    transposed: bool,
    seed: int,
    data: st.DataObject,
) -> None:
    """Values and type survive for every dtype, both orders, both layouts."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 100, (channels, samples)).astype(dtype)
    stored = x.T if transposed else x
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    np.save(
        path, np.asfortranarray(stored) if fortran else np.ascontiguousarray(stored)
    )
    start = data.draw(st.integers(0, samples))
    stop = data.draw(st.integers(start, samples))
    layout = "samples-first" if transposed else "channels-first"
    with open_recording(path, fs=10, layout=layout) as recording:
        (group,) = recording.groups
        got = group.read(start, stop)
        assert got.dtype == group.dtype == np.dtype(dtype).newbyteorder("=")
        assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, x[:, start:stop])


def test_float16_is_widened_to_float32(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Half precision is storage: float32 holds it exactly."""
    x = rng.normal(size=(2, 30)).astype(np.float16)
    np.save(tmp_path / "a.npy", x)
    with open_recording(tmp_path / "a.npy", fs=1) as recording:
        got = recording.groups[0].read()
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, x)


def test_arrays_are_one_channel_or_channels_by_samples(
    tmp_path: Path,
) -> None:
    """The documented rule holds even when it looks wrong: nothing is guessed."""
    np.save(tmp_path / "one.npy", np.arange(9.0))
    np.save(tmp_path / "tall.npy", np.zeros((100, 2)))
    with open_recording(tmp_path / "one.npy", fs=1) as recording:
        assert recording.groups[0].names == ("ch1",)
        assert recording.groups[0].n_samples == 9
    with open_recording(tmp_path / "tall.npy", fs=1) as recording:
        assert len(recording.groups[0].channels) == 100


def test_the_second_version_of_the_format_is_read(tmp_path: Path) -> None:
    """A file with the longer header length field."""
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(5.0), version=(2, 0))
    with open_recording(tmp_path / "a.npy", fs=1) as recording:
        assert recording.groups[0].read().tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0]]


@pytest.mark.parametrize(
    "fs",
    [
        *(0, -1, float("nan"), float("inf"), "256", True, 2**2000, 10**5000, 1e300),
        *([1], np.timedelta64(5, "s"), Decimal("NaN"), np.array([256])),
    ],
    ids=range(13),
)
def test_an_invalid_rate_is_refused(tmp_path: Path, fs: object) -> None:
    """A rate is a finite number above zero."""
    np.save(tmp_path / "a.npy", np.zeros(4))
    with pytest.raises(UsageError, match="fs is"):
        open_recording(tmp_path / "a.npy", fs=fs)


@pytest.mark.parametrize("fs", [Fraction(1, 4), Decimal("0.25"), np.float16(0.25)])
def test_a_rate_is_any_real_number(tmp_path: Path, fs: Any) -> None:
    """A rate may be any real number, as for the signal functions."""
    np.save(tmp_path / "a.npy", np.zeros(4))
    with open_recording(tmp_path / "a.npy", fs=fs) as recording:
        assert recording.groups[0].fs == 0.25


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (np.zeros((2, 3, 4)), r"3 axes, shape \[2, 3, 4\]"),
        (np.array(3.0), "0 axes"),
        (np.zeros((0, 5)), "no signal channel"),
        (np.zeros((70_000, 1), "i1"), "70000 channels .* at most 65536.*samples-first"),
        (np.zeros((3, 0)), "no samples"),
        (np.zeros(0), "no samples"),
        (np.zeros(4, complex), "complex"),
        (np.zeros(4, bool), "bool"),
        (np.array(["a", "b"]), "<U1"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
        (np.zeros(3, [("a", "f4")]), "array has dtype|contains"),
    ],
)
def test_an_unsuitable_array_is_refused(
    tmp_path: Path, x: np.ndarray, match: str
) -> None:
    """Arrays of a wrong rank or dtype and empty arrays are refused with the reason."""
    np.save(tmp_path / "bad.npy", x)
    check_unreadable(tmp_path / "bad.npy", match, fs=10)


def test_an_object_array_is_never_unpickled(tmp_path: Path) -> None:
    """Objects are refused from the header alone."""
    np.save(tmp_path / "a.npy", np.array([print, 1], object), allow_pickle=True)
    check_unreadable(tmp_path / "a.npy", "Python objects", fs=1)


def test_a_missing_rate_names_the_option(tmp_path: Path) -> None:
    """NPY carries no rate; the hint says how to give it."""
    np.save(tmp_path / "a.npy", np.zeros(4))
    check_unreadable(tmp_path / "a.npy", r"rate is unknown.*pass fs=HZ")


def test_a_file_of_two_arrays_is_refused(tmp_path: Path) -> None:
    """Two arrays in a file are refused: the second would be lost in silence."""
    with (tmp_path / "a.npy").open("wb") as file:
        np.save(file, np.zeros(4))
        np.save(file, np.zeros(4))
    check_unreadable(tmp_path / "a.npy", "too long", fs=1)


@pytest.mark.parametrize("shape", ["(-1, 4)", "(4.0,)", "('a',)", "4", "(1,) * 3", "["])
def test_a_forged_header_is_refused(tmp_path: Path, shape: str) -> None:
    """A header that no NumPy wrote does not reach the reader."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    raw = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    (tmp_path / "a.npy").write_bytes(raw + b"\0" * 32)
    check_unreadable(tmp_path / "a.npy", "header", fs=1)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_array_is_read_with_its_rate_names_and_units(
    tmp_path: Path, save, rng: np.random.Generator
) -> None:
    """Other arrays of the archive give the rate, names and units of the channels."""
    x = rng.normal(size=(2, 100)).astype(np.float32)
    path = tmp_path / "a.npz"
    save(path, eeg=x, fs=250.0, channels=np.array(["Fz", "Fz"]), units=["uV", "mV"])
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert recording.format == "NPZ"
        assert (group.fs, group.names) == (250.0, ("Fz", "Fz (2)"))
        assert [channel.unit for channel in group.channels] == ["uV", "mV"]
        np.testing.assert_array_equal(group.read(20, 60), x[:, 20:60])


def test_attributes_may_be_bytes_scalars_and_per_array(tmp_path: Path) -> None:
    """One unit serves all channels; `a_fs` belongs to arrays that begin with `a_`."""
    path = tmp_path / "a.npz"
    attributes = {
        "fs": 100,
        "a_fs": [50],
        "channels": [b"F\xc3\xa9", b"b"],
        "units": "uV",
    }
    np.savez(path, a_x=np.zeros((2, 9)), x=np.zeros((2, 9)), **attributes)
    for name, fs in (("a_x", 50), ("x", 100)):
        with open_recording(path, array=name) as recording:
            (group,) = recording.groups
            assert (group.fs, group.names) == (fs, ("Fé", "b"))
            assert {channel.unit for channel in group.channels} == {"uV"}


@pytest.mark.parametrize(
    ("attribute", "match"),
    [
        ({"fs": -1.0}, "'fs' is not a valid rate"),
        ({"fs": np.array(["256"])}, "'fs' is not a valid rate"),
        ({"fs": np.array([1.0, 2.0])}, "'fs' is not a valid rate"),
        ({"channels": np.arange(1)}, "'channels' does not contain valid text"),
        ({"channels": np.array([["a"]])}, "'channels' does not contain valid text"),
        ({"units": np.array([None])}, "'units' contains Python objects"),
        (
            {"units": np.array(["u" * 300_000])},
            "'units' has 1200128 bytes, more than the limit of 1048576",
        ),
    ],
)
def test_meaningless_attributes_are_reported_and_ignored(
    tmp_path: Path, attribute: dict, match: str
) -> None:
    """Nothing that a file says about itself is dropped in silence."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((1, 9)), **attribute)
    (got,) = read_with_warning(path, match, fs=1)
    assert got.shape == (1, 9)
    # Where it is the rate that is missed, that is told and no general rule.
    reason = match if "fs" in attribute else "the file has no array 'fs'"
    check_unreadable(path, rf"rate is unknown; .*{reason}.*pass fs=HZ")


def test_a_stored_member_is_read_in_place(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """An uncompressed member is read without a copy, wherever it lies in the
    archive.
    """
    path = tmp_path / "a.npz"
    x = rng.normal(size=(3, 50))
    with path.open("wb") as file:
        file.write(b"PK\3\4 begins like an archive, which begins behind it")
    with zipfile.ZipFile(path, "a") as archive:
        for name, value in (("fs", np.array(8)), ("x", x), ("y", np.ones(3))):
            buffer = io.BytesIO()
            np.save(buffer, value)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    with open_recording(path, array="x") as recording:
        assert recording._source.file.name == str(path)
        assert recording.groups[0].fs == 8
        np.testing.assert_array_equal(recording.groups[0].read(), x)


def test_a_large_member_is_unpacked_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Beyond the size kept in memory the member spills to disk, with equal values."""
    monkeypatch.setattr(npz_reader, "_MAX_IN_MEMORY_NBYTES", 1000)
    x = rng.normal(size=(3, 5000))
    np.savez_compressed(tmp_path / "a.npz", x)
    with open_recording(tmp_path / "a.npz", fs=1) as recording:
        assert not isinstance(recording._source.file, io.BytesIO)
        np.testing.assert_array_equal(recording.groups[0].read(), x)


def test_samples_first_arrays_are_read_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """One channel of very many takes no memory for the others."""
    monkeypatch.setattr(npy_reader, "_CHUNK_NBYTES", 100)
    x = rng.normal(size=(40, 5))
    np.save(tmp_path / "a.npy", x)
    options = {"fs": 1, "layout": "samples-first", "channels": ["ch4", "ch2"]}
    with open_recording(tmp_path / "a.npy", **options) as recording:
        got = recording.groups[0].read(3, 38)
    np.testing.assert_array_equal(got, x[3:38, [3, 1]].T)


def test_one_of_several_arrays_must_be_named(tmp_path: Path) -> None:
    """Two candidates are listed; a name picks one; a wrong name lists near ones."""
    path = tmp_path / "a.npz"
    np.savez(path, rest=np.zeros(9), task=np.ones(9), note=np.array("x"))
    check_unreadable(path, "'rest', 'task'", fs=1)
    with open_recording(path, fs=1, array="task") as recording:
        assert recording.groups[0].read().sum() == 9
    with pytest.raises(UnknownName, match=r"'tsk'.*did you mean 'task'"):
        open_recording(path, fs=1, array="tsk")


def test_an_npz_without_a_recording_is_refused(tmp_path: Path) -> None:
    """An archive of scalars, or of nothing, holds no recording."""
    np.savez(tmp_path / "a.npz", a=np.array(1.0), b=np.array("x"))
    with zipfile.ZipFile(tmp_path / "b.npz", "w"):
        pass
    for name in ("a.npz", "b.npz"):
        check_unreadable(tmp_path / name, "no array suitable as a recording", fs=1)


def test_names_that_do_not_fit_the_array_are_refused(tmp_path: Path) -> None:
    """Three names for two channels is a mistake someone should see."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((2, 9)), channels=np.array(["a", "b", "c"]))
    check_unreadable(path, "got 3 entries for 2 channels", fs=1)


def test_a_contradicting_rate_in_an_npz_is_refused(tmp_path: Path) -> None:
    """`fs` in the archive is the file's own rate."""
    np.savez(tmp_path / "a.npz", x=np.zeros(9), fs=100)
    check_unreadable(tmp_path / "a.npz", "got fs=200", fs=200)


def test_a_damaged_member_is_refused(tmp_path: Path) -> None:
    """A flipped byte inside the array fails the archive's checksum."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros(1000))
    raw = bytearray(path.read_bytes())
    raw[4000] ^= 0xFF
    path.write_bytes(bytes(raw))
    check_unreadable(path, "damaged or truncated", fs=1)


def test_a_member_with_another_compression_is_refused(tmp_path: Path) -> None:
    """Only the compression methods that NumPy uses are read."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(9))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", buffer.getvalue())
    check_unreadable(tmp_path / "a.npz", "zip method 12", fs=1)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("y.npy", buffer.getvalue())
    check_unreadable(tmp_path / "a.npz", "2 arrays are possible recordings", fs=1)
    with open_recording(tmp_path / "a.npz", fs=1, array="y") as recording:
        assert recording.groups[0].n_samples == 9


def test_an_attribute_with_another_compression_is_ignored(tmp_path: Path) -> None:
    """An unreadable attribute is ignored with a warning; the samples are still read."""
    np.savez(tmp_path / "a.npz", x=np.zeros(9))
    with zipfile.ZipFile(tmp_path / "a.npz", "a", zipfile.ZIP_LZMA) as archive:
        archive.writestr("fs.npy", b"")
    with pytest.warns(RecordingWarning, match="'fs' is compressed with zip method 14"):
        recording = open_recording(tmp_path / "a.npz", fs=1)
    with recording:
        assert recording.groups[0].n_samples == 9


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    """The message tells what is wrong with the file instead of repeating zipfile's
    error.
    """
    np.savez(tmp_path / "a.npz", x=np.zeros(9))
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[6] |= 1
    raw[raw.find(b"PK\1\2") + 8] |= 1
    (tmp_path / "a.npz").write_bytes(raw)
    check_unreadable(tmp_path / "a.npz", "'x' is encrypted", fs=1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"channels": 5}, "channels is 5; must be a name or a list of names"),
        ({"channels": b"ch1"}, "channels is b'ch1'"),
        ({"channels": ["ch1", None]}, "None is not a channel name"),
        ({"array": 5}, "array is 5; must be the name of an array"),
        ({"array": b"x"}, "array is b'x'"),
        ({"layout": ["channels-first"]}, "layout is"),
    ],
)
def test_an_argument_of_another_type_is_refused(
    tmp_path: Path, options: dict[str, object], match: str
) -> None:
    """An argument of a wrong type is refused with its name and the accepted type."""
    np.savez(tmp_path / "a.npz", x=np.zeros(4), y=np.zeros(4))
    with pytest.raises(UsageError, match=match):
        open_recording(tmp_path / "a.npz", **{"fs": 1, "array": "x", **options})


def test_arguments_of_another_format_are_refused(tmp_path: Path) -> None:
    """`array` is for NPZ; `layout` for arrays, and only with its two values."""
    np.save(tmp_path / "a.npy", np.zeros(4))
    (tmp_path / "a.csv").write_text("1\n2\n")
    with pytest.raises(UsageError, match="only to NPZ, Zarr, HDF5 and MATLAB"):
        open_recording(tmp_path / "a.npy", fs=1, array="x")
    with pytest.raises(UsageError, match="only to NPY, NPZ, Zarr, HDF5 and MATLAB"):
        open_recording(tmp_path / "a.csv", fs=1, layout="samples-first")
    with pytest.raises(UsageError, match="layout is array"):
        open_recording(tmp_path / "a.npy", fs=1, layout=np.zeros(2))
    with pytest.raises(UsageError, match="layout is 'rows'"):
        open_recording(tmp_path / "a.npy", fs=1, layout="rows")


ANNOTATIONS = np.array(
    [(4.0, 0.5, "Lights off"), (1.0, 0.0, "眠")],
    np.dtype([("onset", "f8"), ("duration", "f8"), ("text", "U12")]),
)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_begin_and_annotations_are_read(tmp_path: Path, save: Any) -> None:
    """Begin and annotations are read as `rlxweb convert` writes them."""
    x = np.arange(2000.0).reshape(2, 1000)
    path = tmp_path / "a.npz"
    save(
        path, samples=x, fs=100.0, units=["uV"], begun=80_000.0, annotations=ANNOTATIONS
    )
    with open_recording(path, start="lights off", stop="@22:13:26") as recording:
        assert recording.begun == 80_000.0
        assert [tuple(annotation) for annotation in recording.annotations] == [
            (1.0, 0.0, "眠"),
            (4.0, 0.5, "Lights off"),
        ]
        np.testing.assert_array_equal(recording.groups[0].read(), x[:, 400:600])


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        ({"begun": -1}, "'begun' is not a valid time of day"),
        ({"begun": [1, 2]}, "'begun' is not a valid time of day"),
        (
            {"annotations": np.zeros(3)},
            "'annotations' does not contain valid annotations",
        ),
        (
            {"annotations": ANNOTATIONS[["onset", "text"]]},
            "does not contain valid annotations",
        ),
        (
            {"annotations": np.array([(np.nan, 0, "x")], ANNOTATIONS.dtype)},
            "does not contain valid annotations",
        ),
    ],
)
def test_invalid_npz_begin_and_annotations_are_ignored(
    tmp_path: Path, attributes: dict[str, Any], match: str
) -> None:
    np.savez(tmp_path / "a.npz", samples=np.zeros((2, 9)), fs=1, **attributes)
    read_with_warning(tmp_path / "a.npz", match)
