"""What goes wrong on the way: told with the URL and both numbers, or got over."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from rlxweb.cli.storage import access_of
from rlxweb.errors import RecordingError, UsageError
from rlxweb.io import open_recording, read_ahead
from rlxweb.io.access import Access
from rlxweb.io.http_ranges import HttpRanges
from tests.remote.made import COUNTS, check_fails, npy, read
from tests.remote.site import Asked, Reply, Site, served

DATA = npy(COUNTS)
FSSPEC: Any = import_module("fsspec.registry")


@pytest.fixture
def url(site: Site, monkeypatch: pytest.MonkeyPatch) -> str:
    """An array of several blocks on a web server."""
    monkeypatch.setattr(read_ahead, "LARGEST", 16 << 10)
    return site.put("/a.npy", DATA)


def test_a_server_that_closes_half_way_is_asked_for_the_rest(
    site: Site, url: str
) -> None:
    def cut(asked: Asked, reply: Reply) -> None:
        reply.cut = 5000

    site.fault = cut
    np.testing.assert_array_equal(read(url), COUNTS)
    assert site.sent == len(DATA)


def test_a_file_that_is_cut_on_the_server_is_an_error_with_both_numbers(
    site: Site, url: str
) -> None:
    """A file cut on the server is an error with the bytes wanted and those that came.

    Its headers promise what never comes.
    """

    def cut(asked: Asked, reply: Reply) -> None:
        reply.cut = max(0, min(len(reply.body), 20_000 - (asked.start or 0)))

    site.fault = cut
    said = check_fails(url, url, "stops before the end", "bytes wanted at offset")
    assert "3616 came" in said


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_server_that_fails_for_a_moment_is_asked_again(
    status: int, site: Site, url: str
) -> None:
    def fail(asked: Asked, reply: Reply) -> None:
        if len(site.asked) % 3:
            reply.status, reply.body = status, b"oops"

    site.fault = fail
    np.testing.assert_array_equal(read(url), COUNTS)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, ("wants credentials", "HTTP 401")),
        (403, ("refuses", "HTTP 403", "expired")),
        (404, ("no such file", "HTTP 404")),
        (418, ("refuses", "HTTP 418")),
        (500, ("failed", "HTTP 500", "again later")),
        (503, ("slow down", "HTTP 503")),
    ],
)
def test_a_refusal_says_what_it_means(
    status: int, words: tuple[str, ...], site: Site, url: str
) -> None:
    def refuse(asked: Asked, reply: Reply) -> None:
        reply.status, reply.body = status, b""

    site.fault = refuse
    check_fails(url, url, *words)
    assert len(site.asked) == (4 if status in (500, 503) else 1)


def test_a_refusal_in_the_middle_leaves_nothing_half_read(site: Site, url: str) -> None:
    """Credentials that expire while a file is read."""

    def expire(asked: Asked, reply: Reply) -> None:
        if asked.start:
            reply.status, reply.body = 403, b""

    site.fault = expire
    check_fails(url, "HTTP 403", "expired")


def test_a_server_without_ranges_is_read_once_whole(site: Site, url: str) -> None:
    site.knows_ranges = False
    np.testing.assert_array_equal(read(url), COUNTS)
    assert len(site.asked) == 1


def test_a_large_file_of_a_server_without_ranges_is_refused(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlxweb.io.http_ranges.WHOLE_NBYTES", 20_000)
    site.knows_ranges = False
    check_fails(url, "knows no ranges", str(len(DATA)), "20000", "download")


def test_a_whole_answer_that_breaks_off_is_not_taken(site: Site, url: str) -> None:
    def cut(asked: Asked, reply: Reply) -> None:
        reply.cut = 30_000

    site.knows_ranges, site.fault = False, cut
    check_fails(url, "stops before the end")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("bytes 5-16388/48128", ("another range", "asked for", "5")),
        ("nonsense", ("another range", "nothing")),
        ("bytes 0-16383/*", ("another range",)),
    ],
)
def test_a_range_that_was_not_asked_for_is_refused(
    place: str, words: tuple[str, ...], site: Site, url: str
) -> None:
    def lie(asked: Asked, reply: Reply) -> None:
        reply.headers["Content-Range"] = place

    site.fault = lie
    check_fails(url, *words)


def test_packed_ranges_are_refused(site: Site, url: str) -> None:
    def pack(asked: Asked, reply: Reply) -> None:
        reply.headers["Content-Encoding"] = "br"
        reply.status = 206

    site.fault = pack
    with pytest.raises(RecordingError):
        read(url)


@pytest.mark.parametrize("what", ["etag", "length"])
def test_a_file_that_changes_between_two_ranges_is_named(
    what: str, site: Site, url: str
) -> None:
    def change(asked: Asked, reply: Reply) -> None:
        if asked.start and what == "etag":
            reply.headers["ETag"] = '"another"'
        elif asked.start:
            place = reply.headers["Content-Range"].partition("/")[0]
            reply.headers["Content-Range"] = f"{place}/99999"

    site.fault = change
    words = ("ETag was", '"another"') if what == "etag" else ("length was", "99999")
    check_fails(url, "changed while it was read", *words)


def test_a_file_that_gets_shorter_is_told(site: Site, url: str) -> None:
    def cut(asked: Asked, reply: Reply) -> None:
        if asked.start:
            reply.status, reply.body = 416, b""
            reply.headers["Content-Range"] = "bytes */20000"

    site.fault = cut
    check_fails(url, "changed while it was read", "20000", str(len(DATA)))


def test_an_empty_file_is_told(site: Site) -> None:
    check_fails(site.put("/empty.npy", b""), "empty", "0 bytes")


def test_redirects_are_followed(site: Site, url: str) -> None:
    site.redirects["/old.npy"] = url
    np.testing.assert_array_equal(read(f"{site.url}/old.npy"), COUNTS)
    site.redirects["/loop.npy"] = f"{site.url}/loop.npy"
    check_fails(f"{site.url}/loop.npy", "from one URL to the next")


def test_a_server_that_gives_nothing_is_given_up(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlxweb.io.http_ranges.STALL_S", 0.3)

    def wait(asked: Asked, reply: Reply) -> None:
        reply.wait_s = 60

    site.fault = wait
    check_fails(url, "gives nothing", "0.3 s", "0 of 16384 bytes")


def test_no_server_and_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlxweb.io.http_ranges.PAUSES_S", ())
    with served() as gone:
        url = gone.put("/a.npy", b"")
    check_fails(url, url, "cannot be reached")
    check_fails("http://nowhere.invalid/a.npy", "cannot be reached", "nowhere.invalid")


def test_a_server_that_is_gone_for_good_holds_nobody_up(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a server that is gone are tried once each, after an answer more."""
    tries = 0

    async def refused(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise ConnectionRefusedError("nobody listens")

    def tried() -> int:
        nonlocal tries
        tries = 0
        with monkeypatch.context() as patch:
            patch.setattr(HttpRanges, "_stream", refused)
            check_fails(url, url, "nobody listens")
        return tries

    assert [tried(), tried()] == [4, 4]
    monkeypatch.setattr("rlxweb.io.http_ranges.GONE_S", 0.0)
    assert [tried(), tried()] == [1, 1]
    np.testing.assert_array_equal(read(url), COUNTS)
    assert [tried(), tried()] == [2, 1]


def test_an_unknown_scheme_gets_a_suggestion() -> None:
    check_fails("htps://h/a.edf", "no file system 'htps'", "did you mean 'https'")


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
    for name in [*FSSPEC.registry]:
        monkeypatch.delitem(FSSPEC._registry, name)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    check_fails(url, "is missing", command)


def test_a_block_that_failed_is_fetched_again_by_the_next_read(
    site: Site, url: str
) -> None:
    down = True

    def fail(asked: Asked, reply: Reply) -> None:
        if down and asked.start:
            reply.status, reply.body = 403, b""

    site.fault = fail
    with open_recording(url, fs=1.0) as recording:
        with pytest.raises(RecordingError, match="403"):
            recording.groups[0].read()
        down = False
        np.testing.assert_array_equal(recording.groups[0].read(), COUNTS)


def test_many_threads_read_the_same(site: Site, url: str) -> None:
    with open_recording(url, fs=1.0) as recording:
        (group,) = recording.groups
        wrong: list[int] = []

        def walk(size: int) -> None:
            for block in group.blocks(size):
                if not np.array_equal(block.data, COUNTS[:, block.start : block.stop]):
                    wrong.append(size)

        threads = [threading.Thread(target=walk, args=(n,)) for n in (500, 977, 6000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong


# --- secrets --------------------------------------------------------------------------

SIGNED = "X-Amz-Signature=abcdef0123&X-Amz-Credential=AKIAxyzzy&versionId=7"


def test_no_secret_of_a_url_is_ever_told(site: Site, url: str) -> None:
    """A password or signature in a URL is in no error, name or `repr`."""
    secret = f"{url.replace('://', '://ann:pass-word@')}?{SIGNED}"
    with open_recording(secret, fs=1.0) as recording:
        told = [recording.path, repr(recording), repr(recording.groups)]
    site.fault = lambda asked, reply: setattr(reply, "status", 403)
    told.append(check_fails(secret, "versionId=7", "…@"))
    told.append(check_fails(secret.replace("a.npy", "nix.npy")))
    for text in told:
        for word in ("ann:", "pass-word", "abcdef0123", "AKIAxyzzy"):
            assert word not in text


def test_storage_options_are_never_shown() -> None:
    access = Access({"key": "AKIAxyzzy", "client_kwargs": {"token": "tok-secret"}})
    assert "xyzzy" not in repr(access)
    said = access.cleaned("refused AKIAxyzzy with tok-secret")
    assert said == "refused … with …"


def test_urls_that_differ_only_in_what_is_hidden_are_not_mixed_up() -> None:
    access = Access()
    name = access.admit("https://h/a.edf?sig=one")
    assert access.url_of(name) == "https://h/a.edf?sig=one"
    with pytest.raises(UsageError, match="differ only in what is not shown"):
        access.admit("https://h/a.edf?sig=two")


def test_storage_options_of_the_command_line() -> None:
    made = access_of(
        ["anon=true", "client_kwargs.endpoint_url=http://h:1", "key=0123", "retries=3"]
    )
    assert made.options == {
        "anon": True,
        "client_kwargs": {"endpoint_url": "http://h:1"},
        "key": "0123",
        "retries": 3,
    }
    for wrong in (
        ["secretvalue-without-name"],
        ["=x"],
        ["a=1", "a=2"],
        ["a=1", "a.b=2"],
    ):
        with pytest.raises(UsageError) as caught:
            access_of(wrong)
        assert "without-name" not in str(caught.value)
