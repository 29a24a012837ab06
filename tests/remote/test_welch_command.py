"""`rlxweb welch` and `explain` on URLs: same numbers and behaviour as for local
files.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.cli_runners import CommandRunner, check_rejected
from tests.remote.faulty_web_server import Site
from tests.remote.sample_files import COUNTS, Bucket, npy_bytes, write_recordings

CPU_OPTIONS = ("--device", "cpu", "-q", "--k", "3")


def welch_groups(call: CommandRunner, *args: object) -> list[Any]:
    """Return the groups found in each file, without names."""
    result = call("welch", *args, *CPU_OPTIONS, "--json", "-")
    assert result.code == 0, result.err
    return [file["groups"] for file in result.document["files"]]


@pytest.mark.parametrize("suffix", [".edf", ".wav", ".npz"])
def test_remote_files_give_the_numbers_of_local_files(
    suffix: str, call: CommandRunner, bucket: Bucket, site: Site, tmp_path: Path
) -> None:
    local = write_recordings(tmp_path)[suffix]
    local_groups = welch_groups(call, local)
    url = bucket.add_object(f"night/a{suffix}", local.read_bytes())
    assert welch_groups(call, url, *bucket.storage_arguments) == local_groups
    assert (
        welch_groups(call, site.add_file(f"/a{suffix}", local.read_bytes()))
        == local_groups
    )
    assert welch_groups(call, local.as_uri()) == local_groups


def test_patterns_and_folders_of_a_bucket(
    call: CommandRunner, bucket: Bucket, tmp_path: Path
) -> None:
    """Files of a pattern or folder are sorted and unique; files of other kinds are
    skipped.
    """
    for name in ("b.npy", "a.npy", "c.NPY"):
        bucket.add_object(f"night/{name}", npy_bytes(COUNTS))
    bucket.add_object("night/notes.txt", b"slept well")
    bucket.add_object("night/deep/d.npy", npy_bytes(COUNTS))
    base = f"s3://{bucket.name}/night"
    options = ("--fs", 100, *bucket.storage_arguments, *CPU_OPTIONS, "--json", "-")

    def welch_paths(*names: str) -> list[str]:
        result = call("welch", *names, *options)
        assert result.code == 0, result.err
        return [file["path"].removeprefix(base) for file in result.document["files"]]

    assert welch_paths(f"{base}/*.npy", f"{base}/a.npy") == ["/a.npy", "/b.npy"]
    assert welch_paths(f"{base}/**/*.npy") == ["/a.npy", "/b.npy", "/deep/d.npy"]
    assert (
        welch_paths(f"{base}/") == welch_paths(base) == ["/a.npy", "/b.npy", "/c.NPY"]
    )
    result = call("welch", base, *options)
    assert "1 file of other kinds (.txt)" in result.err
    assert f"use '{base}/**/*.edf' to include subfolders" in result.err
    check_rejected(call("welch", f"{base}/*.wav", *options), 2, "no file matches")
    check_rejected(call("welch", f"{base}/none/", *options), 2, f"{base}/none")


def test_bad_object_fails_alone(call: CommandRunner, bucket: Bucket) -> None:
    bucket.add_object("a.npy", npy_bytes(COUNTS))
    bucket.add_object("b.npy", npy_bytes(COUNTS)[:5000])
    result = call(
        *(
            "welch",
            f"s3://{bucket.name}/*.npy",
            "--fs",
            100,
            *bucket.storage_arguments,
            *CPU_OPTIONS,
        ),
        *("--keep-going", "--json", "-"),
    )
    assert result.code == 1
    assert len(result.document["files"]) == 1
    (failed,) = result.document["failed"]
    assert failed["path"] == f"s3://{bucket.name}/b.npy"
    assert "truncated" in failed["error"]


def test_resume_skips_unchanged_remote_files(
    call: CommandRunner, bucket: Bucket, site: Site, tmp_path: Path
) -> None:
    """A resumed run reuses results of files with the same ETag, on S3 and the web, and
    of no others.
    """
    urls = [
        bucket.add_object("a.npy", npy_bytes(COUNTS)),
        site.add_file("/a.npy", npy_bytes(COUNTS)),
    ]
    bad = site.add_file("/bad.npy", b"nothing of the kind")
    out = tmp_path / "found.parquet"
    options = (
        "--fs",
        100,
        *bucket.storage_arguments,
        *CPU_OPTIONS,
        "--out",
        out,
        "--resume",
    )
    assert call("welch", *urls, bad, *options, "--keep-going").code == 1
    site.add_file("/bad.npy", npy_bytes(COUNTS))
    resumed = call("welch", *urls, bad, *options)
    assert (resumed.code, "resuming: 2 of 3" in resumed.err) == (0, True), resumed.err
    site.add_file("/bad.npy", b"nothing")
    assert call("welch", *urls, bad, *options, "--keep-going").code == 1
    bucket.add_object("a.npy", npy_bytes(COUNTS + 1))
    site.add_file("/a.npy", npy_bytes(COUNTS + 1))
    resumed = call("welch", *urls, bad, *options, "--keep-going")
    assert "resuming" not in resumed.err, resumed.err


def test_web_server_cannot_list_files(call: CommandRunner, site: Site) -> None:
    for name in (f"{site.url}/*.edf", f"{site.url}/night/"):
        result = call("welch", name, *CPU_OPTIONS)
        check_rejected(result, 2, "does not list files", "pass the URL of every file")


@pytest.mark.parametrize("option", ["--csv", "--npz", "--json", "--plot"])
def test_results_are_not_written_to_urls(
    option: str, call: CommandRunner, tmp_path: Path
) -> None:
    local = write_recordings(tmp_path)[".edf"]
    result = call("welch", local, option, "s3://b/found.png?sig=hush", *CPU_OPTIONS)
    check_rejected(result, 2, option, "local file", "upload it afterwards")
    assert "hush" not in result.err


def test_secrets_are_in_no_output(
    call: CommandRunner, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets are in no output: record, table, CSV or error."""
    url = site.add_file("/a.npy", npy_bytes(COUNTS)).replace("://", "://ann:pass-word@")
    signed = f"{url}?X-Amz-Signature=abcdef0123"
    hidden = ("pass-word", "abcdef0123", "hush-hush")
    storage = ("--storage", "headers.X-Key=hush-hush")
    csv, record = tmp_path / "a.csv", tmp_path / "a.json"
    options = ("--fs", 100, "--device", "cpu", "--explain", *storage)
    result = call("welch", signed, *options, "--csv", csv, "--json", record)
    assert result.code == 0, result.err
    assert json.loads(record.read_text())["files"][0]["path"].endswith("Signature=…")
    failed = call("welch", signed.replace("a.npy", "b.npy"), *options, "--keep-going")
    assert failed.code == 1
    explained = call("explain", signed, "--fs", 100, "--device", "cpu", *storage)
    assert explained.code == 0, explained.err
    texts = (
        result.out,
        result.err,
        failed.out,
        failed.err,
        explained.out,
        explained.err,
    )
    for text in (*texts, csv.read_text(), record.read_text()):
        assert [word for word in hidden if word in text] == []


class _FakeGoogleStorage(MemoryFileSystem):
    """Fake of Google Storage: an in-memory file system under its scheme."""

    protocol = ("gs", "gcs")
    store: dict[str, Any] = {}  # noqa: RUF012  as its parent has it
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("gs://")))


def test_other_schemes_go_through_fsspec(
    call: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry: Any = import_module("fsspec.registry")
    monkeypatch.setitem(registry._registry, "gs", _FakeGoogleStorage)
    local = tmp_path / "a.npy"
    np.save(local, COUNTS)
    fsspec.filesystem("gs").pipe("/night/a.npy", local.read_bytes())
    local_groups = welch_groups(call, local, "--fs", 100)
    assert welch_groups(call, "gs://night/*.npy", "--fs", 100) == local_groups
    assert welch_groups(call, "gs://night/a.npy", "--fs", 100) == local_groups
    chained = f"simplecache::{local.as_uri()}"
    assert welch_groups(call, chained, "--fs", 100) == local_groups
