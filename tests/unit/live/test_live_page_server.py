"""Live page of a running signal, tested by HTTP requests; a browser opens it
elsewhere.
"""

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
from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.export.site_file_reader import PACKAGED_SITE_DIR, read_site_file
from rlxweb.live import live_page_server
from rlxweb.live.continuous_analysis import LiveUpdate
from rlxweb.live.latest_update import MAX_VIEWERS, UpdateBoard
from rlxweb.live.live_page_server import (
    SITE_FILES,
    LivePageServer,
    merge_bins,
    merge_factor,
)
from rlxweb.live.source import StreamInfo
from rlxweb.signal.band_power import band_power_of
from rlxweb.signal.stream_frame import LazyMean
from tests.cli_runners import ROOT

PAGE = ROOT / "rlxweb" / "live" / "page"
FS = 128.0
NAMES = ("Cz", "</script>\u202e", "脳波")
X = np.random.default_rng(3).standard_normal((3, 1280))
X += 3 * np.sin(2 * np.pi * 10 * np.arange(1280) / FS)
STREAM_INFO = StreamInfo("made", FS, NAMES, "uV")


def make_stream() -> rlx.WelchStream:
    return rlx.WelchStream(FS, 256, 3, 3, fmin=0.5)


def make_update(samples: int = 1280, **changes: Any) -> LiveUpdate:
    stream = make_stream()
    frame = stream.push(X[:, :samples])[-1]
    bands = band_power_of(frame.f, frame.power, {"alpha": (8, 13), "beta": (13, 30)})
    timing = {"arrival_rate": 127.9, "latency_s": 0.002, "n_lost": 0, "silent_s": 0.1}
    fields = {"duration_s": stream.seconds, "bands": bands, **timing, **changes}
    return LiveUpdate(STREAM_INFO, frame, **fields)


@pytest.fixture
def page() -> Iterator[LivePageServer]:
    bands = {"alpha": (8.0, 13.0), "beta": (13.0, 30.0)}
    with LivePageServer(
        STREAM_INFO, make_stream(), estimate_text="Segments.", bands=bands
    ) as server:
        yield server


