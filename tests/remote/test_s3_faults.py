"""What S3 and its library do when things go wrong, told or got over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlxweb.dask.there import Recording, outcome_of
from rlxweb.errors import RecordingError
from rlxweb.io import open_recording, read_ahead
from rlxweb.io.access import Access
from rlxweb.jobs.settings import Settings
from tests.remote.made import COUNTS, Bucket, check_fails, npy, read
from tests.remote.site import Asked, Reply, Site

DATA = npy(COUNTS)


def test_s3_objects_and_buckets_that_are_not_there(bucket: Bucket) -> None:
    check_fails(f"s3://{bucket.name}/nix.edf", "no such file", **bucket.options)
    check_fails("s3://no-such-bucket/nix.edf", "no such", **bucket.options)


def test_s3_without_credentials(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """S3 without credentials is an error that says which process has none.

    On a cluster it is a worker, whatever its user has.
    """
    url = bucket.put("a.npy", DATA)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    check_fails(url, "no credentials", "anon set to true", **bucket.options)
    settings = Settings(fs=1.0, storage=Access(bucket.options))
    error, elsewhere = outcome_of(Recording(url, url), settings)
    assert "; seen from this process; give them where" in str(error)
    assert not elsewhere


def test_s3_object_that_changes_between_two_ranges(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "LARGEST", 16 << 10)
    url = bucket.put("a.npy", DATA)
    with open_recording(url, fs=1.0, storage_options=bucket.options) as recording:
        bucket.put("a.npy", npy(COUNTS + 1))
        with pytest.raises(RecordingError, match="changed while it was read") as caught:
            recording.groups[0].read()
    assert "etag" in str(caught.value)


def s3_faults(site: Site) -> dict[str, Any]:
    """Storage options of a server that speaks just enough of S3 to be told apart."""
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
def test_s3_refusals(
    status: int, code: str, words: tuple[str, ...], site: Site
) -> None:
    url = site.put("/bucket-x/a.npy", DATA)
    assert url

    def refuse(asked: Asked, reply: Reply) -> None:
        reply.status = status
        reply.body = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code>"
            f"<Message>told {code}</Message></Error>"
        ).encode()

    site.fault = refuse
    check_fails("s3://bucket-x/a.npy", *words, **s3_faults(site))


def test_s3_that_asks_to_slow_down_is_asked_again(site: Site) -> None:
    site.put("/bucket-x/a.npy", DATA)

    def slow(asked: Asked, reply: Reply) -> None:
        reply.headers["Last-Modified"] = "Sun, 22 Nov 2026 10:00:00 GMT"
        if asked.start is not None and len(site.asked) < 4:
            reply.status = 503
            reply.body = b"<Error><Code>SlowDown</Code><Message>no</Message></Error>"

    site.fault = slow
    found = read("s3://bucket-x/a.npy", **s3_faults(site))
    np.testing.assert_array_equal(found, COUNTS)
    assert len(site.asked) >= 4


def test_s3_body_that_breaks_off_is_asked_again_or_told(site: Site) -> None:
    site.put("/bucket-x/a.npy", DATA)

    def cut(asked: Asked, reply: Reply) -> None:
        reply.headers["Last-Modified"] = "Sun, 22 Nov 2026 10:00:00 GMT"
        if asked.start is not None and len(site.asked) < 4:
            reply.cut = 100

    site.fault = cut
    found = read("s3://bucket-x/a.npy", **s3_faults(site))
    np.testing.assert_array_equal(found, COUNTS)
