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
from assembly.policy import headers, kind_of
from assembly.serve import Server, open_server

from tests.command_line import started
from tests.site_build import ASSEMBLE
from tests.threads import WAIT_S, begin
from tests.waiting import next_line


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


def get(
    server: Server, path: str, how: str = "GET", host: str = ""
) -> http.client.HTTPResponse:
    """The answer, read; the path goes out as it stands."""
    asking = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    asking.putrequest(how, path, skip_host=True)
    asking.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    asking.endheaders()
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


@pytest.fixture
def secrets(folder: Path) -> Path:
    """A folder beside the site with a file, and ways to it that the site has."""
    beside = folder.parent / "secret"
    beside.mkdir()
    (beside / "index.html").write_text("secret", "utf-8")
    (folder / "link.html").symlink_to(beside / "index.html")
    (folder / "relative.html").symlink_to("../secret/index.html")
    (folder / "linked").symlink_to(beside, target_is_directory=True)
    (folder / "page").mkdir()
    (folder / "page" / "index.html").symlink_to(beside / "index.html")
    (folder / "loop").symlink_to("loop")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret", "utf-8")
    (folder / ".htaccess").write_text("secret", "utf-8")
    return beside


@pytest.mark.parametrize("how", ["GET", "HEAD"])
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
def test_no_file_of_another_folder_and_no_list(
    server: Server, folder: Path, secrets: Path, path: str, how: str
) -> None:
    """No link, dots or codes lead out of the folder; no folder is listed."""
    (folder / "folder").mkdir()
    answer = get(server, path, how)
    assert answer.status == 404
    assert answer.headers["Location"] is None


def test_a_link_inside_the_folder_is_followed(server: Server, folder: Path) -> None:
    """What it leads to is the site's own."""
    (folder / "also.js").symlink_to("a.js")
    assert get(server, "/also.js").status == 200


def test_a_folder_sends_to_its_page_on_this_host(server: Server, folder: Path) -> None:
    """A folder sends to its page with the slash that relative links need."""
    (folder / "page").mkdir()
    (folder / "page" / "index.html").write_text("x", "utf-8")
    answer = get(server, "/page")
    assert (answer.status, answer.headers["Location"]) == (301, "/page/")
    answer = get(server, "//page")
    assert answer.headers["Location"] in ("/page/", None)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here")
def test_a_pipe_is_not_waited_at(server: Server, folder: Path) -> None:
    """A pipe is not found, and nobody waits for it."""
    os.mkfifo(folder / "pipe.js")
    assert get(server, "/pipe.js").status == 404


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{}", "127.0.0.1", "localhost.evil.example:{}"],
)
def test_a_name_that_is_not_ours_gets_no_answer(server: Server, host: str) -> None:
    """A stranger's name that points at this machine (DNS rebinding)."""
    answer = get(server, "/a.html", host=host.format(server.server_port))
    assert answer.status == 421
    assert get(server, "/a.js", host=f"localhost:{server.server_port}").status == 200


@pytest.mark.parametrize(
    "path", ["/a.html", "/demo/worker.js", "/demo/live/", "/demo/playground/", "/none"]
)
def test_the_headers_of_the_policy_are_sent(
    server: Server, folder: Path, path: str
) -> None:
    """The policy's headers come with every file, and with a 404."""
    for name in ("demo/live", "demo/playground"):
        (folder / name).mkdir(parents=True)
        (folder / name / "index.html").write_text("x", "utf-8")
    (folder / "demo" / "worker.js").write_text("x", "utf-8")
    answer = get(server, path)
    assert answer.status == (404 if path == "/none" else 200)
    for name, value in headers(kind_of(path.lstrip("/"))).items():
        assert answer.headers[name] == value


@pytest.mark.parametrize(
    "target", ["http://[::1/a.js", "http://a@[x]:b/a.js", "http://evil.example/a.js"]
)
def test_a_whole_url_is_no_path(
    server: Server, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A whole URL as the path, readable or not, is not found, without a traceback."""
    answer = get(server, target)
    assert answer.status == 404
    assert answer.headers["Content-Security-Policy"]
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("how", ["POST", "PUT", "DELETE", "TRACE"])
def test_nothing_is_changed_by_a_request(server: Server, how: str) -> None:
    assert get(server, "/a.html", how).status == 501


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
    """A browser that hangs up leaves no traceback; a mistake of ours does."""
    try:
        raise what
    except type(what):
        server.handle_error(None, ("127.0.0.1", 1))
    assert (type(what).__name__ in capsys.readouterr().err) is said


def test_ctrl_c_ends_it_cleanly(folder: Path) -> None:
    """Ctrl-C ends the server with exit code 0, one line and no traceback."""
    code = (
        f"import sys; sys.path.insert(0, {str(ASSEMBLE.parent)!r})\n"
        "from pathlib import Path; from assembly.serve import serve\n"
        f"serve(Path({str(folder)!r}), 0)"
    )
    with started([sys.executable, "-c", code]) as running:
        assert running.stdout is not None
        url = next_line(running.stdout, "the address").strip()
        assert url.startswith("http://127.0.0.1:")
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=30)
    assert running.returncode == 0
    assert said.splitlines()[-1] == "site: stopped"
    assert "Traceback" not in said
