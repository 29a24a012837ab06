"""Settings of a run over recordings, and what they mean for a group of channels.

Knows every option by one name and no command line: the values are checked where they
are used, by the functions that Python callers use too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlxweb.batch.epoch_options import EpochOptions
from rlxweb.core.device import parse_device
from rlxweb.core.errors import RecordingWarning
from rlxweb.io import Group
from rlxweb.io.format_reader_interface import ArrayLayout
from rlxweb.io.storage_options import StorageAccess
from rlxweb.ops.welch.spec import DIGITAL_DTYPE, WelchSpec
from rlxweb.signal.frequency_bins import FrequencyLimit
from rlxweb.signal.precision import Precision, ResolvedPrecision, resolve_precision
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_peaks_arguments import validate_k
from rlxweb.signal.welch_request import DETREND_FROM_PRESET

DEFAULT_PEAK_COUNT = 16
READ_OPTIONS = (
    *("fs", "channels", "exclude", "start", "stop", "array", "layout"),
    *("reference", "highpass", "lowpass", "notch", "resample"),
)
"""Names of the options that select what is read of a recording, and its preprocessing.
"""
# What was asked for → what the presets call it, where they differ.
_DETREND_ALIASES = {None: DETREND_FROM_PRESET, "none": None}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that the user chose; `precision` and `device` may be "auto".

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
    layout: ArrayLayout | None = None
    device: str = "auto"
    adapter: str = ""
    precision: Precision = "auto"
    nan: str = "raise"
    prominence: float | None = None
    fmin: float | None = None
    fmax: float | None = None
    spectra: bool = True
    epochs: EpochOptions | None = None
    storage: StorageAccess = field(default_factory=StorageAccess, compare=False)

    def nperseg_for(self, group: Group) -> int:
        """Return the samples per segment for a group, or for one that is as long as an
        epoch.
        """
        if self.segment_s is None:
            return group.longest if self.nperseg is None else self.nperseg
        if self.epochs is None:
            return segment_samples(group, self.segment_s, f"{group.recording!r}")
        return max(1, round(self.segment_s * group.fs))

    def peak_count_for(self, spec: WelchSpec) -> int:
        """Return the number of peaks per channel. Errors   UsageError for a number that
        was asked for and is not there.
        """
        k = min(DEFAULT_PEAK_COUNT, spec.n_freqs) if self.k is None else self.k
        return validate_k(k, spec.n_freqs, self.mode)

    def as_json(self) -> dict[str, Any]:
        """Return the settings that the numbers depend on, as plain data."""
        values = asdict(self)
        del values["spectra"]
        del values["storage"]
        return values

    @property
    def requested_device(self) -> str:
        """Device that is requested, or "auto"; naming an adapter requests a GPU."""
        if self.device.strip().lower() != "auto":
            return parse_device(self.device).label
        return "gpu" if self.adapter else "auto"


def group_fmax(
    fmax: float | None, group: Group, groups: Sequence[Group], context: str
) -> float | None:
    """Return the highest frequency to use for a group of a recording.

    All of them for a group that is too slow for `fmax` beside a faster one that holds
    it, with a warning. What no group holds stays, and is refused where it is used.
    """
    fastest = max((member.fs for member in groups), default=group.fs)
    if fmax is None or FrequencyLimit.from_rate(group.fs).allows(fmax):
        return fmax
    if not FrequencyLimit.from_rate(fastest).allows(fmax):
        return fmax
    message = (
        f"channels sampled at {group.fs:g} Hz contain frequencies up to "
        f"{group.fs / 2:g} Hz; fmax, {fmax:g} Hz, is not applied to them"
    )
    warnings.warn(RecordingWarning(context, message), stacklevel=2)
    return None


def segment_samples(group: Group, segment_s: float, context: str) -> int:
    """Return the samples of a segment of so many seconds, at most all of a group.

    Warns where the recording is shorter.
    """
    requested = max(1, round(segment_s * group.fs))
    if requested > group.longest:
        gap_note = " between gaps" if group.gaps else ""
        message = (
            f"the channels at {group.fs:g} Hz have {group.longest / group.fs:g} s"
            f"{gap_note}, less than a segment of {segment_s:g} s; using one segment "
            f"of {group.longest / group.fs:g} s"
        )
        warnings.warn(RecordingWarning(context, message), stacklevel=2)
    return min(requested, group.longest)


def group_sample_type(settings: Settings, group: Group) -> ResolvedPrecision:
    """Resolve the precision in which the group's samples are computed."""
    stored = group.dtype if group.digital is None else DIGITAL_DTYPE
    return resolve_precision(stored, settings.precision)


def group_spec(settings: Settings, group: Group, nperseg: int) -> WelchSpec:
    """Resolve the Welch parameters for the length of the group, or of its longest piece
    without a gap.
    """
    return spec_from_preset(
        settings.preset,
        group.longest,
        fs=group.fs,
        nperseg=nperseg,
        noverlap=settings.noverlap,
        # Of pieces it is told while they are averaged whether they have as many.
        nsegments=None if group.gaps else settings.nsegments,
        window=settings.window,
        detrend=_DETREND_ALIASES.get(settings.detrend, settings.detrend),
        dtype=group_sample_type(settings, group).compute_dtype,
    )


_EMPTY_MEANS_NONE = ("channels", "exclude", "reference", "notch")


def build_open_options(
    options: Mapping[str, Any], storage: StorageAccess
) -> dict[str, Any]:
    """Return the keyword arguments of `open_recording` from options by name; () becomes
    None.
    """
    arguments = {name: options[name] for name in READ_OPTIONS}
    for name in _EMPTY_MEANS_NONE:
        arguments[name] = arguments[name] or None
    return {**arguments, "storage_options": storage}
