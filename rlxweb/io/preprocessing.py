"""Preprocessing of recordings block by block: re-referencing, filtering and resampling.

A group goes in, a group comes out whose samples are made when they are read, so memory
stays bounded and whatever takes a group takes this one. A block is what the same block
of the whole recording would be: filters are begun early enough that what they forget is
less than rounding. SciPy designs and runs the filters; it is loaded when one is asked.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.argument_validation import coerce_float, coerce_integer
from rlxweb.core.errors import (
    RecordingWarning,
    UnknownName,
    UsageError,
    did_you_mean,
    not_installed,
    shown,
)
from rlxweb.core.message_text import Advice, Blank
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.io.recording import Group

Array = NDArray[Any]
Reference: TypeAlias = str | Sequence[str]

AVERAGE: Final = "average"
_RUN_IN_TOLERANCE: Final = 1e-15
"""Share of a filter's impulse response that is left after its run-in."""
_DECAY_WARNING_LEVEL: Final = 0.01
"""Share of a filter's impulse response that may be left where the recording ends."""
_MAX_RATIO_TERM: Final = 1 << 12
_NOTCH_QUALITY: Final = 30.0
"""Quality factor of a notch (frequency over width), as in the examples of MNE and
SciPy.
"""


def prepared(
    group: Group,
    *,
    reference: Reference | None = None,
    highpass: float | None = None,
    lowpass: float | None = None,
    notch: float | Sequence[float] | None = None,
    order: int = 4,
    resample: float | None = None,
) -> Group:
    """Return the group re-referenced, then filtered, then resampled, block by block.

    reference  "average": the mean of the group's channels is taken from each; a name or
               names: the mean of those, which are left out themselves
    highpass, lowpass
               edges in Hz of a Butterworth filter of `order`, run forth and back
               (scipy.signal.sosfiltfilt): no delay, -6 dB at an edge
    notch      frequencies in Hz that are taken out, each a thirtieth of itself wide
    resample   rate in Hz, by scipy.signal.resample_poly with padtype="line": an offset
               or a slope stays what it is up to the ends
    → samples in float64, in the channels' units

    Warns      RecordingWarning for a filter that is so slow that it has not forgotten
               one end of the recording at the other
    Errors     UsageError for an edge outside 0 … fs / 2, a filter that is longer than
               the recording, a rate no fraction of small numbers leads to, and a
               reference among channels of several units;
               UnknownName for a reference there is not; Unsupported without SciPy
    Source     Oppenheim & Schafer, Discrete-Time Signal Processing, 7 and 4.6
    """
    if not isinstance(group, Group):
        raise UsageError(
            "preparing a group of a recording",
            f"group is {shown(group)}",
            "expected a Group",
            "pass one of recording.groups, or prepare all groups with "
            "rlxweb.read(path, …)",
        )
    context = f"preparing {group.recording!r}"
    if reference is not None:
        group = _rereference_group(group, reference, context)
    sections = _design_filters(group.fs, highpass, lowpass, notch, order, context)
    if sections is not None:
        group = _filter_group(group, sections, context)
    if resample is not None:
        group = _resample_group(group, resample, context)
    return group


class PreprocessingOptions(NamedTuple):
    """Options of `prepared`, under the names of its parameters."""

    reference: Reference | None = None
    highpass: float | None = None
    lowpass: float | None = None
    notch: float | Sequence[float] | None = None
    resample: float | None = None

    def with_reference(self, names: tuple[str, ...]) -> PreprocessingOptions:
        """Return the options with these reference channels; unchanged if there are
        none.
        """
        return self._replace(reference=names) if names else self

    def apply(self, group: Group) -> Group:
        """Return the preprocessed group; the group itself if no option is set."""
        if all(option is None for option in self):
            return group
        return prepared(group, **self._asdict())


# --- reference ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RereferencedReader:
    """Reader that subtracts the mean of the reference channels."""

    group: Group
    reference_rows: tuple[int, ...]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Array:
        """Read re-referenced samples (see SampleReader)."""
        x = _read_float64(self.group, start, stop)
        rows = _channel_rows(self.group, channels)
        rereferenced: Array = x[rows] - x[list(self.reference_rows)].mean(axis=0)
        return rereferenced


