"""Find the notes of a recording and write them as MIDI: python notes.py FILE

Needs rlxweb[onnx], soundfile, SciPy and matplotlib, and the network:
pip install --no-deps basic-pitch
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import soundfile
from matplotlib import pyplot
from scipy.signal import resample_poly
from transcription import INPUT, OUTPUTS, RATE, find_notes, frames, midi, windows

import rlxweb as rlx

PACKAGE = Path(find_spec("basic_pitch").origin).parent
NETWORK = PACKAGE / "saved_models" / "icassp_2022" / "nmp.onnx"
BATCH = 8  # windows of one run


def activations(sound: np.ndarray) -> dict[str, np.ndarray]:
    """Run the network over a sound at 22,050 Hz; frames of each output."""
    rows = windows(sound)
    with rlx.onnx.load(NETWORK) as network:
        outputs = [
            network.run({INPUT: rows[start : start + BATCH]})
            for start in range(0, len(rows), BATCH)
        ]
    return {
        name: frames([output[key] for output in outputs], len(sound))
        for name, key in OUTPUTS.items()
    }


def main(path: str) -> None:
    """Print the notes, write them to notes.mid, and draw a piano roll."""
    samples, fs = soundfile.read(path, dtype="float32", always_2d=True)
    sound = resample_poly(samples.mean(axis=1), RATE, fs)
    notes = find_notes(activations(sound))
    for note in notes:
        print(f"{note.start:.1f} to {note.end:.1f} s  {note.name}")
    Path("notes.mid").write_bytes(midi(notes))

    fig, ax = pyplot.subplots(figsize=(8, 2.8), layout="constrained")
    for note in notes:
        ax.broken_barh([(note.start, note.end - note.start)], (note.pitch - 0.4, 0.8))
    pitches = sorted({note.pitch: note.name for note in notes}.items())
    ax.set_yticks(*zip(*pitches, strict=True))
    ax.set(xlabel="time (s)", ylabel="key")
    fig.savefig("notes.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
