"""Compile and time a graph on every device that can run it. One warm-up, then medians.

The warm-up is not counted: first runs translate shaders and fill caches, which RLX's
benchmark puts into its figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlxweb.arguments import whole
from rlxweb.backends.protocol import Array
from rlxweb.calibration.stopwatch import Clock, Stopwatch
from rlxweb.choose.resolve import devices_for
from rlxweb.device import Device, DeviceLike, devices_named
from rlxweb.devices.policy import DevicePolicy
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import must_be_graph
from rlxweb.runtime.feeds import check_inputs
from rlxweb.runtime.session import Session


class Compiled(Protocol):
    """What a session makes of a graph."""

    @property
    def device(self) -> Device: ...

    def set_param(self, name: str, value: Any) -> None: ...

    def run(self, inputs: Mapping[str, Any] | None = None) -> list[Array]: ...

    def close(self) -> None: ...


Compile = Callable[[Device, Graph], Compiled]


@dataclass(frozen=True, slots=True)
class DeviceBenchResult:
    """One device: compile_ns once, median_exec_ns over `runs` warm runs.

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


def compile_on(device: Device, graph: Graph) -> Compiled:
    """A session's compiled graph."""
    return Session(device).compile(graph)


def benchmark_devices(
    graph: Graph,
    inputs: Mapping[str, Any],
    runs: int = 3,
    policy: DevicePolicy | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    devices: DeviceLike | Sequence[DeviceLike] | None = None,
    compile_with: Compile = compile_on,
    clock: Clock = time.perf_counter_ns,
) -> list[DeviceBenchResult]:
    """Times of a graph on each device, fastest first; failed ones last, with why.

    runs     timed runs, at least 1, after one that is not counted
    params   values of the graph's params
    devices  which to time; all that can run the graph under the policy when left out
    Errors   those of the inputs, before anything is timed
    """
    must_be_graph(graph)
    check_inputs(graph, inputs)
    runs = whole("runs", runs, f"benchmark of '{graph.name}'")

    def bench(device: Device) -> DeviceBenchResult:
        begun = clock()
        compiled = compile_with(device, graph)
        compile_ns = clock() - begun
        try:
            for name, value in (params or {}).items():
                compiled.set_param(name, value)
            return timed_runs(device, compile_ns, compiled, inputs, runs, clock)
        finally:
            compiled.close()

    wanted = devices_for(graph, policy) if devices is None else devices_named(devices)
    return fastest_first(wanted, bench)


def fastest_first(
    devices: Iterable[Device], bench: Callable[[Device], DeviceBenchResult]
) -> list[DeviceBenchResult]:
    """A row of each device, those last where timing it failed, with why."""
    rows = []
    for device in devices:
        try:
            rows.append(bench(device))
        except Exception as error:  # a driver's own failure is a row, not the end
            said = str(error) or type(error).__name__
            rows.append(DeviceBenchResult(device, device.label, 0, 0.0, error=said))
    return sorted(rows, key=lambda r: (bool(r.error), r.median_exec_ns))


def timed_runs(
    device: Device,
    compile_ns: int,
    compiled: Compiled,
    inputs: Mapping[str, Any],
    runs: int,
    clock: Clock,
) -> DeviceBenchResult:
    """The row of one device: max(runs, 1) runs, after one that is not counted."""
    most = max(1, runs)
    watch = Stopwatch(sample_ns=0, samples=most, least=most, clock=clock)
    took = watch.time(lambda: compiled.run(inputs))
    return DeviceBenchResult(
        device, device.label, compile_ns, took.ns, took.spread, took.samples
    )


def warm_all(
    graph: Graph,
    policy: DevicePolicy | None = None,
    *,
    compile_with: Compile = compile_on,
) -> dict[Device, Compiled]:
    """The graph compiled on every device that can run it; the first error ends it."""
    return {d: compile_with(d, graph) for d in devices_for(graph, policy)}
