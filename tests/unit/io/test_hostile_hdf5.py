"""HDF5 files that refer to other files, and small ones that claim much memory."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from rlxweb.core.errors import RecordingError, RecordingWarning
from rlxweb.io import (
    hdf5_checked_access,
    hdf5_virtual_dataset_detection,
    open_recording,
)
from rlxweb.io.byte_source import open_source
from tests.edf_bdf_recordings import check_unreadable
from tests.memory_growth_limit import limit_memory_growth
from tests.unit.io.test_hdf5_reader import FS, X, write_hdf5

SECRET = b"root:x:0:0:\n" * 6
OTHER_FILE_MESSAGE = "other file"


def add_external_dataset(
    group: Any, name: str, target: Path, dtype: str, count: int
) -> None:
    """Add an array whose data are in another file."""
    nbytes = count * np.dtype(dtype).itemsize
    group.create_dataset(name, (count,), dtype, external=[(str(target), 0, nbytes)])


def add_virtual_dataset(
    group: Any, name: str, target: Path, dtype: str, count: int
) -> None:
    """Add an array that is a view of one in another HDF5 file."""
    with h5py.File(target.with_suffix(".h5"), "w") as other:
        other["x"] = np.zeros(count, dtype)
    layout = h5py.VirtualLayout((count,), dtype)
    layout[:] = h5py.VirtualSource(str(target.with_suffix(".h5")), "x", (count,))
    group.create_virtual_dataset(name, layout)


def add_external_link(
    group: Any, name: str, target: Path, dtype: str, count: int
) -> None:
    """Add a link to an array of another HDF5 file."""
    with h5py.File(target.with_suffix(".h5"), "w") as other:
        other["x"] = np.zeros(count, dtype)
    group[name] = h5py.ExternalLink(str(target.with_suffix(".h5")), "x")


REFERENCE_FUNCTIONS: tuple[Callable[..., None], ...] = (
    add_external_dataset,
    add_virtual_dataset,
    add_external_link,
)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.mark.parametrize("add_reference", REFERENCE_FUNCTIONS)
@pytest.mark.parametrize(
    ("name", "dtype", "count"),
    [("channels", "S4", 3), ("units", "S4", 3), ("fs", "f8", 1), ("time", "f8", 3000)],
)
def test_metadata_are_not_read_from_other_files(
    tmp_path: Path,
    secret_file: Path,
    add_reference: Callable[..., None],
    name: str,
    dtype: str,
    count: int,
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        add_reference(file, name, secret_file, dtype, count)
    check_unreadable(path, OTHER_FILE_MESSAGE)


@pytest.mark.parametrize("add_reference", REFERENCE_FUNCTIONS)
def test_samples_are_not_read_from_other_files(
    tmp_path: Path, secret_file: Path, add_reference: Callable[..., None]
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        add_reference(file, "eeg", secret_file, "f4", 9)
        file["fs"] = FS
    match = (
        "no array suitable as a recording"
        if add_reference is add_external_link
        else OTHER_FILE_MESSAGE
    )
    check_unreadable(path, match)


def write_nwb_with_reference(
    path: Path, add_reference: Callable[..., None], external_path: str, target: Path
) -> Path:
    """Write an NWB series whose array at this path is in another file."""
    with h5py.File(path, "w") as file:
        file.attrs["nwb_version"] = "2.7.0"
        series = file.create_group("acquisition/eeg")
        series["data"] = X.T
        table = file.create_group("electrodes")
        table["id"] = np.arange(3)
        region = series.create_dataset("electrodes", data=np.arange(3))
        region.attrs["table"] = table.ref
        notes = file.create_group("intervals/trials")
        notes.attrs["neurodata_type"] = "TimeIntervals"
        arrays = {
            "acquisition/eeg/timestamps": ("f8", len(X.T)),
            "acquisition/eeg/electrodes": ("i8", 3),
            "acquisition/eeg/channel_conversion": ("f8", 3),
            "electrodes/label": ("S4", 3),
            "intervals/trials/start_time": ("f8", 3),
            "intervals/trials/stop_time": ("f8", 3),
            "intervals/trials/label": ("S4", 3),
            "session_start_time": ("S30", 1),
        }
        if external_path == "acquisition/eeg/electrodes":
            del file[external_path]
        for name, (dtype, count) in arrays.items():
            group = file[name.rpartition("/")[0] or "/"]
            leaf = name.rpartition("/")[2]
            if name == external_path:
                add_reference(group, leaf, target, dtype, count)
            elif name == "acquisition/eeg/timestamps":
                group[leaf] = np.arange(count) / FS
            elif leaf in ("start_time", "stop_time"):
                group[leaf] = np.arange(count, dtype=dtype)
        if (
            external_path == "acquisition/eeg/electrodes"
            and add_reference is not add_external_link
        ):
            series["electrodes"].attrs["table"] = table.ref
    return path


@pytest.mark.parametrize("add_reference", REFERENCE_FUNCTIONS)
@pytest.mark.parametrize(
    "external_path",
    [
        "acquisition/eeg/timestamps",
        "acquisition/eeg/electrodes",
        "acquisition/eeg/channel_conversion",
        "electrodes/label",
        "intervals/trials/start_time",
        "intervals/trials/stop_time",
        "intervals/trials/label",
        "session_start_time",
    ],
)
def test_nwb_is_not_read_from_other_files(
    tmp_path: Path,
    secret_file: Path,
    add_reference: Callable[..., None],
    external_path: str,
) -> None:
    path = write_nwb_with_reference(
        tmp_path / "a.nwb", add_reference, external_path, secret_file
    )
    if "intervals" not in external_path:
        check_unreadable(path, OTHER_FILE_MESSAGE)
        return
    with (
        open_recording(path) as recording,
        pytest.raises(OSError, match=OTHER_FILE_MESSAGE),
    ):
        _ = recording.annotations


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here")
def test_a_pipe_as_external_storage_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        add_external_dataset(file, "channels", tmp_path / "pipe", "S4", 3)
    check_unreadable(path, OTHER_FILE_MESSAGE)


def test_a_link_within_the_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["recordings/eeg"] = X
        file["notes/rate"] = FS
        file["recordings/fs"] = h5py.SoftLink("/notes/rate")
    with open_recording(path, array="recordings/eeg") as recording:
        assert recording.groups[0].fs == FS


def write_matlab_set(path: Path, change: Callable[[Any], None]) -> Path:
    """Write an EEGLAB set of MATLAB 7.3 and apply a change to it."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in {"nbchan": 3, "srate": FS, "pnts": 9, "trials": 1}.items():
            file[name] = np.full((1, 1), value, "f8")
        file["data"] = X[:, :9].T.astype("f8")
        for node in file.values():
            node.attrs["MATLAB_class"] = np.bytes_("double")
        change(file)
    raw = bytearray(path.read_bytes())
    raw[:19], raw[124:128] = b"MATLAB 7.3 MAT-file", b"\0\2IM"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("add_reference", REFERENCE_FUNCTIONS)
