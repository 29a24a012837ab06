"""Recordings as the user sees them: groups of channels, read in blocks.

Owns Channel, Group, Block, Recording and the finite check. Knows no file format: a
group asks its reader for a range of samples. Memory stays bounded by the block size.
"""

from __future__ import annotations

import datetime
import operator
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from rlxweb.core.adc_samples import Digital
from rlxweb.core.errors import (
    NotFinite,
    RecordingError,
    RecordingWarning,
    UsageError,
    shown,
)
from rlxweb.core.message_text import Advice
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.io import file_limits
from rlxweb.io.annotations import Annotation
from rlxweb.io.byte_source import RecordingSource
from rlxweb.io.format_reader_interface import SampleReader, Samples, Span, spans_between

if TYPE_CHECKING:
    from rlxweb.io.recording_writer import Written


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel: `name` is unique in its file, `label` is the file's own name for it.

    unit   of the samples as read ("uV"), empty when the file has none
    index  place in the file, annotation channels counted too
    gain   a digital sample of it stands for gain · (sample + offset), in `unit`
    """

    name: str
    label: str
    unit: str
    index: int
    gain: float = 1.0
    offset: float = 0.0


_MAX_GAP_RATIO: Final = 16
"""Maximum length in blocks relative to what was recorded; beyond it nearly all samples
would be NaN.
"""

_MAX_SAMPLE_INDEX: Final = 2.0**62
"""Finite index beyond the samples of any file, used in place of infinity."""

S = TypeVar("S", bound=Samples | Digital, covariant=True)


@dataclass(frozen=True, slots=True, repr=False)
class Block(Generic[S]):
    """Samples [start, start + T) of a group: `data` is (C, T)."""

    start: int
    data: S

    @property
    def stop(self) -> int:
        """Index of the first sample after the block."""
        return self.start + int(self.data.shape[1])

    def __repr__(self) -> str:
        rows = int(self.data.shape[0])
        return f"Block({self.start} to {self.stop} of {_channel_count(rows)})"


@dataclass(frozen=True, slots=True, repr=False)
class Group:
    """Selected channels of one sampling rate.

    recording  path of the file, for messages
    dtype      of what `read` gives; the values are those of the file, exactly
    digital    of the integers the file stores, where none has more than 24 bits; else
               None
    first      the file's number of its first sample
    gaps       [start, stop) of the samples that were never recorded, in order; they
               are NaN where they are read
    """

    recording: str
    fs: float
    channels: tuple[Channel, ...]
    n_samples: int
    dtype: np.dtype[np.generic]
    reader: SampleReader = field(repr=False, compare=False)
    digital: np.dtype[Any] | None = None
    first: int = 0
    gaps: tuple[Span, ...] = ()

    def __repr__(self) -> str:
        return f"Group({shown(self.recording)}: {self._summary})"

    @property
    def _summary(self) -> str:
        """Channels, rate, samples and gaps in words."""
        channel_count = _channel_count(len(self.channels))
        n_gaps = len(self.gaps)
        gaps = f", {n_gaps} gap{'s' * (n_gaps != 1)}" if n_gaps else ""
        return f"{channel_count} at {self.fs:g} Hz, {self.n_samples} samples{gaps}"

    @property
    def seconds(self) -> float:
        """Duration in seconds, gaps included."""
        return self.n_samples / self.fs

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the channels."""
        return tuple(channel.name for channel in self.channels)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Ranges [start, stop) that were recorded without a gap; one range if there are
        no gaps.
        """
        return spans_between(self.gaps, self.n_samples)

    @property
    def pieces(self) -> tuple[Group, ...]:
        """Ranges recorded without a gap, each as a group; the group itself if there are
        no gaps.
        """
        if not self.gaps:
            return (self,)
        return tuple(self.between(*span) for span in self.spans)

    @property
    def n_recorded(self) -> int:
        """Number of recorded samples of a channel, gaps not counted."""
        return sum(stop - start for start, stop in self.spans)

    @property
    def longest(self) -> int:
        """Number of samples of the longest range without a gap."""
        return max((stop - start for start, stop in self.spans), default=0)

    def is_whole(self, start: int, stop: int) -> bool:
        """Return whether all samples [start, stop) were recorded."""
        is_in_range = 0 <= start and stop <= self.n_samples
        return is_in_range and not any(a < stop and b > start for a, b in self.gaps)

    def between(self, start: int, stop: int) -> Group:
        """Return samples [start, stop) as a group of their own.

        Errors   UsageError for what is no whole number, and outside
                 0 <= start <= stop <= n_samples: the reader would take what lies beside
                 the samples in the file.
        """
        context = f"selecting a part of {self.recording!r}"
        start = _coerce_sample_index(context, "start", start)
        stop = _coerce_sample_index(context, "stop", stop)
        self._check_range(start, stop)
        gaps = (
            (max(a, start) - start, min(b, stop) - start)
            for a, b in self.gaps
            if a < stop and b > start
        )
        return replace(
            self,
            n_samples=stop - start,
            reader=_OffsetReader(self.reader, start),
            first=self.first + start,
            gaps=tuple(gaps),
        )

    def read(self, start: int = 0, stop: int | None = None) -> Samples:
        """Read samples [start, stop) of every channel in its unit, as a new array (C,
        T).

        Errors   UsageError outside 0 <= start <= stop <= n_samples, and where gaps
                 would fill the memory with NaN; RecordingError when the file gives no
                 samples there.
        """
        samples = self.read_stored(start, stop)
        if not isinstance(samples, Digital):
            return samples
        if self.digital == self.dtype:
            return samples.counts
        return samples.physical(self.dtype)

    def read_stored(self, start: int = 0, stop: int | None = None) -> Samples | Digital:
        """Read samples [start, stop) as they are stored: integers of at most 24 bits
        stay integers.

        So nothing is lost on a device that computes in float32. A group with gaps gives
        what `read` gives, for no integer says that there is none; its `pieces` give
        integers.
        """
        context = f"reading {self.recording!r}"
        start = _coerce_sample_index(context, "start", start)
        stop = (
            self.n_samples
            if stop is None
            else _coerce_sample_index(context, "stop", stop)
        )
        self._check_range(start, stop)
        if self.gaps:
            return self._read_with_gaps(start, stop)
        if start == stop:
            samples = np.empty((len(self.channels), 0), self.digital or self.dtype)
        else:
            indices = tuple(channel.index for channel in self.channels)
            samples = self.reader.read(indices, start, stop)
        if self.digital is None:
            return samples
        gains = [channel.gain for channel in self.channels]
        return Digital(samples, gains, [channel.offset for channel in self.channels])

    def _check_range(self, start: int, stop: int) -> None:
        """Raise UsageError unless 0 <= start <= stop <= n_samples."""
        if not 0 <= start <= stop <= self.n_samples:
            raise UsageError(
                f"reading {self.recording!r}",
                f"start is {start}, stop is {stop}",
                f"must satisfy 0 <= start <= stop <= {self.n_samples}",
                "pass a range inside the recording",
            )

    def _read_with_gaps(self, start: int, stop: int) -> Samples:
        """Read samples [start, stop) of a group with gaps, which become NaN."""
        n_missing = sum(max(0, min(b, stop) - max(a, start)) for a, b in self.gaps)
        self._check_gap_memory(n_missing, f"the samples from {start} to {stop}")
        out = np.full((len(self.channels), stop - start), np.nan, self.dtype)
        for a, b in self.spans:
            a, b = max(a, start), min(b, stop)
            if a < b:
                out[:, a - start : b - start] = self.between(a, b).read()
        return out

    def _check_gap_memory(self, n_missing: int, range_text: str) -> None:
        """Raise UsageError if the missing samples would fill too much memory with
        NaN.
        """
        nbytes = n_missing * len(self.channels) * self.dtype.itemsize
        if nbytes > file_limits.GAP_NBYTES:
            raise UsageError(
                f"reading {self.recording!r}",
                f"{n_missing} of {range_text} are missing (in gaps of the recording)",
                f"missing samples need {nbytes} bytes of NaN, the limit is "
                f"{file_limits.GAP_NBYTES} bytes",
                "read the `pieces` of the group, or a shorter range",
            )

    def blocks(self, n_samples: int, overlap: int = 0) -> Iterator[Block[Samples]]:
        """Iterate over the group in blocks of `n_samples`; each repeats the last
        `overlap` samples.

        The last block may be shorter. Windows of `nperseg` samples every `hop` are
        seen once each with n_samples = nperseg + m * hop, overlap = nperseg - hop.

        Errors   UsageError unless n_samples >= 1 and 0 <= overlap < n_samples.
        """
        return (
            Block(a, self.read(a, b)) for a, b in self._block_spans(n_samples, overlap)
        )

    def stored_blocks(
        self, n_samples: int, overlap: int = 0
    ) -> Iterator[Block[Samples | Digital]]:
        """Iterate over the group in blocks, as `blocks` does, with samples as
        `read_stored` gives them.
        """
        spans = self._block_spans(n_samples, overlap)
        return (Block(a, self.read_stored(a, b)) for a, b in spans)

    def _block_spans(self, n_samples: int, overlap: int) -> Iterator[tuple[int, int]]:
        """Validate block length and overlap, and return start and stop of each
        block.
        """
        context = f"reading {self.recording!r} in blocks"
        n_samples = _coerce_sample_index(context, "n_samples", n_samples)
        overlap = _coerce_sample_index(context, "overlap", overlap)
        if n_samples < 1 or not 0 <= overlap < n_samples:
            raise UsageError(
                context,
                f"n_samples is {n_samples}, overlap is {overlap}",
                "must satisfy n_samples >= 1 and 0 <= overlap < n_samples",
                "use longer blocks, or omit overlap",
            )
        if self.gaps and self.n_samples > _MAX_GAP_RATIO * self.n_recorded:
            n_missing = self.n_samples - self.n_recorded
            self._check_gap_memory(n_missing, f"{self.n_samples} samples")
        return self._iterate_spans(n_samples, overlap)

    def _iterate_spans(self, n_samples: int, overlap: int) -> Iterator[tuple[int, int]]:
        """Yield start and stop of each block."""
        start = 0
        while True:
            stop = min(start + n_samples, self.n_samples)
            yield start, stop
            if stop == self.n_samples:
                return
            start = stop - overlap


def nearest_sample_index(seconds: float, fs: float) -> int:
    """Return the index of the sample nearest to a moment, limited to ±2**62."""
    return round(min(max(seconds * fs, -_MAX_SAMPLE_INDEX), _MAX_SAMPLE_INDEX))


@dataclass(frozen=True, slots=True)
class _OffsetReader:
    """Reader of a stream as if it began at sample `first_sample`."""

    reader: SampleReader
    first_sample: int

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Read samples relative to `first_sample` (see SampleReader)."""
        return self.reader.read(
            channels, self.first_sample + start, self.first_sample + stop
        )


