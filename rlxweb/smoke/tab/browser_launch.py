"""Browsers of this machine: find a Chromium-based one and start it headless.

Only browsers made of Chromium are started; any other can be sent to the address by
hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from rlxweb.core.errors import UsageError

PROGRAM_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "brave-browser",
)
INSTALL_PATHS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
CHROMIUM_SWITCHES = (
    "headless=new",
    "no-first-run",
    "no-default-browser-check",
    "disable-background-networking",
    "disable-component-update",
    "disable-extensions",
    "disable-sync",
    "enable-unsafe-webgpu",  # without it, no WebGPU on Linux
)
"""Command line switches of Chromium."""


def find_browser(name_or_path: str) -> str:
    """Return the path of the named browser, or of the first one installed if the name
    is "".

    Errors   UsageError, with what was looked for.
    """
    if name_or_path:
        path_found = shutil.which(name_or_path)
        if path_found is None:
            raise UsageError(
                "looking for a browser",
                f"the program {name_or_path!r} was not found",
                hint='pass the path of Chromium, Chrome or Edge, or pass "by-hand", '
                "which prints an address to open in any browser",
            )
        return path_found
    for name in (*PROGRAM_NAMES, *INSTALL_PATHS):
        path = shutil.which(name)
        if path:
            return path
    raise UsageError(
        "looking for a browser",
        f"found none of {', '.join(PROGRAM_NAMES)}",
        hint='install Chromium, pass the path of a browser, or pass "by-hand", which '
        "prints an address to open in any browser",
    )


def start_browser(path: str, url: str, profile: Path) -> subprocess.Popen[bytes]:
    """Start a headless browser that opens the address.

    profile   an empty folder, for all that it writes
    """
    switches = [*CHROMIUM_SWITCHES, f"user-data-dir={profile.resolve()}"]
    if sys.platform == "linux" and os.geteuid() == 0:
        switches.append("no-sandbox")  # as root Chromium refuses to start with one
    return subprocess.Popen(
        [path, *(f"--{switch}" for switch in switches), url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
