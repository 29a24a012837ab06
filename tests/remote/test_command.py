"""`rlxweb welch` and `explain` on URLs: the numbers and the manners of local files."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.command_line import Call, check_refused
from tests.remote.made import COUNTS, Bucket, npy, recordings
from tests.remote.site import Site

CPU = ("--device", "cpu", "-q", "--k", "3")


def groups(call: Call, *args: object) -> list[Any]:
    """What was found, file for file, without names."""
    said = call("welch", *args, *CPU, "--json", "-")
    assert said.code == 0, said.err
    return [file["groups"] for file in said.record["files"]]


@pytest.mark.parametrize("suffix", [".edf", ".wav", ".npz"])
def test_numbers_from_s3_and_from_the_web_are_those_of_the_file(
    suffix: str, call: Call, bucket: Bucket, site: Site, tmp_path: Path
) -> None:
    local = recordings(tmp_path)[suffix]
    near = groups(call, local)
    far = bucket.put(f"night/a{suffix}", local.read_bytes())
    assert groups(call, far, *bucket.storage) == near
    assert groups(call, site.put(f"/a{suffix}", local.read_bytes())) == near
    assert groups(call, local.as_uri()) == near


def test_patterns_and_folders_of_a_bucket(
    call: Call, bucket: Bucket, tmp_path: Path
) -> None:
    """Files of a pattern or folder are sorted, each once; others are passed over."""
    for name in ("b.npy", "a.npy", "c.NPY"):
        bucket.put(f"night/{name}", npy(COUNTS))
    bucket.put("night/notes.txt", b"slept well")
    bucket.put("night/deep/d.npy", npy(COUNTS))
    base = f"s3://{bucket.name}/night"
    how = ("--fs", 100, *bucket.storage, *CPU, "--json", "-")

    def files(*names: str) -> list[str]:
        said = call("welch", *names, *how)
        assert said.code == 0, said.err
        return [file["path"].removeprefix(base) for file in said.record["files"]]

    assert files(f"{base}/*.npy", f"{base}/a.npy") == ["/a.npy", "/b.npy"]
    assert files(f"{base}/**/*.npy") == ["/a.npy", "/b.npy", "/deep/d.npy"]
    assert files(f"{base}/") == files(base) == ["/a.npy", "/b.npy", "/c.NPY"]
    said = call("welch", base, *how)
    assert "1 file of other kinds (.txt)" in said.err
    assert f"'{base}/**/*.edf' reaches down" in said.err
    check_refused(call("welch", f"{base}/*.wav", *how), 2, "no file matches")
    check_refused(call("welch", f"{base}/none/", *how), 2, f"{base}/none")


def test_a_bad_object_costs_itself_alone(call: Call, bucket: Bucket) -> None:
    bucket.put("a.npy", npy(COUNTS))
    bucket.put("b.npy", npy(COUNTS)[:5000])
    said = call(
        *("welch", f"s3://{bucket.name}/*.npy", "--fs", 100, *bucket.storage, *CPU),
        *("--keep-going", "--json", "-"),
    )
    assert said.code == 1
    assert len(said.record["files"]) == 1
    (failed,) = said.record["failed"]
    assert failed["path"] == f"s3://{bucket.name}/b.npy"
    assert "cut short" in failed["error"]


def test_a_run_takes_up_what_has_not_changed_on_the_server(
    call: Call, bucket: Bucket, site: Site, tmp_path: Path
) -> None:
    """A run takes up what has the same ETag, of S3 and of the web, and no other."""
    urls = [bucket.put("a.npy", npy(COUNTS)), site.put("/a.npy", npy(COUNTS))]
    bad = site.put("/bad.npy", b"nothing of the kind")
    out = tmp_path / "found.parquet"
    how = ("--fs", 100, *bucket.storage, *CPU, "--out", out, "--resume")
    assert call("welch", *urls, bad, *how, "--keep-going").code == 1
    site.put("/bad.npy", npy(COUNTS))
    again = call("welch", *urls, bad, *how)
    assert (again.code, "taken up: 2 of 3" in again.err) == (0, True), again.err
    site.put("/bad.npy", b"nothing")
    assert call("welch", *urls, bad, *how, "--keep-going").code == 1
    bucket.put("a.npy", npy(COUNTS + 1))
    site.put("/a.npy", npy(COUNTS + 1))
    again = call("welch", *urls, bad, *how, "--keep-going")
    assert "taken up" not in again.err, again.err


def test_a_web_server_lists_nothing(call: Call, site: Site) -> None:
    for name in (f"{site.url}/*.edf", f"{site.url}/night/"):
        said = call("welch", name, *CPU)
        check_refused(said, 2, "lists no files", "name every file by its URL")


@pytest.mark.parametrize("option", ["--csv", "--npz", "--json", "--plot"])
def test_results_are_not_written_to_urls(
    option: str, call: Call, tmp_path: Path
) -> None:
    local = recordings(tmp_path)[".edf"]
    said = call("welch", local, option, "s3://b/found.png?sig=hush", *CPU)
    check_refused(said, 2, option, "this machine", "send it on")
    assert "hush" not in said.err


def test_secrets_are_in_no_output(
    call: Call, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets are in no output: record, table, CSV or error."""
    url = site.put("/a.npy", npy(COUNTS)).replace("://", "://ann:pass-word@")
    signed = f"{url}?X-Amz-Signature=abcdef0123"
    hidden = ("pass-word", "abcdef0123", "hush-hush")
    storage = ("--storage", "headers.X-Key=hush-hush")
    csv, record = tmp_path / "a.csv", tmp_path / "a.json"
    how = ("--fs", 100, "--device", "cpu", "--explain", *storage)
    said = call("welch", signed, *how, "--csv", csv, "--json", record)
    assert said.code == 0, said.err
    assert json.loads(record.read_text())["files"][0]["path"].endswith("Signature=…")
    bad = call("welch", signed.replace("a.npy", "b.npy"), *how, "--keep-going")
    assert bad.code == 1
    one = call("explain", signed, "--fs", 100, "--device", "cpu", *storage)
    assert one.code == 0, one.err
    texts = (said.out, said.err, bad.out, bad.err, one.out, one.err)
    for text in (*texts, csv.read_text(), record.read_text()):
        assert [word for word in hidden if word in text] == []


class _Gs(MemoryFileSystem):
    """Google Storage, as far as a scheme goes."""

    protocol = ("gs", "gcs")
    store: dict[str, Any] = {}  # noqa: RUF012  as its parent has it
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("gs://")))


def test_other_schemes_go_through_fsspec(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry: Any = import_module("fsspec.registry")
    monkeypatch.setitem(registry._registry, "gs", _Gs)
    local = tmp_path / "a.npy"
    np.save(local, COUNTS)
    fsspec.filesystem("gs").pipe("/night/a.npy", local.read_bytes())
    near = groups(call, local, "--fs", 100)
    assert groups(call, "gs://night/*.npy", "--fs", 100) == near
    assert groups(call, "gs://night/a.npy", "--fs", 100) == near
    chained = f"simplecache::{local.as_uri()}"
    assert groups(call, chained, "--fs", 100) == near
