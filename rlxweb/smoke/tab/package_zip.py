"""ZIP file of the running package, for a Python interpreter in a tab or under Node.

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


def zip_package() -> bytes:
    """Return the package and its metadata as a ZIP file, importable once unpacked."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, name in _files():
            archive.write(path, name)
        package_version = _version()
        metadata = f"Metadata-Version: 2.1\nName: rlxweb\nVersion: {package_version}\n"
        archive.writestr(f"rlxweb-{package_version}.dist-info/METADATA", metadata)
    return buffer.getvalue()


def _files() -> Iterator[tuple[Path, str]]:
    """Yield the package's files with their names in the archive."""
    for path in sorted(_ROOT.rglob("*")):
        if path.suffix in _SUFFIXES:
            yield path, f"rlxweb/{path.relative_to(_ROOT).as_posix()}"
    shader_folder = _ROOT.parent / "shaders"
    if not (_ROOT / "shaders").is_dir():
        for path in sorted(shader_folder.rglob("*.wgsl")):
            yield path, f"rlxweb/shaders/{path.relative_to(shader_folder).as_posix()}"


def _version() -> str:
    """Return the package's version; "0" for a checkout that was never installed."""
    try:
        return version("rlxweb")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0"
