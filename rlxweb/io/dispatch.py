"""Opening a recording: what kind of file it is, which channels, at which rate.

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

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import helpful, number, one_of
from rlxweb.errors import RecordingWarning, UsageError, shown
from rlxweb.io import bounds
from rlxweb.io.access import Access
from rlxweb.io.channels import (
    choose_channels,
    holds_annotations_alone,
    leave_out,
    unique_names,
)
from rlxweb.io.contents import LAYOUTS, Contents, Found, Layout, Stream, Timing
from rlxweb.io.formats import FORMATS, Asked, format_of
from rlxweb.io.opening import Opened, opened
from rlxweb.io.part import Moment, check_stretch, seconds_of, stretch_of
from rlxweb.io.preparing import Preparation, Reference
from rlxweb.io.recording import Channel, Group, Recording
from rlxweb.io.referring import check_rates, reference_channels
from rlxweb.io.source import Source

_ONE_RATE = "take the channels of one rate by their names and "
_UNEVEN = (
    "bring the samples to even times first (numpy.interp), or take a part without "
    "gaps; where the clock is in another unit, say so in its name (time_ms)"
)
_CLEARLY = 0.01
"""Share by which a rate differs clearly from that of times with gaps and jitter."""


def open_recording(
    path: str | os.PathLike[str],
    *,
    fs: float | None = None,
    channels: str | Sequence[str] | None = None,
    array: str | None = None,
    layout: Layout | None = None,
    storage_options: Mapping[str, Any] | Access | None = None,
    exclude: str | Sequence[str] | None = None,
    start: Moment | None = None,
    stop: Moment | None = None,
    reference: Reference | None = None,
    highpass: float | None = None,
    lowpass: float | None = None,
    notch: float | Sequence[float] | None = None,
    resample: float | None = None,
) -> Recording:
    """Open a recording as groups of channels, in whichever format it is.

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
              ("@22:15"), or the first annotation of some words ("Lights off", "Stim*");
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
    doing = "opening a recording"
    if fs is not None:
        fs = _given_rate(doing, fs)
    if array is not None and not isinstance(array, str):
        raise UsageError(doing, f"array is {array!r}", "the name of an array")
    wanted = None if channels is None else _listed_names(doing, channels)
    unwanted = () if exclude is None else _listed_names(doing, exclude, "exclude")
    if layout is not None:
        one_of("layout", layout, LAYOUTS, doing)
    source = opened(path, _access(storage_options))
    try:
        contents = _read(source, array, layout)
        since, until = (
            seconds_of(name, own, doing, contents)
            for name, own in (("start", start), ("stop", stop))
        )
        check_stretch(since, until, doing)
        ready = Preparation(reference, highpass, lowpass, notch, resample)
        asked = _Wanted(fs, wanted, unwanted, since, until, ready)
        recording = _assemble(source, contents, asked)
        for text in recording.warnings:
            said = RecordingWarning(source.doing, text)
            warnings.warn(said, stacklevel=2)
        return recording
    except BaseException:
        source.close()
        raise


read = helpful(open_recording, "read")
"""The same, by the name that it has in `rlxweb`."""


def _access(options: Mapping[str, Any] | Access | None) -> Access:
    return options if isinstance(options, Access) else Access(options)


def _read(source: Opened, array: str | None, layout: Layout | None) -> Contents:
    """What is in the file; loads the reader of its format alone."""
    found = format_of(source)
    for name, value in (("array", array), ("layout", layout)):
        if value is not None and name not in found.takes:
            *most, last = [one.name for one in FORMATS if name in one.takes]
            raise UsageError(
                source.doing,
                Advice(f"{{}} was given for {found.name}", **{name: value}),
                f"{', '.join(most)} and {last} only",
            )
    return found.read(source, Asked(array, layout or "channels-first"))


