"""Pyodide's lock file with our wheel added and unneeded packages removed.

Written as plain JSON: pyodide-lock (0.1.2) refuses the lock files of Pyodide 314, and
`pyodide lockfile add-wheels` (0.2.1) leaves none of the packages out. The
entry is made on the pattern of NumPy's own, so a field this does not know is refused.
"""

from __future__ import annotations

import zipfile
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from assembly.errors import SiteError
from assembly.hashing import sha256
from assembly.pyodide_downloads import Lock

PACKAGE_NAME = "rlxweb"


def lock_with_wheel(lock: Lock, wheel: Path) -> Lock:
    """Return the lock file with `wheel` and its dependencies only."""
    packages = lock["packages"]
    entry = wheel_entry(wheel, lock)
    check_fields(entry, packages["numpy"])
    all_packages = {**packages, PACKAGE_NAME: entry}
    needed_names = sorted(dependency_closure(all_packages, PACKAGE_NAME))
    return {**lock, "packages": {name: all_packages[name] for name in needed_names}}


def dependency_closure(packages: dict[str, Any], root: str) -> set[str]:
    """Return `root` and all its direct and indirect dependencies."""
    names: set[str] = set()
    pending = [root]
    while pending:
        name = pending.pop()
        if name not in packages:
            raise SiteError("reading the lock file", f"it has no package '{name}'")
        if name not in names:
            names.add(name)
            pending.extend(packages[name]["depends"])
    return names


def wheel_entry(wheel: Path, lock: Lock) -> dict[str, Any]:
    """Return the lock file's entry for our wheel."""
    name, version, requirements = wheel_metadata(wheel)
    if name != PACKAGE_NAME:
        raise SiteError(
            f"reading {wheel.name}", f"expected the package {PACKAGE_NAME}, got {name}"
        )
    fields: dict[str, Any] = {
        "name": name,
        "version": version,
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": sha256(wheel),
        "package_type": "package",
        "imports": [PACKAGE_NAME],
        "depends": browser_dependencies(requirements, lock),
        "unvendored_tests": False,
    }
    if "tool" in lock["packages"]["numpy"]:  # since Pyodide 314
        fields["tool"] = {}
    return fields


def check_fields(entry: dict[str, Any], pattern: dict[str, Any]) -> None:
    """Refuse a lock file whose entries have other fields than those we fill in."""
    differing = sorted(entry.keys() ^ pattern.keys())
    if differing:
        raise SiteError(
            "adding rlxweb to the lock file",
            "its entries and the new entry have different fields: "
            f"{', '.join(differing)}",
            hint="update wheel_entry in site/assembly/pyodide_lock.py for this Pyodide",
        )


def wheel_metadata(wheel: Path) -> tuple[str, str, list[Requirement]]:
    """Return name, version and requirements from the wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [
            name for name in archive.namelist() if name.endswith(".dist-info/METADATA")
        ]
        message = BytesParser().parsebytes(archive.read(path))
    requirements = [
        Requirement(line) for line in message.get_all("Requires-Dist") or ()
    ]
    return message["Name"], message["Version"], requirements


def browser_dependencies(requirements: list[Requirement], lock: Lock) -> list[str]:
    """Return the names of requirements that apply in a browser tab; each must be in the
    lock file at a fitting version.
    """
    environment = browser_environment(lock["info"])
    names = []
    for requirement in requirements:
        if requirement.marker is not None and not requirement.marker.evaluate(
            environment
        ):
            continue
        entry = lock["packages"].get(requirement.name)
        if entry is None or not requirement.specifier.contains(entry["version"]):
            version = entry["version"] if entry else "none"
            raise SiteError(
                "adding rlxweb to the lock file",
                f"rlxweb needs {requirement.name}{requirement.specifier} in a tab",
                f"this Pyodide has {version}",
                "mark it with sys_platform != 'emscripten' in pyproject.toml, or use "
                "another Pyodide",
            )
        names.append(requirement.name)
    return sorted(names)


def browser_environment(info: dict[str, Any]) -> dict[str, str]:
    """Return the marker environment of Python in a browser tab."""
    python = info["python"]
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": python,
        "os_name": "posix",
        "platform_machine": info["arch"],
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Emscripten",
        "platform_version": "",
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": "emscripten",
    }
