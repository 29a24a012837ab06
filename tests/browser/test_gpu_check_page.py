"""Check the page that tests the visitor's GPU for correctness, driven as a visitor
would.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from rlxweb.smoke.case import checked_ops
from rlxweb.smoke.suite import page_cases
from tests.browser.page_monitor import START_MS
from tests.browser.patched_demo_page import (
    NO_GPU,
    Change,
    OpenPage,
    open_with_change,
    open_with_changes,
)

pytestmark = pytest.mark.requires_browser

SUBSAMPLE_CODE = """
_every = page_cases
def page_cases():
    seen = {}
    for case in _every():
        row = case.op or case.family
        at = seen[row] = seen.get(row, -1) + 1
        if at % (STEP if case.op else min(STEP, 6)) == 0:
            yield case
"""
"""Code for the end of check.py: one case in STEP of each op, and some of no op."""
OTHER_ROWS = 3
"""Number of rows of no single op: arithmetic, fused chains, random graphs."""
RUN_MS = 600_000


def subsample_code(step: int) -> str:
    return SUBSAMPLE_CODE.replace("STEP", str(step))


def case_count(step: int) -> int:
    """Return the number of cases that `subsample_code` leaves."""
    namespace: dict[str, Any] = {"page_cases": page_cases}
    exec(subsample_code(step), namespace)
    return len(list(namespace["page_cases"]()))


def sentence_text(page: Page) -> str:
    return page.inner_text("#sentence")


def wait_until_finished(page: Page) -> str:
    """Wait for the end of the run and return its sentence."""
    page.wait_for_selector("#run:not([disabled])", timeout=RUN_MS)
    return sentence_text(page)


def wait_for_first_cases(page: Page) -> None:
    """Wait until some cases were run."""
    page.wait_for_selector('.cell[data-word="right"]', timeout=START_MS)


def cancel_run(page: Page) -> str:
    """Cancel the run and return the sentence."""
    wait_for_first_cases(page)
    page.click("#cancel")
    return wait_until_finished(page)


def walk_by_keys(page: Page) -> None:
    """Check the keys: one Tab stop, arrows between cases, Enter to the details, Escape
    back.
    """
    stop = page.locator('#matrix .cell[tabindex="0"]')
    assert stop.count() == 1
    stop.focus()
    label = "document.activeElement.getAttribute('aria-label')"
    first = page.evaluate(label)
    assert first.startswith("abs ")
    page.keyboard.press("ArrowRight")
    second = page.evaluate(label)
    assert second != first
    assert second.startswith("abs ")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(label).startswith("acos ")
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(label).startswith("acosh ")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "details"
    expect(page.locator("#details-title")).to_contain_text("acosh")
    page.keyboard.press("Escape")
    assert page.evaluate(label).startswith("acosh ")
    assert stop.count() == 1


def check_matrix_controls(page: Page) -> None:
    """Check the matrix by keyboard, filters, details by mouse, colours."""
    walk_by_keys(page)

    page.check('input[name="filter"][value="wrong"]', force=True)
    expect(page.locator("#nothing")).to_have_text("No case is wrong.")
    expect(page.locator("#matrix tbody tr:visible")).to_have_count(0)
    page.check('input[name="filter"][value="all"]', force=True)
    expect(page.locator("#matrix tbody tr:visible")).to_have_count(
        len(checked_ops()) + OTHER_ROWS
    )

    page.click('.cell[aria-label^="matmul "]')
    expect(page.locator("#details-title")).to_contain_text("matmul right")
    details = page.inner_text("#details")
    for word in ("Inputs", "Tolerance", "Largest error", "Time", "x1:"):
        assert word in details
    page.keyboard.press("Escape")
    expect(page.locator("#details-title")).to_have_text("No case is selected")

    page.check('input[name="colour"][value="time"]', force=True)
    expect(page.locator("#legend")).to_contain_text("0.1 ms")


def count_cell_words(page: Page) -> dict[str, int]:
    """Return the number of cells of the matrix by the word they show."""
    counts: dict[str, int] = page.evaluate(
        """() => { const found = {};
        for (const cell of document.querySelectorAll("#matrix .cell"))
            found[cell.dataset.word] = (found[cell.dataset.word] ?? 0) + 1;
        return found; }"""
    )
    return counts


def download_report(page: Page) -> dict[str, Any]:
    """Download the JSON report by its button."""
    with page.expect_download() as download:
        page.click("#download")
    assert re.fullmatch(
        r"rlxweb-check-[a-z0-9-]+\.json", download.value.suggested_filename
    )
    document: dict[str, Any] = json.loads(
        Path(download.value.path()).read_text("utf-8")
    )
    return document


@pytest.mark.slow
@pytest.mark.parametrize("step", [20, pytest.param(3, marks=pytest.mark.full)])
def test_every_op_is_correct_on_the_adapter_and_in_the_report(
    open_page: OpenPage, step: int
) -> None:
    """Every op is right on the adapter, or refused for types that the adapter lacks.

    One case in `step` of each op: tests/ops runs all of them on the same adapter.
    """
    extra_code = subsample_code(step)
    page = open_with_change(
        open_page, "check/", "check/check.py", lambda text: text + extra_code
    )
    sentence, cases = wait_until_finished(page), case_count(step)
    counts = count_cell_words(page)
    n_right = counts["right"]
    assert counts == {"right": n_right, "refused": cases - n_right}
    assert sentence == f"{n_right:,} of {n_right:,} cases right on google swiftshader"
    document = download_report(page)
    assert document["schema"] == "rlxweb.check/1"
    assert document["complete"] is True
    assert document["broken_on_purpose"] is False
    assert document["summary"] == {
        "total": cases,
        "run": cases,
        "right": n_right,
        "wrong": 0,
        "refused": cases - n_right,
    }
    assert "swiftshader" in document["device"]["engine"]
    assert document["device"]["facts"]["limits"]["max_buffer_size"] > 0
    assert document["versions"]["rlxweb"]
    assert "Chrome" in document["user_agent"]
    names = {(case["op"], case["sample"]) for case in document["cases"]}
    assert len(names) == cases
    unsupported = {"f64", "f16", "i64", "u64"}
    for case in document["cases"]:
        types = {array["dtype"] for array in case["inputs"]}
        types.add(case["attrs"].get("to", "f32"))
        # 64 bits run where 32 are enough
        assert case["word"] != "refused" or types & unsupported, case
        assert case["word"] == "refused" or "f16" not in types, case
        if case["word"] == "right":
            assert case["share"] <= 1
            assert case["ms"] >= case["run_ms"] >= 0
    check_matrix_controls(page)


def test_results_are_kept_when_cancelled_and_deliberate_errors_are_shown(
    open_page: OpenPage,
) -> None:
    """NumPy can be checked instead; a switch proves that the matrix can show wrong."""
    extra_code = subsample_code(10)
    page = open_with_change(
        open_page, "check/", "check/check.py", lambda text: text + extra_code
    )
    assert cancel_run(page).startswith("Cancelled: ")
    assert 0 < count_cell_words(page)["waiting"] < case_count(10)
    assert "not run" in page.inner_text("#aside")
    assert download_report(page)["complete"] is False

    page.check('input[name="device"][value="cpu"]', force=True)
    page.wait_for_selector("#cancel:not([disabled])")
    sentence = cancel_run(page)
    assert re.match(
        r"Cancelled: ([\d,]+) of \1 cases right on NumPy [\d.]+", sentence
    ), sentence
    assert download_report(page)["compared"] == "NumPy float32 against float64"
    check_deliberate_errors(page)


def check_deliberate_errors(page: Page) -> None:
    """Check the last run again, with results that are changed on purpose."""
    page.click(".advanced summary")
    page.check("#spoil")
    page.click("#run")
    page.locator('.cell[data-word="wrong"]').nth(2).wait_for(timeout=START_MS)
    page.click("#cancel")
    sentence, counts = wait_until_finished(page), count_cell_words(page)
    wrong, run = counts["wrong"], counts["right"] + counts["wrong"]
    assert 3 <= wrong <= run // 40 + 1
    assert sentence.startswith(f"Cancelled: {run - wrong:,} of {run:,} cases right on")
    assert "changed on purpose" in page.inner_text("#aside")
    page.check('input[name="filter"][value="wrong"]', force=True)
    expect(page.locator("#matrix .cell:visible")).to_have_count(wrong)
    page.click("#matrix .cell:visible >> nth=0")
    details = page.inner_text("#details")
    for word in ("wrong", "First wrong", "got", "wanted", "On purpose"):
        assert word in details
    document = download_report(page)
    assert document["broken_on_purpose"] is True
    bad = [case for case in document["cases"] if case["word"] == "wrong"]
    assert len(bad) == wrong
    assert [case for case in bad if not (case.get("spoiled") and case["first"])] == []


@pytest.mark.full
def test_without_webgpu_the_page_reports_it_and_checks_numpy(
    open_page: OpenPage,
) -> None:
    """The page says that there is no WebGPU, checks NumPy, and fits a phone.

    The sentence, a message and the choice of devices say so. Nothing scrolls sideways,
    and the sheet of details leaves the square visible.
    """
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    changes: dict[str, Change] = {
        "worker.js": lambda text: text + NO_GPU,
        "check/check.py": lambda text: text + subsample_code(40),
    }
    page = open_with_changes(lambda to: open_page(to, **phone), "check/", changes)
    cases = case_count(40)
    expect(page.locator(".problem")).to_contain_text(
        "This browser offers no WebGPU", timeout=START_MS
    )
    expect(page.locator(".sentence-note")).to_contain_text("WebGPU is not available")
    expect(page.locator('input[name="device"][value="webgpu"]')).to_be_disabled()
    assert re.fullmatch(
        rf"{cases:,} of {cases:,} cases right on NumPy [\d.]+, "
        "float32 compared with float64",
        wait_until_finished(page),
    )
    expect(page.locator('input[name="device"][value="webgpu"]')).to_be_disabled()
    assert count_cell_words(page) == {"right": cases}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        check_fits_phone(page)


DEVICE_LOSS_CODE = """
_facts, _check, _runs = facts, check, []
async def facts(args, buffers):
    _runs.append(0)
    return await _facts(args, buffers)
