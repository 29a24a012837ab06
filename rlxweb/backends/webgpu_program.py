"""Builds the command list of a plan: buffers, pipelines, uniforms, copies, read-back.

Everything a run needs is made here once. Slots become storage buffers, every launch's
uniforms lie in one buffer, all outputs are packed into one read-back buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from rlxweb.advice import Advice
from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.backends.webgpu_bindings import Bindings, BoundWork
from rlxweb.backends.webgpu_buffers import (
    Params,
    as_stored,
    buffer_bytes,
    free,
    stored_bytes,
    write,
)
from rlxweb.backends.webgpu_narrow import held_as, widened
from rlxweb.backends.webgpu_recipes import Recipes
from rlxweb.compile.plan import Operand, Plan, Step
from rlxweb.errors import IndexRefused, RlxError, Unsupported
from rlxweb.gpu.port import Clear, Command, Copy, Dispatch, Port, Range, Usage
from rlxweb.gpu.turns import Turn
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Call, Join, Ref
from rlxweb.ir.op import TensorType, registry
from rlxweb.kernels.expression import region_call
from rlxweb.kernels.launch import Bound, Gathered, Launch, Shader, launches, width_of
from rlxweb.limits import Limits


def check_fault(doing: str, raw: memoryview, at: int | None) -> None:
    """The flag that kernels raise for an index. Errors  IndexRefused."""
    if at is not None and np.frombuffer(raw, np.uint32, 1, at)[0]:
        raise IndexRefused(
            doing,
            "an index lies outside its table",
            "an index is below the number of rows, and no further back than the first",
            Advice("check the index array; {} names the position", device="cpu"),
        )


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one output lies in the read-back buffer."""

    offset: int
    type: TensorType

    def take(self, raw: memoryview) -> Array:
        """The output as an array over the bytes just read (they are ours)."""
        kind = self.type
        is_truth, held = kind.dtype is DType.BOOL, held_as(kind.dtype).numpy
        stored = np.uint32 if is_truth else held
        flat = np.frombuffer(raw, stored, kind.numel, self.offset)
        flat = flat != 0 if is_truth else widened(flat, kind.dtype.numpy)
        return flat.reshape(kind.shape)


