"""Check the page of `rlxweb smoke --html`, opened as a file by a browser without
network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rlxweb.smoke.report_comparison import compare_reports
from rlxweb.smoke.report_page import render_report_page as page_of
from tests.browser.page_monitor import check_schemes_on_a_phone
from tests.unit.smoke.report_factory import make_engine, make_report, make_row

pytestmark = pytest.mark.requires_browser

WRONG_ROW = make_row("samples/fft/1", "wrong", why="2 of 12 elements\x1b[31m are wrong")
REPORT = make_report(
    make_engine(
        "cpu",
        make_row("samples/add/0"),
        make_row("samples/fft/1"),
        adapter="",
        backend="numpy",
    ),
    make_engine(
        "vulkan:llvmpipe",
        make_row("samples/add/0", inputs=[[[0, 4], "f32"]]),
        make_row("samples/add/1", "refused", inputs=[[[100, 200], "f64"]]),
        make_row(
            "samples/add/2", "known", known={"reason": "it folds", "evidence": "seen"}
        ),
        WRONG_ROW,
        make_row("samples/fft/2", "unexpected pass"),
        make_row("graphs//7", op="", family="graphs", inputs=[]),
    ),
    make_engine(
        "opengl", make_row("samples/add/0", "not run"), word="hung", why="60 s passed"
    ),
    make_engine("cuda", word="missing", why="no <driver>"),
)
OpenReport = Callable[..., Page]


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[OpenReport]:
    """Yield `open_report(document, **context)`, which returns the page; errors and
    requests of pages fail the test.
    """
    problems: list[str] = []
    pages: list[Page] = []

    def open_(document: dict[str, Any], **context: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_text(page_of(document), "utf-8")
        browser_context = browser.new_context(
            offline=True, accept_downloads=True, **context
        )
        browser_context.on("console", lambda event: problems.append(event.text))
        browser_context.on("weberror", lambda event: problems.append(str(event.error)))
        page = browser_context.new_page()
        report_problem = problems.append
        page.on(
            "request",
            lambda r: None if r.url == path.as_uri() else report_problem(r.url),
        )
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_
    for page in pages:
        page.context.close()
    assert not problems


def matrix_words(page: Page) -> dict[str, str]:
    """Return the result word of each square by the square's name."""
    words: dict[str, str] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#matrix .cell")]
        .map((cell) => [cell.ariaLabel.split(":")[0], cell.dataset.word]))"""
    )
    return words


def test_engines_and_matrix_are_shown(open_report: OpenReport) -> None:
    """The first line says what is wrong; each op is marked by its worst case."""
    page = open_report(REPORT)
    expect(page.locator("#sentence")).to_have_text(
        "2 of 3 engines not right: vulkan:llvmpipe wrong, opengl hung"
    )
    assert "1 known to be wrong" in page.inner_text("#aside")
    rows = [row.split("\t") for row in page.locator("#engines tr").all_inner_texts()]
    assert [cells[0] for cells in rows] == ["cpu", "vulkan:llvmpipe", "opengl", "cuda"]
    assert "60 s passed" in rows[2][2]
    assert "no <driver>" in rows[3][2]
    assert matrix_words(page) == {
        "add on cpu": "right",
        "add on vulkan": "known",
        "add on opengl": "not run",
        "fft on cpu": "right",
        "fft on vulkan": "wrong",
        "graphs on vulkan": "right",
    }
    label = page.locator('.cell[data-word="known"]').get_attribute("aria-label")
    assert label == "add on vulkan:llvmpipe: 1 right, 1 refused, 1 known"


def test_an_op_of_an_engine_opens_at_its_worst_case(open_report: OpenReport) -> None:
    """An op opens at its worst case by mouse and keys; Escape goes back."""
    page = open_report(REPORT)
    page.click('.cell[aria-label^="fft on vulkan"]')
    expect(page.locator("#engine")).to_have_value("vulkan:llvmpipe")
    expect(page.locator("#details-title")).to_have_text("fft wrong")
    details = page.inner_text("#details")
    for text in ("3×4 f32", "at [1, 2]", "got nan", "wanted 0.5", "1.25 GB/s"):
        assert text in details
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


def test_cases_are_filtered_and_coloured(open_report: OpenReport) -> None:
    """Cases are filtered, for one engine or all, by words that some case has."""
    page = open_report(REPORT)
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
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == "rlxweb-smoke.json"


def test_changes_are_listed(open_report: OpenReport) -> None:
    """Changes are listed by kind, the worst first."""
    before = make_report(
        make_engine("vulkan:llvmpipe", make_row("samples/fft/1"), driver="Mesa 22")
    )
    after = make_report(make_engine("vulkan:llvmpipe", WRONG_ROW))
    page = open_report(after | {"comparison": compare_reports(before, after)})
    text = page.inner_text("#comparison")
    assert text.index("became wrong (1)") < text.index("other driver (1)")
    assert "vulkan:llvmpipe: samples/fft/1: wrong, was right" in text
    page = open_report(before | {"comparison": compare_reports(before, before)})
    expect(page.locator("#comparison")).to_contain_text("Nothing changed.")
    expect(page.locator("#sentence")).to_have_text("1 case right on 1 engine")


def test_report_fits_a_phone_in_light_and_dark(open_report: OpenReport) -> None:
    """The report fits a phone in light and dark; details leave the square visible."""
    size = {"width": 390, "height": 844}
    page = open_report(REPORT, viewport=size, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator('.cell[aria-label^="fft on vulkan"]').tap()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    sheet = page.locator("#details").bounding_box()
    square = page.locator('.cell[data-word="wrong"]').bounding_box()
    assert sheet is not None
    assert square is not None
    assert square["y"] + square["height"] <= sheet["y"]
    check_schemes_on_a_phone(page)
