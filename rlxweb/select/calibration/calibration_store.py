"""Store of calibration records in the cache folder, and where that folder is."""

from __future__ import annotations

import json
import os
import re
import stat
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rlxweb.core.errors import CalibrationWarning, InputError
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_record import Calibration
from rlxweb.gpu.coroutine_runner import is_browser
from rlxweb.select.policy import cache_dir_from_env

# --- Folder where calibrations are kept, as JSON files that are written atomically
#
# Without a folder (a browser, a read-only home), measurements last as long as the
# process, and a warning says so once.

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
    configured = cache_dir_from_env()
    if configured is not None:
        return Path(configured)
    if is_browser():  # or every call would search for platformdirs in vain
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


# --- Store of calibrations: in memory, and one JSON file per engine in the cache
# folder
#
# A record counts only where engine, driver, machine and rlxweb's version are what
# they were when it was made. A file that is corrupt, foreign or of another version is
# as good as none: it is measured anew and written over.

Identity = tuple[str, ...]
FILE_PREFIX = "calibration-"


class CalibrationStore:
    """Calibrations by engine identity. `folder` None: the current `cache_folder`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._records: dict[Identity, Calibration] = {}
        self._searched: set[tuple[str, Identity]] = set()
        self.change_count = 0
        """How often something was saved: what was decided before it is out of date."""
        self._lock = ForkSafeLock()

    @property
    def folder(self) -> Path | None:
        """Folder of the files; None where there is none."""
        return self._folder if self._folder is not None else cache_folder()

    def load(self, identity: Identity) -> Calibration | None:
        """Return the record of an engine, from memory or its file; None when there is
        none.
        """
        with self._lock:
            cached = self._records.get(identity)
            folder = self.folder
            if cached is not None or folder is None:
                return cached
            if (str(folder), identity) in self._searched:
                return None
            self._searched.add((str(folder), identity))
            record = _read_record(folder / calibration_file_name(identity))
            if record is not None and record.identity == identity:
                self._records[identity] = record
            return self._records.get(identity)

    def save(self, record: Calibration) -> Path | None:
        """Store a record; return its path, or None where it stays in memory."""
        with self._lock:
            self._records[record.identity] = record
            self.change_count += 1
            folder = self.folder
        if folder is None:
            return None
        path = folder / calibration_file_name(record.identity)
        return path if write_json(path, record.as_json()) else None

    def load_all(self) -> list[Calibration]:
        """Return every readable record of the folder and of memory, of any version."""
        records = dict(self._records)
        folder = self.folder
        if folder is not None:
            for path in sorted(folder.glob(f"{FILE_PREFIX}*.json")):
                record = _read_record(path)
                if record is not None:
                    records.setdefault(record.identity, record)
        return list(records.values())

    def clear(self) -> None:
        """Drop the records in memory; files stay."""
        with self._lock:
            self._records.clear()
            self._searched.clear()


def calibration_file_name(identity: Identity) -> str:
    """Return the file name: the engine's readable name and a digest of its identity."""
    import hashlib  # slow to load, and only files need it

    words = re.sub(r"[^a-z0-9]+", "-", " ".join(identity[:2]).lower()).strip("-")
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:12]
    return f"{FILE_PREFIX}{words[:60]}-{digest}.json"


def _read_record(path: Path) -> Calibration | None:
    """Return the record in a file; None where it is not valid."""
    document = read_json(path)
    try:
        return None if document is None else calibration_from_json(document)
    except InputError:
        return None


calibration_store = CalibrationStore()
