"""The manual: it builds strictly, its programs run, its generated pages are complete.

The built folder is looked at as a browser would find it. Whether the demos work is
tested in a browser, elsewhere.
"""

from __future__ import annotations

import ast
import html
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import click
import pytest

import rlxweb
from rlxweb import cost, devices, errors
from rlxweb.cli.main import cli
from rlxweb.ir.op import registry
from rlxweb.signal import costs

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "site"
PAGES = SITE / "pages"
NEEDED = ("mkdocs", "material", "mkdocstrings")

WRITTEN = sorted([*PAGES.rglob("*.md"), ROOT / "README.md"])
FENCE = re.compile(
    r"^(?P<mark><!--[^\n]*-->\n)?(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = re.compile(r"<!-- not run: (?P<why>\S.+) -->\n")

# Runs the blocks of one page in one namespace; a block may await at its top level.
RUN = """
import ast, asyncio, inspect, json, sys
names = {"__name__": "page"}
for where, code in json.load(sys.stdin):
    made = compile(code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waits = eval(made, names)
    if inspect.iscoroutine(waits):
        asyncio.run(waits)
"""


@pytest.fixture(scope="session")
def hooks() -> Iterator[Path]:
    """The hooks can be imported, as mkdocs imports them."""
    for name in NEEDED:
        try:
            import_module(name)
        except ImportError:
            if os.environ.get("CI"):
                pytest.fail(f"{name} is missing: pip install '.[docs]'", pytrace=False)
            pytest.skip(f"{name} is missing: pip install '.[docs]'")
    sys.path.insert(0, str(SITE / "hooks"))
    yield SITE / "hooks"
    sys.path.remove(str(SITE / "hooks"))


def hook(name: str) -> ModuleType:
    """A module of site/hooks."""
    return import_module(name)


@dataclass(frozen=True, slots=True)
class Built:
    """The built manual, and what mkdocs said while it built."""

    folder: Path
    said: str
    code: int

    def text(self, page: str) -> str:
        """The HTML of a page by its path in the nav ("" is the front page)."""
        return (self.folder / page / "index.html").read_text("utf-8")


@pytest.fixture(scope="session")
def built(hooks: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The manual, built once."""
    folder = tmp_path_factory.mktemp("manual")
    where = ("-f", str(SITE / "mkdocs.yml"), "-d", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", *where],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Built(folder, (done.stdout + done.stderr).strip(), done.returncode)


def test_the_build_is_strict_and_says_nothing(built: Built) -> None:
    """No warning of mkdocs, its plugins or our hooks."""
    assert (built.code, built.said) == (0, "")


# --- programs ---------------------------------------------------------------------


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
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(wanted),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RLX_CALIBRATION": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


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
    assert '"./runtime/pyodide.mjs"' in found[1]
    assert "//" not in found[1].replace('"./runtime', "")


# --- generated pages --------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(op.name for op in registry))
def test_every_op_has_its_page(built: Built, name: str) -> None:
    """With its words, its example and what the example printed."""
    op = registry.get(name)
    page = shown(built.text(f"reference/ops/{name}"))
    assert op.doc.replace("`", "").split("[")[0] in page
    for attr in op.attrs:
        assert attr.name in page
    assert "rlx.Session(" in page
    if isinstance(getattr(op.lower, "text", None), str):
        assert op.lower.text in page
    assert f'href="{name}/"' in built.text("reference/ops")


def test_an_op_added_in_one_statement_has_a_page(hooks: Path) -> None:
    """Nothing but its record is needed."""
    from rlxweb.ir.sample import Drawn, Sample

    rlxweb.register_custom(
        "docs_probe",
        arity=1,
        reference=lambda xp, attrs, x: x * x * x,
        wgsl="x * x * x",
        samples=[Sample((Drawn((3,)),)), Sample((Drawn((0, 2)),))],
        doc="The cube of x.",
    )
    try:
        page = hook("op_pages").page(registry.get("docs_probe"))
    finally:
        registry.unregister("docs_probe")
    assert "The cube of x." in page
    assert "```wgsl\nx * x * x\n```" in page
    assert 'g.apply("docs_probe", x)' in page
    assert "`[0, 2]`" in page


def test_the_example_of_an_op_prints_what_the_op_gives(hooks: Path) -> None:
    """The text under the program is the program's own output."""
    made = hook("op_example")
    program = made.example(registry.get("neg"))
    assert made.output(program) == made.output(program)
    assert made.output("print(-0.5)") == "-0.5"
    page = hook("op_pages").page(registry.get("neg"))
    assert f"```text\n{made.output(program)}\n```" in page


def test_every_command_is_described(built: Built) -> None:
    """Each command and each of its options."""
    page = shown(built.text("reference/command-line"))
    context = click.Context(cli, info_name="rlxweb")
    pending = [("rlxweb", cli)]
    while pending:
        path, command = pending.pop()
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                pending.append((f"{path} {name}", found))
            continue
        assert path in page
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in page, (path, parameter.opts)


def test_every_measured_row_is_shown(built: Built) -> None:
    """No results file, no cell and no losing row is left out."""
    page = shown(built.text("benchmarks"))
    results = sorted((ROOT / "tests" / "benchmarks" / "results").glob("*.json"))
    assert results
    plain = hook("drawing").plain
    missed = 0
    for path in results:
        assert path.name in page
        record = json.loads(path.read_text("utf-8"))
        if record["schema"].startswith("rlxweb.bench/"):
            for cell in record["cells"]:
                assert cell["cell"] in page
                for row in cell["rows"]:
                    assert f"{row['name']} {row['engine'].split(' (')[0]}" in page
                    assert plain(row["ms"]) in page
                missed += sum(not goal["met"] for goal in cell["goals"])
    assert page.count("missed") >= missed


def test_results_of_an_unknown_kind_stop_the_build(
    hooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better no page than a page that leaves something out."""
    page = hook("benchmark_page")
    (tmp_path / "new.json").write_text('{"schema": "rlxweb.bench.new/1"}', "utf-8")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    with pytest.raises(
        ValueError, match=r"new\.json has schema 'rlxweb\.bench\.new/1'"
    ):
        page.benchmarks()


def test_docstrings_keep_their_rows_and_letters(hooks: Path) -> None:
    """The house template as Markdown: rows, continued rows, prose, prompts."""
    as_markdown = hook("docstrings").as_markdown
    text = textwrap.dedent("""\
        Sum of x * y. Errors  ShapeError when they differ.

        Shapes   x (B, T), y (T,)
        strategy "auto", or the way
                 to go
        k        how many, |k| < 9

        >>> total(x, y)
        3.0""")
    assert as_markdown(text) == textwrap.dedent("""\
        Sum of x \\* y.

        **Errors**
        :   ShapeError when they differ.

        **Shapes**
        :   x (B, T), y (T,)

        `strategy`
        :   "auto", or the way to go

        `k`
        :   how many, \\|k\\| &lt; 9

        ```pycon
        >>> total(x, y)
        3.0
        ```""")


@pytest.mark.parametrize("module", [rlxweb, cost, costs, devices, errors])
def test_every_public_name_is_in_the_reference(
    built: Built, module: ModuleType
) -> None:
    """Each has an anchor of its own to link to."""
    documented = {
        anchor.rsplit(".", 1)[-1]
        for page in (built.folder / "reference").glob("*/index.html")
        for anchor in Facts.of(page).anchors
    }
    names = getattr(module, "__all__", None) or [
        name
        for name, found in vars(module).items()
        if getattr(found, "__module__", "") == module.__name__ and name[0] != "_"
    ]
    assert len(names) > 10
    assert sorted(set(names) - documented) == []


# --- the built folder ---------------------------------------------------------------

LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "use": "href",
    "link": "href",
}
NOT_LOADED = {"canonical", "prev", "next", "alternate"}


@dataclass(slots=True)
class Facts(HTMLParser):
    """What a page loads, links to, and can be linked at."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        target = found.get(LOADS.get(tag, ""), "")
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif target and found.get("rel") not in NOT_LOADED:
            self.loads.append(target)

    @classmethod
    def of(cls, page: Path) -> Facts:
        facts = cls()
        facts.feed(page.read_text("utf-8"))
        return facts


def shown(page: str) -> str:
    """The words of a page, as a reader sees them."""
    words = html.unescape(re.sub(r"<[^>]*>", " ", page))
    joined = re.sub(r"\s+", " ", words)
    # spans of highlighted code stand without space between them
    close = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", page)))
    return f"{joined}\n{close}"


def test_nothing_is_loaded_from_another_host(built: Built) -> None:
    """No script, style, picture or font; the manual works without a network."""
    foreign = [
        f"{page.relative_to(built.folder)}: {url}"
        for page in built.folder.rglob("*.html")
        for url in Facts.of(page).loads
        if urlsplit(url).netloc
    ]
    foreign += [
        f"{sheet.name}: {url}"
        for sheet in built.folder.rglob("*.css")
        for url in re.findall(r"url\(\s*[\"']?([^\"')]+)", sheet.read_text("utf-8"))
        if urlsplit(url).netloc
    ]
    assert foreign == []


def test_every_link_leads_somewhere(built: Built) -> None:
    """Into the manual, to the right heading, or to a demo that is there."""
    known = {page: Facts.of(page) for page in built.folder.rglob("*.html")}
    dead = []
    for page, facts in known.items():
        if page.name == "404.html":  # its links are written for any depth
            continue
        for url in [*facts.links, *facts.loads]:
            parts = urlsplit(url)
            if not (parts.scheme or parts.netloc) and not leads(
                page, url, built, known
            ):
                dead.append(f"{page.relative_to(built.folder)}: {url}")
    assert dead == []


def leads(page: Path, url: str, built: Built, known: dict[Path, Facts]) -> bool:
    parts = urlsplit(url)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(built.folder.resolve()):
        return False
    inside = target.relative_to(built.folder.resolve())
    if inside.parts[:1] == ("demo",):
        return (SITE / inside / "index.html").is_file()
    if target.is_dir():
        target /= "index.html"
    if parts.fragment and target in known:
        return unquote(parts.fragment) in known[target].anchors
    return target.is_file()


def test_the_front_page_starts_no_python(built: Built) -> None:
    """The demo is loaded when its button is pressed, and a plain link leads to it."""
    page = built.text("")
    assert "<iframe" not in page
    assert "pyodide" not in "".join(Facts.of(built.folder / "index.html").loads)
    assert 'href="demo/live/"' in page
    assert 'src="js/front.js"' in page
