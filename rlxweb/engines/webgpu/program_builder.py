"""Builder of WebGPU programs: buffers, pipelines, uniforms and the command list of a
plan.

Everything a run needs is made here once. Slots become storage buffers, every launch's
uniforms lie in one buffer, all outputs are packed into one read-back buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from rlxweb.codegen.elementwise_wgsl import region_dispatch
from rlxweb.codegen.kernel_launch_records import (
    BoundOperand,
    ComputeShader,
    KernelLaunch,
    MergedOperands,
    build_launches,
    element_nbytes,
)
from rlxweb.compiler.plan import Plan, PlanOperand, PlanStep
from rlxweb.core.errors import RlxError, Unsupported
from rlxweb.core.limits import Limits
from rlxweb.engines.protocol import Array
from rlxweb.engines.webgpu.buffers import (
    ParamBuffers,
    as_stored,
    checked_buffer_bytes,
    free_handles,
    stored_bytes,
    write_buffer,
)
from rlxweb.engines.webgpu.dtype_demotion import demoted_dtype
from rlxweb.engines.webgpu.input_bindings import BoundCommands, InputBindings
from rlxweb.engines.webgpu.kernel_selection import KernelSelector
from rlxweb.engines.webgpu.program import ReadbackLayout, WebGpuProgram
from rlxweb.gpu.port_protocol import (
    BufferClear,
    BufferCopy,
    BufferRange,
    BufferUsage,
    Command,
    Dispatch,
    GpuPort,
)
from rlxweb.ir.graph import Node
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import BufferRef, ConcatLowering, KernelDispatch
from rlxweb.ir.op import TensorType, registry

if TYPE_CHECKING:
    from rlxweb.engines.webgpu.engine import WebGpuEngine


@dataclass(slots=True)
class _PendingLaunch:
    """Launch whose operands' buffers are found, waiting for its uniforms."""

    launch: KernelLaunch
    pipeline: int
    resolve_buffer: Callable[[BufferRef], tuple[int, int]]
    step: PlanStep


