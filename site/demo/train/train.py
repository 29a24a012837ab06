"""The Python of the page that trains: some steps a call, and what is done between them.

Runs in the Worker of a demo page, see worker.js. Each function that the page calls
takes (args, buffers) as they were sent. The state of a training stays on its device; a
copy of it is taken whenever the held-out part is judged, and a lost device costs no
more than the steps since.
"""

import asyncio
import os
from pathlib import Path
from time import perf_counter

import numpy as np
from data import Data
from network import first_state, heard, judged, step_by, whole
from vowels import FRAME, FS, NAMES, resampled, rms

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.errors import DeviceError, InputError, NotFinite
from rlxweb.training.first_bad import first_bad
from rlxweb.training.saved import Saved, load, save
from rlxweb.training.trees import taken_apart

# Measuring takes seconds, and would be done in the middle of a training.
os.environ["RLX_CALIBRATION"] = "off"

QUIET = 1e-3  # rms below which a microphone is said to hear nothing
FILES = Path("/train")

data = None
training = None
loaded = None  # the graph of a file, which then judges in place of the training


class Training:
    """A network on its way: its state, the losses so far, the calls that it needs."""

    def __init__(self, kind, hidden, seed):
        self.kind, self.hidden, self.seed = kind, hidden, seed
        self.state = first_state(kind, hidden, seed)
        self.losses = []
        self.safe = self.state, 0  # on the host, and after how many steps
        self.device, self.batch, self.which = "cpu", 32, "made"
        self.calls = {}
        self.pace, self.last = 0.05, 1  # seconds a step, steps of the last call
        self.xy = None

    async def held(self, function, *args):
        """A call of a function that was compiled for these arguments, or is now."""
        key = function.__name__
        if key not in self.calls:
            device = None if self.device == "auto" else self.device
            made = rlx.function(function, device=device, strict=True)
            self.calls[key] = await made.held_async(*args)
        return self.calls[key]

    def examples(self, n, rate):
        """The batch of a step, the same on every device."""
        x, y = self.xy
        rng = np.random.default_rng([self.seed, n])
        some = rng.integers(0, len(x), self.batch)
        return x[some], y[some], np.float32(rate)

    async def to_host(self):
        """Keep a copy of the state off the device, if there is none of this step."""
        if self.safe[1] == len(self.losses):
            return
        self.safe = await on_host(self.state), len(self.losses)

    def move(self, device, batch, which):
        """Go on elsewhere, with other batches or examples, from the state kept last."""
        self.device, self.batch, self.which = device, batch, which
        self.xy = data.part("train", which)
        self.calls = {}
        self.pace, self.last = 0.05, 1

    def go_back(self):
        """To the state kept last: what came after it is gone."""
        self.state, steps = self.safe
        del self.losses[steps:]
        self.calls = {}
        return steps


async def on_host(state):
    """A state as NumPy arrays."""
    tree, leaves = taken_apart(state, "state")
    return tree.built(iter([await as_array(one) for _, one in leaves]))


async def as_array(one):
    """An array, read back where it lies on a device."""
    return await one.numpy_async() if isinstance(one, rlx.DeviceArray) else one


def make(args, buffers):
    """The made voices, as bands."""
    global data
    data = Data()
    return data.counts() | {"names": list(NAMES), "fs": FS}


# --- the training -------------------------------------------------------------------


async def prepare(args, buffers):
    """Compile the step for a device and a size of batch; make what is missing."""
    global training, loaded
    why = data.missing(args["data"])
    if why:
        return {"missing": why}
    if training is None or not training.losses:  # the settings may be others now
        training = Training(args["kind"], args["hidden"], args["seed"])
    begun = perf_counter()
    try:
        await training.to_host()
    except DeviceError:  # it was lost while nothing ran
        training.go_back()
    training.state = training.safe[0]
    training.move(args["device"], args["batch"], args["data"])
    batch = training.examples(0, args["rate"])
    loaded = None
    try:
        call = await training.held(step_by(training.kind), training.state, batch)
    except DeviceError as error:
        return lost(error)
    params = taken_apart(training.state[0], "params")[1]
    return {
        "engine": call.compiled.engine,
        "device": call.device.label,
        "why": call.compiled.decisions[0].why,
        "explain": call.compiled.explain(),
        "nodes": len(call.graph.nodes()),
        "weights": sum(int(one.size) for _, one in params),
        "seconds": perf_counter() - begun,
    }


async def advance(args, buffers):
    """Some steps: as many as fit `ms`, `most` at most. Their losses, float64."""
    now, first, before = training, len(training.losses), training.state
    fit = int(args["ms"] / 1e3 / now.pace)
    count = max(1, min(fit, args["most"], 2 * now.last + 1))
    begun = perf_counter()
    try:
        call = await now.held(
            step_by(now.kind), now.state, now.examples(first, args["rate"])
        )
        kept = []
        for n in range(first, first + count):
            batch = now.examples(n, args["rate"])
            now.state, loss = await call.run_async(now.state, batch, stay=2)
            kept.append(loss)
        losses = np.array(await asyncio.gather(*map(as_array, kept)), float)
        seconds = perf_counter() - begun
        good = np.isfinite(losses)
        if not good.all():
            return await stopped(call, before, first, int(good.argmin()), args, losses)
    except DeviceError as error:
        return lost(error)
    now.pace, now.last = seconds / count, count
    now.losses += losses.tolist()
    return {"steps": len(now.losses), "seconds": seconds, "count": count}, [losses]


