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

from rlxweb.core.errors import RecordingError, RecordingWarning, UnknownName, UsageError
from rlxweb.io import chunked_array_reader, open_recording
from rlxweb.io.recording_state_fingerprint import state_fingerprint
from tests.cli_runners import CommandRunner
from tests.remote.faulty_web_server import Site
from tests.remote.sample_files import COUNTS, Bucket

FS = {"fs": 250.0}


def write_array(
    path: Path, data: np.ndarray = COUNTS, chunks: Any = (2, 700), **more: Any
) -> Path:
    """Write a store with one array whose attributes hold the sampling rate."""
    attributes = more.pop("attributes", FS)
    array = zarr.create_array(
        path, shape=data.shape, chunks=chunks, dtype=data.dtype, **more
    )
    array[...] = data
    array.attrs.update(attributes)
    return path


def check_samples(path: object, wanted: np.ndarray = COUNTS, **options: Any) -> None:
    """Check the samples, all at once and in blocks of several sizes."""
    with open_recording(str(path), **options) as recording:
        (group,) = recording.groups
        assert (recording.format, group.fs) == ("Zarr", 250.0)
        np.testing.assert_array_equal(group.read(), wanted)
        for size in (1, 333, 700, 1401) if wanted.shape[1] < 9000 else (4096,):
            for block in group.blocks(max(size, 50), 7):
                part = wanted[:, block.start : block.stop]
                np.testing.assert_array_equal(block.data, part)


def upload_store(bucket: Bucket, folder: Path, name: str) -> str:
    """Copy a store into a bucket and return its URL."""
    bucket.fs.put(str(folder), f"{bucket.name}/{name}", recursive=True)
    return f"s3://{bucket.name}/{name}"


def serve_store(site: Site, folder: Path, name: str) -> str:
    """Serve a store's files on a web server and return its URL."""
    for path in folder.rglob("*"):
        if path.is_file():
            key = path.relative_to(folder).as_posix()
            site.add_file(f"/{name}/{key}", path.read_bytes())
    return f"{site.url}/{name}"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["i1", "u2", "<i2", ">i2", "i4", "f2", "f4", ">f8"])
def test_arrays_of_every_dtype_are_read_exactly(
    version: int, dtype: str, tmp_path: Path
) -> None:
    data = (COUNTS[:, :1500] % 100).astype(dtype)
    path = write_array(tmp_path / "a.zarr", data, zarr_format=version)
    check_samples(path, data)
    with open_recording(path) as recording:
        digital = recording.groups[0].digital
    assert (digital is not None) == (np.dtype(dtype).str[1:] in ("i1", "u2", "i2"))


def test_layouts_ranks_and_shards(tmp_path: Path) -> None:
    transposed = write_array(tmp_path / "t.zarr", COUNTS.T.copy(), (700, 3))
    check_samples(transposed, layout="samples-first")
    check_samples(write_array(tmp_path / "one.zarr", COUNTS[0], (700,)), COUNTS[:1])
    sharded = write_array(tmp_path / "s.zarr", COUNTS, (2, 500), shards=(4, 2000))
    check_samples(sharded)
    with ZipStore(tmp_path / "z.zarr.zip", mode="w") as store:
        shape = {"shape": COUNTS.shape, "dtype": "i2"}
        zarr.create_array(store, **shape, attributes=FS)[...] = COUNTS
    check_samples(tmp_path / "z.zarr.zip")
    cube = write_array(tmp_path / "c.zarr", np.zeros((2, 2, 2)), (1, 1, 1))
    with pytest.raises(RecordingError, match="3 axes"):
        open_recording(cube)


def test_channels_are_selected_by_name_in_any_order(tmp_path: Path) -> None:
    names = {"channels": ["Fp1", "Cz", "O1", "EOG"], "units": "uV", **FS}
    path = write_array(tmp_path / "a.zarr", attributes=names)
    with open_recording(path, channels=["O1", "Fp1"]) as recording:
        (group,) = recording.groups
        assert [c.unit for c in group.channels] == ["uV", "uV"]
        np.testing.assert_array_equal(group.read(10, 900), COUNTS[[2, 0], 10:900])


