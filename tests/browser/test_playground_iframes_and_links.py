"""Check what the playground runs, and when, inside other sites' frames and behind their
links.
"""

from __future__ import annotations

import base64
import json
import re
import zlib

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.foreign_web_servers import (
    ViolationReports,
    host_without_headers,
    third_party_host,
)
from tests.browser.page_monitor import START_MS
from tests.browser.patched_demo_page import OpenPage
from tests.browser.playground_page import (
    FIRST_EXAMPLE,
    open_editor,
    open_playground,
    start_program,
    wait_for_output,
    wait_until_ready,
)
from tests.built_site_fixture import BuiltSite

pytestmark = pytest.mark.requires_browser

LINK_FRAGMENT_JS = """async (code) => {
    const { toFragment } = await import(new URL("share.js", location));
    return toFragment(code); }"""


def link_fragment(page: Page, code: str) -> str:
    """Return the part of a link that carries the code."""
    text: str = page.evaluate(LINK_FRAGMENT_JS, code)
    return text


def framing_page(url: str) -> str:
    """Return a page that frames the playground and changes the frame's link after a
    while.
    """
    return (
        f'<iframe src="{url}#code=0cHJpbnQoMSk" width=900 height=700></iframe><script>'
        "setTimeout(() => { document.querySelector('iframe').src = "
        f"'{url}#code=0cHJpbnQoJ3N0b2xlbicp'; changed = true; }}, 700);</script>"
    )


def test_foreign_frame_stays_empty(
    browser: Browser, site_url: str, violations: ViolationReports
) -> None:
    """The browser refuses the frame: the host's header says who may frame a page."""
    with third_party_host(framing_page(f"{site_url}demo/playground/")) as (url, _):
        page = browser.new_page()
        with violations.expect("frame-ancestors"):
            page.goto(url)
            page.wait_for_function("globalThis.changed")
        assert page.frames[1].locator("#run").count() == 0
        page.context.close()


def test_unexpected_violation_fails_once() -> None:
    """An unexpected violation fails once, also after a block that expects others;
    violations of an allowed host do not.
    """
    reports = ViolationReports()
    reports.ignore_hosts("a.example")
    with reports.expect("frame-ancestors"):
        reports.add("frame-ancestors: b.example")
        reports.add("img-src: b.example")
    reports.add("img-src: a.example")
    with pytest.raises(AssertionError, match=r"^img-src: b\.example$"):
        reports.check()
    reports.check()
    reports.add("frame-ancestors: b.example")
    with pytest.raises(AssertionError, match=r"^frame-ancestors: b\.example$"):
        reports.check()


def test_framed_page_refuses_to_run_without_headers(
    browser: Browser, built_site: BuiltSite
) -> None:
    """The page detects that it is framed and says what to do."""
    with (
        host_without_headers(built_site) as host,
        third_party_host(framing_page(f"{host}demo/playground/")) as (url, _),
    ):
        page = browser.new_page()
        workers: list[str] = []
        page.on("worker", lambda worker: workers.append(worker.url))
        page.goto(url)
        inner = page.frame_locator("iframe")
        problem = inner.locator(".problem")
        expect(problem).to_contain_text("does not run inside another page")
        page.wait_for_function("globalThis.changed")
        expect(inner.locator("#run")).to_be_disabled()
        expect(inner.locator("#code")).to_be_disabled()
        expect(inner.locator("#code")).to_have_value("")
        assert "stolen" not in inner.locator("#output").inner_text()
        assert workers == []
        page.context.close()


def test_first_visit_and_link_run_nothing(
    open_page: OpenPage,
) -> None:
    """An example is shown at first; a link's program is shown with its origin and waits
    for its own press of Run.
    """
    page = open_playground(open_page)
    expect(page.locator("#code")).not_to_have_value("")
    assert page.input_value("#example") == FIRST_EXAMPLE
    assert "Press Run" in page.inner_text("#output")
    link = link_fragment(page, "print('stolen')")
    page.evaluate("(link) => { location.hash = link; }", link)
    wait_until_ready(page)
    expect(page.locator("#code")).to_have_value("print('stolen')")
    expect(page.locator("#origin")).to_contain_text("This program came with the link")
    assert "Press Run" in page.inner_text("#output")
    page.click("#run")
    assert "stolen" in wait_for_output(page)


