"""Write EDF recordings of various lengths for a cluster, quickly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from edfio import Edf, EdfSignal

FS = 128


def write_edf_recordings(
    folder: Path, n: int, longest_s: int = 60, channels: int = 2
) -> list[str]:
    """Write `n` EDF recordings, 10 s to `longest_s` long, each with its own rhythms;
    return their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    r = np.random.default_rng(n)
    for number in range(n):
        x = r.normal(size=(channels, FS * int(r.integers(10, longest_s + 1))))
        x += 3 * np.sin(2 * np.pi * (5 + number % 40) / FS * np.arange(x.shape[1]))
        signals = [
            EdfSignal(row, FS, label=f"EEG {c}", physical_range=(-30, 30))
            for c, row in enumerate(x)
        ]
        Edf(signals).write(folder / f"{number:03}.edf")
    return sorted(map(str, folder.glob("*.edf")))
