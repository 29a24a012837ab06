"""Fixtures that build and install rlxweb in three forms, each once and without a
network.

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

from tests.built_site_fixture import built_site  # noqa: F401  # a fixture
from tests.cli_runners import ROOT


@dataclass(frozen=True, slots=True)
class BuildArtifacts:
    """Artifacts of one build of the checkout."""

    wheel: Path
    sdist: Path
    wheel_from_sdist: Path
    editable: Path


def run_build_hook(source: Path, hook: str, target: Path) -> Path:
    """Run a PEP 517/660 hook of hatchling on `source` and return the path of the
    result.
    """
    target.mkdir(parents=True, exist_ok=True)
    code = f"import sys, hatchling.build as b; print(b.{hook}(sys.argv[1]))"
    output = run_command([sys.executable, "-c", code, str(target)], cwd=source)
    return target / output.split()[-1]


def run_command(command: list[str], cwd: Path) -> str:
    """Return what the command prints; on failure the assertion shows its stderr."""
    completed = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuildArtifacts:
    """Build wheel, sdist, the wheel from that sdist, and the editable wheel."""
    out = tmp_path_factory.mktemp("built")
    sdist = run_build_hook(ROOT, "build_sdist", out / "sdist")
    with tarfile.open(sdist) as archive:
        # Debian 12's Python 3.11.2 has no filters yet; later ones warn without
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(out / "unpacked", **safe)
    (unpacked,) = (out / "unpacked").iterdir()
    return BuildArtifacts(
        wheel=run_build_hook(ROOT, "build_wheel", out / "wheel"),
        sdist=sdist,
        wheel_from_sdist=run_build_hook(unpacked, "build_wheel", out / "from_sdist"),
        editable=run_build_hook(ROOT, "build_editable", out / "editable"),
    )


@dataclass(frozen=True, slots=True)
class InstalledEnvironment:
    """Fresh virtual environment with rlxweb and NumPy in it."""

    folder: Path

    def run_python(self, code: str) -> str:
        """Return what `code` prints there, isolated from the checkout and its
        PYTHONPATH.
        """
        python = next(self.folder.glob("[bS]*/python*"))
        return run_command([str(python), "-I", "-c", code], cwd=self.folder)


@pytest.fixture(scope="session", params=["wheel", "wheel_from_sdist", "editable"])
def installed(
    request: pytest.FixtureRequest,
    built: BuildArtifacts,
    tmp_path_factory: pytest.TempPathFactory,
) -> InstalledEnvironment:
    """Install the wheel, the wheel from the sdist and the editable one by pip, in
    turn.
    """
    folder = tmp_path_factory.mktemp(request.param)
    run_command(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], cwd=folder
    )
    installation = InstalledEnvironment(folder)
    site = Path(
        installation.run_python("import site; print(site.getsitepackages()[0])").strip()
    )
    link_numpy(folder / "shared", site)
    # Bytecode is made of what a test imports, not of the whole package.
    install_command = ["install", "-q", "--no-index", "--no-deps", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "--python", str(folder), *install_command]
    run_command([*pip, str(getattr(built, request.param))], cwd=folder)
    return installation


def link_numpy(folder: Path, site: Path) -> None:
    """Make NumPy, alone of this environment's packages, importable from `site`."""
    folder.mkdir()
    numpy_folder = Path(np.__file__).parent
    for package in (numpy_folder, numpy_folder.with_name("numpy.libs")):
        if package.exists():
            (folder / package.name).symlink_to(package, target_is_directory=True)
    (site / "shared.pth").write_text(f"{folder}\n")
