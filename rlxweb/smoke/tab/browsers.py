"""The browsers of this machine: which is taken, and how it is started without a window.

Only browsers made of Chromium are started; any other can be sent to the address by
hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from rlxweb.errors import UsageError

ON_PATH = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "brave-browser",
)
ELSEWHERE = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
SWITCHES = (
    "headless=new",
    "no-first-run",
    "no-default-browser-check",
    "disable-background-networking",
    "disable-component-update",
    "disable-extensions",
    "disable-sync",
    "enable-unsafe-webgpu",  # without it, no WebGPU on Linux
)
"""Chromium's own."""


def browser_path(given: str) -> str:
    """The browser at a path or of a name, or the first that is found where given is "".

    Errors   UsageError, with what was looked for.
    """
    if given:
        found = shutil.which(given)
        if found is None:
            raise UsageError(
                "looking for a browser",
                f"there is no program {given!r}",
                hint='a path to Chromium, Chrome or Edge is wanted, or "by-hand"',
            )
        return found
    for name in (*ON_PATH, *ELSEWHERE):
        path = shutil.which(name)
        if path:
            return path
    raise UsageError(
        "looking for a browser",
        f"none of {', '.join(ON_PATH)} is found",
        hint='install Chromium, name the path of a browser, or "by-hand" to open an '
        "address in any",
    )


def started(path: str, url: str, profile: Path) -> subprocess.Popen[bytes]:
    """A browser without a window, with the address open in it.

    profile   an empty folder, for all that it writes
    """
    switches = [*SWITCHES, f"user-data-dir={profile.resolve()}"]
    if sys.platform == "linux" and os.geteuid() == 0:
        switches.append("no-sandbox")  # as root Chromium refuses to start with one
    return subprocess.Popen(
        [path, *(f"--{switch}" for switch in switches), url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
