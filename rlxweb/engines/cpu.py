"""NumPy engine on the CPU: always available, the embedded default and the numerical
reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

import numpy as np

from rlxweb.codegen.native_elementwise import (
    RegionCall,
    compilable_region,
    region_kernels,
)
from rlxweb.codegen.native_row_reduction import (
    MAX_ROW_LENGTH,
    CompilableRowKernel,
    RowKernelCall,
    compilable_row_kernel,
    row_kernels,
)
from rlxweb.codegen.packed_weight_cache import UsesConstantOperands
from rlxweb.codegen.wasm_builder import IN_BROWSER
from rlxweb.compiler.plan import Plan, PlanStep
from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.engines.array import ArrayEngine, ArrayProgram, NodeWork, array_target
from rlxweb.engines.array_device_arrays import LibraryArray
from rlxweb.engines.cpu_float16_via_float32 import (
    float16_kernels,
    float16_variants,
)
from rlxweb.engines.cpu_native_program import (
    CONSTANT_OPS,
    PlanSegment,
    UnitCalls,
    native_program_kernels,
    plan_segments,
    step_units,
)
from rlxweb.engines.cpu_numpy_elementwise import NumpyRegion
from rlxweb.engines.protocol import CPU_IDENTITY
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ops.attention.cpu.native import attention_kernels, prefers_fused_attention
from rlxweb.ops.attention.cpu.wasm import should_fuse_attention
from rlxweb.ops.conv.cpu.native import conv_kernels
from rlxweb.ops.conv.cpu.native_phase_split import phase_kernels
from rlxweb.ops.kernel_variant import KernelVariant, load_kernels
from rlxweb.ops.matmul.cpu.epilogue import (
    EpilogueCall,
    fuse_epilogue,
    has_epilogue,
)
from rlxweb.ops.matmul.cpu.native import matmul_kernels
from rlxweb.ops.matmul.cpu.wasm_on_web_workers import (
    shared_region_cache,
)
from rlxweb.ops.recurrent.cpu.native import recurrence_kernels
from rlxweb.ops.reduce.cpu.native import reduction_kernels

_FEATURES: Final = frozenset({"webassembly"} if IN_BROWSER else ())
_OP_KERNELS: Final = tuple(
    kernel for kernel in load_kernels("cpu") if kernel.is_supported(_FEATURES)
)
CPU_VARIANTS: Final = (*_OP_KERNELS, *float16_variants(_OP_KERNELS))
"""Kernel variants of the CPU: compiled code first, then efficient NumPy."""
JIT_CACHES: Final = (
    region_kernels,
    attention_kernels,
    conv_kernels,
    float16_kernels,
    phase_kernels,
    reduction_kernels,
    row_kernels,
    recurrence_kernels,
    native_program_kernels,
    matmul_kernels,
    shared_region_cache,
)
"""JIT caches of this engine."""


def prefers_fused_op(op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether a fusion pattern should be replaced by the fused op."""
    arguments = op, inputs, out, attrs
    if IN_BROWSER and should_fuse_attention(*arguments):
        return True
    return prefers_fused_attention(*arguments)


def _row_kernel(graph: Graph, ids: Sequence[int]) -> CompilableRowKernel | None:
    """Return a fused row reduction as a kernel to compile; None if it cannot be one."""
    is_builtin = all(registry.is_builtin(graph.node(i).op) for i in ids)
    is_open = is_builtin and row_kernels.is_enabled
    return compilable_row_kernel(graph, ids) if is_open else None


def _is_weight(graph: Graph, i: int) -> bool:
    """Return whether a node is a param or a constant, possibly transposed or
    reshaped.
    """
    node = graph.node(i)
    while node.op in ("transpose", "reshape"):
        node = graph.node(node.inputs[0])
    return node.op in CONSTANT_OPS


def _run_segments(
    graph: Graph,
    segments: Sequence[Callable[[dict[int, LibraryArray]], None]],
    values: dict[int, LibraryArray],
) -> list[LibraryArray]:
    for segment in segments:
        raise_if_cancelled()
        segment(values)
    return [values[i] for i in graph.outputs]


