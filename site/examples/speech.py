"""Find speech in a recording: python speech.py FILE

Needs rlxweb[onnx], silero-vad, soundfile, SciPy and matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import silero_vad
import soundfile
from matplotlib import pyplot
from scipy.signal import resample_poly

import rlxweb as rlx

RATE, FRAME, CONTEXT = 16_000, 512, 64
BLOCK = 64  # frames of one run: about two seconds
NETWORK = Path(silero_vad.__file__).parent / "data" / "silero_vad_16k_sequence.onnx"


def speech_probabilities(samples: np.ndarray) -> np.ndarray:
    """Return the probability of speech in each frame of 32 ms at 16 kHz.

    The network keeps its recurrent state on the device from one block to the next.
    """
    count = -(-len(samples) // FRAME)
    blocks = -(-count // BLOCK)
    padded = np.zeros(CONTEXT + blocks * BLOCK * FRAME, np.float32)
    padded[CONTEXT : CONTEXT + len(samples)] = samples
    view = np.lib.stride_tricks.sliding_window_view(padded, CONTEXT + FRAME)
    frames = view[::FRAME]
    state = {name: np.zeros((1, 1, 128), np.float32) for name in "hc"}
    blocks_out = []
    with rlx.onnx.load(NETWORK) as network:
        for start in range(0, len(frames), BLOCK):
            inputs = {"input": frames[start : start + BLOCK], **state}
            outputs = network.run(inputs, keep=["hn", "cn"])
            state = {"h": outputs["hn"], "c": outputs["cn"]}
            blocks_out.append(outputs["speech_probs"].reshape(-1))
    return np.concatenate(blocks_out)[:count]


def main(path: str) -> None:
    """Print the segments with speech, and draw them over the sound."""
    samples, fs = soundfile.read(path, dtype="float32", always_2d=True)
    sound = resample_poly(samples.mean(axis=1), RATE, fs)
    probabilities = speech_probabilities(sound)
    segments = silero_vad.get_speech_timestamps_from_probs(
        probabilities.tolist(), RATE, audio_length_samples=len(sound)
    )
    for segment in segments:
        print(f"{segment['start'] / RATE:.1f} to {segment['end'] / RATE:.1f} s")

    fig, ax = pyplot.subplots(figsize=(8, 2.8), layout="constrained")
    seconds = np.arange(len(probabilities)) * FRAME / RATE
    ax.plot(seconds, probabilities)
    for segment in segments:
        ax.axvspan(segment["start"] / RATE, segment["end"] / RATE, alpha=0.2)
    ax.set(xlabel="time (s)", ylabel="probability of speech", ylim=(0, 1))
    fig.savefig("speech.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
