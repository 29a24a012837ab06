"""Session: compile graphs for one device, or let rlxweb choose one per graph."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from rlxweb.core.argument_validation import check_optional_instance, coerce_bool
from rlxweb.core.device import (
    Device,
    DeviceLike,
    check_adapter_name,
    is_auto,
    parse_device,
)
from rlxweb.core.errors import (
    DTypeError,
    LimitExceeded,
    SessionClosed,
    ShaderRejected,
    Unsupported,
)
from rlxweb.core.limits import Limits
from rlxweb.cost.decision import Candidate, Decision
from rlxweb.engines.capabilities import SharesParams
from rlxweb.engines.custom_op_reference_check import check_custom_ops
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine, engine_named_in_errors
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.dynamic_compiled_graph import DynamicCompiledGraph
from rlxweb.runtime.dynamic_shape_graph_cache import BoundGraphCheck
from rlxweb.runtime.engine_program_and_params import PreparedGraph, SharedProgramLookup
from rlxweb.runtime.input_validation import (
    check_input_names,
    input_names_on,
    select_device_arrays,
)
from rlxweb.runtime.peaks_only_outputs import select_peaks_only_outputs
from rlxweb.select.chooser import DevicePick, PlaceRequest, choose_place_async
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.select.device_loss_retry import DEVICE_LOST, retried_decision, retry_run
from rlxweb.select.graph_job import GraphJob, check_cost_mode


class Session:
    """Compiler of graphs for one device; a context manager that closes it.

    device     a Device, its name or an alias; "auto" lets rlxweb choose per graph
    precision  "f32", RLX's argument; f64 graphs run by declaring f64 inputs
    adapter    part of an adapter's name, where a device has several
    limits     pretend the device has no more than these (wgpu devices only)
    optimise   False keeps every node a step of its own
    cost_mode  what decides fusions: "calibrated", measured prices where there are any,
               or "seed", RLX's gate. In seed mode outputs may change too, as in RLX:
               see `rlxweb.rlx.select_peaks_only_outputs`
    strict     True: nothing is done on another device or a second time than asked for

    Errors   UnknownDevice; AdapterMissing when the device cannot be opened.
    """

    def __init__(
        self,
        device: DeviceLike = "auto",
        precision: DTypeLike = "f32",
        *,
        adapter: str = "",
        limits: Limits | None = None,
        optimise: bool = True,
        cost_mode: str = "calibrated",
        strict: bool = False,
    ) -> None:
        if as_dtype(precision) is not DType.F32:
            raise DTypeError(
                "Session",
                f"unsupported precision {precision!r}",
                "only 'f32' is supported",
                "for float64 on the CPU, declare the inputs of the graph as f64",
            )
        self.precision = DType.F32.label
        self.device = None if is_auto(device) else parse_device(device)
        self.adapter = check_adapter_name(adapter)
        self.limits = check_optional_instance("limits", limits, Limits, "Session")
        self.optimise = coerce_bool("optimise", optimise, "Session")
        self.cost_mode = check_cost_mode(cost_mode)
        self.strict = coerce_bool("strict", strict, "Session")
        self._closed = False
        if self.device is not None:
            pool.engine(self.device.label, adapter)
            if limits is not None:
                pool.engine_with_limits(self.device.label, adapter, limits)

    def compile(
        self, graph: Graph, inputs: Mapping[str, Any] | None = None
    ) -> CompiledGraph:
        """Compile a graph: rewrites, shaders, buffers.

        A graph whose sizes vary is prepared for each that runs bring, and the latest
        are kept: see `CompiledGraph.bind`.

        inputs   arrays by name that it will run on. Where rlxweb chooses the device, it
                 is the one on which DeviceArrays among them lie, and no upload of them
                 is priced; others say nothing
        Errors   those of `compile_graph`; LimitExceeded, ShaderRejected, OutOfMemory;
                 UnknownName for an input that the graph has not.
        """
        return run_blocking(self.compiled(graph, inputs))

    async def compile_async(
        self, graph: Graph, inputs: Mapping[str, Any] | None = None
    ) -> CompiledGraph:
        """Compile a graph without blocking the caller's event loop; see `compile`."""
        return await await_or_offload(lambda: self.compiled(graph, inputs))

    async def compiled(
        self,
        graph: Graph,
        inputs: Mapping[str, Any] | None = None,
        beside: SharedProgramLookup | None = None,
        check: BoundGraphCheck | None = None,
    ) -> CompiledGraph:
        """Compile a graph; the coroutine behind `compile` and `compile_async`. It never
        suspends on a desktop.

        beside   the program, if there is one, that has the params of the graph already
        check    refuses bindings of a graph whose sizes vary, before they are compiled
        """
        if self._closed:
            raise SessionClosed("compile", "this session was closed")
        job = GraphJob(graph, self.optimise, self.cost_mode)
        if job.graph.dims:
            dynamic_graph = DynamicCompiledGraph(job, self, check)
            await dynamic_graph.prepare(inputs)
            return dynamic_graph
        return await self._compile_job(job, inputs, beside)

    async def _compile_job(
        self,
        job: GraphJob,
        inputs: Mapping[str, Any] | None,
        find_shared_program: SharedProgramLookup | None = None,
    ) -> CompiledGraph:
        """Compile a graph without dims; where `find_shared_program` finds a program,
        its params are shared.
        """
        request = PlaceRequest(adapter=self.adapter)
        if inputs:
            request = self._placement_request(job, inputs)
        if self.device is not None:
            return await self._compile_pick(
                DevicePick(job, *self._named_candidate(self.device)),
                find_shared_program,
            )
        pick = await choose_place_async(job, request)
        try:
            return await self._compile_pick(pick, find_shared_program)
        except (Unsupported, DTypeError, LimitExceeded, ShaderRejected) as error:
            if (
                pick.device is Device.CPU
                or self.adapter
                or self.strict
                or job.on_device
            ):
                raise
            reason = (
                f"{pick.decision.what} was chosen but cannot run the graph: {error}"
            )
            cpu_candidate = Candidate(Device.CPU, Device.CPU.label)
            decision = replace(pick.decision, what="device CPU", why=reason)
            pick = replace(pick, decision=decision)
            prepared = await self._prepare(pick.job, cpu_candidate, find_shared_program)
        return CompiledGraph(pick, prepared, self, find_shared_program)

    def _named_candidate(self, device: Device) -> tuple[Candidate, Decision]:
        """Return the candidate of a device that was asked for, and the decision to use
        it.
        """
        candidate = Candidate(device, device.label, adapter=self.adapter)
        return candidate, Decision(f"device {device.label}", "it was requested")

    async def _check_supported(self, job: GraphJob) -> None:
        """Check that the named device can run a graph, of whatever sizes.

        Errors   DTypeError, Unsupported. A limit may be kept by other sizes.
        """
        if self.device is not None:
            candidate, _ = self._named_candidate(self.device)
            engine = await self._open_engine(candidate)
            with suppress(LimitExceeded):
                job.plan_for(engine, DevicePlace(candidate.device, candidate.adapter))

    def _placement_request(
        self, job: GraphJob, inputs: Mapping[str, Any]
    ) -> PlaceRequest:
        """Return where to compile for these inputs, and tell the job which of them are
        there.

        Errors   UnknownName.
        """
        check_input_names(
            f"compile '{job.graph.name}'", job.graph.named("input"), inputs
        )
        for name, array in select_device_arrays(inputs).items():
            job.on_device = input_names_on(inputs, array.device)
            return PlaceRequest(
                array.device,
                array.adapter,
                why=f"input '{name}' is already on this device",
            )
        return PlaceRequest(adapter=self.adapter)

    async def _compile_pick(
        self,
        pick: DevicePick[GraphJob],
        find_shared_program: SharedProgramLookup | None,
    ) -> CompiledGraph:
        """Compile the graph on the picked candidate; retry if its device turns out to
        be lost.
        """
        pick = self._with_rlx_outputs(pick)

        async def prepare(candidate: Candidate) -> PreparedGraph:
            return await self._prepare(pick.job, candidate, find_shared_program)

        try:
            prepared_graph = await prepare(pick.candidate)
        except DEVICE_LOST as error:
            if self.strict:
                raise
            candidates = pick.decision.candidates
            prepared_graph, _, attempts = await retry_run(
                error, pick.candidate, candidates, prepare
            )
            pick = replace(pick, decision=retried_decision(pick.decision, attempts))
        return CompiledGraph(pick, prepared_graph, self, find_shared_program)

    def _with_rlx_outputs(self, pick: DevicePick[GraphJob]) -> DevicePick[GraphJob]:
        """Return the pick with the outputs that RLX's compiler would leave, in seed
        mode.
        """
        job = pick.job
        if self.cost_mode != "seed":
            return pick
        graph, decisions = select_peaks_only_outputs(job.graph, pick.device)
        if not decisions:
            return pick
        options = job.optimise, job.cost_mode, job.on_device
        return replace(pick, job=GraphJob(graph, *options, decisions=decisions))

    async def _prepare(
        self,
        job: GraphJob,
        candidate: Candidate,
        find_shared_program: SharedProgramLookup | None = None,
    ) -> PreparedGraph:
        """Prepare the graph on a candidate's engine, opened again if it was lost."""
        engine = await self._open_engine(candidate)
        await check_custom_ops(job.graph, engine)
        plan = job.plan_for(engine, DevicePlace(candidate.device, candidate.adapter))
        shared_program = (
            None if find_shared_program is None else find_shared_program(engine)
        )
        if shared_program is None or not isinstance(engine, SharesParams):
            with engine_named_in_errors(engine, f"prepare '{job.graph.name}'"):
                program = await engine.prepare(plan)
            return PreparedGraph(candidate, engine, program)
        program = await engine.prepare_sharing_params(plan, shared_program)
        params = program.params
        shares_params = params is not None and params is shared_program.params
        return PreparedGraph(candidate, engine, program, shares_params)

    async def _open_engine(self, candidate: Candidate) -> Engine:
        """Return the open engine of a candidate, under the session's limits."""
        if self.limits is None:
            return await pool.engine_async(candidate.device.label, candidate.adapter)
        return pool.engine_with_limits(
            candidate.device.label, candidate.adapter, self.limits
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "auto" if self.device is None else self.device.label
        return f"Session({where!r}, {self.precision!r})"

    def close(self) -> None:
        """Refuse further compiling; graphs compiled already stay usable."""
        self._closed = True

    def __reduce__(self) -> Any:
        raise Unsupported(
            "pickle of a Session",
            "a session holds an open device",
            hint="create a Session in the process that needs it",
        )
