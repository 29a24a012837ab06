"""GraphDevices: one graph, compiled once per device and run on any of them.

Thin over `Session`, which compiles, and `rlxweb.select`, which decides: here are the
params that reach every device, and the order in which devices are tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Self
from weakref import WeakSet

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.device import (
    Adapters,
    Device,
    DeviceLike,
    is_auto,
    parse_device,
    parse_devices,
)
from rlxweb.core.errors import (
    AdapterMissing,
    DeviceFallbackError,
    InputError,
    SessionClosed,
    Unsupported,
)
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.lazy_names import accept_deprecated_keywords, alias_keywords
from rlxweb.cost.decision import Attempt, Candidate, Decision
from rlxweb.engines.protocol import Array
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.verify import require_graph
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.device_argument_order import Inputs, device_first
from rlxweb.runtime.device_array import DeviceArray, Keep
from rlxweb.runtime.device_benchmark import (
    DeviceBenchResult,
    check_run_count,
    time_devices,
)
from rlxweb.runtime.device_graph_cache import DeviceGraphCache
from rlxweb.runtime.device_resolver import DeviceResolver
from rlxweb.runtime.dynamic_shape_graph_cache import MAX_BOUND_GRAPHS
from rlxweb.runtime.input_validation import (
    check_params_set,
    find_param,
    infer_dim_sizes_from_inputs,
    input_names_on,
    select_device_arrays,
    validate_array,
)
from rlxweb.runtime.typed_bytes import decode_typed
from rlxweb.select.calibration.stopwatch import Clock
from rlxweb.select.chooser import PlaceRequest, choose_place
from rlxweb.select.device_loss_retry import DEVICE_LOST, lost_data_error, retry_run
from rlxweb.select.fallback import first_success
from rlxweb.select.graph_job import GraphJob
from rlxweb.select.policy import (
    BenchmarkPick,
    DevicePolicy,
    check_policy,
    device_chain_from_env,
    forced_device_from_env,
)


def graph_param_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of a graph's params, in node order."""
    require_graph(graph)
    return tuple(graph.named("param"))


