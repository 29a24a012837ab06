"""What observed runs say about the models: a bounded factor per shape of job.

A model is fitted to a few sizes; real runs of a job correct it. The factor of a bucket
is the mean ratio of measured to predicted time, recent runs counting most, never beyond
a factor of 4 and close to 1 while few runs were seen. It outlives the process.
"""

from __future__ import annotations

import atexit
import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlxweb.calibration.cache_folder import cache_folder, read_json, write_json
from rlxweb.forked import ForkLock

Bucket = tuple[str | int, ...]

SCHEMA = "rlxweb.corrections/1"
FILE = "corrections.json"
BOUND = 4.0
WEIGHT = 0.2
"""Of the newest run, once a few were seen."""
DOUBT = 2.0
"""Runs it takes until half of what they say is believed."""
CAPACITY = 4_000
MOST_RUNS = 1 << 53
WRITE_EVERY_S = 5.0


def octave(n: int) -> int:
    """The power of two nearest to n, as its exponent; n below 1 counts as 1."""
    return round(math.log2(max(1, n)))


@lru_cache(256)
def _key(bucket: Bucket) -> str:
    """A bucket as the file names it."""
    return json.dumps(bucket)


@dataclass(frozen=True, slots=True)
class Seen:
    """Mean log ratio of measured to predicted time, and how many runs it is of."""

    log_ratio: float
    runs: int

    def with_run(self, log_ratio: float) -> Seen:
        """A plain mean at first, then one that forgets."""
        weight = max(WEIGHT, 1.0 / (self.runs + 1))
        mean = self.log_ratio + weight * (log_ratio - self.log_ratio)
        return Seen(mean, self.runs + 1)


NEVER = Seen(0.0, 0)


class Corrections:
    """Factors by bucket. `folder` None: wherever `cache_folder` says at the time."""

    def __init__(
        self,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._changed: set[str] = set()
        self._read = False
        self._written = -math.inf
        self._lock = ForkLock()

    @property
    def path(self) -> Path | None:
        folder = self._folder if self._folder is not None else cache_folder()
        return None if folder is None else folder / FILE

    def factor(self, bucket: Bucket) -> float:
        """What to multiply a prediction by; 1.0 for a bucket never seen."""
        seen = self._seen_of(bucket)
        return math.exp(seen.log_ratio * seen.runs / (seen.runs + DOUBT))

    def runs(self, bucket: Bucket) -> int:
        """How many runs the bucket's factor rests on."""
        return self._seen_of(bucket).runs

    def _seen_of(self, bucket: Bucket) -> Seen:
        with self._lock:
            self._load()
            return self._seen.get(_key(bucket), NEVER)

    def note(self, bucket: Bucket, predicted_ns: float, measured_ns: float) -> None:
        """One observed run; predicted_ns is the model's own, uncorrected.

        Times that are not positive and finite are ignored.
        """
        if not (0 < predicted_ns < math.inf and 0 < measured_ns < math.inf):
            return
        limit = math.log(BOUND)
        ratio = min(limit, max(-limit, math.log(measured_ns) - math.log(predicted_ns)))
        key = _key(bucket)
        with self._lock:
            self._load()
            seen = self._seen.pop(key, NEVER)
            self._seen[key] = seen.with_run(ratio)
            self._changed.add(key)
            while len(self._seen) > CAPACITY:
                self._seen.popitem(last=False)
            if self._clock() - self._written < WRITE_EVERY_S:
                return
        self.write()

    def write(self) -> None:
        """Put what was seen into the file, beside what others put there meanwhile."""
        with self._lock:
            path = self.path
            self._written = self._clock()
            if path is None or not self._changed:
                return
            merged = _parsed(read_json(path))
            for key, seen in self._seen.items():  # the oldest first
                if key in self._changed:
                    merged.pop(key, None)
                    merged[key] = seen
            while len(merged) > CAPACITY:
                merged.popitem(last=False)
            rows = [[key, one.log_ratio, one.runs] for key, one in merged.items()]
            if write_json(path, {"schema": SCHEMA, "buckets": rows}):
                self._changed.clear()

    def forget(self) -> None:
        """Drop what is in memory and not yet written."""
        with self._lock:
            self._seen.clear()
            self._changed.clear()
            self._read = False

    def _load(self) -> None:
        if self._read:
            return
        self._read = True
        path = self.path
        if path is not None:
            found = _parsed(read_json(path))
            found.update(self._seen)
            self._seen = found


def _parsed(document: Any) -> OrderedDict[str, Seen]:
    """The buckets of a file; none at all when any of it is not ours."""
    found: OrderedDict[str, Seen] = OrderedDict()
    limit = math.log(BOUND) + 1e-9
    try:
        ours = document["schema"] == SCHEMA
        for key, log_ratio, runs in document["buckets"]:
            found[key] = seen = Seen(float(log_ratio), int(runs))
            fits = abs(seen.log_ratio) <= limit and 1 <= seen.runs <= MOST_RUNS
            ours = ours and fits and isinstance(key, str)
    except (KeyError, TypeError, ValueError, OverflowError):
        ours = False
    return found if ours else OrderedDict()


corrections = Corrections()
atexit.register(corrections.write)
