"""Drive the playground as a visitor would: examples, errors, Stop, links, keys."""

from __future__ import annotations

import re
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from tests.browser.page_monitor import START_MS
from tests.browser.patched_demo_page import NO_GPU, OpenPage, open_with_change
from tests.browser.playground_page import (
    EXAMPLES,
    FIRST_EXAMPLE,
    LITTLE_MEMORY,
    PATH,
    count_canvas_colours,
    open_editor,
    open_playground,
    run_program,
    start_program,
    wait_for_output,
    wait_until_ready,
)

pytestmark = pytest.mark.requires_browser

# What each example must have said, as patterns.
EXPECTED_OUTPUT = {
    "graph": [r"ran on \S+", r"plan of 'layer'", r"array\(\[\["],
    "peaks": [r"alpha +10\.\d+ Hz", r"beta +21\.0\d Hz", "segments of 512 samples"],
    "devices": ["ran on ", r"webgpu: succeeded", r"largest difference: [\d.e-]+"],
    "decisions": ["by the seed models", "candidates, fastest prediction first"],
    "custom_op": [r"webgpu: google swiftshader .*, \d steps", "largest difference"],
    "spectrogram": [r"graph @spectrogram", r"→ \(118, 129\)"],
    "benchmark": [r"n = 384: cpu [\d.]+ ms, webgpu [\d.]+ ms"],
    "profile": [
        r"block on NumPy",
        r"device timestamps around each step",
        r"\nmatmul +[\d.]+ ",
    ],
    "errors": [r"UsageError: welch_peaks: k is 0", r"did you mean 'webgpu'\?"],
}
EXAMPLES_WITHOUT_GPU = ("devices", "graph")
"""Examples for a browser without WebGPU: one names it, one leaves the choice of the
device open.
"""
EXAMPLES_WITHOUT_JSPI = ("custom_op", "benchmark")
"""Examples for a browser that cannot switch stacks: one names WebGPU, one leaves the
choice of the device open.
"""
NO_JSPI = "delete WebAssembly.Suspending;\ndelete WebAssembly.promising;\n"
"""JavaScript for the end of worker.js that makes it a browser that cannot switch
stacks.
"""
PLOTTING_EXAMPLES = {
    "graph",
    "peaks",
    "decisions",
    "custom_op",
    "spectrogram",
    "benchmark",
}


def example_names(page: Page) -> list[str]:
    names: list[str] = page.eval_on_selector_all(
        "#example option", "all => all.map((one) => one.value)"
    )
    return names


def run_example(page: Page, name: str) -> str:
    """Run an example and return its output; only the one about errors ends with an
    error.
    """
    page.select_option("#example", name)
    source = (EXAMPLES / f"{name}.py").read_text("utf-8")
    page.click("#run")  # at once: what was chosen is on the screen
    expect(page.locator("#code")).to_have_value(source)
    printed = wait_for_output(page)
    error_boxes = page.locator("#output .error")
    assert error_boxes.count() == (1 if name == "errors" else 0), f"{name}:\n{printed}"
    return printed


def check_example(page: Page, name: str) -> None:
    """Run an example and check its output and its plot."""
    printed = run_example(page, name)
    for pattern in EXPECTED_OUTPUT[name]:
        assert re.search(pattern, printed), f"{name}: no {pattern!r} in\n{printed}"
    assert page.locator("#output canvas").count() == (
        1 if name in PLOTTING_EXAMPLES else 0
    )
    if name in PLOTTING_EXAMPLES:
        assert count_canvas_colours(page) > 20, name


@pytest.mark.full
def test_every_example_runs(bench: Page) -> None:
    """Every example prints what it must and plots where it should; one of them raises
    an error.
    """
    for name in EXPECTED_OUTPUT:
        check_example(bench, name)


def test_examples_are_all_listed_and_some_run(bench: Page) -> None:
    """Every example is listed; one that draws and one that raises an error run.

    The plot says in words what it shows.
    """
    assert sorted(example_names(bench)) == sorted(p.stem for p in EXAMPLES.glob("*.py"))
    assert set(example_names(bench)) == set(EXPECTED_OUTPUT)
    check_example(bench, FIRST_EXAMPLE)
    label = bench.get_attribute("#output canvas", "aria-label") or ""
    assert "gelu(x @ w + b): 3 lines of 201 points" in label
    check_example(bench, "errors")


