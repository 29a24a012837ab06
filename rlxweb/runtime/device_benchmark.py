"""Benchmark of a graph on several devices: one warm-up run, then medians.

The warm-up is not counted: first runs translate shaders and fill caches, which RLX's
benchmark includes in its figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from rlxweb.core.argument_validation import coerce_integer
from rlxweb.core.device import Device, DeviceLike, parse_devices
from rlxweb.core.errors import UsageError
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import require_graph
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.input_validation import infer_dim_sizes_from_inputs
from rlxweb.runtime.session import Session
from rlxweb.select.calibration.stopwatch import Clock, Stopwatch
from rlxweb.select.policy import DevicePolicy
from rlxweb.select.resolve import devices_for


@dataclass(frozen=True, slots=True)
class DeviceBenchResult:
    """Times of one device: compile_ns once, median_exec_ns over `runs` warm runs.

    error is "" unless the device failed, and both times are 0 then.
    """

    device: Device
    label: str
    compile_ns: int
    median_exec_ns: float
    spread: float = 0.0
    runs: int = 0
    error: str = ""

    @property
    def median_ns(self) -> float:
        """Alias of `median_exec_ns`: pyrlx's name for it."""
        return self.median_exec_ns


def benchmark_devices(
    graph: Graph,
    inputs: Mapping[str, Any],
    runs: int = 3,
    policy: DevicePolicy | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    devices: DeviceLike | Sequence[DeviceLike] | None = None,
    clock: Clock = time.perf_counter_ns,
) -> list[DeviceBenchResult]:
    """Time a graph on each device; the fastest first, failed ones last with the reason.

    runs     timed runs, at least 1, after one that is not counted
    params   values of the graph's params
    devices  which to time; all that can run the graph under the policy when left out
    Errors   UsageError, and those of the inputs, before anything is timed
    """
    require_graph(graph)
    infer_dim_sizes_from_inputs(graph, inputs)
    runs = check_run_count(runs, f"benchmark of '{graph.name}'")

    def compile_on(device: Device) -> CompiledGraph:
        compiled = Session(device).compile(graph)
        for name, value in (params or {}).items():
            compiled.set_param(name, value)
        return compiled

    chosen_devices = (
        devices_for(graph, policy) if devices is None else parse_devices(devices)
    )
    close_graph = methodcaller("close")
    return time_devices(chosen_devices, compile_on, inputs, runs, clock, close_graph)


def check_run_count(runs: object, context: str) -> int:
    """Return the number of runs to time; raises UsageError unless it is a whole number
    above 0.
    """
    count = coerce_integer("runs", runs, context)
    if count < 1:
        raise UsageError(context, f"runs is {count}", "it must be at least 1")
    return count


def time_devices(
    devices: Iterable[Device],
    compile_on: Callable[[Device], CompiledGraph],
    inputs: Mapping[str, Any],
    runs: int,
    clock: Clock,
    on_timed: Callable[[CompiledGraph], object] = lambda compiled: None,
) -> list[DeviceBenchResult]:
    """Return one row per device, the fastest first, those that failed last.

    compile_on  compiles for a device and sets the params
    on_timed    called with each compiled graph once it was timed
    """
    stopwatch = Stopwatch(sample_ns=0, samples=runs, min_samples=runs, clock=clock)

    def bench(device: Device) -> DeviceBenchResult:
        started_ns = clock()
        compiled = compile_on(device)
        compile_ns = clock() - started_ns
        try:
            timing = stopwatch.time(lambda: compiled.run(inputs))
        finally:
            on_timed(compiled)
        label, median_ns = device.label, timing.ns
        return DeviceBenchResult(
            device, label, compile_ns, median_ns, timing.spread, timing.samples
        )

    rows = []
    for device in devices:
        try:
            rows.append(bench(device))
        except Exception as error:  # any failure of a driver becomes a row
            message = str(error) or type(error).__name__
            rows.append(DeviceBenchResult(device, device.label, 0, 0.0, error=message))
    return sorted(rows, key=lambda r: (bool(r.error), r.median_exec_ns))


def warm_all(
    graph: Graph, policy: DevicePolicy | None = None
) -> dict[Device, CompiledGraph]:
    """Compile a graph on every device that can run it; the first error ends it."""
    return {d: Session(d).compile(graph) for d in devices_for(graph, policy)}
