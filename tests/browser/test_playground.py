"""The playground driven as a visitor would: examples, errors, Stop, links, keys."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.demo_page import DEMO, NO_GPU, OpenPage, changed
from tests.browser.watch import START_MS

pytestmark = pytest.mark.requires_browser

EXAMPLES = DEMO / "playground" / "examples"
RUN_MS = 300_000

# What each example must have said, as patterns.
SAID = {
    "graph": [r"ran on \S+", r"plan of 'layer'", r"array\(\[\["],
    "peaks": [r"alpha +10\.\d+ Hz", r"beta +21\.0\d Hz", "segments of 512 samples"],
    "devices": ["ran on ", r"webgpu: succeeded", r"largest difference: [\d.e-]+"],
    "decisions": ["by the seed models", "candidates, fastest prediction first"],
    "custom_op": [r"webgpu: google swiftshader .*, \d steps", "largest difference"],
    "spectrogram": [r"graph @spectrogram", r"→ \(118, 129\)"],
    "benchmark": [r"n = 384: cpu [\d.]+ ms, webgpu [\d.]+ ms"],
    "profile": [r"block on NumPy", r"time stamps of the device", r"\nmatmul +[\d.]+ "],
    "errors": [r"UsageError: welch_peaks: k is 0", r"did you mean 'webgpu'\?"],
}
ON_DEVICES = ("devices", "custom_op", "graph", "benchmark")
"""Examples that name WebGPU, or leave the choice of a device to rlxweb."""
PLOTS = {"graph", "peaks", "decisions", "custom_op", "spectrogram", "benchmark"}


def ready(page: Page) -> Page:
    """Waits until Python is up and nothing runs."""
    page.wait_for_selector(".start[data-over]", timeout=START_MS)
    page.wait_for_selector("#run:not([disabled])", timeout=RUN_MS)
    return page


def playground(open_page: OpenPage, **context: object) -> Page:
    return ready(open_page("demo/playground/", **context))


def editor(open_page: OpenPage, fragment: str = "", **context: object) -> Page:
    """The page as soon as it shows a program; Python may still be starting."""
    page = open_page(f"demo/playground/{fragment}", **context)
    expect(page.locator("#code")).not_to_have_value("")
    return page


def started(page: Page, code: str) -> None:
    """Types a program over what is there and presses Ctrl+Enter."""
    page.fill("#code", code)
    page.press("#code", "Control+Enter")


def run(page: Page, code: str) -> str:
    """A program's output, after it ended."""
    started(page, code)
    return ended(page)


def ended(page: Page) -> str:
    page.wait_for_selector("#run:not([disabled])", timeout=RUN_MS)
    return page.inner_text("#output")


def drawn(page: Page) -> int:
    """Colours on the last canvas: a blank one has one."""
    count: int = page.evaluate(
        """() => {
        const canvas = [...document.querySelectorAll("#output canvas")].at(-1);
        const data = canvas.getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size; }"""
    )
    return count


def listed(page: Page) -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        "#example option", "all => all.map((one) => one.value)"
    )
    return found


def run_example(page: Page, name: str) -> str:
    """What the example said; only the one about errors ends with one."""
    page.select_option("#example", name)
    source = (EXAMPLES / f"{name}.py").read_text("utf-8")
    page.click("#run")  # at once: what was chosen is on the screen
    expect(page.locator("#code")).to_have_value(source)
    said = ended(page)
    errors = page.locator("#output .error")
    assert errors.count() == (1 if name == "errors" else 0), f"{name}:\n{said}"
    return said


def test_every_example_runs(open_page: OpenPage) -> None:
    """Each says what it must and draws where it should; one fails, and means to."""
    page = playground(open_page)
    assert sorted(listed(page)) == sorted(p.stem for p in EXAMPLES.glob("*.py"))
    assert set(listed(page)) == set(SAID)
    for name, patterns in SAID.items():
        said = run_example(page, name)
        for pattern in patterns:
            assert re.search(pattern, said), f"{name}: no {pattern!r} in\n{said}"
        assert page.locator("#output canvas").count() == (1 if name in PLOTS else 0)
        if name in PLOTS:
            assert drawn(page) > 20, name


