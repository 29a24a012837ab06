"""Live web page of `rlxweb live --web`, shown in addition to the terminal output."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from rlxweb.cli.console import print_lines
from rlxweb.core.errors import UsageError
from rlxweb.export.open_in_browser import open_in_browser
from rlxweb.live.continuous_analysis import LiveUpdate
from rlxweb.live.live_page_server import LivePageServer
from rlxweb.live.source import StreamInfo
from rlxweb.signal.welch_stream import WelchStream

PAGE_UPDATE_INTERVAL_S = 0.1
"""Seconds between two updates of the page."""


def check_page_options(option_values: Mapping[str, Any]) -> None:
    """Raise UsageError for page options given without --web."""
    for flag in ("port", "no_open"):
        if option_values[flag] and not option_values["web"]:
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(name, "it requires --web", hint="add --web")


@contextmanager
def open_live_page(
    stream: StreamInfo,
    estimate: WelchStream,
    bands: Mapping[str, tuple[float, float]] | None,
    option_values: Mapping[str, Any],
    console: Console,
) -> Iterator[LivePageServer | None]:
    """Serve the page during the block, if requested, and print its address; yield None
    without --web.
    """
    if not option_values["web"]:
        yield None
        return
    description = _describe_estimate(estimate)
    live_page = LivePageServer(
        stream,
        estimate,
        estimate_text=description,
        bands=bands,
        port=option_values["port"] or 0,
    )
    with live_page as page:
        print_lines(console, page.url)
        if not option_values["no_open"] and _has_display() and console.is_terminal:
            open_in_browser(page.one_time_url())
        yield page


def throttle_updates(
    updates: Iterable[LiveUpdate], page: LivePageServer | None, interval_s: float
) -> Iterator[LiveUpdate]:
    """Send every update to the page and yield only those that are due, and the last
    one.
    """
    pending, last_yield = None, -interval_s
    for update in updates:
        if page is None:
            yield update
            continue
        page.publish(update)
        pending, now = update, time.monotonic()
        if now - last_yield >= interval_s:
            last_yield, pending = now, None
            yield update
    if pending is not None:
        yield pending


def _describe_estimate(stream: WelchStream) -> str:
    settings = stream.settings
    half_life_s = settings.half_life or 0
    average = {
        "exponential": f"exponential mean with a half-life of {half_life_s:g} s",
        "last": f"mean of the last {settings.last} segments",
        "all": "mean of all segments so far",
        "none": "not averaged",
    }[settings.average]
    seconds = stream.nperseg / stream.fs
    return f"Segments of {stream.nperseg} samples ({seconds:.3g} s), {average}."


def _has_display() -> bool:
    """Return True if a browser can open a window instead of taking over the
    terminal.
    """
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
