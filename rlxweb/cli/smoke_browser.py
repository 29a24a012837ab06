"""`rlxweb smoke --browser`: test a browser's WebGPU as one more engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from rlxweb.cli.console import print_lines
from rlxweb.core.errors import UsageError
from rlxweb.export.local_server import find_free_port, make_secret
from rlxweb.smoke.engine_run import SmokeSettings
from rlxweb.smoke.smoke_engine import SmokeEngine
from rlxweb.smoke.tab.browser_launch import find_browser
from rlxweb.smoke.tab.browser_tab import TabLaunch
from rlxweb.smoke.tab.pyodide_folder import find_pyodide_folder

BY_HAND = "by-hand"
_BROWSER_START_TIMEOUT_S = 300.0
_BY_HAND_START_TIMEOUT_S = 900.0
_BROWSER_TIME_FACTOR = 4
"""Factor on the total time limit: Python is slower in a browser."""
_BROWSER_OPTIONS = (
    click.option(
        "--browser",
        is_flag=False,
        flag_value="",
        metavar="[PATH]",
        help="Also test WebGPU in a headless browser: PATH, or the first Chromium, "
        "Chrome or Edge found; 'by-hand' prints an address to open in any browser.",
    ),
    click.option(
        "--wasm",
        is_flag=True,
        help="Also test NumPy in WebAssembly (Pyodide in Node.js).",
    ),
    click.option(
        "--site",
        metavar="DIR",
        help="Folder with Pyodide and its NumPy: a site built by `./dev site`, or an "
        "unpacked release of Pyodide [build/site of this checkout].",
    ),
)


def add_browser_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select a browser."""
    for option in reversed(_BROWSER_OPTIONS):
        command = option(command)
    return command


def make_browser_launch(option_values: Mapping[str, Any]) -> TabLaunch | None:
    """Return how to start the browser tab; None where none is requested.

    Errors   UsageError where there is no such browser, or no Pyodide.
    """
    browser, site = option_values["browser"], option_values["site"]
    if browser is None:
        if site is not None and not option_values["wasm"]:
            raise UsageError(
                "--site",
                "it applies only to --browser and --wasm",
                hint="add --browser or --wasm",
            )
        return None
    path = "" if browser == BY_HAND else find_browser(browser)
    runtime = find_pyodide_folder(site)
    return TabLaunch(path, str(runtime), "", find_free_port(), make_secret())


@contextmanager
def browser_engines(launch: TabLaunch | None) -> Iterator[list[SmokeEngine]]:
    """Yield the browser engine while its browser has a profile folder to write in."""
    if launch is None:
        yield []
        return
    # A browser that was killed may write for a moment longer.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        launch_json = replace(launch, profile=profile).as_json()
        yield [SmokeEngine("webgpu", kind="browser", launch=launch_json)]


def print_manual_address(console: Console, engine: SmokeEngine) -> None:
    """Print the address to open, if opening the tab is left to the user."""
    if engine.kind == "browser" and not engine.launch["browser"]:
        url = TabLaunch(**engine.launch).url
        print_lines(console, f"to run the tests, open this address in a browser: {url}")


def settings_for_engine(engine: SmokeEngine, settings: SmokeSettings) -> SmokeSettings:
    """Return settings with longer time limits for a browser, which compiles Python
    first and may wait for the user.
    """
    if engine.kind != "browser":
        return settings
    start_s = (
        _BROWSER_START_TIMEOUT_S
        if engine.launch["browser"]
        else _BY_HAND_START_TIMEOUT_S
    )
    bounds = settings.limits
    bounds = replace(
        bounds,
        start_s=max(bounds.start_s, start_s),
        total_s=bounds.total_s * _BROWSER_TIME_FACTOR,
    )
    return replace(settings, limits=bounds)
