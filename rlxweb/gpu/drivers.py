"""GPU drivers and forks: a driver works in the process that loaded it and in no fork.

Its threads stay behind, so that in a forked child nearly every call waits for ever:
submitting, freeing, and the driver's own clean-up at exit (tried on lavapipe, llvmpipe
and SwiftShader; of these only lavapipe bears even a fresh instance). Knows no library.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from rlxweb.errors import AdapterMissing
from rlxweb.forked import watch


class Drivers:
    """Which process loaded the drivers; 0 while none has."""

    def __init__(self) -> None:
        self.loaded_by = 0
        watch(self, Drivers._in_child)

    def load(self) -> None:
        """Say that they are about to be loaded. Errors  AdapterMissing in a fork."""
        self.loaded_by = self.loaded_by or os.getpid()
        if self.why_not:
            raise AdapterMissing(
                "looking for a GPU",
                self.why_not,
                hint='start processes with "spawn" '
                "(multiprocessing.set_start_method), or choose device 'cpu'",
            )

    @property
    def why_not(self) -> str:
        """Why no GPU works in this process; "" where it is no such fork."""
        if self.loaded_by in (0, os.getpid()):
            return ""
        return (
            f"process {self.loaded_by} used its GPU drivers before it forked this one, "
            "and they do not work in a fork"
        )

    def _in_child(self) -> None:
        if self.loaded_by:
            # glibc runs the last handler first: this one leaves before Mesa's, which
            # joins threads that are not there. Python is done by then.
            with suppress(AttributeError):
                libc = ctypes.CDLL(None)
                libc.on_exit(libc._exit, None)


drivers = Drivers()


def leak(held: object) -> None:
    """Never free this: freeing what hangs would block for ever, at exit too."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