def test_the_first_visit_shows_an_example_and_runs_nothing(open_page: OpenPage) -> None:
    """Until Run is pressed; the plot then says in words what it shows."""
    page = playground(open_page)
    assert page.input_value("#example") == "graph"
    assert "Press Run" in page.inner_text("#output")
    page.click("#run")
    ended(page)
    label = page.get_attribute("#output canvas", "aria-label") or ""
    assert "gelu(x @ w + b): 3 lines of 201 points" in label
    assert drawn(page) > 20


def test_lines_arrive_while_the_program_runs(open_page: OpenPage) -> None:
    """Without any `await` in it; stderr is marked as such."""
    page = playground(open_page)
    started(
        page,
        "import sys\n"
        "print('first')\n"
        "print('to stderr', file=sys.stderr)\n"
        "while True: pass\n",
    )
    expect(page.locator("#output")).to_contain_text("first")
    expect(page.locator('#output [data-kind="err"]')).to_have_text("to stderr\n")
    expect(page.locator("#stop")).to_be_enabled()
    page.click("#stop")
    ended(page)


def test_stop_ends_anything_and_the_next_run_is_fresh(open_page: OpenPage) -> None:
    """It says so; the next run works."""
    page = playground(open_page)
    started(page, "print('going')\nwhile True: pass\n")
    expect(page.locator("#output")).to_contain_text("going")
    page.click("#stop")
    expect(page.locator("#output")).to_contain_text("The next run starts afresh")
    expect(page.locator("#output")).to_contain_text("going")
    page.wait_for_selector("#run:not([disabled])", timeout=START_MS)
    expect(page.locator("#stop")).to_be_disabled()
    assert run(page, "import rlxweb as rlx\nrlx.is_available('webgpu')").strip() == (
        "True"
    )
    expect(page.locator(".problem")).to_have_count(0)


def test_a_python_that_ended_is_told_and_the_next_run_works(
    open_page: OpenPage,
) -> None:
    """The end of the interpreter leaves no run waiting for ever."""
    page = playground(open_page)
    run(page, "import os\nos._exit(3)")
    expect(page.locator(".problem")).to_contain_text("Python stopped answering")
    assert run(page, "6 * 7").strip() == "42"


def test_what_a_program_says_is_shown_as_it_should_be(open_page: OpenPage) -> None:
    """Values, awaits, warnings, floods, exits, and two runs that know nothing of each
    other.
    """
    page = playground(open_page)
    custom = (
        "import rlxweb as rlx\n"
        "rlx.register_custom('halve', arity=1, reference=lambda xp, a, x: x / 2)\n"
    )
    assert run(page, f"{custom}x = 6\nx * 7\n").strip() == "42"
    said = run(page, f"{custom}print(x)")  # not: the name is taken
    assert "NameError: name 'x' is not defined" in said
    assert run(page, "None").strip() == "It ran and said nothing."
    said = run(
        page,
        "import asyncio, warnings\n"
        "warnings.warn('beware')\n"
        "await asyncio.sleep(0.01)\n"
        "list(range(3))",
    )
    assert "[0, 1, 2]" in said
    assert "UserWarning: beware" in said
    flood = run(page, "for i in range(100_000): print('line', i)")
    assert "line 19" in flood
    assert re.search(r"… and [\d,]+ more lines, which are not shown", flood)
    assert len(flood) < 250_000
    said = run(page, "from playground import plot\nwhile True: plot([1, 2])")
    assert "40 figures are the most of one run" in said
    expect(page.locator("#output canvas")).to_have_count(40)
    assert "SystemExit: exit(3)" in run(page, "raise SystemExit(3)")
    said = run(page, "input('name? ')")
    assert "input() has nobody to ask here" in said
    said = run(page, "import matplotlib")
    assert "plot(x, y) and heat(array) draw" in said


