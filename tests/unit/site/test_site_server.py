"""The server behind `./dev site --serve`."""

from __future__ import annotations

import http.client
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from assembly import serve
from assembly.errors import SiteError
from assembly.http_headers import file_kind, headers
from assembly.serve import SiteServer, open_server

from tests.built_site_fixture import ASSEMBLE
from tests.cli_runners import running_process
from tests.run_in_threads import WAIT_S, start_threads
from tests.wait_with_deadline import next_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a site folder with one file of every served type."""
    site = tmp_path / "site"
    site.mkdir()
    for end in ("html", "js", "mjs", "wasm", "json", "whl", "zip", "py", "css", "txt"):
        (site / f"a.{end}").write_bytes(b"x")
    return site


@pytest.fixture
def server(folder: Path) -> Iterator[SiteServer]:
    """Serve the folder on a free port."""
    with open_server(folder, 0) as running:
        (thread,) = start_threads([partial(running.serve_forever, 0.01)])
        yield running
        running.shutdown()
        thread.join(WAIT_S)


def get(
    server: SiteServer, path: str, method: str = "GET", host: str = ""
) -> http.client.HTTPResponse:
    """Send a request with the path unchanged, and return the answer, read."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
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
    server: SiteServer, end: str, kind: str
) -> None:
    """Browsers run modules and stream wasm only with the right type."""
    answer = get(server, f"/a.{end}")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == kind


def test_files_are_revalidated(server: SiteServer) -> None:
    """A rebuilt site shows at once."""
    assert get(server, "/a.js").headers["Cache-Control"] == "no-cache"


