"""Fork safety of array libraries: a library works only in the process that first used
it.

Their threads stay behind, so that a forked child that computes waits for ever (tried on
PyTorch, JAX and MLX, each on the CPU).
"""

from __future__ import annotations

import os

from rlxweb.core.errors import AdapterMissing, DeviceLost

_SPAWN_HINT = (
    'start processes with "spawn" (multiprocessing.set_start_method), or use device '
    "'cpu'"
)


class LibraryForkGuard:
    """Record of the process that uses a library; 0 while none does."""

    def __init__(self, library: str) -> None:
        self.library, self.owner_pid = library, 0

    def claim(self, context: str) -> None:
        """Claim the library for this process. Errors  AdapterMissing in a fork."""
        self.owner_pid = self.owner_pid or os.getpid()
        if self.fork_problem:
            raise AdapterMissing(context, self.fork_problem, hint=_SPAWN_HINT)

    def check_process(self, context: str) -> None:
        """Raise DeviceLost in a fork of the process that uses the library."""
        if self.fork_problem:
            raise DeviceLost(context, self.fork_problem, hint=_SPAWN_HINT)

    @property
    def fork_problem(self) -> str:
        """Reason why the library does not work in this process; "" if it is not a
        fork.
        """
        if self.owner_pid in (0, os.getpid()):
            return ""
        return (
            f"process {self.owner_pid} used {self.library} before it forked this "
            f"process; the threads of {self.library} do not exist in a forked process"
        )
