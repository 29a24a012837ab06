"""The page of a running signal as it is asked for; a browser tries it elsewhere."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import tomllib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import RecordingError, UsageError
from rlxweb.live import web
from rlxweb.live.board import MOST_VIEWERS, Board
from rlxweb.live.source import Stream
from rlxweb.live.watch import Update
from rlxweb.live.web import SITE_PARTS, LivePage, merged, strongest
from rlxweb.pages.parts import KEPT_AT, site_part
from rlxweb.signal.bands import band_power_of
from rlxweb.signal.stream_frame import Mean
from tests.command_line import ROOT

PAGE = ROOT / "rlxweb" / "live" / "page"
FS = 128.0
NAMES = ("Cz", "</script>\u202e", "脳波")
X = np.random.default_rng(3).standard_normal((3, 1280))
X += 3 * np.sin(2 * np.pi * 10 * np.arange(1280) / FS)
ABOUT = Stream("made", FS, NAMES, "uV")


def estimate() -> rlx.WelchStream:
    return rlx.WelchStream(FS, 256, 3, 3, fmin=0.5)


def update(samples: int = 1280, **more: Any) -> Update:
    stream = estimate()
    frame = stream.push(X[:, :samples])[-1]
    bands = band_power_of(frame.f, frame.power, {"alpha": (8, 13), "beta": (13, 30)})
    own = {"rate": 127.9, "latency_s": 0.002, "lost": 0, "silent_s": 0.1}
    given = {"seconds": stream.seconds, "bands": bands, **own, **more}
    return Update(ABOUT, frame, **given)


@pytest.fixture
def page() -> Iterator[LivePage]:
    bands = {"alpha": (8.0, 13.0), "beta": (13.0, 30.0)}
    with LivePage(ABOUT, estimate(), about="Segments.", bands=bands) as made:
        yield made


def ask(
    page: LivePage, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Status, body and head of an answer."""
    line = http.client.HTTPConnection(page.host, timeout=20)
    line.request(method, path, headers={"Host": page.host, **headers})
    answer = line.getresponse()
    found = answer.status, answer.read(), answer.headers
    line.close()
    return found


class Viewer:
    """A reader of the events, as a browser is one."""

    def __init__(self, page: LivePage, query: str = "") -> None:
        self.line = http.client.HTTPConnection(page.host, timeout=20)
        self.line.request("GET", f"{page.prefix}events{query}")
        self.answer = self.line.getresponse()

    def next(self) -> tuple[str, Any]:
        """The next event: its kind and what it tells."""
        kind = ""
        while True:
            line = self.answer.readline().decode()
            assert line, "the stream ended"
            if line.startswith("event: "):
                kind = line.removeprefix("event: ").strip()
            if line.startswith("data: "):
                return kind, json.loads(line.removeprefix("data: "))

    def close(self) -> None:
        self.answer.close()
        self.line.close()


# --- what is served ---------------------------------------------------------------


def test_the_page_asks_for_nothing_but_what_is_served(page: LivePage) -> None:
    """Every file that the page, its styles and its modules name; nothing of others."""
    asked = set()
    for name, body in page.files.items():
        if name.endswith((".svg", ".css")):
            assert b"url(" not in body
            continue
        text = body.decode()
        assert "://" not in text.replace("http://www.w3.org", "")
        for found in re.findall(r'(?:src=|href=|from )"([^"#]+)"', text):
            here = Path(name).parent if name else Path()
            asked.add(str((ROOT / here / found).resolve().relative_to(ROOT)))
    assert asked <= set(page.files)
    assert set(page.files) - asked == {""}