def test_run_press_applies_to_visible_code(open_page: OpenPage) -> None:
    """A press runs the text that was on the screen, though a link came since.

    The link's is shown when that is over; a press just after a swap does not count.
    """
    page = open_playground(open_page)
    expect(page.locator("#code")).not_to_have_value("")
    start_program(page, "print('mine')")
    link = link_fragment(page, "print('theirs')")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#output")).to_contain_text("mine", timeout=START_MS)
    expect(page.locator("#code")).to_have_value("print('theirs')")
    # pressed in the same turn in which a third program appears
    third_link = link_fragment(page, "print('third')")
    page.evaluate(
        """(link) => {
        const area = document.getElementById("code");
        const before = area.value;
        const keys = { key: "Enter", ctrlKey: true };
        const watch = setInterval(() => {
            if (area.value === before) return;
            clearInterval(watch);
            area.dispatchEvent(new KeyboardEvent("keydown", keys));
        }, 1);
        location.hash = link; }""",
        third_link,
    )
    expect(page.locator("#code")).to_have_value("print('third')")
    expect(page.locator(".said")).to_contain_text("changed a moment ago")
    output = page.inner_text("#output")
    assert "mine" in output
    assert "theirs" not in output
    assert "third" not in output


def test_linked_program_keeps_the_saved_one(open_page: OpenPage) -> None:
    """The saved program stays until a link's program is edited, and can be had back."""
    page = open_editor(open_page)
    page.fill("#code", "print('saved')")
    link = link_fragment(page, "print('linked')")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#code")).to_have_value("print('linked')")
    stored_js = "localStorage.getItem('rlxweb-playground')"
    assert "saved" in page.evaluate(stored_js)
    page.get_by_role("button", name="Restore the previous code").click()
    expect(page.locator("#code")).to_have_value("print('saved')")
    expect(page.locator("#origin")).to_be_hidden()
    page.evaluate("location.hash = ''")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#code")).to_have_value("print('linked')")
    page.press("#code", "End")
    page.type("#code", "  # edited")
    assert "edited" in page.evaluate(stored_js)
    expect(page.locator("#origin")).to_be_hidden()


def test_examples_after_a_link_keep_the_saved_program(
    open_page: OpenPage,
) -> None:
    """The saved program survives a link and the examples looked at after it."""
    page = open_editor(open_page)
    page.fill("#code", "print('saved')")
    link = link_fragment(page, "print('linked')")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#code")).to_have_value("print('linked')")
    for name in ("peaks", "graph"):
        page.select_option("#example", name)
    stored_js = "localStorage.getItem('rlxweb-playground')"
    assert "saved" in page.evaluate(stored_js)
    page.press("#code", "End")
    page.type("#code", "  # edited")
    assert "edited" in page.evaluate(stored_js)


def test_a_link_of_very_many_lines_is_refused(open_page: OpenPage) -> None:
    """A link of 200 characters that decompresses to 99,000 lines is refused."""
    page = open_editor(open_page)
    before = page.input_value("#code")
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    lines = packer.compress(b"\n" * 99_000) + packer.flush()
    link = uncompressed_fragment(lines).replace("=0", "=1")
    assert len(link) < 200
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator(".problem")).to_contain_text("has more than 5,000 lines")
    expect(page.locator("#code")).to_have_value(before)


def test_many_lines_are_numbered(open_page: OpenPage) -> None:
    """Every line has its number, and no number is left of lines that are gone."""
    page = open_editor(open_page)
    link = link_fragment(page, "\n" * 4_999)
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator(".gutter > div")).to_have_count(5_000)
    assert page.locator(".gutter > div").last.inner_text() == "5000"
    page.select_option("#example", "peaks")
    lines = page.input_value("#code").count("\n") + 1
    expect(page.locator(".gutter > div")).to_have_count(lines)


def uncompressed_fragment(code: bytes) -> str:
    """Return a link fragment as browsers without compression streams write it."""
    return "#code=0" + base64.urlsafe_b64encode(code).decode().rstrip("=")


