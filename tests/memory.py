"""Bounds on the resident memory of this process."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _highest_nbytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _forget_highest() -> None:
    """Reset the peak: memory that was freed before would hide what is taken now."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


@contextmanager
def takes_less_than(nbytes: int) -> Iterator[None]:
    """Fail if the process grows by this many bytes at any time in the block."""
    _forget_highest()
    before = _highest_nbytes()
    yield
    grown = _highest_nbytes() - before
    assert grown < nbytes, f"it took {grown >> 20} MiB"
