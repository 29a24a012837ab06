"""Session and CompiledGraph: compile a graph for one device, run it many times.

The core is one coroutine; `run` drives it to its end without an event loop, `run_async`
hands it to the caller's. Nothing else is doubled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any

from rlxweb.arguments import one_or_none, switch
from rlxweb.backends.custom_ops import try_custom_ops
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.choose.again import LOST, done_again, told
from rlxweb.choose.chooser import Asked, Pick, choose_async
from rlxweb.choose.graphs import GraphJob, checked_mode
from rlxweb.compile.plan import Plan
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.decision.explain import explain_decision
from rlxweb.device import Device, DeviceLike, adapter_name, is_open, parse_device
from rlxweb.devices.place import Place
from rlxweb.errors import (
    DeviceLost,
    DTypeError,
    GpuTimeout,
    InputError,
    LimitExceeded,
    SessionClosed,
    ShaderRejected,
    Unsupported,
)
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.gpu.turns import Turn
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.limits import Limits
from rlxweb.names import also
from rlxweb.runtime.feeds import as_input, check_feeds, may_change, param_named
from rlxweb.runtime.raw_bytes import Typed, as_feeds, as_raw, as_typed


class Session:
    """One device to compile for.

    device     a Device, its name or an alias; "auto" lets rlxweb choose per graph
    precision  "f32", RLX's argument; f64 graphs run by declaring f64 inputs
    adapter    part of an adapter's name, where a device has several
    limits     pretend the device has no more than these (wgpu devices only)
    optimise   False keeps every node a step of its own
    cost_mode  what decides fusions: "calibrated", measured prices where there are any,
               or "seed", RLX's gate
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

    def compile(self, graph: Graph) -> CompiledGraph:
        """Prepare a graph: rewrites, shaders, buffers.

        Errors   those of `compile_graph`; LimitExceeded, ShaderRejected, OutOfMemory.
        """
        return drive(self.compiled(graph))

    async def compile_async(self, graph: Graph) -> CompiledGraph:
        """`compile` beside the caller's event loop."""
        return await awaited_here(lambda: self.compiled(graph))

    async def compiled(self, graph: Graph) -> CompiledGraph:
        """The core of both: never suspends on a desktop."""
        if self._closed:
            raise SessionClosed("compile", "this session was closed")
        job = GraphJob(graph, self.optimise, self.cost_mode)
        if self.device is not None:
            way = Candidate(self.device, self.device.label, adapter=self.adapter)
            asked = Decision(f"device {self.device.label}", "it was asked for")
            return await self._compiled(Pick(job, way, asked))
        pick = await choose_async(job, Asked(adapter=self.adapter))
        try:
            return await self._compiled(pick)
        except (Unsupported, DTypeError, LimitExceeded, ShaderRejected) as error:
            if pick.device is Device.CPU or self.adapter or self.strict:
                raise
            why = f"{pick.decision.what} was chosen but refused the graph: {error}"
            cpu = Candidate(Device.CPU, Device.CPU.label)
            decision = replace(pick.decision, what="device CPU", why=why)
            pick = replace(pick, decision=decision)
            ready = await self._prepared(pick.job, cpu)
        return CompiledGraph(pick, ready, self)

    async def _compiled(self, pick: Pick[GraphJob]) -> CompiledGraph:
        """The graph where it was picked, or done again where a loss is noticed here."""

        async def prepared(way: Candidate) -> Ready:
            return await self._prepared(pick.job, way)

        try:
            ready = await prepared(pick.candidate)
        except LOST as error:
            if self.strict:
                raise
            ways = pick.decision.candidates
            ready, _, tries = await done_again(error, pick.candidate, ways, prepared)
            pick = replace(pick, decision=told(pick.decision, tries))
        return CompiledGraph(pick, ready, self)

    async def _prepared(self, job: GraphJob, way: Candidate) -> Ready:
        """The graph on the engine of a way, opened anew if it was lost."""
        backend = await self._backend(way)
        await try_custom_ops(job.graph, backend)
        plan = job.plan_on(backend, Place(way.device, way.adapter))
        return Ready(way, backend, await backend.prepare(plan))

    async def _backend(self, way: Candidate) -> Backend:
        if self.limits is None:
            return await pool.backend_async(way.device.label, way.adapter)
        return pool.limited(way.device.label, way.adapter, self.limits)

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


