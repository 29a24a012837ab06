"""Benchmark cells of training steps: forward, backward, the optimizer, and the loss
back on the host.

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
from tests.benchmarks.benchmark_cells import BenchmarkCell, Goal, PeerEntry
from tests.benchmarks.machine_facts import find_gpu, find_lavapipe
from tests.benchmarks.peer_gpu_runtime_cells import load_tinygrad
from tests.benchmarks.peer_libraries import (
    COMPILED_PEER,
    NUMPY_PEER,
    load_library,
    our_engines,
    with_jit_mode,
)
from tests.gradients.training_tasks import Task, conv_net, mlp, transformer

RATE, MOMENTUM = 0.01, 0.9
STEPS = 4
"""Number of first steps whose losses are compared."""
LOSS_RTOL = 2e-3
Step = Callable[[], float]


def wide_mlp() -> Task:
    """Create a task on images of 784 values in 10 classes: 784, 512, 512, 10, batches
    of 128.
    """
    rng = np.random.default_rng(7)
    sizes = ((784, 512), (512, 512), (512, 10))
    params = {
        f"w{layer}": (rng.standard_normal(size) / np.sqrt(size[0])).astype(np.float32)
        for layer, size in enumerate(sizes)
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


def works() -> Iterator[tuple[str, Callable[[], BenchmarkCell]]]:
    """Yield every cell's name and a function that creates it."""
    for name, make in TASKS.items():
        cell = f"training cpu {name}"
        yield cell, partial(_cpu_work, cell, make)
        if find_lavapipe() is not None:
            cell = f"training lavapipe {name}"
            yield cell, partial(_lavapipe_work, cell, make)
        if find_gpu() is not None:
            cell = f"training gpu {name}"
            yield cell, partial(_gpu_work, cell, make)


def _cpu_work(name: str, make: Callable[[], Task]) -> BenchmarkCell:
    task = make()
    steps: list[tuple[str, str, Step, bool]] = []
    for label, engine, mode in our_engines():
        os.environ["RLX_FAST"] = mode
        step = with_jit_mode(mode, rlxweb_step(task, device="cpu"))
        steps.append((label, engine, step, True))
    jax = load_library("jax")
    if not isinstance(jax, str):
        peer_step = jax_step(jax, task, "cpu")
        steps.append(("JAX", f"JAX {jax.__version__}, CPU", peer_step, False))
    # JAX is told of, and held to nothing: XLA is a compiler of ten years.
    goals = (Goal(COMPILED_PEER, ("JAX",), 3.0), Goal(NUMPY_PEER, ("JAX",), 10.0))
    return _create_work(name, steps, goals)


def _lavapipe_work(name: str, make: Callable[[], Task]) -> BenchmarkCell:
    facts, task = find_lavapipe(), make()
    assert facts is not None
    step = rlxweb_step(task, device="vulkan", adapter="llvmpipe")
    steps, absent = [("rlxweb", facts.name, step, True)], {}
    tiny = load_tinygrad()
    if isinstance(tiny, str):
        absent["tinygrad"] = tiny
    else:
        peer_step = tinygrad_step(tiny, task)
        steps.append(("tinygrad", "tinygrad on Dawn", peer_step, False))
    work = _create_work(name, steps, (Goal("rlxweb", ("tinygrad",), 0.5),))
    return BenchmarkCell(
        work.name, work.entries, work.goals, work.check, absent_peers=absent
    )


def _gpu_work(name: str, make: Callable[[], Task]) -> BenchmarkCell:
    facts, task = find_gpu(), make()
    assert facts is not None
    absent: dict[str, str] = {}
    step = rlxweb_step(task, device="vulkan", adapter=facts.name)
    steps = [("rlxweb, Vulkan", facts.name, step, True)]
    jax = load_library("jax")
    if isinstance(jax, str):
        absent["JAX, CUDA"] = jax
    else:
        try:
            peer_step = jax_step(jax, task, "cuda")
        except RuntimeError as error:
            absent["JAX, CUDA"] = f"{type(error).__name__}: {error}"[:300]
        else:
            engine = f"JAX {jax.__version__}, CUDA"
            steps.append(("JAX, CUDA", engine, peer_step, False))
    work = _create_work(name, steps, (Goal("rlxweb, Vulkan", ("JAX, CUDA",), 1.0),))
    return BenchmarkCell(
        work.name, work.entries, work.goals, work.check, absent_peers=absent
    )


@dataclass
class LossRecorder:
    """Training step that keeps its first losses, whoever calls it."""

    step: Step
    losses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        loss = self.step()
        if len(self.losses) < STEPS:
            self.losses.append(loss)
        return loss


def _create_work(
    name: str, steps: list[tuple[str, str, Step, bool]], goals: tuple[Goal, ...]
) -> BenchmarkCell:
    """Create a cell from steps (name, engine, step, ours)."""
    recorders = [LossRecorder(step) for _, _, step, _ in steps]
    entries = [
        PeerEntry(peer_name, engine, recorder, is_ours)
        for (peer_name, engine, _, is_ours), recorder in zip(
            steps, recorders, strict=True
        )
    ]

    def check() -> None:
        for recorder in recorders:
            while len(recorder.losses) < STEPS:
                recorder()
        for entry, peer_recorder in zip(entries, recorders, strict=True):
            expected = recorders[0].losses
            np.testing.assert_allclose(
                peer_recorder.losses, expected, LOSS_RTOL, err_msg=entry.name
            )

    present = {entry.name for entry in entries}
    possible_goals = tuple(g for g in goals if {g.ours, *g.against} <= present)
    return BenchmarkCell(name, tuple(entries), possible_goals, check)


def rlxweb_step(task: Task, **place: Any) -> Step:
    """Create a training step of rlxweb, as `rlxweb.train` does."""
    optimiser = rlx.SGD(RATE, momentum=MOMENTUM)

    def loss_of(params: Any, batch: Any) -> Any:
        return task.loss(np, rlx.nn.conv, params, batch)

    def step(state: Any, batch: Any) -> Any:
        params, moments = state
        loss, grads = rlx.value_and_grad(loss_of)(params, batch)
        return optimiser.update(params, grads, moments), loss

    train_step = rlx.function(step, **place)
    state: Any = (task.params, optimiser.init(task.params))
    bound_step, count = train_step.held(state, task.batch(0)), 0

    def run() -> float:
        nonlocal state, count
        state, loss = bound_step(state, task.batch(count), stay=1)
        count += 1
        return float(np.asarray(loss))

    return run


def jax_step(jax: Any, task: Task, platform: str) -> Step:
    """Create the same step in JAX, as one compiled function."""
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


class TinygradNamespace:
    """NumPy functions that the networks use, on tinygrad's tensors."""

    float32 = np.float32

    def __init__(self, tiny: Any) -> None:
        self.Tensor = tiny.Tensor

    def __getattr__(self, name: str) -> Any:
        """Return a function that calls the tensor's method of the same name."""
        return lambda x, *operands, **options: getattr(x, name)(*operands, **options)

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

    def take(self, x: Any, indices: Any, axis: int) -> Any:
        return x[indices]


def tinygrad_step(tiny: Any, task: Task) -> Step:
    """Create the same step in tinygrad, captured once and replayed."""
    from tinygrad.helpers import Context
    from tinygrad.nn.optim import SGD

    xp = TinygradNamespace(tiny)
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
        x, y = (tiny.Tensor(array).realize() for array in task.batch(count))
        count += 1
        return float(step(x, y).item())

    return run
