"""The packages as one file that a page lays into Python's file system at once.

Pyodide unpacks wheels file by file, in Python, and compiles every binary that is in
them, imported or not: two thirds of a second until a tab has NumPy and rlxweb. The same
files one after the other, compressed as one, are there in a twentieth. The wheels stay
beside it, for `loadPackage` and as what their makers publish; the image is made of them
when their hashes have been checked, and the page checks its hash again.

The file, after gzip: a line of JSON, {path: bytes}, then the contents in that order.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from assembly.errors import SiteError
from assembly.pyodide import Lock

MODULE = "rlxweb.mjs"
TEMPLATE = Path(__file__).with_name(MODULE)
UNREAD = {".a", ".c", ".cpp", ".h", ".pxd", ".pyi", ".pyx"}
"""What compilers and editors read: Python in a tab has neither."""
LEVEL = 7
"""Compression level of gzip: 0.7 % larger than level 9, in a third of the time."""


def add_image(lock: Lock, runtime: Path) -> None:
    """Write the image of all packages of `lock`, and the module that loads it.

    runtime  the folder that holds the packages' files
    """
    entries = lock["packages"].values()
    packed = image(runtime / entry["file_name"] for entry in entries)
    digest = hashlib.sha256(packed).digest()
    name = f"packages-{digest.hex()[:10]}.image"
    (runtime / name).write_bytes(packed)
    said = {
        "image": name,
        "integrity": f"sha256-{base64.b64encode(digest).decode()}",
        "packages": {entry["name"]: entry["version"] for entry in entries},
    }
    (runtime / MODULE).write_text(filled(said), "utf-8")


def image(archives: Iterable[Path]) -> bytes:
    """The files of these wheels and zips; the same bytes for the same archives."""
    contents: dict[str, bytes] = {}
    for archive in archives:
        for name, data in files_of(archive):
            if contents.setdefault(name, data) != data:
                raise SiteError(
                    "joining the packages of the pages",
                    f"two of them have {name}, and not the same one",
                )
    sizes = {name: len(data) for name, data in contents.items()}
    index = json.dumps(sizes, separators=(",", ":")).encode()
    return gzip.compress(b"".join((index, b"\n", *contents.values())), LEVEL, mtime=0)


def files_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of what Python may read of one wheel or zip."""
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            path = PurePosixPath(entry.filename)
            if path.is_absolute() or ".." in path.parts:
                raise SiteError(
                    f"reading {archive.name}", f"{path} would lie outside of the site"
                )
            if path.parts[0].endswith(".data"):
                raise SiteError(
                    f"reading {archive.name}",
                    f"{path} is for another place than site-packages",
                    hint="bring files_of in site/assembly/image.py up to such wheels",
                )
            if not entry.is_dir() and path.suffix not in UNREAD:
                yield path.as_posix(), opened.read(entry)


def filled(said: dict[str, Any]) -> str:
    """The module's text with the image it loads."""
    mark = "const PACKED = {};"
    text = TEMPLATE.read_text("utf-8")
    if text.count(mark) != 1:
        raise SiteError(f"filling in {MODULE}", f"it has not one line {mark!r}")
    return text.replace(mark, f"const PACKED = {json.dumps(said, sort_keys=True)};")
