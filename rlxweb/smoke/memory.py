"""How much memory a process takes, and how much one may: asked of the system.

What is watched is what lies in memory. A bound on address space (RLIMIT_AS) would stop
drivers that reserve terabytes of it and touch megabytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_UNKNOWN = 16 << 30
_LEAST, _MOST = 2 << 30, 32 << 30
_CGROUPS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def resident_nbytes(pid: int) -> int:
    """Bytes of the process that lie in memory; 0 where it is gone or none can say."""
    try:
        return _RESIDENT.get(sys.platform, _by_ps)(pid)
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return 0


def _by_proc(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _by_ps(pid: int) -> int:
    return int(_output("ps", "-o", "rss=", "-p", str(pid)) or 0) << 10


def _by_tasklist(pid: int) -> int:
    said = _output("tasklist", "/FI", f"PID eq {pid}", "/FO", "CSV", "/NH")
    digits = "".join(c for c in said.rpartition(',"')[2] if c.isdigit())
    return int(digits or 0) << 10


_RESIDENT = {"linux": _by_proc, "win32": _by_tasklist}


def _output(*words: str) -> str:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        errors="replace",  # tasklist writes in the code page of the console
        check=False,
        timeout=10,
    )
    return done.stdout.strip()


def fair_nbytes() -> int:
    """Half of what this machine, or its container, has: for one process of a test."""
    has = _UNKNOWN
    with suppress(OSError, ValueError, AttributeError):
        has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in _CGROUPS:
        with suppress(OSError, ValueError):  # "max" where there is no bound
            has = min(has, int(Path(name).read_text()))
    return min(max(has // 2, _LEAST), _MOST)
