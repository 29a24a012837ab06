"""What tests of remote recordings share: a web server of ours, and moto's S3."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.remote.made import Bucket
from tests.remote.site import Site, served


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A web server; what gives nothing is asked again without a pause."""
    monkeypatch.setattr("rlxweb.io.http_ranges.PAUSES_S", (0.0, 0.0, 0.0))
    with served() as site:
        yield site


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The server of moto, on a port of its own."""
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
    """An empty bucket, and the credentials to it in the environment of this process."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "hush-hush-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    made = Bucket(s3_server)
    yield made
    made.empty()


@pytest.fixture(autouse=True)
def _no_kept_file_systems() -> Iterator[None]:
    """File systems keep sessions and listings; every test begins without."""
    yield
    import fsspec

    for kind in fsspec.spec.AbstractFileSystem.__subclasses__():
        _forget(kind)


def _forget(kind: Any) -> None:
    kind.clear_instance_cache()
    for inner in kind.__subclasses__():
        _forget(inner)
