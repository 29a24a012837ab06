"""What a tab is served and what is heard of it; a real one is tried in a browser."""

from __future__ import annotations

import http.client
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlxweb.errors import UsageError
from rlxweb.smoke.tab import here, server
from rlxweb.smoke.tab.browsers import browser_path
from rlxweb.smoke.tab.package_zip import package_zip
from rlxweb.smoke.tab.runtime import runtime_folder
from rlxweb.smoke.tab.server import TabServer
from tests.command_line import python


@pytest.fixture
def pyodide(tmp_path: Path) -> Path:
    """A folder that looks like Pyodide's, beside a file that is not for the tab."""
    folder = tmp_path / "site" / "runtime"
    folder.mkdir(parents=True)
    lock = {"packages": {"numpy": {"file_name": "numpy-2.whl"}}}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")
    for name in ("pyodide.mjs", "pyodide.asm.wasm", "numpy-2.whl"):
        (folder / name).write_bytes(b"bytes of " + name.encode())
    (folder.parent / "private").write_text("private", "utf-8")
    return folder


@pytest.fixture(scope="module")
def packed() -> bytes:
    """The package in a ZIP file, made once."""
    return package_zip()


@pytest.fixture
def served(
    pyodide: Path, packed: bytes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TabServer]:
    monkeypatch.setattr(server, "package_zip", lambda: packed)
    with TabServer({"level": "quick"}, pyodide, 0, "secret") as one:
        yield one


def ask(
    server: TabServer, path: str, body: bytes | None = None, host: str = ""
) -> tuple[int, bytes, str | None]:
    """Status, body and type of an answer."""
    line = http.client.HTTPConnection(server.host, timeout=10)
    method = "GET" if body is None else "POST"
    line.request(method, path, body, {"Host": host or server.host})
    answer = line.getresponse()
    found = answer.status, answer.read(), answer.getheader("Content-Type")
    line.close()
    return found


def gone() -> str:
    return "it is gone"


# --- the server -------------------------------------------------------------------


def test_the_tab_gets_its_page_what_it_shall_do_and_python(served: TabServer) -> None:
    """The tab gets page, work and Python with the types that a browser insists on."""
    assert ask(served, "/secret/")[0] == 200
    assert ask(served, "/secret/worker.js")[2] == "text/javascript"
    assert json.loads(ask(served, "/secret/asked.json")[1]) == {"level": "quick"}
    assert ask(served, "/secret/pyodide/pyodide.mjs")[2] == "text/javascript"
    found = ask(served, "/secret/pyodide/pyodide.asm.wasm")
    assert found == (200, b"bytes of pyodide.asm.wasm", "application/wasm")
    zipfile.ZipFile(io.BytesIO(ask(served, "/secret/package.zip")[1])).testzip()


def test_only_this_machine_is_served(served: TabServer) -> None:
    """No other can reach the port."""
    assert served._server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/asked.json",
        "/Secret/asked.json",
        "/secret/pyodide/../private",
        "/secret/pyodide/..%2fprivate",
        "/secret/pyodide//etc/hostname",
        "/secret/pyodide/none",
        "/secret/pyodide/",
    ],
)
def test_nothing_else_is_served(served: TabServer, path: str) -> None:
    """Without the secret nothing is served, and with it no other file."""
    assert ask(served, path)[0] == 404
    assert ask(served, path, b"[]")[0] == 404


def test_a_page_of_another_name_for_this_machine_is_refused(served: TabServer) -> None:
    """A name that somebody pointed at 127.0.0.1 makes no page of theirs ours."""
    assert ask(served, "/secret/", host="evil.example")[0] == 404
    assert ask(served, "/secret/said", b"[]", host="evil.example")[0] == 404


def test_lines_come_out_in_their_order_up_to_the_end(served: TabServer) -> None:
    """Lines of any number of posts come out in order up to the end."""
    first = [json.dumps({"begun": name}) for name in "abc"]
    ask(served, "/secret/said", json.dumps(first).encode())
    more = [json.dumps({"row": 1}), json.dumps({"end": True}), json.dumps({"no": 1})]
    ask(served, "/secret/said", json.dumps(more).encode())
    said = list(served.lines(gone))
    assert said == [{"begun": "a"}, {"begun": "b"}, {"begun": "c"}, {"row": 1}]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'["{"]', b"5"])