def _rereference_group(group: Group, reference: Reference, context: str) -> Group:
    """Return the group less its reference. Raises UsageError or UnknownName for an
    invalid reference.
    """
    units = dict.fromkeys(channel.unit for channel in group.channels)
    if len(units) > 1:
        raise UsageError(
            context,
            "the channels have different units: "
            f"{', '.join(channel or 'no unit' for channel in units)}",
            "a reference can be subtracted only from channels with the same unit",
            Advice("select channels of one unit: {}", channels=Blank("NAMES")),
        )
    names = coerce_reference_names(reference, context)
    if names == [AVERAGE] and AVERAGE not in group.names:
        if len(group.channels) < 2:
            problem = "the group has one channel"
            raise UsageError(
                context, problem, "an average reference needs at least 2 channels"
            )
        return _replace_reader(
            group, _RereferencedReader(group, tuple(range(len(group.channels))))
        )
    for name in names:
        if name not in group.names:
            raise UnknownName(
                context,
                f"no channel is named {shown(name)}",
                f"the reference must be one of {', '.join(group.names[:16])}"
                f"{', …' * (len(group.names) > 16)}, or 'average'",
                did_you_mean(str(name), group.names),
            )
    rows = tuple(group.names.index(name) for name in names)
    other_channels = tuple(c for row, c in enumerate(group.channels) if row not in rows)
    if not names:
        raise UsageError(
            context, "no reference channel is named", "at least 1 is required"
        )
    if not other_channels:
        raise UsageError(
            context,
            f"all {len(group.channels)} channels of the group are reference channels",
            "reference channels are dropped from the result, and at least 1 channel "
            "must remain",
            "name fewer reference channels, or use 'average'",
        )
    return _replace_reader(
        replace(group, channels=other_channels), _RereferencedReader(group, rows)
    )


def coerce_reference_names(reference: Any, context: str) -> list[str]:
    """Return the names of reference channels, given as one name or as several.

    Errors   UsageError for what is neither
    """
    if isinstance(reference, str):
        return [reference]
    if not isinstance(reference, Iterable):
        problem = f"reference is {shown(reference)}"
        rule = "must be a channel name or a list of channel names"
        raise UsageError(
            context, problem, rule, f"pass {AVERAGE!r} for the mean of all channels"
        )
    return list(reference)


# --- filters --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _FilteredReader:
    """Reader that applies second-order sections forward and backward, starting `run_in`
    samples outside a block.
    """

    group: Group
    sections: Array
    run_in: int

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Array:
        """Read filtered samples (see SampleReader); each segment between gaps is
        filtered separately.
        """
        if not self.group.gaps:
            return self._filter_segment(channels, start, stop, 0, self.group.n_samples)
        out = np.zeros((len(channels), stop - start))
        for low, high in self.group.spans:
            a, b = max(low, start), min(high, stop)
            if a < b:
                filtered = self._filter_segment(channels, a, b, low, high)
                out[:, a - start : b - start] = filtered
        return out

    def _filter_segment(
        self, channels: tuple[int, ...], start: int, stop: int, low: int, high: int
    ) -> Array:
        """Return filtered samples [start, stop) of the gap-free segment [low, high)."""
        signal = _import_scipy_signal("filtering")
        first, last = max(low, start - self.run_in), min(high, stop + self.run_in)
        x = _read_float64(self.group, first, last)[_channel_rows(self.group, channels)]
        # Only where the recording itself ends, or a gap begins, is anything made up.
        padding = min(_filter_padding(self.sections), last - first - 1)
        out: Array = signal.sosfiltfilt(self.sections, x, axis=-1, padlen=padding)
        return out[:, start - first : stop - first]


def _design_filters(
    fs: float,
    highpass: float | None,
    lowpass: float | None,
    notch: float | Sequence[float] | None,
    order: int,
    context: str,
) -> Array | None:
    """Return all filters as one array of second-order sections; None if no filter is
    set.
    """
    edges = [
        None if edge is None else _validate_frequency(name, edge, fs, context)
        for name, edge in (("highpass", highpass), ("lowpass", lowpass))
    ]
    low, high = edges
    if low is not None and high is not None and low >= high:
        raise UsageError(
            context, f"highpass is {low:g} Hz", f"must be below lowpass, {high:g} Hz"
        )
    filter_order = coerce_integer("order", order, context)
    if not 1 <= filter_order <= 12:
        raise UsageError(context, f"order is {filter_order}", "must be 1 to 12")
    notches = [] if notch is None else list(np.atleast_1d(np.asarray(notch, object)))
    if low is None and high is None and not notches:
        return None
    signal = _import_scipy_signal(context)
    sections = []
    if low is not None and high is not None:
        sections.append(
            signal.butter(filter_order, (low, high), "bandpass", fs=fs, output="sos")
        )
    elif low is not None:
        sections.append(
            signal.butter(filter_order, low, "highpass", fs=fs, output="sos")
        )
    elif high is not None:
        sections.append(
            signal.butter(filter_order, high, "lowpass", fs=fs, output="sos")
        )
    for notch_value in notches:
        frequency = _validate_frequency("notch", notch_value, fs, context)
        sections.append(
            signal.tf2sos(*signal.iirnotch(frequency, _NOTCH_QUALITY, fs=fs))
        )
    return np.concatenate(sections)


