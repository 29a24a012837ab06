"""GraphDevices: one graph, compiled once per device, run on any of them.

Params are kept here and reach every device; a chain of devices goes on where one fails
and keeps every attempt. What takes a device and inputs takes them in this order, or the
inputs alone. Which device is meant is the resolver's.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

from rlxweb.arguments import switch, whole
from rlxweb.calibration.stopwatch import Clock
from rlxweb.choose.again import LOST, done_again, gone_with
from rlxweb.choose.chooser import Asked, choose
from rlxweb.choose.graphs import GraphJob
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.device import Adapters, Device, DeviceLike, devices_named, parse_device
from rlxweb.devices.policy import (
    BenchmarkPick,
    DevicePolicy,
    device_chain_from_env,
    forced_device_from_env,
    policy_of,
)
from rlxweb.errors import AdapterMissing, Unsupported
from rlxweb.gpu.drive import drive
from rlxweb.ir.graph import Graph
from rlxweb.runners.benchmark import (
    Compile,
    Compiled,
    DeviceBenchResult,
    fastest_first,
    timed_runs,
)
from rlxweb.runners.calling import Inputs, device_first
from rlxweb.runners.compiled_devices import CompiledDevices
from rlxweb.runners.fallback import failed, try_in_order
from rlxweb.runtime.device_array import Keep
from rlxweb.runtime.feeds import lying_on


class GraphDevices(CompiledDevices):
    """A graph and the devices it may run on.

    policy     which devices are allowed, preferred, and how the fastest is found
    adapters   part of an adapter's name by device ("vulkan": "SwiftShader")
    cost_mode  what predicts the fastest and decides fusions: "calibrated" or
               RLX's "seed"
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
        adapters: Adapters | None = None,
        cost_mode: str = "calibrated",
        compile_with: Compile | None = None,
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        super().__init__(graph, policy, adapters, cost_mode, compile_with)
        self._clock = clock
        self._winner: Device | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self.last_device: Device | None = None

    @classmethod
    def with_policy(cls, graph: Graph, policy: DevicePolicy) -> Self:
        """RLX's name for the constructor with a policy."""
        return cls(graph, policy)

    @classmethod
    def from_env(cls, graph: Graph) -> Self:
        """With the policy that the RLX_ variables spell."""
        return cls(graph, DevicePolicy.from_env())

    def explain(self) -> str:
        """The last decision with every candidate, then what happened, as text."""
        parts = [text for text in (super().explain(),) if text]
        if self.attempts:
            parts += ["attempts:", *(f"  {a}" for a in self.attempts)]
        return "\n".join(parts)

    @device_first
    def resolve_with_inputs(
        self, device: DeviceLike | None = None, inputs: Inputs | None = None
    ) -> Device:
        """`resolve`, but under `with_benchmark_pick` the fastest is found by running.

        1. The device asked for; the inputs are not looked at.
        2. The one the environment names and the graph can run on (RLX's benchmark
           passes over it).
        3. Where the policy says `with_benchmark_pick(runs)`: the first time the graph
           runs on every device with these inputs, and the fastest is remembered until
           `invalidate_cache` or `set_policy`, whatever inputs come later. Without
           inputs it is asked what `benchmark({})` asks.
        4. Otherwise the fastest by prediction; the inputs are not looked at.

        Errors   those of `resolve`, and in 3 of `benchmark`.
        """
        pick = self._policy.pick_strategy()
        if device is not None or not isinstance(pick, BenchmarkPick):
            return self._for_run(device, inputs)
        named = self.named_outside()
        if named is not None:
            return named
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

    @device_first
    def compile_resolved_with_inputs(
        self, device: DeviceLike | None = None, inputs: Inputs | None = None
    ) -> Compiled:
        """The graph compiled for `resolve_with_inputs`."""
        return self.compile(self.resolve_with_inputs(device, inputs))

    def benchmark(self, inputs: Inputs, runs: int = 3) -> list[DeviceBenchResult]:
        """Time the graph on every device, fastest first; failed ones last.

        Compiled graphs are kept. One run of each is not counted.
        Errors   those of the inputs, before anything is timed.
        """
        self._programs.check(inputs)
        runs = whole("runs", runs, f"benchmark of '{self._graph.name}'")
        return fastest_first(self._supported, lambda d: self._bench(d, inputs, runs))

    def _bench(self, device: Device, inputs: Inputs, runs: int) -> DeviceBenchResult:
        begun = self._clock()
        try:
            compiled = self.compile(device)
            compile_ns = self._clock() - begun
            return timed_runs(device, compile_ns, compiled, inputs, runs, self._clock)
        except LOST:
            self._programs.drop(device)
            raise

    @device_first
    def run(
        self,
        device: DeviceLike,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """The outputs, computed on one device and no other.

        A run that is lost with its device is done again there, opened anew; `attempts`
        says so.

        strict   such a run raises
        keep     which outputs stay there, as `CompiledGraph.run` has it
        Errors   those of `compile` and of `CompiledGraph.run`.
        """
        return self._lasting(parse_device(device), (), inputs, strict, keep)

    @device_first
    def run_resolved(
        self,
        device: DeviceLike | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """The outputs, computed on `resolve(device)`; `last_device` says which.

        Where no device was named, it is where DeviceArrays among the inputs or params
        lie, and a run that is lost goes on to the next one.
        """
        first = self.beside_data(device, inputs) or self._for_run(device, inputs)
        return self._lasting(first, self._ways, inputs, strict, keep)

    def _for_run(self, device: DeviceLike | None, inputs: Inputs | None) -> Device:
        """`resolve`, priced for the sizes that the inputs have."""
        graph = self._graph
        if device is None and graph.dims:
            graph = self._programs.bound_to(inputs)
        return self._resolved(graph, device)

    def run_fastest(
        self,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """The outputs, computed on the device predicted fastest; else as above."""
        first = self.beside_data(None, inputs)
        first = first or self._fastest(self._programs.bound_to(inputs))
        return self._lasting(first, self._ways, inputs, strict, keep)

    @device_first
    def run_resolved_with_inputs(
        self,
        device: DeviceLike | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """The outputs, computed on `resolve_with_inputs`; else as above."""
        first = self.beside_data(device, inputs)
        first = first or self.resolve_with_inputs(device, inputs)
        return self._lasting(first, self._ways, inputs, strict, keep)

    def beside_data(self, device: object, inputs: Inputs | None) -> Device | None:
        """The device on which data lies, unless one was named."""
        lying = {} if device is not None else self._programs.lying(inputs)
        if not lying:
            return None
        what, one = next(iter(lying.items()))
        which, why = self._ensure_supported(one.device), f"{what} lies there"
        there = lying_on(inputs, which)
        if not there:  # params have no price
            self.decision = Decision(f"device {which.label}", why)
            return which
        job = GraphJob(self._graph, cost_mode=self._cost_mode, there=there)
        return self._picked(choose(job, Asked(which, self.adapter_of(which), why=why)))

    @property
    def _ways(self) -> tuple[Candidate, ...]:
        """Those of the last decision; one that named its device has no others."""
        found = () if self.decision is None else self.decision.candidates
        return tuple(way for way in found if way.device in self._supported)

    def _lasting(
        self,
        device: Device,
        others: Sequence[Candidate],
        inputs: Inputs | None,
        strict: bool,
        keep: Keep,
    ) -> list[Any]:
        """The outputs, in spite of a loss: there again, or on one of the others."""
        given = {} if inputs is None else inputs
        strict = switch("strict", strict, f"run of '{self._graph.name}'")
        self.attempts = ()
        try:
            outs = self._run_on(device, given, keep)
        except LOST as error:
            if strict:
                raise
            if gone := self._programs.lying(given):
                raise gone_with(error, tuple(gone)) from error
            way = Candidate(device, device.label, adapter=self.adapter_of(device))
            again = self._again(given, keep)
            outs, _, tries = drive(done_again(error, way, others, again))
            self.attempts = tries
            return outs
        self.attempts = (Attempt(device, ""),)
        return outs

    def _again(
        self, given: Inputs, keep: Keep
    ) -> Callable[[Candidate], Awaitable[list[Any]]]:
        async def run(way: Candidate) -> list[Any]:
            return self._run_on(way.device, given, keep)

        return run

    @device_first
    def run_try(
        self,
        device: DeviceLike | Sequence[DeviceLike],
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> tuple[Device, list[Any]]:
        """(device, outputs) of the first device of a chain that succeeds.

        What failed before it is in `attempts`. A device that is lost or late is opened
        anew and tried once more; one that fails in any other way is passed over. Wrong
        inputs are not, they would fail everywhere.

        device   the chain: a list of devices, or one
        strict   the first device must do it, at the first try
        Errors   DeviceFallbackError with every attempt; those of the inputs.
        """
        wanted = devices_named(device)
        given = {} if inputs is None else inputs
        doing = f"run_try of '{self._graph.name}'"
        strict = switch("strict", strict, doing)
        self._programs.check(given)
        attempts: list[Attempt] = []
        try:
            return try_in_order(
                doing,
                wanted,
                self._viable(wanted),
                lambda d: self._twice(d, given, attempts, strict, keep),
                attempts,
                strict,
            )
        finally:
            self.attempts = tuple(attempts)

    def _twice(
        self,
        device: Device,
        given: Inputs,
        attempts: list[Attempt],
        strict: bool,
        keep: Keep,
    ) -> list[Any]:
        try:
            return self._run_on(device, given, keep)
        except LOST as error:
            if strict:
                raise
            attempts.append(Attempt(device, str(error), error))
            return self._run_on(device, given, keep)

    @device_first
    def run_chain(
        self,
        device: DeviceLike | Sequence[DeviceLike] | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> tuple[Device, list[Any]]:
        """(device, outputs) of the first device that succeeds, along a chain.

        1. Several devices asked for: those, in order.
        2. One: that one, and where it can run the graph but fails at it, the others in
           the policy's order. What it cannot run at all is refused.
        3. None: where DeviceArrays among the inputs or params lie; without those
           RLX_DEVICE_CHAIN; without that the fastest by prediction, then the others in
           the policy's order.

        The others are more than RLX does: there a chain without a list is one device.
        `strict=True` gives that, and `run` a device that is never swapped.

        strict   the first device must do it
        Errors   DeviceFallbackError with every attempt; those of the inputs.
        """
        chain = device_chain_from_env() if device is None else self._listed(device)
        beside = self.beside_data(device, inputs)
        if beside is not None:
            chain = (beside,)
        elif device is None and not chain:
            try:
                first = self._for_run(None, inputs)
            except (AdapterMissing, Unsupported) as error:
                attempt = Attempt(Device.CPU, str(error), error)
                self.attempts = (attempt,)
                doing = f"run_chain of '{self._graph.name}'"
                raise failed(doing, self.attempts) from error
            others = (d for d in self._supported if d is not first)
            chain = (first, *(() if forced_device_from_env() else others))
        return self.run_try(chain, inputs, strict=strict, keep=keep)

    def invalidate_cache(self) -> None:
        """Forget compiled graphs and the winner, and ask anew which devices there are.

        Params are kept.
        """
        self._programs.drop_all()
        self._winner = None
        self._look_around()

    def set_policy(self, policy: DevicePolicy) -> None:
        """Another policy from here on; what was resolved under the old is forgotten."""
        self._policy = policy_of(policy)
        self.decision = None
        self.invalidate_cache()

    def _listed(
        self, device: DeviceLike | Sequence[DeviceLike]
    ) -> Sequence[DeviceLike]:
        named = devices_named(device)
        one = isinstance(device, str) and len(named) == 1
        if not one or named[0] not in self._viable(named):
            return named
        return (*named, *(d for d in self._supported if d not in named))

    def _run_on(self, device: Device, inputs: Inputs, keep: Keep) -> list[Any]:
        self._ensure_supported(device)
        # How long it takes is learned from runs whose results come back.
        warm = self._programs.has_run(device) and keep is False
        begun = self._clock()
        try:
            outs = self._programs.run(device, inputs, keep)
        except LOST:
            self._winner = None if self._winner is device else self._winner
            raise
        if warm and self._pick is not None:
            self._pick.observe(self._clock() - begun, device)
        self.last_device = device
        return outs
