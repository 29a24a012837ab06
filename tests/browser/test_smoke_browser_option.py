"""Check `rlxweb smoke --browser`: the suite on a real browser's WebGPU, run by the
command.

The browser is the system's own; what the tab needs comes from the built site.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.built_site_fixture import BuiltSite
from tests.cli_runners import run_cli, running_process, subprocess_environment
from tests.documented_edge_cases import check_documented_answers
from tests.wait_with_deadline import next_line

pytestmark = pytest.mark.requires_browser

WAIT_FOR_SERVER_JS = """async (url) => {
    const answers = () => fetch(url, { mode: "no-cors" }).then(() => true, () => false);
    while (!(await answers())) await new Promise((done) => setTimeout(done, 100));
}"""
CASES = "samples/exp/* or samples/fft/1"
FEW_CASES_OPTIONS = ("--device", "cpu", "-k", CASES)


@pytest.mark.full
def test_tab_is_reported_as_an_engine(built_site: BuiltSite) -> None:
    """The tab runs the same cases on the adapter that the browser offers; its edge
    cases of arithmetic give what the manual shows.
    """
    site_options = ("--browser", "--site", built_site.folder)
    case_options = ("-k", f"{CASES} or edges/")
    run_result = run_cli(
        "smoke", *FEW_CASES_OPTIONS, *site_options, *case_options, "--json", "-"
    )
    assert run_result.out, run_result.err
    tab = run_result.document["engines"][1]
    assert (run_result.code, tab["word"]) == (0, "right"), tab
    assert (tab["key"], tab["kind"], tab["device"]) == ("browser", "browser", "webgpu")
    assert tab["adapter"] == "google swiftshader"
    assert "Chrome" in tab["driver"]
    assert tab["counts"]["right"] > 5
    assert {row["op"] for row in tab["rows"]} == {"exp", "fft", ""}
    assert all(row["cold_ms"] > 0 for row in tab["rows"] if row["word"] == "right")
    refused = [row["why"] for row in tab["rows"] if row["word"] == "refused"]
    assert all(
        re.search("the device has no (f16|f64|i64) support;", why) for why in refused
    )
    check_documented_answers(tab)


def test_browser_that_exits_at_once_is_reported_as_crashed(
    built_site: BuiltSite, tmp_path: Path
) -> None:
    """A browser that ends at once is a crash in the report, with its exit code."""
    fake = tmp_path / "chromium"
    fake.write_text("#!/bin/sh\nexit 7\n", "utf-8")
    fake.chmod(0o755)
    site_options = ("--browser", fake, "--site", built_site.folder)
    run_result = run_cli("smoke", *FEW_CASES_OPTIONS, *site_options, "--json", "-")
    assert run_result.code == 1
    tab = run_result.document["engines"][1]
    assert tab["word"] == "crashed"
    assert "the browser ended with exit code 7" in tab["why"]


@pytest.mark.full
def test_broken_kernel_is_found_in_a_browser_opened_by_hand(
    built_site: BuiltSite, browser: Browser
) -> None:
    """A kernel broken in a browser opened by hand is found; all else is right there.

    The page says what it is at, and when it can be closed; the report has the place of
    the first wrong element.
    """
    command = [
        sys.executable,
        "-m",
        "rlxweb",
        "smoke",
        *FEW_CASES_OPTIONS,
        "--json",
        "-",
    ]
    command += ["--sabotage", "kernel:samples/exp/3"]
    command += ["--browser", "by-hand", "--site", str(built_site.folder)]
    with running_process(command, env=subprocess_environment()) as running:
        assert running.stderr is not None
        line = next_line(running.stderr, "the address")
        address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", line)
        assert address, line
        page = browser.new_page()
        page.evaluate(WAIT_FOR_SERVER_JS, address[0])
        page.goto(address[0])
        page.wait_for_selector("text=this tab can be closed", timeout=120_000)
        output, _ = running.communicate(timeout=120)
        page.close()
    assert running.returncode == 1
    tab = json.loads(output)["engines"][1]
    assert (tab["word"], tab["kind"]) == ("wrong", "browser")
    (wrong,) = [row for row in tab["rows"] if row["word"] == "wrong"]
    assert wrong["case"] == "samples/exp/3"
    assert wrong["first"]["at"]
    assert {row["word"] for row in tab["rows"]} <= {"right", "refused", "wrong"}
    assert tab["counts"]["right"] > 5
