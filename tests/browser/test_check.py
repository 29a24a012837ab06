"""The page that asks whether this GPU is right, driven as a visitor would."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from rlxweb.smoke.case import checked_ops
from rlxweb.smoke.suite import page_cases
from tests.browser.demo_page import NO_GPU, Change, OpenPage, all_changed, changed
from tests.browser.watch import START_MS

pytestmark = pytest.mark.requires_browser

FEWER = """
_every = page_cases
def page_cases():
    seen = {}
    for case in _every():
        row = case.op or case.family
        at = seen[row] = seen.get(row, -1) + 1
        if at % (STEP if case.op else min(STEP, 6)) == 0:
            yield case
"""
"""At the end of check.py: of each op one case in STEP, and some that are of no op."""
OTHER_ROWS = 3
"""Arithmetic, fused chains, random graphs: what is of no one op."""
RUN_MS = 600_000


def fewer(step: int) -> str:
    return FEWER.replace("STEP", str(step))


def how_many(step: int) -> int:
    """The cases that `fewer` leaves."""
    here: dict[str, Any] = {"page_cases": page_cases}
    exec(fewer(step), here)
    return len(list(here["page_cases"]()))


def sentence(page: Page) -> str:
    return page.inner_text("#sentence")


def finished(page: Page) -> str:
    """Waits for the end of the run; its sentence."""
    page.wait_for_selector("#run:not([disabled])", timeout=RUN_MS)
    return sentence(page)


def begun(page: Page) -> None:
    """Waits until some cases were run."""
    page.wait_for_selector('.cell[data-word="right"]', timeout=START_MS)


def cancelled(page: Page) -> str:
    """Cancels what runs; the sentence then."""
    begun(page)
    page.click("#cancel")
    return finished(page)


def walk_by_keys(page: Page) -> None:
    """One Tab stop, arrows between cases, Enter to the details, Escape back."""
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


def look_around(page: Page) -> None:
    """The matrix by keyboard, filters, details by mouse, colours."""
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
    expect(page.locator("#details-title")).to_have_text("No case is picked")

    page.check('input[name="colour"][value="time"]', force=True)
    expect(page.locator("#legend")).to_contain_text("0.1 ms")


def words(page: Page) -> dict[str, int]:
    """How many cells of the matrix show each word."""
    counted: dict[str, int] = page.evaluate(
        """() => { const found = {};
        for (const cell of document.querySelectorAll("#matrix .cell"))
            found[cell.dataset.word] = (found[cell.dataset.word] ?? 0) + 1;
        return found; }"""
    )
    return counted


def report_of(page: Page) -> dict[str, Any]:
    """The JSON report, by its button."""
    with page.expect_download() as waiting:
        page.click("#download")
    assert re.fullmatch(
        r"rlxweb-check-[a-z0-9-]+\.json", waiting.value.suggested_filename
    )
    document: dict[str, Any] = json.loads(Path(waiting.value.path()).read_text("utf-8"))
    return document


@pytest.mark.slow
@pytest.mark.parametrize("step", [20, pytest.param(3, marks=pytest.mark.full)])
def test_every_op_is_right_on_the_adapter_and_the_report_says_so(
    open_page: OpenPage, step: int
) -> None:
    """Every op is right on the adapter, or refused for types that it has not.

    One case in `step` of each op: tests/ops runs all of them on the same adapter.
    """
    less = fewer(step)
    page = changed(open_page, "check/", "check/check.py", lambda text: text + less)
    said, cases = finished(page), how_many(step)
    found = words(page)
    judged = found["right"]
    assert found == {"right": judged, "refused": cases - judged}
    assert said == f"{judged:,} of {judged:,} cases right on google swiftshader"
    document = report_of(page)
    assert document["schema"] == "rlxweb.check/1"
    assert document["complete"] is True
    assert document["broken_on_purpose"] is False
    assert document["summary"] == {
        "total": cases,
        "run": cases,
        "right": judged,
        "wrong": 0,
        "refused": cases - judged,
    }
    assert "swiftshader" in document["device"]["engine"]
    assert document["device"]["facts"]["limits"]["max_buffer_size"] > 0
    assert document["versions"]["rlxweb"]
    assert "Chrome" in document["user_agent"]
    names = {(case["op"], case["sample"]) for case in document["cases"]}
    assert len(names) == cases
    wide = {"f64", "f16", "i64", "u64"}
    for case in document["cases"]:
        types = {one["dtype"] for one in case["inputs"]}
        types.add(case["attrs"].get("to", "f32"))
        # 64 bits run where 32 are enough
        assert case["word"] != "refused" or types & wide, case
        assert case["word"] == "refused" or "f16" not in types, case
        if case["word"] == "right":
            assert case["share"] <= 1
            assert case["ms"] >= case["run_ms"] >= 0
    look_around(page)


def test_what_was_found_is_kept_when_cancelled_and_what_is_broken_is_shown(
    open_page: OpenPage,
) -> None:
    """NumPy can be checked instead; a switch proves that the matrix can show wrong."""
    less = fewer(10)
    page = changed(open_page, "check/", "check/check.py", lambda text: text + less)
    assert cancelled(page).startswith("Cancelled: ")
    assert 0 < words(page)["waiting"] < how_many(10)
    assert "not run" in page.inner_text("#aside")
    assert report_of(page)["complete"] is False

    page.check('input[name="device"][value="cpu"]', force=True)
    page.wait_for_selector("#cancel:not([disabled])")
    said = cancelled(page)
    assert re.match(r"Cancelled: ([\d,]+) of \1 cases right on NumPy [\d.]+", said), (
        said
    )
    assert report_of(page)["compared"] == "NumPy float32 against float64"
    check_spoiled(page)


def check_spoiled(page: Page) -> None:
    """The last run again, with results that are changed on purpose."""
    page.click(".advanced summary")
    page.check("#spoil")
    page.click("#run")
    page.locator('.cell[data-word="wrong"]').nth(2).wait_for(timeout=START_MS)
    page.click("#cancel")
    said, found = finished(page), words(page)
    wrong, run = found["wrong"], found["right"] + found["wrong"]
    assert 3 <= wrong <= run // 40 + 1
    assert said.startswith(f"Cancelled: {run - wrong:,} of {run:,} cases right on")
    assert "changed on purpose" in page.inner_text("#aside")
    page.check('input[name="filter"][value="wrong"]', force=True)
    expect(page.locator("#matrix .cell:visible")).to_have_count(wrong)
    page.click("#matrix .cell:visible >> nth=0")
    details = page.inner_text("#details")
    for word in ("wrong", "First wrong", "got", "wanted", "On purpose"):
        assert word in details
    document = report_of(page)
    assert document["broken_on_purpose"] is True
    bad = [case for case in document["cases"] if case["word"] == "wrong"]
    assert len(bad) == wrong
    assert [case for case in bad if not (case.get("spoiled") and case["first"])] == []


@pytest.mark.full
def test_without_webgpu_it_says_so_and_checks_numpy(open_page: OpenPage) -> None:
    """The page says that there is no WebGPU, checks NumPy, and fits a phone.

    The sentence, a message and the choice of devices say so. Nothing scrolls sideways,
    and the sheet of details leaves the square visible.
    """
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    changes: dict[str, Change] = {
        "worker.js": lambda text: text + NO_GPU,
        "check/check.py": lambda text: text + fewer(40),
    }
    page = all_changed(lambda to: open_page(to, **phone), "check/", changes)
    cases = how_many(40)
    expect(page.locator(".problem")).to_contain_text(
        "This browser offers no WebGPU", timeout=START_MS
    )
    expect(page.locator(".sentence-note")).to_contain_text("No WebGPU here")
    expect(page.locator('input[name="device"][value="webgpu"]')).to_be_disabled()
    assert re.fullmatch(
        rf"{cases:,} of {cases:,} cases right on NumPy [\d.]+, float32 against float64",
        finished(page),
    )
    expect(page.locator('input[name="device"][value="webgpu"]')).to_be_disabled()
    assert words(page) == {"right": cases}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        fits_a_phone(page)


LOSE = """
_facts, _check, _runs = facts, check, []
async def facts(args, buffers):
    _runs.append(0)
    return await _facts(args, buffers)
