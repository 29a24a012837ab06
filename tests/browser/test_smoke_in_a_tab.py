"""`rlxweb smoke --browser`: the suite on the WebGPU of a real browser, by the command.

The browser is the system's own; what the tab needs comes from the built site.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.command_line import environment, spawn, started
from tests.shown_edges import check_shown_of
from tests.site_build import BuiltSite
from tests.waiting import next_line

pytestmark = pytest.mark.requires_browser

UNTIL_IT_ANSWERS = """async (url) => {
    const answers = () => fetch(url, { mode: "no-cors" }).then(() => true, () => false);
    while (!(await answers())) await new Promise((done) => setTimeout(done, 100));
}"""
CASES = "samples/exp/* or samples/fft/1"
FEW = ("--device", "cpu", "-k", CASES)


@pytest.mark.full
def test_a_tab_is_one_more_engine(built_site: BuiltSite) -> None:
    """The same cases as here, on the adapter that the browser offers; at the edges of
    arithmetic it answers what the manual shows.
    """
    site = ("--browser", "--site", built_site.folder)
    cases = ("-k", f"{CASES} or edges/")
    said = spawn("smoke", *FEW, *site, *cases, "--json", "-")
    assert said.out, said.err
    tab = said.record["engines"][1]
    assert (said.code, tab["word"]) == (0, "right"), tab
    assert (tab["key"], tab["kind"], tab["device"]) == ("browser", "browser", "webgpu")
    assert tab["adapter"] == "google swiftshader"
    assert "Chrome" in tab["driver"]
    assert tab["counts"]["right"] > 5
    assert {row["op"] for row in tab["rows"]} == {"exp", "fft", ""}
    assert all(row["cold_ms"] > 0 for row in tab["rows"] if row["word"] == "right")
    refused = [row["why"] for row in tab["rows"] if row["word"] == "refused"]
    assert all(re.search("the device has no (f16|f64|i64);", why) for why in refused)
    check_shown_of(tab)


def test_a_browser_that_ends_at_once_is_a_row(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """A browser that ends at once is a crash in the report, with its exit code."""
    fake = tmp_path / "chromium"
    fake.write_text("#!/bin/sh\nexit 7\n", "utf-8")
    fake.chmod(0o755)
    site = ("--browser", fake, "--site", built_site.folder)
    said = spawn("smoke", *FEW, *site, "--json", "-")
    assert said.code == 1
    tab = said.record["engines"][1]
    assert tab["word"] == "crashed"
    assert "the browser ended with exit code 7" in tab["why"]


@pytest.mark.full
def test_a_kernel_that_is_broken_in_a_browser_sent_by_hand_is_found(
    built_site: BuiltSite, browser: Browser
) -> None:
    """A kernel broken in a browser sent by hand is found, all else is right there.

    The page says what it is at, and when it can be closed; the report has the place of
    the first wrong element.
    """
    command = [sys.executable, "-m", "rlxweb", "smoke", *FEW, "--json", "-"]
    command += ["--sabotage", "kernel:samples/exp/3"]
    command += ["--browser", "by-hand", "--site", str(built_site.folder)]
    with started(command, env=environment()) as running:
        assert running.stderr is not None
        line = next_line(running.stderr, "the address")
        address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", line)
        assert address, line
        page = browser.new_page()
        page.evaluate(UNTIL_IT_ANSWERS, address[0])
        page.goto(address[0])
        page.wait_for_selector("text=this tab can be closed", timeout=120_000)
        said, _ = running.communicate(timeout=120)
        page.close()
    assert running.returncode == 1
    tab = json.loads(said)["engines"][1]
    assert (tab["word"], tab["kind"]) == ("wrong", "browser")
    (wrong,) = [row for row in tab["rows"] if row["word"] == "wrong"]
    assert wrong["case"] == "samples/exp/3"
    assert wrong["first"]["at"]
    assert {row["word"] for row in tab["rows"]} <= {"right", "refused", "wrong"}
    assert tab["counts"]["right"] > 5
