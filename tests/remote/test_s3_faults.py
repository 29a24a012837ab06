"""Faults of S3 and its library: reported, or recovered from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.batch.cluster.worker_tasks import RecordingPath, analyse_recording
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import RecordingError
from rlxweb.io import open_recording, read_ahead
from rlxweb.io.storage_options import StorageAccess
from tests.remote.faulty_web_server import HttpReply, HttpRequest, Site
from tests.remote.sample_files import (
    COUNTS,
    Bucket,
    check_fails,
    npy_bytes,
    read_samples,
)

DATA = npy_bytes(COUNTS)


def test_missing_s3_objects_and_buckets(bucket: Bucket) -> None:
    check_fails(
        f"s3://{bucket.name}/nix.edf",
        "the file or bucket does not exist",
        **bucket.options,
    )
    check_fails(
        "s3://no-such-bucket/nix.edf",
        "the file or bucket does not exist",
        **bucket.options,
    )


def test_s3_without_credentials(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Missing S3 credentials are an error that names the process without them.

    On a cluster it is a worker, whatever its user has.
    """
    url = bucket.add_object("a.npy", DATA)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    check_fails(
        url, "no credentials", "set the storage option anon to true", **bucket.options
    )
    settings = Settings(fs=1.0, storage=StorageAccess(bucket.options))
    error, is_retryable = analyse_recording(RecordingPath(url, url), settings)
    assert "; raised in this process; set the credentials where" in str(error)
    assert not is_retryable


def test_s3_object_that_changes_between_two_ranges(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "MAX_BLOCK_NBYTES", 16 << 10)
    url = bucket.add_object("a.npy", DATA)
    with open_recording(url, fs=1.0, storage_options=bucket.options) as recording:
        bucket.add_object("a.npy", npy_bytes(COUNTS + 1))
        with pytest.raises(
            RecordingError, match="changed while it was being read"
        ) as caught:
            recording.groups[0].read()
    assert "etag" in str(caught.value)


def site_storage_options(site: Site) -> dict[str, Any]:
    """Return the storage options of a test site that imitates enough of S3."""
    return {
        "endpoint_url": site.url,
        "key": "testing",
        "secret": "hush-hush-secret",
        "config_kwargs": {"retries": {"max_attempts": 1}},
    }


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "ExpiredToken", ("refuses", "expired")),
        (403, "AccessDenied", ("refuses", "credentials")),
        (403, "InvalidAccessKeyId", ("refuses", "credentials")),
    ],
)
def test_s3_access_errors(
    status: int, code: str, words: tuple[str, ...], site: Site
) -> None:
    url = site.add_file("/bucket-x/a.npy", DATA)
    assert url

    def refuse(request: HttpRequest, reply: HttpReply) -> None:
        reply.status = status
        reply.body = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code>"
            f"<Message>told {code}</Message></Error>"
        ).encode()

    site.fault = refuse
    check_fails("s3://bucket-x/a.npy", *words, **site_storage_options(site))


def test_s3_slow_down_is_retried(site: Site) -> None:
    site.add_file("/bucket-x/a.npy", DATA)

    def slow_down(request: HttpRequest, reply: HttpReply) -> None:
        reply.headers["Last-Modified"] = "Sun, 22 Nov 2026 10:00:00 GMT"
        if request.start is not None and len(site.requests) < 4:
            reply.status = 503
            reply.body = b"<Error><Code>SlowDown</Code><Message>no</Message></Error>"

    site.fault = slow_down
    samples = read_samples("s3://bucket-x/a.npy", **site_storage_options(site))
    np.testing.assert_array_equal(samples, COUNTS)
    assert len(site.requests) >= 4


def test_truncated_s3_body_is_retried(site: Site) -> None:
    site.add_file("/bucket-x/a.npy", DATA)

    def cut(request: HttpRequest, reply: HttpReply) -> None:
        reply.headers["Last-Modified"] = "Sun, 22 Nov 2026 10:00:00 GMT"
        if request.start is not None and len(site.requests) < 4:
            reply.cut = 100

    site.fault = cut
    samples = read_samples("s3://bucket-x/a.npy", **site_storage_options(site))
    np.testing.assert_array_equal(samples, COUNTS)
