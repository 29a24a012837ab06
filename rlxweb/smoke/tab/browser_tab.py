"""Child process side of a browser tab: start the server and browser, forward the
messages.

Starts the server and the browser, and hands on what the tab says, so that whoever waits
for this process need not know that its engine is elsewhere. The browser belongs to the
group of this process and is ended with it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlxweb.smoke.tab.browser_launch import start_browser
from rlxweb.smoke.tab.tab_server import MAX_SILENCE_S, TabServer

_EXIT_TIMEOUT_S = 10.0
_MANUAL_SILENCE_S = 90.0


@dataclass(frozen=True, slots=True)
class TabLaunch:
    """Settings for starting an engine in a browser tab.

    browser  the path of one; "" where somebody opens the address by hand
    runtime  the folder of Pyodide
    profile  a folder for what browsers write
    port     of this machine, and the secret in the address
    """

    browser: str
    runtime: str
    profile: str
    port: int
    secret: str

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/{self.secret}/"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def run_in_browser_tab(request: Mapping[str, Any], send: Callable[..., None]) -> None:
    """Run the request in a browser tab and forward its messages.

    Errors   ConnectionError where the browser, or its tab, went away.
    """
    launch = TabLaunch(**request["engine"]["launch"])
    tab_server = TabServer(request, Path(launch.runtime), launch.port, launch.secret)
    max_silence_s = MAX_SILENCE_S if launch.browser else _MANUAL_SILENCE_S
    # Every user of this machine can read the arguments of the browser.
    with (
        tab_server as server,
        _open_browser(launch, server.one_time_url()) as exit_reason,
    ):
        for message in server.messages(exit_reason, max_silence_s):
            send(**message)


@contextmanager
def _open_browser(launch: TabLaunch, url: str) -> Iterator[Callable[[], str]]:
    """Open a browser on the page; yield a function that returns why it exited, "" while
    it runs.
    """
    if not launch.browser:
        yield str
        return
    # One of its own for each process: what a browser leaves that was killed is no
    # profile to start from.
    profile = Path(launch.profile) / str(os.getpid())
    profile.mkdir(parents=True)
    process = start_browser(launch.browser, url, profile)

    def exit_reason() -> str:
        code = process.poll()
        return "" if code is None else f"the browser ended with exit code {code}"

    try:
        yield exit_reason
    finally:
        process.terminate()
        try:
            process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
