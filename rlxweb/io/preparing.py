"""Recordings as one wants them: re-referenced, filtered, at another rate; in blocks.

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

from rlxweb.advice import Advice, Blank
from rlxweb.arguments import number, whole
from rlxweb.callers import outside
from rlxweb.errors import (
    RecordingWarning,
    UnknownName,
    UsageError,
    did_you_mean,
    not_installed,
    shown,
)
from rlxweb.io.recording import Group

Array = NDArray[Any]
Reference: TypeAlias = str | Sequence[str]

AVERAGE: Final = "average"
_FORGOTTEN: Final = 1e-15
"""Of a filter's answer to one sample: what is left after its run-in."""
_FAINT: Final = 0.01
"""And of what a filter may still answer where the recording ends."""
_MOST_TERMS: Final = 1 << 12
_QUALITY: Final = 30.0
"""Frequency over width of a notch, as MNE's and SciPy's examples have it."""


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
    """The group re-referenced, then filtered, then at another rate, block by block.

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
            "a Group is wanted",
            "take one of recording.groups, or prepare all: rlxweb.read(path, …)",
        )
    doing = f"preparing {group.recording!r}"
    if reference is not None:
        group = _referenced(group, reference, doing)
    sections = _sections(group.fs, highpass, lowpass, notch, order, doing)
    if sections is not None:
        group = _filtered(group, sections, doing)
    if resample is not None:
        group = _resampled(group, resample, doing)
    return group


class Preparation(NamedTuple):
    """What `prepared` is asked for, by its names."""

    reference: Reference | None = None
    highpass: float | None = None
    lowpass: float | None = None
    notch: float | Sequence[float] | None = None
    resample: float | None = None

    def referring(self, names: tuple[str, ...]) -> Preparation:
        """The same with the names of reference channels, where there are any."""
        return self._replace(reference=names) if names else self

    def of(self, group: Group) -> Group:
        """The group so made ready; itself where nothing is asked."""
        if all(one is None for one in self):
            return group
        return prepared(group, **self._asdict())


# --- reference ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Referenced:
    """Channels less the mean of others."""

    group: Group
    rows: tuple[int, ...]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Array:
        """See SampleReader."""
        x = _physical(self.group, start, stop)
        own = _rows_of(self.group, channels)
        less: Array = x[own] - x[list(self.rows)].mean(axis=0)
        return less


def _referenced(group: Group, reference: Reference, doing: str) -> Group:
    units = dict.fromkeys(one.unit for one in group.channels)
    if len(units) > 1:
        raise UsageError(
            doing,
            f"channels are in {', '.join(one or 'no unit' for one in units)}",
            "one is taken from another only in the same unit",
            Advice("take those of one unit: {}", channels=Blank("NAMES")),
        )
    names = references(reference, doing)
    if names == [AVERAGE] and AVERAGE not in group.names:
        if len(group.channels) < 2:
            said = "the group has one channel"
            raise UsageError(doing, said, "an average reference needs 2")
        return _made(group, _Referenced(group, tuple(range(len(group.channels)))))
    for name in names:
        if name not in group.names:
            raise UnknownName(
                doing,
                f"no channel is called {shown(name)}",
                f"the reference is one of {', '.join(group.names[:16])}, or 'average'",
                did_you_mean(str(name), group.names),
            )
    rows = tuple(group.names.index(name) for name in names)
    rest = tuple(c for at, c in enumerate(group.channels) if at not in rows)
    if not names or not rest:
        said = "no channel is left beside the reference"
        raise UsageError(doing, said, f"{len(group.channels)} channels")
    return _made(replace(group, channels=rest), _Referenced(group, rows))


def references(given: Any, doing: str) -> list[str]:
    """Return the names of reference channels, given as one or as several.

    Errors   UsageError for what is neither
    """
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        said, rule = f"reference is {shown(given)}", "a name or a list of names"
        raise UsageError(doing, said, rule, f"{AVERAGE!r} is the mean of all channels")
    return list(given)


# --- filters --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Filtered:
    """Second-order sections forth and back, begun `run_in` samples outside a block."""

    group: Group
    sections: Array
    run_in: int

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Array:
        """See SampleReader; every piece between gaps is filtered by itself."""
        if not self.group.gaps:
            return self._of_piece(channels, start, stop, 0, self.group.n_samples)
        out = np.zeros((len(channels), stop - start))
        for low, high in self.group.spans:
            a, b = max(low, start), min(high, stop)
            if a < b:
                own = self._of_piece(channels, a, b, low, high)
                out[:, a - start : b - start] = own
        return out

    def _of_piece(
        self, channels: tuple[int, ...], start: int, stop: int, low: int, high: int
    ) -> Array:
        """Of the piece [low, high)."""
        signal = _scipy("filtering")
        first, last = max(low, start - self.run_in), min(high, stop + self.run_in)
        x = _physical(self.group, first, last)[_rows_of(self.group, channels)]
        # Only where the recording itself ends, or a gap begins, is anything made up.
        pad = min(_padding(self.sections), last - first - 1)
        out: Array = signal.sosfiltfilt(self.sections, x, axis=-1, padlen=pad)
        return out[:, start - first : stop - first]


def _sections(
    fs: float,
    highpass: float | None,
    lowpass: float | None,
    notch: float | Sequence[float] | None,
    order: int,
    doing: str,
) -> Array | None:
    """All filters as one row of second-order sections; None for none."""
    edges = [
        None if own is None else _edge(name, own, fs, doing)
        for name, own in (("highpass", highpass), ("lowpass", lowpass))
    ]
    low, high = edges
    if low is not None and high is not None and low >= high:
        raise UsageError(
            doing, f"highpass is {low:g} Hz", f"it lies below lowpass, {high:g} Hz"
        )
    n = whole("order", order, doing)
    if not 1 <= n <= 12:
        raise UsageError(doing, f"order is {n}", "1 to 12")
    notches = [] if notch is None else list(np.atleast_1d(np.asarray(notch, object)))
    if low is None and high is None and not notches:
        return None
    signal = _scipy(doing)
    parts = []
    if low is not None and high is not None:
        parts.append(signal.butter(n, (low, high), "bandpass", fs=fs, output="sos"))
    elif low is not None:
        parts.append(signal.butter(n, low, "highpass", fs=fs, output="sos"))
    elif high is not None:
        parts.append(signal.butter(n, high, "lowpass", fs=fs, output="sos"))
    for one in notches:
        at = _edge("notch", one, fs, doing)
        parts.append(signal.tf2sos(*signal.iirnotch(at, _QUALITY, fs=fs)))
    return np.concatenate(parts)


def _edge(name: str, value: object, fs: float, doing: str) -> float:
    own = number(name, value, doing)
    if not 0 < own < fs / 2:
        rule = f"it lies between 0 and half the rate, {fs / 2:g} Hz"
        raise UsageError(doing, f"{name} is {own:g} Hz", rule)
    return own


def _filtered(group: Group, sections: Array, doing: str) -> Group:
    poles = np.concatenate([np.roots(one) for one in sections[:, 3:]])
    radius = float(np.abs(poles).max())
    run_in = math.ceil(math.log(_FORGOTTEN) / math.log(radius)) if radius > 0 else 1
    # What SciPy itself asks of a signal: more than it makes up at its ends.
    least = _padding(sections) + 1
    shortest = min(stop - start for start, stop in group.spans)
    if shortest < least:
        told = "a piece between its gaps" if group.gaps else "the recording"
        raise UsageError(
            doing,
            f"{told} has {shortest} samples",
            f"the filter needs {least}",
            "use a longer recording or a lower order",
        )
    _warn_of_length(radius, shortest / group.fs, group.fs, doing)
    return _made(group, _Filtered(group, sections, run_in))


def _warn_of_length(radius: float, seconds: float, fs: float, doing: str) -> None:
    """Say where a filter still answers at one end to what it met at the other."""
    decay_s = math.log(_FAINT) / math.log(radius) / fs if 0 < radius < 1 else 0.0
    decay_s = float(f"{decay_s:.3g}")
    if decay_s > seconds:
        warnings.warn(
            RecordingWarning(
                doing,
                f"the filter goes on for {decay_s:.10g} s, and the recording for "
                f"{seconds:.10g} s: its ends and its offset reach into all of it; use "
                "a faster filter or a longer recording",
            ),
            stacklevel=outside(),
        )


def _padding(sections: Array) -> int:
    """SciPy's default: three times the coefficients."""
    taps = 2 * len(sections) + 1
    zeros = min(int((sections[:, 2] == 0).sum()), int((sections[:, 5] == 0).sum()))
    return 3 * (taps - zeros)


