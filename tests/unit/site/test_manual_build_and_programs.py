"""The manual builds strictly, its programs run, and its links are valid.

Whether the demos work is tested in a browser, elsewhere.
"""

from __future__ import annotations

import ast
import os
import re
import textwrap
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from output_comparison import outputs_match, picture_difference
from rich.console import Console

from rlxweb.cli.smoke_console_report import print_report
from rlxweb.smoke.report import ENGINE_WORDS
from tests.cli_runners import run_forked
from tests.howto_pages import code_blocks
from tests.kernel_tables import WGSL_TABLE
from tests.unit.site.built_manual import (
    PAGES,
    ROOT,
    SITE,
    SOURCE_PAGES,
    BuiltManual,
    PageLinks,
)
from tests.unit.smoke import report_factory as made

FENCE = re.compile(
    r"^(?P<mark><!--[^\n]*-->\n)?(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN_OUTPUT = re.compile(r"<!-- (printed|make: shown .+) -->|# (True|\[)")
CHECKED_BLOCK = re.compile(
    r"^ *```(python|sh)\b|^<!-- (printed|make: shown) ", re.MULTILINE
)
"""Marks in a page of which site/snippets.py runs or compares something."""
NOT_RUN_MARK = re.compile(r"<!-- not run: (?P<why>\S.+) -->\n")

SNIPPETS = SITE / "snippets.py"
PAGE_MARKS = {
    "from-numpy.md": [pytest.mark.requires_torch],
    "speech.md": [pytest.mark.requires_torch, pytest.mark.full],
    # trained models as well; how one is loaded, run and asked others show
    "iclabel.md": [pytest.mark.full],
    "notes.md": [pytest.mark.full],
}
RECIPE_PAGES = sorted((PAGES / "cookbook").glob("*.md"))
SHARED_PROCESS_RECIPES = [
    p for p in RECIPE_PAGES if "<!-- make: example " not in p.read_text("utf-8")
]
"""Pages without a program of site/examples, which takes a process of its own."""


def test_the_variants_page_lists_every_variant() -> None:
    """The page lists every kernel variant by op and name."""
    page = (PAGES / "concepts/variants.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    for row in WGSL_TABLE.variants:
        op, name = row.name.split(", ", 1)
        op_label = "copies" if op == "copy" else op
        assert any(op_label in line and f"| {name} |" in line for line in lines), (
            row.name
        )


def test_the_smoke_examples_match_the_commands_output() -> None:
    """The manual's examples have the header, words and summary of today's output."""
    console = Console(file=StringIO(), width=120)
    rows = [made.make_row("samples/exp/0", "wrong"), made.make_row("samples/exp/1")]
    document = made.make_report(
        made.make_engine("vulkan:llvmpipe", *rows), apart=[], partial=False
    )
    print_report(console, document, False)
    _, header, _, _, *table_lines = console.file.getvalue().splitlines()
    summary_pattern = re.sub(r"\d+", r"\\d+", table_lines[-1]).replace(
        "engine ", "engines? "
    )
    examples = code_blocks("smoke-test", "text")
    assert len(examples) == 2
    for text in examples:
        first, _, *lines = text.splitlines()
        assert re.split(r"\s{2,}", first.strip()) == re.split(r"\s{2,}", header.strip())
        engines = lines[: lines.index("")]
        assert engines
        for table_line in engines:
            word = re.split(r"\s{2,}", table_line.strip())[1]
            assert word in ENGINE_WORDS
        assert any(re.match(summary_pattern, table_line) for table_line in lines), (
            summary_pattern
        )


def python_blocks(path: Path) -> Iterator[tuple[str, str, str]]:
    """Iterate over (location, mark, code) of every Python block of a page."""
    text = path.read_text("utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        location = f"{path.relative_to(ROOT).as_posix()}:{line}"
        yield location, match["mark"] or "", textwrap.dedent(match["code"])


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=PAGE_MARKS.get(path.name, ()))
        for path in SOURCE_PAGES
        if path not in SHARED_PROCESS_RECIPES
        and CHECKED_BLOCK.search(path.read_text("utf-8"))
    ],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_programs_of_a_page_run(path: Path) -> None:
    """Programs of a page run in order and print and draw what the page shows.

    What the page says that they print and draw is what they do.
    """
    result = run_forked(SNIPPETS, "--check", path, timeout=300)
    assert result.code == 0, result.err


def test_cookbook_recipes_print_and_draw_what_they_show() -> None:
    """The cookbook runs in one process: loading MNE and pandas takes the longest."""
    assert len(SHARED_PROCESS_RECIPES) >= 8
    result = run_forked(SNIPPETS, "--check", *SHARED_PROCESS_RECIPES, timeout=300)
    assert result.code == 0, result.err


def test_the_cookbook_has_twenty_nine_recipes_and_lists_them() -> None:
    """The recipes are numbered consecutively, each with a program, and listed on a
    page.
    """
    pages = [path.read_text("utf-8") for path in RECIPE_PAGES]
    headings = [
        heading
        for text in pages
        for heading in re.findall(r"^## (\d+\. .+)$", text, re.MULTILINE)
    ]
    assert sorted(int(heading.split(".")[0]) for heading in headings) == list(
        range(1, 30)
    )
    index = (PAGES / "cookbook" / "index.md").read_text("utf-8").casefold()
    assert [
        heading for heading in headings if f"[{heading.casefold()}](" not in index
    ] == []
    recipes = [part for text in pages for part in re.split(r"^## ", text, flags=re.M)]
    numbered = [part for part in recipes if re.match(r"\d+\. ", part)]
    assert [part for part in numbered if "```python" not in part] == []
    assert [part for part in numbered if not SHOWN_OUTPUT.search(part)] == []


def test_shown_output_must_match_the_blocks(tmp_path: Path) -> None:
    """A wrong number, comment, block or picture is reported; right ones pass."""
    page = tmp_path / "page.md"
    correct_page = """\
```python
print(1 / 3)  # 0.333…
open("a.svg", "w").write("<svg/>")
```

```python
print("half", 0.50)
```

<!-- printed -->
```text
half 0.5
```
"""
    page.write_text(correct_page, "utf-8")
    assert run_forked(SNIPPETS, "--check", page).code == 0
    for old, new, message in (
        ("0.333…", "0.335…", "says '0.335…'"),
        ("half 0.5", "half 0.7", "shows output that the code does not print"),
        ("half 0.5", "hall 0.5", "-hall 0.5"),
        ("<!-- printed", "<!-- make: shown a.svg A -->\n<!-- printed", "a.svg"),
    ):
        page.write_text(correct_page.replace(old, new), "utf-8")
        result = run_forked(SNIPPETS, "--check", page)
        assert result.code == 1, new
        assert message in result.err
    page.write_text(correct_page.replace("half 0.5\n", "soon\n"), "utf-8")
    assert run_forked(SNIPPETS, page).code == 0
    assert page.read_text("utf-8") == correct_page


@pytest.mark.parametrize(
    ("printed", "shown", "is_alike"),
    [
        ("12.34 Hz", "12.35 Hz", True),  # one in the last place
        ("12.34 Hz", "12.36 Hz", False),
        ("8 of 9", "8 of 8", False),  # whole numbers are counts
        ("a  1.0\n", "a 1.0", True),
        ("ran on NumPy 2.4.6, because", "ran on …, because", True),
        ("NumPy 2.4.6", "NumPy 2.4.7", False),
        ("1,024 bytes", "1,025 bytes", False),
        ("3e-05", "-3e-05", False),
    ],
)
def test_numbers_may_be_off_by_one_in_the_last_place(
    printed: str, shown: str, is_alike: bool
) -> None:
    assert outputs_match(printed, shown) is is_alike


def test_changed_pictures_are_reported() -> None:
    """Pictures differ by words, lines and parts, but not by rounding."""
    stored_svg = (SITE / "pictures" / "shown" / "stretch.svg").read_text("utf-8")
    assert picture_difference(stored_svg, stored_svg) == ""
    point = re.search(r"L (\d+\.\d+) ", stored_svg)
    assert point is not None
    for step, is_same in (("0.01", True), ("9.0", False)):
        moved_svg = stored_svg.replace(point[1], str(float(point[1]) + float(step)))
        assert (picture_difference(stored_svg, moved_svg) == "") is is_same
    assert "texts differ" in picture_difference(
        stored_svg, stored_svg.replace("eyes open", "eyes shut")
    )
    assert "elements differ" in picture_difference(
        stored_svg, stored_svg.replace("<path ", "<pfad ", 1)
    )
    longest = max(re.findall(r' d="([^"]*)"', stored_svg), key=len)
    lines = longest.splitlines()
    for kept, is_same in ((lines[:5] + lines[6:], True), (lines[::2], False)):
        thinned = stored_svg.replace(longest, "\n".join(kept))
        assert (picture_difference(stored_svg, thinned) == "") is is_same


def test_generated_pictures_are_shown_and_have_dark_versions(
    manual: BuiltManual,
) -> None:
    """Generated pictures are shown and have dark versions without a white
    background.
    """
    text = "\n".join(path.read_text("utf-8") for path in SOURCE_PAGES)
    folder = manual.folder / "img" / "shown"
    pictures = sorted((SITE / "pictures" / "shown").glob("*.svg"))
    assert len(pictures) >= 12
    for path in pictures:
        assert f"<!-- make: shown {path.name} " in text
        assert (folder / path.name).read_text("utf-8") == path.read_text("utf-8")
        dark = (folder / f"{path.stem}-dark.svg").read_text("utf-8")
        assert 'style="fill: #ffffff"' not in dark
        assert dark != path.read_text("utf-8")


def test_blocks_that_do_not_run_have_a_reason() -> None:
    """A mark has a reason, is on a block, and the block is still Python."""
    unrun_count = 0
    for path in SOURCE_PAGES:
        page_blocks = list(python_blocks(path))
        unrun_blocks = [
            (w, code) for w, mark, code in page_blocks if NOT_RUN_MARK.search(mark)
        ]
        assert path.read_text("utf-8").count("<!-- not run") == len(unrun_blocks), path
        for location, code in unrun_blocks:
            compile(code, location, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        unrun_count += len(unrun_blocks)
    assert unrun_count <= 8, "most programs of the manual must run"


def test_the_custom_page_example_is_short_and_self_contained() -> None:
    """The custom page has at most 20 lines and needs only the runtime beside it."""
    page = code_blocks("your-page", "html")[0]
    assert len(page.splitlines()) <= 20
    assert '"./runtime/rlxweb.mjs"' in page
    assert "//" not in page.replace('"./runtime', "")


def test_no_page_has_inline_scripts_or_styles(manual: BuiltManual) -> None:
    """The theme's inline scripts are in files, which exist and run in the theme's
    order.
    """
    folder = manual.folder
    scripts = list((folder / "assets" / "javascripts" / "inline").iterdir())
    assert any("__md_scope" in file.read_text("utf-8") for file in scripts)
    front = (folder / "index.html").read_text("utf-8")
    assert front.index("/inline/") < front.index("/bundle.")


def test_links_are_valid_and_nothing_is_loaded_from_another_host(
    manual: BuiltManual,
) -> None:
    """Links lead to the manual's pages and headings, or to existing demos.

    No script, style, picture or font is another's; the manual works without a network.
    """
    folder = str(manual.folder.resolve())
    files = {
        os.path.join(parent, name)
        for parent, _, file_names in os.walk(folder)
        for name in file_names
    }
    links_by_page = {
        str(page.resolve()): PageLinks.from_file(page) for page in manual.pages
    }
    assert len(links_by_page) > 200
    broken_links = [
        f"{os.path.relpath(page, folder)}: {url}"
        for page, page_links in links_by_page.items()
        if os.path.basename(page) != "404.html"  # its links are written for any depth
        for url in [*page_links.links, *page_links.loaded_urls]
        if is_relative_url(url) and not is_valid_link(page, url, files, links_by_page)
    ]
    assert broken_links == []
    external_loads = [
        f"{os.path.relpath(page, folder)}: {url}"
        for page, page_links in links_by_page.items()
        for url in page_links.loaded_urls
        if urlsplit(url).netloc
    ]
    external_loads += [
        f"{os.path.basename(sheet)}: {url}"
        for sheet in files
        if sheet.endswith(".css")
        for url in re.findall(
            r"url\(\s*[\"']?([^\"')]+)", Path(sheet).read_text("utf-8")
        )
        if urlsplit(url).netloc
    ]
    assert external_loads == []


def is_relative_url(url: str) -> bool:
    """Tell whether a URL names neither another host nor another scheme."""
    parts = urlsplit(url)
    return not (parts.scheme or parts.netloc)


def is_valid_link(
    page: str, url: str, files: set[str], links_by_page: dict[str, PageLinks]
) -> bool:
    """Tell whether a link leads to an existing file and heading of the manual.

    files   all of them by their full names; a folder stands for its index.html
    """
    parts, page_folder = urlsplit(url), os.path.dirname(page)
    path = unquote(parts.path)
    target = os.path.normpath(os.path.join(page_folder, path)) if path else page
    if target not in files:
        target = os.path.join(target, "index.html")
    if parts.fragment and target in links_by_page:
        return unquote(parts.fragment) in links_by_page[target].anchors
    return target in files


def test_the_front_page_starts_no_python(manual: BuiltManual) -> None:
    """The demo is loaded when its button is pressed; a plain link leads to it as
    well.
    """
    page = manual.page_html("")
    assert "<iframe" not in page
    assert "pyodide" not in "".join(
        PageLinks.from_file(manual.folder / "index.html").loaded_urls
    )
    assert 'href="demo/live/"' in page
    assert 'src="js/front.js"' in page


def test_pictures_use_the_pages_colours_and_have_descriptions() -> None:
    """Pictures have no colours of their own, have descriptions, and are on a page."""
    text = "\n".join(path.read_text("utf-8") for path in SOURCE_PAGES)
    pictures = sorted((SITE / "pictures").glob("*.svg"))
    assert len(pictures) >= 4
    for path in pictures:
        svg = path.read_text("utf-8")
        assert "currentColor" in svg
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b|rgb\(", svg), path.name
        assert re.search(r'role="img" aria-label="[^"]{40,}"', svg), path.name
        assert f"<!-- make: picture {path.name} " in text
