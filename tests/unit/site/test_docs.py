"""The manual: it builds strictly, its programs run, its links lead somewhere.

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
from picture_text import alike, differs
from rich.console import Console

from rlxweb.cli.smoke_table import show_report
from rlxweb.recipes.variants import COPIES, VARIANTS
from rlxweb.smoke.report import ENGINE_WORDS
from tests.command_line import forked
from tests.unit.site.manual import PAGES, ROOT, SITE, WRITTEN, Facts, Manual
from tests.unit.smoke import made_report as made

FENCE = re.compile(
    r"^(?P<mark><!--[^\n]*-->\n)?(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = re.compile(r"<!-- (printed|make: shown .+) -->|# (True|\[)")
RUN = re.compile(r"^ *```(python|sh)\b|^<!-- (printed|make: shown) ", re.MULTILINE)
"""In a page of which site/snippets.py runs or compares something."""
NOT_RUN = re.compile(r"<!-- not run: (?P<why>\S.+) -->\n")

SNIPPETS = SITE / "snippets.py"
NEEDS = {
    "from-numpy.md": [pytest.mark.requires_torch],
    "speech.md": [pytest.mark.requires_torch, pytest.mark.full],
    # trained models as well; how one is loaded, run and asked others show
    "iclabel.md": [pytest.mark.full],
    "notes.md": [pytest.mark.full],
}
RECIPES = sorted((PAGES / "cookbook").glob("*.md"))
COOKBOOK = [p for p in RECIPES if "<!-- make: example " not in p.read_text("utf-8")]
"""Pages without a program of site/examples, which takes a process of its own."""


def test_the_page_of_variants_lists_every_row() -> None:
    """The page lists every variant by op and name, so that none is forgotten."""
    page = (PAGES / "concepts/variants.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    for row in (*VARIANTS, *COPIES):
        op, name = row.name.split(", ", 1)
        about = "copies" if op == "copy" else op
        assert any(about in line and f"| {name} |" in line for line in lines), row.name


def test_the_smoke_tests_examples_look_as_the_command_does() -> None:
    """The manual's examples, written by runs, have today's heads, words and sum."""
    page = (PAGES / "howto/smoke-test.md").read_text("utf-8")
    console = Console(file=StringIO(), width=120)
    rows = [made.row("samples/exp/0", "wrong"), made.row("samples/exp/1")]
    today = made.report(made.engine("vulkan:llvmpipe", *rows), apart=[], partial=False)
    show_report(console, today, False)
    _, heads, _, _, *below = console.file.getvalue().splitlines()
    sum_up = re.sub(r"\d+", r"\\d+", below[-1]).replace("engine ", "engines? ")
    shown = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for text in shown:
        first, _, *lines = text.splitlines()
        assert re.split(r"\s{2,}", first.strip()) == re.split(r"\s{2,}", heads.strip())
        engines = lines[: lines.index("")]
        assert engines
        for one in engines:
            word = re.split(r"\s{2,}", one.strip())[1]
            assert word in ENGINE_WORDS
        assert any(re.match(sum_up, one) for one in lines), sum_up


def blocks(path: Path) -> Iterator[tuple[str, str, str]]:
    """Iterate over (where, mark, code) of every Python block of a page."""
    text = path.read_text("utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        where = f"{path.relative_to(ROOT).as_posix()}:{line}"
        yield where, found["mark"] or "", textwrap.dedent(found["code"])


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=NEEDS.get(path.name, ()))
        for path in WRITTEN
        if path not in COOKBOOK and RUN.search(path.read_text("utf-8"))
    ],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_the_programs_of_a_page_run(path: Path) -> None:
    """Programs of a page run in order, as a reader would type them.

    What the page says that they print and draw is what they do.
    """
    done = forked(SNIPPETS, "--check", path, timeout=300)
    assert done.code == 0, done.err


def test_the_recipes_of_the_cookbook_print_and_draw_what_it_shows() -> None:
    """The cookbook runs in one process: loading MNE and pandas takes the longest."""
    assert len(COOKBOOK) >= 8
    done = forked(SNIPPETS, "--check", *COOKBOOK, timeout=300)
    assert done.code == 0, done.err


def test_the_cookbook_has_twenty_nine_recipes_and_lists_them() -> None:
    """The recipes are numbered through, each with a program, and listed on a page."""
    pages = [path.read_text("utf-8") for path in RECIPES]
    heads = [
        head
        for text in pages
        for head in re.findall(r"^## (\d+\. .+)$", text, re.MULTILINE)
    ]
    assert sorted(int(head.split(".")[0]) for head in heads) == list(range(1, 30))
    index = (PAGES / "cookbook" / "index.md").read_text("utf-8").casefold()
    assert [head for head in heads if f"[{head.casefold()}](" not in index] == []
    recipes = [part for text in pages for part in re.split(r"^## ", text, flags=re.M)]
    numbered = [part for part in recipes if re.match(r"\d+\. ", part)]
    assert [part for part in numbered if "```python" not in part] == []
    assert [part for part in numbered if not SHOWN.search(part)] == []


def test_what_a_page_shows_must_be_what_its_blocks_do(tmp_path: Path) -> None:
    """A wrong number, comment, block or picture is told; right ones pass."""
    page = tmp_path / "page.md"
    right = """\
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
    page.write_text(right, "utf-8")
    assert forked(SNIPPETS, "--check", page).code == 0
    for old, new, told in (
        ("0.333…", "0.335…", "says '0.335…'"),
        ("half 0.5", "half 0.7", "shows what is not printed"),
        ("half 0.5", "hall 0.5", "-hall 0.5"),
        ("<!-- printed", "<!-- make: shown a.svg A -->\n<!-- printed", "a.svg"),
    ):
        page.write_text(right.replace(old, new), "utf-8")
        done = forked(SNIPPETS, "--check", page)
        assert done.code == 1, new
        assert told in done.err
    page.write_text(right.replace("half 0.5\n", "soon\n"), "utf-8")
    assert forked(SNIPPETS, page).code == 0
    assert page.read_text("utf-8") == right