class GraphDevices(DeviceResolver):
    """Graph and the devices it may run on. Threads may share it.

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
        self._bind_cached = lru_cache(MAX_BOUND_GRAPHS)(lambda sizes: bind(dict(sizes)))
        self._clock = clock
        self._compiled_graphs = DeviceGraphCache(self._graph, cost_mode)
        self._params: dict[str, Array | DeviceArray] = {}
        self._warm_graphs: WeakSet[CompiledGraph] = WeakSet()
        self._benchmark_winner: Device | None = None
        self._lock = ForkSafeLock()
        self._closed = False
        self.attempts: tuple[Attempt, ...] = ()
        self.last_device: Device | None = None

    @classmethod
    def with_policy(cls, graph: Graph, policy: DevicePolicy) -> Self:
        """Construct with a policy; RLX's name for it."""
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

    @alias_keywords(data="value")
    def set_param(self, name: str, value: Any) -> None:
        """Store a param's value and hand it to every device compiled so far.

        A DeviceArray reaches its own device and no other; compiling for another one
        is refused then.

        Errors   UnknownName, DTypeError, ShapeError; RLX ignores an unknown name.
        """
        context = f"set_param of '{self._graph.name}'"
        array = validate_array(context, self._find_param(context, name), value)
        if not isinstance(array, DeviceArray):
            array = array.copy()
            array.flags.writeable = False  # so that no device need copy it again
        with self._lock:
            self._check_open(context)
            self._check_device_array_usable(f"{context}, param '{name}'", array)
            self._params[name] = array
            for compiled in self._compiled_graphs.compiled_graphs.values():
                compiled.set_param(name, array)

    def _check_device_array_usable(
        self, context: str, array: Array | DeviceArray
    ) -> None:
        """Raise InputError for a DeviceArray if the graph is compiled for other devices
        too.
        """
        if not isinstance(array, DeviceArray):
            return
        for device, _ in self._compiled_graphs.compiled_graphs:
            if device is not None and device is not array.device:
                raise InputError(
                    context,
                    f"the array is on device {array.device.label!r}, {array.engine}",
                    f"the graph is also compiled for {device.label!r}, which cannot "
                    "use the array",
                    f"pass x.numpy(), or allow only {array.device.label!r} in "
                    "GraphDevices",
                )

    @alias_keywords(data="value")
    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """Set a param from raw bytes or from anything array-like, read as `dtype`.

        See `CompiledGraph.set_param_typed`.
        """
        context = f"set_param_typed of '{self._graph.name}'"
        self.set_param(
            name, decode_typed(context, self._find_param(context, name), value, dtype)
        )

    def _find_param(self, context: str, name: str) -> Node:
        """Return the param of that name; raises UnknownName."""
        return find_param(context, self._graph.named("param"), name)

    def sync_params_to_all(self) -> None:
        """Hand every stored param to every compiled device once more."""
        with self._lock:
            for compiled in self._compiled_graphs.compiled_graphs.values():
                for name, array in self._params.items():
                    compiled.set_param(name, array)

    def compile(self, device: DeviceLike) -> CompiledGraph:
        """Compile for a device, once, with every param set so far.

        device   "auto" is `resolve()`
        Errors   Unsupported when the device is missing or cannot run the graph, and
        those of compiling.
        """
        return self._get_or_compile(
            self.resolve() if is_auto(device) else parse_device(device)
        )

    def _get_or_compile(self, device: Device) -> CompiledGraph:
        """Return the graph compiled for a device, compiling it unless it is."""
        self._check_usable(device)
        adapter, context = self.adapter_of(device), f"compile '{self._graph.name}'"
        with self._lock:
            self._check_open(context)
            compiled = self._compiled_graphs.find(device, adapter)
            if compiled is None:
                params = self._params.items()
                compiled = run_blocking(
                    self._compiled_graphs.get_or_compile(
                        device, adapter, params, context
                    )
                )
            return compiled

    def compile_fastest(self) -> CompiledGraph:
        """Compile for the fastest device; the `device` of the result says which."""
        return self.compile(self.fastest())

    @accept_deprecated_keywords(hint="device")
    def compile_resolved(self, device: DeviceLike | None = None) -> CompiledGraph:
        """Compile for `resolve(device)`."""
        return self.compile(self.resolve(device))

    @accept_deprecated_keywords(hint="device", chain="device")
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
            self._compiled_graphs.clear()
        self._benchmark_winner = None
        self._find_devices()

    def set_policy(self, policy: DevicePolicy) -> None:
        """Use another policy; what was resolved under the old one is forgotten."""
        self._policy = check_policy(policy)
        self.decision = None
        self.invalidate_cache()

    def close(self) -> None:
        """Free what was compiled; nothing runs any more. Idempotent."""
        with self._lock:
            self._closed = True
            self._compiled_graphs.close()

    def _check_open(self, context: str) -> None:
        """Raise SessionClosed if this was closed."""
        if self._closed:
            raise SessionClosed(
                context,
                "the devices of this graph were closed",
                hint="create a new GraphDevices or a new DeviceRouter",
            )

    # --- where runs go ----------------------------------------------------------------

    @device_first
    def resolve_with_inputs(
        self, device: DeviceLike | None = None, inputs: Inputs | None = None
    ) -> Device:
        """Resolve a device as `resolve` does; under `with_benchmark_pick` the fastest
        is found by running.

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
            return self._resolve_for_inputs(device, inputs)
        environment_device = self._environment_device()
        if environment_device is not None:
            return environment_device
        if self._benchmark_winner is None:
            rows = self.benchmark({} if inputs is None else inputs, pick.runs)
            timed = [row.device for row in rows if not row.error]
            self._benchmark_winner = timed[0] if timed else self.fastest()
        self.decision = Decision(
            f"device {self._benchmark_winner.label}",
            "it was the fastest in the benchmark of this graph",
        )
        return self._benchmark_winner

    def _resolve_for_inputs(
        self, device: DeviceLike | None, inputs: Inputs | None
    ) -> Device:
        """Resolve a device, predicting run times for the sizes of the inputs."""
        graph = self._bound_graph(inputs) if device is None else self._graph
        return self._resolve_graph(graph, device)

    def _bound_graph(self, inputs: Inputs | None) -> Graph:
        """Return the graph bound to the inputs' sizes, if it has dims.

        Errors   those of the inputs, where sizes vary.
        """
        if not self._graph.dims:
            return self._graph
        return self._bind_cached(
            tuple(infer_dim_sizes_from_inputs(self._graph, inputs).items())
        )

    def _data_device(self, device: object, inputs: Inputs | None) -> Device | None:
        """Return the device that holds an input or a param, unless a device was
        named.
        """
        arrays = {} if device is not None else self._device_arrays(inputs)
        if not arrays:
            return None
        label, array = next(iter(arrays.items()))
        holder, reason = array.device, f"{label} is already on this device"
        self._check_usable(holder)
        names = input_names_on(inputs, holder)
        if not names:  # params have no price
            self.decision = Decision(f"device {holder.label}", reason)
            return holder
        job = GraphJob(self._graph, cost_mode=self._cost_mode, on_device=names)
        return self._record_pick(
            choose_place(job, PlaceRequest(holder, self.adapter_of(holder), why=reason))
        )

    def _device_arrays(self, inputs: Inputs | None) -> dict[str, DeviceArray]:
        """Return the DeviceArrays of a run, keyed by "input 'x'" or "param 'w'"."""
        input_arrays = {
            f"input '{name}'": x for name, x in select_device_arrays(inputs).items()
        }
        return input_arrays | {
            f"param '{name}'": x
            for name, x in select_device_arrays(self._params).items()
        }

    # --- runs -------------------------------------------------------------------------

    def benchmark(self, inputs: Inputs, runs: int = 3) -> list[DeviceBenchResult]:
        """Time the graph on every device, fastest first; failed ones last.

        runs     timed runs, at least 1

        Compiled graphs are kept. One run of each is not counted.
        Errors   UsageError, and those of the inputs, before anything is timed.
        """
        self._check_run(inputs)
        runs = check_run_count(runs, f"benchmark of '{self._graph.name}'")
        arguments = inputs, runs, self._clock
        rows = time_devices(self._supported, self.compile, *arguments)
        failed = [row.device for row in rows if row.error]
        with self._lock:
            for (device, _), compiled in list(
                self._compiled_graphs.compiled_graphs.items()
            ):
                if device in failed:  # it may be lost; the next use compiles again
                    self._compiled_graphs.drop(compiled)
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
        if is_auto(device):
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
        first = self._data_device(device, inputs)
        first = first or self._resolve_for_inputs(device, inputs)
        return self._run_or_retry(first, self._other_candidates, inputs, strict, keep)

    def run_fastest(
        self,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """Compute the outputs on the device predicted fastest; otherwise like
        `run_resolved`.
        """
        first = self._data_device(None, inputs)
        first = first or self._predict_fastest(self._bound_graph(inputs))
        return self._run_or_retry(first, self._other_candidates, inputs, strict, keep)

    @device_first
    def run_resolved_with_inputs(
        self,
        device: DeviceLike | None = None,
        inputs: Inputs | None = None,
        *,
        strict: bool = False,
        keep: Keep = False,
    ) -> list[Any]:
        """Compute the outputs on `resolve_with_inputs(device, inputs)`; otherwise like
        `run_resolved`.
        """
        first = self._data_device(device, inputs)
        first = first or self.resolve_with_inputs(device, inputs)
        return self._run_or_retry(first, self._other_candidates, inputs, strict, keep)

    @property
    def _other_candidates(self) -> Sequence[Candidate]:
        """Candidates of the last decision; empty if it named its device."""
        candidates = () if self.decision is None else self.decision.candidates
        return [
            candidate for candidate in candidates if candidate.device in self._supported
        ]

    def _run_or_retry(
        self,
        device: Device,
        others: Sequence[Candidate],
        inputs: Inputs | None,
        strict: bool,
        keep: Keep,
    ) -> list[Any]:
        """Run on a device; if it is lost, retry on the same device, then on the
        others.
        """
        feeds = {} if inputs is None else inputs
        strict = coerce_bool("strict", strict, f"run of '{self._graph.name}'")
        self.attempts = ()
        try:
            outputs = self._run_once(device, feeds, keep)
        except DEVICE_LOST as error:
            if strict:
                raise
            if lost_arrays := self._device_arrays(feeds):
                raise lost_data_error(error, tuple(lost_arrays)) from error

            async def run(candidate: Candidate) -> list[Any]:
                return self._run_once(candidate.device, feeds, keep)

            lost_candidate = Candidate(
                device, device.label, adapter=self.adapter_of(device)
            )
            outputs, _, self.attempts = run_blocking(
                retry_run(error, lost_candidate, others, run)
            )
        else:
            self.attempts = (Attempt(device, ""),)
        return outputs

    def _run_once(self, device: Device, inputs: Inputs, keep: Keep) -> list[Any]:
        """Run once on a device; drop what was compiled for a lost device."""
        compiled = self._get_or_compile(device)
        is_warm, misses = compiled in self._warm_graphs, self._miss_count(compiled)
        started_ns = self._clock()
        try:
            outputs = compiled.run(inputs, strict=True, keep=keep)
        except DEVICE_LOST:
            with self._lock:  # nobody is handing a param over
                self._compiled_graphs.drop(compiled)
            self._benchmark_winner = (
                None if self._benchmark_winner is device else self._benchmark_winner
            )
            raise
        elapsed_ns = self._clock() - started_ns
        if not is_warm:
            self._warm_graphs.add(compiled)
        elif keep is False and self._pick and misses == self._miss_count(compiled):
            # Only warm runs whose results come back correct the prediction.
            self._pick.observe(elapsed_ns, device)
        self.last_device = device
        return outputs

    def _miss_count(self, compiled: CompiledGraph) -> int:
        """Return how many bindings were compiled so far."""
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
        context = f"run_try of '{self._graph.name}'"
        if is_auto(device):
            chain = self._default_chain(context, inputs)
        else:
            chain = parse_devices(device)
        return self._run_first_success(context, chain, inputs, strict, keep)

    def _run_first_success(
        self,
        context: str,
        chain: Sequence[Device],
        inputs: Inputs | None,
        strict: bool,
        keep: Keep,
    ) -> tuple[Device, list[Any]]:
        """Run on the first device of a chain that succeeds; see `run_try`."""
        feeds = {} if inputs is None else inputs
        strict = coerce_bool("strict", strict, context)
        self._check_run(feeds)
        attempts: list[Attempt] = []

        def run(device: Device) -> list[Any]:
            try:
                return self._run_once(device, feeds, keep)
            except DEVICE_LOST as error:
                if strict:
                    raise
                attempts.append(Attempt(device, str(error), error))
                return self._run_once(device, feeds, keep)

        try:
            usable = self._usable_devices(chain)
            refusal_reason = self._refusal_reason
            return first_success(
                context, chain, usable, run, attempts, strict, refusal_reason
            )
        finally:
            self.attempts = tuple(attempts)

    def _check_run(self, inputs: Inputs) -> None:
        """Check what would be wrong on every device.

        Errors   InputError and its kin; SessionClosed.
        """
        context = f"run '{self._graph.name}'"
        self._check_open(context)
        infer_dim_sizes_from_inputs(self._graph, inputs)
        params = graph_param_names(self._graph)
        check_params_set(context, params, set(params) - self._params.keys())

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
        context = f"run_chain of '{self._graph.name}'"
        if device is None:
            chain = self._default_chain(context, inputs)
        else:
            chain = parse_devices(device)
            is_one = isinstance(device, str) and len(chain) == 1
            if is_one and chain[0] in self._usable_devices(chain):
                chain = self._chain_from(chain[0])
        return self._run_first_success(context, chain, inputs, strict, keep)

    def _default_chain(self, context: str, inputs: Inputs | None) -> Sequence[Device]:
        """Return the devices to try if none was named: see 3 of `run_chain`."""
        holder = self._data_device(None, inputs)
        if holder is not None:
            return (holder,)
        return device_chain_from_env() or self._predicted_chain(context, inputs)

    def _chain_from(self, first: Device) -> tuple[Device, ...]:
        """Return a chain of this device and then the other supported ones."""
        return (first, *(d for d in self._supported if d is not first))

    def _predicted_chain(
        self, context: str, inputs: Inputs | None
    ) -> tuple[Device, ...]:
        """Return the resolved device, then the others, unless one is forced by the
        environment.

        Errors   DeviceFallbackError when nothing can run the graph.
        """
        forced = forced_device_from_env()
        try:
            first = self._resolve_for_inputs(None, inputs)
        except (AdapterMissing, Unsupported) as error:
            if forced is not None:
                failures = [(forced, str(error))]
            else:
                candidates = self._policy.candidates
                failures = [
                    (d, self._refusal_reason(d) or str(error)) for d in candidates
                ]
            self.attempts = tuple(Attempt(d, reason, error) for d, reason in failures)
            raise DeviceFallbackError(context, failures, str(error)) from error
        return (first,) if forced else self._chain_from(first)

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
