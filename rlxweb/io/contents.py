"""What a format reader hands over: the channels it found and how to read them.

The seam between the formats (edf, wav, npy, csv_table) and the recording the user sees.
A format says what is in the file; which channels are taken, what they are called and
what rate holds is decided above, in `channels` and `dispatch`.
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

Layout = Literal["channels-first", "samples-first"]
Span = tuple[int, int]
"""Samples [start, stop)."""

LAYOUTS: tuple[Layout, ...] = ("channels-first", "samples-first")
"""Of a 2-D array: which axis is which."""


class SampleReader(Protocol):
    """Reads a range of samples of some channels of one stream."""

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Samples [start, stop) of the channels with these file indices, (C, T).

        As the stream says: integers of `digital`, or else values of `dtype`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """One channel as it stands in the file.

    label    the file's own label, may be empty or shared
    why_not  why it is not taken by default; empty for an ordinary channel
    nameable False when it holds no samples that could be taken even by name
    gain     a digital sample stands for gain · (sample + offset), in `unit`
    doubt    a warning to who takes it; empty for an ordinary channel
    """

    label: str
    unit: str = ""
    why_not: str = ""
    nameable: bool = True
    gain: float = 1.0
    offset: float = 0.0
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Findings about the times beside the samples that give no certain rate.

    problem   whose they are and what is wrong with them
    rates     Hz that they speak for all the same, the likeliest first; empty where
              they were not understood
    """

    problem: str
    rates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """Channels that share a rate and a length.

    members   indices into `Contents.channels`
    fs        samples per second, None when the file does not say
    dtype     of the samples in physical units
    tolerance how far a rate the caller gives may lie from `fs`, relative
    digital   of the integers its reader gives, where none has more than 24 bits; None
              where it gives physical values
    guess     why `fs` is a guess, which a rate the caller gives replaces
    gaps      samples that were never recorded, in order, none at an end: `n_samples`
              counts them, and its reader gives zeros there, of which a group makes NaN
    timing    of a clock that gives no certain rate; None of a sound one, and of none
    """

    members: tuple[int, ...]
    fs: float | None
    n_samples: int
    dtype: np.dtype[np.generic]
    reader: SampleReader
    tolerance: float = 1e-9
    digital: np.dtype[Any] | None = None
    guess: str = ""
    gaps: tuple[Span, ...] = ()
    timing: Timing | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything one file holds.

    format    "EDF", "BDF+C", "WAV", "NPY", "CSV" …
    rate_note why the rate is unknown, where the file came close to telling it
    begun     the time of day at the first sample, in seconds; None: it does not tell
    date      the day of it
    notes     reads what was noted beside the signal
    """

    format: str
    channels: tuple[Found, ...]
    streams: tuple[Stream, ...]
    rate_note: str = ""
    begun: float | None = None
    notes: Callable[[], tuple[Annotation, ...]] = tuple
    date: datetime.date | None = None


def spans_between(gaps: Sequence[Span], n_samples: int) -> tuple[Span, ...]:
    """What lies between the gaps in 0 … n_samples; nothing empty."""
    begins = [0, *(stop for _, stop in gaps)]
    ends = [*(start for start, _ in gaps), n_samples]
    return tuple((a, b) for a, b in zip(begins, ends, strict=True) if a < b)


def listed(names: Iterable[str]) -> str:
    """Names of arrays in a message: the first few."""
    some = [*names]
    rest = f", … and {len(some) - 12} more" if len(some) > 12 else ""
    return (", ".join(repr(name[:60]) for name in some[:12]) or "none") + rest