def test_a_matlab_7_3_set_is_not_read_from_other_files(
    tmp_path: Path, secret_file: Path, add_reference: Callable[..., None]
) -> None:
    """MNE opens it by its name, so that HDF5 would follow any link."""
    path = tmp_path / "a.set"
    write_matlab_set(
        path, lambda file: add_reference(file, "history", secret_file, "u2", 9)
    )
    match = "is a link" if add_reference is add_external_link else OTHER_FILE_MESSAGE
    check_unreadable(path, match)


def samples_name_setter(name: str) -> Callable[[Any], None]:
    def set_samples_name(file: Any) -> None:
        del file["data"]
        file["data"] = np.array([[ord(letter)] for letter in name], "u2")
        file["data"].attrs["MATLAB_class"] = np.bytes_("char")

    return set_samples_name


@pytest.mark.parametrize("name", ["/etc/x.fdt", "../x.fdt", "C:\\x.fdt"])
def test_a_matlab_7_3_set_cannot_refer_outside(tmp_path: Path, name: str) -> None:
    path = write_matlab_set(tmp_path / "a.set", samples_name_setter(name))
    check_unreadable(path, "the header's folder or below it")


# --- much memory ----------------------------------------------------------------------

MAX_NBYTES = 100 << 20
BOMB_NBYTES = 128 << 20
BOMB_SHAPE = (3, 1 << 14)
"""Shape whose chunk takes more bytes than the compressed bomb."""


def unwritten_dataset_adder(name: str, count: int, dtype: Any) -> Callable[[Any], None]:
    def add_unwritten_dataset(file: Any) -> None:
        file.create_dataset(name, (count,), dtype, chunks=(1024,))

    return add_unwritten_dataset


def add_shared_long_text(file: Any) -> None:
    """Add names that are all the same long text: 65,000 references to 900 KB."""
    _add_shared_text(file, "channels", 65_000, 900_000)


def _add_shared_text(file: Any, name: str, count: int, nbytes: int) -> None:
    kind = h5py.string_dtype()
    names = file.create_dataset(name, (count,), kind, chunks=(count,))
    names[0] = "x" * nbytes
    file.flush()
    raw = names.id.read_direct_chunk((0,))[1]
    names.id.write_direct_chunk((0,), raw[:16] * count)


