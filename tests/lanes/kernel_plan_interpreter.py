"""Run the dispatches of a kernel plan over NumPy arrays, workgroup by workgroup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlxweb.codegen.kernel_launch_records import (
    BoundOperand,
    KernelLaunch,
    build_launches,
)
from rlxweb.codegen.wgsl_module import uniform_fields
from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.lowering import BufferRef, KernelDispatch, KernelPlan
from tests.lanes.subgroup_layout import SubgroupLayout
from tests.lanes.workgroup_access_tracking import WorkgroupCounts
from tests.lanes.workgroup_interpreter import POISON_BITS, WorkgroupInterpreter

Array = Any


def workgroup_count(launch: KernelLaunch) -> int:
    """Return the number of workgroups of a launch whose grid was not folded."""
    x, y, z = launch.grid
    assert y == z == 1, "the grid is folded"
    return x


def create_workgroup(
    dispatch: KernelDispatch,
    launch: KernelLaunch,
    operands: Sequence[Array],
    group_index: int = 0,
    subgroups: SubgroupLayout | None = None,
) -> WorkgroupInterpreter:
    """Return one workgroup of a launch, not yet run, over flat operands in access
    order.
    """
    words = np.frombuffer(launch.uniforms, np.uint32)
    uniforms = {
        name: float(words[index : index + 1].view(np.float32)[0])
        if kind == "f32"
        else words[index]
        for index, (name, kind) in enumerate(uniform_fields(dispatch))
    }
    constants = dict(launch.shader.overrides)
    storage = []
    for binding, array, access in zip(
        launch.bindings, operands, dispatch.accesses, strict=True
    ):
        assert isinstance(binding, BoundOperand), "merged bindings are not run here"
        chunk = array[binding.offset // 4 : (binding.offset + binding.nbytes) // 4]
        storage.append(chunk.reshape(-1, 4) if access.is_vec4 else chunk)
    storage += [np.zeros(1, np.uint32)] * launch.reports_faults
    return WorkgroupInterpreter(
        launch.shader.source,
        constants["WG"],
        uniforms,
        storage,
        group_index,
        subgroups,
        constants,
    )


def _poisoned_array(count: int, dtype: DType) -> Array:
    return np.full(count, POISON_BITS, np.uint32).view(dtype.numpy)


def run_plan(
    plan: KernelPlan,
    inputs: Sequence[Array],
    output_size: int,
    limits: Limits | None = None,
    subgroups: SubgroupLayout | None = None,
    dtype: DType = DType.F32,
) -> tuple[Array, list[WorkgroupCounts]]:
    """Run a kernel plan and return its `out` output elements and the counts of each
    workgroup.

    Integers are taken as they are, all else as float32.
    """
    buffers: dict[BufferRef, Array] = {
        BufferRef("out"): _poisoned_array(output_size, dtype)
    }
    for n, array in enumerate(inputs):
        is_integer = getattr(array, "dtype", None) in (np.int32, np.uint32)
        buffers[BufferRef("in", n)] = np.asarray(
            array, None if is_integer else "f4"
        ).ravel()
    for n, table in enumerate(plan.tables):
        buffers[BufferRef("table", n)] = table.ravel()
    for n, scratch in enumerate(plan.scratch):
        buffers[BufferRef("scratch", n)] = _poisoned_array(
            scratch.numel, DType(scratch.scalar)
        )
    counts = []
    for dispatch in plan.dispatches:
        operands = [buffers[access.ref] for access in dispatch.accesses]
        dtypes = [as_dtype(operand.dtype) for operand in operands]
        for launch in build_launches(dispatch, dtypes, limits or Limits()):
            for group_index in range(workgroup_count(launch)):
                interpreter = create_workgroup(
                    dispatch, launch, operands, group_index, subgroups
                )
                counts.append(interpreter.run())
    return buffers[BufferRef("out")], counts