@dataclass(frozen=True, slots=True)
class Packed:
    """How outputs and the flag of a refused index lie in the read-back buffer."""

    spots: tuple[Spot, ...]
    sources: tuple[tuple[Range, int], ...]
    fault_at: int | None
    nbytes: int

    @classmethod
    def of(
        cls, wanted: Sequence[tuple[TensorType, Range | None]], fault: int | None
    ) -> Packed:
        """One after the other, each from a multiple of 16 bytes on."""
        spots, sources, filled, fault_at = [], [], 0, None
        for kind, source in wanted:
            spots.append(Spot(filled, kind))
            if source is not None:
                sources.append((source, filled))
                filled += -(-source.nbytes // 16) * 16
        if fault is not None:
            fault_at = filled
            sources.append((Range(fault, 0, 4), filled))
            filled += 16
        return cls(tuple(spots), tuple(sources), fault_at, max(filled, 16))

    def copies(self, readback: int) -> list[Copy]:
        """What fills the read-back buffer."""
        return [Copy(source, readback, at) for source, at in self.sources]


@dataclass(slots=True, weakref_slot=True, eq=False)
class WebGpuProgram(Program):
    """A prepared plan on one port.

    commands  all of a run: the work, and every output into the read-back buffer
    bindings  the work without these copies, and over which arrays
    steps     the work by the steps of the plan; before them stands what begins a run
    fault     the buffer of the flag that an index was refused, and where it is read
    """

    plan: Plan
    engine: Backend
    commands: tuple[Command, ...]
    bindings: Bindings
    steps: tuple[tuple[Command, ...], ...]
    inputs: dict[str, int]
    pipelines: frozenset[int]
    owned: list[int]
    readback: int
    readback_bytes: int
    outputs: tuple[Spot, ...]
    fault: int | None
    fault_at: int | None
    nbytes: int = 0
    params_nbytes: int = 0
    params: Params = field(default_factory=Params)
    turn: Turn = field(default_factory=Turn)
    released: bool = False


def param_type(program: WebGpuProgram, name: str) -> TensorType:
    """What a param is."""
    return program.plan.graph.named("param")[name].type


@dataclass(slots=True)
class _Pending:
    """A launch with its operands' buffers found, waiting for its uniforms."""

    launch: Launch
    pipeline: int
    find: Callable[[Ref], tuple[int, int]]
    step: Step


@dataclass(slots=True, eq=False)
class ProgramBuilder:
    """One use: `build` (or `abandon` when that broke).

    params  where they lie; those of another program that they are shared with
    """

    engine: Backend
    port: Port
    limits: Limits
    recipes: Recipes
    plan: Plan
    pipeline: Callable[[Shader, set[int], bool], Awaitable[int]]
    params: Params = field(default_factory=Params)
    claimed: set[int] = field(default_factory=set)
    inputs: dict[str, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    scratch: list[int] = field(default_factory=list)
    scratch_bytes: list[int] = field(default_factory=list)
    pending: list[_Pending] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    by_step: dict[int, list[Command]] = field(default_factory=lambda: defaultdict(list))
    fault: int | None = None

    def _buffer(
        self, nbytes: int, usage: Usage, what: str, *, is_fed: bool = False
    ) -> int:
        nbytes = buffer_bytes(nbytes, self.limits, what)
        handle = self.port.buffer(nbytes, usage, is_fed=is_fed)
        self.sizes[handle] = nbytes
        return handle

    def _upload(self, array: Array, what: str) -> int:
        stored = as_stored(array)
        handle = self._buffer(stored.nbytes, "storage", what)
        write(self.port, handle, stored)
        return handle

    def _leaves(self) -> None:
        read = {o.value for s in self.plan.steps for o in s.inputs}
        read |= {o.value for o in self.plan.outputs}
        for node in self.plan.graph.nodes():
            if node.op == "input":
                size = stored_bytes(node.type)
                handle = self._buffer(size, "storage", str(node), is_fed=True)
                self.inputs[node.name] = self.values[node.id] = handle
            elif node.op == "param":
                self.values[node.id] = self._param(node)
            elif node.op == "constant" and node.id in read:
                array = node.attrs["value"].array
                self.values[node.id] = self._upload(array, str(node))

    def _param(self, node: Node) -> int:
        params = self.params
        handle = params.handles.get(node.name)
        if handle is None:
            handle = self._buffer(stored_bytes(node.type), "storage", str(node))
            params.handles[node.name] = handle
            params.sizes[handle] = self.sizes[handle]
            params.owned.append(handle)
        self.sizes[handle] = params.sizes[handle]
        return handle

    async def build(self) -> WebGpuProgram:
        """Everything made and in order. Errors  those of buffers and pipelines."""
        self._leaves()
        slots = [
            self._buffer(n, "storage", f"slot {i} of '{self.plan.graph.name}'")
            for i, n in enumerate(self.plan.slot_bytes)
        ]
        for value, slot in self.plan.slots.items():
            self.values[value] = slots[slot]
        for step in self.plan.steps:
            try:
                await self._step(step)
            except RlxError as error:
                error.doing = f"step {step.label} ({error.doing})"
                raise
        self._encode()
        return self._program()

    async def _step(self, step: Step) -> None:
        out = self.plan.types[step.output]
        if out.numel == 0:
            return
        if step.kind == "kernel":
            await self._kernel(step)
        elif step.kind == "region":
            layouts = (o.layout for o in step.inputs)
            reads = list(zip(step.reads, layouts, strict=True))
            fits = len(reads) < self.limits.max_storage_buffers_per_shader_stage
            made = region_call(self.plan.graph, step.nodes, reads, allow_wide=fits)
            await self._generated(step, made, step.inputs)
        elif step.kind == "lines":
            made = self.recipes.along(self.plan.graph, step)
            await self._generated(step, made, step.inputs)
        elif step.kind == "copy":
            layout = Layout.dense(out.shape)
            made = self.recipes.copy(step.inputs[0].layout, layout, out.dtype)
            await self._generated(step, made, step.inputs)
        else:
            await self._join(step)

    async def _join(self, step: Step) -> None:
        node = self.plan.graph.node(step.nodes[0])
        lower = registry.get(node.op).lower
        if not isinstance(lower, Join):
            raise Unsupported(str(node), "it is not a join")
        shapes = [o.layout.shape for o in step.inputs]
        parts = lower.place(Layout.dense(node.type.shape), shapes, node.attrs)
        for operand, part in zip(step.inputs, parts, strict=True):
            if 0 not in part.shape:
                made = self.recipes.copy(operand.layout, part, node.type.dtype)
                await self._generated(step, made, (operand,))

    async def _generated(
        self, step: Step, made: Call, operands: Sequence[Operand]
    ) -> None:
        dtypes = [self.plan.types[o.value].dtype for o in operands]
        dtypes.append(self.plan.types[step.output].dtype)

        def find(ref: Ref) -> tuple[int, int]:
            at = step.output if ref.kind == "out" else operands[ref.index].value
            return self.values[at], 0

        for launch in launches(made, dtypes, self.limits):
            await self._queue(launch, find, step)

    async def _kernel(self, step: Step) -> None:
        graph = self.plan.graph
        node = graph.node(step.nodes[0])
        chosen = self.recipes.of_step(graph, step)
        if chosen is None:
            raise Unsupported(str(node), "no kernel of this op fits the device")
        name = f"table of {step.label}"
        tables = [self._upload(table, name) for table in chosen.recipe.tables]
        sizes = [one.numel * 4 for one in chosen.recipe.scratch]
        both = zip_longest(self.scratch_bytes, sizes, fillvalue=0)
        self.scratch_bytes = [max(pair) for pair in both]

        def find(ref: Ref) -> tuple[int, int]:
            if ref.kind == "table":
                return tables[ref.index], 0
            if ref.kind == "scratch":
                return self.scratch[ref.index], 0  # made when all sizes are known
            if ref.kind == "out":
                return self.values[step.output], 0
            operand = step.inputs[ref.index]
            width = width_of(self.plan.types[operand.value].dtype)
            return self.values[operand.value], operand.layout.offset * width

        for launch in chosen.launches:
            await self._queue(launch, find, step)

    async def _queue(
        self, launch: Launch, find: Callable[[Ref], tuple[int, int]], step: Step
    ) -> None:
        ops = {self.plan.graph.node(i).op for i in step.nodes}
        ours = all(registry.is_ours(op) for op in ops)
        handle = await self.pipeline(launch.shader, self.claimed, ours)
        self.pending.append(_Pending(launch, handle, find, step))

    def _encode(self) -> None:
        for nbytes in self.scratch_bytes:
            self.scratch.append(self._buffer(nbytes, "storage", "scratch"))
        every = (bound for one in self.pending for bound in one.launch.bindings)
        most = max((b.nbytes for b in every if isinstance(b, Gathered)), default=0)
        gather = self._buffer(most, "storage", "merged operands") if most else 0
        if any(p.launch.faults for p in self.pending):
            self.fault = self._buffer(4, "storage", "fault flag")
            self.commands.append(Clear(Range(self.fault, 0, 4)))
        align = self.limits.min_uniform_buffer_offset_alignment
        packed, spans = bytearray(), []
        for one in self.pending:
            spans.append((len(packed), len(one.launch.uniforms)))
            packed += one.launch.uniforms
            packed += bytes(-len(packed) % align)
        if not self.pending:
            return
        uniforms = self._buffer(len(packed), "uniform", "uniforms")
        for one, span in zip(self.pending, spans, strict=True):
            before = len(self.commands)
            self._dispatch(one, Range(uniforms, *span), gather)
            self.by_step[one.step.output] += self.commands[before:]
        self.port.write(uniforms, 0, memoryview(packed))

    def _dispatch(self, one: _Pending, uniform: Range, gather: int) -> None:
        ranges: list[Range] = []
        for bound in one.launch.bindings:
            if isinstance(bound, Gathered):
                for part, at in bound.parts:
                    self.commands.append(Copy(self._range(one, part), gather, at))
                ranges.append(Range(gather, 0, bound.nbytes))
            else:
                ranges.append(self._range(one, bound))
        if one.launch.faults and self.fault is not None:
            ranges.append(Range(self.fault, 0, 4))
        label = one.step.label
        self.commands.append(
            Dispatch(one.pipeline, (*ranges, uniform), one.launch.grid, label)
        )

    def _range(self, one: _Pending, bound: Bound) -> Range:
        handle, offset = one.find(bound.ref)
        start = offset + bound.offset
        # A piece's span may reach past the last element; never past the buffer.
        return Range(handle, start, min(bound.nbytes, self.sizes[handle] - start))

    def _program(self) -> WebGpuProgram:
        """The finished program, with the read-back copies at the end."""
        kinds = [
            TensorType(
                o.layout.shape, wide.dtype if wide else self.plan.types[o.value].dtype
            )
            for o, wide in zip_longest(self.plan.outputs, self.plan.returned)
        ]
        sources = [
            self._source(o, kind)
            for o, kind in zip(self.plan.outputs, kinds, strict=True)
        ]
        wanted = list(zip(kinds, sources, strict=True))
        packed = Packed.of(wanted, self.fault)
        readback = self._buffer(packed.nbytes, "readback", "results")
        return WebGpuProgram(
            plan=self.plan,
            engine=self.engine,
            commands=(*self.commands, *packed.copies(readback)),
            bindings=self._bindings(sources),
            steps=tuple(tuple(self.by_step[one.output]) for one in self.plan.steps),
            inputs=self.inputs,
            params=self.params,
            pipelines=frozenset(self.claimed),
            owned=self._own(),
            nbytes=sum(self.sizes.values()),
            params_nbytes=sum(self.params.sizes.values()),
            readback=readback,
            readback_bytes=packed.nbytes,
            outputs=packed.spots,
            fault=self.fault,
            fault_at=packed.fault_at,
        )

    def _bindings(self, sources: Sequence[Range | None]) -> Bindings:
        own = BoundWork(tuple(self.commands), tuple(sources))
        align = self.limits.min_storage_buffer_offset_alignment
        return Bindings(own, self.inputs.values(), align)

    def _source(self, operand: Operand, kind: TensorType) -> Range | None:
        """Where an output lies after the work, in whole words."""
        nbytes = -(-stored_bytes(kind) // 4) * 4
        start = operand.layout.offset * width_of(held_as(kind.dtype))
        return Range(self.values[operand.value], start, nbytes) if nbytes else None

    def abandon(self) -> None:
        """Free what was made before building broke."""
        free(self.port, self._own())
        if not self.params.users:
            free(self.port, self.params.owned)

    def _own(self) -> list[int]:
        """The buffers that are this program's alone."""
        return [handle for handle in self.sizes if handle not in self.params.sizes]
