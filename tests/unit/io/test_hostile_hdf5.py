"""HDF5 files that lead to other files, and small ones that claim much memory."""

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

from rlxweb.errors import RecordingError, RecordingWarning
from rlxweb.io import hdf5_access, hdf5_headers, open_recording
from rlxweb.io.source import open_source
from tests.memory import takes_less_than
from tests.recordings import check_unreadable
from tests.unit.io.test_hdf5 import FS, X, plain

SECRET = b"root:x:0:0:\n" * 6
ELSEWHERE = "other file"


def external(group: Any, name: str, target: Path, dtype: str, count: int) -> None:
    """An array whose numbers lie in another file."""
    nbytes = count * np.dtype(dtype).itemsize
    group.create_dataset(name, (count,), dtype, external=[(str(target), 0, nbytes)])


def virtual(group: Any, name: str, target: Path, dtype: str, count: int) -> None:
    """An array that is a view of one in another HDF5 file."""
    with h5py.File(target.with_suffix(".h5"), "w") as other:
        other["x"] = np.zeros(count, dtype)
    layout = h5py.VirtualLayout((count,), dtype)
    layout[:] = h5py.VirtualSource(str(target.with_suffix(".h5")), "x", (count,))
    group.create_virtual_dataset(name, layout)


def linked(group: Any, name: str, target: Path, dtype: str, count: int) -> None:
    """A link to an array of another HDF5 file."""
    with h5py.File(target.with_suffix(".h5"), "w") as other:
        other["x"] = np.zeros(count, dtype)
    group[name] = h5py.ExternalLink(str(target.with_suffix(".h5")), "x")


