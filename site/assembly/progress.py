"""What the builder says while it works: plain lines on stderr."""

from __future__ import annotations

import sys
from pathlib import Path


def say(line: str) -> None:
    """One line of progress."""
    print(f"site: {line}", file=sys.stderr, flush=True)


def size(nbytes: int) -> str:
    """A size for people: 432 KiB, 17.3 MiB."""
    if nbytes < 1024:
        return f"{nbytes} B"
    if nbytes < 1024**2:
        return f"{nbytes / 1024:.0f} KiB"
    return f"{nbytes / 1024**2:.1f} MiB"


def shown(path: Path) -> str:
    """The path from here where it lies below, else in full."""
    return str(
        path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    )
