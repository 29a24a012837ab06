"""Our wheel in Pyodide's lock file, and nothing in it that a page does not need.

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
from assembly.pyodide import Lock

NAME = "rlxweb"


def spliced(lock: Lock, wheel: Path) -> Lock:
    """The lock file with `wheel` and what it needs; every other package is left out."""
    packages = lock["packages"]
    entry = entry_for(wheel, lock)
    same_fields(entry, packages["numpy"])
    with_ours = {**packages, NAME: entry}
    kept = sorted(needed(with_ours, NAME))
    return {**lock, "packages": {name: with_ours[name] for name in kept}}


def needed(packages: dict[str, Any], root: str) -> set[str]:
    """`root` and all it depends on, however far."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in packages:
            raise SiteError("reading the lock file", f"it has no package '{name}'")
        if name not in found:
            found.add(name)
            waiting.extend(packages[name]["depends"])
    return found


def entry_for(wheel: Path, lock: Lock) -> dict[str, Any]:
    """What the lock file says of our wheel."""
    name, version, requirements = metadata(wheel)
    if name != NAME:
        raise SiteError(f"reading {wheel.name}", f"it is {name}, not {NAME}")
    fields: dict[str, Any] = {
        "name": name,
        "version": version,
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": sha256(wheel),
        "package_type": "package",
        "imports": [NAME],
        "depends": depends(requirements, lock),
        "unvendored_tests": False,
    }
    if "tool" in lock["packages"]["numpy"]:  # since Pyodide 314
        fields["tool"] = {}
    return fields


def same_fields(entry: dict[str, Any], pattern: dict[str, Any]) -> None:
    """Refuse a lock file whose entries have other fields than those we fill in."""
    odd = sorted(entry.keys() ^ pattern.keys())
    if odd:
        raise SiteError(
            "adding rlxweb to the lock file",
            f"its entries and ours differ in {', '.join(odd)}",
            hint="bring entry_for in site/assembly/lock.py up to this Pyodide",
        )


def metadata(wheel: Path) -> tuple[str, str, list[Requirement]]:
    """Name, version and requirements as the wheel itself says them."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        said = BytesParser().parsebytes(archive.read(path))
    requirements = [Requirement(line) for line in said.get_all("Requires-Dist") or ()]
    return said["Name"], said["Version"], requirements


def depends(requirements: list[Requirement], lock: Lock) -> list[str]:
    """Those that count in a tab; each must be in the lock file and fit."""
    tab = tab_markers(lock["info"])
    names = []
    for requirement in requirements:
        if requirement.marker is not None and not requirement.marker.evaluate(tab):
            continue
        has = lock["packages"].get(requirement.name)
        if has is None or not requirement.specifier.contains(has["version"]):
            version = has["version"] if has else "none"
            raise SiteError(
                "adding rlxweb to the lock file",
                f"rlxweb needs {requirement.name}{requirement.specifier} in a tab",
                f"this Pyodide has {version}",
                "mark it with sys_platform != 'emscripten' in pyproject.toml, or take "
                "another Pyodide",
            )
        names.append(requirement.name)
    return sorted(names)


def tab_markers(info: dict[str, Any]) -> dict[str, str]:
    """The environment in which requirements are judged: Python in a browser tab."""
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