def test_an_error_shows_the_programs_own_lines(open_page: OpenPage) -> None:
    """None of the library's; the line is marked, and a click goes there."""
    page = playground(open_page)
    code = (
        "import rlxweb as rlx\n\n"
        "def layer(g):\n"
        "    return g.input('a', (3, 4)) @ g.input('b', (5, 6))\n\n"
        "layer(rlx.Graph('bad'))\n"
    )
    run(page, code)
    error = page.locator("#output .error")
    expect(error.locator("li")).to_have_count(2)
    expect(error).to_contain_text("ShapeError: matmul of [3, 4] f32, [5, 6] f32")
    assert "rlxweb/" not in error.inner_text()
    expect(page.locator(".gutter .bad")).to_have_text("4")
    error.get_by_role("button", name="line 6").click()
    selected = "[code.selectionStart, code.selectionEnd, document.activeElement.id]"
    start = code.index("layer(rlx")
    assert page.evaluate(selected) == [start, len(code) - 1, "code"]

    said = run(page, "x = 1\nif x\n    pass\n")
    assert "SyntaxError: expected ':'" in said
    expect(page.locator(".gutter .bad")).to_have_text("2")
    page.press("#code", "End")
    page.type("#code", " ")
    expect(page.locator(".gutter .bad")).to_have_count(0)


def test_plots_follow_the_theme_and_the_width(open_page: OpenPage) -> None:
    """Not a blank canvas after either."""
    page = playground(open_page, viewport={"width": 1280, "height": 800})
    run(
        page,
        "from playground import plot, heat\nplot([1, 3, 2])\nheat([[1, 2], [3, 4]])",
    )
    image = "[...document.querySelectorAll('canvas')].map((c) => c.toDataURL())"
    before = page.evaluate(image)
    assert len(before) == 2
    page.get_by_role("button", name="Use dark colours").click()
    after = page.evaluate(image)
    assert after[0] != before[0]
    width = page.evaluate("document.querySelector('canvas').width")
    page.set_viewport_size({"width": 700, "height": 800})
    page.wait_for_function(
        "(w) => document.querySelector('canvas').width !== w", arg=width
    )
    assert drawn(page) > 3


def test_a_link_carries_the_code_and_does_not_run_it(open_page: OpenPage) -> None:
    """Whatever is in it; the visitor reads first."""
    page = editor(open_page, permissions=["clipboard-read", "clipboard-write"])
    code = "print('carried — ünïcode')\n" + "x = 1\n" * 200
    page.fill("#code", code)
    page.click("#share")
    expect(page.locator("#copied")).to_have_text("Copied")
    link = page.input_value("#address")
    assert page.evaluate("navigator.clipboard.readText()") == link
    assert len(link) < 300  # 1,200 characters and more, deflated

    other = ready(open_page(link.split("/", 3)[3]))
    expect(other.locator("#code")).to_have_value(code)
    expect(other.locator(".problem")).to_contain_text("This code came with the link")
    assert "carried" not in other.inner_text("#output")
    other.click("#run")
    assert "carried — ünïcode" in ended(other)


def test_a_damaged_link_is_told(open_page: OpenPage) -> None:
    """And the page works all the same, opened by it or led there."""
    page = editor(open_page, "#code=1AAAA")
    problem = page.locator(".problem")
    expect(problem).to_contain_text("The link holds no code that can be read")
    assert page.input_value("#example") == "graph"
    for fragment in ("#code=9zz", "#code=1%%%"):
        problem.get_by_role("button", name="Dismiss").click()
        expect(problem).to_have_count(0)
        page.evaluate("(to) => { location.hash = to; }", fragment)
        expect(problem).to_contain_text("The link holds no code that can be read")
        assert page.input_value("#example") == "graph"