def add_long_attribute(file: Any) -> None:
    kind = h5py.string_dtype()
    texts = np.array(["x" * 900_000] + ["y"] * 3999, object)
    file["eeg"].attrs.create("channel_names", texts, dtype=kind)


def repeat_attribute_reference(path: Path) -> None:
    """Replace each reference of an attribute by the first, which is to a long text."""
    raw = bytearray(path.read_bytes())
    length_bytes = (900_000).to_bytes(4, "little")
    first = raw.index(length_bytes, raw.index(b"channel_names"))
    for i in range(1, 4000):
        raw[first + 16 * i : first + 16 * i + 16] = raw[first : first + 16]
    path.write_bytes(raw)


def add_wide_texts(file: Any) -> None:
    file.create_dataset("channels", (3000,), "S1000000", chunks=(1,))


def add_array_of_arrays(file: Any) -> None:
    """Add 60,000 texts that are all the same list of numbers."""
    kind = h5py.vlen_dtype(np.dtype("u1"))
    names = file.create_dataset("channels", (60_000,), kind, chunks=(60_000,))
    names[0] = np.zeros(900_000, "u1")
    file.flush()
    raw = names.id.read_direct_chunk((0,))[1]
    names.id.write_direct_chunk((0,), raw[:16] * 60_000)


def add_large_chunk(file: Any) -> None:
    del file["eeg"]
    file.create_dataset(
        "eeg", (1, 1 << 29), "f4", chunks=(1, 1 << 28), compression="gzip"
    )


def add_bomb(file: Any) -> None:
    """Add a chunk of 196,608 bytes that inflates to 128 MB."""
    del file["eeg"]
    data = file.create_dataset(
        "eeg", BOMB_SHAPE, "f4", chunks=BOMB_SHAPE, compression=9
    )
    data.id.write_direct_chunk((0, 0), compressed_zeros(BOMB_NBYTES))


@cache
def compressed_zeros(nbytes: int) -> bytes:
    compressor, zeros = zlib.compressobj(9), bytes(1 << 20)
    packed = [compressor.compress(zeros) for _ in range(nbytes >> 20)]
    return b"".join([*packed, compressor.flush()])


def add_masked_bomb(file: Any) -> None:
    """Add a bomb whose filter mask says that another filter was skipped."""
    del file["eeg"]
    data = file.create_dataset(
        "eeg", BOMB_SHAPE, "f4", chunks=BOMB_SHAPE, compression=9, shuffle=True
    )
    data.id.write_direct_chunk((0, 0), compressed_zeros(BOMB_NBYTES), filter_mask=1)


def add_shuffled_bomb(file: Any) -> None:
    """Add a bomb behind a shuffle filter, so that its raw bytes cannot be inspected."""
    del file["eeg"]
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(BOMB_SHAPE)
    properties.set_deflate(9)
    properties.set_shuffle()
    space = h5py.h5s.create_simple(BOMB_SHAPE)
    dataset = h5py.h5d.create(file.id, b"eeg", h5py.h5t.IEEE_F32LE, space, properties)
    packed = compressed_zeros(BOMB_NBYTES)
    packed += bytes(-len(packed) % 4)
    shuffled = np.frombuffer(packed, "u1").reshape(-1, 4).T.tobytes()
    dataset.write_direct_chunk((0, 0), shuffled)


CLAIMS: dict[str, Callable[[Any], None]] = {
    "an fs of 4 GB": unwritten_dataset_adder("fs", 1 << 29, "f8"),
    "names that were never written": unwritten_dataset_adder(
        "channels", 1 << 28, "S16"
    ),
    "names of one long text": add_shared_long_text,
    "texts of a megabyte": add_wide_texts,
    "arrays of arrays": add_array_of_arrays,
    "a chunk of a gigabyte": add_large_chunk,
    "a chunk that inflates": add_bomb,
    "a chunk with a mask that inflates": add_masked_bomb,
    "a chunk behind a shuffle": add_shuffled_bomb,
}


@pytest.fixture
def memory_limit() -> Iterator[None]:
    """Limit the growth of the peak memory."""
    with limit_memory_growth(MAX_NBYTES):
        yield