WAYS: tuple[Callable[..., None], ...] = (external, virtual, linked)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "dtype", "count"),
    [("channels", "S4", 3), ("units", "S4", 3), ("fs", "f8", 1), ("time", "f8", 3000)],
)
def test_nothing_beside_the_samples_is_read_from_elsewhere(
    tmp_path: Path,
    secret: Path,
    way: Callable[..., None],
    name: str,
    dtype: str,
    count: int,
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        way(file, name, secret, dtype, count)
    check_unreadable(path, ELSEWHERE)


@pytest.mark.parametrize("way", WAYS)
def test_samples_are_not_read_from_elsewhere(
    tmp_path: Path, secret: Path, way: Callable[..., None]
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        way(file, "eeg", secret, "f4", 9)
        file["fs"] = FS
    match = "no array in it" if way is linked else ELSEWHERE
    check_unreadable(path, match)


def nwb(path: Path, way: Callable[..., None], where: str, target: Path) -> Path:
    """A series of NWB, of which the array `where` lies elsewhere."""
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
        given = {
            "acquisition/eeg/timestamps": ("f8", len(X.T)),
            "acquisition/eeg/electrodes": ("i8", 3),
            "acquisition/eeg/channel_conversion": ("f8", 3),
            "electrodes/label": ("S4", 3),
            "intervals/trials/start_time": ("f8", 3),
            "intervals/trials/stop_time": ("f8", 3),
            "intervals/trials/label": ("S4", 3),
            "session_start_time": ("S30", 1),
        }
        if where == "acquisition/eeg/electrodes":
            del file[where]
        for name, (dtype, count) in given.items():
            group = file[name.rpartition("/")[0] or "/"]
            own = name.rpartition("/")[2]
            if name == where:
                way(group, own, target, dtype, count)
            elif name == "acquisition/eeg/timestamps":
                group[own] = np.arange(count) / FS
            elif own in ("start_time", "stop_time"):
                group[own] = np.arange(count, dtype=dtype)
        if where == "acquisition/eeg/electrodes" and way is not linked:
            series["electrodes"].attrs["table"] = table.ref
    return path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "where",
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
def test_nothing_of_nwb_is_read_from_elsewhere(
    tmp_path: Path, secret: Path, way: Callable[..., None], where: str
) -> None:
    path = nwb(tmp_path / "a.nwb", way, where, secret)
    if "intervals" not in where:
        check_unreadable(path, ELSEWHERE)
        return
    with open_recording(path) as recording, pytest.raises(OSError, match=ELSEWHERE):
        _ = recording.annotations


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here")
def test_a_pipe_as_external_storage_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        external(file, "channels", tmp_path / "pipe", "S4", 3)
    check_unreadable(path, ELSEWHERE)


def test_a_link_within_the_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["recordings/eeg"] = X
        file["notes/rate"] = FS
        file["recordings/fs"] = h5py.SoftLink("/notes/rate")
    with open_recording(path, array="recordings/eeg") as recording:
        assert recording.groups[0].fs == FS


def matlab_set(path: Path, change: Callable[[Any], None]) -> Path:
    """A set of EEGLAB in MATLAB's version 7.3, of which something is changed."""
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


@pytest.mark.parametrize("way", WAYS)
def test_a_set_of_matlab_7_3_is_read_from_itself_alone(
    tmp_path: Path, secret: Path, way: Callable[..., None]
) -> None:
    """MNE opens it by its name, so that HDF5 would follow any link."""
    path = tmp_path / "a.set"
    matlab_set(path, lambda file: way(file, "history", secret, "u2", 9))
    match = "is a link" if way is linked else ELSEWHERE
    check_unreadable(path, match)


def name_of_samples(name: str) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        del file["data"]
        file["data"] = np.array([[ord(letter)] for letter in name], "u2")
        file["data"].attrs["MATLAB_class"] = np.bytes_("char")

    return change


@pytest.mark.parametrize("name", ["/etc/x.fdt", "../x.fdt", "C:\\x.fdt"])
def test_a_set_of_matlab_7_3_names_its_samples_plainly(
    tmp_path: Path, name: str
) -> None:
    path = matlab_set(tmp_path / "a.set", name_of_samples(name))
    check_unreadable(path, "the header's own folder or below it")


# --- much memory ----------------------------------------------------------------------

MOST_NBYTES = 100 << 20
BOMB_NBYTES = 128 << 20
BOMB_SHAPE = (3, 1 << 14)
"""Its chunk takes more bytes than the bomb when that is packed."""


def never_written(name: str, count: int, dtype: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        file.create_dataset(name, (count,), dtype, chunks=(1024,))

    return change


def one_long_text(file: Any) -> None:
    """Names that are all the same long text: 65,000 references to 900 KB."""
    _share(file, "channels", 65_000, 900_000)


def _share(file: Any, name: str, count: int, nbytes: int) -> None:
    kind = h5py.string_dtype()
    names = file.create_dataset(name, (count,), kind, chunks=(count,))
    names[0] = "x" * nbytes
    file.flush()
    raw = names.id.read_direct_chunk((0,))[1]
    names.id.write_direct_chunk((0,), raw[:16] * count)


def one_long_attribute(file: Any) -> None:
    kind = h5py.string_dtype()
    texts = np.array(["x" * 900_000] + ["y"] * 3999, object)
    file["eeg"].attrs.create("channel_names", texts, dtype=kind)


def many_in_an_attribute(path: Path) -> None:
    """Each reference of an attribute becomes the first, which is to a long text."""
    raw = bytearray(path.read_bytes())
    long = (900_000).to_bytes(4, "little")
    first = raw.index(long, raw.index(b"channel_names"))
    for at in range(1, 4000):
        raw[first + 16 * at : first + 16 * at + 16] = raw[first : first + 16]
    path.write_bytes(raw)


def wide_texts(file: Any) -> None:
    file.create_dataset("channels", (3000,), "S1000000", chunks=(1,))


def array_of_arrays(file: Any) -> None:
    """Each of 60,000 texts is a list of numbers, all of them the same."""
    kind = h5py.vlen_dtype(np.dtype("u1"))
    names = file.create_dataset("channels", (60_000,), kind, chunks=(60_000,))
    names[0] = np.zeros(900_000, "u1")
    file.flush()
    raw = names.id.read_direct_chunk((0,))[1]
    names.id.write_direct_chunk((0,), raw[:16] * 60_000)


def large_chunk(file: Any) -> None:
    del file["eeg"]
    file.create_dataset(
        "eeg", (1, 1 << 29), "f4", chunks=(1, 1 << 28), compression="gzip"
    )


def bomb(file: Any) -> None:
    """A chunk of 196,608 bytes that inflates to 128 MB."""
    del file["eeg"]
    data = file.create_dataset(
        "eeg", BOMB_SHAPE, "f4", chunks=BOMB_SHAPE, compression=9
    )
    data.id.write_direct_chunk((0, 0), inflating(BOMB_NBYTES))


@cache
def inflating(nbytes: int) -> bytes:
    pack, zeros = zlib.compressobj(9), bytes(1 << 20)
    packed = [pack.compress(zeros) for _ in range(nbytes >> 20)]
    return b"".join([*packed, pack.flush()])


def masked_bomb(file: Any) -> None:
    """The same, of which another filter is said to be left out."""
    del file["eeg"]
    data = file.create_dataset(
        "eeg", BOMB_SHAPE, "f4", chunks=BOMB_SHAPE, compression=9, shuffle=True
    )
    data.id.write_direct_chunk((0, 0), inflating(BOMB_NBYTES), filter_mask=1)


def changed_bomb(file: Any) -> None:
    """The same behind a shuffle, so that it cannot be looked at as it is."""
    del file["eeg"]
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_chunk(BOMB_SHAPE)
    how.set_deflate(9)
    how.set_shuffle()
    space = h5py.h5s.create_simple(BOMB_SHAPE)
    made = h5py.h5d.create(file.id, b"eeg", h5py.h5t.IEEE_F32LE, space, how)
    packed = inflating(BOMB_NBYTES)
    packed += bytes(-len(packed) % 4)
    shuffled = np.frombuffer(packed, "u1").reshape(-1, 4).T.tobytes()
    made.write_direct_chunk((0, 0), shuffled)


CLAIMS: dict[str, Callable[[Any], None]] = {
    "an fs of 4 GB": never_written("fs", 1 << 29, "f8"),
    "names that were never written": never_written("channels", 1 << 28, "S16"),
    "names of one long text": one_long_text,
    "texts of a megabyte": wide_texts,
    "arrays of arrays": array_of_arrays,
    "a chunk of a gigabyte": large_chunk,
    "a chunk that inflates": bomb,
    "a chunk with a mask that inflates": masked_bomb,
    "a chunk behind a shuffle": changed_bomb,
}


@pytest.fixture
def memory() -> Iterator[None]:
    """Bound how much the highest use of memory grows."""
    with takes_less_than(MOST_NBYTES):
        yield


@pytest.mark.usefixtures("small_bound")
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_small_file_costs_little(tmp_path: Path, claim: str) -> None:
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
        takes_less_than(MOST_NBYTES),
        pytest.raises(OSError, match=r"at most|damaged|objects|comes last"),
        open_recording(path) as recording,
    ):
        recording.groups[0].read(0, 100)


def test_an_attribute_of_one_long_text_costs_little(
    tmp_path: Path, memory: None
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["eeg"] = X
        file["eeg"].attrs["fs"] = FS
        one_long_attribute(file)
    many_in_an_attribute(path)
    check_unreadable(path, r"at most|cannot read")


@pytest.mark.parametrize("where", ["array", "attribute"])
def test_a_heap_that_claims_much_costs_little(
    tmp_path: Path, memory: None, where: str
) -> None:
    """HDF5 makes room for a heap of texts as long as it says it is."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        file["fs"] = FS
        if where == "array":
            file["channels"] = np.array(["a", "b", "c"], object)
        else:
            file["eeg"].attrs["channels"] = ["a", "b", "c"]
    raw = bytearray(path.read_bytes())
    at = raw.index(b"GCOL")
    raw[at + 8 : at + 16] = (1 << 30).to_bytes(8, "little")
    path.write_bytes(raw)
    check_unreadable(path, "a heap of texts in it is damaged")


@pytest.mark.parametrize("how", [{}, {"chunks": (3,)}, {"compression": "gzip"}])
def test_a_text_that_claims_much_costs_little(
    tmp_path: Path, memory: None, how: dict[str, Any]
) -> None:
    """HDF5 makes room for a text as long as its reference says it is."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["eeg"] = X
        file["fs"] = FS
        names = np.array(["aa", "bb", "cc"], object)
        file.create_dataset("channels", data=names, dtype=h5py.string_dtype(), **how)
        stored = file["channels"].id
        place = stored.get_offset()
        if how:
            raw = bytearray(stored.read_direct_chunk((0,))[1])
            is_packed = "compression" in how
            raw = bytearray(zlib.decompress(raw)) if is_packed else raw
            raw[:4] = (1 << 30).to_bytes(4, "little")
            packed = zlib.compress(raw) if is_packed else bytes(raw)
            stored.write_direct_chunk((0,), packed)
    if not how:
        whole = bytearray(path.read_bytes())
        whole[place : place + 4] = (1 << 30).to_bytes(4, "little")
        path.write_bytes(whole)
    check_unreadable(path, "1073741824 bytes in a text")


def test_a_file_is_searched_for_its_texts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is searched once however many attributes have a text."""
    path = plain(tmp_path / "a.h5", X)
    with h5py.File(path, "a") as file:
        for node in (file, file["eeg"]):
            node.attrs["units"] = "uV"
            node.attrs["channels"] = ["a", "b", "c"]
    searched, search = [], hdf5_access._search_heaps
    monkeypatch.setattr(
        hdf5_access,
        "_search_heaps",
        lambda source: searched.append(source) or search(source),
    )
    for _ in range(2):
        with open_recording(path) as recording:
            labels = [one.label for one in recording.groups[0].channels]
            assert labels == ["a", "b", "c"]
    assert len(searched) == 2


def test_a_set_that_claims_much_costs_little(tmp_path: Path, memory: None) -> None:
    """Arrays that were never written, and one that is referred to many times."""

    def repeated(file: Any) -> None:
        file["big"] = np.zeros(1 << 20, "f8")
        file["cells"] = np.array([file["big"].ref] * 1000, h5py.ref_dtype)

    for change in (never_written("etc", 1 << 29, "f8"), repeated):
        path = matlab_set(tmp_path / "a.set", change)
        check_unreadable(path, "bytes in all its arrays")


def test_a_set_whose_groups_are_named_over_and_over_is_refused(tmp_path: Path) -> None:
    """Two names for each of 40 groups in one another: a trillion ways to walk."""

    def doubled(file: Any) -> None:
        outer = file.create_group("etc")
        for level in range(40):
            inner = file.create_group(f"level{level}")
            outer["one"] = outer["other"] = inner
            outer = inner

    path = matlab_set(tmp_path / "a.set", doubled)
    check_unreadable(path, "bytes in all its arrays")


def test_a_group_that_is_seen_before_lies_deep_all_the_same(tmp_path: Path) -> None:
    """Groups 40 deep that also have a name 30 groups down: MNE would go 70 deep."""

    def shared(file: Any) -> None:
        file.create_group("a" + "/x" * 40)
        file.create_group("b" + "/x" * 30)["a"] = file["a"]

    path = matlab_set(tmp_path / "a.set", shared)
    check_unreadable(path, "72 arrays in one another")


def test_what_is_packed_well_is_read(tmp_path: Path) -> None:
    """A constant takes little room on a disk and is a signal all the same."""
    still = np.zeros((3, 200_000), np.float32)
    path = plain(tmp_path / "a.h5", still, chunks=(3, 200_000), compression="gzip")
    with open_recording(path) as recording:
        np.testing.assert_array_equal(recording.groups[0].read(), still)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("inside", ["", "run/"])
def test_a_virtual_array_is_known_by_its_header(
    tmp_path: Path, secret: Path, libver: str, userblock: int, inside: str
) -> None:
    """Old headers and new ones, continued in other blocks by many attributes."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        group = file.require_group(inside or "/")
        group["eeg"] = X
        virtual(group, "view", secret, "f8", 640)
        for at in range(40):
            group["view"].attrs[f"note {at}"] = at
        group["fs"] = FS
        group["link"] = h5py.SoftLink("view")
    if userblock:
        with path.open("r+b") as raw:
            raw.write(b"MATLAB 7.3 MAT-file".ljust(128))
    with h5py.File(path) as file, closing(open_source(path)) as source:
        group = file[inside or "/"]
        for name in ("eeg", "view", "fs"):
            address = group.id.links.get_info(name.encode()).u
            found = hdf5_headers.is_virtual(source, file, address)
            assert found is (name == "view"), name
        with pytest.raises(RecordingError, match=ELSEWHERE):
            hdf5_access.child(source, group, "link")
    check_unreadable(path, ELSEWHERE, array=f"{inside}view")
    with pytest.warns(RecordingWarning, match="view' lie in other files; it is passed"):
        recording = open_recording(path)
    with recording:
        np.testing.assert_array_equal(recording.groups[0].read(), X)


def test_a_damaged_virtual_array_is_refused_unopened(
    tmp_path: Path, secret: Path
) -> None:
    """HDF5 2.0 ends the process where the pieces of one have 513 axes."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        virtual(file, "eeg", secret, "f8", 640)
        file["fs"] = FS
    raw = bytearray(path.read_bytes())
    # The kind (hyperslab), version, and so on to the number of axes of a selection.
    at = raw.index(b"\x02\0\0\0\x01\0\0\0", raw.index(b"GCOL"))
    raw[at + 16 : at + 18] = b"\x01\x02"
    path.write_bytes(raw)
    check_unreadable(path, ELSEWHERE)


def test_an_array_that_was_never_written_is_refused_where_it_is_large(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("eeg", (3, 1 << 34), "f8", chunks=(3, 1 << 10))
        file.attrs["fs"] = FS
    check_unreadable(path, r"only 0 of the 412316860416 bytes .*'/?eeg' were written")
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


def test_a_link_leads_to_other_files_by_no_detour(tmp_path: Path, secret: Path) -> None:
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
        found = [one.name for one in recording.groups[0].channels]
    assert found == ["Fz", "Cz", "Pz"]
    with h5py.File(path, "r+") as file:
        del file["same"]
        with h5py.File(secret.with_suffix(".h5"), "w") as other:
            other["names"] = names
        file["same"] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "/")
    check_unreadable(path, "'same' is a link to another file")
    with h5py.File(path, "r+") as file:
        del file["same"]
        file["same"] = h5py.SoftLink("/channels")
    with open_recording(path) as recording:
        assert recording.groups[0].channels[0].label == ""