async def check(args, buffers):
    _runs[-1] += 1
    if len(_runs) == 1 and _runs[-1] == 3:
        pool.backend("webgpu").port._js.lose()
    if len(_runs) == 2 and _runs[-1] > 3:
        return {"word": "wrong", "why": "the device was lost", "lost": True}
    return await _check(args, buffers)
"""
"""At the end of check.py: the first run loses the GPU once, the second from the fourth
case on.
"""


def test_a_gpu_that_is_lost_is_told_and_one_that_keeps_going_away_ends_the_run(
    open_page: OpenPage,
) -> None:
    """A case at which the GPU is lost is wrong, and those after it are run.

    For a GPU that is lost again and again NumPy is the way out.
    """
    code = fewer(20) + LOSE
    page = changed(open_page, "check/", "check/check.py", lambda text: text + code)
    expect(page.locator(".problem")).to_contain_text(
        "The GPU was lost and opened again", timeout=START_MS
    )
    page.wait_for_selector('tr:nth-child(3) .cell[data-word="right"]')
    page.click("#cancel")
    finished(page)
    (lost,) = [c for c in report_of(page)["cases"] if c["word"] == "wrong"]
    assert (lost["raised"], lost["lost"]) == ("DeviceLost", True)

    page.click("#run")
    expect(page.locator(".problem")).to_contain_text(
        "The GPU keeps going away", timeout=START_MS
    )
    assert words(page)["wrong"] == 3
    page.get_by_role("button", name="Check NumPy instead").click()
    page.wait_for_selector("#cancel:not([disabled])")
    expect(page.locator("#sentence")).to_contain_text("on NumPy")
    said = cancelled(page)
    assert re.match(r"Cancelled: ([\d,]+) of \1 cases right on NumPy", said), said
    expect(page.locator(".problem")).to_have_count(0)


def fits_a_phone(page: Page) -> None:
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
