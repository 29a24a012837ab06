"""The builder as a whole, with a small Pyodide and without mkdocs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from assembly import bytecode
from assembly.bytecode import BYTECODE
from assembly.errors import SiteError
from assembly.hashing import place
from assembly.pages import add_folder, build_manual
from assembly.pyodide import Places
from assembly.wheel import build_wheel, tagged

from tests.site_build import ROOT
from tests.unit.site.conftest import NUMPY, Small, digest, make_wheel, zipped

COMPILED = zipped("rlxweb/__pycache__/__init__.pyc")
BYTECODE_FILE = f"{BYTECODE}-{digest(COMPILED)[:10]}.zip"


def compiled(runtime: Path, folder: Path) -> None:
    """Instead of what a real Pyodide compiles."""
    (folder / "bytecode.zip").write_bytes(COMPILED)
    (folder / "python_stdlib.zip").write_bytes(b"this is Python and bytecode")


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`assemble`, with a manual of one page, a wheel of one line, no compiler."""
    module = importlib.import_module("assemble")

    def manual(root: Path, folder: Path) -> None:
        (folder / "index.html").write_text("<h1>The manual</h1>", "utf-8")

    monkeypatch.setattr(module, "build_manual", manual)
    monkeypatch.setattr(module, "build_wheel", lambda root, out: make_wheel(out))
    monkeypatch.setattr(bytecode, "compile_in", compiled)
    return module


@pytest.fixture
def build(builder: ModuleType, small: Small, tmp_path: Path) -> Callable[[], Path]:
    """Builds the checkout's site from the small Pyodide; the folder."""
    out = tmp_path / "out" / "site"
    places = Places(tmp_path / "cache", small.folder, tmp_path / "nothing")

    def run() -> Path:
        builder.assemble(ROOT, out, places)
        return out

    return run


def test_the_site_has_manual_demos_and_runtime(build: Callable[[], Path]) -> None:
    """Manual, demos and runtime are in place, and nothing else beside the site."""
    site = build()
    assert (site / "index.html").is_file()
    assert (site / "demo" / "worker.js").is_file()
    names = {path.name for path in (site / "runtime").iterdir()}
    (image,) = {name for name in names if name.endswith(".image")}
    assert names - {image} == {
        *("ABOUT.txt", "python_stdlib.zip", "pyodide-lock.json", "pyodide.asm.js"),
        *("pyodide.asm.wasm", "pyodide.js", "pyodide.mjs", "blas-1.0.zip", NUMPY),
        *("rlxweb-1.2.3-py3-none-any.whl", BYTECODE_FILE, "rlxweb.mjs"),
    }
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_the_lock_file_in_the_site_tells_the_truth(build: Callable[[], Path]) -> None:
    """Every file it names is there with that hash."""
    runtime = build() / "runtime"
    lock = json.loads((runtime / "pyodide-lock.json").read_text("utf-8"))
    assert set(lock["packages"]) == {"blas", "numpy", "rlxweb", BYTECODE}
    assert lock["packages"]["rlxweb"]["depends"] == ["numpy", BYTECODE]
    for package in lock["packages"].values():
        data = (runtime / package["file_name"]).read_bytes()
        assert digest(data) == package["sha256"]


def test_versions_and_licences_are_told(build: Callable[[], Path]) -> None:
    """Versions and licences are told in words and in JSON."""
    site = build()
    about = (site / "runtime" / "ABOUT.txt").read_text("utf-8")
    for words in (
        *("Pyodide 0.28.5", "Mozilla Public License 2.0", "CPython 3.12.7"),
        *("numpy 2.0.9", "BSD 3-Clause", "rlxweb 1.2.3", "Apache License 2.0"),
        f"{BYTECODE_FILE} is the bytecode",
    ):
        assert words in about
    said = json.loads((site / "site.json").read_text("utf-8"))
    assert said["pyodide"] == "0.28.5"
    ours = dict.fromkeys(("rlxweb", BYTECODE), "1.2.3")
    assert said["packages"] == {"blas": "1.0", "numpy": "2.0.9", **ours}


def stops(what: BaseException) -> Callable[[Path, Path], None]:
    """A manual that cannot be built."""

    def manual(root: Path, folder: Path) -> None:
        (folder / "half.html").write_text("half a page", "utf-8")
        raise what

    return manual


