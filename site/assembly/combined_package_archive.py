"""One compressed archive of all packages, which a page unpacks into Python's file
system at once.

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
from assembly.pyodide_downloads import Lock

LOADER_MODULE = "rlxweb.mjs"
LOADER_TEMPLATE = Path(__file__).with_name(LOADER_MODULE)
UNUSED_SUFFIXES = {".a", ".c", ".cpp", ".h", ".pxd", ".pyi", ".pyx"}
"""Suffixes of files for compilers and editors, which Python in a browser tab does not
read.
"""
GZIP_LEVEL = 7
"""Compression level of gzip: 0.7 % larger than level 9, in a third of the time."""


def add_image(lock: Lock, runtime: Path) -> None:
    """Write the image of all packages of `lock`, and the JavaScript module that loads
    it.

    runtime  the folder that holds the packages' files
    """
    entries = lock["packages"].values()
    image_bytes = build_image(runtime / entry["file_name"] for entry in entries)
    digest = hashlib.sha256(image_bytes).digest()
    name = f"packages-{digest.hex()[:10]}.image"
    (runtime / name).write_bytes(image_bytes)
    description = {
        "image": name,
        "integrity": f"sha256-{base64.b64encode(digest).decode()}",
        "packages": {entry["name"]: entry["version"] for entry in entries},
    }
    (runtime / LOADER_MODULE).write_text(loader_text(description), "utf-8")


def build_image(archives: Iterable[Path]) -> bytes:
    """Return the image of these wheels and zips; equal archives give equal bytes."""
    contents: dict[str, bytes] = {}
    for archive in archives:
        for name, data in iter_package_files(archive):
            if contents.setdefault(name, data) != data:
                raise SiteError(
                    "joining the packages of the pages",
                    f"two packages contain different versions of the file {name}",
                )
    sizes = {name: len(data) for name, data in contents.items()}
    index = json.dumps(sizes, separators=(",", ":")).encode()
    return gzip.compress(
        b"".join((index, b"\n", *contents.values())), GZIP_LEVEL, mtime=0
    )


def iter_package_files(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Iterate over name and content of the files of a wheel or zip that Python may
    read.
    """
    with zipfile.ZipFile(archive) as zip_file:
        for entry in zip_file.infolist():
            path = PurePosixPath(entry.filename)
            if path.is_absolute() or ".." in path.parts:
                raise SiteError(
                    f"reading {archive.name}", f"{path} is outside the package folder"
                )
            if path.parts[0].endswith(".data"):
                raise SiteError(
                    f"reading {archive.name}",
                    f"{path} is not installed in site-packages",
                    hint="add support for such wheels to iter_package_files in "
                    "site/assembly/combined_package_archive.py",
                )
            if not entry.is_dir() and path.suffix not in UNUSED_SUFFIXES:
                yield path.as_posix(), zip_file.read(entry)


def loader_text(description: dict[str, Any]) -> str:
    """Return the loader module's text with the description of the image it loads."""
    placeholder = "const PACKED = {};"
    text = LOADER_TEMPLATE.read_text("utf-8")
    if text.count(placeholder) != 1:
        raise SiteError(
            f"filling in {LOADER_MODULE}",
            f"expected one line {placeholder!r}, got {text.count(placeholder)}",
        )
    return text.replace(
        placeholder, f"const PACKED = {json.dumps(description, sort_keys=True)};"
    )
