"""CompiledGraph: a graph on one device, run many times.

The core is one coroutine; `run` drives it to its end without an event loop, `run_async`
hands it to the caller's. Nothing else is doubled.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, overload

from rlxweb.compiler.plan import Plan
from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.array_coercion import add_readback_hint
from rlxweb.core.device import Device
from rlxweb.core.errors import DTypeError, RlxError, Unsupported
from rlxweb.core.lazy_names import alias_keywords
from rlxweb.cost.decision import Attempt, Decision, explain_decision
from rlxweb.engines.protocol import Array, DeviceBuffer, check_outputs, output_types
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.graph import Graph
from rlxweb.runtime.batch_map_mixin import MapMixin
from rlxweb.runtime.bind_dims_mixin import BindMixin
from rlxweb.runtime.device_array import DeviceArray, Keep, keep_mask, put_on_engine
from rlxweb.runtime.engine_program_and_params import (
    GraphPlacement,
    PreparedGraph,
    SharedProgramLookup,
)
from rlxweb.runtime.export_mixin import ExportMixin
from rlxweb.runtime.input_validation import (
    Feeds,
    find_param,
    select_device_arrays,
    validate_array,
    validate_feeds,
)
from rlxweb.runtime.profile_mixin import ProfileMixin
from rlxweb.runtime.typed_bytes import (
    TypedBytes,
    decode_feeds,
    decode_typed,
    encode_typed,
)
from rlxweb.select.chooser import DevicePick
from rlxweb.select.device_loss_retry import DEVICE_LOST
from rlxweb.select.graph_job import GraphJob

if TYPE_CHECKING:
    from rlxweb.runtime.profile import Profile
    from rlxweb.runtime.session import Session


class CompiledGraph(BindMixin, MapMixin, ProfileMixin, ExportMixin):
    """Graph ready to run on one device, made by `Session.compile`.

    Threads and tasks may share it: they take turns where the device needs that.

    decisions  where it runs and why, then what the compiler decided
    """

    def __init__(
        self,
        pick: DevicePick[GraphJob],
        ready: PreparedGraph,
        session: Session,
        beside: SharedProgramLookup | None = None,
    ) -> None:
        self._job = pick.job
        self._pick = pick
        self._session = session
        self._input_nodes = self._job.graph.named("input")
        self._param_nodes = self._job.graph.named("param")
        self._placement = GraphPlacement(
            pick, ready, self._param_nodes, session, beside
        )

    @property
    def graph(self) -> Graph:
        """A copy of the graph that was compiled."""
        return self._job.graph.copy()

    @property
    def device(self) -> Device:
        """Device that the graph runs on."""
        return self._placement.prepared.candidate.device

    @property
    def engine(self) -> str:
        """Name of the engine that computes: "NumPy 2.4", "llvmpipe (vulkan)"."""
        return self._placement.prepared.engine.name

    @property
    def plan(self) -> Plan:
        """Execution plan of the compiled program."""
        return self._placement.prepared.program.plan

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the program holds."""
        return self._placement.prepared.program.nbytes

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Choice of the device, if there was one, then the compiler's decisions."""
        is_device_chosen = (
            self._session.device is None or self._placement.decision.attempts
        )
        device_decisions = (self._placement.decision,) if is_device_chosen else ()
        return device_decisions + self.plan.decisions

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Attempts at a run that was lost with its device, in order; empty if none was
        lost.
        """
        return self._placement.decision.attempts

    @alias_keywords(data="value")
    def set_param(self, name: str, value: Any) -> None:
        """Give a param its value, kept for all later runs.

        A DeviceArray is handed over where it lies: state that one run leaves is the
        next one's, and nothing of it is read back. No other copy of it is kept.

        Errors   UnknownName, DTypeError, ShapeError; InputError if it lies elsewhere.
        """
        run_blocking(self.param_set(name, value))

    @alias_keywords(data="value")
    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """Set a param from raw bytes or from anything array-like, read as `dtype`.

        dtype   RLX's name ("f32"), a DType or a NumPy dtype; the declared one when left
                out. Bytes are in C order, little-endian unless a NumPy dtype says big.
                Values of another dtype are converted to the declared one: rounded into
                floats, and into integers and bool only where no value changes.
        Errors  UnknownName; ShapeError for bytes of another length than declared;
                DTypeError for values that the declared dtype cannot hold.
        """
        context = f"set_param_typed of '{self._job.graph.name}'"
        node = find_param(context, self._param_nodes, name)
        self.set_param(name, decode_typed(context, node, value, dtype))

    @alias_keywords(data="value")
    async def set_param_async(self, name: str, value: Any) -> None:
        """Set a param without blocking the caller's event loop; see `set_param`."""
        await await_or_offload(lambda: self.param_set(name, value))

    async def param_set(self, name: str, value: Any) -> None:
        """Set a param; the coroutine behind `set_param` and `set_param_async`. It never
        suspends on a desktop.
        """
        context = f"set_param of '{self._job.graph.name}'"
        self._placement.check_open(context)
        array = validate_array(
            context, find_param(context, self._param_nodes, name), value
        )
        placement = self._placement
        async with placement.lock:
            if isinstance(array, DeviceArray):
                prepared = await placement.ensure_prepared()
                buffer = array.lying_on(prepared.engine, f"{context}, param '{name}'")
                await placement.set_param_buffer(name, buffer)
            else:
                await placement.set_param_array(name, array)

    def params(self) -> dict[str, Array]:
        """Return every param that has a value, by name; raises the device's errors."""
        self._placement.check_open(f"params of '{self._job.graph.name}'")
        return run_blocking(self._placement.param_values())

    def put(self, x: Any) -> DeviceArray:
        """Copy an array to the device this graph runs on, for `run` and `set_param` to
        take.

        Errors   those of `rlxweb.put`.
        """
        self._placement.check_open(f"put an array for '{self._job.graph.name}'")
        candidate = self._placement.prepared.candidate
        engine = self._placement.prepared.engine
        return run_blocking(
            put_on_engine(engine, x, candidate.device, candidate.adapter)
        )

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run with arrays in the order in which the inputs were declared, or by name.

        returns  the output's array; of several outputs a tuple of them
        Errors   TypeError for more arrays than inputs, and for one given twice; those
        of `run`
        """
        names, context = list(self._input_nodes), f"'{self._job.graph.name}'"
        if len(arrays) > len(names):
            plural = "s" * (len(names) != 1)
            counts_text = f"{len(names)} input{plural}, got {len(arrays)} arrays"
            raise TypeError(f"{context} takes at most {counts_text}")
        inputs = dict(zip(names, arrays, strict=False))
        for name, array in named.items():
            if name in inputs:
                raise TypeError(f"{context} got input '{name}' twice")
            inputs[name] = array
        outputs = run_blocking(self.computed(inputs))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @overload
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Literal[False] = False,
        profile: Literal[False] = False,
    ) -> list[Array]: ...

    @overload
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Literal[True],
        profile: Literal[False] = False,
    ) -> list[DeviceArray]: ...

    @overload
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Keep,
        profile: Literal[False] = False,
    ) -> list[Any]: ...

    @overload
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        profile: Literal[True],
    ) -> Profile: ...

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Keep = False,
        profile: bool = False,
    ) -> list[Any] | Profile:
        """Compute the outputs, in the order of `set_outputs`.

        inputs   arrays by name; dtype and shape as declared. A DeviceArray is used
                 where it lies, which must be here.
        strict   True: a run that is lost with its device raises. Else it is done again,
                 and `explain` says where: on the device opened anew, then, where
                 rlxweb chose the device, on the next that it would have taken. What
                 lay on a lost device is gone, and a run that needs it raises. Values of
                 64 bits that a device rlxweb chose cannot hold go to the CPU likewise.
        keep     True: outputs stay on the device, as DeviceArrays, and nothing is read
                 back; positions, (0, 2): those stay
        profile  True: where the time went, step by step; `outputs` of it are the run's
        returns  NumPy arrays of the declared dtypes, in memory of their own
        Errors   InputError, UnknownName, DTypeError, ShapeError before any device call;
        IndexRefused, DeviceLost, GpuTimeout, OutOfMemory from the device. A profiled
        run that is lost raises, whatever `strict` says.
        """
        if profile:
            return run_blocking(self._profile(inputs, 1, keep))
        return run_blocking(self.computed(inputs, strict, keep))

    def run_typed(
        self,
        inputs: Mapping[str, tuple[Any, DTypeLike]] | None = None,
        *,
        strict: bool | None = None,
    ) -> list[TypedBytes]:
        """Run over bytes: {name: (bytes, dtype)} in, [(bytes, dtype label)] out.

        Inputs of another dtype than declared are converted, as `set_param_typed` does.

        Errors   those of `run`; ShapeError for bytes of another length than declared;
        DTypeError for values that the declared dtype cannot hold.
        """
        feeds = decode_feeds(f"run '{self._job.graph.name}'", self._input_nodes, inputs)
        return [encode_typed(array) for array in self.run(feeds, strict=strict)]

    @overload
    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Literal[False] = False,
        profile: Literal[False] = False,
    ) -> list[Array]: ...

    @overload
    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Literal[True],
        profile: Literal[False] = False,
    ) -> list[DeviceArray]: ...

    @overload
    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Keep,
        profile: Literal[False] = False,
    ) -> list[Any]: ...

    @overload
    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        profile: Literal[True],
    ) -> Profile: ...

    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Keep = False,
        profile: bool = False,
    ) -> list[Any] | Profile:
        """Run without blocking the caller's event loop; see `run`."""
        if profile:
            return await await_or_offload(lambda: self._profile(inputs, 1, keep))
        return await await_or_offload(lambda: self.computed(inputs, strict, keep))

    async def computed(
        self,
        inputs: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        keep: Keep = False,
    ) -> list[Any]:
        """Compute the outputs; the coroutine behind `run` and `run_async`. It never
        suspends on a desktop.
        """
        context = f"run '{self._job.graph.name}'"
        self._placement.check_open(context)
        if strict is not None:
            strict = coerce_bool("strict", strict, context)
        feeds = validate_feeds(self._job.graph, self._input_nodes, inputs)
        placement = self._placement
        placement.check_all_params_set(context)
        if keep is not False or DeviceArray in map(type, feeds.values()):
            return await self._run_on_device(context, feeds, strict, keep)
        arrays: dict[str, Any] = feeds
        prepared, started_ns = placement.prepared, perf_counter_ns()
        try:
            outputs = await prepared.engine.run(prepared.program, arrays)
        except (*DEVICE_LOST, DTypeError) as error:
            if self._session.strict if strict is None else strict:
                raise
            return await placement.recover_run(
                prepared,
                error,
                lambda current: current.engine.run(current.program, arrays),
            )
        if placement.is_warm:
            self._pick.observe(
                perf_counter_ns() - started_ns, prepared.candidate.device
            )
        else:  # an engine's dtypes do not change from one run to the next
            graph = self._job.graph
            check_outputs(prepared.engine, graph, output_types(graph), outputs)
        placement.is_warm = True
        return outputs

    async def _run_on_device(
        self, context: str, feeds: Feeds, strict: bool | None, keep: Keep
    ) -> list[Any]:
        """Run with inputs or outputs that stay on the device; such runs are not
        timed.
        """
        count = len(self._job.graph.outputs)
        keep_flags = keep_mask(keep, count, context) or (False,) * count
        placement, device_inputs = self._placement, tuple(select_device_arrays(feeds))

        async def run(current: PreparedGraph) -> list[Any]:
            engine_feeds = {
                name: array.lying_on(current.engine, f"{context}, input '{name}'")
                if isinstance(array, DeviceArray)
                else array
                for name, array in feeds.items()
            }
            outputs = await current.engine.run(
                current.program, engine_feeds, keep_flags
            )
            placement.last_device_run = device_inputs, keep_flags
            location = current.candidate.device, current.candidate.adapter
            return [
                DeviceArray(output, *location)
                if isinstance(output, DeviceBuffer)
                else output
                for output in outputs
            ]

        strict = self._session.strict if strict is None else strict
        if not strict and placement.prepared.engine.lost:
            async with placement.lock:
                await placement.ensure_prepared()
                placement.check_all_params_set(context)
        prepared = placement.prepared
        try:
            return await run(prepared)
        except DEVICE_LOST as error:
            if strict:
                raise
            return await placement.retry_run(prepared, error, run, device_inputs)
        except RlxError as error:
            input_error = (
                add_readback_hint(error, device_inputs[0]) if device_inputs else error
            )
            raise input_error from error.__cause__

    def __repr__(self) -> str:
        return f"CompiledGraph('{self._job.graph.name}' on {self.engine})"

    def explain(self) -> str:
        """Return the decisions with their reasons, what stays on the device, and the
        plan with the kernel variants that run it, as text.
        """
        lines = [f"{self._job.graph.name} on {self.engine}"]
        lines += [explain_decision(d) for d in self.decisions]
        lines += self._placement.describe_device_data()
        program = self._placement.prepared.program
        return "\n".join([*lines, program.plan.describe(program.kernel_variants)])

    def close(self) -> None:
        """Free the program's buffers, once no run needs them. Idempotent."""
        run_blocking(self._placement.close())

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self._job.graph.name}'",
            "a compiled graph holds device memory",
            hint="pickle the result of params(), and compile again after loading",
        )
