"""The main job: walk a recording in blocks, average, find the peaks. Prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.compile.plan import Decision
from rlxweb.errors import UsageError
from rlxweb.io import Group, Recording, check_finite
from rlxweb.signal.choose import choose_engine
from rlxweb.signal.engine import Engine
from rlxweb.signal.peaks_of_power import PeaksOfPower, peaks_of_power
from rlxweb.signal.presets import OF_PRESET, from_preset
from rlxweb.signal.spec import WelchSpec
from rlxweb.signal.spectrum import frequencies
from rlxweb.signal.stream import WelchStream
from rlxweb.signal.welch_peaks import checked_k

# Bytes of float64 samples held at once; a block is never shorter than one segment.
BLOCK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for; `precision` and `device` may be "auto"."""

    fs: float | None = None
    nperseg: int = 256
    k: int = 16
    noverlap: int | None = None
    nsegments: int | None = None
    preset: str = "rlx"
    mode: str = "bins"
    window: str | None = None
    detrend: str | None = None
    channels: tuple[str, ...] = ()
    array: str | None = None
    layout: str | None = None
    device: str = "auto"
    adapter: str = ""
    precision: str = "auto"
    nan: str = "raise"
    prominence: float | None = None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Spectra and peaks of the channels of one rate.

    power (C, F), hz (F,); peaks as (C, k) arrays
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    fs: float
    n_samples: int
    n_segments: int
    spec: WelchSpec
    hz: NDArray[np.float64]
    power: NDArray[Any]
    peaks: PeaksOfPower
    device: str
    engine: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class FileResult:
    """Everything found in one recording."""

    path: str
    format: str
    left_out: tuple[tuple[str, str], ...]
    groups: tuple[GroupResult, ...]


Progress = Callable[[int], None]


def analyse(
    recording: Recording, settings: Settings, progress: Progress | None = None
) -> FileResult:
    """All groups of an open recording. `progress(samples)` is called after each block.

    Errors   those of the signal functions; NotFinite names channel and sample.
    """
    groups = tuple(
        _group(recording, group, settings, progress) for group in recording.groups
    )
    return FileResult(recording.path, recording.format, recording.left_out, groups)


def _group(
    recording: Recording, group: Group, settings: Settings, progress: Progress | None
) -> GroupResult:
    if settings.nperseg > group.n_samples:
        raise UsageError(
            f"welch of {recording.path!r}",
            f"nperseg is {settings.nperseg}",
            f"the channels at {group.fs:g} Hz have {group.n_samples} samples",
            "use a smaller --nperseg",
        )
    spec = _spec(settings, group)
    k = checked_k(settings.k, spec.n_freqs, settings.mode)
    engine, decision = choose_engine(
        spec, len(group.channels), group.n_samples, settings.device, settings.adapter
    )
    stream = _walk(group, spec, engine, settings, progress)
    power, hz = stream.result(), frequencies(spec, group.fs)
    return GroupResult(
        names=group.names,
        units=tuple(c.unit for c in group.channels),
        fs=group.fs,
        n_samples=group.n_samples,
        n_segments=stream.n_segments,
        spec=spec,
        hz=hz,
        power=power,
        peaks=peaks_of_power(power, hz, k, settings.prominence, settings.mode),
        device=engine.device.label,
        engine=engine.name,
        decision=decision,
    )


def _spec(settings: Settings, group: Group) -> WelchSpec:
    """Resolved for the group's length; the dtype follows device and precision."""
    single = settings.precision == "f32" or (
        settings.precision == "auto"
        and (group.dtype == np.float32 or settings.device not in ("auto", "cpu"))
    )
    return from_preset(
        settings.preset,
        group.n_samples,
        fs=group.fs,
        nperseg=settings.nperseg,
        noverlap=settings.noverlap,
        nsegments=settings.nsegments,
        window=settings.window,
        detrend=OF_PRESET if settings.detrend is None else _detrend(settings.detrend),
        dtype=np.float32 if single else np.float64,
    )


def _detrend(text: str) -> str | None:
    return None if text == "none" else text


def _walk(
    group: Group,
    spec: WelchSpec,
    engine: Engine,
    settings: Settings,
    progress: Progress | None,
) -> WelchStream:
    asked = settings.nsegments or 0
    stream = WelchStream(replace(spec, n_segments=asked), len(group.channels), engine)
    wide = max(1, BLOCK_BYTES // (8 * len(group.channels)))
    # Whole hops per block keep every block but the last the same shape on a device.
    size = max(spec.nperseg, wide // spec.hop * spec.hop)
    for block in group.blocks(min(size, group.n_samples)):
        if settings.nan == "raise":
            check_finite(block.data, group, block.start)
        stream.feed(block.data)
        if progress is not None:
            progress(block.data.shape[1])
        if stream.is_full:
            break
    return stream