def _validate_frequency(name: str, value: object, fs: float, context: str) -> float:
    """Return a frequency in Hz. Raises UsageError unless it lies between 0 and half the
    rate.
    """
    frequency = coerce_float(name, value, context)
    if not 0 < frequency < fs / 2:
        rule = (
            f"must be above 0 and below half the sampling rate, which is {fs / 2:g} Hz"
        )
        raise UsageError(context, f"{name} is {frequency:g} Hz", rule)
    return frequency


def _filter_group(group: Group, sections: Array, context: str) -> Group:
    """Return the filtered group. Raises UsageError if the recording is shorter than the
    filter needs.
    """
    poles = np.concatenate([np.roots(coefficients) for coefficients in sections[:, 3:]])
    radius = float(np.abs(poles).max())
    run_in = (
        math.ceil(math.log(_RUN_IN_TOLERANCE) / math.log(radius)) if radius > 0 else 1
    )
    # What SciPy itself asks of a signal: more than it makes up at its ends.
    min_samples = _filter_padding(sections) + 1
    shortest = min(stop - start for start, stop in group.spans)
    subject = "a piece between gaps" if group.gaps else "the recording"
    if shortest < min_samples:
        raise UsageError(
            context,
            f"{subject} has {shortest} samples",
            f"the filter needs at least {min_samples}",
            "use a longer recording or a lower order",
        )
    _warn_slow_decay(radius, subject, shortest / group.fs, group.fs, context)
    return _replace_reader(group, _FilteredReader(group, sections, run_in))


def _warn_slow_decay(
    radius: float, subject: str, seconds: float, fs: float, context: str
) -> None:
    """Warn if the filter's impulse response lasts longer than the recording or a piece
    of it.
    """
    decay_s = (
        math.log(_DECAY_WARNING_LEVEL) / math.log(radius) / fs
        if 0 < radius < 1
        else 0.0
    )
    decay_s = float(f"{decay_s:.3g}")
    if decay_s > seconds:
        warnings.warn(
            RecordingWarning(
                context,
                f"{subject} ({seconds:.10g} s) is shorter than the filter response "
                f"({decay_s:.10g} s): edge effects and the offset affect all of its "
                "samples; use a filter with a shorter response or a longer recording",
            ),
            stacklevel=caller_stacklevel(),
        )


def _filter_padding(sections: Array) -> int:
    """Return the default padding of scipy.signal.sosfiltfilt: three times the number of
    coefficients.
    """
    taps = 2 * len(sections) + 1
    zeros = min(int((sections[:, 2] == 0).sum()), int((sections[:, 5] == 0).sum()))
    return 3 * (taps - zeros)


