"""HTTP faults while reading: reported with the URL and both numbers, or recovered
from.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from rlxweb.cli.remote_storage_option import parse_access
from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.io import open_recording, read_ahead
from rlxweb.io.http_ranges import HttpRangeReader
from rlxweb.io.storage_options import StorageAccess
from tests.remote.faulty_web_server import HttpReply, HttpRequest, Site, run_site
from tests.remote.sample_files import COUNTS, check_fails, npy_bytes, read_samples

DATA = npy_bytes(COUNTS)
FSSPEC_REGISTRY: Any = import_module("fsspec.registry")


@pytest.fixture
def url(site: Site, monkeypatch: pytest.MonkeyPatch) -> str:
    """Serve an array of several blocks on a web server."""
    monkeypatch.setattr(read_ahead, "MAX_BLOCK_NBYTES", 16 << 10)
    return site.add_file("/a.npy", DATA)


def test_rest_is_requested_after_a_closed_connection(site: Site, url: str) -> None:
    def cut(request: HttpRequest, reply: HttpReply) -> None:
        reply.cut = 5000

    site.fault = cut
    np.testing.assert_array_equal(read_samples(url), COUNTS)
    assert site.sent_nbytes == len(DATA)


def test_truncated_file_is_an_error_with_both_sizes(site: Site, url: str) -> None:
    """A file truncated on the server is an error with the bytes requested and received.

    Its headers promise what never comes.
    """

    def cut(request: HttpRequest, reply: HttpReply) -> None:
        reply.cut = max(0, min(len(reply.body), 20_000 - (request.start or 0)))

    site.fault = cut
    check_fails(
        url,
        url,
        "response ends early",
        "expected 16384 bytes at offset 16384, got 3616",
    )


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_temporary_failures_are_retried(status: int, site: Site, url: str) -> None:
    def fail(request: HttpRequest, reply: HttpReply) -> None:
        if len(site.requests) % 3:
            reply.status, reply.body = status, b"oops"

    site.fault = fail
    np.testing.assert_array_equal(read_samples(url), COUNTS)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, ("requires credentials", "HTTP 401")),
        (403, ("refuses", "HTTP 403", "expired")),
        (404, ("the file does not exist", "HTTP 404")),
        (418, ("refuses", "HTTP 418")),
        (500, ("failed", "HTTP 500", "again later")),
        (503, ("limits the request rate", "HTTP 503")),
    ],
)
def test_http_status_is_explained(
    status: int, words: tuple[str, ...], site: Site, url: str
) -> None:
    def refuse(request: HttpRequest, reply: HttpReply) -> None:
        reply.status, reply.body = status, b""

    site.fault = refuse
    check_fails(url, url, *words)
    assert len(site.requests) == (4 if status in (500, 503) else 1)


def test_expired_credentials_while_reading(site: Site, url: str) -> None:
    """Credentials that expire while a file is read are an error."""

    def expire(request: HttpRequest, reply: HttpReply) -> None:
        if request.start:
            reply.status, reply.body = 403, b""

    site.fault = expire
    check_fails(url, "HTTP 403", "expired")


def test_server_without_ranges_is_read_in_one_request(site: Site, url: str) -> None:
    site.supports_ranges = False
    np.testing.assert_array_equal(read_samples(url), COUNTS)
    assert len(site.requests) == 1


def test_large_file_without_ranges_is_rejected(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlxweb.io.http_ranges.MAX_WHOLE_FILE_NBYTES", 20_000)
    site.supports_ranges = False
    check_fails(
        url,
        "does not support range requests",
        str(len(DATA)),
        "20000",
        "download",
    )


def test_truncated_full_reply_is_rejected(site: Site, url: str) -> None:
    def cut(request: HttpRequest, reply: HttpReply) -> None:
        reply.cut = 30_000

    site.supports_ranges, site.fault = False, cut
    check_fails(url, "ends early")


@pytest.mark.parametrize(
    ("content_range", "words"),
    [
        (
            "bytes 5-16388/48128",
            ("a different range", "requested bytes", "got bytes from offset 5"),
        ),
        ("nonsense", ("a different range", "got a response without an offset")),
        ("bytes 0-16383/*", ("a different range",)),
    ],
)
def test_wrong_content_range_is_rejected(
    content_range: str, words: tuple[str, ...], site: Site, url: str
) -> None:
    def lie(request: HttpRequest, reply: HttpReply) -> None:
        reply.headers["Content-Range"] = content_range

    site.fault = lie
    check_fails(url, *words)


def test_compressed_ranges_are_rejected(site: Site, url: str) -> None:
    def compress(request: HttpRequest, reply: HttpReply) -> None:
        reply.headers["Content-Encoding"] = "br"
        reply.status = 206

    site.fault = compress
    with pytest.raises(RecordingError):
        read_samples(url)


@pytest.mark.parametrize("changed", ["etag", "length"])
def test_file_changed_between_ranges_is_an_error(
    changed: str, site: Site, url: str
) -> None:
    def change(request: HttpRequest, reply: HttpReply) -> None:
        if request.start and changed == "etag":
            reply.headers["ETag"] = '"another"'
        elif request.start:
            content_range = reply.headers["Content-Range"].partition("/")[0]
            reply.headers["Content-Range"] = f"{content_range}/99999"

    site.fault = change
    words = (
        ("ETag changed", '"another"')
        if changed == "etag"
        else ("length changed", "99999")
    )
    check_fails(url, "changed while it was being read", *words)


def test_file_that_gets_shorter_is_an_error(site: Site, url: str) -> None:
    def cut(request: HttpRequest, reply: HttpReply) -> None:
        if request.start:
            reply.status, reply.body = 416, b""
            reply.headers["Content-Range"] = "bytes */20000"

    site.fault = cut
    check_fails(url, "changed while it was being read", "20000", str(len(DATA)))


def test_empty_file_is_an_error(site: Site) -> None:
    check_fails(site.add_file("/empty.npy", b""), "empty", "0 bytes")


def test_redirects_are_followed(site: Site, url: str) -> None:
    site.redirects["/old.npy"] = url
    np.testing.assert_array_equal(read_samples(f"{site.url}/old.npy"), COUNTS)
    site.redirects["/loop.npy"] = f"{site.url}/loop.npy"
    check_fails(f"{site.url}/loop.npy", "redirects too many times")


def test_stalled_server_times_out(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlxweb.io.http_ranges.STALL_TIMEOUT_S", 0.3)

    def wait(request: HttpRequest, reply: HttpReply) -> None:
        reply.wait_s = 60

    site.fault = wait
    check_fails(url, "stops sending data", "0.3 s", "0 of 16384 bytes")


def test_unreachable_server_and_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlxweb.io.http_ranges.RETRY_DELAYS_S", ())
    with run_site() as stopped_site:
        url = stopped_site.add_file("/a.npy", b"")
    check_fails(url, url, "cannot be reached")
    check_fails("http://nowhere.invalid/a.npy", "cannot be reached", "nowhere.invalid")


def test_unreachable_server_is_not_retried_for_every_file(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of an unreachable server is tried once, and more often after a
    successful reply.
    """
    attempts = 0

    async def refuse(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise ConnectionRefusedError("nobody listens")

    def count_attempts() -> int:
        nonlocal attempts
        attempts = 0
        with monkeypatch.context() as patch:
            patch.setattr(HttpRangeReader, "_stream_response", refuse)
            check_fails(url, url, "nobody listens")
        return attempts

    assert [count_attempts(), count_attempts()] == [4, 4]
    monkeypatch.setattr("rlxweb.io.http_ranges.SERVER_DOWN_AFTER_S", 0.0)
    assert [count_attempts(), count_attempts()] == [1, 1]
    np.testing.assert_array_equal(read_samples(url), COUNTS)
    assert [count_attempts(), count_attempts()] == [2, 1]


def test_an_unknown_scheme_gets_a_suggestion() -> None:
    check_fails(
        "htps://h/a.edf", "file system 'htps' is not supported", "did you mean 'https'"
    )


@pytest.mark.parametrize(
    ("package", "url", "command"),
    [
        ("s3fs", "s3://b/a.edf", "pip install s3fs"),
        ("gcsfs", "gs://b/a.edf", "pip install gcsfs"),
        ("aiohttp", "https://h/a.edf", "pip install aiohttp"),
        ("fsspec", "s3://b/a.edf", "pip install rlxweb[dask] s3fs"),
    ],
)
def test_a_missing_package_is_named(
    package: str, url: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*FSSPEC_REGISTRY.registry]:
        monkeypatch.delitem(FSSPEC_REGISTRY._registry, name)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    check_fails(url, "is not installed", command)


def test_failed_block_is_fetched_by_the_next_read(site: Site, url: str) -> None:
    is_down = True

    def fail(request: HttpRequest, reply: HttpReply) -> None:
        if is_down and request.start:
            reply.status, reply.body = 403, b""

    site.fault = fail
    with open_recording(url, fs=1.0) as recording:
        with pytest.raises(RecordingError, match="403"):
            recording.groups[0].read()
        is_down = False
        np.testing.assert_array_equal(recording.groups[0].read(), COUNTS)


def test_threads_read_the_same_samples(site: Site, url: str) -> None:
    with open_recording(url, fs=1.0) as recording:
        (group,) = recording.groups
        wrong: list[int] = []

        def read_blocks(size: int) -> None:
            for block in group.blocks(size):
                if not np.array_equal(block.data, COUNTS[:, block.start : block.stop]):
                    wrong.append(size)

        threads = [
            threading.Thread(target=read_blocks, args=(n,)) for n in (500, 977, 6000)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong


# --- secrets --------------------------------------------------------------------------

SIGNED_QUERY = "X-Amz-Signature=abcdef0123&X-Amz-Credential=AKIAxyzzy&versionId=7"


def test_secrets_of_a_url_are_never_shown(site: Site, url: str) -> None:
    """A password or signature in a URL is in no error, name or `repr`."""
    secret_url = f"{url.replace('://', '://ann:pass-word@')}?{SIGNED_QUERY}"
    with open_recording(secret_url, fs=1.0) as recording:
        texts = [recording.path, repr(recording), repr(recording.groups)]
    site.fault = lambda request, reply: setattr(reply, "status", 403)
    texts.append(check_fails(secret_url, "versionId=7", "…@"))
    texts.append(check_fails(secret_url.replace("a.npy", "nix.npy")))
    for text in texts:
        for word in ("ann:", "pass-word", "abcdef0123", "AKIAxyzzy"):
            assert word not in text


def test_storage_options_are_never_shown() -> None:
    access = StorageAccess(
        {"key": "AKIAxyzzy", "client_kwargs": {"token": "tok-secret"}}
    )
    assert "xyzzy" not in repr(access)
    message = access.redact("refused AKIAxyzzy with tok-secret")
    assert message == "refused … with …"


def test_urls_that_differ_only_in_secrets_are_rejected() -> None:
    access = StorageAccess()
    name = access.register_url("https://h/a.edf?sig=one")
    assert access.full_url(name) == "https://h/a.edf?sig=one"
    with pytest.raises(UsageError, match="differ only in hidden parts"):
        access.register_url("https://h/a.edf?sig=two")


def test_storage_options_of_the_command_line() -> None:
    access = parse_access(
        ["anon=true", "client_kwargs.endpoint_url=http://h:1", "key=0123", "retries=3"]
    )
    assert access.options == {
        "anon": True,
        "client_kwargs": {"endpoint_url": "http://h:1"},
        "key": "0123",
        "retries": 3,
    }
    for options in (
        ["secretvalue-without-name"],
        ["=x"],
        ["a=1", "a=2"],
        ["a=1", "a.b=2"],
    ):
        with pytest.raises(UsageError) as caught:
            parse_access(options)
        assert "without-name" not in str(caught.value)
