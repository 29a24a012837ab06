"""The desktop's side of a tab, in the child process that stands for the engine.

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

from rlxweb.smoke.tab.browsers import started
from rlxweb.smoke.tab.server import SILENT_S, TabServer

_END_S = 10.0
_BY_HAND_SILENT_S = 90.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What the process needs besides the engine.

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
        return f"http://127.0.0.1:{self.port}/{self.secret}/"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def in_a_tab(asked: Mapping[str, Any], say: Callable[..., None]) -> None:
    """Have the tab do what is asked for, and say what it says.

    Errors   ConnectionError where the browser, or its tab, went away.
    """
    launch = Launch(**asked["engine"]["launch"])
    served = TabServer(asked, Path(launch.runtime), launch.port, launch.secret)
    silent_s = SILENT_S if launch.browser else _BY_HAND_SILENT_S
    # Every user of this machine can read the arguments of the browser.
    with served as server, _browser(launch, server.url_once()) as why_gone:
        for line in server.lines(why_gone, silent_s):
            say(**line)


@contextmanager
def _browser(launch: Launch, url: str) -> Iterator[Callable[[], str]]:
    """A browser on the page while the block lasts; what became of it, "" so far."""
    if not launch.browser:
        yield str
        return
    # One of its own for each process: what a browser leaves that was killed is no
    # profile to start from.
    profile = Path(launch.profile) / str(os.getpid())
    profile.mkdir(parents=True)
    process = started(launch.browser, url, profile)

    def why_gone() -> str:
        code = process.poll()
        return "" if code is None else f"the browser ended with exit code {code}"

    try:
        yield why_gone
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
