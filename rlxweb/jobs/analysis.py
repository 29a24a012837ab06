"""One recording from file to peaks: what a run does with each, here or elsewhere.

Prints nothing and keeps nothing; every group of channels chooses its own engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.choose.chooser import Asked, choose
from rlxweb.devices.place import engine_key
from rlxweb.errors import OutOfMemory, RlxError, UsageError
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import frequencies
from rlxweb.io import Group, Recording, open_recording
from rlxweb.io.identity import identity, is_told_when_open
from rlxweb.jobs.averaging import Progress, group_power
from rlxweb.jobs.epoching import conditions_of, length_of
from rlxweb.jobs.results import FileResult, GroupResult
from rlxweb.jobs.settings import Settings, fmax_of, group_spec, group_taken
from rlxweb.jobs.stages import Stages
from rlxweb.recipes.welch_plan import segment_count
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.peaks_of_power import check_prominence
from rlxweb.signal.picked import PickedEngine
from rlxweb.signal.rounding import RoundingFloor

FileProgress = Callable[[int, int], object]
"""Is told how many samples the file has, and how many were just done."""


def check_device(settings: Settings) -> None:
    """Open the device that is asked for, before anything is read or written.

    Errors   UnknownDevice; AdapterMissing, DeviceLost where it cannot be opened.
    """
    place, _ = Asked(settings.asked_device, settings.adapter).place()
    if place is not None:
        engine_key(place)


def analyse(
    recording: Recording,
    settings: Settings,
    progress: Progress | None = None,
    stages: Stages | None = None,
) -> FileResult:
    """All groups of an open recording.

    progress  called after each block with its number of samples, all channels counted
    stages    is told where the time goes
    Errors    those of the signal functions; NotFinite names channel and sample.
    """
    with _naming(recording.path):
        groups = tuple(
            result
            for group in recording.signals
            for result in _results(
                recording, group, settings, progress or bool, stages or Stages()
            )
        )
    return FileResult(
        recording.path,
        recording.format,
        recording.left_out,
        recording.warnings,
        groups,
    )


def analyse_file(
    path: str,
    settings: Settings,
    progress: FileProgress | None = None,
    stages: Stages | None = None,
) -> FileResult:
    """All groups of the recording at `path`: what is done with each file of a run.

    Settings in and result or error out all pickle, so any process can do it.

    Errors   those of `open_recording` and `analyse`; OutOfMemory
    """
    access = settings.storage
    # Before it is read: what changes meanwhile is seen later.
    stamp = "" if is_told_when_open(path, access) else identity(path, access)
    stages = stages or Stages()
    try:
        with stages.stage("open the file", "open"):
            opened = open_recording(
                path,
                fs=settings.fs,
                channels=settings.channels or None,
                array=settings.array,
                layout=settings.layout,
                storage_options=access,
                exclude=settings.exclude or None,
                start=settings.start,
                stop=settings.stop,
                reference=settings.reference or None,
                highpass=settings.highpass,
                lowpass=settings.lowpass,
                notch=settings.notch or None,
                resample=settings.resample,
            )
        with opened as recording:
            work = sum(g.n_recorded * len(g.channels) for g in recording.signals)
            step = None if progress is None else partial(progress, work)
            return replace(
                analyse(recording, settings, step, stages),
                stamp=stamp or recording.state,
                stages=stages.told(),
                wall_s=stages.total_s,
            )
    except MemoryError as error:
        raise OutOfMemory(
            f"welch of {path!r}",
            "out of memory",
            hint="use shorter segments, or fewer channels",
        ) from error


@dataclass(frozen=True, slots=True)
class Analysis:
    """`analyse_file` with its settings, for a run over many files."""

    settings: Settings

    def __call__(self, path: str, progress: FileProgress | None = None) -> FileResult:
        """See `Job`."""
        return analyse_file(path, self.settings, progress)


COMPILED_SAMPLES: Final = 1 << 25
"""Samples in the segments of a recording that pay for a kernel: NumPy takes 0.1 s."""


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors say which file they are about: one of a batch may be hundreds of names."""
    try:
        yield
    except RlxError as error:
        if repr(path) not in error.doing:
            error.doing = f"{path!r}: {error.doing}"
        raise


