"""Synthetic audio with known notes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FS = 44100


def synthesize_song(
    seconds: float, fs: float = FS
) -> tuple[npt.NDArray[Any], list[tuple[float, float, int]]]:
    """Return samples and notes (start, end, pitch) of plucked tones, up to three at
    once.
    """
    rng = np.random.default_rng(1)
    time = np.arange(int(fs * seconds)) / fs
    waveform, notes = np.zeros_like(time), []
    for start in np.arange(0.2, seconds - 1, 0.4):
        for pitch in rng.choice(np.arange(48, 76, 3), rng.integers(1, 4), False):
            length = rng.uniform(0.3, 0.9)
            note_time = time - start
            sounding = (note_time >= 0) & (note_time < length)
            amplitude = np.exp(-3 * note_time[sounding]) * np.minimum(
                1, note_time[sounding] * 200
            )
            hz = 440 * 2 ** ((pitch - 69) / 12)
            for harmonic in range(1, 6):
                waveform[sounding] += (
                    amplitude
                    * np.sin(2 * np.pi * hz * harmonic * note_time[sounding])
                    / harmonic**2
                )
            notes.append((float(start), float(start + length), int(pitch)))
    return (waveform / abs(waveform).max() * 0.8).astype(np.float32), notes


def synthesize_voice(seconds: float, fs: int = 16000) -> Any:
    """Return an intermittent buzz through moving formants that resembles a voice."""
    rng = np.random.default_rng(4)
    time = np.arange(int(seconds * fs)) / fs
    pitch = 110 * (1 + 0.15 * np.sin(2 * np.pi * 2.3 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / fs
    waveform = np.zeros_like(time)
    for harmonic in range(1, 30):
        formants = (
            500 + 300 * np.sin(2 * np.pi * 3 * time),
            1500 + 500 * np.cos(9 * time),
        )
        amplitude = sum(
            np.exp(-(((harmonic * pitch - f) / 180) ** 2)) for f in formants
        )
        waveform += amplitude * np.sin(harmonic * phase)
    waveform *= np.clip(np.sin(2 * np.pi * 0.9 * time) * 3, 0, 1)
    waveform += 0.003 * rng.standard_normal(len(time))
    return (0.5 * waveform / abs(waveform).max()).astype(np.float32)
