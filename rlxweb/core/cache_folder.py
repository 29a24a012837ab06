"""Cache folder of this user, and JSON files in it that are read with care and written
atomically.

Without a folder (a browser, a read-only home), measurements last as long as the
process, and a warning says so once.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rlxweb.core.environment import cache_dir
from rlxweb.core.errors import CalibrationWarning
from rlxweb.core.fork_safety import ForkSafeLock

# A calibration is some 20 KB; what is larger is not one of ours.
MAX_FILE_NBYTES = 4 << 20
# A tab's Python has a small stack: a file that nests deeply ends it, with no exception.
MAX_JSON_DEPTH = 100

_warned_folders: set[str] = set()
_lock = ForkSafeLock()


def cache_folder() -> Path | None:
    """Return RLX_CACHE_DIR, else the platform's cache folder; None where there is
    none.
    """
    configured = cache_dir()
    if configured is not None:
        return Path(configured)
    # Without this, every call in a tab would search for platformdirs in vain.
    if sys.platform == "emscripten":
        return None
    try:
        from platformdirs import user_cache_dir
    except ImportError:
        return None
    return Path(user_cache_dir("rlxweb", appauthor=False))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None when it is missing, too large, or not
    JSON.

    Only figures are taken from it, so it does not matter whose file it is.
    """
    try:
        text = read_regular_file(path, MAX_FILE_NBYTES)
        return (
            None
            if text is None or _bracket_depth(text) > MAX_JSON_DEPTH
            else json.loads(text)
        )
    except (OSError, ValueError, RecursionError):
        return None


def _bracket_depth(text: bytes) -> int:
    """Return the maximum nesting depth of brackets; those in strings count as well."""
    characters = np.frombuffer(text, np.uint8)
    is_opening = (characters == ord("[")) | (characters == ord("{"))
    is_closing = (characters == ord("]")) | (characters == ord("}"))
    steps = is_opening.astype(np.int64) - is_closing
    return int(steps.cumsum().max(initial=0))


def read_regular_file(path: Path, max_nbytes: int) -> bytes | None:
    """Return the bytes of a regular file; None for another kind of file or more than
    `max_nbytes` bytes.

    What it is is asked once it is open. A pipe is not waited for. Errors  OSError.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with open(handle, "rb", closefd=False) as file:
            content = file.read(max_nbytes + 1)
        return content if len(content) <= max_nbytes else None
    finally:
        os.close(handle)


def write_json(path: Path, document: Any) -> bool:
    """Write the document atomically; return False, with one warning, when that is
    impossible.

    Readers see the old file or the new one, whoever else writes at the same time.
    """
    # Written seldom, and never in a tab: not worth its place in every import.
    from rlxweb.core.atomic_file import atomic_path, error_reason

    text = json.dumps(document, indent=1, allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, follow_link=False) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return True
    except OSError as error:  # a RecordingError is one
        _warn_once(path.parent, error_reason(error))
    return False


def _warn_once(folder: Path, reason: str) -> None:
    """Warn once per folder that measurements cannot be kept in it."""
    with _lock:
        if str(folder) in _warned_folders:
            return
        _warned_folders.add(str(folder))
    warnings.warn(
        f"measurements cannot be saved in {folder} ({reason}) and are lost when "
        "this process ends; set RLX_CACHE_DIR to another folder",
        CalibrationWarning,
        stacklevel=4,
    )