def _given_rate(doing: str, fs: Any) -> float:
    """The rate of the caller as a number, or an error that says what was given."""
    rate = number("fs", fs, doing)
    if bounds.LEAST_HZ <= rate <= bounds.MOST_HZ:
        return rate
    rule = f"a rate of {bounds.LEAST_HZ:g} to {bounds.MOST_HZ:g} Hz"
    raise UsageError(doing, f"fs is {shown(fs)}", rule)


def _listed_names(doing: str, channels: object, name: str = "channels") -> list[str]:
    if isinstance(channels, str):
        return [channels]
    try:
        if not isinstance(channels, bytes):
            return list(channels)  # type: ignore[call-overload, no-any-return]
    except TypeError:  # nothing to go through, or an array of no dimensions
        pass
    said = f"{name} is {channels!r}"
    raise UsageError(doing, said, "a name or a list of names")


class _Wanted(NamedTuple):
    """What is taken of a file, and the rate that it does not tell."""

    fs: float | None
    wanted: Sequence[str] | None
    unwanted: Sequence[str]
    start: float | None
    stop: float | None
    ready: Preparation

    @property
    def is_plain(self) -> bool:
        """True where nothing is asked that needs samples."""
        is_whole = self.start is None and self.stop is None
        return self.wanted is None and not self.unwanted and is_whole


def _assemble(source: Source, contents: Contents, asked: _Wanted) -> Recording:
    found = _tidied(source, contents.channels)
    names = unique_names([channel.label for channel in found])
    if asked.is_plain and holds_annotations_alone(found):
        return _without_signals(source, contents, names, found)
    taken = choose_channels(source.doing, found, names, asked.wanted)
    taken = leave_out(source.doing, found, names, taken, asked.unwanted)
    for at in taken:
        if found[at].doubt:
            source.warn(found[at].doubt)
    stream_of = {at: n for n, one in enumerate(contents.streams) for at in one.members}
    members: dict[int, list[int]] = {}
    for at in taken:
        members.setdefault(stream_of[at], []).append(at)
    referred = reference_channels(source.doing, found, names, asked.ready.reference)
    check_rates(source.doing, contents, names, referred, members)
    ready = asked.ready.referring(tuple(names[at] for at in referred))
    groups = []
    for n, mine in sorted(members.items()):
        stream = contents.streams[n]
        rate = _rate(source, contents, stream, asked.fs, len(members) == 1)
        # A reference is read where it is not taken too, and left out again.
        read = dict.fromkeys((*mine, *referred))
        channels = tuple(_channel(names[at], found[at], at) for at in read)
        group = ready.of(_group(source, stream, rate, channels))
        groups.append(stretch_of(group, asked.start, asked.stop, source))
    chosen = set(taken)
    left_out = tuple(
        (name, channel.why_not)
        for at, (name, channel) in enumerate(zip(names, found, strict=True))
        if channel.why_not and at not in chosen
    )
    return Recording(
        source.name,
        contents.format,
        tuple(groups),
        left_out,
        source,
        contents.begun,
        contents.notes,
        contents.date,
    )


def _without_signals(
    source: Source, contents: Contents, names: Sequence[str], found: Sequence[Found]
) -> Recording:
    """Return a recording of annotations alone, as a file of sleep stages is."""
    left_out = zip(names, (channel.why_not for channel in found), strict=True)
    return Recording(
        source.name,
        contents.format,
        (),
        tuple(left_out),
        source,
        contents.begun,
        contents.notes,
        contents.date,
    )


def _tidied(source: Source, found: Sequence[Found]) -> list[Found]:
    """The channels with names that can be told: none endless, none half a character."""
    source.at_most("channels", len(found), bounds.CHANNELS)
    for at, channel in enumerate(found):
        longest = max(len(channel.label), len(channel.unit))
        what = f"characters in the name or the unit of channel {at + 1}"
        source.at_most(what, longest, bounds.NAME_CHARS)
    return [
        channel
        if channel.label.isascii() and channel.unit.isascii()
        else replace(channel, label=_whole(channel.label), unit=_whole(channel.unit))
        for channel in found
    ]


