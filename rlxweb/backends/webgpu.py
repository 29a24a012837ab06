"""WGSL on a GPU port: the one place where `kernels` and `gpu` meet.

`prepare` turns each step into launches, makes pipelines, buffers and one command list;
a run writes the inputs, submits the list once and reads all outputs back at once. It
knows neither wgpu-py nor a browser: only the eight verbs of the port.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from rlxweb.advice import Advice
from rlxweb.backends.protocol import Array, Backend, Program, as_bytes, own, released
from rlxweb.backends.webgpu_pipelines import Pipelines
from rlxweb.backends.webgpu_program import (
    ProgramBuilder,
    WebGpuProgram,
    as_stored,
    free,
)
from rlxweb.backends.webgpu_recipes import Recipes
from rlxweb.backends.webgpu_trips import WebGpuTrips
from rlxweb.compile.plan import Plan
from rlxweb.compile.target import Target
from rlxweb.cost.fusion_gate import IoFusionGate
from rlxweb.cost.kinds import assumed_gpu
from rlxweb.cost.model import WgpuCostModel
from rlxweb.device import Device
from rlxweb.errors import DeviceLost, IndexRefused, SessionClosed
from rlxweb.gpu.port import DeviceFacts, Port
from rlxweb.ir.dtype import DType
from rlxweb.limits import Limits
from rlxweb.recipes.variants import Hardware


@cache
def _assumed_gate() -> IoFusionGate:
    """Until the device is measured; whoever knows better puts theirs in its place."""
    model = WgpuCostModel.from_record(assumed_gpu(), Device.GPU)
    return IoFusionGate.calibrated(model, "assumed")


def _hardware(facts: DeviceFacts, limits: Limits) -> Hardware:
    """What the kernels are chosen for.

    Browsers have drivers zero workgroup memory. A software one compiles that cell by
    cell, seconds long for some KiB, and does it for every workgroup: none is used.
    """
    if facts.software and facts.backend == "webgpu":
        limits = replace(limits, max_compute_workgroup_storage_size=0)
    return Hardware(facts.software, limits)


class WebGpuBackend(Backend):
    """WGSL on one port. Owns the port: `close` closes it."""

    # Said of each instance; the class must have them to be an engine.
    name = adapter = ""

    def __init__(
        self, port: Port, *, limits: Limits | None = None, variants: bool = True
    ) -> None:
        self.port = port
        self.facts = facts = port.facts
        self.name, self.adapter = f"{facts.name} ({facts.backend})", facts.name
        self.api, self.driver, self.vendor = facts.backend, facts.driver, facts.vendor
        self.software = facts.software
        self.limits = facts.limits.lowest(limits) if limits else facts.limits
        self.recipes = Recipes(_hardware(facts, self.limits), variants)
        self.pipelines = Pipelines(port)
        self._programs: weakref.WeakSet[WebGpuProgram] = weakref.WeakSet()
        self._builders: list[ProgramBuilder] = []
        self.closed = False
        # Buffers of programs that were dropped without `release`. The collector may
        # run at any moment, so it only notes them; they are freed at the next call.
        self._dropped: deque[list[int]] = deque()

    @property
    def lost(self) -> str:
        return self.port.lost

    @property
    def target(self) -> Target:
        dtypes = {DType.F32, DType.I32, DType.U32, DType.BOOL}
        if "shader-f16" in self.facts.features:
            dtypes.add(DType.F16)
        return Target(
            name=self.name,
            dtypes=frozenset(dtypes),
            native=self.recipes.native,
            refusal=self.recipes.refusal,
            launches=self.recipes.launch_count,
            gate=_assumed_gate(),
            max_operands=self.limits.max_storage_buffers_per_shader_stage,
            limits=self.limits,
            features=self.facts.features,
        )

    async def prepare(self, plan: Plan) -> WebGpuProgram:
        self._check_open("prepare a plan")
        self._free_dropped()
        self.pipelines.trim(self._pipelines_in_use)
        builder = ProgramBuilder(
            self, self.port, self.limits, self.recipes, plan, self.pipelines.get
        )
        self._builders.append(builder)
        try:
            program = await builder.build()
            self._programs.add(program)
        except BaseException:
            builder.abandon()
            raise
        finally:
            self._builders.remove(builder)
        finalizer = weakref.finalize(program, self._dropped.append, program.owned)
        finalizer.atexit = False
        return program

    def _pipelines_in_use(self) -> set[int]:
        in_use = {h for p in list(self._programs) for h in p.pipelines}
        return in_use | {h for b in list(self._builders) for h in b.claimed}

    def _free_dropped(self) -> None:
        while self._dropped:
            free(self.port, self._dropped.popleft())

    async def set_param(self, program: Program, name: str, value: Array) -> None:
        program = own(self, WebGpuProgram, program)
        doing = f"set param '{name}'"
        async with program.turn:
            self._check_usable(doing, program)
            self._write(program.params[name], value)

    def _write(self, handle: int, value: Array) -> None:
        if value.size:
            self.port.write(handle, 0, as_bytes(as_stored(value)))

    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        program = own(self, WebGpuProgram, program)
        doing = f"run '{program.plan.graph.name}' on {self.name}"
        async with program.turn:
            self._check_usable(doing, program)
            self._free_dropped()
            for name, handle in program.inputs.items():
                self._write(handle, feeds[name])
            self.port.submit(program.commands)
            raw = await self.port.read(program.readback, 0, program.readback_bytes)
        fault_at = program.fault_at
        if fault_at is not None and np.frombuffer(raw, np.uint32, 1, fault_at)[0]:
            raise IndexRefused(
                doing,
                "an index lies outside its table",
                "0 <= index < rows of the table",
                Advice("check the index array; {} names the position", device="cpu"),
            )
        return [spot.take(raw) for spot in program.outputs]

    async def release(self, program: Program) -> None:
        mine = own(self, WebGpuProgram, program)
        async with mine.turn:
            mine.released = True
            if not self.closed:
                free(self.port, mine.owned)
                self._programs.discard(mine)
                self._free_dropped()

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.pipelines.forget()
            await self.port.close()

    async def trips(self) -> WebGpuTrips:
        return await WebGpuTrips.on(self.port)

    def limited(self, limits: Limits) -> WebGpuBackend:
        return WebGpuBackend(self.port, limits=limits)

    def _check_open(self, doing: str) -> None:
        if self.closed and self.lost:
            raise DeviceLost(doing, f"{self.name} was lost ({self.lost})")
        if self.closed:
            raise SessionClosed(doing, f"{self.name} was closed")

    def _check_usable(self, doing: str, program: WebGpuProgram) -> None:
        if program.released:
            raise released(doing)
        self._check_open(doing)
