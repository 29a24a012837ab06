"""The main job: walk a recording in blocks, average, find the peaks. Prints nothing.

Owns how much of a recording is held at once: blocks of samples, and fewer channels at a
time where one segment of all of them would not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.choose.chooser import Asked, choose
from rlxweb.cli.band import Band
from rlxweb.decision.decision import Decision
from rlxweb.device import Device, parse_device
from rlxweb.devices.place import engine_key
from rlxweb.errors import RlxError, UsageError
from rlxweb.host.spec import DIGITAL, WelchSpec
from rlxweb.host.spectrum import frequencies
from rlxweb.host.strongest import PeaksOfPower
from rlxweb.io import Group, Recording, check_finite
from rlxweb.signal.engine import Engine
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.peaks_of_power import check_prominence
from rlxweb.signal.picked import PickedEngine
from rlxweb.signal.precision import Precision, Taken, taken
from rlxweb.signal.presets import from_preset
from rlxweb.signal.request import OF_PRESET
from rlxweb.signal.rounding import RoundingFloor
from rlxweb.signal.stream import WelchStream
from rlxweb.signal.welch_peaks import checked_k

# Bytes of float64 samples in one block. Reading, widening and framing hold a few
# blocks at a time.
BLOCK_BYTES = 8 << 20
USUAL_K = 16
# What was asked for → what the presets call it, where they differ.
_DETREND = {None: OF_PRESET, "none": None}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for; `precision` and `device` may be "auto".

    segment_s  seconds per segment; where given, each rate gets its own nperseg, cut to
               the length of the recording
    k          peaks per channel; None is 16, or all bins where there are fewer
    """

    fs: float | None = None
    nperseg: int = 256
    segment_s: float | None = None
    k: int | None = None
    noverlap: int | None = None
    nsegments: int | None = None
    preset: str = "rlx"
    mode: str = "bins"
    window: str | tuple[object, ...] | None = None
    detrend: str | None = None
    channels: tuple[str, ...] = ()
    array: str | None = None
    layout: str | None = None
    device: str = "auto"
    adapter: str = ""
    precision: Precision = "auto"
    nan: str = "raise"
    prominence: float | None = None
    fmin: float | None = None
    fmax: float | None = None

    def nperseg_of(self, group: Group) -> int:
        if self.segment_s is None:
            return self.nperseg
        return max(1, min(round(self.segment_s * group.fs), group.n_samples))

    def k_of(self, spec: WelchSpec) -> int:
        """Errors   UsageError for a number that was asked for and is not there."""
        k = min(USUAL_K, spec.n_freqs) if self.k is None else self.k
        return checked_k(k, spec.n_freqs, self.mode)

    @property
    def asked_device(self) -> str:
        """The device asked for, or "auto"; naming an adapter asks for a GPU."""
        if self.device.strip().lower() != "auto":
            return parse_device(self.device).label
        return "gpu" if self.adapter else "auto"


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Spectra and peaks of the channels of one rate.

    power (C, F), hz (F,): of the band that was asked for; peaks as (C, k) arrays; floor
    says what rounding leaves
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    fs: float
    n_samples: int
    n_segments: int
    preset: str
    mode: str
    spec: WelchSpec
    hz: NDArray[np.float64]
    power: NDArray[Any]
    peaks: PeaksOfPower
    floor: RoundingFloor
    device: str
    engine: str
    decision: Decision

    @property
    def dtype(self) -> str:
        """Of the arithmetic; a device's is always float32."""
        on_host = self.device == Device.CPU.label
        return self.spec.power_dtype.name if on_host else "float32"

    @property
    def resolution(self) -> float:
        """Hz from one bin to the next."""
        return self.fs / self.spec.nfft

    @property
    def first_bin(self) -> int:
        """The number of the first bin of the band."""
        return round(float(self.hz[0]) / self.resolution)

    def power_unit(self, unit: str) -> str:
        """Of the power of a channel in `unit`; "" where the file names none."""
        squared = f"{unit.replace('uV', 'µV')}²" if unit else ""
        if self.preset == "rlx":
            return squared
        return f"{squared}/Hz" if squared else "1/Hz"


@dataclass(frozen=True, slots=True)
class FileResult:
    """Everything found in one recording; `warnings` are what is wrong with its file."""

    path: str
    format: str
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    groups: tuple[GroupResult, ...]


Progress = Callable[[int], None]


def check_device(settings: Settings) -> None:
    """Open the device that is asked for, before anything is read or written.

    Errors   UnknownDevice; AdapterMissing, DeviceLost where it cannot be opened.
    """
    place, _ = Asked(settings.asked_device, settings.adapter).place()
    if place is not None:
        engine_key(place)


