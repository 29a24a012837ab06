"""Session: one device to compile graphs for, or the choice of one left to rlxweb."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from rlxweb.arguments import one_or_none, switch
from rlxweb.backends.custom_ops import try_custom_ops
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.choose.again import LOST, done_again, told
from rlxweb.choose.chooser import Asked, Pick, choose_async
from rlxweb.choose.graphs import GraphJob, checked_mode
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.device import Device, DeviceLike, adapter_name, is_open, parse_device
from rlxweb.devices.place import Place
from rlxweb.errors import (
    DTypeError,
    LimitExceeded,
    SessionClosed,
    ShaderRejected,
    Unsupported,
)
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.limits import Limits
from rlxweb.runtime.bindings import BoundCheck
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.feeds import check_names, lying, lying_on
from rlxweb.runtime.peaks_only import select_peaks_only_outputs
from rlxweb.runtime.placed import Beside, Ready
from rlxweb.runtime.varying import CompiledVarying


class Session:
    """One device to compile for; a context manager that closes it.

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
                f"precision {precision!r}",
                "'f32' is the only one",
                "declare f64 inputs in the graph for float64 on the CPU",
            )
        self.precision = DType.F32.label
        self.device = None if is_open(device) else parse_device(device)
        self.adapter = adapter_name(adapter)
        self.limits = one_or_none("limits", limits, Limits, "Session")
        self.optimise = switch("optimise", optimise, "Session")
        self.cost_mode = checked_mode(cost_mode)
        self.strict = switch("strict", strict, "Session")
        self._closed = False
        if self.device is not None:
            pool.backend(self.device.label, adapter)
            if limits is not None:
                pool.limited(self.device.label, adapter, limits)

    def compile(
        self, graph: Graph, inputs: Mapping[str, Any] | None = None
    ) -> CompiledGraph:
        """Prepare a graph: rewrites, shaders, buffers.

        A graph whose sizes vary is prepared for each that runs bring, and the latest
        are kept: see `CompiledGraph.bind`.

        inputs   arrays by name that it will run on. Where rlxweb chooses the device, it
                 is the one on which DeviceArrays among them lie, and no upload of them
                 is priced; others say nothing
        Errors   those of `compile_graph`; LimitExceeded, ShaderRejected, OutOfMemory;
                 UnknownName for an input that the graph has not.
        """
        return drive(self.compiled(graph, inputs))

    async def compile_async(
        self, graph: Graph, inputs: Mapping[str, Any] | None = None
    ) -> CompiledGraph:
        """`compile` beside the caller's event loop."""
        return await awaited_here(lambda: self.compiled(graph, inputs))

    async def compiled(
        self,
        graph: Graph,
        inputs: Mapping[str, Any] | None = None,
        beside: Beside | None = None,
        check: BoundCheck | None = None,
    ) -> CompiledGraph:
        """The core of both: never suspends on a desktop.

        beside   the program, if there is one, that has the params of the graph already
        check    refuses bindings of a graph whose sizes vary, before they are compiled
        """
        if self._closed:
            raise SessionClosed("compile", "this session was closed")
        job = GraphJob(graph, self.optimise, self.cost_mode)
        if job.graph.dims:
            varying = CompiledVarying(job, self, check)
            await varying.begun(inputs)
            return varying
        return await self._compiled_job(job, inputs, beside)

    async def _compiled_job(
        self,
        job: GraphJob,
        inputs: Mapping[str, Any] | None,
        beside: Beside | None = None,
    ) -> CompiledGraph:
        """A graph of numbers. Where `beside` finds a program, its params are shared."""
        asked = Asked(adapter=self.adapter)
        if inputs:
            asked = self._asked(job, inputs)
        if self.device is not None:
            return await self._compiled(Pick(job, *self._named(self.device)), beside)
        pick = await choose_async(job, asked)
        try:
            return await self._compiled(pick, beside)
        except (Unsupported, DTypeError, LimitExceeded, ShaderRejected) as error:
            if pick.device is Device.CPU or self.adapter or self.strict or job.there:
                raise
            why = f"{pick.decision.what} was chosen but refused the graph: {error}"
            cpu = Candidate(Device.CPU, Device.CPU.label)
            decision = replace(pick.decision, what="device CPU", why=why)
            pick = replace(pick, decision=decision)
            ready = await self._prepared(pick.job, cpu, beside)
        return CompiledGraph(pick, ready, self, beside)

    def _named(self, device: Device) -> tuple[Candidate, Decision]:
        """The way to a device that was asked for, and the decision to take it."""
        way = Candidate(device, device.label, adapter=self.adapter)
        return way, Decision(f"device {device.label}", "it was asked for")

    async def _check_runs(self, job: GraphJob) -> None:
        """Would the device that was asked for run a graph, of whatever sizes?

        Errors   DTypeError, Unsupported. A limit may be kept by other sizes.
        """
        if self.device is not None:
            way, _ = self._named(self.device)
            backend = await self._backend(way)
            with suppress(LimitExceeded):
                job.plan_on(backend, Place(way.device, way.adapter))

    def _asked(self, job: GraphJob, inputs: Mapping[str, Any]) -> Asked:
        """Where an open session compiles; the job is told what lies there.

        Errors   UnknownName.
        """
        check_names(f"compile '{job.graph.name}'", job.graph.named("input"), inputs)
        for name, one in lying(inputs).items():
            job.there = lying_on(inputs, one.device)
            return Asked(one.device, one.adapter, why=f"input '{name}' lies there")
        return Asked(adapter=self.adapter)

    async def _compiled(
        self, pick: Pick[GraphJob], beside: Beside | None
    ) -> CompiledGraph:
        """The graph where it was picked, or done again where a loss is noticed here."""
        pick = self._as_rlx_returns(pick)

        async def prepared(way: Candidate) -> Ready:
            return await self._prepared(pick.job, way, beside)

        try:
            ready = await prepared(pick.candidate)
        except LOST as error:
            if self.strict:
                raise
            ways = pick.decision.candidates
            ready, _, tries = await done_again(error, pick.candidate, ways, prepared)
            pick = replace(pick, decision=told(pick.decision, tries))
        return CompiledGraph(pick, ready, self, beside)

    def _as_rlx_returns(self, pick: Pick[GraphJob]) -> Pick[GraphJob]:
        """The job with the outputs that RLX's compiler would leave it, in seed mode."""
        job = pick.job
        if self.cost_mode != "seed":
            return pick
        graph, decisions = select_peaks_only_outputs(job.graph, pick.device)
        if not decisions:
            return pick
        about = job.optimise, job.cost_mode, job.there
        return replace(pick, job=GraphJob(graph, *about, decisions=decisions))

    async def _prepared(
        self, job: GraphJob, way: Candidate, beside: Beside | None = None
    ) -> Ready:
        """The graph on the engine of a way, opened anew if it was lost."""
        backend = await self._backend(way)
        await try_custom_ops(job.graph, backend)
        plan = job.plan_on(backend, Place(way.device, way.adapter))
        other = None if beside is None else beside(backend)
        if other is None:
            return Ready(way, backend, await backend.prepare(plan))
        made = await backend.prepare_beside(plan, other)
        params: object = getattr(made, "params", None)
        shares = params is not None and params is getattr(other, "params", None)
        return Ready(way, backend, made, shares)

    async def _backend(self, way: Candidate) -> Backend:
        if self.limits is None:
            return await pool.backend_async(way.device.label, way.adapter)
        return pool.limited(way.device.label, way.adapter, self.limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "auto" if self.device is None else self.device.label
        return f"Session({where!r}, {self.precision!r})"

    def close(self) -> None:
        """No more compiling; graphs already compiled stay usable."""
        self._closed = True

    def __reduce__(self) -> Any:
        raise Unsupported(
            "pickle of a Session",
            "a session holds an open device",
            hint="make a Session where it is needed",
        )
