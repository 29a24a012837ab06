"""Compile and time a graph on several devices: one warm-up run, then medians.

The warm-up is not counted: first runs translate shaders and fill caches, which RLX's
benchmark includes in its figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from rlxweb.arguments import whole
from rlxweb.calibration.stopwatch import Clock, Stopwatch
from rlxweb.choose.resolve import devices_for
from rlxweb.device import Device, DeviceLike, devices_named
from rlxweb.devices.policy import DevicePolicy
from rlxweb.errors import UsageError
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import must_be_graph
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.feeds import check_inputs
from rlxweb.runtime.session import Session


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
        """The median by pyrlx's name."""
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
    must_be_graph(graph)
    check_inputs(graph, inputs)
    runs = timed_runs(runs, f"benchmark of '{graph.name}'")

    def compile_on(device: Device) -> CompiledGraph:
        compiled = Session(device).compile(graph)
        for name, value in (params or {}).items():
            compiled.set_param(name, value)
        return compiled

    wanted = devices_for(graph, policy) if devices is None else devices_named(devices)
    done = methodcaller("close")
    return time_devices(wanted, compile_on, inputs, runs, clock, done)


def timed_runs(runs: object, doing: str) -> int:
    """Return how many runs to time. Errors  UsageError for no whole number over 0."""
    count = whole("runs", runs, doing)
    if count < 1:
        raise UsageError(doing, f"runs is {count}", "it must be at least 1")
    return count


def time_devices(
    devices: Iterable[Device],
    compile_on: Callable[[Device], CompiledGraph],
    inputs: Mapping[str, Any],
    runs: int,
    clock: Clock,
    done: Callable[[CompiledGraph], object] = lambda compiled: None,
) -> list[DeviceBenchResult]:
    """Return one row per device, the fastest first, those that failed last.

    compile_on  compiles for a device and sets the params
    done        called with each compiled graph once it was timed
    """
    watch = Stopwatch(sample_ns=0, samples=runs, least=runs, clock=clock)

    def bench(device: Device) -> DeviceBenchResult:
        begun = clock()
        compiled = compile_on(device)
        compile_ns = clock() - begun
        try:
            took = watch.time(lambda: compiled.run(inputs))
        finally:
            done(compiled)
        label, ns = device.label, took.ns
        return DeviceBenchResult(
            device, label, compile_ns, ns, took.spread, took.samples
        )

    rows = []
    for device in devices:
        try:
            rows.append(bench(device))
        except Exception as error:  # any failure of a driver becomes a row
            said = str(error) or type(error).__name__
            rows.append(DeviceBenchResult(device, device.label, 0, 0.0, error=said))
    return sorted(rows, key=lambda r: (bool(r.error), r.median_exec_ns))


def warm_all(
    graph: Graph, policy: DevicePolicy | None = None
) -> dict[Device, CompiledGraph]:
    """Compile a graph on every device that can run it; the first error ends it."""
    return {d: Session(d).compile(graph) for d in devices_for(graph, policy)}