def test_sequential_read_decodes_every_chunk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sequential read decodes every chunk once, also where blocks end within one.

    More than once is needed where no chunk can be held.
    """
    path = write_array(tmp_path / "a.zarr")
    reads: Counter[str] = Counter()
    original_get = LocalStore.get

    async def get(self: Any, key: str, *rest: Any, **options: Any) -> Any:
        reads[key] += 1
        return await original_get(self, key, *rest, **options)

    monkeypatch.setattr(LocalStore, "get", get)

    def count_chunk_reads() -> dict[str, int]:
        reads.clear()
        with open_recording(path) as recording:
            for block in recording.groups[0].blocks(300):
                part = COUNTS[:, block.start : block.stop]
                np.testing.assert_array_equal(block.data, part)
        return {key: count for key, count in reads.items() if key.startswith("c/")}

    assert set(count_chunk_reads().values()) == {1}
    monkeypatch.setattr(chunked_array_reader, "MAX_CACHED_NBYTES", 1000)
    assert max(count_chunk_reads().values()) > 1


def test_scaled_integers_stay_digital(tmp_path: Path) -> None:
    """Integers with scale_factor and add_offset, as xarray writes, stay digital.

    Their values are count · scale_factor + add_offset.
    """
    notes = {"scale_factor": 0.5, "add_offset": -3.0, **FS}
    path = write_array(tmp_path / "a.zarr", attributes=notes)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.digital, group.dtype) == (np.int16, np.float64)
        np.testing.assert_allclose(group.read(), COUNTS * 0.5 - 3.0, rtol=1e-12)
    wide = write_array(tmp_path / "b.zarr", COUNTS.astype("i4"), attributes=notes)
    with pytest.raises(RecordingError, match="scale_factor"):
        open_recording(wide)


@pytest.mark.parametrize(
    ("attributes", "options", "match"),
    [
        ({}, {}, "no attribute fs, sampling_frequency, .* or sfreq contains a rate"),
        (
            {"fs": 100, "sampling_rate": 200},
            {},
            "conflicting sampling rates.*100 .*200 ",
        ),
        ({"fs": 100}, {"fs": 99}, "the file declares 100 Hz"),
        ({"fs": 100, "channels": ["a"]}, {}, "1 entry for 4 channels"),
        ({"fs": 100, "scale_factor": 0}, {}, "scale_factor is 0"),
    ],
)
def test_contradictory_attributes_are_rejected(
    attributes: dict[str, Any], options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    path = write_array(tmp_path / "a.zarr", attributes=attributes)
    with pytest.raises(RecordingError, match=match):
        open_recording(path, **options)


def test_meaningless_attributes_give_a_warning(tmp_path: Path) -> None:
    attributes = {"fs": "fast", "sampling_rate": 250, "channels": 7}
    path = write_array(tmp_path / "a.zarr", attributes=attributes)
    with pytest.warns(RecordingWarning, match="is ignored"):
        check_samples(path)


def write_group(path: Path) -> Path:
    """Write a group with two arrays and its rate, and a nested group with one array."""
    group = zarr.open_group(path, mode="w", attributes=FS)
    for name, data in (("eeg", COUNTS), ("emg", COUNTS[:2])):
        group.create_array(name, data=data)
    group.create_group("deep").create_array("x", data=COUNTS[:1], attributes=FS)
    group.create_array("channels", data=np.arange(4))
    return path


def test_array_of_a_group_is_selected_by_name(tmp_path: Path, bucket: Bucket) -> None:
    path = write_group(tmp_path / "g.zarr")
    check_samples(path, array="eeg")
    check_samples(path, COUNTS[:1], array="deep/x")
    url = upload_store(bucket, path, "g.zarr")
    check_samples(url, array="emg", wanted=COUNTS[:2], storage_options=bucket.options)
    with pytest.raises(RecordingError, match=r"3 arrays.*'deep/x', 'eeg', 'emg'"):
        open_recording(path)
    with pytest.raises(UnknownName, match=r"did you mean .*'eeg'"):
        open_recording(path, array="egg")
    single = write_array(tmp_path / "a.zarr")
    with pytest.raises(RecordingError, match="single array"):
        open_recording(single, array="eeg")


def test_stores_in_a_bucket_and_on_the_web(
    tmp_path: Path, bucket: Bucket, site: Site
) -> None:
    path = write_array(tmp_path / "a.zarr")
    check_samples(
        upload_store(bucket, path, "night/a.zarr"), storage_options=bucket.options
    )
    check_samples(serve_store(site, path, "a.zarr"))
    group = serve_store(site, write_group(tmp_path / "g.zarr"), "g.zarr")
    check_samples(group, array="eeg")
    check_samples(f"{group}/deep/x", COUNTS[:1])
    with pytest.raises(RecordingError, match="does not list names"):
        open_recording(group)
    with pytest.raises(UnknownName, match="no array is named 'nix'"):
        open_recording(group, array="nix")


def test_remote_zip_store(tmp_path: Path, bucket: Bucket, site: Site) -> None:
    """A zipped store is read by ranges; a server without ranges is rejected."""
    path = write_array(tmp_path / "a.zarr", chunks=(4, 700))
    data = Path(make_archive(str(path), "zip", path)).read_bytes()
    check_samples(bucket.add_object("a.zarr.zip", data), storage_options=bucket.options)
    url = site.add_file("/a.zarr.zip", data)
    check_samples(url)
    site.supports_ranges = False
    other = site.add_file("/b.zarr.zip", data)
    with pytest.raises(
        RecordingError, match=r"needs range requests.*download the file"
    ):
        open_recording(other)


def test_remote_chunk_takes_one_request(
    tmp_path: Path, bucket: Bucket, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk takes one request to a bucket or web server; storage options of the user
    are kept.
    """
    path = write_array(tmp_path / "a.zarr", chunks=(4, 700))
    methods: list[str] = []
    original_call = S3FileSystem._call_s3

    async def record_call(self: Any, method: str, *args: Any, **options: Any) -> Any:
        methods.append(method)
        return await original_call(self, method, *args, **options)

    monkeypatch.setattr(S3FileSystem, "_call_s3", record_call)
    url = upload_store(bucket, path, "a.zarr")
    user_options = {**bucket.options, "max_concurrency": 4}
    for options, wanted in (
        (bucket.options, {"get_object": 9}),
        (user_options, {"get_object": 9, "head_object": 9}),
    ):
        with open_recording(url, storage_options=options) as recording:
            methods.clear()
            recording.groups[0].read()
        assert Counter(methods) == wanted
    with open_recording(serve_store(site, path, "a.zarr")) as recording:
        site.requests.clear()
        recording.groups[0].read()
    assert len(site.requests) == 9


