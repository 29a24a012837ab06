"""Analysis of one recording from file to peaks, in this process or any other.

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

from rlxweb.batch.channel_group_power import BlockProgress, group_power
from rlxweb.batch.epoch_options import as_one_epoch, select_conditions
from rlxweb.batch.results import FileResult, GroupResult
from rlxweb.batch.settings import Settings, group_fmax, group_sample_type, group_spec
from rlxweb.batch.stage_timing import StageTimer
from rlxweb.core.errors import OutOfMemory, RlxError, UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io import Group, Recording, open_recording
from rlxweb.io.recording_state_fingerprint import has_state_when_open, state_fingerprint
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.ops.welch.parameters import segment_count
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.chooser import PlaceRequest, choose_place
from rlxweb.select.device_and_adapter import engine_key
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.rounding_floor import RoundingFloor
from rlxweb.signal.welch_candidates import PickedEngine, WelchJob

FileProgress = Callable[[int, int], object]
"""Callback that receives the number of samples of the file, and how many were just
done.
"""


def check_device(settings: Settings) -> None:
    """Open the requested device before anything is read or written.

    Errors   UnknownDevice; AdapterMissing, DeviceLost where it cannot be opened.
    """
    device_place, _ = PlaceRequest(
        settings.requested_device, settings.adapter
    ).named_place()
    if device_place is not None:
        engine_key(device_place)


def analyse(
    recording: Recording,
    settings: Settings,
    progress: BlockProgress | None = None,
    stages: StageTimer | None = None,
) -> FileResult:
    """Analyse all groups of an open recording.

    progress  called after each block with its number of samples, all channels counted
    stages    is told where the time goes
    Errors    those of the signal functions; NotFinite names channel and sample.
    """
    with _name_file_in_errors(recording.path):
        groups = tuple(
            result
            for group in recording.signals
            for result in _group_results(
                recording, group, settings, progress or bool, stages or StageTimer()
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
    stages: StageTimer | None = None,
) -> FileResult:
    """Analyse all groups of the recording at `path`, as is done with each file of a
    run.

    Settings in and result or error out all pickle, so any process can do it.

    Errors   those of `open_recording` and `analyse`; OutOfMemory
    """
    storage = settings.storage
    # Before it is read: what changes meanwhile is seen later.
    stamp = (
        "" if has_state_when_open(path, storage) else state_fingerprint(path, storage)
    )
    stages = stages or StageTimer()
    try:
        with stages.stage("open the file", "open"):
            opened = open_recording(path, **settings.open_arguments)
        with opened as recording:
            total_samples = sum(
                group.n_recorded * len(group.channels) for group in recording.signals
            )
            step = None if progress is None else partial(progress, total_samples)
            return replace(
                analyse(recording, settings, step, stages),
                stamp=stamp or recording.state,
                stages=stages.stage_seconds(),
                wall_s=stages.total_s,
            )
    except MemoryError as error:
        raise OutOfMemory(
            f"welch of {path!r}",
            "the host is out of memory",
            hint="use shorter segments, or fewer channels",
        ) from error


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """Job that runs `analyse_file` with its settings, for a run over many files."""

    settings: Settings

    def __call__(self, path: str, progress: FileProgress | None = None) -> FileResult:
        """Analyse one file; see `FileJob`."""
        return analyse_file(path, self.settings, progress)


MIN_COMPILED_SAMPLES: Final = 1 << 25
"""Minimum number of samples, in all segments of a recording, for which a compiled
kernel pays; NumPy takes 0.1 s.
"""


@contextmanager
def _name_file_in_errors(path: str) -> Iterator[None]:
    """Add the path to errors, as a batch may have hundreds of files."""
    try:
        yield
    except RlxError as error:
        if repr(path) not in error.doing:
            error.doing = f"{path!r}: {error.doing}"
        raise


def _group_results(
    recording: Recording,
    group: Group,
    settings: Settings,
    progress: BlockProgress,
    stages: StageTimer,
) -> Iterator[GroupResult]:
    """Yield the result of a group as it is, or of each condition of its epochs."""
    epoch_options = settings.epochs
    if epoch_options is None:
        spec = _resolve_spec(recording, group, settings)
        yield _analyse_group(recording, group, spec, settings, progress, stages)
        return
    spec = _resolve_spec(recording, as_one_epoch(group, epoch_options), settings)
    total_samples = group.n_samples * len(group.channels)
    epochs_share = 1.0 if epoch_options.reject is None else 0.5

    def report_share(share: float) -> object:
        return progress(round(epochs_share * share * total_samples))

    with stages.stage("choose the epochs", "epochs"):
        conditions = select_conditions(recording, group, epoch_options, report_share)
    signals = [
        condition.segment_signal(spec, checks_finite=settings.nan == "raise")
        for condition in conditions
    ]
    n_all = sum(condition.n_samples for condition in signals) * len(group.channels)
    # Every segment stands by itself in them.
    segment_spec = replace(spec, hop=spec.nperseg, n_segments=0)
    segment_settings = settings.with_changes(nsegments=None)
    for condition, signal in zip(conditions, signals, strict=True):
        result = _analyse_group(
            recording,
            signal,
            segment_spec,
            segment_settings,
            lambda n: report_share(n / n_all),
            stages,
        )
        yield replace(
            result, spec=spec, n_samples=group.n_samples, epochs=condition.averaged
        )


def _resolve_spec(recording: Recording, group: Group, settings: Settings) -> WelchSpec:
    """Return the Welch parameters for a group, or for one as long as an epoch."""
    nperseg = settings.nperseg_for(group)
    if nperseg <= group.longest:
        return group_spec(settings, group, nperseg)
    context = f"welch of {recording.path!r}"
    if settings.epochs is None:
        raise UsageError(
            context,
            f"nperseg is {nperseg}",
            f"the channels at {group.fs:g} Hz have "
            + (
                f"at most {group.longest} samples between gaps"
                if group.gaps
                else f"{group.longest} samples"
            ),
            Advice("use a smaller {}", nperseg=Blank("N")),
        )
    flag_hints = (
        {"segment_s": Blank("S")} if settings.segment_s else {"nperseg": Blank("N")}
    )
    raise UsageError(
        context,
        f"a segment has {nperseg} samples ({nperseg / group.fs:g} s)",
        f"an epoch at {group.fs:g} Hz has {group.n_samples} samples "
        f"({group.seconds:g} s)",
        Advice("use a smaller {}, or omit it to use whole epochs", **flag_hints),
    )


def _analyse_group(
    recording: Recording,
    group: Group,
    spec: WelchSpec,
    settings: Settings,
    progress: BlockProgress,
    stages: StageTimer,
) -> GroupResult:
    hz = frequencies(spec, group.fs)
    context = f"welch of {recording.path!r}"
    fmax = group_fmax(settings.fmax, group, recording.groups, context)
    band = BinRange.from_frequencies(hz, group.fs, settings.fmin, fmax, context)
    search = settings.peak_search(spec)
    # A band of fewer bins is shown whole.
    search = search._replace(k=min(search.k, len(band)))
    with stages.stage("choose the engine", "choose"):
        job = recording_job(group, spec, settings)
        request = PlaceRequest(settings.requested_device, settings.adapter)
        pick = choose_place(job, request)
        engine = PickedEngine(pick)
    power, floor, n_segments = group_power(
        group, spec, engine, settings, progress, stages
    )
    band_power = power[:, band.bins]
    with stages.stage("find the peaks", "peaks", band_power.nbytes):
        peaks = band.find_peaks(power, hz, search, floor)
    # Nothing is a copy, where a view would keep all of it.
    keeps_spectra = settings.spectra
    return GroupResult(
        names=group.names,
        units=tuple(c.unit for c in group.channels),
        fs=group.fs,
        n_samples=group.n_recorded,
        n_segments=n_segments,
        preset=settings.preset,
        mode=search.mode,
        spec=spec,
        hz=hz[band.bins] if keeps_spectra else hz[:0].copy(),
        power=band_power if keeps_spectra else power[:, :0].copy(),
        peaks=peaks,
        states=_channel_states(band_power, floor.select_bins(band.bins)),
        device=engine.device.label,
        engine=engine.name,
        decision=engine.decision,
    )


def recording_job(group: Group, spec: WelchSpec, settings: Settings) -> WelchJob:
    """Return the spectra of a group of channels as a job that a device is chosen for.

    It has no peaks: those are searched in the average of all blocks, on the host.
    """
    # By the size alone, for a recording's spectrum is the same bytes whenever computed.
    segments = settings.nsegments or sum(
        segment_count(piece.n_samples, spec.nperseg, spec.hop) for piece in group.pieces
    )
    n_transformed = len(group.channels) * segments * spec.nfft
    return WelchJob(
        spec,
        len(group.channels),
        group.longest,
        k=0,
        sample_type=group_sample_type(settings, group),
        use_compiled=n_transformed >= MIN_COMPILED_SAMPLES,
    )


def _channel_states(power: NDArray[Any], floor: RoundingFloor) -> tuple[str, ...]:
    finite = np.isfinite(power).any(axis=1)
    return tuple(
        "not finite" if not is_finite else "flat" if is_flat else ""
        for is_finite, is_flat in zip(finite, floor.is_flat(power), strict=True)
    )
