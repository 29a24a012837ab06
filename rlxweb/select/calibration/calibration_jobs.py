"""Jobs that a calibration times: graphs of our own, each with the size it measures.

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

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.device import Device
from rlxweb.core.fork_safety import cached_property
from rlxweb.cost.calibration_probes import CalibrationProbe
from rlxweb.cost.graph_work import node_item
from rlxweb.cost.work_kinds import KINDS
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Array, Engine, Program
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import ConcatLowering, Expr, Kernel
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.select.device_and_adapter import DevicePlace

MIB = 1 << 20
DISPATCH_COUNT = 64
CALL_COUNT = 32
"""NumPy calls timed as one."""
SMALL_ELEMENTS, LARGE_ELEMENTS = 64, 1 << 17
"""Elements of elementwise ops: what a call costs, and what its elements do."""


def do_nothing() -> None:
    """Do nothing; most jobs hold no resources."""


@dataclass(frozen=True, slots=True)
class CalibrationJob:
    """One thing to time.

    point_kind, size  as in rlxweb.cost.calibration_record.MeasuredPoint
    run         does it once and waits for the end
    overhead_kind  which earlier point's time is part of it and not meant: "" or "run"
    units_per_run  how many of the thing one run does
    is_brief    one of many: fewer samples do
    close       frees what `run` holds
    """

    point_kind: str
    size: Mapping[str, int]
    run: Callable[[], object]
    overhead_kind: str = ""
    units_per_run: int = 1
    is_brief: bool = False
    close: Callable[[], None] = do_nothing


@dataclass
class CalibrationProgram:
    """Graph on a place's engine, compiled when it is first used.

    What a session does, without one: they are above, and ask the models that this file
    measures for.
    """

    place: DevicePlace
    graph: Graph

    @cached_property
    def _compiled(self) -> tuple[Engine, Program]:
        engine = pool.engine(self.place.device.label, self.place.adapter)
        plan = compile_graph(self.graph, engine.target)
        return engine, run_blocking(engine.prepare(plan))

    def set_param(self, name: str, value: Array) -> None:
        """Set a parameter of the compiled graph."""
        _, program = self._compiled
        run_blocking(program.set_param(name, value))

    def run(self, feeds: Mapping[str, Array] | None = None) -> None:
        """Run and wait; the last result comes back to the host, the others stay on the
        device.
        """
        engine, program = self._compiled
        keep = [*[True] * (len(self.graph.outputs) - 1), False]
        run_blocking(engine.run(program, feeds or {}, keep))

    def close(self) -> None:
        """Close the program if it was compiled."""
        if "_compiled" in vars(self):
            _, program = self._compiled
            run_blocking(program.close())


def probe_job(
    place: DevicePlace, point_kind: str, probe: CalibrationProbe, units_per_run: int = 1
) -> CalibrationJob:
    """Return the job that times the probe's graph; one number of its result comes back.

    Errors   those of compiling: LimitExceeded, ShaderRejected, OutOfMemory …
    """
    graph = Graph(f"calibrate {point_kind}")
    inputs = {
        name: operand if isinstance(operand, Drawn) else Drawn(operand)
        for name, operand in probe.shapes.items()
    }
    params = [
        graph.param(name, operand.shape, operand.dtype)
        for name, operand in inputs.items()
    ]
    first_element = result = probe.build(graph, *params)
    for axis in range(result.rank):
        first_element = graph.narrow(first_element, axis, 0, 1)
    # Else an engine that compiles the plan whole would compute that number alone.
    engine = pool.engine(place.device.label, place.adapter)
    graph.set_outputs([result, first_element] if engine.skips else [first_element])
    calibration_program = CalibrationProgram(place, graph)
    rng = np.random.default_rng(0)
    for name, operand in inputs.items():
        calibration_program.set_param(name, operand.draw(rng))
    is_brief = probe.priority > 2
    return CalibrationJob(
        point_kind,
        probe.size,
        calibration_program.run,
        "run",
        units_per_run,
        is_brief,
        calibration_program.close,
    )


def empty_run_job(place: DevicePlace) -> CalibrationJob:
    """Return the job of a nearly empty run: the overhead that every run adds to its
    kernels.
    """
    job = probe_job(
        place, "run", CalibrationProbe("run", {}, {"x": (4,)}, lambda g, x: x * 2.0)
    )
    return CalibrationJob("run", {}, job.run, close=job.close)


ESSENTIAL_KERNEL_COUNT = sum(kind.probes is not None for kind in KINDS.values())
"""Number of kernels without which no graph can be priced; they come first."""


def kernel_jobs(
    place: DevicePlace,
) -> Iterator[tuple[str, Callable[[], CalibrationJob]]]:
    """Yield names and builders of the kernels' jobs, the essential ones first.

    A builder compiles when it is called.
    """
    is_cpu = place.device is Device.CPU
    kinds = (
        (kind.name, kind.probes) for kind in KINDS.values() if kind.probes is not None
    )
    named_probes = [
        (point_kind, probe) for point_kind, probes in kinds for probe in probes(is_cpu)
    ]
    named_probes += op_probes(is_cpu)
    for point_kind, probe in sorted(named_probes, key=lambda pair: pair[1].priority):
        yield probe.name, partial(probe_job, place, point_kind, probe)


def op_probes(is_cpu: bool) -> Iterator[tuple[str, CalibrationProbe]]:
    """Yield probes of ops that no work kind or decomposition prices, at informative
    sizes.

    NumPy runs every op by a call of its own; elsewhere elementwise ops are parts of
    regions, and a large size tells what a kernel takes.
    """
    for op in registry:
        kinds = (Expr, ConcatLowering, Kernel) if is_cpu else Kernel
        if not isinstance(op.lower, kinds):
            continue
        cases = op.calibration_cases or _elementwise_cases(op)
        for sample in cases if is_cpu else cases[-1:]:
            graph = Graph(op.name)
            shapes = {
                f"x{index}": operand for index, operand in enumerate(sample.inputs)
            }
            inputs = [
                graph.input(n, operand.shape, operand.dtype)
                for n, operand in shapes.items()
            ]
            output = graph.apply(op.name, *inputs, **sample.attrs)
            item = node_item(graph, graph.node(output.id))
            if item.kind != op.name:
                continue  # its kind is measured
            size = {"cells": item.size["cells"], "bytes": item.nbytes}
            rows = size["rows"] = item.size.get("rows", 1)
            build = partial(_apply_op, op.name, sample.attrs)
            point_kind = f"{op.name} {item.dtype_class}".rstrip()
            row_elements = f"{size['cells'] // rows:,}"
            name = (
                f"{point_kind} {rows:,} × {row_elements}"
                if rows > 1
                else f"{point_kind} {row_elements}"
            )
            yield point_kind, CalibrationProbe(name, size, shapes, build, priority=3)


def _apply_op(name: str, attrs: Mapping[str, Any], g: Graph, *x: Tensor) -> Tensor:
    """Apply an op to the tensors."""
    output: Tensor = g.apply(name, *x, **attrs)
    return output


def _elementwise_cases(op: Op) -> tuple[Sample, ...]:
    """Return the first sample whose operands share one shape, at a small and a large
    size.
    """
    if not isinstance(op.lower, Expr) or op.has_trait("custom"):
        return ()  # what it costs is said by its kind, or by nobody
    for sample in op.samples:
        first_operand = sample.inputs[0]
        if first_operand.shape and all(
            operand.shape == first_operand.shape for operand in sample.inputs
        ):
            return tuple(
                replace(
                    sample, inputs=tuple(replace(i, shape=s) for i in sample.inputs)
                )
                for s in ((SMALL_ELEMENTS,), (LARGE_ELEMENTS,))
            )
    return ()


def call_job(place: DevicePlace) -> CalibrationJob:
    """Return the job of NumPy calls on a handful of numbers, as the CPU engine makes
    them.
    """

    def build(g: Graph, x: Tensor) -> Tensor:
        y = x
        for _ in range(CALL_COUNT):
            y = y + x
        return y

    return probe_job(
        place,
        "call",
        CalibrationProbe("call", {}, {"x": (4,)}, build),
        units_per_run=CALL_COUNT,
    )


_fresh_numbers = itertools.count(random.SystemRandom().randrange(1 << 30))


def compile_job(place: DevicePlace) -> CalibrationJob:
    """Return the job that compiles and runs a graph with a new constant, so that no
    driver has its shader cached.

    The run is part of it because some drivers translate only when first asked to run.
    """
    x = np.ones(1024, np.float32)

    def compile_and_run() -> None:
        graph = Graph("calibrate compile")
        constant = 1.0 + (next(_fresh_numbers) % (1 << 22)) / (1 << 23)
        graph.set_outputs([graph.exp(graph.input("x", (1024,)) * constant) + constant])
        calibration_program = CalibrationProgram(place, graph)
        calibration_program.run({"x": x})
        calibration_program.close()

    return CalibrationJob("compile", {}, compile_and_run)
