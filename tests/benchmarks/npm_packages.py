"""Third-party packages of npm in build/cache, verified by hash.

Nothing of them enters the site or the wheel: a benchmark's own server shows them.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlxweb.io import atomic_path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "cache" / "npm"
DOWNLOAD_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """One version of a package; sha512 as npm itself publishes it."""

    name: str
    version: str
    sha512: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


JAX_JS = NpmPackage(
    "@jax-js/jax",
    "0.1.25",
    "g6PxWa6ZLjeQdDAM0ImBSqpdYnC6InCUTCCbMLxhMHMsMNu+JbHRjIQZ/anjBcP69of6hiqfGmTl"
    "+3gBn1qu/A==",
)
ONNX_RUNTIME = NpmPackage(
    "onnxruntime-web",
    "1.30.0",
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1Sig"
    "qR4CXAfKYQ==",
)


def unpack_package(
    package: NpmPackage, work_dir: Path, endings: Sequence[str] = ("",)
) -> Path:
    """Unpack a package into the empty folder `work_dir` and return its folder `dist`.

    endings  of the names of files that are wanted
    Errors   ValueError for other bytes than npm published.
    """
    archive_path = (
        CACHE / f"{package.name.strip('@').replace('/', '-')}-{package.version}.tgz"
    )
    if not archive_path.is_file() or _sha512(archive_path) != package.sha512:
        _fetch(package, archive_path)
    with tarfile.open(archive_path) as archive:
        members = [m for m in archive if m.name.endswith(tuple(endings))]
        archive.extractall(work_dir, members, filter="data")
    return work_dir / "package" / "dist"


def _fetch(package: NpmPackage, archive_path: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        file_name = subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", str(package)],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=True,
            timeout=DOWNLOAD_TIMEOUT_S,
        ).stdout.split()[-1]
        downloaded = Path(scratch) / file_name
        digest = _sha512(downloaded)
        if digest != package.sha512:
            raise ValueError(
                f"{file_name} is not the {package} that npm published: its sha512 is "
                f"{digest}, "
                f"not {package.sha512}"
            )
        archive_path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(archive_path) as temporary:
            temporary.write_bytes(downloaded.read_bytes())


def _sha512(path: Path) -> str:
    return base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
