"""Build rlxweb's wheel from the checkout, without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from assembly.errors import SiteError
from assembly.hashing import sha256


def build_wheel(root: Path, folder: Path) -> Path:
    """Build the wheel of the checkout at `root` into `folder`, with a hash in its file
    name.
    """
    code = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    build = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if build.returncode:
        raise SiteError(
            f"building the wheel of {root}",
            build.stderr.strip() or "hatchling failed without output",
            hint="if hatchling is missing: pip install '.[web]'",
        )
    wheel = folder / build.stdout.split()[-1]
    return wheel.rename(folder / hash_tagged_name(wheel))


def hash_tagged_name(wheel: Path) -> str:
    """Return the wheel's name with a build tag made from its hash.

    A new wheel of the same version so has a new URL: a copy in the visitor's browser
    cache can never meet a lock file that wants another one.
    """
    name, version, *tags = wheel.name.split("-")
    return "-".join([name, version, f"0x{sha256(wheel)[:10]}", *tags])
