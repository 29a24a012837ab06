"""Python side of the training page: some steps per call, and the calls between them.

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
from network import (
    compile_network,
    first_state,
    judge_examples,
    sound_probabilities,
    training_step,
)
from vowels import FRAME, FS, NAMES, resampled, rms

import rlxweb as rlx
from rlxweb.engines.pool import pool
from rlxweb.errors import DeviceError, InputError, NotFinite
from rlxweb.trace.training.nonfinite_search import describe_first_nonfinite
from rlxweb.trace.training.saved_training import (
    SavedTraining,
    load_training,
    save_training,
)
from rlxweb.trace.training.tree_map import flatten_arrays

# Measuring takes seconds, and would be done in the middle of a training.
os.environ["RLX_CALIBRATION"] = "off"

QUIET = 1e-3  # rms below which a microphone is said to hear nothing
FILES = Path("/train")

data = None
training = None
loaded = None  # the graph of a file, which then judges in place of the training


class Training:
    """Network in training: its state, the losses so far, the compiled calls that it
    needs.
    """

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
        """Return the function compiled for these arguments, from the cache or now."""
        key = function.__name__
        if key not in self.calls:
            device = None if self.device == "auto" else self.device
            traced = rlx.function(function, device=device, strict=True)
            self.calls[key] = await traced.held_async(*args)
        return self.calls[key]

    def examples(self, n, rate):
        """Return the batch of a step, the same on every device."""
        x, y = self.xy
        rng = np.random.default_rng([self.seed, n])
        rows = rng.integers(0, len(x), self.batch)
        return x[rows], y[rows], np.float32(rate)

    async def to_host(self):
        """Copy the state to the host, unless the copy is of this step."""
        if self.safe[1] == len(self.losses):
            return
        self.safe = await state_to_host(self.state), len(self.losses)

    def move(self, device, batch, which):
        """Continue on another device, with another batch size or other examples, from
        the last copy.
        """
        self.device, self.batch, self.which = device, batch, which
        self.xy = data.part("train", which)
        self.calls = {}
        self.pace, self.last = 0.05, 1

    def go_back(self):
        """Return to the last copy of the state, and drop later losses."""
        self.state, steps = self.safe
        del self.losses[steps:]
        self.calls = {}
        return steps


async def state_to_host(state):
    """Return a state as NumPy arrays."""
    tree, leaves = flatten_arrays(state, "state")
    return tree.unflatten(iter([await to_numpy(leaf) for _, leaf in leaves]))


async def to_numpy(array):
    """Return an array as NumPy's, read back if it is on a device."""
    return await array.numpy_async() if isinstance(array, rlx.DeviceArray) else array


def make(args, buffers):
    """Make the synthetic voices, as bands."""
    global data
    data = Data()
    return data.counts() | {"names": list(NAMES), "fs": FS}


# --- the training -------------------------------------------------------------------


async def prepare(args, buffers):
    """Compile the step for a device and a size of batch; make what is missing."""
    global training, loaded
    reason = data.missing(args["data"])
    if reason:
        return {"missing": reason}
    if training is None or not training.losses:  # the settings may be others now
        training = Training(args["kind"], args["hidden"], args["seed"])
    started = perf_counter()
    try:
        await training.to_host()
    except DeviceError:  # it was lost while nothing ran
        training.go_back()
    training.state = training.safe[0]
    training.move(args["device"], args["batch"], args["data"])
    batch = training.examples(0, args["rate"])
    loaded = None
    try:
        call = await training.held(training_step(training.kind), training.state, batch)
    except DeviceError as error:
        return device_lost_answer(error)
    params = flatten_arrays(training.state[0], "params")[1]
    return {
        "engine": call.compiled.engine,
        "device": call.device.label,
        "why": call.compiled.decisions[0].why,
        "explain": call.compiled.explain(),
        "nodes": len(call.graph.nodes()),
        "weights": sum(int(param.size) for _, param in params),
        "seconds": perf_counter() - started,
    }


async def advance(args, buffers):
    """Run some steps: as many as fit `ms`, `most` at most. Return their losses,
    float64.
    """
    current, first, before = training, len(training.losses), training.state
    fit = int(args["ms"] / 1e3 / current.pace)
    count = max(1, min(fit, args["most"], 2 * current.last + 1))
    started = perf_counter()
    try:
        call = await current.held(
            training_step(current.kind),
            current.state,
            current.examples(first, args["rate"]),
        )
        pending_losses = []
        for n in range(first, first + count):
            batch = current.examples(n, args["rate"])
            current.state, loss = await call.run_async(current.state, batch, stay=2)
            pending_losses.append(loss)
        losses = np.array(await asyncio.gather(*map(to_numpy, pending_losses)), float)
        seconds = perf_counter() - started
        is_finite = np.isfinite(losses)
        if not is_finite.all():
            return await undo_nonfinite_step(
                call, before, first, int(is_finite.argmin()), args, losses
            )
    except DeviceError as error:
        return device_lost_answer(error)
    current.pace, current.last = seconds / count, count
    current.losses += losses.tolist()
    return {"steps": len(current.losses), "seconds": seconds, "count": count}, [losses]