# --- another rate ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Resampled:
    """`up` samples for every `down`, by a polyphase filter.

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
        """See SampleReader."""
        signal = _scipy("resampling")
        # The filter reaches ten steps of the slower rate; blocks begin on whole ones.
        reach = 10 * max(self.up, self.down) // self.up + 2
        first = max(0, (start * self.down // self.up - reach) // self.down * self.down)
        last = min(self.group.n_samples, -(-stop * self.down // self.up) + reach)
        rows = _rows_of(self.group, channels)
        x = _physical(self.group, first, last)[rows]
        begin, slope = (one[rows, None] for one in self._line())
        x -= begin + slope * np.arange(first, last)
        out: Array = signal.resample_poly(x, self.up, self.down, axis=-1)
        skip = start - first * self.up // self.down
        times = np.arange(start, stop) * (self.down / self.up)
        own: Array = out[:, skip : skip + stop - start] + (begin + slope * times)
        return own

    def _line(self) -> tuple[Array, Array]:
        """Return where the line of every channel begins, and its rise per sample."""
        if not self.ends:
            n = self.group.n_samples
            ends = [_physical(self.group, at, at + 1)[:, 0] for at in (0, n - 1)]
            # A sample that is not finite makes no line: the other end's level holds.
            first, last = (
                np.where(np.isfinite(one), one, np.where(np.isfinite(two), two, 0.0))
                for one, two in (ends, ends[::-1])
            )
            self.ends.append((first, (last - first) / max(1, n - 1)))
        return self.ends[0]


def _resampled(group: Group, rate: float, doing: str) -> Group:
    own = number("resample", rate, doing)
    if own <= 0:
        raise UsageError(doing, f"resample is {own:g} Hz", "above 0")
    ratio = Fraction(own / group.fs).limit_denominator(_MOST_TERMS)
    near = float(f"{float(ratio) * group.fs:.12g}")
    if ratio <= 0 or ratio.numerator > _MOST_TERMS or abs(near - own) > 1e-9 * own:
        hint = f"take {near:.12g} Hz" if ratio > 0 else "take a higher rate"
        # Whoever wants a whole rate may want it for a format that has no others.
        whole = nearest_whole_rate(group.fs, own) if own.is_integer() else None
        if whole is not None and whole != near:
            hint += f", or {whole} Hz, which is whole"
        raise UsageError(
            doing,
            f"{group.fs:.12g} Hz to {own:.12g} Hz is no fraction of small numbers",
            f"both sides at most {_MOST_TERMS}",
            hint,
        )
    if ratio == 1:
        return group
    if group.gaps:
        raise UsageError(
            doing,
            f"{len(group.gaps)} gaps lie in the recording",
            "a rate is changed where samples follow each other",
            "leave the rate as it is, or resample one of the group's `pieces`",
        )
    _scipy(doing)
    up, down = ratio.numerator, ratio.denominator
    count = -(-group.n_samples * up // down)
    made = _made(group, _Resampled(group, up, down))
    return replace(made, fs=own, n_samples=count, first=group.first * up // down)


def nearest_whole_rate(
    fs: float, wanted: float, most: float = math.inf, multiple: int = 1
) -> int | None:
    """Return the whole rate nearest to a wanted one that `resample` can bring `fs` to.

    most, multiple  of the rates that are looked at: their limit, and what divides them
    → None where there is no such rate
    """
    found = None
    up = np.arange(1, _MOST_TERMS + 1)
    for down in range(1, _MOST_TERMS + 1):
        rates = fs * up / down
        whole = np.rint(rates / multiple) * multiple
        able = (whole >= 1) & (whole <= most) & (abs(rates - whole) <= 1e-10 * whole)
        for rate in whole[able]:
            if found is None or abs(rate - wanted) < abs(found - wanted):
                found = int(rate)
    return found


# --- all ------------------------------------------------------------------------------


def _made(group: Group, reader: Any) -> Group:
    """The group with samples of another reader, in physical units."""
    wide = np.dtype(np.float64)
    channels = tuple(replace(one, gain=1.0, offset=0.0) for one in group.channels)
    return replace(group, reader=reader, dtype=wide, digital=None, channels=channels)


def _physical(group: Group, start: int, stop: int) -> Array:
    return np.asarray(group.read(start, stop), np.float64)


def _rows_of(group: Group, channels: tuple[int, ...]) -> list[int]:
    """Which rows of the group the channels with these numbers in the file are."""
    at = {channel.index: row for row, channel in enumerate(group.channels)}
    return [at[channel] for channel in channels]


def _scipy(doing: str) -> Any:
    try:
        import scipy.signal
    except ImportError as error:
        raise not_installed(doing, "scipy", "pip install 'rlxweb[filter]'") from error
    return scipy.signal
