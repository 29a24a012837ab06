"""Session and CompiledGraph: compile a graph for one device, run it many times.

The core is one coroutine; `run` drives it to its end without an event loop, `run_async`
hands it to the caller's. Nothing else is doubled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from rlxweb.backends.custom_ops import try_custom_ops
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.choose.chooser import Asked, Pick, choose_async
from rlxweb.choose.graphs import GraphJob
from rlxweb.compile.plan import Plan
from rlxweb.decision.explain import explain_decision
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.place import Place
from rlxweb.errors import (
    DTypeError,
    InputError,
    LimitExceeded,
    SessionClosed,
    ShaderRejected,
    Unsupported,
)
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.limits import Limits
from rlxweb.runtime.feeds import as_input, check_feeds, unknown
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
    ) -> None:
        if as_dtype(precision) is not DType.F32:
            raise DTypeError(
                "Session",
                f"precision {precision!r}",
                "'f32' is the only one",
                "declare f64 inputs in the graph for float64 on the CPU",
            )
        self.precision = DType.F32.label
        self.device = None if device == "auto" else parse_device(device)
        self.adapter = adapter
        self.limits = limits
        self.optimise = optimise
        self.cost_mode = cost_mode
        self._closed = False
        if self.device is not None:
            self._backend(self.device)

    def _backend(self, device: Device) -> Backend:
        if self.limits is None:
            return pool.backend(device.label, self.adapter)
        return pool.limited(device.label, self.adapter, self.limits)

    def compile(self, graph: Graph) -> CompiledGraph:
        """Prepare a graph: rewrites, shaders, buffers.

        Errors   those of `compile_graph`; LimitExceeded, ShaderRejected, OutOfMemory.
        """
        return drive(self.compile_async(graph))

    async def compile_async(self, graph: Graph) -> CompiledGraph:
        """`compile` for hosts that must be awaited."""
        if self._closed:
            raise SessionClosed("compile", "this session was closed")
        job = GraphJob(graph, self.optimise, self.cost_mode)
        if self.device is not None:
            return await self._compile_on(self.device, job, None)
        pick = await choose_async(job, Asked(adapter=self.adapter))
        try:
            return await self._compile_on(pick.device, pick.job, pick)
        except (Unsupported, DTypeError, LimitExceeded, ShaderRejected) as error:
            if pick.device is Device.CPU or self.adapter:
                raise
            why = f"{pick.decision.what} was chosen but refused the graph: {error}"
            decision = replace(pick.decision, what="device CPU", why=why)
            fallen = replace(pick, decision=decision)
            return await self._compile_on(Device.CPU, pick.job, fallen)

    async def _compile_on(
        self, device: Device, job: GraphJob, pick: Pick[GraphJob] | None
    ) -> CompiledGraph:
        backend = self._backend(device)
        await try_custom_ops(job.graph, backend)
        plan = job.plan_on(backend, Place(device, self.adapter))
        program = await backend.prepare(plan)
        return CompiledGraph(job.graph, device, backend, program, pick)

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


class CompiledGraph:
    """A graph ready to run on one device. Made by `Session.compile`."""

    def __init__(
        self,
        graph: Graph,
        device: Device,
        backend: Backend,
        program: Program,
        pick: Pick[GraphJob] | None,
    ) -> None:
        self.graph = graph
        self.device = device
        self._backend = backend
        self._program = program
        self._inputs = graph.named("input")
        self._params = graph.named("param")
        self._unset = set(self._params)
        self._closed = False
        self._pick = pick
        self._is_warm = False
        self.decisions = ((pick.decision,) if pick else ()) + program.plan.decisions

    @property
    def engine(self) -> str:
        """The engine that computes, in words: "NumPy 2.4", "llvmpipe (vulkan)"."""
        return self._backend.name

    @property
    def plan(self) -> Plan:
        return self._program.plan

    def set_param(self, name: str, value: Any) -> None:
        """Give a param its value, kept for all later runs.

        Errors   UnknownName, DTypeError, ShapeError.
        """
        drive(self.set_param_async(name, value))

    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """`set_param` of raw bytes or of anything array-like, read as `dtype`.

        dtype   RLX's name ("f32"), a DType or a NumPy dtype; the declared one when left
                out. Bytes are little-endian, C order.
        Errors  UnknownName; DTypeError, ShapeError for bytes of another dtype or length
                than declared.
        """
        doing = f"set_param_typed of '{self.graph.name}'"
        if name not in self._params:
            raise unknown(doing, "param", name, self._params)
        self.set_param(name, as_typed(doing, self._params[name], value, dtype))

    async def set_param_async(self, name: str, value: Any) -> None:
        """`set_param` for hosts that must be awaited."""
        doing = f"set_param of '{self.graph.name}'"
        self._check_open(doing)
        if name not in self._params:
            raise unknown(doing, "param", name, self._params)
        array = as_input(doing, self._params[name], value)
        await self._backend.set_param(self._program, name, array)
        self._unset.discard(name)

    def run(self, inputs: Mapping[str, Any] | None = None) -> list[Array]:
        """Compute the outputs, in the order of `set_outputs`.

        inputs   arrays by name; dtype and shape as declared
        returns  NumPy arrays of the declared dtypes, in memory of their own
        Errors   InputError, UnknownName, DTypeError, ShapeError before any device call;
        IndexRefused, DeviceLost, GpuTimeout, OutOfMemory from the device.
        """
        return drive(self.run_async(inputs))

    def run_typed(self, inputs: Mapping[str, tuple[Any, DTypeLike]]) -> list[Typed]:
        """`run` over bytes: {name: (bytes, dtype)} in, [(bytes, dtype's label)] out.

        Errors   those of `run`; DTypeError, ShapeError for bytes of another dtype or
        length than declared.
        """
        feeds = as_feeds(f"run '{self.graph.name}'", self._inputs, inputs)
        return [as_raw(array) for array in self.run(feeds)]

    async def run_async(self, inputs: Mapping[str, Any] | None = None) -> list[Array]:
        """`run` for hosts that must be awaited (a browser without stack switching)."""
        doing = f"run '{self.graph.name}'"
        self._check_open(doing)
        feeds = check_feeds(self.graph, self._inputs, inputs)
        if self._unset:
            names = ", ".join(repr(n) for n in sorted(self._unset))
            raise InputError(
                doing,
                f"param {names} has no value",
                f"{len(self._unset)} of {len(self._params)} params unset",
                "call set_param first",
            )
        begun = perf_counter_ns()
        outs = await self._backend.run(self._program, feeds)
        if self._is_warm and self._pick is not None:
            self._pick.observe(perf_counter_ns() - begun, self.device)
        self._is_warm = True
        return outs

    def __repr__(self) -> str:
        return f"CompiledGraph('{self.graph.name}' on {self.engine})"

    def explain(self) -> str:
        """What was decided and why, then the plan, as text."""
        lines = [f"{self.graph.name} on {self.engine}"]
        lines += [explain_decision(d) for d in self.decisions]
        return "\n".join([*lines, str(self.plan)])

    def close(self) -> None:
        """Free the program's buffers. Idempotent."""
        if not self._closed:
            self._closed = True
            drive(self._backend.release(self._program))

    def _check_open(self, doing: str) -> None:
        if self._closed:
            raise SessionClosed(doing, "this compiled graph was closed")

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self.graph.name}'",
            "a compiled graph holds device memory",
            hint="pickle the arrays and compile again",
        )
