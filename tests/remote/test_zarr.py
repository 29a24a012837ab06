"""Zarr stores as recordings: in a folder, a zip file, a bucket and on a web server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import make_archive
from typing import Any

import numpy as np
import pytest
import zarr
from s3fs import S3FileSystem
from zarr.storage import LocalStore, ZipStore

from rlxweb.errors import RecordingError, RecordingWarning, UnknownName, UsageError
from rlxweb.io import open_recording, strips
from rlxweb.io.identity import identity
from tests.command_line import Call
from tests.remote.made import COUNTS, Bucket
from tests.remote.site import Site

FS = {"fs": 250.0}


def written(
    path: Path, data: np.ndarray = COUNTS, chunks: Any = (2, 700), **more: Any
) -> Path:
    """An array of a store with its rate among its attributes."""
    attributes = more.pop("attributes", FS)
    array = zarr.create_array(
        path, shape=data.shape, chunks=chunks, dtype=data.dtype, **more
    )
    array[...] = data
    array.attrs.update(attributes)
    return path


def check(path: object, wanted: np.ndarray = COUNTS, **how: Any) -> None:
    """The samples, whole and in blocks of several sizes."""
    with open_recording(str(path), **how) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs) == ("Zarr", 250.0)
        np.testing.assert_array_equal(group.read(), wanted)
        for size in (1, 333, 700, 1401) if wanted.shape[1] < 9000 else (4096,):
            for block in group.blocks(max(size, 50), 7):
                part = wanted[:, block.start : block.stop]
                np.testing.assert_array_equal(block.data, part)


def put(bucket: Bucket, folder: Path, name: str) -> str:
    """The files of a store in a bucket."""
    bucket.fs.put(str(folder), f"{bucket.name}/{name}", recursive=True)
    return f"s3://{bucket.name}/{name}"


def put_on_the_web(site: Site, folder: Path, name: str) -> str:
    """The files of a store on a web server."""
    for path in folder.rglob("*"):
        if path.is_file():
            key = path.relative_to(folder).as_posix()
            site.put(f"/{name}/{key}", path.read_bytes())
    return f"{site.url}/{name}"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["i1", "u2", "<i2", ">i2", "i4", "f2", "f4", ">f8"])
def test_arrays_of_every_type_read_as_they_are(
    version: int, dtype: str, tmp_path: Path
) -> None:
    data = (COUNTS[:, :1500] % 100).astype(dtype)
    path = written(tmp_path / "a.zarr", data, zarr_format=version)
    check(path, data)
    with open_recording(path) as recording:
        digital = recording.groups[0].digital
    assert (digital is not None) == (np.dtype(dtype).str[1:] in ("i1", "u2", "i2"))


def test_layouts_ranks_and_shards(tmp_path: Path) -> None:
    turned = written(tmp_path / "t.zarr", COUNTS.T.copy(), (700, 3))
    check(turned, layout="samples-first")
    check(written(tmp_path / "one.zarr", COUNTS[0], (700,)), COUNTS[:1])
    sharded = written(tmp_path / "s.zarr", COUNTS, (2, 500), shards=(4, 2000))
    check(sharded)
    with ZipStore(tmp_path / "z.zarr.zip", mode="w") as store:
        shape = {"shape": COUNTS.shape, "dtype": "i2"}
        zarr.create_array(store, **shape, attributes=FS)[...] = COUNTS
    check(tmp_path / "z.zarr.zip")
    cube = written(tmp_path / "c.zarr", np.zeros((2, 2, 2)), (1, 1, 1))
    with pytest.raises(RecordingError, match="3 axes"):
        open_recording(cube)


def test_channels_are_taken_by_name_in_any_order(tmp_path: Path) -> None:
    names = {"channels": ["Fp1", "Cz", "O1", "EOG"], "units": "uV", **FS}
    path = written(tmp_path / "a.zarr", attributes=names)
    with open_recording(path, channels=["O1", "Fp1"]) as recording:
        (group,) = recording.groups
        assert [c.unit for c in group.channels] == ["uV", "uV"]
        np.testing.assert_array_equal(group.read(10, 900), COUNTS[[2, 0], 10:900])


def test_a_walk_decodes_every_chunk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk decodes every chunk once, also where blocks end within one.

    More than once is needed where no chunk can be held.
    """
    path = written(tmp_path / "a.zarr")
    seen: Counter[str] = Counter()
    real = LocalStore.get

    async def get(self: Any, key: str, *rest: Any, **how: Any) -> Any:
        seen[key] += 1
        return await real(self, key, *rest, **how)

    monkeypatch.setattr(LocalStore, "get", get)

    def walked() -> dict[str, int]:
        seen.clear()
        with open_recording(path) as recording:
            for block in recording.groups[0].blocks(300):
                part = COUNTS[:, block.start : block.stop]
                np.testing.assert_array_equal(block.data, part)
        return {key: count for key, count in seen.items() if key.startswith("c/")}

    assert set(walked().values()) == {1}
    monkeypatch.setattr(strips, "HELD_NBYTES", 1000)
    assert max(walked().values()) > 1


