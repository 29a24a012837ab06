"""GraphDevices: one graph, compiled once per device, run on any of them.

Thin over `Session`, which compiles, and `rlxweb.choose`, which decides: here are the
params that reach every device, and the order in which devices are tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Self
from weakref import WeakSet

from rlxweb.arguments import switch
from rlxweb.backends.protocol import Array
from rlxweb.calibration.stopwatch import Clock
from rlxweb.choose.again import LOST, done_again, gone_with
from rlxweb.choose.chooser import Asked, choose
from rlxweb.choose.fallback import first_success
from rlxweb.choose.graphs import GraphJob
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.device import (
    Adapters,
    Device,
    DeviceLike,
    devices_named,
    is_open,
    parse_device,
)
from rlxweb.devices.policy import (
    BenchmarkPick,
    DevicePolicy,
    device_chain_from_env,
    forced_device_from_env,
    policy_of,
)
from rlxweb.errors import (
    AdapterMissing,
    DeviceFallbackError,
    InputError,
    SessionClosed,
    Unsupported,
)
from rlxweb.forked import ForkLock
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.verify import must_be_graph
from rlxweb.names import also, formerly
from rlxweb.runtime.bindings import MOST_BOUND
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray, Keep
from rlxweb.runtime.device_benchmark import DeviceBenchResult, time_devices, timed_runs
from rlxweb.runtime.device_first import Inputs, device_first
from rlxweb.runtime.device_resolver import DeviceResolver
from rlxweb.runtime.feeds import (
    as_input,
    check_inputs,
    check_params_set,
    lying,
    lying_on,
    param_named,
)
from rlxweb.runtime.on_devices import OnDevices
from rlxweb.runtime.raw_bytes import as_typed


def graph_param_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of a graph's params, in node order."""
    must_be_graph(graph)
    return tuple(graph.named("param"))


