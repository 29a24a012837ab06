"""WGSL on a GPU port: the one place where `kernels` and `gpu` meet.

`prepare` turns each step into launches, makes pipelines, buffers and one command list;
a run writes the inputs, submits the list once and reads all outputs back at once. It
knows neither wgpu-py nor a browser: only the nine verbs of the port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rlxweb.backends.protocol import (
    Array,
    Backend,
    Feeds,
    Program,
    Resident,
    own,
    released,
)
from rlxweb.backends.timed import Timed
from rlxweb.backends.webgpu_batches import Batches
from rlxweb.backends.webgpu_bindings import BoundWork
from rlxweb.backends.webgpu_buffers import Params, free, freed_with, stored_bytes, write
from rlxweb.backends.webgpu_narrow import NARROWER, fed
from rlxweb.backends.webgpu_pipelines import Pipelines, Trusts
from rlxweb.backends.webgpu_program import (
    Packed,
    ProgramBuilder,
    Spot,
    WebGpuProgram,
    check_fault,
    param_type,
)
from rlxweb.backends.webgpu_recipes import Recipes, assumed_gate, hardware_of
from rlxweb.backends.webgpu_residents import BufferResident, Residents, copies_into
from rlxweb.backends.webgpu_timed import timed_run
from rlxweb.backends.webgpu_trips import WebGpuTrips
from rlxweb.backends.webgpu_warm import Warm
from rlxweb.compile.plan import Plan
from rlxweb.compile.target import Target
from rlxweb.cost.race import Race
from rlxweb.errors import DeviceLost, SessionClosed
from rlxweb.gpu.drive import can_wait
from rlxweb.gpu.port import Copy, Port, Range
from rlxweb.ir.dtype import NARROW, DType
from rlxweb.ir.op import Attrs, Op, TensorType, Types
from rlxweb.limits import Limits
from rlxweb.recipes.variants import COPIES, VARIANTS, CopyVariant, Variant

UNWAITED = 64
"""Runs of which nothing comes back that may be on their way; more wait their turn."""

TOGETHER = 16
"""Runs of one submission where a program is repeated."""


class WebGpuBackend(Backend):
    """WGSL on one port. Owns the port: `close` closes it.

    trusts    which shaders of this package are compiled without checks at run time:
              those that say they stay inside, all or none. WGSL of callers is checked
    pipelines those of another engine on the port; what either makes serves both
    overlaps  whether the next run of a job is handed over before the last is read;
              None: outside a browser
    """

    # Said of each instance; the class must have them to be an engine.
    name = adapter = ""
    waits = True

    def __init__(
        self,
        port: Port,
        *,
        limits: Limits | None = None,
        variants: Sequence[Variant] = VARIANTS,
        copies: Sequence[CopyVariant] = COPIES,
        trusts: Trusts = "proven",
        overlaps: bool | None = None,
        pipelines: Pipelines | None = None,
    ) -> None:
        self.port = port
        self.facts = facts = port.facts
        self.name, self.adapter = f"{facts.name} ({facts.backend})", facts.name
        self.api, self.driver, self.vendor = facts.backend, facts.driver, facts.vendor
        self.software, self.compiler = facts.software, port.compiler
        self.limits = facts.limits.lowest(limits) if limits else facts.limits
        self.recipes = Recipes(hardware_of(facts, self.limits), variants, copies)
        if pipelines is None:
            pipelines = Pipelines(port, trusts=trusts)
        self.pipelines = shared = pipelines
        self._warm = Warm(port, shared.warmed)
        # In a tab every wait is a turn of its event loop, and none was measured yet.
        self.overlaps = facts.backend != "webgpu" if overlaps is None else overlaps
        self._programs, self._builders = shared.programs, shared.builders
        self.closed = False
        # Buffers of programs that were dropped without `release`. The collector may
        # run at any moment, so it only notes them; they are freed at the next call.
        self._dropped: deque[list[int]] = deque()
        self._residents = Residents(self, port, self.limits, self._dropped)
        self._unwaited = 0

    @property
    def lost(self) -> str:
        return self.port.lost

    @property
    def target(self) -> Target:
        half = {DType.F16} if "shader-f16" in self.facts.features else set()
        return Target(
            name=self.name,
            dtypes=frozenset({DType.F32, DType.I32, DType.U32, DType.BOOL} | half),
            stores=NARROW,
            joins=self.recipes.native,
            native=self.recipes.native,
            refusal=self.recipes.refusal,
            launches=self.recipes.launch_count,
            extra_bytes=self.recipes.extra_bytes,
            finishes=self.recipes.finishes,
            line_length=self.recipes.line_length,
            gate=assumed_gate(),
            max_operands=self.limits.max_storage_buffers_per_shader_stage,
            limits=self.limits,
            features=self.facts.features,
            narrower=NARROWER,
        )

    async def prepare(self, plan: Plan, params: Params | None = None) -> WebGpuProgram:
        self._check_open("prepare a plan")
        self._free_dropped()
        self.pipelines.trim()
        get = self.pipelines.get
        if params is None:
            params = Params()
            freed_with(params, params.owned, self._dropped)
        builder = ProgramBuilder(
            self, self.port, self.limits, self.recipes, plan, get, params
        )
        self._builders.append(builder)
        try:
            program = await builder.build()
            await self._warm.up(program)
            self._programs.add(program)
        except BaseException:
            builder.abandon()
            raise
        finally:
            self._builders.remove(builder)
        freed_with(program, program.owned, self._dropped)
        params.users += 1
        return program

    async def prepare_beside(self, plan: Plan, other: Program) -> WebGpuProgram:
        beside = own(self, WebGpuProgram, other)
        # What is looked through when it is given is looked through for each plan.
        is_checked = plan.given.keys() & plan.graph.named("param").keys()
        return await self.prepare(plan, None if is_checked else beside.params)

    def _free_dropped(self) -> None:
        while self._dropped:
            free(self.port, self._dropped.popleft())

    async def set_param(self, program: Program, name: str, value: Array) -> None:
        program = own(self, WebGpuProgram, program)
        doing = f"set param '{name}'"
        async with program.turn:
            self._check_usable(doing, program)
            handle = program.params.handles.get(name)
            if handle is not None:  # else it is of no type of ours and never read
                write(self.port, handle, fed(program.plan, name, value))

    async def get_param(self, program: Program, name: str) -> Array:
        program = own(self, WebGpuProgram, program)
        doing, kind = f"get param '{name}'", param_type(program, name)
        async with program.turn:
            self._check_usable(doing, program)
            handle = program.params.handles[name]
            raw = await self.port.read(handle, 0, stored_bytes(kind))
        return Spot(0, kind).take(raw)

    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        program = own(self, WebGpuProgram, program)
        doing = f"run '{program.plan.graph.name}' on {self.name}"
        async with program.turn:
            self._check_usable(doing, program)
            self._free_dropped()
            self._write(program, feeds)
            self.port.submit(program.commands)
            return await self._outputs(doing, program, program.readback)

    async def timed(self, program: Program, feeds: Mapping[str, Array]) -> Timed:
        program = own(self, WebGpuProgram, program)
        doing = f"profile '{program.plan.graph.name}' on {self.name}"

        async with program.turn:
            self._check_usable(doing, program)
            self._free_dropped()
            outputs = partial(self._outputs, doing, program, program.readback)
            return await timed_run(
                self.port, program, partial(self._write, program, feeds), outputs
            )

    def _write(self, program: WebGpuProgram, feeds: Mapping[str, Array]) -> None:
        for name, handle in program.inputs.items():
            write(self.port, handle, fed(program.plan, name, feeds[name]))

    async def _outputs(
        self, doing: str, program: WebGpuProgram, readback: int
    ) -> list[Array]:
        raw = await self.port.read(readback, 0, program.readback_bytes)
        check_fault(doing, raw, program.fault_at)
        return [spot.take(raw) for spot in program.outputs]

    async def run_each(
        self,
        program: Program,
        feeds: Iterable[Mapping[str, Array]],
        take: Callable[[list[Array]], object],
    ) -> None:
        """Where runs overlap, with two sets of buffers while there is more than one."""
        if not self.overlaps:
            return await super().run_each(program, feeds, take)
        program = own(self, WebGpuProgram, program)
        doing = f"run '{program.plan.graph.name}' on {self.name}"
        async with program.turn:
            self._check_usable(doing, program)
            self._free_dropped()
            owned: list[int] = []
            outputs = partial(self._outputs, doing, program)
            batches = Batches(self.port, self.limits, program, outputs, owned)
            try:
                await batches.run(feeds, take)
            finally:
                if not self.closed:
                    free(self.port, owned)

    async def run_resident(
        self, program: Program, feeds: Feeds, keep: Sequence[bool]
    ) -> list[Array | Resident]:
        """Inputs that lie here are bound or copied; what stays is copied out.

        Nothing is waited for unless something comes back, or an index has to be proved
        right.
        """
        program = own(self, WebGpuProgram, program)
        doing = f"run '{program.plan.graph.name}' on {self.name}"
        async with program.turn:
            self._check_usable(doing, program)
            self._free_dropped()
            kinds = [spot.type for spot in program.outputs]
            returned = program.plan.returned or (None,) * len(kinds)
            with self._residents.steady:
                fed, bound = self._feed(doing, program, feeds)
                every = list(zip(kinds, bound.sources, keep, strict=True))
                back = [(kind, source) for kind, source, stays in every if not stays]
                packed = Packed.of(back, program.fault)
                stay = [
                    self._residents.made(k, held) if stays else None
                    for (k, _, stays), held in zip(every, returned, strict=True)
                ]
                out = copies_into(stay, bound.sources)
                lists = fed, bound.work, out + packed.copies(program.readback)
                self.port.submit(*filter(None, lists))
            raw = await self._answer(program, packed)
        check_fault(doing, raw, packed.fault_at)
        came = iter([spot.take(raw) for spot in packed.spots])
        return [next(came) if one is None else one for one in stay]

    def _feed(
        self, doing: str, program: WebGpuProgram, feeds: Feeds
    ) -> tuple[list[Copy], BoundWork]:
        """Writes what comes from the host; copies of what is here, the work over it."""
        lying = {}
        for name, handle in program.inputs.items():
            one = feeds[name]
            if isinstance(one, Resident):
                lying[handle] = self._residents.fed(doing, program.plan, name, one)
            else:
                write(self.port, handle, fed(program.plan, name, one))
        return program.bindings.over(lying)

    async def _answer(self, program: WebGpuProgram, packed: Packed) -> memoryview:
        """What comes back. Where nothing does, only some runs are waited for."""
        self._unwaited += 1
        nbytes = packed.nbytes if packed.spots or packed.sources else 0
        if nbytes or (self._unwaited >= UNWAITED and can_wait()):
            self._unwaited = 0
            return await self.port.read(program.readback, 0, nbytes)
        return memoryview(b"")

    async def repeat(self, program: Program, feeds: Feeds, times: int) -> None:
        program = own(self, WebGpuProgram, program)
        doing = f"repeat '{program.plan.graph.name}' on {self.name}"
        async with program.turn:
            self._check_usable(doing, program)
            self._free_dropped()
            with self._residents.steady:
                fed, bound = self._feed(doing, program, feeds)
                self.port.submit(*filter(None, (fed,)))
                # A few a submission: the device works while the next are encoded.
                for at in range(0, times, TOGETHER):
                    self.port.submit(*[bound.work] * min(TOGETHER, times - at))
                for source in bound.sources[:1]:
                    if source is not None:  # a word of it comes after all work
                        word = Range(source.handle, source.offset, 4)
                        self.port.submit([Copy(word, program.readback)])
            await self.port.read(program.readback, 0, 4)

    async def set_param_resident(
        self, program: Program, name: str, value: Resident
    ) -> None:
        program = own(self, WebGpuProgram, program)
        doing = f"set param '{name}'"
        async with program.turn:
            self._check_usable(doing, program)
            with self._residents.steady:
                handle = program.params.handles[name]
                span = self._residents.fed(doing, program.plan, name, value).span
                self.port.submit([Copy(span, handle)] if span.nbytes else [])

    def holds(self, resident: Resident) -> bool:
        return isinstance(resident, BufferResident) and resident.port is self.port

    async def put(self, array: Array) -> BufferResident:
        self._check_open(f"put an array on {self.name}")
        self._free_dropped()
        return self._residents.put(array)

    async def get(self, resident: Resident) -> Array:
        doing = f"get an array from {self.name}"
        self._check_open(doing)
        return await self._residents.get(doing, resident)

    async def free(self, resident: Resident) -> None:
        if not self.closed:
            self._residents.free(resident)
            self._free_dropped()

    async def part(
        self, resident: Resident, first: int, shape: tuple[int, ...]
    ) -> BufferResident:
        doing = f"part of an array on {self.name}"
        return self._residents.part(doing, resident, first, shape)

    def lend(self, resident: Resident, copy: bool = False) -> None:
        return None

    async def release(self, program: Program) -> None:
        mine = own(self, WebGpuProgram, program)
        async with mine.turn:
            mine.params.users -= not mine.released
            mine.released = True
            if not self.closed:
                free(self.port, mine.owned)
                if not mine.params.users:
                    free(self.port, mine.params.owned)
                self._programs.discard(mine)
                self._free_dropped()

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.pipelines.forget()
            await self.port.close()

    async def trips(self) -> WebGpuTrips:
        return await WebGpuTrips.on(self.port)

    def variants_for(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        return self.recipes.ways(op, inputs, out, attrs)

    def rivals(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        return self.recipes.rivals(op, inputs, out, attrs)

    def prefer(self, races: Sequence[Race]) -> None:
        self.recipes.prefer(races)

    def forced(self, variant: str) -> Backend:
        of = self.recipes
        rows = [v for v in of.rows if v.name == variant and v.is_open(of.hardware)]
        copies = [v for v in of.copies if v.name == variant]
        if variant and not rows and not copies:
            return super().forced(variant)
        return self._beside(limits=self.limits, variants=rows, copies=copies)

    def limited(self, limits: Limits) -> WebGpuBackend:
        return self._beside(limits=limits)

    def _beside(self, **how: Any) -> WebGpuBackend:
        return WebGpuBackend(self.port, pipelines=self.pipelines, **how)

    def _check_open(self, doing: str) -> None:
        if self.closed and self.lost:
            raise DeviceLost(doing, f"{self.name} was lost ({self.lost})")
        if self.closed:
            raise SessionClosed(doing, f"{self.name} was closed")

    def _check_usable(self, doing: str, program: WebGpuProgram) -> None:
        if program.released:
            raise released(doing)
        self._check_open(doing)