def test_scaled_integers_stay_digital(tmp_path: Path) -> None:
    """Integers with scale_factor and add_offset, as xarray writes, stay digital.

    Their values are count · scale_factor + add_offset.
    """
    notes = {"scale_factor": 0.5, "add_offset": -3.0, **FS}
    path = written(tmp_path / "a.zarr", attributes=notes)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.digital, group.dtype) == (np.int16, np.float64)
        np.testing.assert_allclose(group.read(), COUNTS * 0.5 - 3.0, rtol=1e-12)
    wide = written(tmp_path / "b.zarr", COUNTS.astype("i4"), attributes=notes)
    with pytest.raises(RecordingError, match="scale_factor"):
        open_recording(wide)


@pytest.mark.parametrize(
    ("attributes", "how", "match"),
    [
        ({}, {}, "no attribute fs, sampling_frequency, .* or sfreq is a rate"),
        (
            {"fs": 100, "sampling_rate": 200},
            {},
            "contradict each other.*100 .*200 ",
        ),
        ({"fs": 100}, {"fs": 99}, "the file says 100 Hz"),
        ({"fs": 100, "channels": ["a"]}, {}, "1 for 4 channels"),
        ({"fs": 100, "scale_factor": 0}, {}, "scale_factor is 0"),
    ],
)
def test_attributes_that_cannot_hold_are_refused(
    attributes: dict[str, Any], how: dict[str, Any], match: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "a.zarr", attributes=attributes)
    with pytest.raises(RecordingError, match=match):
        open_recording(path, **how)


def test_attributes_that_mean_nothing_are_told(tmp_path: Path) -> None:
    said = {"fs": "fast", "sampling_rate": 250, "channels": 7}
    path = written(tmp_path / "a.zarr", attributes=said)
    with pytest.warns(RecordingWarning, match="passed over"):
        check(path)


def group_of(path: Path) -> Path:
    """A group with two arrays and its rate, and one array deeper."""
    group = zarr.open_group(path, mode="w", attributes=FS)
    for name, data in (("eeg", COUNTS), ("emg", COUNTS[:2])):
        group.create_array(name, data=data)
    group.create_group("deep").create_array("x", data=COUNTS[:1], attributes=FS)
    group.create_array("channels", data=np.arange(4))
    return path


def test_an_array_of_a_group_is_picked_by_name(tmp_path: Path, bucket: Bucket) -> None:
    path = group_of(tmp_path / "g.zarr")
    check(path, array="eeg")
    check(path, COUNTS[:1], array="deep/x")
    far = put(bucket, path, "g.zarr")
    check(far, array="emg", wanted=COUNTS[:2], storage_options=bucket.options)
    with pytest.raises(RecordingError, match=r"3 arrays.*'deep/x', 'eeg', 'emg'"):
        open_recording(path)
    with pytest.raises(UnknownName, match=r"did you mean .*'eeg'"):
        open_recording(path, array="egg")
    single = written(tmp_path / "a.zarr")
    with pytest.raises(RecordingError, match="single array"):
        open_recording(single, array="eeg")


