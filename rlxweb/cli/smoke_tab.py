"""`rlxweb smoke --browser`: a browser's WebGPU as one more engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from rlxweb.cli.screen import say
from rlxweb.errors import UsageError
from rlxweb.pages.server import free_port, new_secret
from rlxweb.smoke.engine import Engine
from rlxweb.smoke.run import Settings
from rlxweb.smoke.tab.browsers import browser_path
from rlxweb.smoke.tab.here import Launch
from rlxweb.smoke.tab.runtime import runtime_folder

BY_HAND = "by-hand"
_START_S = 300.0
_BY_HAND_START_S = 900.0
_SLOWER = 4
"""Times as long as elsewhere may all cases take: Python is slower in a tab."""
_OPTIONS = (
    click.option(
        "--browser",
        is_flag=False,
        flag_value="",
        metavar="[PATH]",
        help="Try a browser's WebGPU too: the first Chromium, Chrome or Edge that is "
        "found, or PATH, without a window; 'by-hand' shows an address for any browser.",
    ),
    click.option(
        "--wasm",
        is_flag=True,
        help="Try NumPy in WebAssembly too, as a tab has it: Pyodide under node.",
    ),
    click.option(
        "--site",
        metavar="DIR",
        help="Where Pyodide and NumPy for them are: a site built by `./dev "
        "site`, or an unpacked release of Pyodide [this checkout's build/site].",
    ),
)


def tab_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that add a browser."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def launch_of(given: Mapping[str, Any]) -> Launch | None:
    """How the tab is started; None where none is asked for.

    Errors   UsageError where there is no such browser, or no Pyodide.
    """
    browser, site = given["browser"], given["site"]
    if browser is None:
        if site is not None and not given["wasm"]:
            raise UsageError(
                "--site",
                "it says where Pyodide is, and none is asked for",
                hint="say --browser or --wasm as well",
            )
        return None
    path = "" if browser == BY_HAND else browser_path(browser)
    runtime = runtime_folder(site)
    return Launch(path, str(runtime), "", free_port(), new_secret())


@contextmanager
def tab_engines(launch: Launch | None) -> Iterator[list[Engine]]:
    """The engine of the tab, while its browser has a folder to write in."""
    if launch is None:
        yield []
        return
    # A browser that was killed may write for a moment longer.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        told = replace(launch, profile=profile).as_json()
        yield [Engine("webgpu", kind="browser", launch=told)]


def announce(console: Console, engine: Engine) -> None:
    """Say where a tab is to be opened, if that is left to the user."""
    if engine.kind == "browser" and not engine.launch["browser"]:
        where = Launch(**engine.launch).url
        say(console, f"open this in the browser that is to be tried: {where}")


def settings_for(engine: Engine, settings: Settings) -> Settings:
    """A tab starts slowly: it compiles Python first, and may wait for a hand."""
    if engine.kind != "browser":
        return settings
    start_s = _START_S if engine.launch["browser"] else _BY_HAND_START_S
    bounds = settings.bounds
    bounds = replace(
        bounds,
        start_s=max(bounds.start_s, start_s),
        total_s=bounds.total_s * _SLOWER,
    )
    return replace(settings, bounds=bounds)
