"""The running package as a ZIP file: a Python elsewhere is given what is run here.

From a wheel and from a checkout alike; shaders are put where a wheel has them.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_SUFFIXES = (".py", ".js", ".toml", ".wgsl")


def package_zip() -> bytes:
    """`rlxweb/…` with its metadata: unpacked on a path of imports it is installed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, name in _files():
            archive.write(path, name)
        number = _version()
        about = f"Metadata-Version: 2.1\nName: rlxweb\nVersion: {number}\n"
        archive.writestr(f"rlxweb-{number}.dist-info/METADATA", about)
    return packed.getvalue()


def _files() -> Iterator[tuple[Path, str]]:
    for path in sorted(_ROOT.rglob("*")):
        if path.suffix in _SUFFIXES:
            yield path, f"rlxweb/{path.relative_to(_ROOT).as_posix()}"
    beside = _ROOT.parent / "shaders"
    if not (_ROOT / "shaders").is_dir():
        for path in sorted(beside.rglob("*.wgsl")):
            yield path, f"rlxweb/shaders/{path.relative_to(beside).as_posix()}"


def _version() -> str:
    try:
        return version("rlxweb")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0"
