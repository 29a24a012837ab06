"""The manual: it builds strictly, its programs run, its links lead somewhere.

Whether the demos work is tested in a browser, elsewhere.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from assembly.inside import refuse_inline
from rich.console import Console

from rlxweb.cli.smoke_table import show_report
from rlxweb.recipes.variants import COPIES, VARIANTS
from rlxweb.smoke.report import ENGINE_WORDS
from tests.command_line import python
from tests.unit.site.manual import PAGES, ROOT, SITE, WRITTEN, Built, Facts, built
from tests.unit.smoke import made_report as made

FENCE = re.compile(
    r"^(?P<mark><!--[^\n]*-->\n)?(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = re.compile(r"<!-- not run: (?P<why>\S.+) -->\n")

# Runs the blocks of one page in one namespace; a block may await at its top level. What
# begins with the name of a file is also kept as that file, for those that import it.
RUN = """
import ast, asyncio, inspect, json, pathlib, re, sys
names = {"__name__": "page"}
for where, code in json.load(sys.stdin):
    if named := re.match(r"# (\\w+\\.py)\\n", code):
        pathlib.Path(named[1]).write_text(code, "utf-8")
    made = compile(code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waits = eval(made, names)
    if inspect.iscoroutine(waits):
        asyncio.run(waits)
"""


def test_the_build_is_strict_and_says_nothing() -> None:
    """No warning of mkdocs, its plugins or our hooks."""
    made = built()
    assert (made.code, made.said) == (0, "")


def test_the_page_of_variants_lists_every_row() -> None:
    """By op and name, so that what is not measured yet cannot be forgotten."""
    page = (PAGES / "concepts/variants.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    for row in (*VARIANTS, *COPIES):
        op, name = row.name.split(", ", 1)
        about = "copies" if op == "copy" else op
        assert any(about in line and f"| {name} |" in line for line in lines), row.name


def test_the_smoke_tests_examples_look_as_the_command_does() -> None:
    """They were written by runs; heads, words and the sum below are today's."""
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
    """(where, mark, code) of every Python block of a page."""
    text = path.read_text("utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        where = f"{path.relative_to(ROOT).as_posix()}:{line}"
        yield where, found["mark"] or "", textwrap.dedent(found["code"])


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_programs_of_a_page_run(path: Path, tmp_path: Path) -> None:
    """In order, one after the other, as a reader would type them."""
    wanted = [(w, code) for w, mark, code in blocks(path) if not NOT_RUN.search(mark)]
    stdin, off = json.dumps(wanted), {"RLX_CALIBRATION": "off"}
    done = python("-c", RUN, cwd=tmp_path, timeout=300, stdin=stdin, **off)
    assert done.code == 0, done.err


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
    """At most 20 lines, only the runtime beside it, no other host."""
    text = (PAGES / "howto" / "your-page.md").read_text("utf-8")
    found = re.search(r"^```html\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines = found[1].splitlines()
    assert len(lines) <= 20
    assert '"./runtime/rlxweb.mjs"' in found[1]
    assert "//" not in found[1].replace('"./runtime', "")


def test_nothing_is_loaded_from_another_host() -> None:
    """No script, style, picture or font; the manual works without a network."""
    folder = built().folder
    foreign = [
        f"{page.relative_to(folder)}: {url}"
        for page in folder.rglob("*.html")
        for url in Facts.of(page).loads
        if urlsplit(url).netloc
    ]
    foreign += [
        f"{sheet.name}: {url}"
        for sheet in folder.rglob("*.css")
        for url in re.findall(r"url\(\s*[\"']?([^\"')]+)", sheet.read_text("utf-8"))
        if urlsplit(url).netloc
    ]
    assert foreign == []


def test_no_page_holds_a_script_or_a_style() -> None:
    """What the theme puts there is in files, which are there and run in its order."""
    folder = built().folder
    refuse_inline(folder)
    scripts = list((folder / "assets" / "javascripts" / "inline").iterdir())
    assert any("__md_scope" in file.read_text("utf-8") for file in scripts)
    front = (folder / "index.html").read_text("utf-8")
    assert front.index("/inline/") < front.index("/bundle.")


def test_every_link_leads_somewhere() -> None:
    """Into the manual, to the right heading, or to a demo that is there."""
    made = built()
    known = {page: Facts.of(page) for page in made.folder.rglob("*.html")}
    dead = [
        f"{page.relative_to(made.folder)}: {url}"
        for page, facts in known.items()
        if page.name != "404.html"  # its links are written for any depth
        for url in [*facts.links, *facts.loads]
        if is_ours(url) and not leads(page, url, made, known)
    ]
    assert dead == []


def is_ours(url: str) -> bool:
    """Neither another host nor another scheme."""
    parts = urlsplit(url)
    return not (parts.scheme or parts.netloc)


def leads(page: Path, url: str, made: Built, known: dict[Path, Facts]) -> bool:
    parts = urlsplit(url)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(made.folder.resolve()):
        return False
    inside = target.relative_to(made.folder.resolve())
    if inside.parts[:1] == ("demo",):
        return (SITE / inside / "index.html").is_file()
    if target.is_dir():
        target /= "index.html"
    if parts.fragment and target in known:
        return unquote(parts.fragment) in known[target].anchors
    return target.is_file()


def test_the_front_page_starts_no_python() -> None:
    """The demo is loaded when its button is pressed, and a plain link leads to it."""
    page = built().text("")
    assert "<iframe" not in page
    assert "pyodide" not in "".join(Facts.of(built().folder / "index.html").loads)
    assert 'href="demo/live/"' in page
    assert 'src="js/front.js"' in page


def test_pictures_have_the_inks_of_the_page_and_words() -> None:
    """No colour of their own, words for who cannot see them, a page that shows it."""
    text = "\n".join(path.read_text("utf-8") for path in WRITTEN)
    drawn = sorted((SITE / "pictures").glob("*.svg"))
    assert len(drawn) >= 4
    for path in drawn:
        svg = path.read_text("utf-8")
        assert "currentColor" in svg
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b|rgb\(", svg), path.name
        assert re.search(r'role="img" aria-label="[^"]{40,}"', svg), path.name
        assert f"<!-- make: picture {path.name} " in text
