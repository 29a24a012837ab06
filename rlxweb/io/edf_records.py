"""How a recording is cut into the data records of an EDF file.

All records last equally long, hold whole samples of every rate, and say how long they
are in eight characters. Owns the search for such a length: the one that pads the last
record least, at a rate that is exact, or nearly so where exact ones would pad much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.errors import UsageError
from rlxweb.io.recording import Group

_WIDTH: Final = 8
_MOST_RECORDS: Final = 99_999_999
_MOST_NBYTES: Final = 1 << 20
"""Of a record: readers hold one at a time, and some refuse long ones."""
_NEAR: Final = 1e-6
_MOST_PADDING: Final = 0.01
"""Padding, as a share of all samples, from which a less exact rate is tried."""
_RATE_ERRORS: Final = (1e-9, 1e-7, _NEAR)
"""Relative errors of a rate, tried in turn. `open_recording` takes rates within the
first for equal; a further one is tried only where all records of the one before pad
the recording by more than `_MOST_PADDING` and by a second or more."""
_SHORTEST_S: Final = 0.1
"""The least duration of a record in a file of many, each of which stores its time."""
_FEW_RECORDS: Final = 2048
"""The most records that may be shorter: their times take 60 KB."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the data records are.

    text      their length in seconds, as the header says it
    samples   of each channel of each group, in one record
    rates     that a reader finds so, in Hz
    """

    n_records: int
    text: str
    samples: tuple[int, ...]

    @property
    def record_s(self) -> float:
        return float(self.text)

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(n / self.record_s for n in self.samples)


def cut_of(groups: Sequence[Group], width: int, doing: str) -> Cut:
    """The records for these groups, as near to a second as may be.

    width    bytes of a sample
    Errors   UsageError for rates that no length fits, and for too many records
    """
    first = groups[0]
    per_s = width * sum(group.fs * len(group.channels) for group in groups)
    # A second at least: a recording of a few samples fills a part of it.
    wanted = max(first.n_samples, math.ceil(min(first.fs, _MOST_NBYTES)))
    longest = max(1, min(wanted, int(_MOST_NBYTES / per_s * first.fs)))
    samples = np.arange(1, longest + 1)
    record_s = _told(samples / first.fs)
    off, others = np.zeros(longest), []
    for group in groups:
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.rint(record_s * group.fs)
            rate = own / record_s / group.fs
        off = np.maximum(off, np.nan_to_num(np.abs(rate - 1), nan=np.inf))
        others.append(np.nan_to_num(own, posinf=0).astype(np.int64))
    at = _best(groups, others, off, record_s)
    if off[at] > _NEAR:
        rates = ", ".join(f"{group.fs:.10g}" for group in groups)
        raise UsageError(
            doing,
            f"no length of a data record holds whole samples at {rates} Hz",
            f"in eight characters and {_MOST_NBYTES} bytes; the nearest is off by "
            f"{off[at]:.2g}, and {_NEAR:g} is allowed",
            "bring all to one rate (resample), or write the rates apart",
        )
    own_samples = tuple(int(own[at]) for own in others)
    n_records = max(
        -(-group.n_samples // n) for group, n in zip(groups, own_samples, strict=True)
    )
    if n_records > _MOST_RECORDS:
        raise UsageError(
            doing,
            f"it would take {n_records} data records",
            f"an EDF file has at most {_MOST_RECORDS}",
            "write .npz, or a stretch of it",
        )
    return Cut(n_records, _text(float(record_s[at])), own_samples)


def _best(
    groups: Sequence[Group],
    others: Sequence[NDArray[np.int64]],
    off: NDArray[np.float64],
    record_s: NDArray[np.float64],
) -> int:
    """The index of the length that pads least among those with the most exact rate.

    Of lengths that pad alike it is the one nearest to a second. The index of the
    smallest error where no rate is near enough.
    """
    records, missing = _padding(groups, others)
    each_s = sum(group.fs * len(group.channels) for group in groups)
    total = sum(group.n_samples * len(group.channels) for group in groups)
    away = np.abs(np.log(np.maximum(record_s, 1e-12)))
    best = None
    for most_off in _RATE_ERRORS:
        is_near = (off <= most_off) & np.isfinite(record_s)
        able = is_near & ((record_s >= _SHORTEST_S) | (records <= _FEW_RECORDS))
        able = able if able.any() else is_near
        if not able.any():
            continue
        least = missing[able].min()
        if best is None or least < missing[best]:
            fewest = able & (missing == least)
            best = int(np.argmin(np.where(fewest, away, np.inf)))
        if least <= _MOST_PADDING * total or least < each_s:
            break
    return int(np.argmin(off)) if best is None else best


def _padding(
    groups: Sequence[Group], samples: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for each length, the number of records and that of samples left over.

    Samples are those that fill up the last records, of all channels.
    """
    records = np.zeros(len(samples[0]), np.int64)
    for group, own in zip(groups, samples, strict=True):
        records = np.maximum(records, -(-group.n_samples // np.maximum(own, 1)))
    missing = np.zeros_like(records)
    for group, own in zip(groups, samples, strict=True):
        missing += (records * own - group.n_samples) * len(group.channels)
    return records, missing


def _told(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """As eight characters say them: a point, and a digit before it at least."""
    digits = np.floor(np.log10(np.maximum(seconds, 1.0))) + 1
    out = np.full_like(seconds, np.inf)  # what is longer is no length
    for count in np.unique(digits[digits <= _WIDTH]):
        own = digits == count
        out[own] = np.round(seconds[own], _decimals(int(count)))
    return out


def _decimals(digits: int) -> int:
    """How many there is room for behind so many digits and a point."""
    return max(0, _WIDTH - 1 - digits)


def _text(seconds: float) -> str:
    text = f"{seconds:.{_decimals(len(str(int(seconds))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
