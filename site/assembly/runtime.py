"""The folder `runtime/` of the site: all that a page loads to have Python in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from assembly import pins
from assembly.bytecode import BYTECODE, with_bytecode
from assembly.hashing import place
from assembly.image import MODULE, add_image
from assembly.lock import spliced
from assembly.progress import say
from assembly.pyodide import Core, Lock, Places, find_packages

ABOUT = """\
What a browser loads to run rlxweb. The files are as their makers publish them, but for
two: the lock file names fewer packages than Pyodide's own, and rlxweb beside them; and
bytecode was added to the standard library, python_stdlib.zip.
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
    {bytecode} is the bytecode of these packages, made from them by this Python
    packages-….image holds what Python reads of all of these packages; {module}
    starts Pyodide with it
"""
PACKAGE = """
{name} {version}
    {licence}
    file: {file}
"""
LICENCES = {
    "numpy": "BSD 3-Clause License; it and those of what is compiled in are in the "
    "wheel\n    source: https://github.com/numpy/numpy, tag v{version}"
}


def fill_runtime(folder: Path, core: Core, wheel: Path, places: Places) -> Lock:
    """Put core, packages, our wheel, lock file and a note on licences into `folder`."""
    lock = spliced(core.lock, wheel)
    others = [name for name in lock["packages"] if name != "rlxweb"]
    packages = find_packages(core, others, places)
    for path in (*(core.folder / name for name in core.files), *packages, wheel):
        place(path, folder / path.name)
    write_lock(lock, folder)
    say("compiling what pages import")
    lock = with_bytecode(lock, folder)
    write_lock(lock, folder)
    add_image(lock, folder)
    (folder / "ABOUT.txt").write_text(about(core, lock, others), "utf-8")
    return lock


def write_lock(lock: Lock, folder: Path) -> None:
    """The lock file, as JSON that is the same for the same packages."""
    text = json.dumps(lock, indent=1, sort_keys=True)
    (folder / pins.LOCK).write_text(text + "\n", "utf-8")


def about(core: Core, lock: Lock, others: Sequence[str]) -> str:
    """Versions, licences and where the sources are."""
    ours = lock["packages"]["rlxweb"]
    return ABOUT.format(
        pyodide=core.version,
        python=lock["info"]["python"],
        core="\n           ".join(core.files),
        packages="".join(paragraph(lock["packages"][name]) for name in others),
        version=ours["version"],
        wheel=ours["file_name"],
        bytecode=lock["packages"][BYTECODE]["file_name"],
        module=MODULE,
    )


def paragraph(entry: dict[str, str]) -> str:
    """One package of Pyodide's in the note."""
    licence = LICENCES.get(entry["name"], "its licence is in the file")
    return PACKAGE.format(
        name=entry["name"],
        version=entry["version"],
        licence=licence.format(version=entry["version"]),
        file=entry["file_name"],
    )
