"""Opening a recording: its file format, its channels and its sampling rate.

Owns `open_recording`. The first bytes decide the format, by the table in `formats`.
Every reader is handed the same open file.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rlxweb.core.argument_validation import (
    check_choice,
    coerce_float,
    suggest_misspelled_options,
)
from rlxweb.core.errors import RecordingWarning, UsageError, shown
from rlxweb.core.function_options import Option, declare_options
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io import file_limits
from rlxweb.io.byte_source import RecordingSource
from rlxweb.io.channel_selection import (
    choose_channels,
    exclude_channels,
    has_only_annotations,
    unique_names,
)
from rlxweb.io.format_reader_interface import (
    ARRAY_LAYOUTS,
    ArrayLayout,
    ChannelStream,
    FileChannel,
    FileContents,
    UncertainTiming,
)
from rlxweb.io.formats import FORMATS, ArraySelection, detect_format
from rlxweb.io.preprocessing import PreprocessingOptions, Reference
from rlxweb.io.recording import Channel, Group, Recording
from rlxweb.io.reference_channels import check_rates, reference_channels
from rlxweb.io.source_opener import OpenSource, open_named_source
from rlxweb.io.storage_options import StorageAccess
from rlxweb.io.time_range import Moment, check_time_range, parse_moment, slice_group

_ONE_RATE_HINT = "select the channels of one rate by name and "
_UNEVEN_HINT = (
    "resample to evenly spaced times first (numpy.interp), or save a part without gaps "
    "as a separate file; if the times are in another unit, put that unit in the name "
    "of the time column or array (time_ms)"
)
_RATE_TOLERANCE = 0.01
"""Relative difference from which a rate clearly contradicts times with gaps and jitter.
"""


_TIME_SYNTAX = "seconds, h:mm:ss, @time of day, or the text of an annotation."


@declare_options(
    fs=Option("Sampling rate in Hz, for files without one."),
    channels=Option(
        "Channel names or patterns ('EEG*'), repeatable or comma-separated; put a "
        "name that contains a comma in double quotes.",
        is_list=True,
        flags=("-c",),
    ),
    exclude=Option(
        "Channels to exclude, named like those to select.",
        is_list=True,
        flags=("-x",),
    ),
    start=Option(f"Start of the samples: {_TIME_SYNTAX}", metavar="T"),
    stop=Option(f"End of the samples: {_TIME_SYNTAX}", metavar="T"),
    reference=Option(
        "Subtract from each channel the mean of the named channels; 'average' means "
        "all channels; the named channels need not be selected.",
        is_list=True,
        flags=("-r",),
    ),
    highpass=Option(
        "Remove frequencies below this, in Hz (zero-phase filter).", is_positive=True
    ),
    lowpass=Option(
        "Remove frequencies above this, in Hz (zero-phase filter).", is_positive=True
    ),
    notch=Option(
        "Remove this frequency, in Hz; repeatable.", is_positive=True, is_list=True
    ),
    resample=Option("Resample all channels to this rate, in Hz.", is_positive=True),
    array=Option(
        "Name of the array to read from an NPZ, HDF5 or NWB file or a Zarr group."
    ),
    layout=Option(
        "Axis order of a 2-D array (NPY, NPZ, Zarr, HDF5); default: channels-first.",
        choices=ARRAY_LAYOUTS,
    ),
)
def open_recording(
    path: str | os.PathLike[str],
    *,
    fs: float | None = None,
    channels: str | Sequence[str] | None = None,
    array: str | None = None,
    layout: ArrayLayout | None = None,
    storage_options: Mapping[str, Any] | StorageAccess | None = None,
    exclude: str | Sequence[str] | None = None,
    start: Moment | None = None,
    stop: Moment | None = None,
    reference: Reference | None = None,
    highpass: float | None = None,
    lowpass: float | None = None,
    notch: float | Sequence[float] | None = None,
    resample: float | None = None,
) -> Recording:
    """Open a recording of any supported format as groups of channels.

    path      of a file, a Zarr folder or a zip file of one; or a URL that fsspec knows
              ("s3://bucket/night.edf", "https://…", "file://…"), read by ranges
    fs        rate in Hz, for files that carry none; one that contradicts the file is
              refused
    channels  names, labels or patterns ("EEG*") of the channels to take; by default
              all but annotation, status and trigger channels (see `left_out`)
    array     the array of an NPZ file, a Zarr group, an HDF5 or NWB file, needed when
              several could be meant
    layout    of a 2-D array of NPY, NPZ, Zarr or HDF5: "channels-first" (default),
              "samples-first"
    storage_options
              how a URL is reached, as fsspec takes it; never shown. What is not given
              is fsspec's to find: FSSPEC_*, its configuration, the store's own

    exclude   names, labels or patterns of channels that are left out of these
    start, stop
              the stretch to take: seconds from the beginning, "0:01:30", a time of day
              "@22:15", or the first annotation of some words ("Lights off", "Stim*");
              None: no end. A stop beyond the end is warned of
    reference, highpass, lowpass, notch, resample
              how the channels are made ready, as `rlxweb.io.prepared` has it: of the
              whole recording, before a stretch is taken. A reference is read though
              `channels` does not name it or `exclude` does

    Errors    RecordingError for anything wrong with the file or its server; UnknownName
              for a channel or array that is not in it; UsageError for an argument that
              cannot apply
    Warns     RecordingWarning for each fault of the file that is passed over, such as
              an end that is missing; they stand in `Recording.warnings` as well
    """
    context = "opening a recording"
    if fs is not None:
        fs = _check_rate(context, fs)
    if array is not None and not isinstance(array, str):
        raise UsageError(context, f"array is {array!r}", "must be the name of an array")
    included = None if channels is None else _check_names(context, channels)
    excluded = () if exclude is None else _check_names(context, exclude, "exclude")
    if layout is not None:
        check_choice("layout", layout, ARRAY_LAYOUTS, context)
    source = open_named_source(path, _coerce_access(storage_options))
    try:
        contents = _read_contents(source, array, layout)
        start_s, stop_s = (
            parse_moment(name, value, context, contents)
            for name, value in (("start", start), ("stop", stop))
        )
        check_time_range(start_s, stop_s, context)
        preparation = PreprocessingOptions(
            reference, highpass, lowpass, notch, resample
        )
        selection = _ReadSelection(fs, included, excluded, start_s, stop_s, preparation)
        recording = _build_recording(source, contents, selection)
        for text in recording.warnings:
            warning = RecordingWarning(source.context, text)
            warnings.warn(warning, stacklevel=2)
        return recording
    except BaseException:
        source.close()
        raise


read = suggest_misspelled_options(open_recording, "read")
"""Alias of `open_recording`, under the name that it has in `rlxweb`."""


def _coerce_access(options: Mapping[str, Any] | StorageAccess | None) -> StorageAccess:
    """Return storage options as a StorageAccess."""
    return options if isinstance(options, StorageAccess) else StorageAccess(options)


def _read_contents(
    source: OpenSource, array: str | None, layout: ArrayLayout | None
) -> FileContents:
    """Read the contents of a file; loads only the reader of its format."""
    file_format = detect_format(source)
    for name, value in (("array", array), ("layout", layout)):
        if value is not None and name not in file_format.accepted_options:
            *other_formats, last_format = [
                format_row.name
                for format_row in FORMATS
                if name in format_row.accepted_options
            ]
            raise UsageError(
                source.context,
                Advice(
                    f"{{}} is not supported for {file_format.name}", **{name: value}
                ),
                "this argument applies only to "
                f"{', '.join(other_formats)} and {last_format}",
            )
    return file_format.read(source, ArraySelection(array, layout or "channels-first"))


def _check_rate(context: str, fs: Any) -> float:
    """Return the caller's rate as a number; raise UsageError if it is out of range."""
    rate = coerce_float("fs", fs, context)
    if file_limits.MIN_HZ <= rate <= file_limits.MAX_HZ:
        return rate
    rule = f"must be a rate from {file_limits.MIN_HZ:g} to {file_limits.MAX_HZ:g} Hz"
    raise UsageError(context, f"fs is {shown(fs)}", rule)