async def stopped(call, state, first, good, args, losses):
    """Back to before the step whose loss is no number, and the cause of that."""
    now = training
    for n in range(first, first + good):
        batch = now.examples(n, args["rate"])
        state, _ = await call.run_async(state, batch, stay=1)
    now.state = state
    now.losses += losses[:good].tolist()
    await now.to_host()
    batch = now.examples(first + good, args["rate"])
    feeds = call.feeds(now.safe[0], batch)
    place = first_bad(call.graph, {**call.params, **feeds})
    error = NotFinite(
        f"step {first + good + 1}",
        f"the loss is {losses[good]}",
        place or "NumPy computes it finite: the device's numbers differ there",
        "lower the learning rate; the network is as it was before this step",
    )
    said = {"steps": len(now.losses), "bad": str(error), "step": first + good + 1}
    return said, [losses[:good]]


def lost(error):
    """What the page is told when the device went away."""
    return {"lost": error.problem, "steps": training.go_back()}


async def judge(args, buffers):
    """Loss, share of right answers and confusions on the held-out part."""
    x, y = data.part("test", training.which)
    try:
        call = await training.held(judged, training.state[0], x, y)
        found, loss = await call.run_async(training.state[0], x, y)
        await training.to_host()
    except DeviceError as error:
        return lost(error)
    said, given = y.argmax(1), found.argmax(1)
    counts = np.zeros((len(NAMES), len(NAMES)), int)
    np.add.at(counts, (said, given), 1)
    return {
        "steps": len(training.losses),
        "loss": str(float(loss)),
        "right": float((said == given).mean()),
        "of": len(said),
        "confusion": counts.tolist(),
    }


def reset(args, buffers):
    """Forget the network."""
    global training, loaded
    training = loaded = None


# --- sounds -------------------------------------------------------------------------


async def listen(args, buffers):
    """The probabilities of the last sound that a microphone heard."""
    x = np.frombuffer(buffers[0], np.float32)
    if rms(x[None])[0, 0] < QUIET:
        return {"quiet": True}
    spoken = resampled(x, args["fs"])
    middle = max(0, (len(spoken) - FRAME) // 2)
    return await answered(spoken[middle : middle + FRAME], args["device"])


async def example(args, buffers):
    """A held-out voice, to be played, and what the network hears."""
    told, sound, frame = data.example(args["seed"], args["seconds"])
    quiet = (0.1 * sound).astype(np.float32)
    return told | {"fs": FS} | await answered(frame, args["device"]), [quiet]


async def answered(frame, device):
    """What the network of the file, or else the trained one, says of a frame."""
    if len(frame) < FRAME:
        return {"quiet": True}
    x = (frame / rms(frame))[None].astype(np.float32)
    if loaded is not None:
        place = None if device == "auto" else device
        found = (await loaded.run_async({"sound": x}, device=place))["probabilities"]
    elif training is not None:
        params = training.state[0]
        try:
            call = await training.held(heard, params, x)
            found = await call.run_async(params, x)
        except DeviceError as error:
            return lost(error)
    else:
        return {"none": True}
    return {"probabilities": np.asarray(found, float)[0].tolist()}


def record(args, buffers):
    """Keep a recording of a vowel."""
    x = np.frombuffer(buffers[0], np.float32)
    count = data.record(args["vowel"], x, args["fs"])
    return data.counts() | {"frames": count}


def forget(args, buffers):
    """Drop all recordings."""
    data.forget()
    return data.counts()


# --- files --------------------------------------------------------------------------


async def save_network(args, buffers):
    """The whole way from sound to probabilities as a file, its bytes."""
    await training.to_host()
    file = FILES / "network.rlxg"
    FILES.mkdir(exist_ok=True)
    whole(training.safe[0][0]).save(file, outputs=["probabilities"])
    return {}, [np.frombuffer(file.read_bytes(), np.uint8)]


async def save_state(args, buffers):
    """The state of the training as a file that it, and rlx.train, can go on from."""
    await training.to_host()
    file = FILES / "state.npz"
    FILES.mkdir(exist_ok=True)
    state, steps = training.safe
    save(file, Saved(state, steps, np.array(training.losses[:steps])))
    return {}, [np.frombuffer(file.read_bytes(), np.uint8)]


def open_network(args, buffers):
    """Judge by a saved network from here on."""
    global loaded
    doing = f"open {args['name']}"
    found = rlx.load(bytes(buffers[0]))
    inputs = {name: str(one) for name, one in found.inputs.items()}
    if list(inputs) != ["sound"] or "probabilities" not in found.outputs:
        raise InputError(
            doing,
            f"it takes {', '.join(inputs)} and gives {', '.join(found.outputs)}",
            "a file of this page takes sound and gives probabilities",
        )
    if loaded is not None:
        loaded.close()
    loaded = found
    return {
        "weights": sum(int(one.size) for one in found.params.values()),
        "steps": len(training.losses) if training else 0,
    }


def open_state(args, buffers):
    """Go on with a training where it was when its state was saved."""
    global training, loaded
    fresh = Training(args["kind"], args["hidden"], args["seed"])
    FILES.mkdir(exist_ok=True)
    file = FILES / "given.npz"
    file.write_bytes(buffers[0])
    state, steps, losses = load(file, fresh.state)
    fresh.state, fresh.losses = state, losses.tolist()
    fresh.safe = state, steps
    training, loaded = fresh, None
    return {"steps": steps}, [losses]


# --- the GPU ------------------------------------------------------------------------


def lose(args, buffers):
    """Destroy the GPU device, as a driver that goes away would."""
    pool.backend("webgpu").port._js.lose()


async def reopen(args, buffers):
    """Open the GPU again. {engine} or {why} it cannot be opened."""
    pool.close_all()
    row = await rlx.open_async("webgpu")
    return {"engine": row.engine, "why": row.blocker}
