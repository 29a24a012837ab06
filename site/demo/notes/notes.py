"""The notes of a visitor's sound: found once, then told by any settings."""

import time

import numpy as np

from rlxweb.models import BasicPitch, NoteSettings

MODEL = FOUND = None


def load(args, buffers):
    """The model of this file. An older one is let go."""
    global MODEL, FOUND
    made = BasicPitch.load(bytes(buffers[0]))
    if MODEL is not None:
        MODEL.close()
    MODEL, FOUND = made, None
    return {}


async def hear(args, buffers):
    """Runs the model over the sound, and posts how far it is."""
    global FOUND
    samples = np.frombuffer(buffers[0], np.float32)
    began = time.perf_counter()
    FOUND = await MODEL.activations_async(
        samples,
        args["fs"],
        device=args["device"],
        tell=lambda done, whole: post({"done": done, "of": whole}),  # noqa: F821
    )
    return {"took": time.perf_counter() - began, "seconds": FOUND.seconds}


def notes(args, buffers):
    """The notes by these settings: when, which key, how loud; and all as MIDI."""
    began = time.perf_counter()
    found = FOUND.notes(NoteSettings(**args["settings"]))
    own = found.arrays()
    arrays = [
        np.ascontiguousarray(own[name], kind)
        for name, kind in (
            *(("start", "<f4"), ("end", "<f4")),
            *(("amplitude", "<f4"), ("pitch", "u1")),
        )
    ]
    arrays.append(np.frombuffer(found.midi(), np.uint8).copy())
    facts = {"count": len(found), "seconds": found.seconds}
    return {**facts, "took": time.perf_counter() - began}, arrays
