"""Browser tab of a smoke run: files served to it and messages received from it; a
browser test runs a real one.
"""

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

from rlxweb.core.errors import UsageError
from rlxweb.smoke.tab import browser_tab, tab_server
from rlxweb.smoke.tab.browser_launch import find_browser
from rlxweb.smoke.tab.package_zip import zip_package
from rlxweb.smoke.tab.pyodide_folder import find_pyodide_folder
from rlxweb.smoke.tab.tab_server import TabServer
from tests.cli_runners import run_python


@pytest.fixture
def pyodide(tmp_path: Path) -> Path:
    """Return a folder that looks like Pyodide's, beside a file that is not for the
    tab.
    """
    folder = tmp_path / "site" / "runtime"
    folder.mkdir(parents=True)
    lock = {"packages": {"numpy": {"file_name": "numpy-2.whl"}}}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")
    for name in ("pyodide.mjs", "pyodide.asm.wasm", "numpy-2.whl"):
        (folder / name).write_bytes(b"bytes of " + name.encode())
    (folder.parent / "private").write_text("private", "utf-8")
    return folder


@pytest.fixture(scope="module")
def package_bytes() -> bytes:
    """Return the package as a ZIP file, built once."""
    return zip_package()


@pytest.fixture
def running_server(
    pyodide: Path, package_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TabServer]:
    monkeypatch.setattr(tab_server, "zip_package", lambda: package_bytes)
    with TabServer({"level": "quick"}, pyodide, 0, "secret") as running:
        yield running


def fetch(
    server: TabServer, path: str, body: bytes | None = None, host: str = ""
) -> tuple[int, bytes, str | None]:
    """Return status, body and content type of an answer."""
    connection = http.client.HTTPConnection(server.host, timeout=10)
    method = "GET" if body is None else "POST"
    connection.request(method, path, body, {"Host": host or server.host})
    answer = connection.getresponse()
    result = answer.status, answer.read(), answer.getheader("Content-Type")
    connection.close()
    return result


def ended_reason() -> str:
    return "it is gone"


# --- the server -------------------------------------------------------------------


def test_the_tab_gets_page_work_and_python(running_server: TabServer) -> None:
    """The tab gets page, work and Python with the types that browsers require."""
    assert fetch(running_server, "/secret/")[0] == 200
    assert fetch(running_server, "/secret/worker.js")[2] == "text/javascript"
    assert json.loads(fetch(running_server, "/secret/asked.json")[1]) == {
        "level": "quick"
    }
    assert fetch(running_server, "/secret/pyodide/pyodide.mjs")[2] == "text/javascript"
    wasm_answer = fetch(running_server, "/secret/pyodide/pyodide.asm.wasm")
    assert wasm_answer == (200, b"bytes of pyodide.asm.wasm", "application/wasm")
    zipfile.ZipFile(
        io.BytesIO(fetch(running_server, "/secret/package.zip")[1])
    ).testzip()


def test_only_this_machine_is_served(running_server: TabServer) -> None:
    """The server listens on the loopback address only."""
    assert running_server._http_server.server_address[0] == "127.0.0.1"


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
def test_nothing_else_is_served(running_server: TabServer, path: str) -> None:
    """Nothing is served without the secret, and no other file with it."""
    assert fetch(running_server, path)[0] == 404
    assert fetch(running_server, path, b"[]")[0] == 404


def test_other_host_names_of_this_machine_are_refused(
    running_server: TabServer,
) -> None:
    """A foreign name that points at 127.0.0.1 is refused (DNS rebinding)."""
    assert fetch(running_server, "/secret/", host="evil.example")[0] == 404
    assert fetch(running_server, "/secret/said", b"[]", host="evil.example")[0] == 404


def test_lines_keep_their_order_up_to_the_end(running_server: TabServer) -> None:
    """Lines of any number of posts keep their order up to the end."""
    first_lines = [json.dumps({"begun": name}) for name in "abc"]
    fetch(running_server, "/secret/said", json.dumps(first_lines).encode())
    more_lines = [
        json.dumps({"row": 1}),
        json.dumps({"end": True}),
        json.dumps({"no": 1}),
    ]
    fetch(running_server, "/secret/said", json.dumps(more_lines).encode())
    messages = list(running_server.messages(ended_reason))
    assert messages == [{"begun": "a"}, {"begun": "b"}, {"begun": "c"}, {"row": 1}]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'["{"]', b"5"])
