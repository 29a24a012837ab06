"""`rlxweb live --web`: the page beside what the terminal and the lines tell."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from rlxweb.cli.screen import say
from rlxweb.errors import UsageError
from rlxweb.live.source import Stream
from rlxweb.live.watch import Update
from rlxweb.live.web import LivePage
from rlxweb.pages.browser import show
from rlxweb.signal.welch_stream import WelchStream

PAGE_S = 0.1
"""Between two updates of a page."""


def check_page(asked: Mapping[str, Any]) -> None:
    """Errors  UsageError for options of a page where none is asked for."""
    for flag in ("port", "no_open"):
        if asked[flag] and not asked["web"]:
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(name, "it goes with --web", hint="give both")


@contextmanager
def page_of(
    stream: Stream,
    estimate: WelchStream,
    bands: Mapping[str, tuple[float, float]] | None,
    asked: Mapping[str, Any],
    console: Console,
) -> Iterator[LivePage | None]:
    """The page, if one is asked for, and its address told; it ends with the block."""
    if not asked["web"]:
        yield None
        return
    said = _estimate(estimate)
    made = LivePage(stream, estimate, about=said, bands=bands, port=asked["port"] or 0)
    with made as page:
        say(console, page.url)
        if not asked["no_open"] and _has_windows() and console.is_terminal:
            show(page.url_once())
        yield page


def told(
    updates: Iterable[Update], page: LivePage | None, every_s: float
) -> Iterator[Update]:
    """All of them on the page; those that are due, and the last, to whoever asks."""
    held, last = None, -every_s
    for update in updates:
        if page is None:
            yield update
            continue
        page.tell(update)
        held, now = update, time.monotonic()
        if now - last >= every_s:
            last, held = now, None
            yield update
    if held is not None:
        yield held


def _estimate(stream: WelchStream) -> str:
    own = stream.settings
    average = {
        "exponential": f"older ones count half after {own.half_life or 0:g} s",
        "last": f"the mean of the last {own.last}",
        "all": "the mean of all",
        "none": "each by itself",
    }[own.average]
    seconds = stream.nperseg / stream.fs
    return f"Segments of {stream.nperseg} samples ({seconds:.3g} s), {average}."


def _has_windows() -> bool:
    """Else a browser would take the terminal, if there is any."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