class GraphDevices(DeviceResolver):
    """A graph and the devices it may run on. Threads may share it.

    policy     which devices are allowed, preferred, and how the fastest is found
    adapters   part of an adapter's name by device ("vulkan": "SwiftShader")
    cost_mode  what predicts the fastest and decides fusions: "calibrated" or
               RLX's "seed"

    The list of devices that can run the graph is made by the constructor, and again by
    `invalidate_cache` and `set_policy`. Methods over a device and inputs take them in
    this order, or the inputs alone.

    decision     the last choice of a device
    attempts     where the last run was tried, in order
    last_device  where the last run succeeded

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
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        super().__init__(graph, policy, adapters, cost_mode)
        bind = self._graph.bind
        self._bind = lru_cache(MOST_BOUND)(lambda sizes: bind(dict(sizes)))
        self._clock = clock
        self._compiled = OnDevices(self._graph, cost_mode)
        self._params: dict[str, Array | DeviceArray] = {}
        self._warm: WeakSet[CompiledGraph] = WeakSet()
        self._winner: Device | None = None
        self._lock = ForkLock()
        self._closed = False
        self.attempts: tuple[Attempt, ...] = ()
        self.last_device: Device | None = None

    @classmethod
    def with_policy(cls, graph: Graph, policy: DevicePolicy) -> Self:
        """RLX's name for the constructor with a policy."""
        return cls(graph, policy)

    @classmethod
    def from_env(cls, graph: Graph) -> Self:
        """Use the policy that the RLX_ variables describe."""
        return cls(graph, DevicePolicy.from_env())

    def explain(self) -> str:
        """Describe the last decision with every candidate, then the last attempts."""
        lines = [text for text in (super().explain(),) if text]
        if self.attempts:
            lines += ["attempts:", *(f"  {a}" for a in self.attempts)]
        return "\n".join(lines)

    # --- params and compiled graphs ---------------------------------------------------

    @also(data="value")
    def set_param(self, name: str, value: Any) -> None:
        """Store a param's value and hand it to every device compiled so far.

        A DeviceArray reaches its own device and no other; compiling for another one
        is refused then.

        Errors   UnknownName, DTypeError, ShapeError; RLX ignores an unknown name.
        """
        doing = f"set_param of '{self._graph.name}'"
        array = as_input(doing, self._param(doing, name), value)
        if not isinstance(array, DeviceArray):
            array = array.copy()
            array.flags.writeable = False  # so that no device need copy it again
        with self._lock:
            self._check_open(doing)
            self._check_reaches(f"{doing}, param '{name}'", array)
            self._params[name] = array
            for compiled in self._compiled.made.values():
                compiled.set_param(name, array)

    def _check_reaches(self, doing: str, array: Array | DeviceArray) -> None:
        """Errors  InputError for a DeviceArray if other devices were compiled for."""
        if not isinstance(array, DeviceArray):
            return
        for device, _ in self._compiled.made:
            if device is not None and device is not array.device:
                raise InputError(
                    doing,
                    f"the array lies on device {array.device.label!r}, {array.engine}",
                    f"the graph is compiled for {device.label!r} too",
                    "pass x.numpy(), or use GraphDevices of that device alone",
                )

    @also(data="value")
    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """`set_param` of raw bytes or of anything array-like, read as `dtype`.

        See `CompiledGraph.set_param_typed`.
        """
        doing = f"set_param_typed of '{self._graph.name}'"
        self.set_param(name, as_typed(doing, self._param(doing, name), value, dtype))

    def _param(self, doing: str, name: str) -> Node:
        return param_named(doing, self._graph.named("param"), name)

    def sync_params_to_all(self) -> None:
        """Hand every stored param to every compiled device once more."""
        with self._lock:
            for compiled in self._compiled.made.values():
                for name, array in self._params.items():
                    compiled.set_param(name, array)

    def compile(self, device: DeviceLike) -> CompiledGraph:
        """Compile for a device, once, with every param set so far.

        device   "auto" is `resolve()`
        Errors   Unsupported when the device is missing or cannot run the graph, and
        those of compiling.
        """
        return self._compiled_for(
            self.resolve() if is_open(device) else parse_device(device)
        )

    def _compiled_for(self, which: Device) -> CompiledGraph:
        self._check_viable(which)
        adapter, doing = self.adapter_of(which), f"compile '{self._graph.name}'"
        with self._lock:
            self._check_open(doing)
            compiled = self._compiled.find(which, adapter)
            if compiled is None:
                params = self._params.items()
                compiled = drive(self._compiled.on(which, adapter, params, doing))
            return compiled

    def compile_fastest(self) -> CompiledGraph:
        """Compile for the fastest device; the `device` of the result says which."""
        return self.compile(self.fastest())

    @formerly(hint="device")
    def compile_resolved(self, device: DeviceLike | None = None) -> CompiledGraph:
        """Compile for `resolve(device)`."""
        return self.compile(self.resolve(device))

    @formerly(hint="device", chain="device")
    def compile_chain(
        self, device: DeviceLike | Sequence[DeviceLike] | None = None
    ) -> CompiledGraph:
        """Compile for `resolve_chain(device)`."""
        return self.compile(self.resolve_chain(device))

    @device_first
    def compile_resolved_with_inputs(
        self, device: DeviceLike | None = None, inputs: Inputs | None = None
    ) -> CompiledGraph:
        """Compile for `resolve_with_inputs`."""
        return self.compile(self.resolve_with_inputs(device, inputs))

    def warm_all(self) -> tuple[Device, ...]:
        """Compile for every device and return them; the first error ends it."""
        for device in self._supported:
            self.compile(device)
        return self._supported

    def invalidate_cache(self) -> None:
        """Forget compiled graphs and the winner, and look for devices again.

        Params are kept.
        """
        with self._lock:
            self._compiled.clear()
        self._winner = None
        self._find_devices()

    def set_policy(self, policy: DevicePolicy) -> None:
        """Use another policy; what was resolved under the old one is forgotten."""
        self._policy = policy_of(policy)
        self.decision = None
        self.invalidate_cache()

    def close(self) -> None:
        """Free what was compiled; nothing runs any more. Idempotent."""
        with self._lock:
            self._closed = True
            self._compiled.close()

    def _check_open(self, doing: str) -> None:
        if self._closed:
            raise SessionClosed(
                doing,
                "these devices were closed",
                hint="make a new GraphDevices, or a new DeviceRouter if it was one",
            )

    # --- where runs go ----------------------------------------------------------------

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
            return self._resolve_for(device, inputs)
        named = self._named_by_environment()
        if named is not None:
            return named
        if self._winner is None:
            rows = self.benchmark({} if inputs is None else inputs, pick.runs)
            timed = [row.device for row in rows if not row.error]
            self._winner = timed[0] if timed else self.fastest()
        self.decision = Decision(
            f"device {self._winner.label}", "it won the benchmark of this graph"
        )
        return self._winner

    def _resolve_for(self, device: DeviceLike | None, inputs: Inputs | None) -> Device:
        """`resolve`, priced for the sizes of the inputs."""
        graph = self._sized(inputs) if device is None else self._graph
        return self._resolve(graph, device)

    def _sized(self, inputs: Inputs | None) -> Graph:
        """Return the graph of the inputs' sizes, if its sizes vary.

        Errors   those of the inputs, where sizes vary.
        """
        if not self._graph.dims:
            return self._graph
        return self._bind(tuple(check_inputs(self._graph, inputs).items()))

    def _holder_of_data(self, device: object, inputs: Inputs | None) -> Device | None:
        """Return the device that holds an input or a param, unless one was named."""
        arrays = {} if device is not None else self._device_arrays(inputs)
        if not arrays:
            return None
        what, array = next(iter(arrays.items()))
        which, why = array.device, f"{what} lies there"
        self._check_viable(which)
        names = lying_on(inputs, which)
        if not names:  # params have no price
            self.decision = Decision(f"device {which.label}", why)
            return which
        job = GraphJob(self._graph, cost_mode=self._cost_mode, there=names)
        return self._decided(choose(job, Asked(which, self.adapter_of(which), why=why)))

    def _device_arrays(self, inputs: Inputs | None) -> dict[str, DeviceArray]:
        """Return the DeviceArrays of a run, by "input 'x'" or "param 'w'"."""
        fed = {f"input '{name}'": x for name, x in lying(inputs).items()}
        return fed | {f"param '{name}'": x for name, x in lying(self._params).items()}

    # --- runs -------------------------------------------------------------------------

    def benchmark(self, inputs: Inputs, runs: int = 3) -> list[DeviceBenchResult]:
        """Time the graph on every device, fastest first; failed ones last.

        runs     timed runs, at least 1

        Compiled graphs are kept. One run of each is not counted.
        Errors   UsageError, and those of the inputs, before anything is timed.
        """
        self._check_feeds(inputs)
        runs = timed_runs(runs, f"benchmark of '{self._graph.name}'")
        about = inputs, runs, self._clock
        rows = time_devices(self._supported, self.compile, *about)
        failed = [row.device for row in rows if row.error]
        with self._lock:
            for (device, _), compiled in list(self._compiled.made.items()):
                if device in failed:  # it may be lost; the next use compiles again
                    self._compiled.drop(compiled)
        return rows

    @device_first
    def run(
        self,
        device: DeviceLike,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """Compute the outputs on one device and no other.

        A run that is lost with its device is repeated there, on the device opened
        again; `attempts` says so.

        device   "auto" leaves it open, as in `run_resolved`
        strict   such a run raises
        keep     which outputs stay there, as in `CompiledGraph.run`
        Errors   those of `compile` and of `CompiledGraph.run`.
        """
        if is_open(device):
            return self.run_resolved(None, inputs, strict=strict, keep=keep)
        return self._run_or_retry(parse_device(device), (), inputs, strict, keep)

    @device_first
    def run_resolved(
        self,
        device: DeviceLike | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """Compute the outputs on `resolve(device)`; `last_device` says which.

        If no device was named, it is the one that holds DeviceArrays among the inputs
        or params, and a run that is lost goes on to the next one.
        """
        first = self._holder_of_data(device, inputs)
        first = first or self._resolve_for(device, inputs)
        return self._run_or_retry(first, self._others, inputs, strict, keep)

    def run_fastest(
        self,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """Compute the outputs on the device predicted fastest; else as above."""
        first = self._holder_of_data(None, inputs)
        first = first or self._fastest(self._sized(inputs))
        return self._run_or_retry(first, self._others, inputs, strict, keep)

    @device_first
    def run_resolved_with_inputs(
        self,
        device: DeviceLike | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """Compute the outputs on `resolve_with_inputs`; else as above."""
        first = self._holder_of_data(device, inputs)
        first = first or self.resolve_with_inputs(device, inputs)
        return self._run_or_retry(first, self._others, inputs, strict, keep)

    @property
    def _others(self) -> Sequence[Candidate]:
        """The candidates of the last decision; none if it named its device."""
        known = () if self.decision is None else self.decision.candidates
        return [one for one in known if one.device in self._supported]

    def _run_or_retry(
        self,
        device: Device,
        others: Sequence[Candidate],
        inputs: Inputs | None,
        strict: bool,
        keep: Keep,
    ) -> list[Any]:
        """Run on a device; if it is lost, there again, then on the others."""
        feeds = {} if inputs is None else inputs
        strict = switch("strict", strict, f"run of '{self._graph.name}'")
        self.attempts = ()
        try:
            outs = self._run_on(device, feeds, keep)
        except LOST as error:
            if strict:
                raise
            if gone := self._device_arrays(feeds):
                raise gone_with(error, tuple(gone)) from error

            async def run(way: Candidate) -> list[Any]:
                return self._run_on(way.device, feeds, keep)

            lost = Candidate(device, device.label, adapter=self.adapter_of(device))
            outs, _, self.attempts = drive(done_again(error, lost, others, run))
        else:
            self.attempts = (Attempt(device, ""),)
        return outs

    def _run_on(self, device: Device, inputs: Inputs, keep: Keep) -> list[Any]:
        """Run once. What was compiled for a lost device is dropped."""
        compiled = self._compiled_for(device)
        is_warm, misses = compiled in self._warm, self._misses(compiled)
        begun = self._clock()
        try:
            outs = compiled.run(inputs, strict=True, keep=keep)
        except LOST:
            with self._lock:  # nobody is handing a param over
                self._compiled.drop(compiled)
            self._winner = None if self._winner is device else self._winner
            raise
        took = self._clock() - begun
        if not is_warm:
            self._warm.add(compiled)
        elif keep is False and self._pick and misses == self._misses(compiled):
            # Only warm runs whose results come back correct the prediction.
            self._pick.observe(took, device)
        self.last_device = device
        return outs

    def _misses(self, compiled: CompiledGraph) -> int:
        """Return how many sizes were prepared so far."""
        return compiled.cache_info().misses if self._graph.dims else 0

    @device_first
    def run_try(
        self,
        device: DeviceLike | Sequence[DeviceLike],
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> tuple[Device, list[Any]]:
        """Return (device, outputs) of the first device of a chain that succeeds.

        What failed before it is in `attempts`. A device that is lost or late is opened
        again and tried once more; one that fails in any other way is passed over. Wrong
        inputs raise at once, as they would fail everywhere.

        device   the chain: a list of devices, or one; "auto" as in `run_chain`
        strict   the first device must do it, at the first try
        Errors   DeviceFallbackError with every attempt; those of the inputs.
        """
        doing = f"run_try of '{self._graph.name}'"
        if is_open(device):
            chain = self._open_chain(doing, inputs)
        else:
            chain = devices_named(device)
        return self._run_along(doing, chain, inputs, strict, keep)

    def _run_along(
        self,
        doing: str,
        chain: Sequence[Device],
        inputs: Inputs | None,
        strict: bool,
        keep: Keep,
    ) -> tuple[Device, list[Any]]:
        """Run on the first device of a chain that succeeds; see `run_try`."""
        feeds = {} if inputs is None else inputs
        strict = switch("strict", strict, doing)
        self._check_feeds(feeds)
        attempts: list[Attempt] = []

        def run(device: Device) -> list[Any]:
            try:
                return self._run_on(device, feeds, keep)
            except LOST as error:
                if strict:
                    raise
                attempts.append(Attempt(device, str(error), error))
                return self._run_on(device, feeds, keep)

        try:
            viable = self._viable(chain)
            why = self._why_refused
            return first_success(doing, chain, viable, run, attempts, strict, why)
        finally:
            self.attempts = tuple(attempts)

    def _check_feeds(self, inputs: Inputs) -> None:
        """Check what would be wrong on every device.

        Errors   InputError and its kin; SessionClosed.
        """
        doing = f"run '{self._graph.name}'"
        self._check_open(doing)
        check_inputs(self._graph, inputs)
        params = graph_param_names(self._graph)
        check_params_set(doing, params, set(params) - self._params.keys())

    @device_first
    def run_chain(
        self,
        device: DeviceLike | Sequence[DeviceLike] | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> tuple[Device, list[Any]]:
        """Return (device, outputs) of the first device that succeeds, along a chain.

        1. Several devices asked for: those, in order.
        2. One: that one, and where it can run the graph but fails at it, the others in
           the policy's order. What it cannot run at all is refused.
        3. None: the device that holds DeviceArrays among the inputs or params; without
           those RLX_DEVICE_CHAIN; without that the fastest by prediction, then the
           others in the policy's order.

        The others are more than RLX does: there a chain without a list is one device.
        `strict=True` gives that, and `run` a device that is never swapped.

        strict   the first device must do it
        Errors   DeviceFallbackError with every attempt; those of the inputs.
        """
        doing = f"run_chain of '{self._graph.name}'"
        if device is None:
            chain = self._open_chain(doing, inputs)
        else:
            chain = devices_named(device)
            is_one = isinstance(device, str) and len(chain) == 1
            if is_one and chain[0] in self._viable(chain):
                chain = self._with_others(chain[0])
        return self._run_along(doing, chain, inputs, strict, keep)

    def _open_chain(self, doing: str, inputs: Inputs | None) -> Sequence[Device]:
        """Return the devices to try if none was named: see 3 of `run_chain`."""
        holder = self._holder_of_data(None, inputs)
        if holder is not None:
            return (holder,)
        return device_chain_from_env() or self._predicted_chain(doing, inputs)

    def _with_others(self, first: Device) -> tuple[Device, ...]:
        return (first, *(d for d in self._supported if d is not first))

    def _predicted_chain(self, doing: str, inputs: Inputs | None) -> tuple[Device, ...]:
        """Return the resolved device, then the others, unless one is forced.

        Errors   DeviceFallbackError when nothing can run the graph.
        """
        forced = forced_device_from_env()
        try:
            first = self._resolve_for(None, inputs)
        except (AdapterMissing, Unsupported) as error:
            if forced is not None:
                tried = [(forced, str(error))]
            else:
                every = self._policy.candidates
                tried = [(d, self._why_refused(d) or str(error)) for d in every]
            self.attempts = tuple(Attempt(d, why, error) for d, why in tried)
            raise DeviceFallbackError(doing, tried, str(error)) from error
        return (first,) if forced else self._with_others(first)

    def map(
        self,
        batches: Iterable[Mapping[str, Any]],
        take: Callable[[list[Any]], object] | None = None,
        device: DeviceLike | None = None,
    ) -> list[list[Any]]:
        """Compute the outputs of every batch, in order, on `resolve(device)`.

        As `CompiledGraph.map`: a GPU gets the next batch while it computes.
        """
        return self.compile_resolved(device).map(batches, take)