@pytest.mark.usefixtures("small_bound")
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_small_file_costs_little_memory(tmp_path: Path, claim: str) -> None:
    """A small hostile file is refused with both numbers, and nothing is allocated."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        file["eeg"].attrs["sampling_rate"] = FS
        if "fs" not in claim:
            file.attrs["fs"] = FS
        CLAIMS[claim](file)
    assert path.stat().st_size < 4 << 20
    with (
        limit_memory_growth(MAX_NBYTES),
        pytest.raises(OSError, match=r"at most|damaged|objects|has a filter after"),
        open_recording(path) as recording,
    ):
        recording.groups[0].read(0, 100)


def test_an_attribute_of_one_long_text_costs_little(
    tmp_path: Path, memory_limit: None
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["eeg"] = X
        file["eeg"].attrs["fs"] = FS
        add_long_attribute(file)
    repeat_attribute_reference(path)
    check_unreadable(path, r"at most|cannot read")


@pytest.mark.parametrize("where", ["array", "attribute"])
def test_a_heap_that_claims_much_costs_little(
    tmp_path: Path, memory_limit: None, where: str
) -> None:
    """HDF5 allocates memory for a heap of texts by its stored length."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        file["fs"] = FS
        if where == "array":
            file["channels"] = np.array(["a", "b", "c"], object)
        else:
            file["eeg"].attrs["channels"] = ["a", "b", "c"]
    raw = bytearray(path.read_bytes())
    offset = raw.index(b"GCOL")
    raw[offset + 8 : offset + 16] = (1 << 30).to_bytes(8, "little")
    path.write_bytes(raw)
    check_unreadable(path, "a text heap in the file is damaged")


@pytest.mark.parametrize("options", [{}, {"chunks": (3,)}, {"compression": "gzip"}])
def test_a_text_that_claims_much_costs_little(
    tmp_path: Path, memory_limit: None, options: dict[str, Any]
) -> None:
    """HDF5 allocates memory for a text by the length in its reference."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        file["fs"] = FS
        names = np.array(["aa", "bb", "cc"], object)
        file.create_dataset(
            "channels", data=names, dtype=h5py.string_dtype(), **options
        )
        dataset = file["channels"].id
        offset = dataset.get_offset()
        if options:
            raw = bytearray(dataset.read_direct_chunk((0,))[1])
            is_packed = "compression" in options
            raw = bytearray(zlib.decompress(raw)) if is_packed else raw
            raw[:4] = (1 << 30).to_bytes(4, "little")
            packed = zlib.compress(raw) if is_packed else bytes(raw)
            dataset.write_direct_chunk((0,), packed)
    if not options:
        contents = bytearray(path.read_bytes())
        contents[offset : offset + 4] = (1 << 30).to_bytes(4, "little")
        path.write_bytes(contents)
    check_unreadable(path, "1073741824 bytes in a text")


def test_a_file_is_searched_for_its_texts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is searched once however many attributes have a text."""
    path = write_hdf5(tmp_path / "a.h5", X)
    with h5py.File(path, "a") as file:
        for node in (file, file["eeg"]):
            node.attrs["units"] = "uV"
            node.attrs["channels"] = ["a", "b", "c"]
    searched, search_heaps = [], hdf5_checked_access._scan_heaps
    monkeypatch.setattr(
        hdf5_checked_access,
        "_scan_heaps",
        lambda source: searched.append(source) or search_heaps(source),
    )
    for _ in range(2):
        with open_recording(path) as recording:
            labels = [channel.label for channel in recording.groups[0].channels]
            assert labels == ["a", "b", "c"]
    assert len(searched) == 2


def test_a_set_that_claims_much_costs_little(
    tmp_path: Path, memory_limit: None
) -> None:
    """Arrays that were never written, and one that is referred to many times, are
    refused.
    """

    def add_repeated_references(file: Any) -> None:
        file["big"] = np.zeros(1 << 20, "f8")
        file["cells"] = np.array([file["big"].ref] * 1000, h5py.ref_dtype)

    for change in (
        unwritten_dataset_adder("etc", 1 << 29, "f8"),
        add_repeated_references,
    ):
        path = write_matlab_set(tmp_path / "a.set", change)
        check_unreadable(path, "bytes in all arrays")


def test_a_set_with_exponentially_many_paths_is_refused(tmp_path: Path) -> None:
    """Two names for each of 40 nested groups give a trillion paths."""

    def add_doubled_groups(file: Any) -> None:
        outer = file.create_group("etc")
        for level in range(40):
            inner = file.create_group(f"level{level}")
            outer["one"] = outer["other"] = inner
            outer = inner

    path = write_matlab_set(tmp_path / "a.set", add_doubled_groups)
    check_unreadable(path, "bytes in all arrays")


def test_depth_is_counted_for_shared_groups(tmp_path: Path) -> None:
    """Groups 40 deep that also have a name 30 groups down: MNE would go 70 deep."""

    def add_shared_group(file: Any) -> None:
        file.create_group("a" + "/x" * 40)
        file.create_group("b" + "/x" * 30)["a"] = file["a"]

    path = write_matlab_set(tmp_path / "a.set", add_shared_group)
    check_unreadable(path, "72 levels of nested arrays")


