"""DeviceRouter: GraphDevices that keeps an eye on how fast its devices still are.

A device that throttles gets slower under the same work, on any system; RLX asks macOS
and no other. When the latest runs of a device take half as long again as its best, the
devices are timed anew, at most once in half a minute, and nothing is compiled again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from rlxweb.arguments import switch
from rlxweb.device import Adapters, Device, DeviceLike, parse_device
from rlxweb.devices.policy import DevicePolicy
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.graph import Graph
from rlxweb.names import also
from rlxweb.runners.benchmark import Compile
from rlxweb.runners.calling import Inputs, device_first
from rlxweb.runners.graph_devices import GraphDevices
from rlxweb.runtime.device_array import Keep

WINDOW = 8
"""Runs whose median is compared."""
THROTTLED = 1.5
"""Times the best median seen."""
REBENCH_EVERY_S = 30.0
REBENCH_RUNS = 3


class DeviceRouter:
    """Every device compiled at construction; runs go to the one that is fastest now.

    cost_mode            as `GraphDevices` has it
    rebench_on_throttle  time the devices anew when one has become slow
    clock                seconds, for the rate limit; run times are taken with it too
    Errors               those of compiling, for any device.
    """

    def __init__(
        self,
        graph: Graph,
        policy: DevicePolicy | None = None,
        *,
        adapters: Adapters | None = None,
        cost_mode: str = "calibrated",
        rebench_on_throttle: bool = True,
        compile_with: Compile | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.runner = GraphDevices(
            graph,
            policy,
            adapters=adapters,
            cost_mode=cost_mode,
            compile_with=compile_with,
            clock=lambda: int(clock() * 1e9),
        )
        self.with_rebench_on_throttle(rebench_on_throttle)
        self._clock = clock
        self._taken: dict[Device, deque[float]] = {}
        self._best: dict[Device, float] = {}
        self._rebenched = -float("inf")
        self._winner: Device | None = None
        self.runner.warm_all()

    @classmethod
    def from_env(cls, graph: Graph) -> Self:
        """With the policy that the RLX_ variables spell."""
        return cls(graph, DevicePolicy.from_env())

    def with_rebench_on_throttle(self, enabled: bool = True) -> Self:
        """Switch `rebench_on_throttle`, by RLX's name; the router itself."""
        doing = "DeviceRouter"
        self.rebench_on_throttle = switch("rebench_on_throttle", enabled, doing)
        return self

    def __repr__(self) -> str:
        return f"DeviceRouter({self.runner!r})"

    def devices(self) -> tuple[str, ...]:
        """The labels of the devices that can run the graph."""
        return tuple(d.label for d in self.runner.devices)

    @also(data="value")
    def set_param(self, name: str, value: Any) -> None:
        """Hand a param's value to every device."""
        self.runner.set_param(name, value)

    @also(data="value")
    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """As `GraphDevices.set_param_typed`."""
        self.runner.set_param_typed(name, value, dtype)

    def is_throttled(self, device: DeviceLike) -> bool:
        """Have the latest runs become much slower than the best ones?"""
        which = parse_device(device)
        taken = self._taken.get(which, ())
        if len(taken) < WINDOW:
            return False
        return float(np.median(taken)) > THROTTLED * self._best[which]

    @device_first
    def run(
        self,
        device: DeviceLike | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> tuple[Device, list[Any]]:
        """(device, outputs) where it was asked for, else where runs are fastest now.

        strict   a run that is lost with its device raises; else it is done again there
        keep     which outputs stay there, as `CompiledGraph.run` has it; DeviceArrays
                 among the inputs or params say where an open run goes
        """
        self._rebench_if_throttled({} if inputs is None else inputs)
        which = self.runner.beside_data(device, inputs)
        if which is None and device is None:
            which = self._fastest_now()
        which = which or self.runner.resolve(device)
        return which, self._timed_run(which, inputs, strict, keep)

    @device_first
    def run_on(
        self,
        device: DeviceLike,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """The outputs, computed on one device and no other; the rest as in `run`."""
        self._rebench_if_throttled({} if inputs is None else inputs)
        return self._timed_run(self.runner.resolve(device), inputs, strict, keep)

    @device_first
    def run_chain(
        self,
        device: DeviceLike | Sequence[DeviceLike] | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> tuple[Device, list[Any]]:
        """(device, outputs) as `GraphDevices.run_chain` orders devices."""
        self._rebench_if_throttled({} if inputs is None else inputs)
        begun = self._clock()
        ran, outs = self.runner.run_chain(device, inputs, strict=strict, keep=keep)
        # Time that others lost is not its own; nobody may have waited for what stays.
        if len(self.runner.attempts) == 1 and keep is False:
            self._note(ran, self._clock() - begun)
        return ran, outs

    def close(self) -> None:
        """Free what was compiled."""
        self.runner.close()

    def _fastest_now(self) -> Device | None:
        """What timing found, unless the environment names a device."""
        if self._winner is None:
            return None
        return self.runner.named_outside() or self._winner

    def _timed_run(
        self, device: Device, inputs: Inputs | None, strict: bool, keep: Keep
    ) -> list[Any]:
        begun = self._clock()
        outs = self.runner.run(device, inputs, strict=strict, keep=keep)
        if keep is False:
            self._note(device, self._clock() - begun)
        return outs

    def _note(self, device: Device, seconds: float) -> None:
        taken = self._taken.setdefault(device, deque(maxlen=WINDOW))
        taken.append(seconds)
        if len(taken) == WINDOW:
            now = float(np.median(taken))
            self._best[device] = min(now, self._best.get(device, now))

    def _rebench_if_throttled(self, inputs: Inputs) -> None:
        lately = self._clock() - self._rebenched < REBENCH_EVERY_S
        if lately or not self.rebench_on_throttle:
            return
        if not any(self.is_throttled(d) for d in self.runner.devices):
            return
        self._rebenched = self._clock()
        rows = [r for r in self.runner.benchmark(inputs, REBENCH_RUNS) if not r.error]
        self._winner = rows[0].device if rows else None
        for row in rows:
            # What is slow now is the new normal, or every call would find it slow.
            self._taken.pop(row.device, None)
            self._best[row.device] = row.median_exec_ns / 1e9
