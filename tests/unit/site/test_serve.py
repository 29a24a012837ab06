"""The server behind `./dev site --serve`."""

from __future__ import annotations

import http.client
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from assembly import serve
from assembly.errors import SiteError
from assembly.serve import Server, open_server

from tests.command_line import started
from tests.site_build import ASSEMBLE
from tests.threads import WAIT_S, begin


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of every kind that has to be served."""
    site = tmp_path / "site"
    site.mkdir()
    for end in ("html", "js", "mjs", "wasm", "json", "whl", "zip", "py", "css", "txt"):
        (site / f"a.{end}").write_bytes(b"x")
    return site


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """The folder, served on a free port."""
    with open_server(folder, 0) as running:
        (thread,) = begin([partial(running.serve_forever, 0.01)])
        yield running
        running.shutdown()
        thread.join(WAIT_S)


def get(server: Server, path: str) -> http.client.HTTPResponse:
    """The answer, read."""
    asking = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    asking.request("GET", path)
    answer = asking.getresponse()
    answer.read()
    asking.close()
    return answer


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ("html", "text/html"),
        ("js", "text/javascript"),
        ("mjs", "text/javascript"),
        ("wasm", "application/wasm"),
        ("json", "application/json"),
        ("css", "text/css"),
        ("whl", "application/zip"),
        ("zip", "application/zip"),
        ("py", "text/plain; charset=utf-8"),
    ],
)
def test_files_have_the_types_that_browsers_insist_on(
    server: Server, end: str, kind: str
) -> None:
    """A module of another type is not run, wasm of another type is not streamed."""
    answer = get(server, f"/a.{end}")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == kind


def test_nothing_is_stale(server: Server) -> None:
    """A rebuilt site shows at once."""
    assert get(server, "/a.js").headers["Cache-Control"] == "no-cache"


def test_only_errors_are_logged(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hundred files per visit would hide the one that is missing."""
    get(server, "/a.js")
    assert capsys.readouterr().err == ""
    assert get(server, "/missing.js").status == 404
    assert "missing.js" in capsys.readouterr().err


def test_it_is_reachable_from_this_machine_only(server: Server) -> None:
    """The address is the loopback's."""
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


def test_a_taken_port_gives_way_unless_it_was_asked_for(
    folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual port has an alternative; a number the caller gave has none."""
    monkeypatch.setattr(serve, "PORT", server.server_port)
    with open_server(folder, None) as other:
        assert other.server_port != server.server_port
    with pytest.raises(SiteError, match=f"port {server.server_port}: .*in use"):
        open_server(folder, server.server_port)


@pytest.mark.parametrize(
    ("what", "said"), [(ConnectionResetError(), False), (ValueError("a bug"), True)]
)
def test_a_browser_that_hangs_up_is_no_news(
    server: Server, what: Exception, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It leaves no traceback; a mistake of ours does."""
    try:
        raise what
    except type(what):
        server.handle_error(None, ("127.0.0.1", 1))
    assert (type(what).__name__ in capsys.readouterr().err) is said


def test_ctrl_c_ends_it_cleanly(folder: Path) -> None:
    """Exit code 0, one line, no traceback."""
    code = (
        f"import sys; sys.path.insert(0, {str(ASSEMBLE.parent)!r})\n"
        "from pathlib import Path; from assembly.serve import serve\n"
        f"serve(Path({str(folder)!r}), 0)"
    )
    with started([sys.executable, "-c", code]) as running:
        assert running.stdout is not None
        url = running.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=30)
    assert running.returncode == 0
    assert said.splitlines()[-1] == "site: stopped"
    assert "Traceback" not in said
