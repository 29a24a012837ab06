"""Job of writing a recording: groups, metadata and options, and the losses of the
format.

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

from rlxweb.core.errors import NotFinite, UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io.annotations import Annotation
from rlxweb.io.recording import Group, check_finite

BLOCK_NBYTES: Final = 8 << 20
"""Size of the samples held at once, as float64."""


@dataclass(frozen=True, slots=True)
class WrittenChannel:
    """Channel as the file holds it.

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
    """Channels of one rate, as the file holds them.

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


def unchanged_group(group: Group) -> WrittenGroup:
    """Return the report of a group whose samples the file holds exactly."""
    channels = tuple(WrittenChannel(c.name, c.name, c.unit) for c in group.channels)
    return WrittenGroup(group.fs, group.n_samples, channels)


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Groups of channels to write, with their annotations, start time and options.

    context     for messages: which file is written
    format_name  the format, as its suffix without the point
    annotations  onsets count from the first sample that is written
    begun       the time of day of that sample, in seconds; None: unknown
    date        the day of it
    bits        of an integer, where the format leaves that open; None: its default
    full_scale  the value that the largest integer stands for; None: the data decides
    report_progress  is told after each block how many samples it had
    losses      what the file holds differently or not at all, each a sentence; writers
                add to it, and the caller warns of each
    """

    context: str
    format_name: str
    groups: tuple[Group, ...]
    annotations: tuple[Annotation, ...]
    begun: float | None
    date: datetime.date | None
    bits: int | None
    full_scale: float | None
    report_progress: Callable[[int], object] = bool
    losses: list[str] = field(default_factory=list)

    @property
    def format_label(self) -> str:
        """Name of the format, for messages."""
        return self.format_name.upper()

    @property
    def group(self) -> Group:
        """Only group of the job, for formats that hold one."""
        (group,) = self.groups
        return group

    def blocks(self, group: Group) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the first sample of each block, and its values (C, T) in physical
        units.
        """
        size = max(1, BLOCK_NBYTES // (8 * len(group.channels)))
        for block in group.blocks(size):
            yield block.start, block.data
            self.report_progress(block.data.size)

    def record_losses(self, *parts: str) -> None:
        """Record which of these parts of the recording the file does not hold."""
        is_present = {
            "names": any(c.label for g in self.groups for c in g.channels),
            "units": any(c.unit for g in self.groups for c in g.channels),
            "begun": self.begun is not None,
            "date": self.date is not None,
            "annotations": bool(self.annotations),
        }
        missing = [_PART_NAMES[part] for part in parts if is_present[part]]
        if missing:
            self.losses.append(f"not stored: {', '.join(missing)}")


_PART_NAMES: Final = {
    "names": "the channel names",
    "units": "the units",
    "begun": "the start time",
    "date": "the date",
    "annotations": "the annotations",
}


def check_integers_finite(
    data: NDArray[Any], group: Group, start: int, job: WriteJob
) -> None:
    """Raise NotFinite for a sample that no integer can represent, with its channel and
    index.
    """
    try:
        check_finite(data, group, start)
    except NotFinite as error:
        format_text = (
            f"{job.bits}-bit {job.format_label}" if job.bits else job.format_label
        )
        error.doing, error.problem = job.context, f"{error.doing}: {error.problem}"
        error.rule = f"{format_text} stores integers, which cannot represent this value"
        error.hint = "exclude the channel, or write .npz or .parquet"
        raise


def check_full_scale(
    data: NDArray[Any], group: Group, start: int, full_scale: float, context: str
) -> None:
    """Raise UsageError for the first sample beyond full scale."""
    is_beyond = np.abs(data) > full_scale
    if not is_beyond.any():
        return
    column = int(np.argmax(is_beyond.any(axis=0)))
    row = int(np.argmax(is_beyond[:, column]))
    channel, sample = group.channels[row], group.first + start + column
    unit = f" {channel.unit}" if channel.unit else ""
    raise UsageError(
        context,
        f"channel {channel.name!r} is {data[row, column]:.6g}{unit} at sample {sample} "
        f"({sample / group.fs:.3f} s)",
        f"full scale is {full_scale:g}{unit}",
        Advice("pass a larger {}, or write floats", full_scale=Blank("VALUE")),
    )


class WriteErrorTracker:
    """Tracker of the largest differences between written and original samples.

    max_error  of each channel, the largest difference
    n_clipped  samples that are beyond the largest integer
    """

    def __init__(self, n_channels: int) -> None:
        self.max_error = np.zeros(n_channels)
        self.n_clipped = 0

    def update(self, original: NDArray[Any], written: NDArray[Any]) -> None:
        """Compare samples (C, T); values that are not finite in both count as equal."""
        if not original.size:
            return
        with np.errstate(invalid="ignore"):
            if original.dtype.kind in "iu" and original.dtype.itemsize == 8:
                difference = np.abs(_subtract_from_int64(original, written))
            else:
                difference = np.abs(np.subtract(original, written, dtype=np.float64))
        np.nan_to_num(difference, copy=False, nan=0.0, posinf=np.inf)
        np.maximum(self.max_error, difference.max(axis=1), out=self.max_error)


_HALF_BITS: Final = 32


def _subtract_from_int64(
    integers: NDArray[Any], written: NDArray[Any]
) -> NDArray[np.float64]:
    """Return 64-bit integers minus floats, exactly even beyond 2**53.

    The upper and the lower halves of both are subtracted by themselves, exactly.
    """
    values = np.asarray(written, np.float64)
    upper = np.floor(np.ldexp(values, -_HALF_BITS))
    lower = values - np.ldexp(upper, _HALF_BITS)
    upper_difference = (integers >> _HALF_BITS).astype(np.float64) - upper
    lower_difference = (integers & ((1 << _HALF_BITS) - 1)).astype(np.float64) - lower
    return np.asarray(
        np.ldexp(upper_difference, _HALF_BITS) + lower_difference, np.float64
    )
