"""The work a calibration times: graphs of our own.

Each piece is a Job: what it measures, of which size, and a function that does it once.
Operands are params and only one number comes back, so transfers stay out of the figures
of kernels. Times nothing itself.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Array
from rlxweb.compile.pipeline import compile_graph
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.tensor import Tensor

MIB = 1 << 20
DISPATCHES = 64
CHAIN = 32
"""Links of the fused chain on a device, and calls timed on the CPU."""


def _nothing() -> None:
    """Most jobs hold nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to time.

    what, size  as in rlxweb.cost.record.Point
    run         does it once and waits for the end
    less        which earlier point's time is part of it and not meant: "" or "run"
    per         how many of the thing one run does
    first_is    what the first call measures, besides: "" or "compile"
    close       frees what `run` holds
    """

    what: str
    size: Mapping[str, int]
    run: Callable[[], object]
    less: str = ""
    per: int = 1
    first_is: str = ""
    close: Callable[[], None] = _nothing


class Prepared:
    """A graph compiled for the engine of a place: what a session does, without one.

    Sessions are above: they ask the models that this file measures for.
    """

    def __init__(self, place: Place, graph: Graph) -> None:
        self._backend = pool.backend(place.device.label, place.adapter)
        plan = compile_graph(graph, self._backend.target)
        self._program = drive(self._backend.prepare(plan))

    def set_param(self, name: str, value: Array) -> None:
        drive(self._backend.set_param(self._program, name, value))

    def run(self, feeds: Mapping[str, Array] | None = None) -> None:
        drive(self._backend.run(self._program, feeds or {}))

    def close(self) -> None:
        drive(self._backend.release(self._program))


def graph_job(
    place: Place,
    what: str,
    size: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    build: Callable[..., Tensor],
    per: int = 1,
) -> Job:
    """Time `build(graph, *params)`; one number of its result comes back.

    Errors   those of compiling: LimitExceeded, ShaderRejected, OutOfMemory …
    """
    graph = Graph(f"calibrate {what}")
    params = [graph.param(name, shape) for name, shape in shapes.items()]
    result = build(graph, *params)
    for axis in range(result.rank):
        result = graph.narrow(result, axis, 0, 1)
    graph.set_outputs([result])
    compiled = Prepared(place, graph)
    draw = np.random.default_rng(0)
    for name, shape in shapes.items():
        compiled.set_param(name, draw.standard_normal(shape, np.float32))
    return Job(what, size, compiled.run, "run", per, close=compiled.close)


def empty_run(place: Place) -> Job:
    """A run of next to nothing: what every other run has on top of its kernels."""
    job = graph_job(place, "run", {}, {"x": (4,)}, lambda g, x: x * 2.0)
    return Job("run", {}, job.run, close=job.close)


TELLING = 4
"""Kernels without which no graph can be priced; they come before everything else."""


def kernel_jobs(place: Place) -> Iterator[tuple[str, Callable[[], Job]]]:
    """Names and builders of the kernels' jobs, the `TELLING` ones first.

    A builder compiles when it is called.
    """
    is_cpu = place.device is Device.CPU
    yield "matmul 256", partial(_matmul, place, 256)
    yield "fft 64 × 2048", partial(_fft, place, 2048, 64)
    yield f"copy {2 * MIB:,}", partial(_copy, place, 2 * MIB)
    if is_cpu:
        yield "elementwise", partial(_curved, place, 128 << 10)
    else:
        yield "elementwise", partial(_chain, place, 1 * MIB)
    yield "fft 256 × 128", partial(_fft, place, 128, 256)
    for n in (64, 512) if is_cpu else (64, 512, 1024):
        yield f"matmul {n}", partial(_matmul, place, n)
    for nbytes in (64 << 10, 64 * MIB):
        yield f"copy {nbytes:,}", partial(_copy, place, nbytes)


def _matmul(place: Place, n: int) -> Job:
    size = {"m": n, "k": n, "n": n}
    shapes = {"a": (n, n), "b": (n, n)}
    return graph_job(place, "matmul", size, shapes, lambda g, a, b: a @ b)


def _fft(place: Place, n: int, rows: int) -> Job:
    size = {"n": n, "rows": rows}
    shapes = {"x": (rows, 2 * n)}
    return graph_job(place, "fft", size, shapes, lambda g, x: g.apply("fft", x))


def _copy(place: Place, nbytes: int) -> Job:
    size = {"bytes": 2 * nbytes}  # read and written
    return graph_job(place, "copy", size, {"x": (nbytes // 4,)}, lambda g, x: x * 1.5)


def _chain(place: Place, cells: int) -> Job:
    size = {"bytes": 8 * cells, "flops": 2 * CHAIN * cells}

    def build(g: Graph, x: Tensor) -> Tensor:
        y = x
        for _ in range(CHAIN):
            y = y * 0.999 + 0.001
        return y

    return graph_job(place, "elementwise", size, {"x": (cells,)}, build)


def _curved(place: Place, cells: int) -> Job:
    """NumPy on a function that is more than one pass: its arithmetic by our count."""
    gelu = registry.get("gelu")
    kind = TensorType((cells,), DType.F32)
    flops = int(gelu.flops((kind,), kind, {}))
    size = {"bytes": 8 * cells, "flops": flops}
    return graph_job(
        place, "elementwise", size, {"x": (cells,)}, lambda g, x: g.gelu(x)
    )


def call_job(place: Place) -> Job:
    """NumPy calls on a handful of numbers, as the CPU backend makes them."""

    def build(g: Graph, x: Tensor) -> Tensor:
        y = x
        for _ in range(CHAIN):
            y = y + x
        return y

    return graph_job(place, "call", {}, {"x": (4,)}, build, per=CHAIN)


_fresh = itertools.count(random.SystemRandom().randrange(1 << 30))


def compile_job(place: Place) -> Job:
    """Compile and run a graph whose shader no driver has seen: its constant is new.

    The run is part of it because some drivers translate only when first asked to run.
    """
    x = np.ones(1024, np.float32)

    def run() -> None:
        graph = Graph("calibrate compile")
        new = 1.0 + (next(_fresh) % (1 << 22)) / (1 << 23)
        graph.set_outputs([graph.exp(graph.input("x", (1024,)) * new) + new])
        compiled = Prepared(place, graph)
        compiled.run({"x": x})
        compiled.close()

    return Job("compile", {}, run)
