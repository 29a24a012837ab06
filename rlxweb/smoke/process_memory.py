"""Resident memory of a process and the memory limit of a test process, read from the
system.

What is watched is what lies in memory. A bound on address space (RLIMIT_AS) would stop
drivers that reserve terabytes of it and touch megabytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_DEFAULT_TOTAL_NBYTES = 16 << 30
_MIN_LIMIT_NBYTES, _MAX_LIMIT_NBYTES = 2 << 30, 32 << 30
_CGROUP_LIMIT_FILES = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def resident_nbytes(pid: int) -> int:
    """Return the process's resident memory in bytes; 0 if it is gone or cannot be
    measured.
    """
    try:
        return _RESIDENT_READERS.get(sys.platform, _resident_from_ps)(pid)
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return 0


def _resident_from_proc(pid: int) -> int:
    """Read the resident memory from the proc file system."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _resident_from_ps(pid: int) -> int:
    """Read the resident memory from `ps`."""
    return int(_command_output("ps", "-o", "rss=", "-p", str(pid)) or 0) << 10


def _resident_from_tasklist(pid: int) -> int:
    """Read the resident memory from Windows' `tasklist`."""
    output = _command_output("tasklist", "/FI", f"PID eq {pid}", "/FO", "CSV", "/NH")
    digits = "".join(c for c in output.rpartition(',"')[2] if c.isdigit())
    return int(digits or 0) << 10


_RESIDENT_READERS = {"linux": _resident_from_proc, "win32": _resident_from_tasklist}


def _command_output(*command: str) -> str:
    """Run a command and return its standard output."""
    completed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",  # tasklist writes in the code page of the console
        check=False,
        timeout=10,
    )
    return completed.stdout.strip()


def default_memory_limit() -> int:
    """Return half of the machine's or container's memory in bytes, within fixed
    limits.
    """
    total_nbytes = _DEFAULT_TOTAL_NBYTES
    with suppress(OSError, ValueError, AttributeError):
        total_nbytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in _CGROUP_LIMIT_FILES:
        with suppress(OSError, ValueError):  # "max" where there is no bound
            total_nbytes = min(total_nbytes, int(Path(name).read_text()))
    return min(max(total_nbytes // 2, _MIN_LIMIT_NBYTES), _MAX_LIMIT_NBYTES)