def test_run_works_after_a_failed_one(bench: Page) -> None:
    """A loop without `await` is stopped; its lines are kept, with stderr marked as
    such.

    The end of the interpreter is told, and leaves no run waiting for ever. A flood past
    Python's own limit on what is printed is cut off. Values and warnings are shown.
    """
    start_program(
        bench,
        "import sys\n"
        "print('first')\n"
        "print('to stderr', file=sys.stderr)\n"
        "while True: pass\n",
    )
    output = bench.locator("#output")
    expect(output).to_contain_text("first")
    expect(bench.locator('#output [data-kind="err"]')).to_have_text("to stderr\n")
    expect(bench.locator("#stop")).to_be_enabled()
    bench.click("#stop")
    expect(output).to_contain_text("The next run restarts Python")
    expect(output).to_contain_text("first")
    bench.wait_for_selector("#run:not([disabled])", timeout=START_MS)
    expect(bench.locator("#stop")).to_be_disabled()

    printed = run_program(
        bench,
        "import os, rlxweb as rlx\n"
        "print(rlx.is_available('webgpu'), flush=True)\n"
        "os._exit(3)",
    )
    assert printed.strip() == "True"
    problem = bench.locator(".problem")
    expect(problem).to_contain_text("Python no longer responds")

    printed = run_program(
        bench,
        "from playground import plot\n"
        "post = plot.__globals__['post']\n"
        "while True: post({'out': 'x' * 50})",
    )
    assert "this run sent more output than the page accepts" in printed
    assert len(printed) < 500_000
    expect(problem).to_have_count(0)

    printed = run_program(
        bench,
        "import asyncio, warnings\n"
        "warnings.warn('beware')\n"
        "await asyncio.sleep(0.01)\n"
        "x = list(range(3))\n"
        "x",
    )
    assert "UserWarning: beware" in printed
    assert printed.strip().endswith("[0, 1, 2]")


def test_floods_and_exits_are_reported(bench: Page) -> None:
    """Too many figures or lines are cut off with a message, and exits are named."""
    printed = run_program(
        bench,
        "from playground import plot\n"
        "try:\n"
        "    while True: plot([1, 2])\n"
        "except Exception as error:\n"
        "    print(error)\n"
        "for i in range(30_000): print('line', i)\n"
        "raise SystemExit(3)",
    )
    assert "a run can draw at most 40 figures" in printed
    expect(bench.locator("#output canvas")).to_have_count(40)
    assert "line 19" in printed
    assert re.search(r"… and [\d,]+ more lines, which are not shown", printed)
    assert len(printed) < 250_000
    assert "SystemExit: exit(3)" in printed


def test_missing_features_are_reported_with_alternatives(bench: Page) -> None:
    """Missing features, a keyboard for input() and packages, are reported with an
    alternative.
    """
    printed = run_program(
        bench,
        "try:\n"
        "    input('name? ')\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
        "import matplotlib",
    )
    assert "input() is not supported here" in printed
    assert "use plot(x, y) and heat(array) to draw" in printed


def test_an_error_shows_the_programs_own_lines(bench: Page) -> None:
    """An error shows the program's own lines alone; a click on one goes there."""
    code = (
        "import rlxweb as rlx\n\n"
        "def layer(g):\n"
        "    return g.input('a', (3, 4)) @ g.input('b', (5, 6))\n\n"
        "layer(rlx.Graph('bad'))\n"
    )
    run_program(bench, code)
    error = bench.locator("#output .error")
    expect(error.locator("li")).to_have_count(2)
    expect(error).to_contain_text("ShapeError: matmul of [3, 4] f32, [5, 6] f32")
    assert "rlxweb/" not in error.inner_text()
    expect(bench.locator(".gutter .bad")).to_have_text("4")
    error.get_by_role("button", name="line 6").click()
    selection_js = "[code.selectionStart, code.selectionEnd, document.activeElement.id]"
    start = code.index("layer(rlx")
    assert bench.evaluate(selection_js) == [start, len(code) - 1, "code"]

    printed = run_program(bench, "x = 1\nif x\n    pass\n")
    assert "SyntaxError: expected ':'" in printed
    expect(bench.locator(".gutter .bad")).to_have_text("2")
    bench.press("#code", "End")
    bench.type("#code", " ")
    expect(bench.locator(".gutter .bad")).to_have_count(0)


@pytest.mark.full
def test_plots_follow_the_theme_and_the_width_down_to_a_phone(bench: Page) -> None:
    """Plots follow theme and width and are not blank; long lines widen no phone."""
    run_program(
        bench,
        "from playground import plot, heat\nplot([1, 3, 2])\nheat([[1, 2], [3, 4]])\n"
        "print('w' * 500)\n'x' * 500",
    )
    image_js = "[...document.querySelectorAll('canvas')].map((c) => c.toDataURL())"
    before = bench.evaluate(image_js)
    assert len(before) == 2
    bench.get_by_role("button", name="Use dark colours").click()
    after = bench.evaluate(image_js)
    assert after[0] != before[0]
    bench.get_by_role("button", name="Use light colours").click()
    width = bench.evaluate("document.querySelector('canvas').width")
    bench.set_viewport_size({"width": 390, "height": 844})
    bench.wait_for_function(
        "(w) => document.querySelector('canvas').width !== w", arg=width
    )
    assert count_canvas_colours(bench) > 3
    for scheme in ("light", "dark"):
        bench.emulate_media(color_scheme=scheme)
        check_fits_a_phone(bench)