@pytest.mark.parametrize(
    ("now", "shown", "is_alike"),
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
    now: str, shown: str, is_alike: bool
) -> None:
    assert alike(now, shown) is is_alike


def test_a_picture_that_is_drawn_otherwise_is_told() -> None:
    """A picture differs by its words, its lines and its parts; not by its rounding."""
    kept = (SITE / "pictures" / "shown" / "stretch.svg").read_text("utf-8")
    assert differs(kept, kept) == ""
    point = re.search(r"L (\d+\.\d+) ", kept)
    assert point is not None
    for step, is_same in (("0.01", True), ("9.0", False)):
        moved = kept.replace(point[1], str(float(point[1]) + float(step)))
        assert (differs(kept, moved) == "") is is_same
    assert "words" in differs(kept, kept.replace("eyes open", "eyes shut"))
    assert "parts" in differs(kept, kept.replace("<path ", "<pfad ", 1))


def test_pictures_that_pages_drew_are_shown_and_can_be_seen_in_the_dark(
    manual: Manual,
) -> None:
    """Pictures that pages drew are shown, and have dark twins without white paper."""
    text = "\n".join(path.read_text("utf-8") for path in WRITTEN)
    folder = manual.folder / "img" / "shown"
    drawn = sorted((SITE / "pictures" / "shown").glob("*.svg"))
    assert len(drawn) >= 12
    for path in drawn:
        assert f"<!-- make: shown {path.name} " in text
        assert (folder / path.name).read_text("utf-8") == path.read_text("utf-8")
        dark = (folder / f"{path.stem}-dark.svg").read_text("utf-8")
        assert 'style="fill: #ffffff"' not in dark
        assert dark != path.read_text("utf-8")