def send_request(
    page: LivePageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Return status, body and headers of the response to a request."""
    connection = http.client.HTTPConnection(page.host, timeout=20)
    connection.request(method, path, headers={"Host": page.host, **headers})
    response = connection.getresponse()
    result = response.status, response.read(), response.headers
    connection.close()
    return result


class EventReader:
    """Client that reads the server-sent events, as a browser does."""

    def __init__(self, page: LivePageServer, query: str = "") -> None:
        self.connection = http.client.HTTPConnection(page.host, timeout=20)
        self.connection.request("GET", f"{page.prefix}events{query}")
        self.response = self.connection.getresponse()

    def next_event(self) -> tuple[str, Any]:
        """Return the kind and the data of the next event."""
        kind = ""
        while True:
            line = self.response.readline().decode()
            assert line, "the stream ended"
            if line.startswith("event: "):
                kind = line.removeprefix("event: ").strip()
            if line.startswith("data: "):
                return kind, json.loads(line.removeprefix("data: "))

    def close(self) -> None:
        self.response.close()
        self.connection.close()


# --- what is served ---------------------------------------------------------------


def test_the_page_requests_only_served_files(page: LivePageServer) -> None:
    """Every file named by the page, its styles and its modules is served, and no
    other.
    """
    requested = set()
    for name, body in page.files.items():
        if name.endswith((".svg", ".css")):
            assert b"url(" not in body
            continue
        text = body.decode()
        assert "://" not in text.replace("http://www.w3.org", "")
        for reference in re.findall(r'(?:src=|href=|from )"([^"#]+)"', text):
            folder = Path(name).parent if name else Path()
            requested.add(str((ROOT / folder / reference).resolve().relative_to(ROOT)))
    assert requested <= set(page.files)
    assert set(page.files) - requested == {""}


def test_files_come_with_their_type_and_a_policy(page: LivePageServer) -> None:
    """Files come with a policy that lets the page reach nothing but this server."""
    for name, kind in (
        ("", "text/html; charset=utf-8"),
        ("page.js", "text/javascript"),
        ("demo/shared.css", "text/css; charset=utf-8"),
        ("demo/icon.svg", "image/svg+xml"),
    ):
        status, body, headers = send_request(page, page.prefix + name)
        assert (status, body) == (200, page.files[name])
        assert headers["Content-Type"] == kind
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Access-Control-Allow-Origin"] is None


def test_the_wheel_includes_the_site_parts() -> None:
    """Site files used by the page are listed in the wheel's build configuration."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name in SITE_FILES:
        assert included[f"site/{name}"] == f"rlxweb/{PACKAGED_SITE_DIR}/{name}"
        assert read_site_file(name, "") == (ROOT / "site" / name).read_bytes()


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
def test_nothing_else_is_served(page: LivePageServer, path: str) -> None:
    secret = page.prefix.strip("/")
    assert send_request(page, path.format(secret))[0] == 404
    assert page.board.n_viewers == 0


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
def test_requests_of_foreign_pages_are_refused(
    page: LivePageServer, headers: dict[str, str]
) -> None:
    """A foreign name that resolves to 127.0.0.1 is refused, and so is a foreign
    origin.
    """
    for name in ("", "events"):
        assert send_request(page, page.prefix + name, **headers)[0] == 404


def test_methods_other_than_get_are_refused(page: LivePageServer) -> None:
    assert send_request(page, page.prefix, "POST")[0] == 404
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert send_request(page, page.prefix, method)[0] == 501


def test_a_one_time_address_works_once(page: LivePageServer) -> None:
    """A one-time address leads to the lasting page once, and later to nothing."""
    path = page.one_time_url().removeprefix(f"http://{page.host}")
    assert path not in page.url
    assert send_request(page, path, Host="evil.example")[0] == 404
    status, _, headers = send_request(page, path)
    assert (status, headers["Location"]) == (303, page.url)
    assert send_request(page, path)[0] == 404


def test_no_host_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup would use the network, and may take seconds without one."""

    def fail_lookup(*name: str) -> str:
        raise AssertionError(f"{name} was looked up")

    for lookup in ("getfqdn", "gethostbyaddr", "gethostbyname", "getnameinfo"):
        monkeypatch.setattr(socket, lookup, fail_lookup)
    with LivePageServer(STREAM_INFO, make_stream()) as page:
        assert send_request(page, page.prefix)[0] == 200


def test_only_loopback_is_served_and_a_used_port_is_refused(
    page: LivePageServer,
) -> None:
    assert page._http_server.server_address[0] == "127.0.0.1"
    port = int(page.host.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"cannot listen on port {port}"):
        LivePageServer(STREAM_INFO, make_stream(), port=port)


# --- what is told -----------------------------------------------------------------


def test_a_viewer_gets_the_signal_then_its_updates(page: LivePageServer) -> None:
    viewer = EventReader(page, "?rows=0,2")
    assert viewer.response.headers["Content-Type"] == "text/event-stream"
    kind, description = viewer.next_event()
    assert kind == "about"
    assert description["channels"] == list(NAMES)
    assert description["rows"] == [0, 2]
    assert (description["unit"], description["fs"], description["first"]) == (
        "µV",
        FS,
        0.5,
    )
    assert description["bands"] == [["alpha", 8.0, 13.0], ["beta", 13.0, 30.0]]
    new_update = make_update()
    page.publish(new_update)
    kind, data = viewer.next_event()
    assert kind == ""
    assert new_update.frame is not None
    power = np.frombuffer(b64decode(data["power"]), "<f8").reshape(2, -1)
    np.testing.assert_array_equal(power, new_update.frame.power[[0, 2]])
    assert description["bins"] == power.shape[1]
    peaks = new_update.frame.peaks
    for row, row_peaks in zip((0, 2), data["peaks"], strict=True):
        assert [hz for hz, _ in row_peaks] == peaks.hz[row, : peaks.count[row]].tolist()
        assert row_peaks[0][0] == pytest.approx(10.0, abs=0.1)
    assert np.sum(data["shares"], axis=1) == pytest.approx([1.0, 1.0])
    assert (data["seconds"], data["latency_ms"], data["lost"]) == (10.0, 2.0, 0)
    # A silence tells no spectrum again.
    page.publish(
        LiveUpdate(
            STREAM_INFO,
            new_update.frame,
            10.0,
            float("nan"),
            float("nan"),
            7,
            3.0,
            new_update.bands,
        )
    )
    _, data = viewer.next_event()
    assert (data["stalled"], data["silent"], data["lost"]) == (True, 3.0, 7)
    assert (data["rate"], data["latency_ms"]) == (None, None)
    assert "power" not in data
    viewer.close()


@pytest.mark.parametrize("rows", ["3", "-1", "a", "0,,1", ",".join(["0"] * 257)])
def test_unknown_channels_are_refused(page: LivePageServer, rows: str) -> None:
    assert send_request(page, f"{page.prefix}events?rows={rows}")[0] == 400


@pytest.mark.parametrize("error", [None, RecordingError("watching", "it is gone")])
def test_the_end_follows_the_last_update(error: Exception | None) -> None:
    """The end is sent after the last update, with the reason if there is one."""
    page = LivePageServer(STREAM_INFO, make_stream())
    page.__enter__()
    viewer = EventReader(page)
    viewer.next_event()
    page.publish(make_update())
    closing_thread = threading.Thread(
        target=page.__exit__, args=(type(error), error, None)
    )
    closing_thread.start()
    assert viewer.next_event()[0] == ""
    kind, data = viewer.next_event()
    assert (kind, data["words"]) == ("end", str(error or ""))
    viewer.close()
    closing_thread.join(timeout=20)
    assert not closing_thread.is_alive()


def test_a_slow_viewer_delays_nobody(
    page: LivePageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer that does not read misses updates; the sender and the other viewers do
    not wait.
    """
    viewers = [EventReader(page, "?rows=0,1,2"), EventReader(page)]
    slow_connection = socket.create_connection(page.host.split(":"), timeout=20)
    slow_connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow_connection.sendall(
        f"GET {page.prefix}events HTTP/1.1\r\nHost: {page.host}\r\n\r\n".encode()
    )
    assert slow_connection.recv(1)
    for viewer in viewers:
        viewer.next_event()
    large_power = np.ones((3, 20_000))
    count = 300
    for i in range(count):
        new_update = make_update(256 + i)
        assert new_update.frame is not None
        object.__setattr__(new_update.frame, "_mean", LazyMean(large_power))
        page.publish(new_update)
        for viewer in viewers:
            assert viewer.next_event()[1]["seconds"] == (256 + i) / FS
    assert page.board.n_viewers == 3
    # Far less was kept for it than it was sent: buffers of the system, and one event.
    slow_connection.close()
    for viewer in viewers:
        viewer.close()


def test_disconnected_viewers_are_forgotten(page: LivePageServer) -> None:
    viewer = EventReader(page)
    viewer.next_event()
    assert page.board.n_viewers == 1
    viewer.close()
    for i in range(200):  # a closed line is noticed at the second write to it
        page.publish(make_update(256 + i))
        with page.board._condition:
            if page.board._condition.wait_for(lambda: not page.board.n_viewers, 0.1):
                break
    assert page.board.n_viewers == 0


def test_the_number_of_viewers_is_limited(page: LivePageServer) -> None:
    viewers = [EventReader(page) for _ in range(MAX_VIEWERS)]
    for viewer in viewers:
        viewer.next_event()
    assert send_request(page, f"{page.prefix}events")[0] == 503
    for viewer in viewers:
        viewer.close()


def test_the_board_shows_the_newest() -> None:
    board = UpdateBoard()
    assert board.wait_for_newer(0, 0.0).update is None
    first, second = make_update(256), make_update(512)
    board.publish(first)
    board.publish(second)
    state = board.wait_for_newer(0, 0.0)
    assert (state.n_updates, state.update) == (2, second)
    assert board.wait_for_newer(2, 0.01) == state
    board.close("over", 0.0)
    assert board.wait_for_newer(2, 20.0).end_reason == "over"


def test_many_bins_are_merged_to_the_maximum_of_neighbours() -> None:
    power = np.random.default_rng(0).random((2, 2 * live_page_server.MAX_BINS + 3))
    assert merge_factor(power.shape[1]) == 3
    maxima = merge_bins(power)
    assert maxima.shape == (2, -(-power.shape[1] // 3))
    assert maxima[1, 0] == power[1, :3].max()
    assert (
        maxima[:, -1].tolist() == power[:, -(power.shape[1] % 3 or 3) :].max(1).tolist()
    )
    assert np.array_equal(merge_bins(power[:, :100]), power[:, :100])
