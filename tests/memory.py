"""How much memory something took, also what Python's own allocator does not see."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _highest_nbytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _forget_highest() -> None:
    """Begin anew, where the system can: else what was freed before hides what comes."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


@contextmanager
def takes_less_than(nbytes: int) -> Iterator[None]:
    """Fail if the process has grown by that much at any time in the block."""
    _forget_highest()
    before = _highest_nbytes()
    yield
    grown = _highest_nbytes() - before
    assert grown < nbytes, f"it took {grown >> 20} MiB"