def _check_names(context: str, channels: object, name: str = "channels") -> list[str]:
    """Return the names as a list; raise UsageError for anything else."""
    if isinstance(channels, str):
        return [channels]
    try:
        if not isinstance(channels, bytes):
            return list(channels)  # type: ignore[call-overload, no-any-return]
    except TypeError:  # nothing to go through, or an array of no dimensions
        pass
    problem = f"{name} is {channels!r}"
    raise UsageError(context, problem, "must be a name or a list of names")


class _ReadSelection(NamedTuple):
    """Selection of channels, samples and preparation, and a rate for files that carry
    none.
    """

    fs: float | None
    included: Sequence[str] | None
    excluded: Sequence[str]
    start: float | None
    stop: float | None
    preparation: PreprocessingOptions

    @property
    def selects_all(self) -> bool:
        """Tell whether no channel, time range or exclusion was requested."""
        has_no_range = self.start is None and self.stop is None
        return self.included is None and not self.excluded and has_no_range


def _build_recording(
    source: RecordingSource, contents: FileContents, selection: _ReadSelection
) -> Recording:
    """Build the recording of the selected channels, grouped by rate."""
    file_channels = _sanitize_channels(source, contents.channels)
    names = unique_names([channel.label for channel in file_channels])
    if selection.selects_all and has_only_annotations(file_channels):
        return _annotations_only_recording(source, contents, names, file_channels)
    selected = choose_channels(source.context, file_channels, names, selection.included)
    selected = exclude_channels(
        source.context, file_channels, names, selected, selection.excluded
    )
    for index in selected:
        if file_channels[index].warning:
            source.warn(file_channels[index].warning)
    stream_of = {
        index: stream_index
        for stream_index, channel_stream in enumerate(contents.streams)
        for index in channel_stream.channel_indices
    }
    selected_by_stream: dict[int, list[int]] = {}
    for index in selected:
        selected_by_stream.setdefault(stream_of[index], []).append(index)
    reference_indices = reference_channels(
        source.context, file_channels, names, selection.preparation.reference
    )
    check_rates(source.context, contents, names, reference_indices, selected_by_stream)
    preparation = selection.preparation.with_reference(
        tuple(names[index] for index in reference_indices)
    )
    groups = []
    for stream_index, own_channels in sorted(selected_by_stream.items()):
        stream = contents.streams[stream_index]
        rate = _resolve_rate(
            source, contents, stream, selection.fs, len(selected_by_stream) == 1
        )
        # A reference is read where it is not taken too, and left out again.
        read_indices = dict.fromkeys((*own_channels, *reference_indices))
        channels = tuple(
            _build_channel(names[index], file_channels[index], index)
            for index in read_indices
        )
        group = preparation.apply(_build_group(source, stream, rate, channels))
        groups.append(slice_group(group, selection.start, selection.stop, source))
    selected_set = set(selected)
    left_out = tuple(
        (name, channel.exclusion_reason)
        for index, (name, channel) in enumerate(zip(names, file_channels, strict=True))
        if channel.exclusion_reason and index not in selected_set
    )
    return Recording(
        source.name,
        contents.format,
        tuple(groups),
        left_out,
        source,
        contents.begun,
        contents.read_annotations,
        contents.date,
    )


