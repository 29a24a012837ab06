"""Guard against the use of GPU drivers in a forked child, where they hang.

Its threads stay behind, so that in a forked child nearly every call waits for ever:
submitting, freeing, and the driver's own clean-up at exit (tried on lavapipe, llvmpipe
and SwiftShader; of these only lavapipe bears even a fresh instance). Knows no library.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from rlxweb.core.errors import AdapterMissing
from rlxweb.core.fork_safety import register_child_callback


class DriverForkGuard:
    """Record of the process that loaded the GPU drivers; 0 before that."""

    def __init__(self) -> None:
        self.loaded_by_pid = 0
        register_child_callback(self, DriverForkGuard._after_fork_in_child)

    def mark_loaded(self) -> None:
        """Record that drivers are about to be loaded. Raise AdapterMissing in a forked
        child.
        """
        self.loaded_by_pid = self.loaded_by_pid or os.getpid()
        if self.unusable_reason:
            raise AdapterMissing(
                "looking for a GPU",
                self.unusable_reason,
                hint='start processes with "spawn" '
                "(multiprocessing.set_start_method), or choose device 'cpu'",
            )

    @property
    def unusable_reason(self) -> str:
        """Reason why no GPU works in this process; "" unless it is a fork of one that
        used a GPU.
        """
        if self.loaded_by_pid in (0, os.getpid()):
            return ""
        return (
            f"process {self.loaded_by_pid} loaded its GPU drivers before it forked "
            "this process, and GPU drivers do not work after a fork"
        )

    def _after_fork_in_child(self) -> None:
        """Make the child exit before the driver's exit handlers, which would hang."""
        if self.loaded_by_pid:
            # glibc runs the last handler first: this one leaves before Mesa's, which
            # joins threads that are not there. Python is done by then.
            with suppress(AttributeError):
                libc = ctypes.CDLL(None)
                libc.on_exit(libc._exit, None)


driver_fork_guard = DriverForkGuard()


def leak_object(native_object: object) -> None:
    """Never free this object: freeing a hung device would block for ever, also at
    exit.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(native_object))