def _whole(text: str) -> str:
    """The text with a replacement character for each half of a surrogate pair."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _group(
    source: Source, stream: Stream, fs: float, channels: tuple[Channel, ...]
) -> Group:
    if stream.n_samples == 0:
        raise source.error(
            "it holds no samples",
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


def _channel(name: str, found: Found, index: int) -> Channel:
    return Channel(name, found.label, found.unit, index, found.gain, found.offset)


def _rate(
    source: Source,
    contents: Contents,
    stream: Stream,
    fs: float | None,
    is_alone: bool,
) -> float:
    """The rate of a stream: the file's own, else the caller's; both must agree.

    is_alone  no channels of another rate are taken, so the caller's can be this one's
    """
    if stream.timing is not None and fs is not None:
        return _compared(source, stream, stream.timing, fs)
    if stream.fs is None and fs is not None:
        return fs
    if stream.fs is None:
        timing = stream.timing
        raise source.error(
            "its sampling rate is unknown",
            (timing.problem if timing else contents.rate_note)
            or f"{contents.format} files carry none",
            _UNEVEN
            if timing is not None and timing.rates
            else Advice("give it: {}", fs=Blank("HZ")),
        )
    if stream.timing is not None:
        source.warn(
            f"{stream.timing.problem}; {stream.fs:.6g} Hz is taken: name the unit in "
            "the name of the clock (time_s, time_ms)"
        )
    if stream.guess and fs is None:
        source.warn(
            Advice(
                f"{stream.guess}, so the rate may be wrong ({stream.fs:.10g} Hz); if "
                f"you know it, {'' if is_alone else _ONE_RATE}give it: {{}}",
                fs=Blank("HZ"),
            )
        )
    elif stream.guess and fs is not None:
        if is_alone:
            return fs
        raise source.error(
            Advice("{} was given for several rates", fs=Blank(f"{fs:g}")),
            stream.guess,
            f"{_ONE_RATE}give its rate",
        )
    elif fs is not None and not math.isclose(fs, stream.fs, rel_tol=stream.tolerance):
        raise source.error(
            Advice(
                f"{{}} was given, the file says {stream.fs:.10g} Hz",
                fs=Blank(f"{fs:g}"),
            ),
            "a file's own rate is never overruled",
            Advice("leave out {}", fs=Blank(f"{fs:g}")),
        )
    # Within the tolerance the caller may know it better than rounded times do.
    rate = stream.fs if fs is None else fs
    if not bounds.LEAST_HZ <= rate <= bounds.MOST_HZ:
        raise source.error(
            f"its header says {rate:g} Hz",
            f"{bounds.LEAST_HZ:g} to {bounds.MOST_HZ:g} Hz are read",
        )
    return rate


def _compared(source: Source, stream: Stream, timing: Timing, fs: float) -> float:
    """The caller's rate, compared with times that give no certain one.

    Errors   RecordingError where they speak for clearly another rate
    Warns    of gaps that the rate closes up, and of times that were not understood
    """
    apart = _CLEARLY if stream.fs is None else max(stream.tolerance, 1e-9)
    near = [rate for rate in timing.rates if math.isclose(fs, rate, rel_tol=apart)]
    if timing.rates and not near:
        raise source.error(
            Advice(
                f"{{}} was given, its times say {timing.rates[0]:.6g} Hz",
                fs=Blank(f"{fs:g}"),
            ),
            timing.problem,
            _UNEVEN,
        )
    if stream.fs is not None:
        return fs  # it tells which of several units the times are in
    if near:
        source.warn(
            f"{timing.problem}: at {fs:.6g} Hz the samples are read as if their times "
            "were even, and gaps are closed up"
        )
    else:
        source.warn(
            f"{timing.problem}: {fs:.6g} Hz is taken without a comparison, and gaps "
            "would not be seen"
        )
    return fs