# --- another rate ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ResampledReader:
    """Reader that resamples by `up / down` with a polyphase filter.

    Beyond its ends the recording goes on along the line through its first and its last
    sample, as scipy.signal.resample_poly has it with padtype="line". Taken as zero, an
    offset would be a step there, and the filter would spread it into the recording. The
    line is that of the whole recording, so blocks give what the whole gives.

    ends   the first and last sample of every channel, once they have been read
    """

    group: Group
    up: int
    down: int
    ends: list[tuple[Array, Array]] = field(default_factory=list)

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Array:
        """Read resampled samples (see SampleReader)."""
        signal = _import_scipy_signal("resampling")
        # The filter reaches ten steps of the slower rate; blocks begin on whole ones.
        filter_length = 10 * max(self.up, self.down) // self.up + 2
        first = max(
            0, (start * self.down // self.up - filter_length) // self.down * self.down
        )
        last = min(
            self.group.n_samples, -(-stop * self.down // self.up) + filter_length
        )
        rows = _channel_rows(self.group, channels)
        x = _read_float64(self.group, first, last)[rows]
        intercept, slope = (
            coefficient[rows, None] for coefficient in self._end_to_end_line()
        )
        x -= intercept + slope * np.arange(first, last)
        out: Array = signal.resample_poly(x, self.up, self.down, axis=-1)
        skip = start - first * self.up // self.down
        times = np.arange(start, stop) * (self.down / self.up)
        resampled: Array = out[:, skip : skip + stop - start] + (
            intercept + slope * times
        )
        return resampled

    def _end_to_end_line(self) -> tuple[Array, Array]:
        """Return intercept and slope per sample of the line through each channel's
        first and last sample.
        """
        if not self.ends:
            n = self.group.n_samples
            ends = [
                _read_float64(self.group, sample, sample + 1)[:, 0]
                for sample in (0, n - 1)
            ]
            # A sample that is not finite makes no line: the other end's level holds.
            first, last = (
                np.where(
                    np.isfinite(end),
                    end,
                    np.where(np.isfinite(other_end), other_end, 0.0),
                )
                for end, other_end in (ends, ends[::-1])
            )
            self.ends.append((first, (last - first) / max(1, n - 1)))
        return self.ends[0]


def _resample_group(group: Group, rate: float, context: str) -> Group:
    """Return the resampled group. Raises UsageError for a rate without a small ratio,
    and for gaps.
    """
    new_rate = coerce_float("resample", rate, context)
    if new_rate <= 0:
        raise UsageError(context, f"resample is {new_rate:g} Hz", "must be above 0")
    ratio = Fraction(new_rate / group.fs).limit_denominator(_MAX_RATIO_TERM)
    nearest_rate = float(f"{float(ratio) * group.fs:.12g}")
    if (
        ratio <= 0
        or ratio.numerator > _MAX_RATIO_TERM
        or abs(nearest_rate - new_rate) > 1e-9 * new_rate
    ):
        hint = f"use {nearest_rate:.12g} Hz" if ratio > 0 else "use a higher rate"
        # Whoever wants a whole rate may want it for a format that has no others.
        integer_rate = (
            nearest_integer_rate(group.fs, new_rate) if new_rate.is_integer() else None
        )
        if integer_rate is not None and integer_rate != nearest_rate:
            hint += f", or the integer rate {integer_rate} Hz"
        raise UsageError(
            context,
            f"the ratio of {new_rate:.12g} Hz to {group.fs:.12g} Hz is not a fraction "
            "of small integers",
            f"numerator and denominator must be at most {_MAX_RATIO_TERM}",
            hint,
        )
    if ratio == 1:
        return group
    if group.gaps:
        raise UsageError(
            context,
            f"the recording has {len(group.gaps)} gap{'s' * (len(group.gaps) != 1)}",
            "resampling requires samples without gaps",
            "omit resampling, or resample one of the group's `pieces`",
        )
    _import_scipy_signal(context)
    up, down = ratio.numerator, ratio.denominator
    count = -(-group.n_samples * up // down)
    resampled = _replace_reader(group, _ResampledReader(group, up, down))
    return replace(
        resampled, fs=new_rate, n_samples=count, first=group.first * up // down
    )


def nearest_integer_rate(
    fs: float, target: float, max_rate: float = math.inf, multiple: int = 1
) -> int | None:
    """Return the integer rate nearest to `target` that `resample` can convert `fs` to.

    max_rate, multiple  of the rates that are looked at: their limit, and what divides
                        them
    → None where there is no such rate
    """
    nearest = None
    up = np.arange(1, _MAX_RATIO_TERM + 1)
    for down in range(1, _MAX_RATIO_TERM + 1):
        rates = fs * up / down
        integers = np.rint(rates / multiple) * multiple
        is_possible = (
            (integers >= 1)
            & (integers <= max_rate)
            & (abs(rates - integers) <= 1e-10 * integers)
        )
        for rate in integers[is_possible]:
            if nearest is None or abs(rate - target) < abs(nearest - target):
                nearest = int(rate)
    return nearest


# --- all ------------------------------------------------------------------------------


def _replace_reader(group: Group, reader: Any) -> Group:
    """Return the group with another reader, which gives float64 samples in physical
    units.
    """
    float64 = np.dtype(np.float64)
    channels = tuple(
        replace(channel, gain=1.0, offset=0.0) for channel in group.channels
    )
    return replace(group, reader=reader, dtype=float64, digital=None, channels=channels)


def _read_float64(group: Group, start: int, stop: int) -> Array:
    """Read samples [start, stop) of a group in physical units as float64."""
    return np.asarray(group.read(start, stop), np.float64)


def _channel_rows(group: Group, channels: tuple[int, ...]) -> list[int]:
    """Return the rows of the group for channels given by their numbers in the file."""
    row_of_channel = {channel.index: row for row, channel in enumerate(group.channels)}
    return [row_of_channel[channel] for channel in channels]


def _import_scipy_signal(context: str) -> Any:
    """Import scipy.signal. Raises Unsupported if SciPy is not installed."""
    try:
        import scipy.signal
    except ImportError as error:
        raise not_installed(context, "scipy", "pip install 'rlxweb[filter]'") from error
    return scipy.signal