def test_a_link_carries_the_code_and_does_not_run_it(
    bench: Page, open_page: OpenPage
) -> None:
    """A link carries any code, which the visitor reads before it runs."""
    page = bench
    code = "print('carried — ünïcode')\n" + "x = 1\n" * 200
    page.fill("#code", code)
    page.click("#share")
    expect(page.locator("#copied")).to_have_text("Copied")
    link = page.input_value("#address")
    assert page.evaluate("navigator.clipboard.readText()") == link
    assert len(link) < 300  # 1,200 characters and more, deflated

    second_page = wait_until_ready(open_playground(open_page, link.partition(PATH)[2]))
    expect(second_page.locator("#code")).to_have_value(code)
    expect(second_page.locator(".problem")).to_contain_text(
        "This code came with the link"
    )
    assert "carried" not in second_page.inner_text("#output")


def test_damaged_link_is_reported(open_page: OpenPage) -> None:
    """A damaged link is told, and the page works, opened by it or led there."""
    page = open_editor(open_page, "#code=1AAAA")
    problem = page.locator(".problem")
    expect(problem).to_contain_text("The code in the link cannot be read")
    assert page.input_value("#example") == FIRST_EXAMPLE
    for fragment in ("#code=9zz", "#code=1%%%"):
        problem.get_by_role("button", name="Dismiss").click()
        expect(problem).to_have_count(0)
        page.evaluate("(to) => { location.hash = to; }", fragment)
        expect(problem).to_contain_text("The code in the link cannot be read")
        assert page.input_value("#example") == FIRST_EXAMPLE


def test_link_that_decompresses_too_large_is_refused(open_page: OpenPage) -> None:
    page = open_editor(open_page)
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


@pytest.mark.full
def test_code_is_saved_and_not_lost_to_an_example(open_page: OpenPage) -> None:
    """Code outlives a reload, not run; what an example replaced can be brought back."""
    page = open_playground(open_page)
    expect(page.locator("#code")).not_to_have_value("")
    page.fill("#code", "print('mine')")
    page.reload()
    wait_until_ready(page)
    expect(page.locator("#code")).to_have_value("print('mine')")
    assert "mine" not in page.inner_text("#output")

    page.select_option("#example", "peaks")
    expect(page.locator("#code")).to_have_value(re.compile("Welch peaks"))
    page.get_by_role("button", name="Restore the previous code").click()
    expect(page.locator("#code")).to_have_value("print('mine')")
    page.click("#reset")
    expect(page.locator("#code")).to_have_value(re.compile("A graph is written once"))
    expect(page.locator("#output")).to_be_empty()


def test_editor_indents_and_releases_keyboard_focus(open_page: OpenPage) -> None:
    """Tab, Shift+Tab, Enter and undo edit the code; after Escape, Tab leaves the
    editor.
    """
    page = open_editor(open_page)
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


def check_fits_a_phone(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for name in ("#run", "#stop", "#reset", "#share", "#example", "#code"):
        box = page.locator(name).bounding_box()
        assert box is not None
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= 390, name


def open_with_worker_code(open_page: OpenPage, worker_code: str) -> Page:
    """Open the page in a browser whose Worker runs this JavaScript as well."""
    open_small = partial(open_page, init_script=LITTLE_MEMORY)
    return wait_until_ready(
        open_with_change(
            open_small, "playground/", "worker.js", lambda text: text + worker_code
        )
    )


@pytest.mark.full
def test_without_webgpu_examples_run_on_numpy(open_page: OpenPage) -> None:
    """The page says so; nothing fails but what asks for WebGPU by name."""
    page = open_with_worker_code(open_page, NO_GPU)
    expect(page.locator(".problem")).to_contain_text("This browser offers no WebGPU")
    run_example(page, EXAMPLES_WITHOUT_GPU[0])
    printed = run_program(page, "import rlxweb as rlx\nrlx.Session('webgpu')")
    assert "AdapterMissing" in printed


@pytest.mark.full
def test_without_stack_switching_examples_run_too(open_page: OpenPage) -> None:
    """Examples run without stack switching; a blocking call says to await."""
    page = open_with_worker_code(open_page, NO_JSPI)
    run_example(page, EXAMPLES_WITHOUT_JSPI[0])
    printed = run_program(
        page,
        "import numpy as np, rlxweb as rlx\n"
        "g = rlx.Graph('g')\n"
        "g.set_outputs([g.exp(g.input('x', (3,)))])\n"
        "x = np.zeros(3, np.float32)\n"
        "try:\n"
        "    print(rlx.Session('webgpu').compile(g).run({'x': x}))\n"
        "except rlx.RlxError as error:\n"
        "    print(type(error).__name__)\n"
        "c = await rlx.Session('webgpu').compile_async(g)\n"
        "await c.run_async({'x': x})",
    )
    assert printed.startswith("MustAwait\n"), printed
    assert "array([1., 1., 1.]" in printed


@pytest.mark.full
@pytest.mark.parametrize(
    ("worker_code", "name"),
    [(NO_GPU, EXAMPLES_WITHOUT_GPU[1]), (NO_JSPI, EXAMPLES_WITHOUT_JSPI[1])],
    ids=["WebGPU", "stack switching"],
)
def test_other_examples_run_without_either(
    open_page: OpenPage, worker_code: str, name: str
) -> None:
    """Examples that leave the choice of a device to rlxweb run there too."""
    run_example(open_with_worker_code(open_page, worker_code), name)
