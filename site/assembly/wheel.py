"""Our own wheel, built from the checkout without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from assembly.errors import SiteError
from assembly.hashing import sha256


def build_wheel(root: Path, folder: Path) -> Path:
    """The wheel of the checkout at `root`, in `folder`, named after what is in it."""
    code = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    said = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if said.returncode:
        raise SiteError(
            f"building the wheel of {root}",
            said.stderr.strip() or "hatchling said nothing",
            hint="if hatchling is missing: pip install '.[web]'",
        )
    wheel = folder / said.stdout.split()[-1]
    return wheel.rename(folder / tagged(wheel))


def tagged(wheel: Path) -> str:
    """The wheel's name with a build tag made from its hash.

    A new wheel of the same version so has a new URL: a copy in the visitor's browser
    cache can never meet a lock file that wants another one.
    """
    name, version, *tags = wheel.name.split("-")
    return "-".join([name, version, f"0x{sha256(wheel)[:10]}", *tags])