@dataclass(frozen=True, slots=True)
class Ready:
    """A graph prepared on an engine, and the way that led there."""

    way: Candidate
    backend: Backend
    program: Program


class CompiledGraph:
    """A graph ready to run on one device. Made by `Session.compile`.

    Threads and tasks may share it: they take turns where the device needs that.

    decisions  where it runs and why, then what the compiler decided
    """

    def __init__(self, pick: Pick[GraphJob], ready: Ready, session: Session) -> None:
        self._job = pick.job
        self._pick = pick
        self._ready = ready
        self._session = session
        self._inputs = self._job.graph.named("input")
        self._params = self._job.graph.named("param")
        self._values: dict[str, Array] = {}
        self._unset = set(self._params)
        self._mending = Turn()
        self._closed = False
        self._is_warm = False
        self._decision = pick.decision

    @property
    def graph(self) -> Graph:
        """A copy of the graph that was compiled."""
        return self._job.graph.copy()

    @property
    def device(self) -> Device:
        return self._ready.way.device

    @property
    def engine(self) -> str:
        """The engine that computes, in words: "NumPy 2.4", "llvmpipe (vulkan)"."""
        return self._ready.backend.name

    @property
    def plan(self) -> Plan:
        return self._ready.program.plan

    @property
    def nbytes(self) -> int:
        """Bytes of the device's memory that it holds."""
        return self._ready.program.nbytes

    @property
    def decisions(self) -> tuple[Decision, ...]:
        chosen = self._session.device is None or self._decision.attempts
        own = (self._decision,) if chosen else ()
        return own + self.plan.decisions

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Where a run was tried, if one was lost with its device; else nothing."""
        return self._decision.attempts

    @also(data="value")
    def set_param(self, name: str, value: Any) -> None:
        """Give a param its value, kept for all later runs.

        Errors   UnknownName, DTypeError, ShapeError.
        """
        drive(self._set_param(name, value))

    @also(data="value")
    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """`set_param` of raw bytes or of anything array-like, read as `dtype`.

        dtype   RLX's name ("f32"), a DType or a NumPy dtype; the declared one when left
                out. Bytes are in C order, little-endian unless a NumPy dtype says big.
        Errors  UnknownName; DTypeError, ShapeError for bytes of another dtype or length
                than declared.
        """
        doing = f"set_param_typed of '{self._job.graph.name}'"
        node = param_named(doing, self._params, name)
        self.set_param(name, as_typed(doing, node, value, dtype))

    @also(data="value")
    async def set_param_async(self, name: str, value: Any) -> None:
        """`set_param` beside the caller's event loop."""
        await awaited_here(lambda: self._set_param(name, value))

    async def _set_param(self, name: str, value: Any) -> None:
        doing = f"set_param of '{self._job.graph.name}'"
        self._check_open(doing)
        array = as_input(doing, param_named(doing, self._params, name), value)
        async with self._mending:
            ready = self._ready
            if ready.way.device is not Device.CPU:
                # For the day its device is lost. What nobody can write need not be
                # copied to stay what it is.
                array = array.copy() if may_change(array) else array
                self._values[name] = array
            self._unset.discard(name)
            if ready.backend.lost:
                return
            try:
                await ready.backend.set_param(ready.program, name, array)
            except LOST:
                # The value is kept, and the next run has it where it is done again.
                if self._session.strict:
                    raise

    def run(
        self, inputs: Mapping[str, Any] | None = None, *, strict: bool | None = None
    ) -> list[Array]:
        """Compute the outputs, in the order of `set_outputs`.

        inputs   arrays by name; dtype and shape as declared
        strict   True: a run that is lost with its device raises. Else it is done again,
                 and `explain` says where: on the device opened anew, then, where
                 rlxweb chose the device, on the next that it would have taken
        returns  NumPy arrays of the declared dtypes, in memory of their own
        Errors   InputError, UnknownName, DTypeError, ShapeError before any device call;
        IndexRefused, DeviceLost, GpuTimeout, OutOfMemory from the device.
        """
        return drive(self.computed(inputs, strict))

    def run_typed(
        self,
        inputs: Mapping[str, tuple[Any, DTypeLike]] | None = None,
        *,
        strict: bool | None = None,
    ) -> list[Typed]:
        """`run` over bytes: {name: (bytes, dtype)} in, [(bytes, dtype's label)] out.

        Errors   those of `run`; DTypeError, ShapeError for bytes of another dtype or
        length than declared.
        """
        feeds = as_feeds(f"run '{self._job.graph.name}'", self._inputs, inputs)
        return [as_raw(array) for array in self.run(feeds, strict=strict)]

    async def run_async(
        self, inputs: Mapping[str, Any] | None = None, *, strict: bool | None = None
    ) -> list[Array]:
        """`run` beside the caller's event loop."""
        return await awaited_here(lambda: self.computed(inputs, strict))

    async def computed(
        self, inputs: Mapping[str, Any] | None = None, strict: bool | None = None
    ) -> list[Array]:
        """The core of both: never suspends on a desktop."""
        doing = f"run '{self._job.graph.name}'"
        self._check_open(doing)
        if strict is not None:
            strict = switch("strict", strict, doing)
        feeds = check_feeds(self._job.graph, self._inputs, inputs)
        if self._unset:
            names = ", ".join(repr(n) for n in sorted(self._unset))
            raise InputError(
                doing,
                f"param {names} has no value",
                f"{len(self._unset)} of {len(self._params)} params unset",
                "call set_param first",
            )
        ready, begun = self._ready, perf_counter_ns()
        try:
            outs = await ready.backend.run(ready.program, feeds)
        except LOST as error:
            if self._session.strict if strict is None else strict:
                raise
            return await self._again(ready, feeds, error)
        if self._is_warm:
            self._pick.observe(perf_counter_ns() - begun, ready.way.device)
        self._is_warm = True
        return outs

    async def _again(
        self, gone: Ready, feeds: Mapping[str, Array], error: DeviceLost | GpuTimeout
    ) -> list[Array]:
        """The same run where it can be done; whoever shares the graph moves along."""

        async def run(way: Candidate) -> list[Array]:
            now = self._ready
            if now is gone or now.backend.lost or now.way != way:
                self._check_open(error.doing)
                now = await self._session._prepared(self._job, way)
                for name, value in self._values.items():
                    await now.backend.set_param(now.program, name, value)
                self._ready = now
            return await now.backend.run(now.program, feeds)

        async with self._mending:
            # Another run may have moved it already, and maybe to another device.
            way = gone.way if self._ready is gone else self._ready.way
            outs, _, tries = await done_again(
                error, way, self._pick.decision.candidates, run
            )
            self._decision = told(self._pick.decision, tries)
            self._is_warm = False
        return outs

    def __repr__(self) -> str:
        return f"CompiledGraph('{self._job.graph.name}' on {self.engine})"

    def explain(self) -> str:
        """What was decided and why, then the plan, as text."""
        lines = [f"{self._job.graph.name} on {self.engine}"]
        lines += [explain_decision(d) for d in self.decisions]
        return "\n".join([*lines, str(self.plan)])

    def close(self) -> None:
        """Free the program's buffers, once no run needs them. Idempotent."""
        if not self._closed:
            self._closed = True
            drive(self._release())

    async def _release(self) -> None:
        async with self._mending:
            await self._ready.backend.release(self._ready.program)

    def _check_open(self, doing: str) -> None:
        if self._closed:
            raise SessionClosed(
                doing, "this compiled graph was closed", hint="compile it again"
            )

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self._job.graph.name}'",
            "a compiled graph holds device memory",
            hint="pickle the arrays and compile again",
        )
