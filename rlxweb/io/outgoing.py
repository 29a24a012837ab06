"""What is on its way into a file, and what the file will not hold of it.

The seam between `writing`, which knows what a caller gave, and the writers of the
formats. Owns the walk in blocks; a writer hands its bytes to an open file in order.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.errors import NotFinite, UsageError
from rlxweb.io.annotations import Annotation
from rlxweb.io.recording import Group, check_finite

BLOCK_BYTES: Final = 8 << 20
"""Of the samples that are held at once, as float64."""


@dataclass(frozen=True, slots=True)
class WrittenChannel:
    """A channel as it stands in the file.

    Attributes
    ----------
    name : str
        The recording's name of it.
    label : str
        What the file calls it.
    unit : str
        The unit in which the file has it.
    step : float
        From one value the file can hold to the next, in that unit; 0 for floats.
    error : float
        The largest difference between a sample and what was written, in that unit.
    """

    name: str
    label: str
    unit: str
    step: float = 0.0
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """The channels of one rate, as the file has them.

    Attributes
    ----------
    fs : float
        The sampling rate in Hz.
    n_samples : int
        The number of samples of each channel, padding included.
    channels : tuple of WrittenChannel
        The channels.
    """

    fs: float
    n_samples: int
    channels: tuple[WrittenChannel, ...]


def unchanged(group: Group) -> WrittenGroup:
    """Return a group of which the file holds every sample as it is read."""
    channels = tuple(WrittenChannel(c.name, c.name, c.unit) for c in group.channels)
    return WrittenGroup(group.fs, group.n_samples, channels)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Groups of channels with what was noted beside them.

    doing       for messages: which file is written
    kind        the format, as its suffix without the point
    notes       onsets count from the first sample that is written
    begun       the time of day of that sample, in seconds; None: unknown
    date        the day of it
    bits        of an integer, where the format leaves that open; None: its default
    full_scale  the value that the largest integer stands for; None: the data decides
    step        is told after each block how many samples it had
    lost        what the file holds differently or not at all, each a sentence; writers
                add to it, and the caller warns of each
    """

    doing: str
    kind: str
    groups: tuple[Group, ...]
    notes: tuple[Annotation, ...]
    begun: float | None
    date: datetime.date | None
    bits: int | None
    full_scale: float | None
    step: Callable[[int], object] = bool
    lost: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The name of the format, for messages."""
        return self.kind.upper()

    @property
    def group(self) -> Group:
        """The one group of a format that holds no more."""
        (one,) = self.groups
        return one

    def blocks(self, group: Group) -> Iterator[tuple[int, NDArray[Any]]]:
        """The first sample of each block, and its values (C, T) in physical units."""
        size = max(1, BLOCK_BYTES // (8 * len(group.channels)))
        for block in group.blocks(size):
            yield block.start, block.data
            self.step(block.data.size)

    def loses(self, *what: str) -> None:
        """Say which of these the file does not hold, of those that there are."""
        there = {
            "names": any(c.label for g in self.groups for c in g.channels),
            "units": any(c.unit for g in self.groups for c in g.channels),
            "begun": self.begun is not None,
            "date": self.date is not None,
            "annotations": bool(self.notes),
        }
        gone = [_LOSSES[one] for one in what if there[one]]
        if gone:
            self.lost.append(f"without {', '.join(gone)}")


_LOSSES: Final = {
    "names": "the channels' names",
    "units": "their units",
    "begun": "the time of day",
    "date": "the date",
    "annotations": "the annotations",
}


def check_numbers(
    data: NDArray[Any], group: Group, start: int, going: Outgoing
) -> None:
    """Raise NotFinite for what no integer stands for, naming channel and sample."""
    try:
        check_finite(data, group, start)
    except NotFinite as error:
        of = f"{going.title} of {going.bits} bits" if going.bits else going.title
        error.doing, error.problem = going.doing, f"{error.doing}: {error.problem}"
        error.rule = f"{of} holds integers, and none of them stands for that"
        error.hint = "leave the channel out, or write .npz or .parquet"
        raise


def check_scale(
    data: NDArray[Any], group: Group, start: int, full_scale: float, doing: str
) -> None:
    """Raise UsageError for a sample beyond full scale, naming the first."""
    beyond = np.abs(data) > full_scale
    if not beyond.any():
        return
    at = int(np.argmax(beyond.any(axis=0)))
    row = int(np.argmax(beyond[:, at]))
    channel, sample = group.channels[row], group.first + start + at
    unit = f" {channel.unit}" if channel.unit else ""
    raise UsageError(
        doing,
        f"channel {channel.name!r} is {data[row, at]:.6g}{unit} at sample {sample} "
        f"({sample / group.fs:.3f} s)",
        f"full scale is {full_scale:g}{unit}",
        Advice("give a wider {}, or write floats", full_scale=Blank("VALUE")),
    )


class Exactness:
    """How far the samples of a file are from those that were given.

    error      of each channel, the largest difference
    n_clipped  samples that are beyond the largest integer
    """

    def __init__(self, n_channels: int) -> None:
        self.error = np.zeros(n_channels)
        self.n_clipped = 0

    def note(self, given: NDArray[Any], written: NDArray[Any]) -> None:
        """Compare samples (C, T); what is not finite in both is no difference."""
        if not given.size:
            return
        with np.errstate(invalid="ignore"):
            if given.dtype.kind in "iu" and given.dtype.itemsize == 8:
                apart = np.abs(_of_64_bits(given, written))
            else:
                apart = np.abs(np.subtract(given, written, dtype=np.float64))
        np.nan_to_num(apart, copy=False, nan=0.0, posinf=np.inf)
        np.maximum(self.error, apart.max(axis=1), out=self.error)


_HALF: Final = 32


def _of_64_bits(given: NDArray[Any], written: NDArray[Any]) -> NDArray[np.float64]:
    """Return integers less floats; no float64 tells all integers beyond 2**53 apart.

    The upper and the lower halves of both are subtracted by themselves, exactly.
    """
    values = np.asarray(written, np.float64)
    upper = np.floor(np.ldexp(values, -_HALF))
    lower = values - np.ldexp(upper, _HALF)
    above = (given >> _HALF).astype(np.float64) - upper
    below = (given & ((1 << _HALF) - 1)).astype(np.float64) - lower
    return np.asarray(np.ldexp(above, _HALF) + below, np.float64)
