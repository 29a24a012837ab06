"""GraphDevices: one graph, compiled once per device, run on any of them.

Params are kept here and reach every device. Devices are resolved by hint, environment
or predicted time; a chain goes on where one fails and keeps every attempt.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from rlxweb.backends.protocol import Array
from rlxweb.calibration.stopwatch import Clock
from rlxweb.choose.chooser import Pick
from rlxweb.choose.graphs import GraphJob
from rlxweb.choose.resolve import (
    Adapters,
    decide_device,
    devices_for,
    fastest,
    resolve_device_chain,
)
from rlxweb.decision.decision import Decision
from rlxweb.decision.explain import explain_decision
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.availability import DeviceRow, is_available
from rlxweb.devices.policy import BenchmarkPick, DevicePolicy, device_chain_from_env
from rlxweb.errors import Unsupported
from rlxweb.ir.graph import Graph
from rlxweb.runners.benchmark import (
    Compile,
    Compiled,
    DeviceBenchResult,
    fastest_first,
    timed_runs,
)
from rlxweb.runners.fallback import Attempt, failed, try_in_order
from rlxweb.runners.programs import LOST, Programs
from rlxweb.runners.report import device_report
from rlxweb.runtime.session import Session

Inputs = Mapping[str, Any]


class GraphDevices:
    """A graph and the devices it may run on.

    policy     which devices are allowed, preferred, and how the fastest is found
    adapters   part of an adapter's name by device ("vulkan": "SwiftShader")
    compile_with  how a graph is compiled for a device; sessions by default

    The list of devices that can run the graph is made here and again by
    `invalidate_cache`, `set_policy`, and after a device was lost.

    >>> runner = GraphDevices(graph, DevicePolicy.from_env())
    >>> runner.set_param("w", w)
    >>> device, outs = runner.run_chain({"x": x})
    """

    def __init__(
        self,
        graph: Graph,
        policy: DevicePolicy | None = None,
        *,
        adapters: Mapping[DeviceLike, str] | None = None,
        compile_with: Compile | None = None,
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        self._graph = graph
        self._policy = policy or DevicePolicy.all()
        self._adapters: Adapters = {
            parse_device(d): name for d, name in (adapters or {}).items()
        }
        self._programs = Programs(graph, compile_with or self._session)
        self._clock = clock
        self._winner: Device | None = None
        self._supported = devices_for(graph, self._policy, self._adapters)
        self.attempts: tuple[Attempt, ...] = ()
        self.last_device: Device | None = None
        self.decision: Decision | None = None
        self._pick: Pick[GraphJob] | None = None

    @classmethod
    def with_policy(cls, graph: Graph, policy: DevicePolicy) -> Self:
        """RLX's name for the constructor with a policy."""
        return cls(graph, policy)

    @classmethod
    def from_env(cls, graph: Graph) -> Self:
        """With the policy that the RLX_ variables spell."""
        return cls(graph, DevicePolicy.from_env())

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def policy(self) -> DevicePolicy:
        return self._policy

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that can run the graph under the policy, in its order."""
        return self._supported

    def report(self) -> tuple[DeviceRow, ...]:
        """One row per device, made anew: what it makes of the graph, and blockers."""
        return device_report(self._graph, self._policy, adapters=self._adapters)

    def fastest(self) -> Device:
        """The device predicted fastest, asked anew. Errors  Unsupported."""
        return self._picked(fastest(self._graph, self._policy, self._adapters))

    def explain(self) -> str:
        """The last decision with every candidate, then what happened, as text."""
        if self.decision is None:
            self.resolve()
        parts = [explain_decision(self.decision)] if self.decision else []
        if self.attempts:
            parts += ["attempts:", *(f"  {a}" for a in self.attempts)]
        return "\n".join(parts)

    def resolve(self, hint: DeviceLike | None = None) -> Device:
        """The hint, else RLX_DEVICE, else the fastest by prediction.

        Errors   Unsupported when nothing can run the graph or the hint cannot.
        """
        pick = decide_device(
            self._graph,
            hint,
            self._policy,
            viable=self._supported,
            adapters=self._adapters,
        )
        return self._picked(pick)

    def resolve_chain(self, hint: DeviceLike | None = None) -> Device:
        """The hint, else the first viable of RLX_DEVICE_CHAIN, else `resolve()`."""
        chain = device_chain_from_env() if hint is None else ()
        if not chain:
            return self.resolve(hint)
        device = resolve_device_chain(
            self._graph, chain, self._policy, viable=self._supported
        )
        self.decision = Decision(f"device {device.label}", "RLX_DEVICE_CHAIN")
        return device

    def resolve_with_inputs(
        self, hint: DeviceLike | None = None, inputs: Inputs | None = None
    ) -> Device:
        """`resolve`, or by running on every device where the policy says so.

        The benchmark's winner is remembered until `invalidate_cache`. RLX_DEVICE is
        asked first in both cases (RLX's benchmark passes over it).
        """
        pick = self._policy.pick_strategy()
        if hint is not None or not isinstance(pick, BenchmarkPick):
            return self.resolve(hint)
        if self._winner is None:
            rows = [
                r
                for r in self.benchmark({} if inputs is None else inputs, pick.runs)
                if r.error == ""
            ]
            self._winner = rows[0].device if rows else self.fastest()
        self.decision = Decision(
            f"device {self._winner.label}", "it won the benchmark of this graph"
        )
        return self._winner

    def set_param(self, name: str, value: Any) -> None:
        """Keep a param's value and hand it to every device compiled so far.

        Errors   UnknownName, DTypeError, ShapeError; RLX ignores an unknown name.
        """
        self._programs.set_param(name, value)

    def set_param_typed(self, name: str, value: Any, dtype: Any = None) -> None:
        """`set_param` with the value first made an array of `dtype`."""
        self.set_param(name, np.asarray(value, dtype))

    def sync_params_to_all(self) -> None:
        """Hand every stored param to every compiled device once more."""
        self._programs.sync_params()

    def compile(self, device: DeviceLike) -> Compiled:
        """The graph compiled for a device, once; with every param set so far.

        Errors   Unsupported when the device is not there or cannot run the graph, and
        those of compiling.
        """
        return self._programs.compile(self._ensure_supported(device))

    def compile_fastest(self) -> Device:
        """Compile for the device predicted fastest and say which it is."""
        return self._compiled_for(self.fastest())

    def compile_resolved(self, hint: DeviceLike | None = None) -> Device:
        """Compile for `resolve(hint)` and say which it is."""
        return self._compiled_for(self.resolve(hint))

    def compile_chain(self, hint: DeviceLike | None = None) -> Device:
        """Compile for `resolve_chain(hint)` and say which it is."""
        return self._compiled_for(self.resolve_chain(hint))

    def compile_resolved_with_inputs(
        self, hint: DeviceLike | None = None, inputs: Inputs | None = None
    ) -> Device:
        """Compile for `resolve_with_inputs` and say which it is."""
        return self._compiled_for(self.resolve_with_inputs(hint, inputs))

    def warm_all(self) -> tuple[Device, ...]:
        """Compile for every device; the first error ends it. The devices."""
        for device in self._supported:
            self.compile(device)
        return self._supported

    def benchmark(self, inputs: Inputs, runs: int = 3) -> list[DeviceBenchResult]:
        """Time the graph on every device, fastest first; failed ones last.

        Compiled graphs are kept. One run of each is not counted.
        Errors   those of the inputs, before anything is timed.
        """
        self._programs.check(inputs)
        return fastest_first(self.devices, lambda d: self._bench(d, inputs, runs))

    def _bench(self, device: Device, inputs: Inputs, runs: int) -> DeviceBenchResult:
        begun = self._clock()
        try:
            compiled = self.compile(device)
            compile_ns = self._clock() - begun
            return timed_runs(device, compile_ns, compiled, inputs, runs, self._clock)
        except LOST:
            self._programs.drop(device)
            raise

    def run(self, device: DeviceLike, inputs: Inputs | None = None) -> list[Array]:
        """The outputs, computed on one device and no other.

        Errors   those of `compile` and of `CompiledGraph.run`.
        """
        which = parse_device(device)
        self.attempts = ()
        outs = self._run_on(which, {} if inputs is None else inputs)
        self.attempts = (Attempt(which, ""),)
        return outs

    def run_resolved(
        self, inputs: Inputs | None = None, device: DeviceLike | None = None
    ) -> list[Array]:
        """The outputs, computed on `resolve(device)`; `last_device` says which."""
        return self.run(self.resolve(device), inputs)

    def run_fastest(self, inputs: Inputs | None = None) -> list[Array]:
        """The outputs, computed on the device predicted fastest."""
        return self.run(self.fastest(), inputs)

    def run_resolved_with_inputs(
        self, inputs: Inputs | None = None, device: DeviceLike | None = None
    ) -> list[Array]:
        """The outputs, computed on `resolve_with_inputs`."""
        return self.run(self.resolve_with_inputs(device, inputs), inputs)

    def run_try(
        self,
        chain: Sequence[DeviceLike],
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
    ) -> tuple[Device, list[Array]]:
        """(device, outputs) of the first device of a chain that succeeds.

        What failed before it is in `attempts`. A device that is lost, late, or fails in
        any other way is passed over; wrong inputs are not, they would fail everywhere.

        strict   the first device must do it
        Errors   DeviceFallbackError with every attempt; those of the inputs.
        """
        wanted = [parse_device(d) for d in chain]
        given = {} if inputs is None else inputs
        self._programs.check(given)
        doing = f"run_try of '{self._graph.name}'"
        attempts: list[Attempt] = []
        try:
            return try_in_order(
                doing,
                wanted,
                self._supported,
                lambda d: self._run_on(d, given),
                attempts,
                strict,
            )
        finally:
            self.attempts = tuple(attempts)

    def run_chain(
        self,
        inputs: Inputs | None = None,
        hint: DeviceLike | None = None,
        *,
        strict: bool = False,
    ) -> tuple[Device, list[Array]]:
        """(device, outputs): the hint alone; else RLX_DEVICE_CHAIN in order; else the
        fastest by prediction, then the other devices in the policy's order.

        The last is more than RLX does: its chain without a list is one device.

        strict   the first device must do it
        Errors   DeviceFallbackError with every attempt; those of the inputs.
        """
        chain = device_chain_from_env() if hint is None else (parse_device(hint),)
        if not chain:
            try:
                first = self.resolve()
            except Unsupported as error:
                attempt = Attempt(Device.CPU, str(error), error)
                self.attempts = (attempt,)
                doing = f"run_chain of '{self._graph.name}'"
                raise failed(doing, self.attempts) from error
            chain = (first, *(d for d in self._supported if d is not first))
        return self.run_try(chain, inputs, strict=strict)

    def invalidate_cache(self) -> None:
        """Forget compiled graphs and the winner, and ask anew which devices there are.

        Params are kept.
        """
        self._programs.drop_all()
        self._winner = None
        self._supported = devices_for(self._graph, self._policy, self._adapters)

    def set_policy(self, policy: DevicePolicy) -> None:
        """Another policy from here on; what was resolved under the old is forgotten."""
        self._policy = policy
        self.decision = None
        self.invalidate_cache()

    def close(self) -> None:
        """Free what was compiled. Idempotent."""
        self._programs.drop_all()

    def _session(self, device: Device, graph: Graph) -> Compiled:
        return Session(device, adapter=self._adapters.get(device, "")).compile(graph)

    def _picked(self, pick: Pick[GraphJob]) -> Device:
        self.decision = pick.decision
        if pick.decision.candidates:
            self._pick = pick
        return pick.device

    def _compiled_for(self, device: Device) -> Device:
        self.compile(device)
        return device

    def _ensure_supported(self, device: DeviceLike) -> Device:
        which = parse_device(device)
        if which in self._supported:
            return which
        problem = f"device {which} cannot lower this graph under the active policy"
        hint = ""
        if not is_available(which):
            problem = f"device {which} is not available"
            hint = (
                "`rlxweb devices` says why; an extra may bring it: "
                "pip install 'rlxweb[cuda]' or 'rlxweb[mlx]'"
            )
        raise Unsupported(f"compile '{self._graph.name}'", problem, hint=hint)

    def _run_on(self, device: Device, inputs: Inputs) -> list[Array]:
        self._ensure_supported(device)
        warm = self._programs.has_run(device)
        begun = self._clock()
        try:
            outs = self._programs.run(device, inputs)
        except LOST:
            self._winner = None if self._winner is device else self._winner
            raise
        if warm and self._pick is not None:
            self._pick.observe(self._clock() - begun, device)
        self.last_device = device
        return outs
