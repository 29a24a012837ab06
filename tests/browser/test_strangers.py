"""The playground inside and behind the pages of strangers: what runs, and when."""

from __future__ import annotations

import base64
import json
import re
import zlib

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.demo_page import OpenPage
from tests.browser.other_hosts import Reports, elsewhere, plain_host
from tests.browser.playground_page import (
    FIRST,
    editor,
    ended,
    playground,
    ready,
    started,
)
from tests.browser.watch import START_MS
from tests.site_build import BuiltSite

pytestmark = pytest.mark.requires_browser

FRAGMENT = """async (code) => {
    const { toFragment } = await import(new URL("share.js", location));
    return toFragment(code); }"""


def fragment(page: Page, code: str) -> str:
    """The part of a link that carries the code."""
    made: str = page.evaluate(FRAGMENT, code)
    return made


def framing(url: str) -> str:
    """A page that frames the playground and changes the frame's link after a while."""
    return (
        f'<iframe src="{url}#code=0cHJpbnQoMSk" width=900 height=700></iframe><script>'
        "setTimeout(() => { document.querySelector('iframe').src = "
        f"'{url}#code=0cHJpbnQoJ3N0b2xlbicp'; changed = true; }}, 700);</script>"
    )


def test_a_strangers_frame_of_it_stays_empty(
    browser: Browser, site_url: str, violations: Reports
) -> None:
    """The browser itself refuses it: the host's header says who may frame a page."""
    with elsewhere(framing(f"{site_url}demo/playground/")) as (url, _):
        page = browser.new_page()
        with violations.expected("frame-ancestors"):
            page.goto(url)
            page.wait_for_function("globalThis.changed")
        assert page.frames[1].locator("#run").count() == 0
        page.context.close()


def test_what_no_test_means_to_be_refused_is_a_fault_once() -> None:
    """Also after a block that expects it; not what is of a host of the test's own."""
    reports = Reports()
    reports.may_tell_of("a.example")
    with reports.expected("frame-ancestors"):
        reports.take("frame-ancestors: b.example")
        reports.take("img-src: b.example")
    reports.take("img-src: a.example")
    with pytest.raises(AssertionError, match=r"^img-src: b\.example$"):
        reports.check()
    reports.check()
    reports.take("frame-ancestors: b.example")
    with pytest.raises(AssertionError, match=r"^frame-ancestors: b\.example$"):
        reports.check()


def test_in_a_frame_it_refuses_to_run_without_any_header(
    browser: Browser, built_site: BuiltSite
) -> None:
    """The page looks for itself whether it is framed, and says what to do."""
    with (
        plain_host(built_site) as host,
        elsewhere(framing(f"{host}demo/playground/")) as (url, _),
    ):
        page = browser.new_page()
        workers: list[str] = []
        page.on("worker", lambda worker: workers.append(worker.url))
        page.goto(url)
        inner = page.frame_locator("iframe")
        said = inner.locator(".problem")
        expect(said).to_contain_text("does not run inside another page")
        page.wait_for_function("globalThis.changed")
        expect(inner.locator("#run")).to_be_disabled()
        expect(inner.locator("#code")).to_be_disabled()
        expect(inner.locator("#code")).to_have_value("")
        assert "stolen" not in inner.locator("#output").inner_text()
        assert workers == []
        page.context.close()


def test_a_first_visit_and_a_link_that_comes_meanwhile_run_nothing(
    open_page: OpenPage,
) -> None:
    """An example is there. The link's program is shown, says where it came from, and
    waits for a press of its own.
    """
    page = playground(open_page)
    expect(page.locator("#code")).not_to_have_value("")
    assert page.input_value("#example") == FIRST
    assert "Press Run" in page.inner_text("#output")
    link = fragment(page, "print('stolen')")
    page.evaluate("(link) => { location.hash = link; }", link)
    ready(page)
    expect(page.locator("#code")).to_have_value("print('stolen')")
    expect(page.locator("#origin")).to_contain_text("This program came with the link")
    assert "Press Run" in page.inner_text("#output")
    page.click("#run")
    assert "stolen" in ended(page)