def test_malformed_lines_are_refused(running_server: TabServer, body: bytes) -> None:
    """A post that is no list of JSON lines is refused as a whole."""
    assert fetch(running_server, "/secret/said", body)[0] == 400
    assert running_server.message_queue.empty()


def test_the_end_of_a_browser_is_reported(running_server: TabServer) -> None:
    """The end of a browser is reported after the lines that its tab sent."""
    fetch(running_server, "/secret/said", json.dumps(['{"begun": "a"}']).encode())
    lines = running_server.messages(ended_reason)
    assert next(lines) == {"begun": "a"}
    with pytest.raises(ConnectionError, match="it is gone"):
        next(lines)


def test_the_arguments_of_the_browser_do_not_show_the_secret(
    pyodide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL in the browser's arguments, which every user can read, works only
    once.
    """
    statuses: list[int] = []

    def fake_start(path: str, url: str, profile: Path) -> subprocess.Popen[bytes]:
        assert "secret" not in url
        host, _, name = url.removeprefix("http://").partition("/")
        for _ in range(2):
            connection = http.client.HTTPConnection(host, timeout=10)
            connection.request("GET", f"/{name}")
            statuses.append(connection.getresponse().status)
            connection.close()
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(browser_tab, "start_browser", fake_start)
    launch = browser_tab.TabLaunch("browser", str(pyodide), str(pyodide), 0, "secret")
    with pytest.raises(ConnectionError, match="ended with exit code"):
        browser_tab.run_in_browser_tab({"engine": {"launch": launch.as_json()}}, print)
    assert statuses == [303, 404]


def test_a_silent_tab_is_reported(running_server: TabServer) -> None:
    """A silent tab is reported, since its page sends messages whatever its Worker
    does.
    """
    fetch(running_server, "/secret/said", b"[]")
    with pytest.raises(ConnectionError, match=r"sent no message for 0\.05 s"):
        next(running_server.messages(lambda: "", max_silence_s=0.05))


# --- what is served ---------------------------------------------------------------


def test_the_zipped_package_can_be_imported(tmp_path: Path) -> None:
    """The unpacked package is imported, knows its version and finds its shaders."""
    with zipfile.ZipFile(io.BytesIO(zip_package())) as archive:
        archive.extractall(tmp_path)
    result = run_python(
        "-I",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rlxweb; "
        "from rlxweb.codegen.wgsl_module import load_shader_text; "
        "from importlib.metadata import version; "
        "print(rlxweb.__file__, len(load_shader_text('softmax')) > 100, "
        "version('rlxweb'))",
    )
    assert result.code == 0, result.err
    module_path, has_shaders, version = result.out.split()
    assert Path(module_path).is_relative_to(tmp_path)
    assert has_shaders == "True"
    assert version


def test_pyodide_is_found_in_a_site_and_alone(pyodide: Path) -> None:
    """Pyodide is found in a site and alone; missing files are named."""
    assert find_pyodide_folder(str(pyodide)) == pyodide
    assert find_pyodide_folder(str(pyodide.parent)) == pyodide
    for name, message in (
        ("numpy-2.whl", "the NumPy wheel numpy-2.whl is missing"),
        ("pyodide.asm.wasm", "pyodide.asm.wasm is missing"),
    ):
        (pyodide / name).unlink()
        with pytest.raises(UsageError, match=message) as error_info:
            find_pyodide_folder(str(pyodide))
        assert "./dev site" in str(error_info.value)
        (pyodide / name).touch()
    (pyodide / "pyodide-lock.json").write_text("{}", "utf-8")
    with pytest.raises(UsageError, match="has no NumPy entry"):
        find_pyodide_folder(str(pyodide))
    with pytest.raises(UsageError, match=r"pyodide\.mjs is missing"):
        find_pyodide_folder(str(pyodide / "nowhere"))


def test_a_browser_is_found_by_path_by_name_and_by_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser is found by path, name or search; otherwise the error lists the names
    tried.
    """
    program = tmp_path / "google-chrome"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_browser("") == str(program)
    assert find_browser("google-chrome") == str(program)
    assert find_browser(sys.executable) == sys.executable
    with pytest.raises(UsageError, match="the program 'firefoxx' was not found"):
        find_browser("firefoxx")
    program.unlink()
    monkeypatch.setattr("rlxweb.smoke.tab.browser_launch.INSTALL_PATHS", ())
    with pytest.raises(UsageError, match=r"found none of chromium, "):
        find_browser("")
