"""Where calibrations are kept; JSON files that are written whole or not at all.

The one file that knows the platform's cache folder. Where there is none (a browser, a
read-only home) what was measured lives as long as the process, and that is said once.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rlxweb.devices.policy import cache_dir_from_env
from rlxweb.errors import CalibrationWarning
from rlxweb.forked import ForkLock
from rlxweb.gpu.drive import in_a_tab

# A calibration is some 20 KB; what is larger is not one of ours.
LARGEST_FILE = 4 << 20
# A tab's Python has a small stack: a file that nests deeply ends it, with no exception.
DEEPEST = 100

_said: set[str] = set()
_lock = ForkLock()


def cache_folder() -> Path | None:
    """RLX_CACHE_DIR, else the platform's folder; None where there is no such thing."""
    asked = cache_dir_from_env()
    if asked is not None:
        return Path(asked)
    if in_a_tab():  # or every call would search for platformdirs in vain
        return None
    try:
        from platformdirs import user_cache_dir
    except ImportError:
        return None
    return Path(user_cache_dir("rlxweb", appauthor=False))


def read_json(path: Path) -> Any:
    """What the file holds; None when it is missing, too large, or no JSON.

    Only figures are taken from it, so it does not matter whose file it is.
    """
    try:
        text = regular_file(path, LARGEST_FILE)
        return None if text is None or _depth(text) > DEEPEST else json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None


def _depth(text: bytes) -> int:
    """How deep brackets lie in brackets, at most; those in strings count as well."""
    marks = np.frombuffer(text, np.uint8)
    opened = (marks == ord("[")) | (marks == ord("{"))
    closed = (marks == ord("]")) | (marks == ord("}"))
    steps = opened.astype(np.int64) - closed
    return int(steps.cumsum().max(initial=0))


def regular_file(path: Path, most: int) -> bytes | None:
    """Return the bytes of a regular file, None where it is another kind or has more.

    What it is is asked once it is open. A pipe is not waited for. Errors  OSError.
    """
    how = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, how)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with open(handle, "rb", closefd=False) as file:
            found = file.read(most + 1)
        return found if len(found) <= most else None
    finally:
        os.close(handle)


def write_json(path: Path, document: Any) -> bool:
    """Put the document there in one step; False, and said once, when that cannot be.

    Readers see the old file or the new one, whoever else writes at the same time.
    """
    # Written seldom, and never in a tab: not worth its place in every import.
    from rlxweb.whole_file import atomic_path, reason

    text = json.dumps(document, indent=1, allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, follow_link=False) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return True
    except OSError as error:  # a RecordingError is one
        _say_once(path.parent, reason(error))
    return False


def _say_once(folder: Path, why: str) -> None:
    with _lock:
        if str(folder) in _said:
            return
        _said.add(str(folder))
    warnings.warn(
        f"measurements cannot be kept in {folder} ({why}); they "
        "last as long as this process. RLX_CACHE_DIR names another folder",
        CalibrationWarning,
        stacklevel=4,
    )