def test_what_is_no_list_of_lines_is_refused(served: TabServer, body: bytes) -> None:
    """Lines that are no list are refused, and nothing of them is believed."""
    assert ask(served, "/secret/said", body)[0] == 400
    assert served.said.empty()


def test_a_browser_that_ends_is_told(served: TabServer) -> None:
    """A browser's end is told after what its tab said before."""
    ask(served, "/secret/said", json.dumps(['{"begun": "a"}']).encode())
    lines = served.lines(gone)
    assert next(lines) == {"begun": "a"}
    with pytest.raises(ConnectionError, match="it is gone"):
        next(lines)


def test_the_arguments_of_the_browser_do_not_show_the_secret(
    pyodide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine can read them; the address in them is good once."""
    statuses: list[int] = []

    def start(path: str, url: str, profile: Path) -> subprocess.Popen[bytes]:
        assert "secret" not in url
        host, _, name = url.removeprefix("http://").partition("/")
        for _ in range(2):
            line = http.client.HTTPConnection(host, timeout=10)
            line.request("GET", f"/{name}")
            statuses.append(line.getresponse().status)
            line.close()
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(here, "started", start)
    launch = here.Launch("browser", str(pyodide), str(pyodide), 0, "secret")
    with pytest.raises(ConnectionError, match="ended with exit code"):
        here.in_a_tab({"engine": {"launch": launch.as_json()}}, print)
    assert statuses == [303, 404]


def test_a_tab_that_falls_silent_is_told(served: TabServer) -> None:
    """A silent tab is told: its page speaks whatever its Worker does."""
    ask(served, "/secret/said", b"[]")
    with pytest.raises(ConnectionError, match=r"said nothing for 0\.05 s"):
        next(served.lines(lambda: "", silent_s=0.05))


# --- what is served ---------------------------------------------------------------


def test_the_package_in_the_zip_is_this_one(tmp_path: Path) -> None:
    """Unpacked elsewhere it is imported, knows its version and finds its shaders."""
    with zipfile.ZipFile(io.BytesIO(package_zip())) as archive:
        archive.extractall(tmp_path)
    said = python(
        "-I",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rlxweb; "
        "from rlxweb.kernels.source import shader_text; "
        "from importlib.metadata import version; "
        "print(rlxweb.__file__, len(shader_text('softmax')) > 100, version('rlxweb'))",
    )
    assert said.code == 0, said.err
    where, has_shaders, version = said.out.split()
    assert Path(where).is_relative_to(tmp_path)
    assert has_shaders == "True"
    assert version


def test_pyodide_is_found_in_a_site_and_alone(pyodide: Path) -> None:
    """Pyodide is found in a site and alone; what is missing of it is named."""
    assert runtime_folder(str(pyodide)) == pyodide
    assert runtime_folder(str(pyodide.parent)) == pyodide
    for name, said in (
        ("numpy-2.whl", "it lacks numpy-2.whl, its NumPy"),
        ("pyodide.asm.wasm", "it lacks pyodide.asm.wasm"),
    ):
        (pyodide / name).unlink()
        with pytest.raises(UsageError, match=said) as told:
            runtime_folder(str(pyodide))
        assert "./dev site" in str(told.value)
        (pyodide / name).touch()
    (pyodide / "pyodide-lock.json").write_text("{}", "utf-8")
    with pytest.raises(UsageError, match="names no NumPy"):
        runtime_folder(str(pyodide))
    with pytest.raises(UsageError, match=r"there is no pyodide\.mjs in it"):
        runtime_folder(str(pyodide / "nowhere"))


def test_a_browser_is_found_by_path_by_name_and_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser is found by path, name or looking, else told what was looked for."""
    made = tmp_path / "google-chrome"
    made.write_text("#!/bin/sh\n", "utf-8")
    made.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert browser_path("") == str(made)
    assert browser_path("google-chrome") == str(made)
    assert browser_path(sys.executable) == sys.executable
    with pytest.raises(UsageError, match="no program 'firefoxx'"):
        browser_path("firefoxx")
    made.unlink()
    monkeypatch.setattr("rlxweb.smoke.tab.browsers.ELSEWHERE", ())
    with pytest.raises(UsageError, match=r"none of chromium, .* is found"):
        browser_path("")
