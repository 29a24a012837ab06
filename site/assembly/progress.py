"""Progress messages of the site build: plain lines on stderr."""

from __future__ import annotations

import sys
from pathlib import Path


def print_progress(line: str) -> None:
    """Print one line of progress."""
    print(f"site: {line}", file=sys.stderr, flush=True)


def format_size(nbytes: int) -> str:
    """Format a number of bytes for people: 432 KiB, 17.3 MiB."""
    if nbytes < 1024:
        return f"{nbytes} B"
    if nbytes < 1024**2:
        return f"{nbytes / 1024:.0f} KiB"
    return f"{nbytes / 1024**2:.1f} MiB"


def display_path(path: Path) -> str:
    """Return the path relative to the working directory if it lies below, else in
    full.
    """
    return str(
        path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    )