def test_highly_compressed_samples_are_read(tmp_path: Path) -> None:
    """A constant takes little space on disk and is a valid signal."""
    constant = np.zeros((3, 200_000), np.float32)
    path = write_hdf5(
        tmp_path / "a.h5", constant, chunks=(3, 200_000), compression="gzip"
    )
    with open_recording(path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), constant)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("prefix", ["", "run/"])
def test_a_virtual_array_is_recognised_by_its_header(
    tmp_path: Path, secret_file: Path, libver: str, userblock: int, prefix: str
) -> None:
    """Old and new headers, continued in other blocks because of many attributes, are
    recognised.
    """
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        group = file.require_group(prefix or "/")
        group["eeg"] = X
        add_virtual_dataset(group, "view", secret_file, "f8", 640)
        for i in range(40):
            group["view"].attrs[f"note {i}"] = i
        group["fs"] = FS
        group["link"] = h5py.SoftLink("view")
    if userblock:
        with path.open("r+b") as raw:
            raw.write(b"MATLAB 7.3 MAT-file".ljust(128))
    with h5py.File(path) as file, closing(open_source(path)) as source:
        group = file[prefix or "/"]
        for name in ("eeg", "view", "fs"):
            address = group.id.links.get_info(name.encode()).u
            is_virtual = hdf5_virtual_dataset_detection.is_virtual(
                source, file, address
            )
            assert is_virtual is (name == "view"), name
        with pytest.raises(RecordingError, match=OTHER_FILE_MESSAGE):
            hdf5_checked_access.get_child(source, group, "link")
    check_unreadable(path, OTHER_FILE_MESSAGE, array=f"{prefix}view")
    with pytest.warns(
        RecordingWarning, match="view' is stored in other files; the array is ignored"
    ):
        recording = open_recording(path)
    with recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)


def test_a_damaged_virtual_array_is_refused_unopened(
    tmp_path: Path, secret_file: Path
) -> None:
    """HDF5 2.0 ends the process if a selection of a virtual array has 513 axes."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        add_virtual_dataset(file, "eeg", secret_file, "f8", 640)
        file["fs"] = FS
    raw = bytearray(path.read_bytes())
    # The kind (hyperslab), version, and so on to the number of axes of a selection.
    offset = raw.index(b"\x02\0\0\0\x01\0\0\0", raw.index(b"GCOL"))
    raw[offset + 16 : offset + 18] = b"\x01\x02"
    path.write_bytes(raw)
    check_unreadable(path, OTHER_FILE_MESSAGE)


def test_a_large_unwritten_array_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("eeg", (3, 1 << 34), "f8", chunks=(3, 1 << 10))
        file.attrs["fs"] = FS
    check_unreadable(path, r"only 0 of 412316860416 bytes .*'/?eeg' were written")
    with h5py.File(path, "r+") as file:
        del file["eeg"]
        data = file.create_dataset("eeg", (3, 1 << 20), "f8", chunks=(3, 1 << 10))
        data[:, : X.shape[1]] = X
    with pytest.warns(RecordingWarning, match="never written"):
        recording = open_recording(path)
    with recording:
        group = recording.groups[0]
        np.testing.assert_array_equal(group.read(0, X.shape[1]), X)
        assert not group.read(1 << 19, (1 << 19) + 100).any()


def test_indirect_links_to_other_files_are_refused(
    tmp_path: Path, secret_file: Path
) -> None:
    """Links within the file are followed, through groups and other links."""
    path = tmp_path / "a.h5"
    names = np.array(["Fz", "Cz", "Pz"], "S2")
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        file.attrs["fs"] = FS
        file["notes/names"] = names
        file["same"] = h5py.SoftLink("notes")
        file["channels"] = h5py.SoftLink("/./same/names")
    with open_recording(path) as recording:
        channel_names = [channel.name for channel in recording.groups[0].channels]
    assert channel_names == ["Fz", "Cz", "Pz"]
    with h5py.File(path, "r+") as file:
        del file["same"]
        with h5py.File(secret_file.with_suffix(".h5"), "w") as other:
            other["names"] = names
        file["same"] = h5py.ExternalLink(str(secret_file.with_suffix(".h5")), "/")
    check_unreadable(path, "'same' is a link to another file")
    with h5py.File(path, "r+") as file:
        del file["same"]
        file["same"] = h5py.SoftLink("/channels")
    with open_recording(path) as recording:
        assert recording.groups[0].channels[0].label == ""