def test_stores_in_a_bucket_and_on_the_web(
    tmp_path: Path, bucket: Bucket, site: Site
) -> None:
    path = written(tmp_path / "a.zarr")
    check(put(bucket, path, "night/a.zarr"), storage_options=bucket.options)
    check(put_on_the_web(site, path, "a.zarr"))
    group = put_on_the_web(site, group_of(tmp_path / "g.zarr"), "g.zarr")
    check(group, array="eeg")
    check(f"{group}/deep/x", COUNTS[:1])
    with pytest.raises(RecordingError, match="lists no names"):
        open_recording(group)
    with pytest.raises(UnknownName, match="no array 'nix'"):
        open_recording(group, array="nix")


def test_a_store_in_one_file_far_away(
    tmp_path: Path, bucket: Bucket, site: Site
) -> None:
    """A store in one file is read by ranges; a server without them is refused."""
    path = written(tmp_path / "a.zarr", chunks=(4, 700))
    data = Path(make_archive(str(path), "zip", path)).read_bytes()
    check(bucket.put("a.zarr.zip", data), storage_options=bucket.options)
    url = site.put("/a.zarr.zip", data)
    check(url)
    site.knows_ranges = False
    other = site.put("/b.zarr.zip", data)
    with pytest.raises(RecordingError, match=r"knows no ranges.*download the file"):
        open_recording(other)


