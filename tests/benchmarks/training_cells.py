"""A step of training: forward, backward, the optimiser, and the loss back on the host.

The networks that the tests train, and one of a usual size, by momentum. On the CPU
against JAX, compiled by XLA; on lavapipe against tinygrad on Dawn (TinyJit); on a GPU
by Vulkan against JAX on CUDA. Batches come from the host, parameters and moments stay
where they are. The first losses of all peers are held against each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import rlxweb as rlx
from tests.benchmarks.cells import Entry, Goal, Work
from tests.benchmarks.libraries import BASE, COMPILED, engines, in_mode, library
from tests.benchmarks.machine import gpu, lavapipe
from tests.benchmarks.peer_cells import tinygrad
from tests.gradients.networks import Task, conv_net, mlp, transformer

RATE, MOMENTUM = 0.01, 0.9
STEPS = 4
"""Whose losses are compared."""
CLOSE = 2e-3
Step = Callable[[], float]


def wide_mlp() -> Task:
    """Images of 784 values in 10 classes: 784, 512, 512, 10, batches of 128."""
    rng = np.random.default_rng(7)
    sizes = ((784, 512), (512, 512), (512, 10))
    params = {
        f"w{at}": (rng.standard_normal(size) / np.sqrt(size[0])).astype(np.float32)
        for at, size in enumerate(sizes)
    }
    images = rng.standard_normal((4, 128, 784)).astype(np.float32)
    classes = np.eye(10, dtype=np.float32)[rng.integers(0, 10, (4, 128))]

    def loss(xp: Any, conv: Any, p: Any, batch: Any) -> Any:
        x, y = batch
        x = xp.maximum(x @ p["w0"], 0.0)
        x = xp.maximum(x @ p["w1"], 0.0)
        z = x @ p["w2"]
        z = z - xp.max(z, axis=-1, keepdims=True)
        logs = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
        return -xp.mean(xp.sum(logs * y, axis=-1))

    return Task(loss, params, lambda n: (images[n % 4], classes[n % 4]))


TASKS: dict[str, Callable[[], Task]] = {
    "mlp": mlp,
    "conv net": conv_net,
    "transformer": transformer,
    "mlp 784-512-512-10": wide_mlp,
}


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """Every cell's name and how to make it."""
    for name, make in TASKS.items():
        cell = f"training cpu {name}"
        yield cell, partial(_on_cpu, cell, make)
        if lavapipe() is not None:
            cell = f"training lavapipe {name}"
            yield cell, partial(_on_lavapipe, cell, make)
        if gpu() is not None:
            cell = f"training gpu {name}"
            yield cell, partial(_on_gpu, cell, make)


def _on_cpu(name: str, make: Callable[[], Task]) -> Work:
    task = make()
    steps: list[tuple[str, str, Step, bool]] = []
    for own, engine, mode in engines():
        os.environ["RLX_FAST"] = mode
        step = in_mode(mode, ours(task, device="cpu"))
        steps.append((own, engine, step, True))
    jax = library("jax")
    if not isinstance(jax, str):
        theirs = by_jax(jax, task, "cpu")
        steps.append(("JAX", f"JAX {jax.__version__}, CPU", theirs, False))
    # JAX is told of, and held to nothing: XLA is a compiler of ten years.
    goals = (Goal(COMPILED, ("JAX",), 3.0), Goal(BASE, ("JAX",), 10.0))
    return _work(name, steps, goals)


def _on_lavapipe(name: str, make: Callable[[], Task]) -> Work:
    facts, task = lavapipe(), make()
    assert facts is not None
    step = ours(task, device="vulkan", adapter="llvmpipe")
    steps, absent = [("rlxweb", facts.name, step, True)], {}
    tiny = tinygrad()
    if isinstance(tiny, str):
        absent["tinygrad"] = tiny
    else:
        theirs = by_tinygrad(tiny, task)
        steps.append(("tinygrad", "tinygrad on Dawn", theirs, False))
    made = _work(name, steps, (Goal("rlxweb", ("tinygrad",), 0.5),))
    return Work(made.name, made.entries, made.goals, made.check, absent=absent)


def _on_gpu(name: str, make: Callable[[], Task]) -> Work:
    facts, task = gpu(), make()
    assert facts is not None
    absent: dict[str, str] = {}
    step = ours(task, device="vulkan", adapter=facts.name)
    steps = [("rlxweb, Vulkan", facts.name, step, True)]
    jax = library("jax")
    if isinstance(jax, str):
        absent["JAX, CUDA"] = jax
    else:
        try:
            theirs = by_jax(jax, task, "cuda")
        except RuntimeError as error:
            absent["JAX, CUDA"] = f"{type(error).__name__}: {error}"[:300]
        else:
            engine = f"JAX {jax.__version__}, CUDA"
            steps.append(("JAX, CUDA", engine, theirs, False))
    made = _work(name, steps, (Goal("rlxweb, Vulkan", ("JAX, CUDA",), 1.0),))
    return Work(made.name, made.entries, made.goals, made.check, absent=absent)


