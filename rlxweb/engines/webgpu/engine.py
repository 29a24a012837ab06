"""WGSL engine on a GPU port: the one place where `kernels` and `gpu` meet.

`prepare` turns each step into launches, makes pipelines, buffers and one command list;
a run writes the inputs, submits the list once and reads all outputs back at once. It
knows neither wgpu-py nor a browser: only the nine verbs of the port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rlxweb.compiler.plan import Plan
from rlxweb.compiler.target import Target
from rlxweb.core.errors import DeviceLost, SessionClosed
from rlxweb.core.limits import Limits
from rlxweb.cost.calibration_record import AutotuneResult
from rlxweb.engines.capabilities import (
    Measures,
    OutputCallback,
    Profiles,
    Repeats,
    SharesParams,
    Streams,
    TakesLimits,
    Tunes,
    run_in_turn,
    unknown_variant_error,
)
from rlxweb.engines.protocol import (
    Array,
    DeviceBuffer,
    EngineIdentity,
    Feeds,
    Program,
    closed_error,
    require_own_program,
)
from rlxweb.engines.timed_run_result import TimedRun
from rlxweb.engines.webgpu.buffers import (
    ParamBuffers,
    free_handles,
    free_when_collected,
    write_buffer,
)
from rlxweb.engines.webgpu.device_arrays import (
    WebGpuArrayStore,
    WebGpuDeviceBuffer,
    copies_into,
)
from rlxweb.engines.webgpu.dtype_demotion import DEMOTED_DTYPES, demote_input
from rlxweb.engines.webgpu.input_bindings import BoundCommands
from rlxweb.engines.webgpu.kernel_selection import (
    KernelSelector,
    assumed_fusion_gate,
    kernel_hardware,
)
from rlxweb.engines.webgpu.latency_probes import WebGpuLatencyProbes
from rlxweb.engines.webgpu.overlapped_runs import OverlappedRuns
from rlxweb.engines.webgpu.pipeline_cache import PipelineCache, TrustLevel
from rlxweb.engines.webgpu.program import (
    ReadbackLayout,
    WebGpuProgram,
    check_index_fault,
)
from rlxweb.engines.webgpu.program_builder import WebGpuProgramBuilder
from rlxweb.engines.webgpu.timed_run import time_program
from rlxweb.engines.webgpu.warm_up import PipelineWarmUp
from rlxweb.gpu.coroutine_runner import can_wait
from rlxweb.gpu.port_protocol import BufferCopy, BufferRange, GpuPort
from rlxweb.ir.dtype import PACKED_DTYPES, DType
from rlxweb.ir.op import Attrs, Op, TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant

MAX_UNAWAITED_RUNS = 64
"""Runs without results for the host that may be in flight; more wait."""

RUNS_PER_SUBMISSION = 16
"""Runs in one submission if a program is repeated."""


class WebGpuEngine(
    Profiles, Streams, Repeats, SharesParams, Measures, Tunes, TakesLimits
):
    """WGSL engine on one port. It owns the port: `close` closes it.

    trusted_shaders  which shaders of this package are compiled without checks at run
                     time: those that say they stay inside, all or none. WGSL of callers
                     is checked
    pipelines those of another engine on the port; what either makes serves both
    overlaps_runs  whether the next run of a job is handed over before the last is read;
              None: outside a browser
    """

    # Said of each instance; the class must have it to be an engine.
    identity = EngineIdentity("WebGPU")
    waits = True

    def __init__(
        self,
        port: GpuPort,
        *,
        limits: Limits | None = None,
        variants: Sequence[KernelVariant] | None = None,
        trusted_shaders: TrustLevel = "proven",
        overlaps_runs: bool | None = None,
        pipelines: PipelineCache | None = None,
    ) -> None:
        self.port = port
        self.facts = facts = port.facts
        self.identity = EngineIdentity(
            f"{facts.name} ({facts.backend})",
            adapter=facts.name,
            api=facts.backend,
            driver=facts.driver,
            compiler=port.compiler,
            vendor=facts.vendor,
            software=facts.software,
        )
        self.limits = facts.limits.intersect(limits) if limits else facts.limits
        self.kernel_selector = KernelSelector(
            kernel_hardware(facts, self.limits), variants
        )
        if pipelines is None:
            pipelines = PipelineCache(port, trusted_shaders=trusted_shaders)
        self.pipelines = pipeline_cache = pipelines
        self._warm_up = PipelineWarmUp(port, pipeline_cache.warmed_up_handles)
        # In a tab every wait is a turn of its event loop, and none was measured yet.
        self.overlaps_runs = (
            facts.backend != "webgpu" if overlaps_runs is None else overlaps_runs
        )
        self._programs, self._builders = (
            pipeline_cache.programs,
            pipeline_cache.builders,
        )
        self.is_closed = False
        # Buffers of programs that were dropped without `close`. The collector may
        # run at any moment, so it only notes them; they are freed at the next call.
        self._dropped_handles: deque[list[int]] = deque()
        self.arrays = WebGpuArrayStore(self, port, self.limits, self._dropped_handles)
        self._unawaited_runs = 0

    @property
    def lost(self) -> str:
        return self.port.lost

    @property
    def target(self) -> Target:
        half = {DType.F16} if "shader-f16" in self.facts.features else set()
        return Target(
            name=self.name,
            dtypes=frozenset({DType.F32, DType.I32, DType.U32, DType.BOOL} | half),
            storage_dtypes=PACKED_DTYPES,
            fuses_pattern=self.kernel_selector.is_native,
            native=self.kernel_selector.is_native,
            refusal=self.kernel_selector.exceeded_limit,
            launches=self.kernel_selector.launch_count,
            extra_bytes=self.kernel_selector.extra_bytes,
            epilogue=self.kernel_selector.epilogue,
            line_length=self.kernel_selector.line_length,
            gate=assumed_fusion_gate(),
            max_operands=self.limits.max_storage_buffers_per_shader_stage,
            limits=self.limits,
            features=self.facts.features,
            demotions=DEMOTED_DTYPES,
        )

    async def prepare(
        self, plan: Plan, params: ParamBuffers | None = None
    ) -> WebGpuProgram:
        self._check_open("prepare a plan")
        self.free_dropped()
        self.pipelines.trim()
        get_pipeline = self.pipelines.get
        if params is None:
            params = ParamBuffers()
            free_when_collected(params, params.owned_handles, self._dropped_handles)
        builder = WebGpuProgramBuilder(
            self,
            self.port,
            self.limits,
            self.kernel_selector,
            plan,
            get_pipeline,
            params,
        )
        self._builders.append(builder)
        try:
            program = await builder.build()
            await self._warm_up.warm_up(program)
            self._programs.add(program)
        except BaseException:
            builder.abandon()
            raise
        finally:
            self._builders.remove(builder)
        free_when_collected(program, program.owned_handles, self._dropped_handles)
        params.user_count += 1
        return program

    async def prepare_sharing_params(self, plan: Plan, other: Program) -> WebGpuProgram:
        other_program = require_own_program(self, WebGpuProgram, other)
        # What is looked through when it is given is looked through for each plan.
        is_checked = plan.demoted_inputs.keys() & plan.graph.named("param").keys()
        return await self.prepare(plan, None if is_checked else other_program.params)

    def free_dropped(self) -> None:
        """Free the buffers of programs and arrays that nobody refers to any more."""
        while self._dropped_handles:
            free_handles(self.port, self._dropped_handles.popleft())

    async def run(
        self, program: Program, feeds: Feeds, keep: Sequence[bool] = ()
    ) -> list[Any]:
        program = require_own_program(self, WebGpuProgram, program)
        context = f"run '{program.plan.graph.name}' on {self.name}"
        async with program.lock:
            self.check_usable(context, program)
            self.free_dropped()
            if not any(keep) and not any(
                isinstance(value, DeviceBuffer) for value in feeds.values()
            ):
                self._write_inputs(program, feeds)
                self.port.submit(program.commands)
                return await self._read_outputs(
                    context, program, program.readback_handle
                )
            layout, kept_buffers = self._submit_on_buffers(
                context, program, feeds, keep or [False] * len(program.outputs)
            )
            raw = await self._read_results(program, layout)
        check_index_fault(context, raw, layout.fault_offset)
        host_outputs = iter([location.decode(raw) for location in layout.locations])
        return [
            next(host_outputs) if buffer is None else buffer for buffer in kept_buffers
        ]

    async def run_timed(self, program: Program, feeds: Mapping[str, Array]) -> TimedRun:
        program = require_own_program(self, WebGpuProgram, program)
        context = f"profile '{program.plan.graph.name}' on {self.name}"

        async with program.lock:
            self.check_usable(context, program)
            self.free_dropped()
            read_outputs = partial(
                self._read_outputs, context, program, program.readback_handle
            )
            return await time_program(
                self.port,
                program,
                partial(self._write_inputs, program, feeds),
                read_outputs,
            )

    def _write_inputs(self, program: WebGpuProgram, feeds: Mapping[str, Any]) -> None:
        """Write the host arrays of a run into their buffers."""
        for name, handle in program.input_handles.items():
            write_buffer(
                self.port, handle, demote_input(program.plan, name, feeds[name])
            )

    async def _read_outputs(
        self, context: str, program: WebGpuProgram, readback: int
    ) -> list[Array]:
        """Read the outputs of a run back from a buffer."""
        raw = await self.port.read(readback, 0, program.readback_bytes)
        check_index_fault(context, raw, program.fault_offset)
        return [location.decode(raw) for location in program.outputs]

    async def run_each(
        self,
        program: Program,
        feeds: Iterable[Mapping[str, Array]],
        consume: OutputCallback,
    ) -> None:
        """Run a program over each of the feeds; runs overlap with two sets of buffers
        if there is more than one.
        """
        if not self.overlaps_runs:
            return await run_in_turn(self, program, feeds, consume)
        program = require_own_program(self, WebGpuProgram, program)
        context = f"run '{program.plan.graph.name}' on {self.name}"
        async with program.lock:
            self.check_usable(context, program)
            self.free_dropped()
            owned: list[int] = []
            read_outputs = partial(self._read_outputs, context, program)
            batches = OverlappedRuns(
                self.port, self.limits, program, read_outputs, owned
            )
            try:
                await batches.run(feeds, consume)
            finally:
                if not self.is_closed:
                    free_handles(self.port, owned)

    def _submit_on_buffers(
        self,
        context: str,
        program: WebGpuProgram,
        feeds: Feeds,
        keep: Sequence[bool],
    ) -> tuple[ReadbackLayout, list[WebGpuDeviceBuffer | None]]:
        """Submit a run: input buffers on this device are bound or copied, outputs that
        stay are copied out of the program's buffers.

        returns  where the other outputs will be read, and a buffer for each that stays
        """
        types = [location.type for location in program.outputs]
        value_ranges = program.plan.demoted_outputs or (None,) * len(types)
        with self.arrays.freeing_lock:
            input_copies, bound = self._prepare_inputs(context, program, feeds)
            outputs = list(zip(types, bound.output_ranges, keep, strict=True))
            returned_outputs = [
                (tensor_type, source)
                for tensor_type, source, stays in outputs
                if not stays
            ]
            layout = ReadbackLayout.pack(returned_outputs, program.fault_handle)
            kept_buffers = [
                self.arrays.allocate(tensor_type, value_range) if stays else None
                for (tensor_type, _, stays), value_range in zip(
                    outputs, value_ranges, strict=True
                )
            ]
            output_copies = copies_into(kept_buffers, bound.output_ranges)
            command_lists = (
                input_copies,
                bound.commands,
                output_copies + layout.copy_commands(program.readback_handle),
            )
            self.port.submit(*filter(None, command_lists))
        return layout, kept_buffers

    def _prepare_inputs(
        self, context: str, program: WebGpuProgram, feeds: Feeds
    ) -> tuple[list[BufferCopy], BoundCommands]:
        """Write host inputs into their buffers; return the copies of inputs on the
        device, and the commands over them.
        """
        placements = {}
        for name, handle in program.input_handles.items():
            value = feeds[name]
            if isinstance(value, DeviceBuffer):
                placements[handle] = self.arrays.input_placement(
                    context, program.plan, name, value
                )
            else:
                write_buffer(self.port, handle, demote_input(program.plan, name, value))
        return program.bindings.bind(placements)

    async def _read_results(
        self, program: WebGpuProgram, layout: ReadbackLayout
    ) -> memoryview:
        """Read the results back. If there are none, and no index has to be proved
        right, wait for only some of the runs.
        """
        self._unawaited_runs += 1
        nbytes = layout.nbytes if layout.locations or layout.copy_sources else 0
        if nbytes or (self._unawaited_runs >= MAX_UNAWAITED_RUNS and can_wait()):
            self._unawaited_runs = 0
            return await self.port.read(program.readback_handle, 0, nbytes)
        return memoryview(b"")

    async def repeat(self, program: Program, feeds: Feeds, times: int) -> None:
        program = require_own_program(self, WebGpuProgram, program)
        context = f"repeat '{program.plan.graph.name}' on {self.name}"
        async with program.lock:
            self.check_usable(context, program)
            self.free_dropped()
            with self.arrays.freeing_lock:
                input_copies, bound = self._prepare_inputs(context, program, feeds)
                self.port.submit(*filter(None, (input_copies,)))
                # A few a submission: the device works while the next are encoded.
                for start in range(0, times, RUNS_PER_SUBMISSION):
                    self.port.submit(
                        *[bound.commands] * min(RUNS_PER_SUBMISSION, times - start)
                    )
                for source in bound.output_ranges[:1]:
                    if source is not None:  # a word of it comes after all work
                        word = BufferRange(source.handle, source.offset, 4)
                        self.port.submit([BufferCopy(word, program.readback_handle)])
            await self.port.read(program.readback_handle, 0, 4)

    async def put(self, array: Array) -> DeviceBuffer:
        self._check_open(f"put an array on {self.name}")
        self.free_dropped()
        return self.arrays.put(array)

    async def get(self, buffer: DeviceBuffer) -> Array:
        context = f"get an array from {self.name}"
        self._check_open(context)
        return await self.arrays.get(context, buffer)

    def free_program(self, program: WebGpuProgram) -> None:
        """Free the buffers of a closed program."""
        if not self.is_closed:
            free_handles(self.port, program.owned_handles)
            if not program.params.user_count:
                free_handles(self.port, program.params.owned_handles)
            self._programs.discard(program)
            self.free_dropped()

    async def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.pipelines.clear()
            await self.port.close()

    async def latency_probes(self) -> WebGpuLatencyProbes:
        return await WebGpuLatencyProbes.create(self.port)

    def variants_for(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        return self.kernel_selector.applicable_variants(op, inputs, out, attrs)

    def candidate_variants(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        return self.kernel_selector.candidate_variants(op, inputs, out, attrs)

    def apply_autotuning(self, results: Sequence[AutotuneResult]) -> None:
        self.kernel_selector.apply_autotuning(results)

    def with_variant(self, variant: str) -> WebGpuEngine:
        selector = self.kernel_selector
        variants = selector.kernels.with_name(variant, selector.hardware.features)
        if variant and not variants:
            raise unknown_variant_error(self, variant)
        return self._engine_on_same_port(limits=self.limits, variants=variants)

    def with_limits(self, limits: Limits) -> WebGpuEngine:
        return self._engine_on_same_port(limits=limits)

    def _engine_on_same_port(self, **options: Any) -> WebGpuEngine:
        """Return an engine with other options on the same port."""
        return WebGpuEngine(self.port, pipelines=self.pipelines, **options)

    def _check_open(self, context: str) -> None:
        if self.is_closed and self.lost:
            raise DeviceLost(context, f"{self.name} was lost ({self.lost})")
        if self.is_closed:
            raise SessionClosed(context, f"{self.name} was closed")

    def check_usable(self, context: str, program: WebGpuProgram) -> None:
        """Check that a program can be used. Errors  SessionClosed, DeviceLost."""
        if program.is_closed:
            raise closed_error(context)
        self._check_open(context)
