"""The work a calibration times: graphs of our own.

Each piece is a Job: what it measures, of which size, and a function that does it once.
Operands are params and only one number comes back, so transfers stay out of the figures
of kernels. Times nothing itself.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.compile.pipeline import compile_graph
from rlxweb.cost.graph_work import item_of
from rlxweb.cost.kinds import KINDS
from rlxweb.cost.probes import Probe
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.forked import cached_property
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Expr, Join, Kernel
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor

MIB = 1 << 20
DISPATCHES = 64
CALLS = 32
"""NumPy calls timed as one."""
SMALL, LARGE = 64, 1 << 17
"""Elements of elementwise ops: what a call costs, and what its elements do."""


def do_nothing() -> None:
    """Most jobs hold nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to time.

    what, size  as in rlxweb.cost.record.Point
    run         does it once and waits for the end
    less        which earlier point's time is part of it and not meant: "" or "run"
    per         how many of the thing one run does
    brief       one of many: fewer samples do
    close       frees what `run` holds
    """

    what: str
    size: Mapping[str, int]
    run: Callable[[], object]
    less: str = ""
    per: int = 1
    brief: bool = False
    close: Callable[[], None] = do_nothing


@dataclass
class Prepared:
    """A graph for the engine of a place, compiled when it is first used.

    What a session does, without one: they are above, and ask the models that this file
    measures for.
    """

    place: Place
    graph: Graph

    @cached_property
    def _compiled(self) -> tuple[Backend, Program]:
        backend = pool.backend(self.place.device.label, self.place.adapter)
        plan = compile_graph(self.graph, backend.target)
        return backend, drive(backend.prepare(plan))

    def set_param(self, name: str, value: Array) -> None:
        backend, program = self._compiled
        drive(backend.set_param(program, name, value))

    def run(self, feeds: Mapping[str, Array] | None = None) -> None:
        """Run and wait; its last result comes back, the others stay there."""
        backend, program = self._compiled
        others = len(self.graph.outputs) - 1
        if others:
            keep = [*[True] * others, False]
            drive(backend.run_resident(program, feeds or {}, keep))
        else:
            drive(backend.run(program, feeds or {}))

    def close(self) -> None:
        if "_compiled" in vars(self):
            backend, program = self._compiled
            drive(backend.release(program))


def graph_job(place: Place, what: str, probe: Probe, per: int = 1) -> Job:
    """Time the probe's graph; one number of its result comes back.

    Errors   those of compiling: LimitExceeded, ShaderRejected, OutOfMemory …
    """
    graph = Graph(f"calibrate {what}")
    drawn = {
        name: one if isinstance(one, Drawn) else Drawn(one)
        for name, one in probe.shapes.items()
    }
    params = [graph.param(name, one.shape, one.dtype) for name, one in drawn.items()]
    first = whole = probe.build(graph, *params)
    for axis in range(whole.rank):
        first = graph.narrow(first, axis, 0, 1)
    # Else an engine that compiles the plan whole would compute that number alone.
    backend = pool.backend(place.device.label, place.adapter)
    graph.set_outputs([whole, first] if backend.skips else [first])
    compiled = Prepared(place, graph)
    draw = np.random.default_rng(0)
    for name, one in drawn.items():
        compiled.set_param(name, one.draw(draw))
    brief = probe.turn > 2
    return Job(what, probe.size, compiled.run, "run", per, brief, compiled.close)


def empty_run(place: Place) -> Job:
    """A run of next to nothing: what every other run has on top of its kernels."""
    job = graph_job(place, "run", Probe("run", {}, {"x": (4,)}, lambda g, x: x * 2.0))
    return Job("run", {}, job.run, close=job.close)


TELLING = sum(kind.probes is not None for kind in KINDS.values())
"""Kernels without which no graph can be priced; they come before everything else."""


def kernel_jobs(place: Place) -> Iterator[tuple[str, Callable[[], Job]]]:
    """Names and builders of the kernels' jobs, the `TELLING` ones first.

    A builder compiles when it is called.
    """
    is_cpu = place.device is Device.CPU
    kinds = ((k.name, k.probes) for k in KINDS.values() if k.probes is not None)
    found = [(what, probe) for what, probes in kinds for probe in probes(is_cpu)]
    found += op_probes(is_cpu)
    for what, probe in sorted(found, key=lambda pair: pair[1].turn):
        yield probe.name, partial(graph_job, place, what, probe)


def op_probes(is_cpu: bool) -> Iterator[tuple[str, Probe]]:
    """Ops whose price neither a kind nor a composition tells, at sizes that do.

    NumPy runs every op by a call of its own; elsewhere elementwise ops are parts of
    regions, and a large size tells what a kernel takes.
    """
    for op in registry:
        kinds = (Expr, Join, Kernel) if is_cpu else Kernel
        if not isinstance(op.lower, kinds):
            continue
        telling = op.telling or _elementwise_sizes(op)
        for sample in telling if is_cpu else telling[-1:]:
            graph = Graph(op.name)
            shapes = {f"x{at}": one for at, one in enumerate(sample.inputs)}
            given = [graph.input(n, one.shape, one.dtype) for n, one in shapes.items()]
            made = graph.apply(op.name, *given, **sample.attrs)
            item = item_of(graph, graph.node(made.id))
            if item.kind != op.name:
                continue  # its kind is measured
            size = {"cells": item.size["cells"], "bytes": item.nbytes}
            rows = size["rows"] = item.size.get("rows", 1)
            build = partial(_applied, op.name, sample.attrs)
            what = f"{op.name} {item.numbers}".rstrip()
            each = f"{size['cells'] // rows:,}"
            name = f"{what} {rows:,} × {each}" if rows > 1 else f"{what} {each}"
            yield what, Probe(name, size, shapes, build, turn=3)


def _applied(name: str, attrs: Mapping[str, Any], g: Graph, *x: Tensor) -> Tensor:
    made: Tensor = g.apply(name, *x, **attrs)
    return made


def _elementwise_sizes(op: Op) -> tuple[Sample, ...]:
    """The first sample whose operands have one shape, small and large."""
    if not isinstance(op.lower, Expr) or op.has("custom"):
        return ()  # what it costs is said by its kind, or by nobody
    for sample in op.samples:
        first = sample.inputs[0]
        if first.shape and all(one.shape == first.shape for one in sample.inputs):
            return tuple(
                replace(
                    sample, inputs=tuple(replace(i, shape=s) for i in sample.inputs)
                )
                for s in ((SMALL,), (LARGE,))
            )
    return ()


def call_job(place: Place) -> Job:
    """NumPy calls on a handful of numbers, as the CPU backend makes them."""

    def build(g: Graph, x: Tensor) -> Tensor:
        y = x
        for _ in range(CALLS):
            y = y + x
        return y

    return graph_job(place, "call", Probe("call", {}, {"x": (4,)}, build), per=CALLS)


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