def analyse(
    recording: Recording, settings: Settings, progress: Progress | None = None
) -> FileResult:
    """All groups of an open recording.

    progress  called after each block with its number of samples, all channels counted
    Errors    those of the signal functions; NotFinite names channel and sample.
    """
    with _naming(recording.path):
        groups = tuple(
            _group(recording, group, settings, progress) for group in recording.groups
        )
    return FileResult(
        recording.path,
        recording.format,
        recording.left_out,
        recording.warnings,
        groups,
    )


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors say which file they are about: one of a batch may be hundreds of names."""
    try:
        yield
    except RlxError as error:
        if repr(path) not in error.doing:
            error.doing = f"{path!r}: {error.doing}"
        raise


def _group(
    recording: Recording, group: Group, settings: Settings, progress: Progress | None
) -> GroupResult:
    nperseg = settings.nperseg_of(group)
    if nperseg > group.n_samples:
        raise UsageError(
            f"welch of {recording.path!r}",
            f"nperseg is {nperseg}",
            f"the channels at {group.fs:g} Hz have {group.n_samples} samples",
            Advice("use a smaller {}", nperseg=Blank("N")),
        )
    spec = group_spec(settings, group, nperseg)
    hz = frequencies(spec, group.fs)
    doing = f"welch of {recording.path!r}"
    band = Band.of(hz, settings.fmin, settings.fmax, doing)
    # A band of fewer bins is shown whole.
    k = min(settings.k_of(spec), len(band))
    check_prominence(settings.prominence, settings.mode)
    # Peaks are searched in the whole recording's average, so blocks give spectra.
    how = group_taken(settings, group)
    job = WelchJob(spec, len(group.channels), group.n_samples, 0, taken=how)
    pick = choose(job, Asked(settings.asked_device, settings.adapter))
    engine = PickedEngine(pick)
    power, floor, n_segments = _power(group, spec, engine, settings, progress)
    return GroupResult(
        names=group.names,
        units=tuple(c.unit for c in group.channels),
        fs=group.fs,
        n_samples=group.n_samples,
        n_segments=n_segments,
        preset=settings.preset,
        mode=settings.mode,
        spec=spec,
        hz=hz[band.bins],
        power=power[:, band.bins],
        peaks=band.peaks(power, hz, k, settings.prominence, settings.mode, floor),
        floor=floor.of_bins(band.bins),
        device=engine.device.label,
        engine=engine.name,
        decision=engine.decision,
    )


def group_taken(settings: Settings, group: Group) -> Taken:
    """How the group's samples are taken."""
    stored = group.dtype if group.digital is None else DIGITAL
    return taken(stored, settings.precision)


def group_spec(settings: Settings, group: Group, nperseg: int) -> WelchSpec:
    """Resolved for the group's length."""
    return from_preset(
        settings.preset,
        group.n_samples,
        fs=group.fs,
        nperseg=nperseg,
        noverlap=settings.noverlap,
        nsegments=settings.nsegments,
        window=settings.window,
        detrend=_DETREND.get(settings.detrend, settings.detrend),
        dtype=group_taken(settings, group).kind,
    )


def _power(
    group: Group,
    spec: WelchSpec,
    engine: Engine,
    settings: Settings,
    progress: Progress | None,
) -> tuple[NDArray[Any], RoundingFloor, int]:
    """Power (C, F) of the whole group, its floor, and the segments averaged."""
    power = np.empty((len(group.channels), spec.n_freqs), spec.power_dtype)
    floors, n_segments = [], 0
    streamed = replace(spec, n_segments=settings.nsegments or 0)
    # As many channels at a time as one block can hold.
    most = max(1, BLOCK_BYTES // (8 * spec.nperseg))
    for at in range(0, len(group.channels), most):
        part = replace(group, channels=group.channels[at : at + most])
        # `check_finite` has looked already, and knows the channels' names.
        stream = WelchStream(
            streamed,
            len(part.channels),
            engine,
            strict=True,  # the engine does it again itself, elsewhere if need be
            nan="propagate",
            names=part.names,
            doing=f"welch of {group.recording!r}",
        )
        wide = max(1, BLOCK_BYTES // (8 * len(part.channels)))
        # Whole hops per block keep every block but the last the same shape on a device.
        size = max(spec.nperseg, wide // spec.hop * spec.hop)
        for block in part.stored_blocks(min(size, group.n_samples)):
            if settings.nan == "raise":
                check_finite(block.data, part, block.start)
            stream.feed(block.data)
            if progress is not None:
                progress(math.prod(block.data.shape))
            if stream.is_full:
                break
        power[at : at + most] = stream.result()
        floors.append(stream.floor())
        n_segments = stream.n_segments
    return power, RoundingFloor.joined(floors), n_segments
