"""The three shapes in which rlxweb is installed, each built once and without a network.

The build hooks are called in a subprocess, as a build frontend would, with this
environment's hatchling. Each result goes into a fresh virtual environment that sees
NumPy of this one and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import ROOT
from tests.site_build import built_site  # noqa: F401  # a fixture


@dataclass(frozen=True, slots=True)
class Built:
    """The artefacts of one build of the checkout."""

    wheel: Path
    sdist: Path
    wheel_from_sdist: Path
    editable: Path


def build(source: Path, hook: str, target: Path) -> Path:
    """The path of what a PEP 517/660 hook of hatchling makes of `source`."""
    target.mkdir(parents=True, exist_ok=True)
    code = f"import sys, hatchling.build as b; print(b.{hook}(sys.argv[1]))"
    said = run([sys.executable, "-c", code, str(target)], cwd=source)
    return target / said.split()[-1]


def run(command: list[str], cwd: Path) -> str:
    """What the command prints; its stderr is the failure's text."""
    said = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Wheel, sdist, the wheel made from that sdist, and the editable wheel."""
    out = tmp_path_factory.mktemp("built")
    sdist = build(ROOT, "build_sdist", out / "sdist")
    with tarfile.open(sdist) as archive:
        # Debian 12's Python 3.11.2 has no filters yet; later ones warn without
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(out / "unpacked", **safe)
    (unpacked,) = (out / "unpacked").iterdir()
    return Built(
        wheel=build(ROOT, "build_wheel", out / "wheel"),
        sdist=sdist,
        wheel_from_sdist=build(unpacked, "build_wheel", out / "from_sdist"),
        editable=build(ROOT, "build_editable", out / "editable"),
    )


@dataclass(frozen=True, slots=True)
class Installed:
    """A fresh environment with rlxweb and NumPy in it."""

    folder: Path

    def python(self, code: str) -> str:
        """What `code` prints there, away from the checkout and its PYTHONPATH."""
        python = next(self.folder.glob("[bS]*/python*"))
        return run([str(python), "-I", "-c", code], cwd=self.folder)


@pytest.fixture(scope="session", params=["wheel", "wheel_from_sdist", "editable"])
def installed(
    request: pytest.FixtureRequest,
    built: Built,
    tmp_path_factory: pytest.TempPathFactory,
) -> Installed:
    """The wheel, the wheel from the sdist and the editable one, installed by pip."""
    folder = tmp_path_factory.mktemp(request.param)
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], cwd=folder)
    here = Installed(folder)
    site = Path(here.python("import site; print(site.getsitepackages()[0])").strip())
    share_numpy(folder / "shared", site)
    # Bytecode is made of what a test imports, not of the whole package.
    offline = ["install", "-q", "--no-index", "--no-deps", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "--python", str(folder), *offline]
    run([*pip, str(getattr(built, request.param))], cwd=folder)
    return here


def share_numpy(folder: Path, site: Path) -> None:
    """NumPy alone, of all this environment has, made importable from `site`."""
    folder.mkdir()
    home = Path(np.__file__).parent
    for package in (home, home.with_name("numpy.libs")):
        if package.exists():
            (folder / package.name).symlink_to(package, target_is_directory=True)
    (site / "shared.pth").write_text(f"{folder}\n")