def test_a_press_counts_for_what_was_on_the_screen(open_page: OpenPage) -> None:
    """A press runs the text that was on the screen, though a link came since.

    The link's is shown when that is over; a press just after a swap does not count.
    """
    page = playground(open_page)
    expect(page.locator("#code")).not_to_have_value("")
    started(page, "print('mine')")
    link = fragment(page, "print('theirs')")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#output")).to_contain_text("mine", timeout=START_MS)
    expect(page.locator("#code")).to_have_value("print('theirs')")
    # pressed in the same turn in which a third program appears
    third = fragment(page, "print('third')")
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
        third,
    )
    expect(page.locator("#code")).to_have_value("print('third')")
    expect(page.locator(".said")).to_contain_text("changed a moment ago")
    said = page.inner_text("#output")
    assert "mine" in said
    assert "theirs" not in said
    assert "third" not in said


def test_a_links_program_leaves_the_saved_one_alone(open_page: OpenPage) -> None:
    """The saved program stays until a link's program is edited, and can be had back."""
    page = editor(open_page)
    page.fill("#code", "print('saved')")
    link = fragment(page, "print('linked')")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#code")).to_have_value("print('linked')")
    kept = "localStorage.getItem('rlxweb-playground')"
    assert "saved" in page.evaluate(kept)
    page.get_by_role("button", name="Bring back what was here").click()
    expect(page.locator("#code")).to_have_value("print('saved')")
    expect(page.locator("#origin")).to_be_hidden()
    page.evaluate("location.hash = ''")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#code")).to_have_value("print('linked')")
    page.press("#code", "End")
    page.type("#code", "  # edited")
    assert "edited" in page.evaluate(kept)
    expect(page.locator("#origin")).to_be_hidden()


def test_examples_looked_at_after_a_link_leave_the_saved_one_alone(
    open_page: OpenPage,
) -> None:
    """The saved program survives a link and the examples looked at after it."""
    page = editor(open_page)
    page.fill("#code", "print('saved')")
    link = fragment(page, "print('linked')")
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator("#code")).to_have_value("print('linked')")
    for name in ("peaks", "graph"):
        page.select_option("#example", name)
    kept = "localStorage.getItem('rlxweb-playground')"
    assert "saved" in page.evaluate(kept)
    page.press("#code", "End")
    page.type("#code", "  # edited")
    assert "edited" in page.evaluate(kept)


def test_a_link_of_very_many_lines_is_refused(open_page: OpenPage) -> None:
    """200 characters unfold to 99,000 lines, with which the tab stood still."""
    page = editor(open_page)
    before = page.input_value("#code")
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    lines = packer.compress(b"\n" * 99_000) + packer.flush()
    link = unpacked(lines).replace("=0", "=1")
    assert len(link) < 200
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator(".problem")).to_contain_text("has more than 5,000 lines")
    expect(page.locator("#code")).to_have_value(before)


def test_many_lines_are_numbered(open_page: OpenPage) -> None:
    """Every line has its number, and no number is left of lines that are gone."""
    page = editor(open_page)
    link = fragment(page, "\n" * 4_999)
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator(".gutter > div")).to_have_count(5_000)
    assert page.locator(".gutter > div").last.inner_text() == "5000"
    page.select_option("#example", "peaks")
    lines = page.input_value("#code").count("\n") + 1
    expect(page.locator(".gutter > div")).to_have_count(lines)


def unpacked(code: bytes) -> str:
    """A link's end as browsers without streams of compression make it."""
    return "#code=0" + base64.urlsafe_b64encode(code).decode().rstrip("=")


