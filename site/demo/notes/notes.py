"""Python side of the notes demo: the network runs once on a visitor's sound, settings
can change afterwards.
"""

import time
from math import gcd

import numpy as np
from transcription import RATE, WINDOW, find_notes, frames, midi, windows

import rlxweb as rlx
from rlxweb.errors import ModelError

OUTPUTS = ("onset", "note", "contour")
"""Outputs in the order of the file of ONNX; a graph file may name them otherwise."""
MODEL = ACTIVATIONS = None


def load(args, buffers):
    """Load the network of this file, and free an earlier one."""
    global MODEL, ACTIVATIONS
    model = rlx.load(bytes(buffers[0]))
    shapes = {name: port.shape[1:] for name, port in model.inputs.items()}
    if [*shapes.values()] != [(WINDOW, 1)] or len(model.outputs) != len(OUTPUTS):
        inputs = ", ".join(map(str, model.inputs.values())) or "none"
        problem = f"the model has {len(model.outputs)} outputs and the inputs {inputs}"
        rule = f"expected {len(OUTPUTS)} outputs and one input [windows, {WINDOW}, 1]"
        raise ModelError("load Basic Pitch", problem, rule)
    if MODEL is not None:
        MODEL.close()
    MODEL, ACTIVATIONS = model, None
    return {}


def resample(samples, fs):
    """Resample a short recording by its Fourier transform."""
    fs = round(fs)
    if fs == RATE:
        return samples
    common = gcd(fs, RATE)
    up, down = RATE // common, fs // common
    # Silence at the end, since the transform takes the sound for periodic.
    blocks = -(-len(samples) // down) + 2
    spectrum = np.fft.rfft(samples, blocks * down)
    output = np.zeros(blocks * up // 2 + 1, spectrum.dtype)
    count = min(len(spectrum), len(output))
    output[:count] = spectrum[:count]
    sound = np.fft.irfft(output, blocks * up) * (up / down)
    return sound[: len(samples) * up // down].astype(np.float32)


async def hear(args, buffers):
    """Run the network over the sound, and post the progress."""
    global ACTIVATIONS
    started = time.perf_counter()
    sound = resample(np.frombuffer(buffers[0], np.float32), args["fs"])
    rows = windows(sound)
    ((name, port),) = MODEL.inputs.items()
    batch = port.shape[0]
    if len(rows) % batch:
        rows = np.pad(rows, ((0, -len(rows) % batch), (0, 0), (0, 0)))
    seconds, outputs = len(sound) / RATE, []
    for start in range(0, len(rows), batch):
        inputs = {name: rows[start : start + batch]}
        outputs.append(await MODEL.run_async(inputs, device=args["device"]))
        done = (start + batch) / len(rows) * seconds
        post({"done": done, "of": seconds})  # noqa: F821
    activations = {
        key: frames([output[port] for output in outputs], len(sound))
        for key, port in zip(OUTPUTS, MODEL.outputs, strict=True)
    }
    ACTIVATIONS = activations, seconds
    return {"took": time.perf_counter() - started, "seconds": seconds}


def notes(args, buffers):
    """Return the notes by these settings, as arrays and as a MIDI file."""
    started = time.perf_counter()
    activations, seconds = ACTIVATIONS
    found_notes = find_notes(activations, **args["settings"])
    arrays = [
        np.array([getattr(note, name) for note in found_notes], kind)
        for name, kind in (
            *(("start", "<f4"), ("end", "<f4")),
            *(("amplitude", "<f4"), ("pitch", "u1")),
        )
    ]
    arrays.append(np.frombuffer(midi(found_notes), np.uint8).copy())
    facts = {"count": len(found_notes), "seconds": seconds}
    return {**facts, "took": time.perf_counter() - started}, arrays