@dataclass(frozen=True, slots=True, repr=False)
class Recording:
    """Open recording and context manager that closes it.

    format    what the file proved to be ("EDF+C", "WAV", "NPY", "CSV" …)
    groups    one per rate, in the order the rates appear in the file; none of a file
              that holds annotations alone, as those of sleep stages do
    left_out  (name, reason) of every channel that was not taken
    begun     time of day at the file's first sample, in seconds; None: it does not tell
    date      the day of it, likewise
    """

    path: str
    format: str
    groups: tuple[Group, ...]
    left_out: tuple[tuple[str, str], ...]
    _source: RecordingSource = field(repr=False, compare=False)
    begun: float | None = None
    _notes: Callable[[], tuple[Annotation, ...]] = field(
        default=tuple, repr=False, compare=False
    )
    date: datetime.date | None = None

    def __repr__(self) -> str:
        summaries = (
            "; ".join(group._summary for group in self.groups[:4]) or "no channel"
        )
        more = f"; {len(self.groups) - 4} more rates" if len(self.groups) > 4 else ""
        return f"Recording({shown(self.path)}: {self.format}, {summaries}{more})"

    @property
    def signals(self) -> tuple[Group, ...]:
        """The groups, for code that needs samples.

        Errors   RecordingError of a file that holds annotations alone
        """
        if not self.groups:
            raise RecordingError(
                f"reading {self.path!r}",
                "the file contains no signal channel",
                f"it has {len(self.annotations)} annotations",
                "list the annotations with rlxweb info or rlxweb.read(…).annotations",
            )
        return self.groups

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems of the file that do not prevent reading.

        What shows only where it is read comes to it then.
        """
        return tuple(self._source.warnings)

    @property
    def state(self) -> str:
        """Version of a file behind a URL, in words; it changes when the file changes.

        "" where the server does not tell, and for every other recording.
        """
        return self._source.state

    @property
    def annotations(self) -> tuple[Annotation, ...]:
        """Annotations of the recording, sorted by onset and read on first access.

        Onsets count from the file's first sample, whatever stretch was taken.

        Warns    RecordingWarning for what is wrong with them, when it is first seen
        """
        n_known = len(self._source.warnings)
        annotations = self._notes()
        for text in self._source.warnings[n_known:]:
            warning = RecordingWarning(self._source.context, text)
            warnings.warn(warning, stacklevel=caller_stacklevel())
        return annotations

    @classmethod
    def from_array(
        cls,
        x: Any,
        fs: float,
        *,
        channels: Sequence[str] | None = None,
        units: str | Sequence[str] | None = None,
    ) -> Recording:
        """Create a recording from an array, to `save` it or to pass it to any analysis.

        Parameters
        ----------
        x : array_like, shape (C, T) or (T,)
            Real numbers.
        fs : float
            Sampling rate in Hz.
        channels : sequence of str, optional
            A name for each channel; by default "ch1", "ch2" and so on.
        units : str or sequence of str, optional
            One unit for all channels, or one for each.

        Returns
        -------
        Recording
            One group, without annotations and time of day.

        Raises
        ------
        ShapeError, DTypeError
            The array is no samples.
        UsageError
            The rate, the names or the units do not fit.

        Examples
        --------
        >>> x = np.sin(2 * np.pi * 10 * np.arange(2560) / 256)
        >>> Recording.from_array(x, 256, channels=["Oz"], units="uV")
        Recording('an array': array, 1 channel at 256 Hz, 2560 samples)
        """
        from rlxweb.io.array_channel_group import (
            array_as_group,
        )  # which imports this module

        group = array_as_group(
            x, fs, channels, units, "creating a recording from an array"
        )
        return cls(
            group.recording, "array", (group,), (), RecordingSource(group.recording)
        )

    def save(
        self,
        path: str | os.PathLike[str] | IO[bytes],
        *,
        format: str | None = None,
        groups: Group | Sequence[Group] | None = None,
        annotations: Sequence[Annotation] | None = None,
        begun: float | None = None,
        date: datetime.date | None = None,
        bits: int | None = None,
        full_scale: float | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Written:
        """Write the recording as EDF+, BDF+, NPZ, WAV, FLAC or Parquet, in blocks.

        Parameters
        ----------
        path : str, os.PathLike or binary file
            The file, which appears whole or not at all; or a file open for bytes.
        format : {"edf", "bdf", "npz", "wav", "flac", "parquet"}, optional
            The format; by default the suffix of the name.
        groups : Group or sequence of Group, optional
            What to write: groups of the recording or parts of them (`Group.between`,
            `Group.pieces`); by default all groups.
        annotations : sequence of (onset, duration, text), optional
            In seconds from the first sample that is written; by default those of the
            recording, moved to where the stretch begins.
        begun : float, optional
            The time of day of the first sample that is written, in seconds from
            midnight, less than 86,400; by default that of the recording.
        date : datetime.date, optional
            The day of it; by default that of the recording.
        bits : int, optional
            Of a sample in WAV: 32 or 64 (floats; 32 is the default), 16 or 24; in FLAC
            24 (the default) or 16.
        full_scale : float, optional
            The value that the largest integer stands for; 1 in WAV and FLAC. In EDF and
            BDF the default is each channel's own range, for which the samples are read
            twice, or the very integers of an EDF file where they fit.
        progress : callable, optional
            Is told how many samples there are to do, and how many were just done.

        Returns
        -------
        Written
            The channels and samples of the file, how exact they are, and `lost`: what
            the file holds differently or not at all.

        Raises
        ------
        UsageError
            The suffix names no format; the format cannot hold several rates, the rate,
            so many channels, gaps or a sample beyond full scale; there is no sample to
            write, or an argument is none of these.
        NotFinite
            A sample is NaN or infinite, and the format holds integers.
        Unsupported
            pyarrow for Parquet, or soundfile for FLAC, is not installed.
        RecordingError
            The file cannot be written, or the recording cannot be read.

        Warns
        -----
        RecordingWarning
            For each entry of `lost`: samples that fill up the last data record of EDF,
            a rounded rate, a sample at full scale, a changed name, what the format
            cannot hold.

        Notes
        -----
        NPZ and Parquet hold the samples as they are read, bit by bit; WAV of 32 bits as
        float32; EDF (16 bits) and BDF (24) to half a step. The largest difference of
        each channel is `WrittenChannel.error`. Integers of 64 bits are read back from
        Parquet as float64, which has no odd integers beyond 2**53; the error says so.

        References
        ----------
        Kemp & Olivan, Clin. Neurophysiol. 114 (2003) 1755-1761 (EDF+);
        www.biosemi.com/faq/file_format.htm (BDF).

        Examples
        --------
        >>> with rlxweb.read("night.edf", highpass=0.5) as night:  # doctest: +SKIP
        ...     night.save("clean.bdf")
        """
        from rlxweb.io.recording_writer import (
            save_recording,
        )  # which imports this module

        return save_recording(
            self,
            path,
            format=format,
            groups=groups,
            annotations=annotations,
            begun=begun,
            date=date,
            bits=bits,
            full_scale=full_scale,
            progress=progress,
        )

    def close(self) -> None:
        """Close the file; reading afterwards raises RecordingError."""
        self._source.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _channel_count(count: int) -> str:
    """Return "1 channel", "2 channels" and so on."""
    return f"{count} channel{'s' * (count != 1)}"


def _coerce_sample_index(context: str, name: str, value: object) -> int:
    """Return a number of samples as int. Raises UsageError for anything but an
    integer.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        problem = f"{name} is {shown(value)}"
        rule = "must be an integer number of samples"
        hint = "to convert from seconds, use round(seconds * group.fs)"
        raise UsageError(context, problem, rule, hint) from error


def check_finite(data: Samples | Digital, group: Group, start: int = 0) -> None:
    """Raise NotFinite for NaN or infinity in samples (C, T) that begin at sample
    `start`.

    Errors   NotFinite naming the channel and the index of its first bad sample.
    """
    if isinstance(data, Digital) or data.dtype.kind != "f":
        return
    finite = np.isfinite(data)
    if finite.all():
        return
    # The earliest sample is named, whichever channel it is in.
    index = int(np.argmin(finite.all(axis=0)))
    row = int(np.argmin(finite[:, index]))
    sample = group.first + start + index
    raise NotFinite(
        f"reading {group.recording!r}",
        f"channel {group.channels[row].name!r} is {float(data[row, index])} at sample "
        f"{sample} ({sample / group.fs:.3f} s)",
        "every sample must be finite",
        Advice("repair the file, exclude the channel, or pass {}", nan="propagate"),
    )
