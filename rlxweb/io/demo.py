"""Demonstration recording: an EDF+ file whose rhythms are known.

Owns the montage, the rhythms and the noise, all from a seed: the same arguments give
the same bytes. What was put in is returned, so that a test or a newcomer can compare it
with what a spectrum finds.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlxweb.core.atomic_file import atomic_path
from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.io import demo_events

_SEED = 20
_NOISE_UV = 4.0
_MAX_UV = 400.0


@dataclass(frozen=True, slots=True)
class Rhythm:
    """A sine of `hz` with this amplitude (half peak to peak) in microvolts."""

    hz: float
    amplitude_uv: float


@dataclass(frozen=True, slots=True)
class DemoTruth:
    """Known content of a demo recording: the rhythms of each channel, strongest
    first.
    """

    fs: int
    seconds: int
    rhythms: Mapping[str, tuple[Rhythm, ...]]


_THETA, _ALPHA, _BETA, _LINE = 6.0, 10.0, 21.0, 50.0
# hz and microvolts: alpha grows to the back of the head, theta and beta to the front,
# and mains hum is everywhere.
_MONTAGE: Mapping[str, tuple[tuple[float, float], ...]] = {
    "EEG Fp1": ((_THETA, 18), (_LINE, 7), (_ALPHA, 5)),
    "EEG Fp2": ((_THETA, 16), (_LINE, 7), (_ALPHA, 5)),
    "EEG F3": ((_THETA, 22), (_BETA, 9), (_LINE, 6)),
    "EEG F4": ((_THETA, 20), (_BETA, 10), (_LINE, 6)),
    "EEG C3": ((_BETA, 18), (_ALPHA, 12), (_LINE, 5)),
    "EEG C4": ((_BETA, 17), (_ALPHA, 13), (_LINE, 5)),
    "EEG O1": ((_ALPHA, 32), (_BETA, 8), (_LINE, 6)),
    "EEG O2": ((_ALPHA, 30), (_BETA, 8), (_LINE, 6)),
}


def write_demo_recording(
    path: str | os.PathLike[str],
    *,
    seconds: int = 60,
    fs: int = 256,
    seed: int = _SEED,
    events: bool = False,
) -> DemoTruth:
    """Write the demo recording, 8 EEG channels and an annotation, as EDF+.

    events   something happens in it: "Eyes open" in the first half, "Eyes closed" in
             the second, where alpha is as high as told; "Stim/left" and "Stim/right"
             every four seconds, after which beta falters for a second at C4 or C3; a
             channel EOG with blinks; hum in one phase everywhere. It began on
             2026-01-01 at 22:00:00

    Errors   UsageError unless seconds >= 1 and fs > 100 (twice the mains hum), both
             whole; RecordingError when edfio is missing or the file cannot be written.
    """
    context = f"writing {os.fspath(path)!r}"
    _check_arguments(context, seconds, fs, seed)
    try:
        import edfio
    except ImportError as error:
        raise RecordingError(
            context,
            "the package edfio is not installed",
            hint="pip install rlxweb[eeg]",
        ) from error
    rhythms = {
        name: tuple(Rhythm(hz, float(uv)) for hz, uv in components)
        for name, components in _MONTAGE.items()
    }
    random = np.random.default_rng(seed)
    samples = {
        name: _channel_samples(name, components, seconds, fs, random, events)
        for name, components in rhythms.items()
    }
    annotations: list[tuple[float, float | None, str]] = [(0, None, "Demo recording")]
    if events:
        samples |= {demo_events.EOG_CHANNEL: _eog_samples(seconds, fs, random)}
        annotations = list(demo_events.event_annotations(seconds))
    edf = edfio.Edf(
        [
            edfio.EdfSignal(
                values,
                fs,
                label=name,
                transducer_type="made by rlxweb",
                physical_dimension="uV",
                physical_range=(-_MAX_UV, _MAX_UV),
            )
            for name, values in samples.items()
        ],
        data_record_duration=1,
        annotations=[edfio.EdfAnnotation(*annotation) for annotation in annotations],
        recording=edfio.Recording(startdate=demo_events.START_DATE) if events else None,
        starttime=demo_events.START_TIME if events else None,
    )
    buffer = io.BytesIO()
    edf.write(buffer)
    with atomic_path(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
    return DemoTruth(fs, seconds, rhythms)


def _check_arguments(context: str, seconds: int, fs: int, seed: int) -> None:
    """Raise UsageError for arguments that no demo recording can have."""
    are_integers = all(isinstance(n, int) for n in (seconds, fs, seed))
    if not are_integers or seconds < 1 or fs <= 2 * _LINE or seed < 0:
        raise UsageError(
            context,
            f"got {seconds} s at {fs} Hz, seed {seed}",
            f"expected integers: at least 1 s, more than {2 * _LINE:g} Hz, seed >= 0",
        )


def _channel_samples(
    name: str,
    rhythms: tuple[Rhythm, ...],
    seconds: int,
    fs: int,
    random: np.random.Generator,
    events: bool,
) -> npt.NDArray[np.float64]:
    """Return the samples of one EEG channel in microvolts: rhythms, noise and, with
    events, blinks.
    """
    n_samples = seconds * fs
    t = np.arange(n_samples) / fs
    out = _pink_noise(n_samples, random) * _NOISE_UV
    for rhythm in rhythms:
        phase = random.uniform(0, 2 * np.pi)
        if events and rhythm.hz == _LINE:
            phase = 0.0  # the same in every channel, as mains hum is
        wave = rhythm.amplitude_uv * np.sin(2 * np.pi * rhythm.hz * t + phase)
        out += (
            demo_events.amplitude_factors(name, rhythm.hz, t) * wave if events else wave
        )
    if events and name.startswith("EEG Fp"):
        out += 0.5 * demo_events.blink_wave(t)
    return np.clip(out, -_MAX_UV, _MAX_UV)


def _eog_samples(
    seconds: int, fs: int, random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return the samples of the EOG channel in microvolts: blinks and noise."""
    t = np.arange(seconds * fs) / fs
    return demo_events.blink_wave(t) + _pink_noise(len(t), random) * _NOISE_UV


def _pink_noise(n_samples: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return noise whose power falls as 1/f above 1/64 of the band, with standard
    deviation 1.
    """
    spectrum = np.fft.rfft(random.standard_normal(n_samples))
    bins = np.arange(len(spectrum), dtype=np.float64)
    spectrum /= np.sqrt(np.maximum(bins, len(bins) / 64))
    noise = np.fft.irfft(spectrum, n_samples)
    return np.asarray(noise / noise.std(), np.float64)
