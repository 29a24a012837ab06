"""The site builder as a whole, with a small Pyodide and without mkdocs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from assembly import bytecode
from assembly.bytecode import BYTECODE_PACKAGE
from assembly.errors import SiteError
from assembly.hashing import copy_atomically
from assembly.manual_build import build_manual, copy_folder
from assembly.pyodide_downloads import FileSources
from assembly.wheel import build_wheel, hash_tagged_name

from tests.built_site_fixture import ROOT
from tests.unit.site.conftest import (
    NUMPY_FILE,
    SmallPyodide,
    make_wheel,
    make_zip,
    sha256_hex,
)

COMPILED_ZIP = make_zip("rlxweb/__pycache__/__init__.pyc")
BYTECODE_FILE = f"{BYTECODE_PACKAGE}-{sha256_hex(COMPILED_ZIP)[:10]}.zip"


def write_bytecode(runtime: Path, folder: Path) -> None:
    """Write stand-ins for the files that a real Pyodide compiles."""
    (folder / "bytecode.zip").write_bytes(COMPILED_ZIP)
    (folder / "python_stdlib.zip").write_bytes(b"this is Python and bytecode")


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`assemble`, with a manual of one page, a wheel of one line, no compiler."""
    module = importlib.import_module("assemble")

    def write_manual(root: Path, folder: Path) -> None:
        (folder / "index.html").write_text("<h1>The manual</h1>", "utf-8")

    monkeypatch.setattr(module, "build_manual", write_manual)
    monkeypatch.setattr(module, "build_wheel", lambda root, out: make_wheel(out))
    monkeypatch.setattr(bytecode, "compile_runtime", write_bytecode)
    return module


@pytest.fixture
def build(
    builder: ModuleType, small_pyodide: SmallPyodide, tmp_path: Path
) -> Callable[[], Path]:
    """Return a function that builds the site from the small Pyodide and returns its
    folder.
    """
    out = tmp_path / "out" / "site"
    places = FileSources(tmp_path / "cache", small_pyodide.folder, tmp_path / "nothing")

    def build_site() -> Path:
        builder.assemble(ROOT, out, places)
        return out

    return build_site


def test_the_site_has_manual_demos_and_runtime(build: Callable[[], Path]) -> None:
    """Manual, demos and runtime are in place, and nothing is left beside the site."""
    site = build()
    assert (site / "index.html").is_file()
    assert (site / "demo" / "worker.js").is_file()
    names = {path.name for path in (site / "runtime").iterdir()}
    (image,) = {name for name in names if name.endswith(".image")}
    assert names - {image} == {
        *("ABOUT.txt", "python_stdlib.zip", "pyodide-lock.json", "pyodide.asm.js"),
        *("pyodide.asm.wasm", "pyodide.js", "pyodide.mjs", "blas-1.0.zip", NUMPY_FILE),
        *("rlxweb-1.2.3-py3-none-any.whl", BYTECODE_FILE, "rlxweb.mjs"),
    }
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_the_lock_file_matches_the_served_files(build: Callable[[], Path]) -> None:
    """Every file that the lock names exists with that hash."""
    runtime = build() / "runtime"
    lock = json.loads((runtime / "pyodide-lock.json").read_text("utf-8"))
    assert set(lock["packages"]) == {"blas", "numpy", "rlxweb", BYTECODE_PACKAGE}
    assert lock["packages"]["rlxweb"]["depends"] == ["numpy", BYTECODE_PACKAGE]
    for package in lock["packages"].values():
        data = (runtime / package["file_name"]).read_bytes()
        assert sha256_hex(data) == package["sha256"]


def test_versions_and_licences_are_listed(build: Callable[[], Path]) -> None:
    """Versions and licences are listed as text and as JSON."""
    site = build()
    about = (site / "runtime" / "ABOUT.txt").read_text("utf-8")
    for line in (
        *("Pyodide 0.28.5", "Mozilla Public License 2.0", "CPython 3.12.7"),
        *("numpy 2.0.9", "BSD 3-Clause", "rlxweb 1.2.3", "Apache License 2.0"),
        f"{BYTECODE_FILE} is the bytecode",
    ):
        assert line in about
    manifest = json.loads((site / "site.json").read_text("utf-8"))
    assert manifest["pyodide"] == "0.28.5"
    own_versions = dict.fromkeys(("rlxweb", BYTECODE_PACKAGE), "1.2.3")
    assert manifest["packages"] == {"blas": "1.0", "numpy": "2.0.9", **own_versions}


