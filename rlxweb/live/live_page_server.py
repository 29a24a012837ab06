"""Local web page of a live signal, served by `rlxweb live --web`.

Files of the page, some of them the site's own, and one stream of server-sent events
for each viewer: first what the signal is, then its updates, with the spectra of the
channels that the viewer chose. Draws nothing: the page does.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import parse_qs

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.errors import RlxError
from rlxweb.export.local_server import LocalRequestHandler, LocalServer, make_secret
from rlxweb.export.site_file_reader import read_site_file
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.live.continuous_analysis import LiveUpdate
from rlxweb.live.latest_update import UpdateBoard
from rlxweb.live.source import StreamInfo
from rlxweb.results.power_units import display_unit
from rlxweb.signal.stream_frame import StreamFrame
from rlxweb.signal.welch_stream import WelchStream

SITE_FILES: Final = (
    "demo/icon.svg",
    "demo/live/axis.js",
    "demo/live/bands.js",
    "demo/live/chart.js",
    "demo/live/colours.js",
    "demo/live/live.css",
    "demo/live/peak-table.js",
    "demo/live/picks.js",
    "demo/live/waterfall.js",
    "demo/make.js",
    "demo/printable.js",
    "demo/shared.css",
    "demo/theme-button.js",
    "demo/theme.js",
)
"""Files of the site's demo that the page uses."""
_PAGE_FILES: Final = ("feed.js", "page.css", "page.js")
_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_CONTEXT: Final = "showing a signal on a page"
_MAX_ROWS: Final = 256
_DEFAULT_ROW_COUNT: Final = 16
MAX_BINS: Final = 4096
"""Maximum number of bins sent of a row; with more, neighbours are merged into their
maximum.
"""
_KEEPALIVE_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 2.0
_SEND_BUFFER_NBYTES: Final = 256 << 10