def _annotations_only_recording(
    source: RecordingSource,
    contents: FileContents,
    names: Sequence[str],
    file_channels: Sequence[FileChannel],
) -> Recording:
    """Return a recording that has annotations only, such as a file of sleep stages."""
    left_out = zip(
        names, (channel.exclusion_reason for channel in file_channels), strict=True
    )
    return Recording(
        source.name,
        contents.format,
        (),
        tuple(left_out),
        source,
        contents.begun,
        contents.read_annotations,
        contents.date,
    )


def _sanitize_channels(
    source: RecordingSource, file_channels: Sequence[FileChannel]
) -> list[FileChannel]:
    """Return the channels with valid names; refuse too many channels and too long
    names.
    """
    source.check_limit("channels", len(file_channels), file_limits.CHANNELS)
    for index, channel in enumerate(file_channels):
        longest = max(len(channel.label), len(channel.unit))
        what = f"characters in the name or unit of channel {index + 1}"
        source.check_limit(what, longest, file_limits.NAME_CHARS)
    return [
        channel
        if channel.label.isascii() and channel.unit.isascii()
        else replace(
            channel,
            label=_replace_lone_surrogates(channel.label),
            unit=_replace_lone_surrogates(channel.unit),
        )
        for channel in file_channels
    ]


def _replace_lone_surrogates(text: str) -> str:
    """Return the text with a replacement character for each lone surrogate."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _build_group(
    source: RecordingSource,
    stream: ChannelStream,
    fs: float,
    channels: tuple[Channel, ...],
) -> Group:
    """Build the group of a stream's channels; raise RecordingError if it has no
    samples.
    """
    if stream.n_samples == 0:
        raise source.error(
            "the file contains no samples",
            f"{len(channels)} channels, 0 samples",
            "; ".join(source.warnings),
        )
    return Group(
        source.name,
        fs,
        channels,
        stream.n_samples,
        stream.dtype,
        stream.reader,
        stream.digital,
        gaps=stream.gaps,
    )


def _build_channel(name: str, file_channel: FileChannel, index: int) -> Channel:
    """Build a channel of the recording from a channel of the file."""
    return Channel(
        name,
        file_channel.label,
        file_channel.unit,
        index,
        file_channel.gain,
        file_channel.offset,
    )


def _resolve_rate(
    source: RecordingSource,
    contents: FileContents,
    stream: ChannelStream,
    fs: float | None,
    is_only_rate: bool,
) -> float:
    """Return the rate of a stream: the file's own, else the caller's; both must agree.

    is_only_rate  no channels of another rate are taken, so the caller's can be this
                  one's
    """
    if stream.uncertain_timing is not None and fs is not None:
        return _compare_rate_with_times(source, stream, stream.uncertain_timing, fs)
    if stream.fs is None and fs is not None:
        return fs
    if stream.fs is None:
        timing = stream.uncertain_timing
        raise source.error(
            "the sampling rate is unknown",
            (timing.problem if timing else contents.rate_note)
            or f"{contents.format} files contain no sampling rate",
            _UNEVEN_HINT
            if timing is not None and timing.rates
            else Advice("pass {}", fs=Blank("HZ")),
        )
    if stream.uncertain_timing is not None:
        source.warn(
            f"{stream.uncertain_timing.problem}; {stream.fs:.6g} Hz is assumed; "
            "put the unit in the name of the time column (time_s, time_ms)"
        )
    if stream.guess_reason and fs is None:
        source.warn(
            Advice(
                f"{stream.guess_reason}, so the rate may be wrong "
                f"({stream.fs:.10g} Hz); if you know the rate, "
                f"{'' if is_only_rate else _ONE_RATE_HINT}pass {{}}",
                fs=Blank("HZ"),
            )
        )
    elif stream.guess_reason and fs is not None:
        if is_only_rate:
            return fs
        raise source.error(
            Advice(
                "{} cannot apply to channels of different rates",
                fs=Blank(f"{fs:g}"),
            ),
            stream.guess_reason,
            f"{_ONE_RATE_HINT}pass the rate of those channels",
        )
    elif fs is not None and not math.isclose(fs, stream.fs, rel_tol=stream.tolerance):
        raise source.error(
            Advice(
                f"got {{}}, but the file declares {stream.fs:.10g} Hz",
                fs=Blank(f"{fs:g}"),
            ),
            "the rate in a file cannot be overridden",
            Advice("omit {}", fs=Blank(f"{fs:g}")),
        )
    # Within the tolerance the caller may know it better than rounded times do.
    rate = stream.fs if fs is None else fs
    if not file_limits.MIN_HZ <= rate <= file_limits.MAX_HZ:
        raise source.error(
            f"the header declares a rate of {rate:g} Hz",
            f"must be {file_limits.MIN_HZ:g} to {file_limits.MAX_HZ:g} Hz",
        )
    return rate


def _compare_rate_with_times(
    source: RecordingSource, stream: ChannelStream, timing: UncertainTiming, fs: float
) -> float:
    """Return the caller's rate after comparing it with times that give no certain one.

    Errors   RecordingError where they speak for clearly another rate
    Warns    of gaps that the rate closes up, and of times that were not understood
    """
    tolerance = _RATE_TOLERANCE if stream.fs is None else max(stream.tolerance, 1e-9)
    matching_rates = [
        rate for rate in timing.rates if math.isclose(fs, rate, rel_tol=tolerance)
    ]
    if timing.rates and not matching_rates:
        raise source.error(
            Advice(
                f"got {{}}, but the times in the file give {timing.rates[0]:.6g} Hz",
                fs=Blank(f"{fs:g}"),
            ),
            timing.problem,
            _UNEVEN_HINT,
        )
    if stream.fs is not None:
        return fs  # it tells which of several units the times are in
    if matching_rates:
        source.warn(
            f"{timing.problem}; samples are read as evenly spaced at {fs:.6g} Hz, "
            "without gaps"
        )
    else:
        source.warn(
            f"{timing.problem}; {fs:.6g} Hz is used without a check, and gaps "
            "cannot be detected"
        )
    return fs
