"""The page of a running signal: what `rlxweb live --web` serves to this machine.

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

from rlxweb.errors import RlxError
from rlxweb.io.writers import finite
from rlxweb.live.board import Board
from rlxweb.live.source import Stream
from rlxweb.live.watch import Update
from rlxweb.pages.parts import site_part
from rlxweb.pages.server import LocalHandler, LocalServer, new_secret
from rlxweb.results.units import unit_of
from rlxweb.signal.stream_frame import StreamFrame
from rlxweb.signal.welch_stream import WelchStream

SITE_PARTS: Final = (
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
"""What the page has of the demo's."""
_OWN: Final = ("feed.js", "page.css", "page.js")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_DOING: Final = "showing a signal on a page"
_MOST_ROWS: Final = 256
_FIRST_ROWS: Final = 16
MOST_BINS: Final = 4096
"""Of a row that is sent; of more, the strongest of so many neighbours each."""
_QUIET_S: Final = 5.0
_FAREWELL_S: Final = 2.0
_BUFFER: Final = 256 << 10


class LivePage(LocalServer):
    """The page while a signal runs; `tell` it every update.

    about    words on the estimate for people: "512 samples per segment, …"
    bands    edges in Hz by name, as the updates have them
    port     of 127.0.0.1; 0: any that is free
    Errors   UsageError for a port that cannot be had; RlxError where the package lacks
             a part of the page.
    """

    def __init__(
        self,
        stream: Stream,
        estimate: WelchStream,
        *,
        about: str = "",
        bands: Mapping[str, tuple[float, float]] | None = None,
        port: int = 0,
    ) -> None:
        self.stream, self.board = stream, Board()
        step, f = merged(len(estimate.f)), estimate.f
        apart = estimate.fs / estimate.nperseg
        self._about = {
            "name": stream.name,
            "fs": stream.fs,
            "channels": stream.channels,
            "unit": unit_of(stream.unit),
            "estimate": about,
            "bands": [[name, *edges] for name, edges in (bands or {}).items()],
            # Where neighbours were put together, at the middle of them.
            "first": float(f[0]) + apart * (step - 1) / 2,
            "step": apart * step,
            "merged": step,
            "bins": -(-len(f) // step),
        }
        self.files = {name: site_part(name, _DOING) for name in SITE_PARTS}
        self.files |= {name: _own(name) for name in _OWN}
        self.files[""] = _own("page.html")
        super().__init__(port, new_secret(), _Handler, _DOING)

    def tell(self, update: Update) -> None:
        """Show it to whoever looks; returns at once."""
        self.board.tell(update)

    def __exit__(self, *raised: object) -> None:
        errors = [str(one) for one in raised if isinstance(one, RlxError)]
        self.board.end("".join(errors), _FAREWELL_S)
        super().__exit__()

    def about(self, rows: tuple[int, ...]) -> bytes:
        """The first event: what the signal is, and which channels are told."""
        return event({**self._about, "rows": rows}, "about")

    def rows(self, query: str) -> tuple[int, ...] | None:
        """The channels that `rows=0,2,5` asks for; None where they are not there."""
        there = len(self.stream.channels)
        asked = parse_qs(query).get("rows")
        if asked is None:
            return tuple(range(min(there, _FIRST_ROWS)))
        try:
            found = tuple(int(one) for one in asked[-1].split(","))
        except ValueError:
            return None
        fits = len(found) <= _MOST_ROWS and all(0 <= one < there for one in found)
        return found if fits else None


def event(told: Mapping[str, Any], kind: str = "") -> bytes:
    """Plain data as one server-sent event."""
    head = f"event: {kind}\n" if kind else ""
    return f"{head}data: {json.dumps(told, allow_nan=False)}\n\n".encode()


def update_event(
    update: Update, rows: tuple[int, ...], shown: StreamFrame | None
) -> bytes:
    """An update for who has already seen `shown`: its spectra only if they are new."""
    told: dict[str, Any] = {
        "seconds": update.seconds,
        "rate": finite(update.rate),
        "latency_ms": finite(update.latency_s * 1e3),
        "lost": update.lost,
        "stalled": update.is_stalled,
        "silent": round(update.silent_s, 1),
    }
    frame = update.frame
    if frame is not None and frame is not shown:
        told |= _spectra(update, frame, list(rows))
    return event(told)


def _spectra(update: Update, frame: StreamFrame, rows: list[int]) -> dict[str, Any]:
    peaks, power = frame.peaks, strongest(frame.power[rows])
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


def merged(bins: int) -> int:
    """How many neighbouring bins are sent as one."""
    return -(-bins // MOST_BINS)


def strongest(power: NDArray[Any]) -> NDArray[Any]:
    """(C, F) → (C, ⌈F / n⌉): the strongest of `merged` neighbours each."""
    step = merged(power.shape[1])
    if step == 1:
        return power
    starts = np.arange(0, power.shape[1], step)
    found: NDArray[Any] = np.fmax.reduceat(power, starts, axis=1)
    return found


def _own(name: str) -> bytes:
    return (resources.files("rlxweb") / "live" / "page" / name).read_bytes()


class _Handler(LocalHandler):
    @property
    def page(self) -> LivePage:
        page: LivePage = self.owner
        return page

    def get(self, name: str | None) -> None:
        if name == "events":
            self._events()
        elif name in self.page.files:
            suffix = PurePosixPath(name).suffix or ".html"
            own = {"Content_Security_Policy": _POLICY, "X_Frame_Options": "DENY"}
            own["Cross_Origin_Resource_Policy"] = "same-origin"
            self.answer(200, self.page.files[name], suffix, **own)
        else:
            self.answer(404)

    def _events(self) -> None:
        rows = self.page.rows(self.path.partition("?")[2])
        if rows is None:
            return self.answer(400)
        with self.page.board.viewer() as there:
            if not there:
                return self.answer(503, Retry_After="10")
            self.close_connection = True
            self.keep_little(_BUFFER)
            kind = "text/event-stream"
            self.begin(200, "", Content_Type=kind, Connection="close")
            self.wfile.write(self.page.about(rows))
            return self._updates(rows)

    def _updates(self, rows: tuple[int, ...]) -> None:
        """What is new, as fast as it is taken, up to the end."""
        seen, shown = 0, None
        while True:
            told = self.page.board.after(seen, _QUIET_S)
            if told.update is not None and told.count > seen:
                self.wfile.write(update_event(told.update, rows, shown))
                seen, shown = told.count, told.update.frame
            elif told.end is None:
                self.wfile.write(b":\n\n")  # is there still somebody?
            if told.end is not None:
                self.wfile.write(event({"words": told.end}, "end"))
                return
