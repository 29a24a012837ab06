"""Test the contents of a build, and that each kind of install finds its shaders."""

from __future__ import annotations

import email
import json
import tarfile
import tomllib
import zipfile
from pathlib import Path

from rlxweb.codegen.wgsl_module import load_shader_text
from tests.cli_runners import ROOT
from tests.packaging.conftest import BuildArtifacts, InstalledEnvironment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SHADERS = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("shaders/**/*.wgsl"))
KERNELS = sorted(p.stem for p in ROOT.glob("shaders/*/*.wgsl"))


def wheel_contents(wheel: Path) -> dict[str, bytes]:
    """Return every file of a wheel but RECORD, which only repeats the others."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name)
            for name in archive.namelist()
            if not name.endswith("/RECORD")
        }


def test_the_wheel_is_pure_and_complete(built: BuildArtifacts) -> None:
    """One wheel for every platform, with shaders, type marker, licence and command."""
    name = f"rlxweb-{PROJECT['version']}"
    assert built.wheel.name == f"{name}-py3-none-any.whl"
    files = wheel_contents(built.wheel)
    assert SHADERS
    assert KERNELS
    assert {f"rlxweb/{path}" for path in SHADERS} <= set(files)
    assert "rlxweb/py.typed" in files
    licence = files[f"{name}.dist-info/licenses/LICENSE"]
    assert licence == (ROOT / "LICENSE").read_bytes()
    commands = files[f"{name}.dist-info/entry_points.txt"].decode()
    assert "rlxweb = rlxweb.__main__:run" in commands


def test_the_wheel_holds_the_package_and_nothing_else(built: BuildArtifacts) -> None:
    """The wheel has no tests, caches or second package, and pages only in their
    folders.
    """
    name = f"rlxweb-{PROJECT['version']}.dist-info"
    suffixes = (".py", ".pyi", ".js", ".wgsl", "py.typed")
    page_suffixes = (".css", ".html", ".mjs", ".d.ts", ".svg", "known-failures.toml")
    page_folders = ("export", "live/page", "export/site", "plot/page_parts", "smoke")
    page_prefixes = tuple(f"rlxweb/{folder}/" for folder in page_folders)
    strays = [
        path
        for path in wheel_contents(built.wheel)
        if not path.startswith(f"{name}/")
        and not (path.startswith("rlxweb/") and path.endswith(suffixes))
        and not (path.startswith(page_prefixes) and path.endswith(page_suffixes))
    ]
    assert strays == []


def test_browser_needs_numpy_alone(built: BuildArtifacts) -> None:
    """Every hard dependency but NumPy is marked as not for Pyodide."""
    name = f"rlxweb-{PROJECT['version']}.dist-info/METADATA"
    metadata = email.message_from_bytes(wheel_contents(built.wheel)[name])
    assert metadata["License-Expression"] == "Apache-2.0"
    needs = [
        need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need
    ]
    in_browser = [need for need in needs if "sys_platform != 'emscripten'" not in need]
    assert in_browser == ["numpy>=2.0"]
    assert len(needs) > len(in_browser)


def test_the_sdist_builds_the_same_wheel(built: BuildArtifacts) -> None:
    """The sdist has the shaders at their own path and builds the same wheel."""
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(SHADERS) <= names
    assert wheel_contents(built.wheel_from_sdist) == wheel_contents(built.wheel)


def test_every_install_finds_its_shaders(installed: InstalledEnvironment) -> None:
    """The loader gives the checkout's text for each kernel, wherever it looks."""
    output = installed.run_python(
        "import json\n"
        "from rlxweb.codegen.wgsl_module import load_shader_text\n"
        f"print(json.dumps([load_shader_text(name) for name in {KERNELS!r}]))"
    )
    assert json.loads(output) == [load_shader_text(name) for name in KERNELS]


def test_every_install_knows_its_version(installed: InstalledEnvironment) -> None:
    """`rlxweb.__version__` is the one of pyproject.toml."""
    output = installed.run_python("import rlxweb; print(rlxweb.__version__)")
    assert output.strip() == PROJECT["version"]


def test_an_editable_install_runs_the_checkout(installed: InstalledEnvironment) -> None:
    """An editable install alone runs the checkout, and hides none of its shaders."""
    output = installed.run_python(
        "from importlib import resources\n"
        "here = resources.files('rlxweb')\n"
        "print(here, (here / 'shaders').is_dir(), sep='\\n')"
    )
    folder, has_shaders = output.split("\n")[:2]
    editable = Path(folder) == ROOT / "rlxweb"
    assert editable == installed.folder.name.startswith("editable")
    assert has_shaders == str(not editable)