def _results(
    recording: Recording,
    group: Group,
    settings: Settings,
    progress: Progress,
    stages: Stages,
) -> Iterator[GroupResult]:
    """Of a group as it is, or of each condition of its epochs."""
    asked = settings.epochs
    if asked is None:
        spec = _spec(recording, group, settings)
        yield _group(recording, group, spec, settings, progress, stages)
        return
    spec = _spec(recording, length_of(group, asked), settings)
    whole = group.n_samples * len(group.channels)
    part = 1.0 if asked.reject is None else 0.5

    def tell(share: float) -> object:
        return progress(round(part * share * whole))

    with stages.stage("choose the epochs", "epochs"):
        conditions = conditions_of(recording, group, asked, tell)
    signals = [
        one.signal(spec, is_looked_at=settings.nan == "raise") for one in conditions
    ]
    n_all = sum(one.n_samples for one in signals) * len(group.channels)
    # Every segment stands by itself in them.
    apart = replace(spec, hop=spec.nperseg, n_segments=0)
    alone = replace(settings, nsegments=None)
    for one, signal in zip(conditions, signals, strict=True):
        result = _group(
            recording, signal, apart, alone, lambda n: tell(n / n_all), stages
        )
        yield replace(result, spec=spec, n_samples=group.n_samples, epochs=one.used)


def _spec(recording: Recording, group: Group, settings: Settings) -> WelchSpec:
    """The estimate for a group, or for one as long as an epoch."""
    nperseg = settings.nperseg_of(group)
    if nperseg <= group.longest:
        return group_spec(settings, group, nperseg)
    doing = f"welch of {recording.path!r}"
    if settings.epochs is None:
        raise UsageError(
            doing,
            f"nperseg is {nperseg}",
            f"the channels at {group.fs:g} Hz have {group.longest} samples"
            f"{' without a gap' if group.gaps else ''}",
            Advice("use a smaller {}", nperseg=Blank("N")),
        )
    blank = {"segment_s": Blank("S")} if settings.segment_s else {"nperseg": Blank("N")}
    raise UsageError(
        doing,
        f"a segment has {nperseg} samples ({nperseg / group.fs:g} s)",
        f"an epoch at {group.fs:g} Hz has {group.n_samples} ({group.seconds:g} s)",
        Advice("use a smaller {}, or leave it out for whole epochs", **blank),
    )


def _group(
    recording: Recording,
    group: Group,
    spec: WelchSpec,
    settings: Settings,
    progress: Progress,
    stages: Stages,
) -> GroupResult:
    hz = frequencies(spec, group.fs)
    doing = f"welch of {recording.path!r}"
    fmax = fmax_of(settings.fmax, group, recording.groups, doing)
    band = Band.of(hz, group.fs, settings.fmin, fmax, doing)
    # A band of fewer bins is shown whole.
    k = min(settings.k_of(spec), len(band))
    check_prominence(settings.prominence, settings.mode)
    # Peaks are searched in the whole recording's average, so blocks give spectra.
    how = group_taken(settings, group)
    job = WelchJob(spec, len(group.channels), group.longest, 0, taken=how)
    # By the size alone, for a recording's spectrum is the same bytes whenever computed.
    segments = settings.nsegments or sum(
        segment_count(piece.n_samples, spec.nperseg, spec.hop) for piece in group.pieces
    )
    transformed = job.n_rows * segments * spec.nfft
    job = replace(job, compiled=transformed >= COMPILED_SAMPLES)
    with stages.stage("choose the engine", "choose"):
        pick = choose(job, Asked(settings.asked_device, settings.adapter))
        engine = PickedEngine(pick)
    power, floor, n_segments = group_power(
        group, spec, engine, settings, progress, stages
    )
    inside = power[:, band.bins]
    with stages.stage("search the peaks", "peaks", inside.nbytes):
        peaks = band.peaks(power, hz, k, settings.prominence, settings.mode, floor)
    # Nothing is a copy, where a view would keep all of it.
    is_kept = settings.spectra
    return GroupResult(
        names=group.names,
        units=tuple(c.unit for c in group.channels),
        fs=group.fs,
        n_samples=group.n_recorded,
        n_segments=n_segments,
        preset=settings.preset,
        mode=settings.mode,
        spec=spec,
        hz=hz[band.bins] if is_kept else hz[:0].copy(),
        power=inside if is_kept else power[:, :0].copy(),
        peaks=peaks,
        states=_states(inside, floor.of_bins(band.bins)),
        device=engine.device.label,
        engine=engine.name,
        decision=engine.decision,
    )


def _states(power: NDArray[Any], floor: RoundingFloor) -> tuple[str, ...]:
    known = np.isfinite(power).any(axis=1)
    return tuple(
        "not finite" if not is_known else "flat" if is_flat else ""
        for is_known, is_flat in zip(known, floor.is_flat(power), strict=True)
    )