def test_code_too_long_for_a_link_is_refused(open_page: OpenPage) -> None:
    """Code that is too long is in no link, read or made."""
    page = open_editor(open_page)
    before = page.input_value("#code")
    link = uncompressed_fragment(b"x" * 100_001)
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator(".problem")).to_contain_text("longer than 100,000 characters")
    expect(page.locator("#code")).to_have_value(before)
    page.fill("#code", "x" * 100_001)
    page.click("#share")
    expect(page.locator(".problem").last).to_contain_text(
        "A link cannot contain this code"
    )
    longest = "# " + "ä" * 99_998  # twice as many bytes
    page.fill("#code", longest)
    page.click("#share")
    expect(page.locator("#link")).to_be_visible()
    second_page = open_editor(
        open_page, page.input_value("#address").partition("playground/")[2]
    )
    expect(second_page.locator("#code")).to_have_value(longest)


def test_line_ends_in_a_link_are_normalized(open_page: OpenPage) -> None:
    """Any system's line ends in a link are line ends, not characters to escape."""
    link = uncompressed_fragment(b"a = 1\r\nb = 2\rc = 3")
    page = open_editor(open_page, link)
    expect(page.locator("#code")).to_have_value("a = 1\nb = 2\nc = 3")


def test_invisible_letters_are_shown_as_escapes(bench: Page) -> None:
    """Letters that Python takes for names but that are invisible are shown as
    escapes.
    """
    page = bench
    link = link_fragment(page, "\u3164 = 1\n'\U000e0100\u034f'\n'\u2764\ufe0f'")
    page.evaluate("(link) => { location.hash = link; }", link)
    escaped = "\\u3164 = 1\n'\\U000e0100\\u034f'\n'\u2764\ufe0f'"
    expect(page.locator("#code")).to_have_value(escaped)
    page.fill("#code", "\u3164 = 1")
    expect(page.locator("#run")).to_be_enabled()
    page.press("#code", "Control+Enter")
    expect(page.locator(".problem").last).to_contain_text("has the character U+3164")


def test_hidden_program_text_is_shown_as_escapes(bench: Page) -> None:
    """Overrides of writing direction in a link are escapes; others stop the run."""
    page = bench
    link = link_fragment(page, "print('\u202estolen')\nx = 1 \u2066# 2\u0000")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#code")).to_have_value(
        "print('\\u202estolen')\nx = 1 \\u2066# 2\\x00"
    )
    page.fill("#code", "'a'\n'\u202eb'")
    expect(page.locator("#run")).to_be_enabled()  # a moment after the link came
    page.press("#code", "Control+Enter")
    expect(page.locator(".problem").last).to_contain_text(
        "Line 2 has the character U+202E"
    )
    page.get_by_role("button", name="Replace these characters by escapes").click()
    expect(page.locator("#code")).to_have_value("'a'\n'\\u202eb'")
    page.click("#run")
    assert "u202e" in wait_for_output(page)


def test_page_opens_with_invalid_stored_values(open_page: OpenPage) -> None:
    """The first example is shown whatever the storage holds, and nothing runs."""
    page = open_editor(open_page)
    invalid_values = [
        "[]",
        "{}",
        "nonsense",
        '{"code": 5}',
        '{"code": [1], "example": {}}',
        "null",
    ]
    for stored in (
        *invalid_values,
        json.dumps({"code": "x" * 200_001, "example": "peaks"}),
    ):
        page.evaluate(
            "(kept) => localStorage.setItem('rlxweb-playground', kept)", stored
        )
        page.reload()
        expect(page.locator("#code")).to_have_value(
            re.compile("A graph is written once")
        )
        assert page.input_value("#example") == "graph"
        expect(page.locator(".problem")).to_have_count(0)


def test_dropped_file_does_not_replace_the_page(open_page: OpenPage) -> None:
    """A file dropped on the page is not opened in its place."""
    page = open_editor(open_page)
    is_prevented = page.evaluate(
        """() => {
        const carried = new DataTransfer();
        carried.items.add(new File(["<script>1</script>"], "x.html"));
        const drop = new DragEvent("drop", { dataTransfer: carried, cancelable: true });
        return !window.dispatchEvent(drop); }"""
    )
    assert is_prevented


def test_a_double_press_runs_once(bench: Page) -> None:
    bench.fill("#code", "print('once')")
    bench.evaluate("document.getElementById('run').click();"
                   "document.getElementById('run').click()")  # fmt: skip
    bench.press("#code", "Control+Enter")
    assert wait_for_output(bench).strip() == "once"
