"""Preload module of `dask worker` that makes a recording fail, hang or kill its worker,
as its file name says.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

from rlxweb.batch import recording_analysis
from rlxweb.core.thread_tasks import raise_if_cancelled

_original_open = getattr(
    recording_analysis.open_recording, "usual", recording_analysis.open_recording
)


def _open_by_name(path: str, **options: Any) -> Any:
    """Open a recording, or fail as its name says."""
    name = os.path.basename(path)
    if "RLX_TEST_FULL" in os.environ:
        raise OSError(errno.ENOSPC, "No space left on device")
    if name == "deadly.edf":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "hungry.edf":
        blocks = []
        while True:
            blocks.append(bytearray(b"x") * (1 << 24))
    if name == "huge.edf":
        bytearray(1 << 60)
    if name == "odd.edf":
        raise ZeroDivisionError
    if name == "endless.edf":
        while True:
            raise_if_cancelled()
    return _original_open(path, **options)


_open_by_name.usual = _original_open  # it may be loaded twice
recording_analysis.open_recording = _open_by_name