async def undo_nonfinite_step(call, state, first, n_finite, args, losses):
    """Return to before the step whose loss is not finite, and find the cause."""
    current = training
    for n in range(first, first + n_finite):
        batch = current.examples(n, args["rate"])
        state, _ = await call.run_async(state, batch, stay=1)
    current.state = state
    current.losses += losses[:n_finite].tolist()
    await current.to_host()
    batch = current.examples(first + n_finite, args["rate"])
    feeds = call.feeds(current.safe[0], batch)
    place = describe_first_nonfinite(call.graph, {**call.params, **feeds})
    error = NotFinite(
        f"step {first + n_finite + 1}",
        f"the loss is {losses[n_finite]}",
        place or "NumPy computes a finite loss: the device computes other numbers",
        "lower the learning rate; this step did not change the network",
    )
    answer = {
        "steps": len(current.losses),
        "bad": str(error),
        "step": first + n_finite + 1,
    }
    return answer, [losses[:n_finite]]


def device_lost_answer(error):
    """Return the answer to the page when the device is lost."""
    return {"lost": error.problem, "steps": training.go_back()}


async def judge(args, buffers):
    """Return loss, share of right answers and confusions on the held-out part."""
    x, y = data.part("test", training.which)
    try:
        call = await training.held(judge_examples, training.state[0], x, y)
        probabilities, loss = await call.run_async(training.state[0], x, y)
        await training.to_host()
    except DeviceError as error:
        return device_lost_answer(error)
    actual, predicted = y.argmax(1), probabilities.argmax(1)
    counts = np.zeros((len(NAMES), len(NAMES)), int)
    np.add.at(counts, (actual, predicted), 1)
    return {
        "steps": len(training.losses),
        "loss": str(float(loss)),
        "right": float((actual == predicted).mean()),
        "of": len(actual),
        "confusion": counts.tolist(),
    }


def reset(args, buffers):
    """Forget the network."""
    global training, loaded
    training = loaded = None


# --- sounds -------------------------------------------------------------------------


async def listen(args, buffers):
    """Return the probabilities of the last sound from a microphone."""
    x = np.frombuffer(buffers[0], np.float32)
    if rms(x[None])[0, 0] < QUIET:
        return {"quiet": True}
    sound = resampled(x, args["fs"])
    middle = max(0, (len(sound) - FRAME) // 2)
    return await classify_frame(sound[middle : middle + FRAME], args["device"])


async def example(args, buffers):
    """Return a held-out voice to play, and the network's probabilities for it."""
    facts, sound, frame = data.example(args["seed"], args["seconds"])
    quiet = (0.1 * sound).astype(np.float32)
    return facts | {"fs": FS} | await classify_frame(frame, args["device"]), [quiet]


async def classify_frame(frame, device):
    """Return the probabilities of a frame by the loaded network, or else by the trained
    one.
    """
    if len(frame) < FRAME:
        return {"quiet": True}
    x = (frame / rms(frame))[None].astype(np.float32)
    if loaded is not None:
        place = None if device == "auto" else device
        probabilities = (await loaded.run_async({"sound": x}, device=place))[
            "probabilities"
        ]
    elif training is not None:
        params = training.state[0]
        try:
            call = await training.held(sound_probabilities, params, x)
            probabilities = await call.run_async(params, x)
        except DeviceError as error:
            return device_lost_answer(error)
    else:
        return {"none": True}
    return {"probabilities": np.asarray(probabilities, float)[0].tolist()}


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
    """Return the bytes of a file with the graph from sound to probabilities."""
    await training.to_host()
    file = FILES / "network.rlxg"
    FILES.mkdir(exist_ok=True)
    compile_network(training.safe[0][0]).save(file, outputs=["probabilities"])
    return {}, [np.frombuffer(file.read_bytes(), np.uint8)]


async def save_state(args, buffers):
    """Return the bytes of a file from which the training, or rlx.train, can
    continue.
    """
    await training.to_host()
    file = FILES / "state.npz"
    FILES.mkdir(exist_ok=True)
    state, steps = training.safe
    save_training(file, SavedTraining(state, steps, np.array(training.losses[:steps])))
    return {}, [np.frombuffer(file.read_bytes(), np.uint8)]


def open_network(args, buffers):
    """Load a saved network, and judge by it from here on."""
    global loaded
    context = f"open {args['name']}"
    model = rlx.load(bytes(buffers[0]))
    inputs = {name: str(value) for name, value in model.inputs.items()}
    if list(inputs) != ["sound"] or "probabilities" not in model.outputs:
        raise InputError(
            context,
            f"its inputs are {', '.join(inputs)}, its outputs "
            f"{', '.join(model.outputs)}",
            "expected the input sound and the output probabilities",
        )
    if loaded is not None:
        loaded.close()
    loaded = model
    return {
        "weights": sum(int(value.size) for value in model.params.values()),
        "steps": len(training.losses) if training else 0,
    }


def open_state(args, buffers):
    """Continue a training from its saved state."""
    global training, loaded
    fresh = Training(args["kind"], args["hidden"], args["seed"])
    FILES.mkdir(exist_ok=True)
    file = FILES / "given.npz"
    file.write_bytes(buffers[0])
    state, steps, losses = load_training(file, fresh.state)
    fresh.state, fresh.losses = state, losses.tolist()
    fresh.safe = state, steps
    training, loaded = fresh, None
    return {"steps": steps}, [losses]


# --- the GPU ------------------------------------------------------------------------


def lose(args, buffers):
    """Destroy the GPU device, as a driver that goes away would."""
    pool.engine("webgpu").port._js.lose()


async def reopen(args, buffers):
    """Open the GPU again; return {engine}, or {why} it cannot be opened."""
    pool.close_all()
    row = await rlx.open_async("webgpu")
    return {"engine": row.engine, "why": row.blocker}