def test_what_is_too_long_for_a_link_is_in_none(open_page: OpenPage) -> None:
    """Code that is too long is in no link, read or made."""
    page = editor(open_page)
    before = page.input_value("#code")
    link = unpacked(b"x" * 100_001)
    page.evaluate("(link) => { location.hash = link; }", link)
    expect(page.locator(".problem")).to_contain_text("longer than 100,000 characters")
    expect(page.locator("#code")).to_have_value(before)
    page.fill("#code", "x" * 100_001)
    page.click("#share")
    expect(page.locator(".problem").last).to_contain_text("No link can carry this")
    longest = "# " + "ä" * 99_998  # twice as many bytes
    page.fill("#code", longest)
    page.click("#share")
    expect(page.locator("#link")).to_be_visible()
    other = editor(open_page, page.input_value("#address").partition("playground/")[2])
    expect(other.locator("#code")).to_have_value(longest)


def test_a_links_line_ends_are_line_ends(open_page: OpenPage) -> None:
    """Any system's line ends in a link are line ends, not characters to escape."""
    link = unpacked(b"a = 1\r\nb = 2\rc = 3")
    page = editor(open_page, link)
    expect(page.locator("#code")).to_have_value("a = 1\nb = 2\nc = 3")


def test_a_name_of_letters_without_a_look_is_shown(bench: Page) -> None:
    """Python takes them for names, and the screen shows nothing."""
    page = bench
    link = fragment(page, "\u3164 = 1\n'\U000e0100\u034f'\n'\u2764\ufe0f'")
    page.evaluate("(link) => { location.hash = link; }", link)
    escaped = "\\u3164 = 1\n'\\U000e0100\\u034f'\n'\u2764\ufe0f'"
    expect(page.locator("#code")).to_have_value(escaped)
    page.fill("#code", "\u3164 = 1")
    expect(page.locator("#run")).to_be_enabled()
    page.press("#code", "Control+Enter")
    expect(page.locator(".problem").last).to_contain_text("has the character U+3164")


def test_a_program_that_hides_part_of_itself_is_shown_whole(bench: Page) -> None:
    """Overrides of writing direction in a link are escapes; others stop the run."""
    page = bench
    link = fragment(page, "print('\u202estolen')\nx = 1 \u2066# 2\u0000")
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
    page.get_by_role("button", name="Write such characters as escapes").click()
    expect(page.locator("#code")).to_have_value("'a'\n'\\u202eb'")
    page.click("#run")
    assert "u202e" in ended(page)


def test_whatever_lies_in_storage_the_page_opens(open_page: OpenPage) -> None:
    """The first example is there, and nothing runs."""
    page = editor(open_page)
    odd = [
        "[]",
        "{}",
        "nonsense",
        '{"code": 5}',
        '{"code": [1], "example": {}}',
        "null",
    ]
    for kept in (*odd, json.dumps({"code": "x" * 200_001, "example": "peaks"})):
        page.evaluate("(kept) => localStorage.setItem('rlxweb-playground', kept)", kept)
        page.reload()
        expect(page.locator("#code")).to_have_value(
            re.compile("A graph is written once")
        )
        assert page.input_value("#example") == "graph"
        expect(page.locator(".problem")).to_have_count(0)


def test_a_file_dropped_on_it_does_not_replace_the_page(open_page: OpenPage) -> None:
    """A file dropped on the page is not opened in its place."""
    page = editor(open_page)
    stayed = page.evaluate(
        """() => {
        const carried = new DataTransfer();
        carried.items.add(new File(["<script>1</script>"], "x.html"));
        const drop = new DragEvent("drop", { dataTransfer: carried, cancelable: true });
        return !window.dispatchEvent(drop); }"""
    )
    assert stayed


def test_a_double_press_runs_once(bench: Page) -> None:
    bench.fill("#code", "print('once')")
    bench.evaluate("document.getElementById('run').click();"
                   "document.getElementById('run').click()")  # fmt: skip
    bench.press("#code", "Control+Enter")
    assert ended(bench).strip() == "once"
