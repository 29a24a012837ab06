"""Bounds on the resident memory of this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _peak_nbytes() -> int:
    """Return the peak resident memory of this process. Errors  OSError, LookupError: it
    is not reported.
    """
    text = Path("/proc/self/status").read_text("ascii", "replace")
    match = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise LookupError("the kernel does not tell VmHWM")
    return int(match[1]) * 1024


def _reset_peak() -> int:
    """Set the peak to the present memory use and return that; skip the test where it
    cannot be reset.

    Memory that was freed before would hide what is taken from now on.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _peak_nbytes()
    except (OSError, LookupError) as error:
        pytest.skip(f"the peak cannot be reset here: {error}")


@contextmanager
def limit_memory_growth(nbytes: int) -> Iterator[None]:
    """Fail if the process grows by this many bytes at any time in the block."""
    before = _reset_peak()
    yield
    growth = _peak_nbytes() - before
    assert growth < nbytes, f"it took {growth >> 20} MiB"
