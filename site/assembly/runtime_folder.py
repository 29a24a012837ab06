"""The site's folder `runtime/`, which contains all files that a page loads to run
Python.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from assembly import pyodide_version_pin
from assembly.bytecode import BYTECODE_PACKAGE, add_bytecode
from assembly.combined_package_archive import LOADER_MODULE, add_image
from assembly.hashing import copy_atomically
from assembly.progress import print_progress
from assembly.pyodide_downloads import FileSources, Lock, PyodideCore, find_packages
from assembly.pyodide_lock import lock_with_wheel

ABOUT_TEMPLATE = """\
The files that a browser loads to run rlxweb. All are as published, except two:
the lock file lists fewer packages than Pyodide's, and rlxweb; and the standard
library, python_stdlib.zip, also contains bytecode.
pyodide-lock.json has the sha256 of every wheel, site.json one folder up that of every
file.

Pyodide {pyodide}
    Mozilla Public License 2.0
    source: https://github.com/pyodide/pyodide, tag {pyodide}
    files: {core}

CPython {python}, built for WebAssembly in Pyodide's files
    Python Software Foundation License Version 2
    source: https://github.com/python/cpython, tag v{python}
{packages}
rlxweb {version}
    Apache License 2.0, its text is in the wheel
    file: {wheel}
    {bytecode} is the bytecode of these packages, compiled by this Python
    packages-….image contains the files of these packages that Python reads; {module}
    starts Pyodide with it
"""
PACKAGE_TEMPLATE = """
{name} {version}
    {licence}
    file: {file}
"""
LICENCES = {
    "numpy": "BSD 3-Clause License; it and the licences of compiled-in code are in the "
    "wheel\n    source: https://github.com/numpy/numpy, tag v{version}"
}


def fill_runtime(
    folder: Path, core: PyodideCore, wheel: Path, sources: FileSources
) -> Lock:
    """Put core, packages, our wheel, lock file and licence notes into `folder`."""
    lock = lock_with_wheel(core.lock, wheel)
    other_names = [name for name in lock["packages"] if name != "rlxweb"]
    packages = find_packages(core, other_names, sources)
    for path in (*(core.folder / name for name in core.files), *packages, wheel):
        copy_atomically(path, folder / path.name)
    write_lock(lock, folder)
    print_progress("compiling the modules that the pages import")
    lock = add_bytecode(lock, folder)
    write_lock(lock, folder)
    add_image(lock, folder)
    (folder / "ABOUT.txt").write_text(about_text(core, lock, other_names), "utf-8")
    return lock


def write_lock(lock: Lock, folder: Path) -> None:
    """Write the lock file as JSON that is the same for the same packages."""
    text = json.dumps(lock, indent=1, sort_keys=True)
    (folder / pyodide_version_pin.LOCK_FILE).write_text(text + "\n", "utf-8")


def about_text(core: PyodideCore, lock: Lock, other_names: Sequence[str]) -> str:
    """Return the note on versions, licences and sources."""
    rlxweb_entry = lock["packages"]["rlxweb"]
    return ABOUT_TEMPLATE.format(
        pyodide=core.version,
        python=lock["info"]["python"],
        core="\n           ".join(core.files),
        packages="".join(
            package_paragraph(lock["packages"][name]) for name in other_names
        ),
        version=rlxweb_entry["version"],
        wheel=rlxweb_entry["file_name"],
        bytecode=lock["packages"][BYTECODE_PACKAGE]["file_name"],
        module=LOADER_MODULE,
    )


def package_paragraph(entry: dict[str, str]) -> str:
    """Return the note's paragraph about one of Pyodide's packages."""
    licence = LICENCES.get(entry["name"], "its licence is in the file")
    return PACKAGE_TEMPLATE.format(
        name=entry["name"],
        version=entry["version"],
        licence=licence.format(version=entry["version"]),
        file=entry["file_name"],
    )
