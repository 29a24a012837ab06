"""Bounds on the resident memory of this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _highest_nbytes() -> int:
    """Return the peak of this process. Errors  OSError, LookupError: it is not told."""
    text = Path("/proc/self/status").read_text("ascii", "replace")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise LookupError("the kernel does not tell VmHWM")
    return int(found[1]) * 1024


def _reset_peak() -> int:
    """Set the peak to what is taken now, and return that; skip where nobody can.

    Memory that was freed before would hide what is taken from now on.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _highest_nbytes()
    except (OSError, LookupError) as error:
        pytest.skip(f"the peak cannot be reset here: {error}")


@contextmanager
def takes_less_than(nbytes: int) -> Iterator[None]:
    """Fail if the process grows by this many bytes at any time in the block."""
    before = _reset_peak()
    yield
    grown = _highest_nbytes() - before
    assert grown < nbytes, f"it took {grown >> 20} MiB"