@pytest.mark.parametrize(
    "what",
    [SiteError("building the manual", "no"), OSError(28, "full"), KeyboardInterrupt()],
)
def test_a_build_that_fails_leaves_the_old_site(
    build: Callable[[], Path],
    builder: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    what: BaseException,
) -> None:
    """A build that fails leaves the old site untouched and no half-made folder."""
    site = build()
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    monkeypatch.setattr(builder, "build_manual", stops(what))
    with pytest.raises(type(what)):
        build()
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_a_page_that_needs_another_host_stops_the_build(
    build: Callable[[], Path], builder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site is for machines without a network too."""

    def manual(root: Path, folder: Path) -> None:
        page = '<link rel="stylesheet" href="https://fonts.example/x.css">'
        (folder / "index.html").write_text(page, "utf-8")

    monkeypatch.setattr(builder, "build_manual", manual)
    with pytest.raises(SiteError, match=r"index\.html loads https://fonts\.example"):
        build()


def test_a_foreign_file_is_seen_before_the_work(
    build: Callable[[], Path], builder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign file is seen before the minutes of building."""
    site = build()
    (site / "mine.txt").write_text("mine", "utf-8")
    monkeypatch.setattr(builder, "build_wheel", stops(AssertionError("work was done")))
    with pytest.raises(SiteError, match=r"mine\.txt"):
        build()


def test_an_error_is_told_without_a_traceback(
    builder: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error is one message, with exit code 1 and no traceback."""
    words = ["--out", str(tmp_path / "out"), "--pyodide", str(tmp_path)]
    assert builder.main(words) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"site: reading Pyodide from {tmp_path}: there is no")


def test_a_file_that_cannot_be_written_is_named(
    builder: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file that cannot be written is told like any error of ours."""
    taken = tmp_path / "taken"
    taken.mkdir()
    monkeypatch.setattr(builder, "assemble", lambda *_: place(Path(__file__), taken))
    assert builder.main([]) == 1
    said = f"site: writing '{taken}': it is a folder; name a file\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("words", [["--serve", "70000"], ["--serve", "x"], ["more"]])
def test_a_typing_error_is_a_usage_error(
    builder: ModuleType, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error is exit code 2 and the usage."""
    with pytest.raises(SystemExit) as caught:
        builder.main(words)
    assert caught.value.code == 2
    assert "usage: ./dev site" in capsys.readouterr().err


def test_what_mkdocs_says_is_what_the_error_says(tmp_path: Path) -> None:
    """A warning is enough, and its page is named."""
    pages = tmp_path / "site" / "pages"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text("[nowhere](nowhere.md)", "utf-8")
    config = tmp_path / "site" / "mkdocs.yml"
    config.write_text("site_name: x\ndocs_dir: pages\n", "utf-8")
    with pytest.raises(SiteError, match=r"(?s)index\.md.*nowhere\.md"):
        build_manual(tmp_path, tmp_path / "out")


def test_a_wheel_that_cannot_be_built_is_told(tmp_path: Path) -> None:
    """A wheel that cannot be built is told with the build's own words."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", "utf-8")
    with pytest.raises(SiteError, match=r"(?s)building the wheel.*version"):
        build_wheel(tmp_path, tmp_path / "out")


def test_the_wheels_name_follows_its_content(tmp_path: Path) -> None:
    """The wheel's URL follows its content, so no stale copy is met under it."""
    one = make_wheel(tmp_path / "one")
    name = tagged(one)
    assert name == f"rlxweb-1.2.3-0x{digest(one.read_bytes())[:10]}-py3-none-any.whl"
    two = make_wheel(tmp_path / "two", "Name: other\nVersion: 1.2.3\n")
    assert tagged(two) != name


def test_demos_are_copied_without_leavings(tmp_path: Path) -> None:
    """Caches and hidden files stay at home."""
    source, target = tmp_path / "demo", tmp_path / "site" / "demo"
    for name in ("a/index.html", "a/__pycache__/a.pyc", ".hidden", "a/.b/c.js", "x.js"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name, "utf-8")
    add_folder(source, target)
    copied = {
        p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()
    }
    assert copied == {"a/index.html", "x.js"}


def test_a_demo_never_overwrites_a_page_of_the_manual(tmp_path: Path) -> None:
    """Two pages at one address are refused."""
    source, target = tmp_path / "demo", tmp_path / "site" / "demo"
    for folder in (source, target):
        folder.mkdir(parents=True)
        (folder / "index.html").write_text(folder.name, "utf-8")
    with pytest.raises(SiteError, match=r"already has a page at demo/index\.html"):
        add_folder(source, target)