@dataclass(slots=True, eq=False)
class WebGpuProgramBuilder:
    """Builder of one program: call `build` once, and `abandon` if that failed.

    params  where they lie; those of another program that they are shared with
    """

    engine: WebGpuEngine
    port: GpuPort
    limits: Limits
    kernel_selector: KernelSelector
    plan: Plan
    get_pipeline: Callable[[ComputeShader, set[int], bool], Awaitable[int]]
    params: ParamBuffers = field(default_factory=ParamBuffers)
    claimed_pipelines: set[int] = field(default_factory=set)
    input_handles: dict[str, int] = field(default_factory=dict)
    value_handles: dict[int, int] = field(default_factory=dict)
    buffer_sizes: dict[int, int] = field(default_factory=dict)
    scratch_handles: list[int] = field(default_factory=list)
    scratch_bytes: list[int] = field(default_factory=list)
    kernel_variants: dict[int, str] = field(default_factory=dict)
    pending_launches: list[_PendingLaunch] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    commands_by_step: dict[int, list[Command]] = field(
        default_factory=lambda: defaultdict(list)
    )
    fault_handle: int | None = None

    def _create_buffer(
        self, nbytes: int, usage: BufferUsage, purpose: object, *, is_fed: bool = False
    ) -> int:
        """Create a buffer and note its size; `purpose` is named in an error."""
        nbytes = checked_buffer_bytes(nbytes, self.limits, purpose)
        handle = self.port.create_buffer(nbytes, usage, is_host_written=is_fed)
        self.buffer_sizes[handle] = nbytes
        return handle

    def _upload(self, array: Array, purpose: object) -> int:
        """Create a buffer that holds an array."""
        stored = as_stored(array)
        handle = self._create_buffer(stored.nbytes, "storage", purpose)
        write_buffer(self.port, handle, stored)
        return handle

    def _create_leaf_buffers(self) -> None:
        """Create the buffers of inputs, params and constants."""
        used_ids = {
            operand.value for step in self.plan.steps for operand in step.inputs
        }
        used_ids |= {operand.value for operand in self.plan.outputs}
        for node in self.plan.graph.nodes():
            if node.op == "input":
                size = stored_bytes(node.type)
                handle = self._create_buffer(size, "storage", node, is_fed=True)
                self.input_handles[node.name] = self.value_handles[node.id] = handle
            elif node.op == "param":
                self.value_handles[node.id] = self._param_buffer(node)
            elif node.op == "constant" and node.id in used_ids:
                array = node.attrs["value"].array
                self.value_handles[node.id] = self._upload(array, node)

    def _param_buffer(self, node: Node) -> int:
        """Return the buffer of a param, shared with other programs or new."""
        params = self.params
        handle = params.handles.get(node.name)
        if handle is None:
            handle = self._create_buffer(stored_bytes(node.type), "storage", node)
            params.handles[node.name] = handle
            params.buffer_sizes[handle] = self.buffer_sizes[handle]
            params.owned_handles.append(handle)
        self.buffer_sizes[handle] = params.buffer_sizes[handle]
        return handle

    async def build(self) -> WebGpuProgram:
        """Build the program. Errors  those of buffers and pipelines."""
        self._create_leaf_buffers()
        slots = [
            self._create_buffer(n, "storage", f"slot {i} of '{self.plan.graph.name}'")
            for i, n in enumerate(self.plan.slot_bytes)
        ]
        for value, slot in self.plan.slots.items():
            self.value_handles[value] = slots[slot]
        for step in self.plan.steps:
            try:
                await self._add_step(step)
            except RlxError as error:
                error.doing = f"step {step.label} ({error.doing})"
                raise
        self._encode_commands()
        return self._make_program()

    async def _add_step(self, step: PlanStep) -> None:
        """Queue the launches of a step."""
        out = self.plan.types[step.output]
        if out.numel == 0:
            return
        if step.kind == "kernel":
            await self._add_kernel(step)
        elif step.kind == "region":
            layouts = (o.layout for o in step.inputs)
            reads = list(zip(step.reads, layouts, strict=True))
            allow_wide = len(reads) < self.limits.max_storage_buffers_per_shader_stage
            dispatch = region_dispatch(
                self.plan.graph, step.nodes, reads, allow_vec4=allow_wide
            )
            await self._add_dispatch(step, dispatch, step.inputs)
        elif step.kind == "lines":
            dispatch = self.kernel_selector.line_dispatch(self.plan.graph, step)
            await self._add_dispatch(step, dispatch, step.inputs)
        elif step.kind == "copy":
            layout = Layout.dense(out.shape)
            dispatch = self.kernel_selector.copy_dispatch(
                step.inputs[0].layout, layout, out.dtype
            )
            await self._add_dispatch(step, dispatch, step.inputs)
        else:
            await self._add_join(step)

    async def _add_join(self, step: PlanStep) -> None:
        """Queue the copies that lay operands side by side."""
        node = self.plan.graph.node(step.nodes[0])
        lowering = registry.get(node.op).lower
        if not isinstance(lowering, ConcatLowering):
            raise Unsupported(str(node), "the step is not a concat")
        shapes = [o.layout.shape for o in step.inputs]
        target_layouts = lowering.part_layouts(
            Layout.dense(node.type.shape), shapes, node.attrs
        )
        for operand, target in zip(step.inputs, target_layouts, strict=True):
            if 0 not in target.shape:
                dispatch = self.kernel_selector.copy_dispatch(
                    operand.layout, target, node.type.dtype
                )
                await self._add_dispatch(step, dispatch, (operand,))

    async def _add_dispatch(
        self, step: PlanStep, dispatch: KernelDispatch, operands: Sequence[PlanOperand]
    ) -> None:
        """Queue the launches of a generated kernel over these operands."""
        dtypes = [self.plan.types[o.value].dtype for o in operands]
        dtypes.append(self.plan.types[step.output].dtype)

        def resolve_buffer(ref: BufferRef) -> tuple[int, int]:
            value_id = step.output if ref.kind == "out" else operands[ref.index].value
            return self.value_handles[value_id], 0

        for launch in build_launches(dispatch, dtypes, self.limits):
            await self._queue_launch(launch, resolve_buffer, step)

    async def _add_kernel(self, step: PlanStep) -> None:
        """Queue the launches of an op's kernel, with its tables and scratch buffers."""
        graph = self.plan.graph
        node = graph.node(step.nodes[0])
        kernel = self.kernel_selector.select_for_step(graph, step)
        if kernel is None:
            raise Unsupported(str(node), "no kernel of this op fits the device")
        if kernel.variant != node.op:
            self.kernel_variants[node.id] = kernel.variant
        name = f"table of {step.label}"
        tables = [self._upload(table, name) for table in kernel.kernel_plan.tables]
        sizes = [buffer.numel * 4 for buffer in kernel.kernel_plan.scratch]
        size_pairs = zip_longest(self.scratch_bytes, sizes, fillvalue=0)
        self.scratch_bytes = [max(pair) for pair in size_pairs]

        def resolve_buffer(ref: BufferRef) -> tuple[int, int]:
            if ref.kind == "table":
                return tables[ref.index], 0
            if ref.kind == "scratch":
                return self.scratch_handles[
                    ref.index
                ], 0  # made when all sizes are known
            if ref.kind == "out":
                return self.value_handles[step.output], 0
            operand = step.inputs[ref.index]
            width = element_nbytes(self.plan.types[operand.value].dtype)
            return self.value_handles[operand.value], operand.layout.offset * width

        for launch in kernel.launches:
            await self._queue_launch(launch, resolve_buffer, step)

    async def _queue_launch(
        self,
        launch: KernelLaunch,
        resolve_buffer: Callable[[BufferRef], tuple[int, int]],
        step: PlanStep,
    ) -> None:
        """Get a launch's pipeline and queue the launch until its uniforms are
        packed.
        """
        ops = {self.plan.graph.node(i).op for i in step.nodes}
        is_own_shader = all(registry.is_builtin(op) for op in ops)
        handle = await self.get_pipeline(
            launch.shader, self.claimed_pipelines, is_own_shader
        )
        self.pending_launches.append(
            _PendingLaunch(launch, handle, resolve_buffer, step)
        )

    def _encode_commands(self) -> None:
        """Create the shared buffers, pack all uniforms and append the commands."""
        for nbytes in self.scratch_bytes:
            self.scratch_handles.append(
                self._create_buffer(nbytes, "storage", "scratch")
            )
        bindings = (
            bound
            for pending in self.pending_launches
            for bound in pending.launch.bindings
        )
        max_gathered_bytes = max(
            (b.nbytes for b in bindings if isinstance(b, MergedOperands)), default=0
        )
        gather_handle = (
            self._create_buffer(max_gathered_bytes, "storage", "merged operands")
            if max_gathered_bytes
            else 0
        )
        if any(p.launch.reports_faults for p in self.pending_launches):
            self.fault_handle = self._create_buffer(4, "storage", "fault flag")
            self.commands.append(BufferClear(BufferRange(self.fault_handle, 0, 4)))
        alignment = self.limits.min_uniform_buffer_offset_alignment
        uniform_bytes, spans = bytearray(), []
        for pending in self.pending_launches:
            spans.append((len(uniform_bytes), len(pending.launch.uniforms)))
            uniform_bytes += pending.launch.uniforms
            uniform_bytes += bytes(-len(uniform_bytes) % alignment)
        if not self.pending_launches:
            return
        uniforms = self._create_buffer(len(uniform_bytes), "uniform", "uniforms")
        for pending, span in zip(self.pending_launches, spans, strict=True):
            first_command = len(self.commands)
            self._encode_dispatch(pending, BufferRange(uniforms, *span), gather_handle)
            self.commands_by_step[pending.step.output] += self.commands[first_command:]
        self.port.write(uniforms, 0, memoryview(uniform_bytes))

    def _encode_dispatch(
        self, pending: _PendingLaunch, uniform: BufferRange, gather_handle: int
    ) -> None:
        """Append the commands of one launch."""
        ranges: list[BufferRange] = []
        for bound in pending.launch.bindings:
            if isinstance(bound, MergedOperands):
                for part, offset in bound.parts:
                    self.commands.append(
                        BufferCopy(
                            self._bound_range(pending, part), gather_handle, offset
                        )
                    )
                ranges.append(BufferRange(gather_handle, 0, bound.nbytes))
            else:
                ranges.append(self._bound_range(pending, bound))
        if pending.launch.reports_faults and self.fault_handle is not None:
            ranges.append(BufferRange(self.fault_handle, 0, 4))
        label = pending.step.label
        self.commands.append(
            Dispatch(pending.pipeline, (*ranges, uniform), pending.launch.grid, label)
        )

    def _bound_range(self, pending: _PendingLaunch, bound: BoundOperand) -> BufferRange:
        """Return the buffer range that a launch binds, cut off at the buffer's end."""
        handle, offset = pending.resolve_buffer(bound.ref)
        start = offset + bound.offset
        # A piece's span may reach past the last element; never past the buffer.
        return BufferRange(
            handle, start, min(bound.nbytes, self.buffer_sizes[handle] - start)
        )

    def _make_program(self) -> WebGpuProgram:
        """Return the finished program, with the read-back copies at the end."""
        types = [
            TensorType(
                operand.layout.shape,
                value_range.dtype
                if value_range
                else self.plan.types[operand.value].dtype,
            )
            for operand, value_range in zip_longest(
                self.plan.outputs, self.plan.demoted_outputs
            )
        ]
        sources = [
            self._output_range(operand, tensor_type)
            for operand, tensor_type in zip(self.plan.outputs, types, strict=True)
        ]
        outputs = list(zip(types, sources, strict=True))
        layout = ReadbackLayout.pack(outputs, self.fault_handle)
        readback_handle = self._create_buffer(layout.nbytes, "readback", "results")
        return WebGpuProgram(
            plan=self.plan,
            engine=self.engine,
            kernel_variants=self.kernel_variants,
            commands=(*self.commands, *layout.copy_commands(readback_handle)),
            bindings=self._make_bindings(sources),
            step_commands=tuple(
                tuple(self.commands_by_step[step.output]) for step in self.plan.steps
            ),
            input_handles=self.input_handles,
            params=self.params,
            pipelines=frozenset(self.claimed_pipelines),
            owned_handles=self._own_handles(),
            nbytes=sum(self.buffer_sizes.values()),
            params_nbytes=sum(self.params.buffer_sizes.values()),
            readback_handle=readback_handle,
            readback_bytes=layout.nbytes,
            outputs=layout.locations,
            fault_handle=self.fault_handle,
            fault_offset=layout.fault_offset,
        )

    def _make_bindings(self, sources: Sequence[BufferRange | None]) -> InputBindings:
        """Return the bindings of the program's commands."""
        default = BoundCommands(tuple(self.commands), tuple(sources))
        alignment = self.limits.min_storage_buffer_offset_alignment
        return InputBindings(default, self.input_handles.values(), alignment)

    def _output_range(
        self, operand: PlanOperand, tensor_type: TensorType
    ) -> BufferRange | None:
        """Return the buffer range of an output after the commands, in whole words."""
        nbytes = -(-stored_bytes(tensor_type) // 4) * 4
        start = operand.layout.offset * element_nbytes(demoted_dtype(tensor_type.dtype))
        return (
            BufferRange(self.value_handles[operand.value], start, nbytes)
            if nbytes
            else None
        )

    def abandon(self) -> None:
        """Free the buffers that were created before building failed."""
        free_handles(self.port, self._own_handles())
        if not self.params.user_count:
            free_handles(self.port, self.params.owned_handles)

    def _own_handles(self) -> list[int]:
        """Return the buffers that are not shared with other programs."""
        return [
            handle
            for handle in self.buffer_sizes
            if handle not in self.params.buffer_sizes
        ]
