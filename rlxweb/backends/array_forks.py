"""Array libraries and forks: one works in the process that used it, in no fork of it.

Their threads stay behind, so that a forked child that computes waits for ever (tried on
PyTorch, JAX and MLX, each on the CPU).
"""

from __future__ import annotations

import os

from rlxweb.errors import AdapterMissing, DeviceLost

_SPAWN = (
    'start processes with "spawn" (multiprocessing.set_start_method), or choose '
    "device 'cpu'"
)


class LibraryThreads:
    """Which process uses a library; 0 while none does."""

    def __init__(self, library: str) -> None:
        self.library, self.used_by = library, 0

    def begin(self, doing: str) -> None:
        """Say that it is about to be used. Errors  AdapterMissing in a fork."""
        self.used_by = self.used_by or os.getpid()
        if self.why_not:
            raise AdapterMissing(doing, self.why_not, hint=_SPAWN)

    def check(self, doing: str) -> None:
        """Errors  DeviceLost in a fork."""
        if self.why_not:
            raise DeviceLost(doing, self.why_not, hint=_SPAWN)

    @property
    def why_not(self) -> str:
        """Why the library does not work in this process; "" where it is no fork."""
        if self.used_by in (0, os.getpid()):
            return ""
        return (
            f"process {self.used_by} used {self.library} before it forked this one, "
            "and its threads are not in a fork"
        )