def test_a_link_that_unfolds_without_end_is_refused(open_page: OpenPage) -> None:
    page = editor(open_page)
    fragment = page.evaluate(
        """async () => {
        const zeros = new Blob([new Uint8Array(50_000_000)]).stream();
        const packed = zeros.pipeThrough(new CompressionStream("deflate-raw"));
        const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
        const text = Array.from(bytes, (b) => String.fromCharCode(b)).join("");
        return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
        }"""
    )
    before = page.input_value("#code")
    page.evaluate("(text) => { location.hash = `code=1${text}`; }", fragment)
    expect(page.locator(".problem")).to_contain_text("longer than 100,000 characters")
    expect(page.locator("#code")).to_have_value(before)


def test_code_is_remembered_and_never_lost_to_an_example(open_page: OpenPage) -> None:
    """Over a reload it is there and not run; over an example it can be brought back."""
    page = editor(open_page)
    page.fill("#code", "print('mine')")
    page.reload()
    ready(page)
    expect(page.locator("#code")).to_have_value("print('mine')")
    assert "mine" not in page.inner_text("#output")

    page.select_option("#example", "peaks")
    expect(page.locator("#code")).to_have_value(re.compile("Welch peaks"))
    page.get_by_role("button", name="Bring back what was here").click()
    expect(page.locator("#code")).to_have_value("print('mine')")
    page.click("#reset")
    expect(page.locator("#code")).to_have_value(re.compile("A graph is written once"))
    expect(page.locator("#output")).to_be_empty()


def test_the_editor_indents_and_lets_the_keyboard_go(open_page: OpenPage) -> None:
    """Tab, Shift+Tab, Enter, undo; after Escape, Tab leaves."""
    page = editor(open_page)
    page.fill("#code", "")
    page.focus("#code")
    page.keyboard.type("def f():\nreturn 1")
    expect(page.locator("#code")).to_have_value("def f():\n    return 1")
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#code")).to_have_value("def f():\nreturn 1")
    page.keyboard.press("Control+a")
    page.keyboard.press("Tab")
    expect(page.locator("#code")).to_have_value("    def f():\n    return 1")
    page.keyboard.press("Control+z")
    expect(page.locator("#code")).to_have_value("def f():\nreturn 1")
    expect(page.locator(".gutter > div")).to_have_text(["1", "2"])
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") != "code"


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    page = playground(open_page, viewport={"width": 390, "height": 844})
    run(page, "print('w' * 500)\n'x' * 500")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        fits_a_phone(page)


def fits_a_phone(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for name in ("#run", "#stop", "#reset", "#share", "#example", "#code"):
        box = page.locator(name).bounding_box()
        assert box is not None
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= 390, name


def test_without_webgpu_examples_run_on_numpy(open_page: OpenPage) -> None:
    """The page says so; nothing fails but what asks for WebGPU by name."""
    page = changed(open_page, "playground/", "worker.js", lambda text: text + NO_GPU)
    ready(page)
    expect(page.locator(".problem")).to_contain_text("This browser offers no WebGPU")
    for name in ON_DEVICES[::2]:  # the others have their turn below
        run_example(page, name)
    said = run(page, "import rlxweb as rlx\nrlx.Session('webgpu')")
    assert "AdapterMissing" in said


def test_without_stack_switching_examples_run_too(open_page: OpenPage) -> None:
    """Those that name WebGPU await it; a blocking call says to."""
    hide = "delete WebAssembly.Suspending;\ndelete WebAssembly.promising;\n"
    page = changed(open_page, "playground/", "worker.js", lambda text: text + hide)
    ready(page)
    for name in ON_DEVICES[1::2]:
        run_example(page, name)
    graph = (
        "import numpy as np, rlxweb as rlx\n"
        "g = rlx.Graph('g')\n"
        "g.set_outputs([g.exp(g.input('x', (3,)))])\n"
        "x = np.zeros(3, np.float32)\n"
    )
    said = run(page, graph + "rlx.Session('webgpu').compile(g).run({'x': x})")
    assert "MustAwait" in said
    graph += "c = await rlx.Session('webgpu').compile_async(g)\n"
    said = run(page, graph + "await c.run_async({'x': x})")
    assert "array([1., 1., 1.]" in said
