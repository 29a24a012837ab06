"""The folder `runtime/` of the site: all that a page loads to have Python in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from assembly import pins
from assembly.hashing import place
from assembly.lock import spliced
from assembly.pyodide import Core, Lock, Places, find_packages

ABOUT = """\
What a browser loads to run rlxweb. Nothing here is changed, except that the lock file
names fewer packages and rlxweb beside them.

Pyodide {pyodide}   CPython {python} for WebAssembly. Files: {core}.
    Pyodide: Mozilla Public License 2.0, source at
    https://github.com/pyodide/pyodide (tag {pyodide}).
    CPython: Python Software Foundation License, source at
    https://github.com/python/cpython (tag v{python}).
{packages}
rlxweb {version}   Apache License 2.0. File: {wheel}.
    The licence is in the wheel, under rlxweb-{version}.dist-info/licenses.

pyodide-lock.json has the sha256 of each wheel, site.json one folder up those of all
files.
"""
PACKAGE = """
{name} {version}   {licence} File: {file}.
"""
LICENCES = {
    "numpy": "BSD 3-Clause License, source at\n    https://github.com/numpy/numpy "
    "(tag v{version});\n    the licences of what is compiled into it are in the wheel."
}


def fill_runtime(folder: Path, core: Core, wheel: Path, places: Places) -> Lock:
    """Put core, packages, our wheel, lock file and a note on licences into `folder`."""
    lock = spliced(core.lock, wheel)
    others = [name for name in lock["packages"] if name != "rlxweb"]
    packages = find_packages(core, others, places)
    for path in (*(core.folder / name for name in core.files), *packages, wheel):
        place(path, folder / path.name)
    text = json.dumps(lock, indent=1, sort_keys=True)
    (folder / pins.LOCK).write_text(text + "\n", "utf-8")
    (folder / "ABOUT.txt").write_text(about(core, lock, others), "utf-8")
    return lock


def about(core: Core, lock: Lock, others: Sequence[str]) -> str:
    """Versions, licences and where the sources are."""
    ours = lock["packages"]["rlxweb"]
    return ABOUT.format(
        pyodide=core.version,
        python=lock["info"]["python"],
        core=", ".join(core.files),
        packages="".join(paragraph(lock["packages"][name]) for name in others),
        version=ours["version"],
        wheel=ours["file_name"],
    )


def paragraph(entry: dict[str, str]) -> str:
    """One package of Pyodide's in the note."""
    licence = LICENCES.get(entry["name"], "Its licence is in the file.")
    return PACKAGE.format(
        name=entry["name"],
        version=entry["version"],
        licence=licence.format(version=entry["version"]),
        file=entry["file_name"],
    )