def failing_manual(error: BaseException) -> Callable[[Path, Path], None]:
    """Return a manual builder that fails half way."""

    def write_half_a_manual(root: Path, folder: Path) -> None:
        (folder / "half.html").write_text("half a page", "utf-8")
        raise error

    return write_half_a_manual


@pytest.mark.parametrize(
    "error",
    [SiteError("building the manual", "no"), OSError(28, "full"), KeyboardInterrupt()],
)
def test_a_build_that_fails_leaves_the_old_site(
    build: Callable[[], Path],
    builder: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    """A build that fails leaves the old site untouched and no half-made folder."""
    site = build()
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    monkeypatch.setattr(builder, "build_manual", failing_manual(error))
    with pytest.raises(type(error)):
        build()
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_a_page_that_needs_another_host_stops_the_build(
    build: Callable[[], Path], builder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page with external loads stops the build, since the site must work without a
    network.
    """

    def write_manual(root: Path, folder: Path) -> None:
        page = '<link rel="stylesheet" href="https://fonts.example/x.css">'
        (folder / "index.html").write_text(page, "utf-8")

    monkeypatch.setattr(builder, "build_manual", write_manual)
    with pytest.raises(SiteError, match=r"index\.html loads https://fonts\.example"):
        build()


def test_a_foreign_file_stops_the_build_early(
    build: Callable[[], Path], builder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign file is found before the minutes of building."""
    site = build()
    (site / "mine.txt").write_text("mine", "utf-8")
    monkeypatch.setattr(
        builder, "build_wheel", failing_manual(AssertionError("work was done"))
    )
    with pytest.raises(SiteError, match=r"mine\.txt"):
        build()


def test_errors_are_printed_without_a_traceback(
    builder: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error is one message, with exit code 1 and no traceback."""
    arguments = ["--out", str(tmp_path / "out"), "--pyodide", str(tmp_path)]
    assert builder.main(arguments) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"site: reading Pyodide from {tmp_path}: missing files: ")


def test_an_unwritable_file_is_named(
    builder: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file that cannot be written is reported like any other error of the builder."""
    existing_folder = tmp_path / "taken"
    existing_folder.mkdir()
    monkeypatch.setattr(
        builder, "assemble", lambda *_: copy_atomically(Path(__file__), existing_folder)
    )
    assert builder.main([]) == 1
    expected = (
        f"site: writing '{existing_folder}': expected a file, got a folder; "
        "pass the name of a file\n"
    )
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    "arguments", [["--serve", "70000"], ["--serve", "x"], ["more"]]
)
def test_invalid_arguments_are_a_usage_error(
    builder: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Invalid arguments give exit code 2 and the usage."""
    with pytest.raises(SystemExit) as error_info:
        builder.main(arguments)
    assert error_info.value.code == 2
    assert "usage: ./dev site" in capsys.readouterr().err


def test_warnings_of_mkdocs_stop_the_build(tmp_path: Path) -> None:
    """A warning stops the build, and its page is named."""
    pages = tmp_path / "site" / "pages"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text("[nowhere](nowhere.md)", "utf-8")
    config = tmp_path / "site" / "mkdocs.yml"
    config.write_text("site_name: x\ndocs_dir: pages\n", "utf-8")
    with pytest.raises(SiteError, match=r"(?s)index\.md.*nowhere\.md"):
        build_manual(tmp_path, tmp_path / "out")


def test_a_failed_wheel_build_is_reported(tmp_path: Path) -> None:
    """A failed wheel build is reported with the build's own message."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", "utf-8")
    with pytest.raises(SiteError, match=r"(?s)building the wheel.*version"):
        build_wheel(tmp_path, tmp_path / "out")


def test_the_wheels_name_depends_on_its_content(tmp_path: Path) -> None:
    """The wheel's URL depends on its content, so that no stale copy is found under
    it.
    """
    first_wheel = make_wheel(tmp_path / "one")
    name = hash_tagged_name(first_wheel)
    assert (
        name == "rlxweb-1.2.3-0x"
        f"{sha256_hex(first_wheel.read_bytes())[:10]}-py3-none-any.whl"
    )
    second_wheel = make_wheel(tmp_path / "two", "Name: other\nVersion: 1.2.3\n")
    assert hash_tagged_name(second_wheel) != name


def test_demos_are_copied_without_caches(tmp_path: Path) -> None:
    """Caches and hidden files are not copied."""
    source, target = tmp_path / "demo", tmp_path / "site" / "demo"
    for name in ("a/index.html", "a/__pycache__/a.pyc", ".hidden", "a/.b/c.js", "x.js"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name, "utf-8")
    copy_folder(source, target)
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
        copy_folder(source, target)
