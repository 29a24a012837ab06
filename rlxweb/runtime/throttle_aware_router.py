"""Router over devices: GraphDevices that watches how fast its devices still are.

A device that throttles gets slower under the same work, on any system; RLX asks macOS
only. When the latest runs of a device take half as long again as its best ones, the
devices are timed again, at most once in 30 seconds, and nothing is compiled again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.device import Adapters, Device, DeviceLike, parse_device
from rlxweb.core.lazy_names import alias_keywords
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.graph import Graph
from rlxweb.runtime.device_argument_order import Inputs, device_first
from rlxweb.runtime.device_array import Keep
from rlxweb.runtime.graph_devices import GraphDevices
from rlxweb.select.policy import DevicePolicy

MEDIAN_WINDOW = 8
"""Number of latest runs whose median is compared."""
THROTTLE_RATIO = 1.5
"""Ratio to the best median above which a device counts as throttled."""
MIN_REBENCH_INTERVAL_S = 30.0
REBENCH_RUNS = 3


class DeviceRouter:
    """Graph compiled for every device at construction; runs go to the one that is
    fastest now.

    cost_mode            as in `GraphDevices`
    rebench_on_throttle  time the devices again when one has become slow
    clock                seconds, for the rate limit and for run times
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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.runner = GraphDevices(
            graph,
            policy,
            adapters=adapters,
            cost_mode=cost_mode,
            clock=lambda: int(clock() * 1e9),
        )
        self.with_rebench_on_throttle(rebench_on_throttle)
        self._clock = clock
        self._recent_times: dict[Device, deque[float]] = {}
        self._best_medians: dict[Device, float] = {}
        self._last_rebench = -float("inf")
        self._benchmark_winner: Device | None = None
        self.runner.warm_all()

    @classmethod
    def from_env(cls, graph: Graph) -> Self:
        """Use the policy that the RLX_ variables describe."""
        return cls(graph, DevicePolicy.from_env())

    def with_rebench_on_throttle(self, enabled: bool = True) -> Self:
        """Set `rebench_on_throttle`, by RLX's name; returns the router itself."""
        context = "DeviceRouter"
        self.rebench_on_throttle = coerce_bool("rebench_on_throttle", enabled, context)
        return self

    def __repr__(self) -> str:
        return f"DeviceRouter({self.runner!r})"

    def devices(self) -> tuple[str, ...]:
        """Return the labels of the devices that can run the graph."""
        return tuple(d.label for d in self.runner.devices)

    @alias_keywords(data="value")
    def set_param(self, name: str, value: Any) -> None:
        """Hand a param's value to every device."""
        self.runner.set_param(name, value)

    @alias_keywords(data="value")
    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """Hand a param's raw bytes or array-like values to every device; see
        `GraphDevices.set_param_typed`.
        """
        self.runner.set_param_typed(name, value, dtype)

    def is_throttled(self, device: DeviceLike) -> bool:
        """Return whether the latest runs are much slower than the best ones."""
        target = parse_device(device)
        times = self._recent_times.get(target, ())
        if len(times) < MEDIAN_WINDOW:
            return False
        return float(np.median(times)) > THROTTLE_RATIO * self._best_medians[target]

    @device_first
    def run(
        self,
        device: DeviceLike | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> tuple[Device, list[Any]]:
        """Return (device, outputs) of the device asked for, else of the fastest now.

        strict   a run that is lost with its device raises; else it is repeated there
        keep     which outputs stay there, as in `CompiledGraph.run`; DeviceArrays
                 among the inputs or params decide where an open run goes
        """
        self._rebench_if_throttled(inputs)
        target = self.runner._data_device(device, inputs)
        if target is None and device is None and self._benchmark_winner is not None:
            target = self.runner._environment_device() or self._benchmark_winner
        target = target or self.runner.resolve(device)
        return target, self._timed_run(target, inputs, strict, keep)

    @device_first
    def run_on(
        self,
        device: DeviceLike,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """Compute the outputs on one device and no other; the rest as in `run`."""
        self._rebench_if_throttled(inputs)
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
        """Return (device, outputs), as `GraphDevices.run_chain` does."""
        self._rebench_if_throttled(inputs)
        started = self._clock()
        used_device, outputs = self.runner.run_chain(
            device, inputs, strict=strict, keep=keep
        )
        if len(self.runner.attempts) == 1:  # else others took some of the time
            self._record_run_time(used_device, started, keep)
        return used_device, outputs

    def close(self) -> None:
        """Free what was compiled."""
        self.runner.close()

    def _timed_run(
        self, device: Device, inputs: Inputs | None, strict: bool, keep: Keep
    ) -> list[Any]:
        """Run on one device and record how long it took."""
        started = self._clock()
        outputs = self.runner.run(device, inputs, strict=strict, keep=keep)
        self._record_run_time(device, started, keep)
        return outputs

    def _record_run_time(self, device: Device, started: float, keep: Keep) -> None:
        """Record how long a run took, unless outputs stay on the device and nobody
        waited for them.
        """
        if keep is not False:
            return
        times = self._recent_times.setdefault(device, deque(maxlen=MEDIAN_WINDOW))
        times.append(self._clock() - started)
        if len(times) == MEDIAN_WINDOW:
            latest_median = float(np.median(times))
            self._best_medians[device] = min(
                latest_median, self._best_medians.get(device, latest_median)
            )

    def _rebench_if_throttled(self, inputs: Inputs | None) -> None:
        """Time the devices again if one is throttled and the last time is long enough
        ago.
        """
        is_recent = self._clock() - self._last_rebench < MIN_REBENCH_INTERVAL_S
        if is_recent or not self.rebench_on_throttle:
            return
        if not any(self.is_throttled(d) for d in self.runner.devices):
            return
        self._last_rebench = self._clock()
        feeds = {} if inputs is None else inputs
        rows = [r for r in self.runner.benchmark(feeds, REBENCH_RUNS) if not r.error]
        self._benchmark_winner = rows[0].device if rows else None
        for row in rows:
            # The slower speed is the new normal, or every call would find it slow.
            self._recent_times.pop(row.device, None)
            self._best_medians[row.device] = row.median_exec_ns / 1e9
