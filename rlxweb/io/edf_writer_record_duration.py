"""Choice of the duration of the data records of an EDF file to be written.

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

from rlxweb.core.errors import UsageError
from rlxweb.io.recording import Group

_FIELD_WIDTH: Final = 8
_MAX_RECORDS: Final = 99_999_999
_MAX_RECORD_NBYTES: Final = 1 << 20
"""Maximum bytes of a data record: readers hold one at a time, and some refuse long
ones.
"""
_MAX_RATE_ERROR: Final = 1e-6
_MAX_PADDING_SHARE: Final = 0.01
"""Padding, as a share of all samples, above which a less exact rate is tried."""
_RATE_ERRORS: Final = (1e-9, 1e-7, _MAX_RATE_ERROR)
"""Relative errors of a rate, tried in turn. `open_recording` takes rates within the
first for equal; a further one is tried only where all records of the one before pad
the recording by more than `_MAX_PADDING_SHARE` and by a second or more."""
_MIN_RECORD_S: Final = 0.1
"""Minimum duration of a record in a file of many records, each of which stores its
time.
"""
_MAX_SHORT_RECORDS: Final = 2048
"""Maximum number of records that may be shorter: their times take 60 KB."""


@dataclass(frozen=True, slots=True)
class EdfRecordLayout:
    """Layout of the data records of a file.

    duration_text  their length in seconds, as the header says it
    samples_per_record  of each channel of each group, in one record
    rates     that a reader finds so, in Hz
    """

    n_records: int
    duration_text: str
    samples_per_record: tuple[int, ...]

    @property
    def record_s(self) -> float:
        """Return the duration of a record in seconds."""
        return float(self.duration_text)

    @property
    def rates(self) -> tuple[float, ...]:
        """Return the rates that a reader computes from the layout, in Hz."""
        return tuple(n / self.record_s for n in self.samples_per_record)


def choose_record_layout(
    groups: Sequence[Group], sample_nbytes: int, context: str
) -> EdfRecordLayout:
    """Choose records for these groups, as near to one second as possible.

    sample_nbytes  bytes of a sample
    Errors   UsageError for rates that no length fits, and for too many records
    """
    first = groups[0]
    nbytes_per_second = sample_nbytes * sum(
        group.fs * len(group.channels) for group in groups
    )
    # A second at least: a recording of a few samples fills a part of it.
    target_samples = max(first.n_samples, math.ceil(min(first.fs, _MAX_RECORD_NBYTES)))
    longest = max(
        1, min(target_samples, int(_MAX_RECORD_NBYTES / nbytes_per_second * first.fs))
    )
    samples = np.arange(1, longest + 1)
    record_s = _round_to_field(samples / first.fs)
    rate_errors, samples_by_group = np.zeros(longest), []
    for group in groups:
        with np.errstate(divide="ignore", invalid="ignore"):
            rounded_samples = np.rint(record_s * group.fs)
            rate = rounded_samples / record_s / group.fs
        rate_errors = np.maximum(
            rate_errors, np.nan_to_num(np.abs(rate - 1), nan=np.inf)
        )
        samples_by_group.append(
            np.nan_to_num(rounded_samples, posinf=0).astype(np.int64)
        )
    best = _best_duration_index(groups, samples_by_group, rate_errors, record_s)
    if rate_errors[best] > _MAX_RATE_ERROR:
        rates = ", ".join(f"{group.fs:.10g}" for group in groups)
        raise UsageError(
            context,
            "no data record duration gives a whole number of samples at every rate "
            f"({rates} Hz)",
            "the best duration has a relative rate error of "
            f"{rate_errors[best]:.2g}, the limit is {_MAX_RATE_ERROR:g} (a duration "
            f"has at most {_FIELD_WIDTH} characters, a record at most "
            f"{_MAX_RECORD_NBYTES} bytes)",
            "resample all channels to one rate, or write one file per rate",
        )
    samples_per_record = tuple(
        int(rounded_samples[best]) for rounded_samples in samples_by_group
    )
    n_records = max(
        -(-group.n_samples // record_samples)
        for group, record_samples in zip(groups, samples_per_record, strict=True)
    )
    if n_records > _MAX_RECORDS:
        raise UsageError(
            context,
            f"the file needs {n_records} data records",
            f"EDF supports at most {_MAX_RECORDS}",
            "write .npz, or a shorter part of the recording",
        )
    return EdfRecordLayout(
        n_records, _format_duration(float(record_s[best])), samples_per_record
    )


def _best_duration_index(
    groups: Sequence[Group],
    samples_by_group: Sequence[NDArray[np.int64]],
    rate_errors: NDArray[np.float64],
    record_s: NDArray[np.float64],
) -> int:
    """Return the index of the duration that pads least among those with the most exact
    rate.

    Of lengths that pad alike it is the one nearest to a second. The index of the
    smallest error where no rate is near enough.
    """
    records, padding = _record_padding(groups, samples_by_group)
    samples_per_second = sum(group.fs * len(group.channels) for group in groups)
    total = sum(group.n_samples * len(group.channels) for group in groups)
    distance_from_second = np.abs(np.log(np.maximum(record_s, 1e-12)))
    best = None
    for max_error in _RATE_ERRORS:
        is_near = (rate_errors <= max_error) & np.isfinite(record_s)
        is_candidate = is_near & (
            (record_s >= _MIN_RECORD_S) | (records <= _MAX_SHORT_RECORDS)
        )
        is_candidate = is_candidate if is_candidate.any() else is_near
        if not is_candidate.any():
            continue
        min_padding = padding[is_candidate].min()
        if best is None or min_padding < padding[best]:
            has_min_padding = is_candidate & (padding == min_padding)
            best = int(
                np.argmin(np.where(has_min_padding, distance_from_second, np.inf))
            )
        if (
            min_padding <= _MAX_PADDING_SHARE * total
            or min_padding < samples_per_second
        ):
            break
    return int(np.argmin(rate_errors)) if best is None else best


def _record_padding(
    groups: Sequence[Group], samples_by_group: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for each duration, the number of records and the number of padding
    samples.

    Samples are those that fill up the last records, of all channels.
    """
    records = np.zeros(len(samples_by_group[0]), np.int64)
    for group, record_samples in zip(groups, samples_by_group, strict=True):
        records = np.maximum(
            records, -(-group.n_samples // np.maximum(record_samples, 1))
        )
    padding = np.zeros_like(records)
    for group, record_samples in zip(groups, samples_by_group, strict=True):
        padding += (records * record_samples - group.n_samples) * len(group.channels)
    return records, padding


def _round_to_field(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round seconds to eight characters: at least one digit, a point and decimals."""
    digits = np.floor(np.log10(np.maximum(seconds, 1.0))) + 1
    out = np.full_like(seconds, np.inf)  # what is longer is no length
    for count in np.unique(digits[digits <= _FIELD_WIDTH]):
        has_digits = digits == count
        out[has_digits] = np.round(seconds[has_digits], _max_decimals(int(count)))
    return out


def _max_decimals(digits: int) -> int:
    """Return the number of decimals that fit behind so many digits and a point."""
    return max(0, _FIELD_WIDTH - 1 - digits)


def _format_duration(seconds: float) -> str:
    """Format a duration in at most eight characters."""
    text = f"{seconds:.{_max_decimals(len(str(int(seconds))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