def test_files_come_with_their_type_and_a_policy(page: LivePage) -> None:
    """Files come with a policy that lets the page reach nothing but this server."""
    for name, kind in (
        ("", "text/html; charset=utf-8"),
        ("page.js", "text/javascript"),
        ("demo/shared.css", "text/css; charset=utf-8"),
        ("demo/icon.svg", "image/svg+xml"),
    ):
        status, body, head = ask(page, page.prefix + name)
        assert (status, body) == (200, page.files[name])
        assert head["Content-Type"] == kind
        policy = head["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert head["X-Frame-Options"] == "DENY"
        assert head["Referrer-Policy"] == "no-referrer"
        assert head["Access-Control-Allow-Origin"] is None


def test_the_wheel_gets_the_parts_of_the_demo() -> None:
    """Files of the site that the page is made of are named where the wheel is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name in SITE_PARTS:
        assert included[f"site/{name}"] == f"rlxweb/{KEPT_AT}/{name}"
        assert site_part(name, "") == (ROOT / "site" / name).read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/events",
        "/page.js",
        "/{}x/",
        "/{}/../page.js",
        "/{}/page.py",
        "/{}/demo/../../pyproject.toml",
        "/{}/%2e%2e/web.py",
        "http://evil.example/{}/",
    ],
)
def test_nothing_else_is_served(page: LivePage, path: str) -> None:
    secret = page.prefix.strip("/")
    assert ask(page, path.format(secret))[0] == 404
    assert page.board.viewers == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_pages_of_others_are_refused(page: LivePage, headers: dict[str, str]) -> None:
    """A name that somebody pointed at 127.0.0.1 makes no page of theirs ours."""
    for name in ("", "events"):
        assert ask(page, page.prefix + name, **headers)[0] == 404


def test_nothing_is_taken(page: LivePage) -> None:
    assert ask(page, page.prefix, "POST")[0] == 404
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert ask(page, page.prefix, method)[0] == 501


def test_an_address_for_command_lines_is_good_once(page: LivePage) -> None:
    """A one-time address leads to the lasting page once, and later to nothing."""
    path = page.url_once().removeprefix(f"http://{page.host}")
    assert path not in page.url
    assert ask(page, path, Host="evil.example")[0] == 404
    status, _, head = ask(page, path)
    assert (status, head["Location"]) == (303, page.url)
    assert ask(page, path)[0] == 404


def test_nobody_is_asked_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup would go to the network, and may take seconds without one."""

    def asked(*name: str) -> str:
        raise AssertionError(f"{name} was looked up")

    for lookup in ("getfqdn", "gethostbyaddr", "gethostbyname", "getnameinfo"):
        monkeypatch.setattr(socket, lookup, asked)
    with LivePage(ABOUT, estimate()) as page:
        assert ask(page, page.prefix)[0] == 200


def test_only_this_machine_is_served_and_a_taken_port_is_told(page: LivePage) -> None:
    assert page._server.server_address[0] == "127.0.0.1"
    port = int(page.host.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"port {port} cannot be listened on"):
        LivePage(ABOUT, estimate(), port=port)


# --- what is told -----------------------------------------------------------------


def test_a_viewer_is_told_the_signal_then_its_updates(page: LivePage) -> None:
    viewer = Viewer(page, "?rows=0,2")
    assert viewer.answer.headers["Content-Type"] == "text/event-stream"
    kind, about = viewer.next()
    assert kind == "about"
    assert about["channels"] == list(NAMES)
    assert about["rows"] == [0, 2]
    assert (about["unit"], about["fs"], about["first"]) == ("µV", FS, 0.5)
    assert about["bands"] == [["alpha", 8.0, 13.0], ["beta", 13.0, 30.0]]
    given = update()
    page.tell(given)
    kind, told = viewer.next()
    assert kind == ""
    assert given.frame is not None
    power = np.frombuffer(b64decode(told["power"]), "<f8").reshape(2, -1)
    np.testing.assert_array_equal(power, given.frame.power[[0, 2]])
    assert about["bins"] == power.shape[1]
    peaks = given.frame.peaks
    for row, found in zip((0, 2), told["peaks"], strict=True):
        assert [hz for hz, _ in found] == peaks.hz[row, : peaks.count[row]].tolist()
        assert found[0][0] == pytest.approx(10.0, abs=0.1)
    assert np.sum(told["shares"], axis=1) == pytest.approx([1.0, 1.0])
    assert (told["seconds"], told["latency_ms"], told["lost"]) == (10.0, 2.0, 0)
    # A silence tells no spectrum again.
    page.tell(
        Update(
            ABOUT, given.frame, 10.0, float("nan"), float("nan"), 7, 3.0, given.bands
        )
    )
    _, told = viewer.next()
    assert (told["stalled"], told["silent"], told["lost"]) == (True, 3.0, 7)
    assert (told["rate"], told["latency_ms"]) == (None, None)
    assert "power" not in told
    viewer.close()


@pytest.mark.parametrize("rows", ["3", "-1", "a", "0,,1", ",".join(["0"] * 257)])
def test_channels_that_are_not_there_are_refused(page: LivePage, rows: str) -> None:
    assert ask(page, f"{page.prefix}events?rows={rows}")[0] == 400


@pytest.mark.parametrize("error", [None, RecordingError("watching", "it is gone")])
def test_the_end_is_told_after_the_last_update(error: Exception | None) -> None:
    """The end is told after the last update, with the reason if there is one."""
    page = LivePage(ABOUT, estimate())
    page.__enter__()
    viewer = Viewer(page)
    viewer.next()
    page.tell(update())
    gone = threading.Thread(target=page.__exit__, args=(type(error), error, None))
    gone.start()
    assert viewer.next()[0] == ""
    kind, told = viewer.next()
    assert (kind, told["words"]) == ("end", str(error or ""))
    viewer.close()
    gone.join(timeout=20)
    assert not gone.is_alive()


def test_who_reads_nothing_holds_up_nobody(
    page: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer that does not read misses updates; the teller and others do not wait."""
    viewers = [Viewer(page, "?rows=0,1,2"), Viewer(page)]
    lazy = socket.create_connection(page.host.split(":"), timeout=20)
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.sendall(
        f"GET {page.prefix}events HTTP/1.1\r\nHost: {page.host}\r\n\r\n".encode()
    )
    assert lazy.recv(1)
    for viewer in viewers:
        viewer.next()
    big = np.ones((3, 20_000))
    count = 300
    for at in range(count):
        given = update(256 + at)
        assert given.frame is not None
        object.__setattr__(given.frame, "_mean", Mean(big))
        page.tell(given)
        for viewer in viewers:
            assert viewer.next()[1]["seconds"] == (256 + at) / FS
    assert page.board.viewers == 3
    # Far less was kept for it than it was sent: buffers of the system, and one event.
    lazy.close()
    for viewer in viewers:
        viewer.close()


def test_viewers_that_leave_are_forgotten(page: LivePage) -> None:
    viewer = Viewer(page)
    viewer.next()
    assert page.board.viewers == 1
    viewer.close()
    for at in range(200):  # a closed line is noticed at the second write to it
        page.tell(update(256 + at))
        with page.board._turn:
            if page.board._turn.wait_for(lambda: not page.board.viewers, 0.1):
                break
    assert page.board.viewers == 0


def test_there_are_places_for_so_many(page: LivePage) -> None:
    viewers = [Viewer(page) for _ in range(MOST_VIEWERS)]
    for viewer in viewers:
        viewer.next()
    assert ask(page, f"{page.prefix}events")[0] == 503
    for viewer in viewers:
        viewer.close()


def test_the_board_shows_the_newest() -> None:
    board = Board()
    assert board.after(0, 0.0).update is None
    first, second = update(256), update(512)
    board.tell(first)
    board.tell(second)
    told = board.after(0, 0.0)
    assert (told.count, told.update) == (2, second)
    assert board.after(2, 0.01) == told
    board.end("over", 0.0)
    assert board.after(2, 20.0).end == "over"


def test_many_bins_are_told_by_the_strongest_of_neighbours() -> None:
    power = np.random.default_rng(0).random((2, 2 * web.MOST_BINS + 3))
    assert merged(power.shape[1]) == 3
    found = strongest(power)
    assert found.shape == (2, -(-power.shape[1] // 3))
    assert found[1, 0] == power[1, :3].max()
    assert (
        found[:, -1].tolist() == power[:, -(power.shape[1] % 3 or 3) :].max(1).tolist()
    )
    assert np.array_equal(strongest(power[:, :100]), power[:, :100])
