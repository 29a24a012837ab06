"""Interface between format readers and recordings: the channels of a file and how to
read them.

The seam between the formats (`edf_reader.py`, `csv_reader.py` …) and the recording the
user sees. A format says what is in the file; which channels are taken, what they are
called and what rate holds is decided above, in `channel_selection.py` and
`recording_reader.py`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from rlxweb.io.annotations import Annotation

Samples = npt.NDArray[np.generic]

ArrayLayout = Literal["channels-first", "samples-first"]
Span = tuple[int, int]
"""Range of samples [start, stop)."""

ARRAY_LAYOUTS: tuple[ArrayLayout, ...] = ("channels-first", "samples-first")
"""Layouts of a 2-D array: which axis holds the channels and which the samples."""


class SampleReader(Protocol):
    """Reader of a range of samples of some channels of one stream."""

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) of the channels with these file indices, (C, T).

        As the stream says: integers of `digital`, or else values of `dtype`.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileChannel:
    """One channel of a file.

    label    the file's own label, may be empty or shared
    exclusion_reason  why it is not taken by default; empty for an ordinary channel
    nameable False when it holds no samples that could be taken even by name
    gain     a digital sample stands for gain · (sample + offset), in `unit`
    warning  a warning to who takes it; empty for an ordinary channel
    """

    label: str
    unit: str = ""
    exclusion_reason: str = ""
    is_selectable: bool = True
    gain: float = 1.0
    offset: float = 0.0
    warning: str = ""


@dataclass(frozen=True, slots=True)
class UncertainTiming:
    """Times in a file that give no certain rate.

    problem   whose they are and what is wrong with them
    rates     Hz that they speak for all the same, the likeliest first; empty where
              they were not understood
    """

    problem: str
    rates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelStream:
    """Channels of a file that share a rate and a length.

    channel_indices  indices into `FileContents.channels`
    fs        samples per second, None when the file does not say
    dtype     of the samples in physical units
    tolerance how far a rate the caller gives may lie from `fs`, relative
    digital   of the integers its reader gives, where none has more than 24 bits; None
              where it gives physical values
    guess_reason  why `fs` is a guess, which a rate the caller gives replaces
    gaps      samples that were never recorded, in order, none at an end: `n_samples`
              counts them, and its reader gives zeros there, of which a group makes NaN
    uncertain_timing  of a clock that gives no certain rate; None of a sound one, and of
                      none
    """

    channel_indices: tuple[int, ...]
    fs: float | None
    n_samples: int
    dtype: np.dtype[np.generic]
    reader: SampleReader
    tolerance: float = 1e-9
    digital: np.dtype[Any] | None = None
    guess_reason: str = ""
    gaps: tuple[Span, ...] = ()
    uncertain_timing: UncertainTiming | None = None


@dataclass(frozen=True, slots=True)
class FileContents:
    """Contents of one file, as its format reader found them.

    format    "EDF", "BDF+C", "WAV", "NPY", "CSV" …
    rate_note why the rate is unknown, where the file came close to telling it
    begun     the time of day at the first sample, in seconds; None: it does not tell
    date      the day of it
    read_annotations  reads what was noted beside the signal
    """

    format: str
    channels: tuple[FileChannel, ...]
    streams: tuple[ChannelStream, ...]
    rate_note: str = ""
    begun: float | None = None
    read_annotations: Callable[[], tuple[Annotation, ...]] = tuple
    date: datetime.date | None = None


def spans_between(gaps: Sequence[Span], n_samples: int) -> tuple[Span, ...]:
    """Return the non-empty spans between the gaps in 0 … n_samples."""
    begins = [0, *(stop for _, stop in gaps)]
    ends = [*(start for start, _ in gaps), n_samples]
    return tuple((a, b) for a, b in zip(begins, ends, strict=True) if a < b)


def format_names(names: Iterable[str]) -> str:
    """Return the first few names of arrays, for a message."""
    shown_names = [*names]
    rest = f", … and {len(shown_names) - 12} more" if len(shown_names) > 12 else ""
    return (", ".join(repr(name[:60]) for name in shown_names[:12]) or "none") + rest
