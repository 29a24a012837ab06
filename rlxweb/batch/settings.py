"""Settings of a run over recordings, and what they mean for a group of channels.

The options are those of `welch_peaks` and `open_recording`, by their names; the values
are checked where they are used, by the functions that Python callers use too.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rlxweb.batch.epoch_options import EpochOptions
from rlxweb.core.argument_validation import (
    check_choice,
    check_option_names,
    coerce_integer,
)
from rlxweb.core.device import parse_device
from rlxweb.core.errors import RecordingWarning
from rlxweb.core.function_options import call_arguments, options_of
from rlxweb.io import Group, open_recording
from rlxweb.io.storage_options import StorageAccess
from rlxweb.ops.welch.spec import DIGITAL_DTYPE, WelchSpec
from rlxweb.signal.frequency_bins import FrequencyLimit
from rlxweb.signal.precision import ResolvedPrecision, resolve_precision
from rlxweb.signal.spectrum_peaks import PeakSearch
from rlxweb.signal.welch_peaks import welch_peaks
from rlxweb.signal.welch_request import DEFAULT_NPERSEG, WelchRequest

DEFAULT_PEAK_COUNT = 16
_WELCH_OPTIONS = options_of(welch_peaks)
_READ_OPTIONS = options_of(open_recording)
_ESTIMATE_NAMES = frozenset(f.name for f in fields(WelchRequest))


@dataclass(frozen=True, init=False, slots=True)
class Settings:
    """Settings of a run over recordings.

    Parameters
    ----------
    segment_s : float, optional
        Seconds per segment: each rate gets its own nperseg, cut to the length of the
        recording (not to that of epochs).
    epochs : EpochOptions, optional
        The spectrum is that of these epochs, averaged; None: of all samples.
    storage : StorageAccess, optional
        How recordings behind URLs are reached; no result depends on it.
    spectra : bool
        Results hold the power at every bin; without, the peaks alone.
    **options
        Options of `rlxweb.welch_peaks` and `rlxweb.io.open_recording` by their names.
        None, or an option that is left out, has the default of the function, except
        for `k`: 16, or all bins where there are fewer; `nperseg`: 256, or a whole
        epoch where there are epochs; `device` and `precision`: "auto".

    Attributes
    ----------
    welch, reading : dict
        Values of the options of `welch_peaks` and of `open_recording`, all of them; not
        to be changed (`with_changes` makes other settings).

    Raises
    ------
    TypeError
        For an option that neither function declares.
    """

    segment_s: float | None
    epochs: EpochOptions | None
    storage: StorageAccess = field(compare=False)
    spectra: bool
    welch: dict[str, Any]
    reading: dict[str, Any]

    def __init__(
        self,
        *,
        segment_s: float | None = None,
        epochs: EpochOptions | None = None,
        storage: StorageAccess | None = None,
        spectra: bool = True,
        **options: Any,
    ) -> None:
        check_option_names("Settings", options, {**_WELCH_OPTIONS, **_READ_OPTIONS})
        values = {name: value for name, value in options.items() if value is not None}
        welch, reading = (
            {n: values.get(n, option.initial_value) for n, option in declared.items()}
            for declared in (_WELCH_OPTIONS, _READ_OPTIONS)
        )
        check_choice("nan", welch["nan"], _WELCH_OPTIONS["nan"].choices, "Settings")
        has_whole_epochs = epochs is not None and segment_s is None
        if welch["nperseg"] is None and not has_whole_epochs:
            welch["nperseg"] = DEFAULT_NPERSEG
        storage = storage or StorageAccess()
        field_values = segment_s, epochs, storage, spectra, welch, reading
        for setting, value in zip(fields(self), field_values, strict=True):
            object.__setattr__(self, setting.name, value)

    def __getattr__(self, name: str) -> Any:
        """Return the value of an option of `welch_peaks` or `open_recording`."""
        if name in _WELCH_OPTIONS:
            return self.welch[name]
        if name in _READ_OPTIONS:
            return self.reading[name]
        # A property that failed with an AttributeError of its own says so again.
        return object.__getattribute__(self, name)

    def __hash__(self) -> int:
        return hash(repr(self.as_json()))

    def with_changes(self, **changes: Any) -> Settings:
        """Return the settings with other values of some options."""
        options = {f.name: getattr(self, f.name) for f in fields(self)}
        return Settings(
            **{**options.pop("welch"), **options.pop("reading"), **options, **changes}
        )

    @property
    def open_arguments(self) -> dict[str, Any]:
        """Keyword arguments of `open_recording`."""
        return {**call_arguments(self.reading), "storage_options": self.storage}

    def nperseg_for(self, group: Group) -> int:
        """Return the samples per segment for a group, or for one that is as long as an
        epoch.
        """
        if self.segment_s is None:
            if self.nperseg is None:
                return group.longest
            return coerce_integer("nperseg", self.nperseg, "welch", accept_float=True)
        if self.epochs is None:
            return segment_samples(group, self.segment_s, f"{group.recording!r}")
        return max(1, round(self.segment_s * group.fs))

    def peak_search(self, spec: WelchSpec) -> PeakSearch:
        """Return the search for the peaks of a channel.

        Raises UsageError for more peaks than there are bins, and for an option that
        does not apply.
        """
        k = min(DEFAULT_PEAK_COUNT, spec.n_freqs) if self.k is None else self.k
        search = PeakSearch.from_options(self.welch | {"k": k})
        return search.checked("welch_peaks", spec.n_freqs)

    def as_json(self) -> dict[str, Any]:
        """Return the settings that the numbers depend on, as plain data."""
        return {
            **self.reading,
            **self.welch,
            "segment_s": self.segment_s,
            "epochs": None if self.epochs is None else asdict(self.epochs),
        }

    @property
    def requested_device(self) -> str:
        """Device that is requested, or "auto"; naming an adapter requests a GPU."""
        return requested_device(self.device, self.adapter)


def requested_device(device: str, adapter: str) -> str:
    """Return the label of the device that is requested, or "auto"; naming an adapter
    requests a GPU.
    """
    if device.strip().lower() != "auto":
        return parse_device(device).label
    return "gpu" if adapter else "auto"


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
    estimate = {n: v for n, v in settings.welch.items() if n in _ESTIMATE_NAMES}
    estimate |= {"fs": group.fs, "nperseg": nperseg}
    if group.gaps:
        # Whether the pieces have as many segments is known when they are averaged.
        estimate["nsegments"] = None
    request = WelchRequest(**call_arguments(estimate))
    return request.spec(group.longest, group_sample_type(settings, group).compute_dtype)