def test_a_chunk_far_away_is_one_request(
    tmp_path: Path, bucket: Bucket, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk is one request to a bucket or web server; own ways to ask are kept."""
    path = written(tmp_path / "a.zarr", chunks=(4, 700))
    asked: list[str] = []
    inner = S3FileSystem._call_s3

    async def noted(self: Any, method: str, *how: Any, **more: Any) -> Any:
        asked.append(method)
        return await inner(self, method, *how, **more)

    monkeypatch.setattr(S3FileSystem, "_call_s3", noted)
    far = put(bucket, path, "a.zarr")
    own = {**bucket.options, "max_concurrency": 4}
    for options, wanted in (
        (bucket.options, {"get_object": 9}),
        (own, {"get_object": 9, "head_object": 9}),
    ):
        with open_recording(far, storage_options=options) as recording:
            asked.clear()
            recording.groups[0].read()
        assert Counter(asked) == wanted
    with open_recording(put_on_the_web(site, path, "a.zarr")) as recording:
        site.asked.clear()
        recording.groups[0].read()
    assert len(site.asked) == 9


def test_chunks_that_are_not_there_are_told(tmp_path: Path, site: Site) -> None:
    """Chunks that are not there are the fill value, and a warning once read."""
    path = written(tmp_path / "a.zarr", fill_value=7)
    (path / "c" / "1" / "3").unlink()
    wanted = COUNTS.copy()
    wanted[2:, 2100:2800] = 7
    for name in (path, put_on_the_web(site, path, "a.zarr")):
        with open_recording(str(name)) as recording:
            recording.groups[0].read(0, 700)
            assert recording.warnings == ()
            with pytest.warns(RecordingWarning, match=r"never written.*c/1/3.*value 7"):
                found = recording.groups[0].read()
            np.testing.assert_array_equal(found, wanted)
            assert len(recording.warnings) == 1


def test_a_fill_value_of_nan_is_refused_like_any(tmp_path: Path, call: Call) -> None:
    data = COUNTS.astype("f4")
    path = written(tmp_path / "a.zarr", data, fill_value=np.nan)
    (path / "c" / "0" / "2").unlink()
    how = ("--device", "cpu", "-q", "--json", "-")
    said = call("welch", path, *how)
    assert said.code == 2
    assert "at sample 1400" in said.err
    said = call("welch", path, *how, "--nan", "propagate")
    assert said.code == 0
    assert "never written" in said.record["files"][0]["warnings"][0]


BROKEN: dict[str, tuple[str, bytes | None, str]] = {
    "a chunk of garbage": ("c/0/1", b"garbage" * 9, "samples 0 to 6000 cannot be read"),
    "an empty chunk": ("c/0/1", b"", "samples 0 to 6000 cannot be read"),
    "no metadata": ("zarr.json", None, "folder"),
    "half the metadata": ("zarr.json", b'{"zarr_form', "cannot be opened as Zarr"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_store_is_an_error_that_names_it(what: str, tmp_path: Path) -> None:
    key, data, match = BROKEN[what]
    path = written(tmp_path / "a.zarr")
    if data is None:
        (path / key).unlink()
    else:
        (path / key).write_bytes(data)
    with pytest.raises(RecordingError, match=match) as caught:
        with open_recording(path) as recording:
            recording.groups[0].read()
    assert str(path) in str(caught.value)


def test_raw_chunks_that_are_cut_are_no_samples(tmp_path: Path) -> None:
    path = written(tmp_path / "a.zarr", compressors=None)
    chunk = path / "c" / "0" / "1"
    chunk.write_bytes(chunk.read_bytes()[:100])
    with open_recording(path) as recording:
        with pytest.raises(RecordingError, match="cannot be read"):
            recording.groups[0].read()


def test_a_codec_that_is_not_here_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.zarr")
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["codecs"][-1] = {"name": "their-own"}
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(RecordingError, match=r"codec that is not here.*their-own"):
        open_recording(path)


def test_text_and_closed_stores_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "w.zarr", shape=(4,), dtype="U5", zarr_format=2)
    with pytest.raises(RecordingError, match="samples are int8"):
        open_recording(tmp_path / "w.zarr")
    recording = open_recording(written(tmp_path / "a.zarr"))
    recording.close()
    with pytest.raises(RecordingError, match="is closed"):
        recording.groups[0].read()
    with pytest.raises(UsageError, match="layout"):
        open_recording(tmp_path / "a.zarr", layout="up")  # type: ignore[arg-type]


def test_stores_among_the_recordings_of_a_folder(
    tmp_path: Path, call: Call, bucket: Bucket
) -> None:
    written(tmp_path / "b.zarr")
    written(tmp_path / "named_otherwise")
    np.save(tmp_path / "a.npy", COUNTS)
    far = put(bucket, tmp_path, "night")
    how = ("--fs", 250, "--device", "cpu", "-q", *bucket.storage, "--json", "-")

    def files(*names: object) -> list[str]:
        said = call("welch", *names, *how)
        assert said.code == 0, said.err
        return [Path(file["path"]).name for file in said.record["files"]]

    assert files(tmp_path) == ["a.npy", "b.zarr", "named_otherwise"]
    assert files(tmp_path / "*.zarr", tmp_path / "b.zarr") == ["b.zarr"]
    # Of a bucket nothing but the name tells that a folder is a store.
    assert files(far) == ["a.npy", "b.zarr"]
    assert files(f"{far}/*.zarr") == ["b.zarr"]


def test_the_state_of_a_store_is_that_of_all_its_files(
    tmp_path: Path, bucket: Bucket, site: Site
) -> None:
    from rlxweb.io.access import Access

    access = Access(bucket.options)
    path = written(tmp_path / "a.zarr")
    far = put(bucket, path, "a.zarr")
    local, there = identity(str(path)), identity(far, access)
    assert local
    assert there
    bucket.fs.pipe(f"{bucket.name}/a.zarr/c/0/0", b"another")
    (path / "c" / "0" / "0").write_bytes(b"another")
    assert identity(str(path)) != local
    assert identity(far, access) != there
    assert identity(put_on_the_web(site, path, "a.zarr")) == ""


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Zarr waits for ever for what never comes; tests do not."""
    with zarr.config.set({"async.timeout": 60}):
        yield
