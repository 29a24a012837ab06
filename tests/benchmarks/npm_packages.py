"""Other people's code for browsers: packages of npm in build/cache, proved by hash.

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
PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Package:
    """One version of a package; sha512 as npm itself publishes it."""

    name: str
    version: str
    sha512: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


JAX_JS = Package(
    "@jax-js/jax",
    "0.1.25",
    "g6PxWa6ZLjeQdDAM0ImBSqpdYnC6InCUTCCbMLxhMHMsMNu+JbHRjIQZ/anjBcP69of6hiqfGmTl"
    "+3gBn1qu/A==",
)
ONNX_RUNTIME = Package(
    "onnxruntime-web",
    "1.30.0",
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1Sig"
    "qR4CXAfKYQ==",
)


def unpacked(one: Package, work: Path, endings: Sequence[str] = ("",)) -> Path:
    """The folder `dist` of a package, below the empty folder `work`.

    endings  of the names of files that are wanted
    Errors   ValueError for other bytes than npm published.
    """
    kept = CACHE / f"{one.name.strip('@').replace('/', '-')}-{one.version}.tgz"
    if not kept.is_file() or _sha512(kept) != one.sha512:
        _fetch(one, kept)
    with tarfile.open(kept) as archive:
        members = [m for m in archive if m.name.endswith(tuple(endings))]
        archive.extractall(work, members, filter="data")
    return work / "package" / "dist"


def _fetch(one: Package, kept: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        packed = subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", str(one)],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout.split()[-1]
        came = Path(scratch) / packed
        found = _sha512(came)
        if found != one.sha512:
            raise ValueError(
                f"{packed} is not the {one} that npm published: its sha512 is {found}, "
                f"not {one.sha512}"
            )
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(kept) as temporary:
            temporary.write_bytes(came.read_bytes())


def _sha512(path: Path) -> str:
    return base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
