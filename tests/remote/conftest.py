"""Fixtures of remote recordings: a local web server and moto's S3."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.remote.faulty_web_server import Site, run_site
from tests.remote.sample_files import Bucket


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Run a web server; failed requests are repeated without a pause."""
    monkeypatch.setattr("rlxweb.io.http_ranges.RETRY_DELAYS_S", (0.0, 0.0, 0.0))
    with run_site() as site:
        yield site


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Run moto's server on a free port and yield its URL."""
    from moto.server import ThreadedMotoServer

    # It logs each request to the stderr of the test that started it, which is closed.
    logging.getLogger("werkzeug").disabled = True
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Yield an empty bucket, with its credentials in this process's environment."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "hush-hush-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    new_bucket = Bucket(s3_server)
    yield new_bucket
    new_bucket.empty()


@pytest.fixture(autouse=True)
def _clear_file_system_caches() -> Iterator[None]:
    """Clear the sessions and listings that fsspec's file systems cache, after every
    test.
    """
    yield
    import fsspec

    for file_system in fsspec.spec.AbstractFileSystem.__subclasses__():
        _clear_caches(file_system)


def _clear_caches(file_system: Any) -> None:
    file_system.clear_instance_cache()
    for subclass in file_system.__subclasses__():
        _clear_caches(subclass)