@dataclass
class Told:
    """A step that keeps its first losses, whoever calls it."""

    step: Step
    losses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        loss = self.step()
        if len(self.losses) < STEPS:
            self.losses.append(loss)
        return loss


def _work(
    name: str, steps: list[tuple[str, str, Step, bool]], goals: tuple[Goal, ...]
) -> Work:
    """A cell of steps: (name, engine, step, ours)."""
    told = [Told(step) for _, _, step, _ in steps]
    entries = [
        Entry(who, engine, one, own)
        for (who, engine, _, own), one in zip(steps, told, strict=True)
    ]

    def check() -> None:
        for one in told:
            while len(one.losses) < STEPS:
                one()
        for entry, own in zip(entries, told, strict=True):
            right = told[0].losses
            np.testing.assert_allclose(own.losses, right, CLOSE, err_msg=entry.name)

    present = {entry.name for entry in entries}
    kept = tuple(g for g in goals if {g.ours, *g.against} <= present)
    return Work(name, tuple(entries), kept, check)


def ours(task: Task, **where: Any) -> Step:
    """A step of rlxweb's, as `rlxweb.train` makes it."""
    optimiser = rlx.SGD(RATE, momentum=MOMENTUM)

    def loss_of(params: Any, batch: Any) -> Any:
        return task.loss(np, rlx.nn.conv, params, batch)

    def step(state: Any, batch: Any) -> Any:
        params, moments = state
        loss, grads = rlx.value_and_grad(loss_of)(params, batch)
        return optimiser.update(params, grads, moments), loss

    made = rlx.function(step, **where)
    state: Any = (task.params, optimiser.init(task.params))
    held, count = made.held(state, task.batch(0)), 0

    def run() -> float:
        nonlocal state, count
        state, loss = held(state, task.batch(count), stay=1)
        count += 1
        return float(np.asarray(loss))

    return run


def by_jax(jax: Any, task: Task, platform: str) -> Step:
    """The same by JAX, in one compiled function."""
    jnp = jax.numpy

    def conv(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID")

    def loss_of(params: Any, batch: Any) -> Any:
        return task.loss(jnp, conv, params, batch)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, moments: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        moments = jax.tree.map(lambda m, g: MOMENTUM * m + g, moments, grads)
        params = jax.tree.map(lambda p, m: p - RATE * m, params, moments)
        return params, moments, loss

    (device, *_) = jax.devices(platform)
    params = jax.device_put(task.params, device)
    moments = jax.tree.map(jnp.zeros_like, params)
    count = 0

    def run() -> float:
        nonlocal params, moments, count
        params, moments, loss = step(params, moments, task.batch(count))
        count += 1
        return float(loss)

    return run


class OfTinygrad:
    """The functions of NumPy that the networks use, on tinygrad's tensors."""

    float32 = np.float32

    def __init__(self, tiny: Any) -> None:
        self.Tensor = tiny.Tensor

    def __getattr__(self, name: str) -> Any:
        """A function that calls the tensor's method of the same name."""
        return lambda x, *rest, **how: getattr(x, name)(*rest, **how)

    def max(self, x: Any, axis: int, keepdims: bool) -> Any:
        return x.max(axis=axis, keepdim=keepdims)

    def sum(self, x: Any, axis: int, keepdims: bool = False) -> Any:
        return x.sum(axis=axis, keepdim=keepdims)

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return x.mean(axis=axis, keepdim=keepdims)

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(axes)

    def swapaxes(self, x: Any, a: int, b: int) -> Any:
        return x.transpose(a, b)

    def take(self, x: Any, at: Any, axis: int) -> Any:
        return x[at]


def by_tinygrad(tiny: Any, task: Task) -> Step:
    """The same by tinygrad, captured once and replayed."""
    from tinygrad.helpers import Context
    from tinygrad.nn.optim import SGD

    xp = OfTinygrad(tiny)
    params = {name: tiny.Tensor(value) for name, value in task.params.items()}
    optimiser = SGD(list(params.values()), lr=RATE, momentum=MOMENTUM)

    def conv(x: Any, w: Any) -> Any:
        return x.conv2d(w)

    @tiny.TinyJit
    def step(x: Any, y: Any) -> Any:
        with Context(TRAINING=1):
            optimiser.zero_grad()
            loss = task.loss(xp, conv, params, (x, y)).backward()
            # Together: parameters are changed in place, and a loss is lazy.
            return loss.realize(*optimiser.schedule_step())

    count = 0

    def run() -> float:
        nonlocal count
        x, y = (tiny.Tensor(one).realize() for one in task.batch(count))
        count += 1
        return float(step(x, y).item())

    return run
