"""The page of `rlxweb smoke --html`, opened as a file, by a browser without network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rlxweb.smoke.compare import comparison
from rlxweb.smoke.page import page as page_of
from tests.browser.watch import check_schemes_on_a_phone
from tests.unit.smoke.made_report import engine, report, row

pytestmark = pytest.mark.requires_browser

WRONG = row("samples/fft/1", "wrong", why="2 of 12 elements\x1b[31m are wrong")
MADE = report(
    engine(
        "cpu", row("samples/add/0"), row("samples/fft/1"), adapter="", backend="numpy"
    ),
    engine(
        "vulkan:llvmpipe",
        row("samples/add/0", inputs=[[[0, 4], "f32"]]),
        row("samples/add/1", "refused", inputs=[[[100, 200], "f64"]]),
        row("samples/add/2", "known", known={"reason": "it folds", "evidence": "seen"}),
        WRONG,
        row("samples/fft/2", "unexpected pass"),
        row("graphs//7", op="", family="graphs", inputs=[]),
    ),
    engine("opengl", row("samples/add/0", "not run"), word="hung", why="60 s passed"),
    engine("cuda", word="missing", why="no <driver>"),
)
Open = Callable[..., Page]


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """`open_report(document, **context)`: its page; complaints fail the test."""
    wrong: list[str] = []
    opened: list[Page] = []

    def open_(document: dict[str, Any], **context: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_text(page_of(document), "utf-8")
        made = browser.new_context(offline=True, accept_downloads=True, **context)
        made.on("console", lambda said: wrong.append(said.text))
        made.on("weberror", lambda said: wrong.append(str(said.error)))
        shown = made.new_page()
        asked = wrong.append
        shown.on("request", lambda r: None if r.url == path.as_uri() else asked(r.url))
        shown.goto(path.as_uri())
        opened.append(shown)
        return shown

    yield open_
    for one in opened:
        one.context.close()
    assert not wrong


def marks(page: Page) -> dict[str, str]:
    """The squares by their names."""
    found: dict[str, str] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#matrix .cell")]
        .map((cell) => [cell.ariaLabel.split(":")[0], cell.dataset.word]))"""
    )
    return found


def test_the_engines_and_the_matrix_of_all_are_shown(open_report: Open) -> None:
    """What is wrong stands in the first line; each op is marked by its worst case."""
    page = open_report(MADE)
    expect(page.locator("#sentence")).to_have_text(
        "2 of 3 engines not right: vulkan:llvmpipe wrong, opengl hung"
    )
    assert "1 known to be wrong" in page.inner_text("#aside")
    rows = [row.split("\t") for row in page.locator("#engines tr").all_inner_texts()]
    assert [one[0] for one in rows] == ["cpu", "vulkan:llvmpipe", "opengl", "cuda"]
    assert "60 s passed" in rows[2][2]
    assert "no <driver>" in rows[3][2]
    assert marks(page) == {
        "add on cpu": "right",
        "add on vulkan": "known",
        "add on opengl": "not run",
        "fft on cpu": "right",
        "fft on vulkan": "wrong",
        "graphs on vulkan": "right",
    }
    label = page.locator('.cell[data-word="known"]').get_attribute("aria-label")
    assert label == "add on vulkan:llvmpipe: 1 right, 1 refused, 1 known"


def test_an_op_of_an_engine_opens_at_its_worst_case(open_report: Open) -> None:
    """An op opens at its worst case by mouse and keys; Escape goes back."""
    page = open_report(MADE)
    page.click('.cell[aria-label^="fft on vulkan"]')
    expect(page.locator("#engine")).to_have_value("vulkan:llvmpipe")
    expect(page.locator("#details-title")).to_have_text("fft wrong")
    details = page.inner_text("#details")
    for said in ("3×4 f32", "at [1, 2]", "got nan", "wanted 0.5", "1.25 GB/s"):
        assert said in details
    assert r"elements\x1b[31m are wrong" in details
    assert "12 ms, 2.5 ms when warm" in details or "13 ms, 2.5 ms when" in details
    assert page.evaluate("document.activeElement.id") == "details"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.word") == "wrong"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("#details-title")).to_contain_text("add")
    page.keyboard.press("Escape")
    page.focus("#engines button >> nth=0")
    page.keyboard.press("Enter")
    expect(page.locator("#engine")).to_have_value("cpu")


def test_cases_are_filtered_and_coloured(open_report: Open) -> None:
    """Cases are filtered, for one engine or all, by words that some case has."""
    page = open_report(MADE)
    filters = page.locator("#filter label").all_inner_texts()
    assert filters == [
        "All",
        "Wrong (1)",
        "Refused (1)",
        "Known (1)",
        "Unexpected pass (1)",
        "Not run (1)",
    ]
    page.check('input[name="filter"][value="refused"]', force=True)
    expect(page.locator("#matrix .cell:visible")).to_have_count(1)
    page.select_option("#engine", "vulkan:llvmpipe")
    page.check('input[name="filter"][value="known"]', force=True)
    page.click("#matrix .cell:visible")
    assert "it folds" in page.inner_text("#details")
    page.select_option("#engine", "cpu")
    expect(page.locator("#nothing")).to_have_text("No case is known.")
    page.check('input[name="colour"][value="time"]', force=True)
    expect(page.locator("#legend")).to_contain_text("30 ms")
    with page.expect_download() as waiting:
        page.click("#download")
    assert waiting.value.suggested_filename == "rlxweb-smoke.json"


def test_what_changed_is_listed(open_report: Open) -> None:
    """Changes are listed by what they are, the worst first."""
    before = report(engine("vulkan:llvmpipe", row("samples/fft/1"), driver="Mesa 22"))
    after = report(engine("vulkan:llvmpipe", WRONG))
    page = open_report(after | {"comparison": comparison(before, after)})
    said = page.inner_text("#comparison")
    assert said.index("became wrong (1)") < said.index("other driver (1)")
    assert "vulkan:llvmpipe: samples/fft/1: wrong, was right" in said
    page = open_report(before | {"comparison": comparison(before, before)})
    expect(page.locator("#comparison")).to_contain_text("Nothing changed.")
    expect(page.locator("#sentence")).to_have_text("1 case right on 1 engine")


def test_it_fits_a_phone_and_is_dark_where_all_is(open_report: Open) -> None:
    """The report fits a phone in light and dark; details leave the square visible."""
    size = {"width": 390, "height": 844}
    page = open_report(MADE, viewport=size, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator('.cell[aria-label^="fft on vulkan"]').tap()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    sheet = page.locator("#details").bounding_box()
    square = page.locator('.cell[data-word="wrong"]').bounding_box()
    assert sheet is not None
    assert square is not None
    assert square["y"] + square["height"] <= sheet["y"]
    check_schemes_on_a_phone(page)
