"""Runs the calls of a recipe over NumPy arrays, workgroup by workgroup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.lowering import Call, Recipe, Ref
from rlxweb.kernels.launch import Bound, Launch, launches
from rlxweb.kernels.source import uniform_fields
from rlxweb.limits import Limits
from tests.lanes.memory import Counts
from tests.lanes.run import POISON, Workgroup
from tests.lanes.subgroups import Subgroups

Array = Any


def groups_of(launch: Launch) -> int:
    """Workgroups of a launch whose grid was not folded."""
    x, y, z = launch.grid
    assert y == z == 1, "the grid is folded"
    return x


def workgroup(
    call: Call,
    launch: Launch,
    operands: Sequence[Array],
    group: int = 0,
    subgroups: Subgroups | None = None,
) -> Workgroup:
    """One workgroup of a launch, not yet run, over flat operands in access order."""
    words = np.frombuffer(launch.uniforms, np.uint32)
    uniforms = {
        name: float(words[n : n + 1].view(np.float32)[0]) if kind == "f32" else words[n]
        for n, (name, kind) in enumerate(uniform_fields(call))
    }
    constants = dict(launch.shader.constants)
    storage = []
    for bound, array, access in zip(
        launch.bindings, operands, call.accesses, strict=True
    ):
        assert isinstance(bound, Bound), "merged bindings are not run here"
        part = array[bound.offset // 4 : (bound.offset + bound.nbytes) // 4]
        storage.append(part.reshape(-1, 4) if access.wide else part)
    storage += [np.zeros(1, np.uint32)] * launch.faults
    return Workgroup(
        launch.shader.source,
        constants["WG"],
        uniforms,
        storage,
        group,
        subgroups,
        constants,
    )


def _poisoned(count: int, dtype: DType) -> Array:
    return np.full(count, POISON, np.uint32).view(dtype.numpy)


def run(
    recipe: Recipe,
    inputs: Sequence[Array],
    out: int,
    limits: Limits | None = None,
    subgroups: Subgroups | None = None,
    dtype: DType = DType.F32,
) -> tuple[Array, list[Counts]]:
    """The output of a recipe, `out` numbers, and what each workgroup did.

    Integers are taken as they are, all else as float32.
    """
    buffers: dict[Ref, Array] = {Ref("out"): _poisoned(out, dtype)}
    for n, array in enumerate(inputs):
        whole = getattr(array, "dtype", None) in (np.int32, np.uint32)
        buffers[Ref("in", n)] = np.asarray(array, None if whole else "f4").ravel()
    for n, table in enumerate(recipe.tables):
        buffers[Ref("table", n)] = table.ravel()
    for n, scratch in enumerate(recipe.scratch):
        buffers[Ref("scratch", n)] = _poisoned(scratch.numel, DType(scratch.scalar))
    counts = []
    for call in recipe.calls:
        operands = [buffers[access.ref] for access in call.accesses]
        dtypes = [as_dtype(one.dtype) for one in operands]
        for launch in launches(call, dtypes, limits or Limits()):
            for group in range(groups_of(launch)):
                made = workgroup(call, launch, operands, group, subgroups)
                counts.append(made.run())
    return buffers[Ref("out")], counts