class LivePageServer(LocalServer):
    """Server of the page of a live signal; call `publish` with every update.

    about_event  words on the estimate for people: "512 samples per segment, …"
    bands    edges in Hz by name, as the updates have them
    port     of 127.0.0.1; 0: any that is free
    Errors   UsageError for a port that cannot be had; RlxError where the package lacks
             a part of the page.
    """

    def __init__(
        self,
        stream_info: StreamInfo,
        estimate: WelchStream,
        *,
        estimate_text: str = "",
        bands: Mapping[str, tuple[float, float]] | None = None,
        port: int = 0,
    ) -> None:
        self.stream_info, self.board = stream_info, UpdateBoard()
        step, f = merge_factor(len(estimate.f)), estimate.f
        bin_width = estimate.fs / estimate.nperseg
        self._description = {
            "name": stream_info.name,
            "fs": stream_info.fs,
            "channels": stream_info.channels,
            "unit": display_unit(stream_info.unit),
            "estimate": estimate_text,
            "bands": [[name, *edges] for name, edges in (bands or {}).items()],
            # Where neighbours were put together, at the middle of them.
            "first": float(f[0]) + bin_width * (step - 1) / 2,
            "step": bin_width * step,
            "merged": step,
            "bins": -(-len(f) // step),
        }
        self.files = {name: read_site_file(name, _CONTEXT) for name in SITE_FILES}
        self.files |= {name: _read_page_file(name) for name in _PAGE_FILES}
        self.files[""] = _read_page_file("page.html")
        super().__init__(port, make_secret(), _LivePageHandler, _CONTEXT)

    def publish(self, update: LiveUpdate) -> None:
        """Show an update to all viewers; returns at once."""
        self.board.publish(update)

    def __exit__(self, *raised: object) -> None:
        errors = [str(error) for error in raised if isinstance(error, RlxError)]
        self.board.close("".join(errors), _CLOSE_TIMEOUT_S)
        super().__exit__()

    def about_event(self, rows: tuple[int, ...]) -> bytes:
        """Return the first event: the description of the signal and the channels that
        are sent.
        """
        return encode_event({**self._description, "rows": rows}, "about")

    def parse_rows(self, query: str) -> tuple[int, ...] | None:
        """Return the channels that the query `rows=0,2,5` selects; None if one does not
        exist.
        """
        n_channels = len(self.stream_info.channels)
        values = parse_qs(query).get("rows")
        if values is None:
            return tuple(range(min(n_channels, _DEFAULT_ROW_COUNT)))
        try:
            rows = tuple(int(row) for row in values[-1].split(","))
        except ValueError:
            return None
        is_valid = len(rows) <= _MAX_ROWS and all(0 <= row < n_channels for row in rows)
        return rows if is_valid else None


def encode_event(data: Mapping[str, Any], kind: str = "") -> bytes:
    """Encode plain data as one server-sent event."""
    head = f"event: {kind}\n" if kind else ""
    return f"{head}data: {json.dumps(data, allow_nan=False)}\n\n".encode()


def encode_update(
    update: LiveUpdate, rows: tuple[int, ...], shown_frame: StreamFrame | None
) -> bytes:
    """Encode an update as an event, with its spectra only if the viewer has not seen
    their frame yet.
    """
    data: dict[str, Any] = {
        "seconds": update.duration_s,
        "rate": finite_or_none(update.arrival_rate),
        "latency_ms": finite_or_none(update.latency_s * 1e3),
        "lost": update.n_lost,
        "stalled": update.is_stalled,
        "silent": round(update.silent_s, 1),
    }
    frame = update.frame
    if frame is not None and frame is not shown_frame:
        data |= _spectra_json(update, frame, list(rows))
    return encode_event(data)


def _spectra_json(
    update: LiveUpdate, frame: StreamFrame, rows: list[int]
) -> dict[str, Any]:
    """Return the spectra, peaks and band shares of the selected rows as plain data."""
    peaks, power = frame.peaks, merge_bins(frame.power[rows])
    shares = None if update.bands is None else update.bands.relative[rows]
    return {
        "t": frame.t,
        "segments": frame.n_segments,
        "power": b64encode(power.astype("<f8").tobytes()).decode(),
        "peaks": [
            [
                [float(hz), float(power)]
                for hz, power in zip(peaks.hz[row], peaks.power[row], strict=True)
            ][: int(peaks.count[row])]
            for row in rows
        ],
        "shares": None if shares is None else np.nan_to_num(shares).tolist(),
    }


def merge_factor(bins: int) -> int:
    """Return how many neighbouring bins are merged into one."""
    return -(-bins // MAX_BINS)


def merge_bins(power: NDArray[Any]) -> NDArray[Any]:
    """Merge bins (C, F) → (C, ⌈F / n⌉) into the maximum of n = `merge_factor`
    neighbours.
    """
    step = merge_factor(power.shape[1])
    if step == 1:
        return power
    starts = np.arange(0, power.shape[1], step)
    merged: NDArray[Any] = np.fmax.reduceat(power, starts, axis=1)
    return merged


def _read_page_file(file_name: str) -> bytes:
    """Read a file of the page from this package."""
    return (resources.files("rlxweb") / "live" / "page" / file_name).read_bytes()


class _LivePageHandler(LocalRequestHandler):
    """Request handler of the live page."""

    @property
    def page(self) -> LivePageServer:
        """Server that this connection belongs to."""
        page: LivePageServer = self.local_server
        return page

    def handle_get(self, name: str | None) -> None:
        if name == "events":
            self._send_events()
        elif name in self.page.files:
            suffix = PurePosixPath(name).suffix or ".html"
            headers = {
                "Content_Security_Policy": _CONTENT_SECURITY_POLICY,
                "X_Frame_Options": "DENY",
            }
            headers["Cross_Origin_Resource_Policy"] = "same-origin"
            self.send_answer(200, self.page.files[name], suffix, **headers)
        else:
            self.send_answer(404)

    def _send_events(self) -> None:
        """Answer a viewer with a stream of events."""
        rows = self.page.parse_rows(self.path.partition("?")[2])
        if rows is None:
            return self.send_answer(400)
        with self.page.board.viewer_slot() as is_admitted:
            if not is_admitted:
                return self.send_answer(503, Retry_After="10")
            self.close_connection = True
            self.limit_send_buffer(_SEND_BUFFER_NBYTES)
            kind = "text/event-stream"
            self.send_answer_head(200, "", Content_Type=kind, Connection="close")
            self.wfile.write(self.page.about_event(rows))
            return self._send_updates(rows)

    def _send_updates(self, rows: tuple[int, ...]) -> None:
        """Send new updates as fast as the viewer takes them, until the end."""
        n_seen, shown_frame = 0, None
        while True:
            state = self.page.board.wait_for_newer(n_seen, _KEEPALIVE_S)
            if state.update is not None and state.n_updates > n_seen:
                self.wfile.write(encode_update(state.update, rows, shown_frame))
                n_seen, shown_frame = state.n_updates, state.update.frame
            elif state.end_reason is None:
                self.wfile.write(b":\n\n")  # is there still somebody?
            if state.end_reason is not None:
                self.wfile.write(encode_event({"words": state.end_reason}, "end"))
                return
