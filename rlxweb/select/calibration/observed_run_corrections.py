"""Correction factors from observed runs: a bounded factor per shape of job.

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

from rlxweb.core.cache_folder import cache_folder, read_json, write_json
from rlxweb.core.fork_safety import ForkSafeLock

Bucket = tuple[str | int, ...]

SCHEMA = "rlxweb.corrections/1"
FILE_NAME = "corrections.json"
MAX_FACTOR = 4.0
NEW_RUN_WEIGHT = 0.2
"""Weight of the newest run, once a few were observed."""
HALF_TRUST_RUNS = 2.0
"""Runs after which half of the observed ratio is applied."""
MAX_BUCKETS = 4_000
MAX_RUNS = 1 << 53
WRITE_EVERY_S = 5.0


def nearest_octave(n: int) -> int:
    """Return the exponent of the power of two nearest to n; n below 1 counts as 1."""
    return round(math.log2(max(1, n)))


@lru_cache(256)
def _bucket_key(bucket: Bucket) -> str:
    """Return the bucket's key in the file."""
    return json.dumps(bucket)


@dataclass(frozen=True, slots=True)
class BucketCorrection:
    """Mean log ratio of measured to predicted time, and the number of runs it rests
    on.
    """

    log_ratio: float
    runs: int

    def with_run(self, log_ratio: float) -> BucketCorrection:
        """Return the mean with one more run: plain at first, later exponentially
        weighted.
        """
        weight = max(NEW_RUN_WEIGHT, 1.0 / (self.runs + 1))
        mean = self.log_ratio + weight * (log_ratio - self.log_ratio)
        return BucketCorrection(mean, self.runs + 1)


NO_CORRECTION = BucketCorrection(0.0, 0)


class CorrectionStore:
    """Correction factors by bucket. `folder` None: the current `cache_folder`."""

    def __init__(
        self,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._corrections: OrderedDict[str, BucketCorrection] = OrderedDict()
        self._changed_keys: set[str] = set()
        self._is_loaded = False
        self._last_write_s = -math.inf
        self._lock = ForkSafeLock()

    @property
    def path(self) -> Path | None:
        """Path of the file; None where there is no cache folder."""
        folder = self._folder if self._folder is not None else cache_folder()
        return None if folder is None else folder / FILE_NAME

    def factor(self, bucket: Bucket) -> float:
        """Return the factor to multiply a prediction by; 1.0 for a bucket never
        observed.
        """
        correction = self._correction(bucket)
        return math.exp(
            correction.log_ratio * correction.runs / (correction.runs + HALF_TRUST_RUNS)
        )

    def run_count(self, bucket: Bucket) -> int:
        """Return the number of runs that the bucket's factor rests on."""
        return self._correction(bucket).runs

    def _correction(self, bucket: Bucket) -> BucketCorrection:
        """Return the correction of a bucket."""
        with self._lock:
            self._load()
            return self._corrections.get(_bucket_key(bucket), NO_CORRECTION)

    def record_run(
        self, bucket: Bucket, predicted_ns: float, measured_ns: float
    ) -> None:
        """Record one observed run; predicted_ns is the model's own, uncorrected.

        Times that are not positive and finite are ignored.
        """
        if not (0 < predicted_ns < math.inf and 0 < measured_ns < math.inf):
            return
        max_log_ratio = math.log(MAX_FACTOR)
        log_ratio = min(
            max_log_ratio,
            max(-max_log_ratio, math.log(measured_ns) - math.log(predicted_ns)),
        )
        key = _bucket_key(bucket)
        with self._lock:
            self._load()
            correction = self._corrections.pop(key, NO_CORRECTION)
            self._corrections[key] = correction.with_run(log_ratio)
            self._changed_keys.add(key)
            while len(self._corrections) > MAX_BUCKETS:
                self._corrections.popitem(last=False)
            if self._clock() - self._last_write_s < WRITE_EVERY_S:
                return
        self.write()

    def write(self) -> None:
        """Write the changed corrections into the file, merged with those other
        processes wrote.
        """
        with self._lock:
            path = self.path
            self._last_write_s = self._clock()
            if path is None or not self._changed_keys:
                return
            merged = _parse_document(read_json(path))
            for key, correction in self._corrections.items():  # the oldest first
                if key in self._changed_keys:
                    merged.pop(key, None)
                    merged[key] = correction
            while len(merged) > MAX_BUCKETS:
                merged.popitem(last=False)
            rows = [[key, entry.log_ratio, entry.runs] for key, entry in merged.items()]
            if write_json(path, {"schema": SCHEMA, "buckets": rows}):
                self._changed_keys.clear()

    def clear(self) -> None:
        """Drop the corrections in memory that are not yet written."""
        with self._lock:
            self._corrections.clear()
            self._changed_keys.clear()
            self._is_loaded = False

    def _load(self) -> None:
        """Read the file once."""
        if self._is_loaded:
            return
        self._is_loaded = True
        path = self.path
        if path is not None:
            stored = _parse_document(read_json(path))
            stored.update(self._corrections)
            self._corrections = stored


def _parse_document(document: Any) -> OrderedDict[str, BucketCorrection]:
    """Return the buckets of a file; none when any of it is invalid."""
    buckets: OrderedDict[str, BucketCorrection] = OrderedDict()
    max_log_ratio = math.log(MAX_FACTOR) + 1e-9
    try:
        is_valid = document["schema"] == SCHEMA
        for key, log_ratio, runs in document["buckets"]:
            buckets[key] = correction = BucketCorrection(float(log_ratio), int(runs))
            is_in_range = (
                abs(correction.log_ratio) <= max_log_ratio
                and 1 <= correction.runs <= MAX_RUNS
            )
            is_valid = is_valid and is_in_range and isinstance(key, str)
    except (KeyError, TypeError, ValueError, OverflowError):
        is_valid = False
    return buckets if is_valid else OrderedDict()


corrections = CorrectionStore()
atexit.register(corrections.write)