def test_missing_chunks_give_the_fill_value_and_a_warning(
    tmp_path: Path, site: Site
) -> None:
    """Missing chunks read as the fill value, with one warning once they are read."""
    path = write_array(tmp_path / "a.zarr", fill_value=7)
    (path / "c" / "1" / "3").unlink()
    wanted = COUNTS.copy()
    wanted[2:, 2100:2800] = 7
    for name in (path, serve_store(site, path, "a.zarr")):
        with open_recording(str(name)) as recording:
            recording.groups[0].read(0, 700)
            assert recording.warnings == ()
            with pytest.warns(RecordingWarning, match=r"never written.*c/1/3.*value 7"):
                samples = recording.groups[0].read()
            np.testing.assert_array_equal(samples, wanted)
            assert len(recording.warnings) == 1


def test_nan_fill_value_is_rejected_like_any_nan(
    tmp_path: Path, call: CommandRunner
) -> None:
    data = COUNTS.astype("f4")
    path = write_array(tmp_path / "a.zarr", data, fill_value=np.nan)
    (path / "c" / "0" / "2").unlink()
    options = ("--device", "cpu", "-q", "--json", "-")
    result = call("welch", path, *options)
    assert result.code == 2
    assert "at sample 1400" in result.err
    result = call("welch", path, *options, "--nan", "propagate")
    assert result.code == 0
    assert "never written" in result.document["files"][0]["warnings"][0]