async def check(args, buffers):
    _runs[-1] += 1
    if len(_runs) == 1 and _runs[-1] == 3:
        pool.engine("webgpu").port._js.lose()
    if len(_runs) == 2 and _runs[-1] > 3:
        return {"word": "wrong", "why": "the device was lost", "lost": True}
    return await _check(args, buffers)
"""
"""Code for the end of check.py: the first run loses the GPU once, the second from the
fourth case on.
"""


def test_a_lost_gpu_is_reported_and_repeated_loss_ends_the_run(
    open_page: OpenPage,
) -> None:
    """A case at which the GPU is lost is wrong, and those after it are run.

    For a GPU that is lost again and again NumPy is the way out.
    """
    code = subsample_code(20) + DEVICE_LOSS_CODE
    page = open_with_change(
        open_page, "check/", "check/check.py", lambda text: text + code
    )
    expect(page.locator(".problem")).to_contain_text(
        "The GPU was lost and opened again", timeout=START_MS
    )
    page.wait_for_selector('tr:nth-child(3) .cell[data-word="right"]')
    page.click("#cancel")
    wait_until_finished(page)
    (lost,) = [c for c in download_report(page)["cases"] if c["word"] == "wrong"]
    assert (lost["raised"], lost["lost"]) == ("DeviceLost", True)

    page.click("#run")
    expect(page.locator(".problem")).to_contain_text(
        "The GPU was lost repeatedly", timeout=START_MS
    )
    assert count_cell_words(page)["wrong"] == 3
    page.get_by_role("button", name="Check NumPy instead").click()
    page.wait_for_selector("#cancel:not([disabled])")
    expect(page.locator("#sentence")).to_contain_text("on NumPy")
    sentence = cancel_run(page)
    assert re.match(r"Cancelled: ([\d,]+) of \1 cases right on NumPy", sentence), (
        sentence
    )
    expect(page.locator(".problem")).to_have_count(0)


def check_fits_phone(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    cell = page.locator('.cell[aria-label^="where "]').first
    cell.tap()
    sheet = page.locator("#details").bounding_box()
    square = cell.bounding_box()
    assert sheet is not None
    assert square is not None
    assert sheet["y"] + sheet["height"] <= 844
    assert square["y"] + square["height"] <= sheet["y"]
    page.click("#details-close")
    expect(page.locator("#details")).to_be_hidden()