def test_blocks_that_do_not_run_say_why() -> None:
    """A mark has a reason, is on a block, and the block is still Python."""
    marked = 0
    for path in WRITTEN:
        found = list(blocks(path))
        here = [(w, code) for w, mark, code in found if NOT_RUN.search(mark)]
        assert path.read_text("utf-8").count("<!-- not run") == len(here), path
        for where, code in here:
            compile(code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        marked += len(here)
    assert marked <= 6, "most programs of the manual must run"


def test_the_page_of_ones_own_is_short_and_stands_alone() -> None:
    """The page of one's own has at most 20 lines and only the runtime beside it."""
    text = (PAGES / "howto" / "your-page.md").read_text("utf-8")
    found = re.search(r"^```html\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines = found[1].splitlines()
    assert len(lines) <= 20
    assert '"./runtime/rlxweb.mjs"' in found[1]
    assert "//" not in found[1].replace('"./runtime', "")


def test_no_page_holds_a_script_or_a_style(manual: Manual) -> None:
    """What the theme puts there is in files, which are there and run in its order."""
    folder = manual.folder
    scripts = list((folder / "assets" / "javascripts" / "inline").iterdir())
    assert any("__md_scope" in file.read_text("utf-8") for file in scripts)
    front = (folder / "index.html").read_text("utf-8")
    assert front.index("/inline/") < front.index("/bundle.")


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_another_host(
    manual: Manual,
) -> None:
    """Links lead into the manual, to the right heading, or to a demo that is there.

    No script, style, picture or font is another's; the manual works without a network.
    """
    folder = str(manual.folder.resolve())
    files = {os.path.join(at, name) for at, _, has in os.walk(folder) for name in has}
    known = {str(page.resolve()): Facts.of(page) for page in manual.pages}
    assert len(known) > 200
    dead = [
        f"{os.path.relpath(page, folder)}: {url}"
        for page, facts in known.items()
        if os.path.basename(page) != "404.html"  # its links are written for any depth
        for url in [*facts.links, *facts.loads]
        if is_ours(url) and not leads(page, url, files, known)
    ]
    assert dead == []
    foreign = [
        f"{os.path.relpath(page, folder)}: {url}"
        for page, facts in known.items()
        for url in facts.loads
        if urlsplit(url).netloc
    ]
    foreign += [
        f"{os.path.basename(sheet)}: {url}"
        for sheet in files
        if sheet.endswith(".css")
        for url in re.findall(
            r"url\(\s*[\"']?([^\"')]+)", Path(sheet).read_text("utf-8")
        )
        if urlsplit(url).netloc
    ]
    assert foreign == []


def is_ours(url: str) -> bool:
    """Tell whether a URL names neither another host nor another scheme."""
    parts = urlsplit(url)
    return not (parts.scheme or parts.netloc)


def leads(page: str, url: str, files: set[str], known: dict[str, Facts]) -> bool:
    """Tell whether a link leads to a file of the manual, and to its heading.

    files   all of them by their full names; a folder stands for its index.html
    """
    parts, home = urlsplit(url), os.path.dirname(page)
    path = unquote(parts.path)
    target = os.path.normpath(os.path.join(home, path)) if path else page
    if target not in files:
        target = os.path.join(target, "index.html")
    if parts.fragment and target in known:
        return unquote(parts.fragment) in known[target].anchors
    return target in files


def test_the_front_page_starts_no_python(manual: Manual) -> None:
    """The demo is loaded when its button is pressed, and a plain link leads to it."""
    page = manual.text("")
    assert "<iframe" not in page
    assert "pyodide" not in "".join(Facts.of(manual.folder / "index.html").loads)
    assert 'href="demo/live/"' in page
    assert 'src="js/front.js"' in page


def test_pictures_have_the_inks_of_the_page_and_words() -> None:
    """Pictures have no colour of their own, words beside them and a page."""
    text = "\n".join(path.read_text("utf-8") for path in WRITTEN)
    drawn = sorted((SITE / "pictures").glob("*.svg"))
    assert len(drawn) >= 4
    for path in drawn:
        svg = path.read_text("utf-8")
        assert "currentColor" in svg
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b|rgb\(", svg), path.name
        assert re.search(r'role="img" aria-label="[^"]{40,}"', svg), path.name
        assert f"<!-- make: picture {path.name} " in text