BROKEN_STORES: dict[str, tuple[str, bytes | None, str]] = {
    "a chunk of garbage": ("c/0/1", b"garbage" * 9, "samples 0 to 6000 cannot be read"),
    "an empty chunk": ("c/0/1", b"", "samples 0 to 6000 cannot be read"),
    "no metadata": ("zarr.json", None, "folder"),
    "half the metadata": ("zarr.json", b'{"zarr_form', "cannot be opened as Zarr"),
}


@pytest.mark.parametrize("defect", BROKEN_STORES)
def test_broken_store_is_an_error_with_its_path(defect: str, tmp_path: Path) -> None:
    key, data, match = BROKEN_STORES[defect]
    path = write_array(tmp_path / "a.zarr")
    if data is None:
        (path / key).unlink()
    else:
        (path / key).write_bytes(data)
    with pytest.raises(RecordingError, match=match) as caught:
        with open_recording(path) as recording:
            recording.groups[0].read()
    assert str(path) in str(caught.value)


def test_truncated_uncompressed_chunk_is_an_error(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a.zarr", compressors=None)
    chunk = path / "c" / "0" / "1"
    chunk.write_bytes(chunk.read_bytes()[:100])
    with open_recording(path) as recording:
        with pytest.raises(RecordingError, match="cannot be read"):
            recording.groups[0].read()


def test_missing_codec_is_named(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a.zarr")
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["codecs"][-1] = {"name": "their-own"}
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(RecordingError, match=r"codec is not installed.*their-own"):
        open_recording(path)


def test_text_arrays_and_closed_stores_are_rejected(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "w.zarr", shape=(4,), dtype="U5", zarr_format=2)
    with pytest.raises(RecordingError, match="samples must be int8"):
        open_recording(tmp_path / "w.zarr")
    recording = open_recording(write_array(tmp_path / "a.zarr"))
    recording.close()
    with pytest.raises(RecordingError, match="is closed"):
        recording.groups[0].read()
    with pytest.raises(UsageError, match="layout"):
        open_recording(tmp_path / "a.zarr", layout="up")  # type: ignore[arg-type]


def test_stores_among_the_recordings_of_a_folder(
    tmp_path: Path, call: CommandRunner, bucket: Bucket
) -> None:
    write_array(tmp_path / "b.zarr")
    write_array(tmp_path / "named_otherwise")
    np.save(tmp_path / "a.npy", COUNTS)
    url = upload_store(bucket, tmp_path, "night")
    options = (
        "--fs",
        250,
        "--device",
        "cpu",
        "-q",
        *bucket.storage_arguments,
        "--json",
        "-",
    )

    def welch_file_names(*names: object) -> list[str]:
        result = call("welch", *names, *options)
        assert result.code == 0, result.err
        return [Path(file["path"]).name for file in result.document["files"]]

    assert welch_file_names(tmp_path) == ["a.npy", "b.zarr", "named_otherwise"]
    assert welch_file_names(tmp_path / "*.zarr", tmp_path / "b.zarr") == ["b.zarr"]
    # Of a bucket nothing but the name tells that a folder is a store.
    assert welch_file_names(url) == ["a.npy", "b.zarr"]
    assert welch_file_names(f"{url}/*.zarr") == ["b.zarr"]


def test_identity_of_a_store_depends_on_all_its_files(
    tmp_path: Path, bucket: Bucket, site: Site
) -> None:
    from rlxweb.io.storage_options import StorageAccess

    access = StorageAccess(bucket.options)
    path = write_array(tmp_path / "a.zarr")
    url = upload_store(bucket, path, "a.zarr")
    local_identity = state_fingerprint(str(path))
    remote_identity = state_fingerprint(url, access)
    assert local_identity
    assert remote_identity
    bucket.fs.pipe(f"{bucket.name}/a.zarr/c/0/0", b"another")
    (path / "c" / "0" / "0").write_bytes(b"another")
    assert state_fingerprint(str(path)) != local_identity
    assert state_fingerprint(url, access) != remote_identity
    assert state_fingerprint(serve_store(site, path, "a.zarr")) == ""


@pytest.fixture(autouse=True)
def _limit_zarr_timeout() -> Iterator[None]:
    """Limit how long Zarr waits for a reply, which is forever by default."""
    with zarr.config.set({"async.timeout": 60}):
        yield
