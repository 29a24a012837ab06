"""Keeps calibrations: in memory, and one JSON file per engine in the cache folder.

A record counts only where engine, driver, machine and rlxweb's version are what they
were when it was made. A file that is corrupt, foreign or of another version is as good
as none: it is measured anew and written over.
"""

from __future__ import annotations

import re
from pathlib import Path

from rlxweb.calibration.cache_folder import cache_folder, read_json, write_json
from rlxweb.cost.record import Calibration
from rlxweb.cost.record_json import from_json
from rlxweb.errors import InputError
from rlxweb.forked import ForkLock

Identity = tuple[str, ...]
PREFIX = "calibration-"


class CalibrationStore:
    """Records by identity. `folder` None: wherever `cache_folder` says at the time."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[Identity, Calibration] = {}
        self._looked: set[tuple[str, Identity]] = set()
        self.changes = 0
        """How often something was saved: what was decided before it is out of date."""
        self._lock = ForkLock()

    @property
    def folder(self) -> Path | None:
        return self._folder if self._folder is not None else cache_folder()

    def load(self, identity: Identity) -> Calibration | None:
        """The record of an engine, from memory or its file; None when there is none."""
        with self._lock:
            known = self._known.get(identity)
            folder = self.folder
            if known is not None or folder is None:
                return known
            if (str(folder), identity) in self._looked:
                return None
            self._looked.add((str(folder), identity))
            record = _read(folder / file_name(identity))
            if record is not None and record.identity == identity:
                self._known[identity] = record
            return self._known.get(identity)

    def save(self, record: Calibration) -> Path | None:
        """Keep a record; the file it went to, or None where it stays in memory."""
        with self._lock:
            self._known[record.identity] = record
            self.changes += 1
            folder = self.folder
        if folder is None:
            return None
        path = folder / file_name(record.identity)
        return path if write_json(path, record.as_json()) else None

    def stored(self) -> list[Calibration]:
        """Every readable record of the folder and of memory, of any version."""
        found = dict(self._known)
        folder = self.folder
        if folder is not None:
            for path in sorted(folder.glob(f"{PREFIX}*.json")):
                record = _read(path)
                if record is not None:
                    found.setdefault(record.identity, record)
        return list(found.values())

    def forget(self) -> None:
        """Drop what is in memory; files stay."""
        with self._lock:
            self._known.clear()
            self._looked.clear()


def file_name(identity: Identity) -> str:
    """The engine's name for people and a digest that tells identities apart."""
    import hashlib  # slow to load, and only files need it

    words = re.sub(r"[^a-z0-9]+", "-", " ".join(identity[:2]).lower()).strip("-")
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:12]
    return f"{PREFIX}{words[:60]}-{digest}.json"


def _read(path: Path) -> Calibration | None:
    document = read_json(path)
    try:
        return None if document is None else from_json(document)
    except InputError:
        return None


store = CalibrationStore()
