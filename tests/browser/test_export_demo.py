"""Check the demo that runs an exported module beside Python in the tab."""

from __future__ import annotations

import json
import re

import pytest
from assembly.export_demo_plan import EXPORT_SETTINGS
from playwright.sync_api import Page, expect

from tests.browser.page_monitor import START_MS
from tests.browser.patched_demo_page import (
    DEMO,
    NO_GPU,
    OpenPage,
    check_page_fits_phone,
    open_with_change,
)

pytestmark = pytest.mark.requires_browser


def run_both_sides(page: Page) -> None:
    """Click Run and wait until both sides have run."""
    page.click("#run")
    page.wait_for_selector("#run:not([disabled])", timeout=START_MS)


@pytest.mark.slow
def test_both_sides_have_the_same_numbers_and_shaders(open_page: OpenPage) -> None:
    """The exported module and Python in the tab agree bit for bit on one adapter.

    They run the same shaders letter by letter, the module is a hundredth of the bytes,
    and the exported page beside the demo checks itself.
    """
    page = open_page("demo/export/")
    expect(page.locator(".start")).to_be_hidden()
    run_both_sides(page)
    assert page.inner_text("#verdict") == "Right: the same 320 numbers, bit for bit"
    aside = page.inner_text("#aside")
    assert re.fullmatch(
        r"Both ran the same (shader|[1-9]\d* shaders), letter by letter\.", aside
    )
    sides = [page.inner_text(f"#{side} .facts") for side in ("module", "python")]
    sizes = [re.search(r"([\d,]+) bytes", text) for text in sides]
    module_nbytes, python_nbytes = (
        int(size[1].replace(",", "")) for size in sizes if size
    )
    assert 30_000 < module_nbytes < 100_000
    assert python_nbytes > 100 * module_nbytes
    for text in sides:
        assert "swiftshader" in text
    tables = [page.inner_text(f"#{side} table") for side in ("module", "python")]
    assert tables[0] == tables[1]
    assert "4 Hz" in tables[0]
    run_both_sides(page)
    assert page.inner_text("#verdict").startswith("Right: ")
    page.get_by_role("link", name="a folder next to this page").click()
    page.wait_for_selector("html[data-state=right]")


@pytest.mark.full
def test_each_side_reports_missing_webgpu(open_page: OpenPage) -> None:
    """The module says that there is no WebGPU, and Python computes with NumPy."""
    page = open_with_change(
        open_page, "export/", "worker.js", lambda text: text + NO_GPU
    )
    page.evaluate('Object.defineProperty(navigator, "gpu", { value: undefined })')
    run_both_sides(page)
    expect(page.locator("#module .facts")).to_contain_text("no WebGPU")
    expect(page.locator("#module .facts")).to_contain_text("(no-webgpu)")
    expect(page.locator("#python .facts")).to_contain_text("NumPy")
    expect(page.locator("#verdict")).to_contain_text("nothing to compare")


def test_page_and_site_builder_use_the_same_job() -> None:
    """The page's numbers are those that the site's builder exports."""
    script = (DEMO / "export" / "export.js").read_text("utf-8")
    job_match = re.search(r"const JOB = \{(.*?)\};", script)
    assert job_match
    assert (
        json.loads("{" + re.sub(r"(\w+):", r'"\1":', job_match[1]) + "}")
        == EXPORT_SETTINGS
    )


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    """The page without Python does not scroll sideways before it has run."""
    check_page_fits_phone(open_page, "export/")
