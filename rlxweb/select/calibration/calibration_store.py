"""Store of calibration records in the cache folder, and where that folder is."""

from __future__ import annotations

import re
from pathlib import Path

from rlxweb.core.cache_folder import cache_folder, read_json, write_json
from rlxweb.core.errors import InputError
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_record import Calibration

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