class CpuEngine(ArrayEngine):
    """`ArrayEngine` over NumPy; without `variants` it runs the references alone."""

    target = array_target("NumPy", frozenset(DType))

    def __init__(self, variants: Sequence[KernelVariant] = CPU_VARIANTS) -> None:
        super().__init__(
            np,
            CPU_IDENTITY,
            replace(
                self.target,
                fuses_pattern=prefers_fused_op,
                line_length=MAX_ROW_LENGTH,
                row_kernel=_row_kernel,
            )
            if variants
            else self.target,
            to_device=np.asarray,
            to_host=np.asarray,
            variants=variants,
        )

    async def prepare(self, plan: Plan) -> ArrayProgram:
        """Prepare a plan; consecutive small steps become one call where code is
        compiled.
        """
        program = await super().prepare(plan)
        for call in program.calls:
            function: object = call.function
            if isinstance(function, UsesConstantOperands):
                operands = enumerate(call.inputs)
                function.set_constant_operands(
                    [index for index, i in operands if _is_weight(plan.graph, i)]
                )
        if self.kernels and not native_program_kernels.disabled_reason:
            unit_calls: list[UnitCalls] = []
            for index, group in groupby(program.calls, attrgetter("step")):
                step, calls = plan.steps[index], list(group)
                if any(
                    has_epilogue(call.function)
                    or isinstance(call.function, RowKernelCall)
                    for call in calls
                ):
                    unit_calls.append((None, calls))
                    continue
                is_region = step.kind == "region"
                call_groups = [calls] if is_region else [[call] for call in calls]
                unit_calls += zip(
                    step_units(plan.graph, step), call_groups, strict=True
                )
            segments = plan_segments(plan, unit_calls, self.run_calls)
            if segments is not None:
                program.compute = partial(_run_segments, plan.graph, segments)
                native_ids = [
                    node.id
                    for segment in segments
                    if isinstance(segment, PlanSegment)
                    for unit in segment.units
                    for node in unit.nodes
                ]
                program.kernel_variants = {
                    **program.call_variants,
                    **dict.fromkeys(native_ids, "native program"),
                }
        return program

    def _fuse_calls(
        self, graph: Graph, work: list[NodeWork], steps: list[int]
    ) -> tuple[list[NodeWork], list[int]]:
        """Fuse a product with the elementwise region that alone reads it."""
        producers = {node.id: index for index, (node, _, _) in enumerate(work)}
        use_counts = Counter(i for _, _, inputs in work for i in inputs)
        use_counts.update(graph.outputs)
        work, merged = list(work), set()
        for index, (_, function, inputs) in enumerate(work):
            if not isinstance(function, RegionCall):
                continue
            for i in inputs:
                producer = producers.get(i)
                if producer is None or producer in merged or use_counts[i] > 1:
                    continue
                if not isinstance(work[producer][1], EpilogueCall):
                    continue
                fused = fuse_epilogue(graph, work[producer], work[index], function)
                if fused is not None:
                    work[index] = fused
                    steps[index] = steps[producer]
                    merged.add(producer)
                    break
        remaining = [index for index in range(len(work)) if index not in merged]
        return [work[index] for index in remaining], [
            steps[index] for index in remaining
        ]

    def _region_function(
        self, graph: Graph, step: PlanStep
    ) -> tuple[Callable[..., LibraryArray], tuple[int, ...]] | None:
        """Return compiled code for a region if it is available, else blocked NumPy for
        large ones.

        The references define what is right.
        """
        nodes = [graph.node(i) for i in step.nodes]
        if not self.kernels or not all(registry.is_builtin(node.op) for node in nodes):
            return None
        functions = [self._node_function(graph, node) for node in nodes]
        by_numpy = NumpyRegion(graph, nodes, functions, step.reads)
        if step.kind == "lines":
            rows = step.row_kernel  # by `_row_kernel`
            assert isinstance(rows, CompilableRowKernel)
            return RowKernelCall(rows, by_numpy), step.reads
        is_open = region_kernels.is_enabled
        region = compilable_region(graph, step.nodes, step.reads) if is_open else None
        if region is not None:
            return RegionCall(region, nodes[-1], by_numpy), step.reads
        if not by_numpy.is_blocked:
            return None
        return by_numpy.call, step.reads