def test_only_errors_are_logged(
    server: SiteServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Successful requests are not logged, so that a missing file is noticed."""
    get(server, "/a.js")
    assert capsys.readouterr().err == ""
    assert get(server, "/missing.js").status == 404
    assert "missing.js" in capsys.readouterr().err


def test_the_server_is_reachable_from_this_machine_only(server: SiteServer) -> None:
    """The server listens on the loopback address."""
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.fixture
def secrets(folder: Path) -> Path:
    """Write a folder beside the site and links to it within the site; return it."""
    secret_folder = folder.parent / "secret"
    secret_folder.mkdir()
    (secret_folder / "index.html").write_text("secret", "utf-8")
    (folder / "link.html").symlink_to(secret_folder / "index.html")
    (folder / "relative.html").symlink_to("../secret/index.html")
    (folder / "linked").symlink_to(secret_folder, target_is_directory=True)
    (folder / "page").mkdir()
    (folder / "page" / "index.html").symlink_to(secret_folder / "index.html")
    (folder / "loop").symlink_to("loop")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret", "utf-8")
    (folder / ".htaccess").write_text("secret", "utf-8")
    return secret_folder


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    [
        "/link.html",
        "/relative.html",
        "/linked",
        "/linked/",
        "/linked/index.html",
        "/page/",
        "/page/index.html",
        "/loop",
        "/../secret/index.html",
        "/%2e%2e/secret/index.html",
        "/..%2fsecret%2findex.html",
        "/%2e%2e%2fsecret/index.html",
        "/a.html/../../secret/index.html",
        "/..\\secret\\index.html",
        "/..%5csecret%5cindex.html",
        "//secret/index.html",
        "/.git/config",
        "/%2egit/config",
        "/.htaccess",
        "/a.html%00",
        "/a.html/",
        "/%ff%fe",
        "/" + "a" * 5000,
        "/" + "a/" * 5000,
        "/",
        "/folder/",
    ],
)
def test_no_outside_file_and_no_listing_is_served(
    server: SiteServer, folder: Path, secrets: Path, path: str, method: str
) -> None:
    """No link, dots or escapes lead out of the folder, and no folder is listed."""
    (folder / "folder").mkdir()
    answer = get(server, path, method)
    assert answer.status == 404
    assert answer.headers["Location"] is None


def test_a_link_inside_the_folder_is_followed(server: SiteServer, folder: Path) -> None:
    """A link to a file of the site is followed."""
    (folder / "also.js").symlink_to("a.js")
    assert get(server, "/also.js").status == 200


def test_a_folder_redirects_to_its_page_on_this_host(
    server: SiteServer, folder: Path
) -> None:
    """A folder redirects to the path with the slash that relative links need."""
    (folder / "page").mkdir()
    (folder / "page" / "index.html").write_text("x", "utf-8")
    answer = get(server, "/page")
    assert (answer.status, answer.headers["Location"]) == (301, "/page/")
    answer = get(server, "//page")
    assert answer.headers["Location"] in ("/page/", None)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here")
def test_a_named_pipe_is_not_opened(server: SiteServer, folder: Path) -> None:
    """A named pipe is reported as not found, without waiting for it."""
    os.mkfifo(folder / "pipe.js")
    assert get(server, "/pipe.js").status == 404


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{}", "127.0.0.1", "localhost.evil.example:{}"],
)
def test_foreign_host_names_are_refused(server: SiteServer, host: str) -> None:
    """A foreign name that points at this machine is refused (DNS rebinding)."""
    answer = get(server, "/a.html", host=host.format(server.server_port))
    assert answer.status == 421
    assert get(server, "/a.js", host=f"localhost:{server.server_port}").status == 200


@pytest.mark.parametrize(
    "path", ["/a.html", "/demo/worker.js", "/demo/live/", "/demo/playground/", "/none"]
)
def test_the_headers_of_the_policy_are_sent(
    server: SiteServer, folder: Path, path: str
) -> None:
    """The policy's headers are sent with every file and with a 404."""
    for name in ("demo/live", "demo/playground"):
        (folder / name).mkdir(parents=True)
        (folder / name / "index.html").write_text("x", "utf-8")
    (folder / "demo" / "worker.js").write_text("x", "utf-8")
    answer = get(server, path)
    assert answer.status == (404 if path == "/none" else 200)
    for name, value in headers(file_kind(path.lstrip("/"))).items():
        assert answer.headers[name] == value


@pytest.mark.parametrize(
    "target", ["http://[::1/a.js", "http://a@[x]:b/a.js", "http://evil.example/a.js"]
)
def test_an_absolute_url_is_not_a_path(
    server: SiteServer, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An absolute URL as the path gives 404 without a traceback, whether valid or
    not.
    """
    answer = get(server, target)
    assert answer.status == 404
    assert answer.headers["Content-Security-Policy"]
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "TRACE"])
def test_nothing_is_changed_by_a_request(server: SiteServer, method: str) -> None:
    assert get(server, "/a.html", method).status == 501


def test_a_port_in_use_is_replaced_unless_it_was_requested(
    folder: Path, server: SiteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default port has an alternative; a port that the caller gave has none."""
    monkeypatch.setattr(serve, "DEFAULT_PORT", server.server_port)
    with open_server(folder, None) as other_server:
        assert other_server.server_port != server.server_port
    with pytest.raises(SiteError, match=f"port {server.server_port}: .*in use"):
        open_server(folder, server.server_port)


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [(ConnectionResetError(), False), (ValueError("a bug"), True)],
)
def test_dropped_connections_are_not_logged(
    server: SiteServer,
    error: Exception,
    is_logged: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dropped connection leaves no traceback; an error of the server does."""
    try:
        raise error
    except type(error):
        server.handle_error(None, ("127.0.0.1", 1))
    assert (type(error).__name__ in capsys.readouterr().err) is is_logged


def test_ctrl_c_ends_the_server_cleanly(folder: Path) -> None:
    """Ctrl-C ends the server with exit code 0, one line and no traceback."""
    code = (
        f"import sys; sys.path.insert(0, {str(ASSEMBLE.parent)!r})\n"
        "from pathlib import Path; from assembly.serve import serve\n"
        f"serve(Path({str(folder)!r}), 0)"
    )
    with running_process([sys.executable, "-c", code]) as running:
        assert running.stdout is not None
        url = next_line(running.stdout, "the address").strip()
        assert url.startswith("http://127.0.0.1:")
        running.send_signal(signal.SIGINT)
        _, output = running.communicate(timeout=30)
    assert running.returncode == 0
    assert output.splitlines()[-1] == "site: stopped"
    assert "Traceback" not in output
