"""What is asked of a run over recordings, and what it means for a group of channels.

Knows every option by one name and no command line: the values are checked where they
are used, by the functions that Python callers use too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlxweb.device import parse_device
from rlxweb.errors import RecordingWarning
from rlxweb.host.spec import DIGITAL, WelchSpec
from rlxweb.io import Group
from rlxweb.io.access import Access
from rlxweb.io.contents import Layout
from rlxweb.jobs.epoching import Epoching
from rlxweb.signal.band import Reach
from rlxweb.signal.peaks_asked import checked_k
from rlxweb.signal.precision import Precision, Taken, taken
from rlxweb.signal.presets import from_preset
from rlxweb.signal.request import OF_PRESET

USUAL_K = 16
OF_FILES = (
    *("fs", "channels", "exclude", "start", "stop", "array", "layout"),
    *("reference", "highpass", "lowpass", "notch", "resample"),
)
"""Options that say what of a recording is taken, and how it is made ready."""
# What was asked for → what the presets call it, where they differ.
_DETREND = {None: OF_PRESET, "none": None}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for; `precision` and `device` may be "auto".

    nperseg    None: the whole length, of epochs
    segment_s  seconds per segment; where given, each rate gets its own nperseg, cut to
               the length of the recording (not to that of epochs)
    epochs     the spectrum is that of epochs, averaged; None: of all that is taken
    storage    how recordings behind URLs are reached; no number depends on it
    k          peaks per channel; None is 16, or all bins where there are fewer
    reference … resample  how channels are made ready, likewise; () is None
    start, stop  the stretch of each recording, as `open_recording` takes them
    spectra    results hold the power at every bin; without, the peaks alone
    """

    fs: float | None = None
    nperseg: int | None = 256
    segment_s: float | None = None
    k: int | None = None
    noverlap: int | None = None
    nsegments: int | None = None
    preset: str = "rlx"
    mode: str = "bins"
    window: str | tuple[object, ...] | None = None
    detrend: str | None = None
    channels: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    start: str | None = None
    stop: str | None = None
    reference: tuple[str, ...] = ()
    highpass: float | None = None
    lowpass: float | None = None
    notch: tuple[float, ...] = ()
    resample: float | None = None
    array: str | None = None
    layout: Layout | None = None
    device: str = "auto"
    adapter: str = ""
    precision: Precision = "auto"
    nan: str = "raise"
    prominence: float | None = None
    fmin: float | None = None
    fmax: float | None = None
    spectra: bool = True
    epochs: Epoching | None = None
    storage: Access = field(default_factory=Access, compare=False)

    def nperseg_of(self, group: Group) -> int:
        """Of a group, or of one that is as long as an epoch."""
        if self.segment_s is None:
            return group.longest if self.nperseg is None else self.nperseg
        if self.epochs is None:
            return segment_of(group, self.segment_s, f"{group.recording!r}")
        return max(1, round(self.segment_s * group.fs))

    def k_of(self, spec: WelchSpec) -> int:
        """Errors   UsageError for a number that was asked for and is not there."""
        k = min(USUAL_K, spec.n_freqs) if self.k is None else self.k
        return checked_k(k, spec.n_freqs, self.mode)

    def as_json(self) -> dict[str, Any]:
        """What the numbers depend on, as plain data."""
        asked = asdict(self)
        del asked["spectra"]
        del asked["storage"]
        return asked

    @property
    def asked_device(self) -> str:
        """The device asked for, or "auto"; naming an adapter asks for a GPU."""
        if self.device.strip().lower() != "auto":
            return parse_device(self.device).label
        return "gpu" if self.adapter else "auto"


def fmax_of(
    fmax: float | None, group: Group, groups: Sequence[Group], doing: str
) -> float | None:
    """Highest frequency to ask of a group of a recording.

    All of them for a group that is too slow for `fmax` beside a faster one that holds
    it, with a warning. What no group holds stays, and is refused where it is used.
    """
    fastest = max((one.fs for one in groups), default=group.fs)
    if fmax is None or Reach.of_rate(group.fs).holds(fmax):
        return fmax
    if not Reach.of_rate(fastest).holds(fmax):
        return fmax
    said = (
        f"channels at {group.fs:g} Hz end at {group.fs / 2:g} Hz, below the highest "
        f"frequency asked for, {fmax:g} Hz: all of theirs are taken"
    )
    warnings.warn(RecordingWarning(doing, said), stacklevel=2)
    return None


def segment_of(group: Group, segment_s: float, doing: str) -> int:
    """Samples of a segment of so many seconds, at most all of a group.

    Warns where the recording is shorter.
    """
    asked = max(1, round(segment_s * group.fs))
    if asked > group.longest:
        without = " without a gap" if group.gaps else ""
        said = (
            f"segments of {segment_s:g} s are longer than the channels at "
            f"{group.fs:g} Hz, {group.longest / group.fs:g} s{without}: the whole is "
            "one segment"
        )
        warnings.warn(RecordingWarning(doing, said), stacklevel=2)
    return min(asked, group.longest)


def group_taken(settings: Settings, group: Group) -> Taken:
    """How the group's samples are taken."""
    stored = group.dtype if group.digital is None else DIGITAL
    return taken(stored, settings.precision)


def group_spec(settings: Settings, group: Group, nperseg: int) -> WelchSpec:
    """Resolved for the length of the group, or of its longest piece without a gap."""
    return from_preset(
        settings.preset,
        group.longest,
        fs=group.fs,
        nperseg=nperseg,
        noverlap=settings.noverlap,
        # Of pieces it is told while they are averaged whether they have as many.
        nsegments=None if group.gaps else settings.nsegments,
        window=settings.window,
        detrend=_DETREND.get(settings.detrend, settings.detrend),
        dtype=group_taken(settings, group).kind,
    )


_NONE_GIVEN = ("channels", "exclude", "reference", "notch")


def reading_of(asked: Mapping[str, Any], access: Access) -> dict[str, Any]:
    """What `open_recording` takes besides the path, of options by its names; () is
    None.
    """
    given = {name: asked[name] for name in OF_FILES}
    for name in _NONE_GIVEN:
        given[name] = given[name] or None
    return {**given, "storage_options": access}
