"""Kernel variants of matmul and the norms: same iteration box, another tile, refusals
where they do not fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.codegen.kernel_launch_records import build_launches
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.matmul.wgsl.variants import plan_tiled_matmul
from rlxweb.ops.norm.wgsl.per_workgroup import workgroup_row_rule
from tests.unit.ops.single_op_runner import op_kernel_plan, tensor_types

VARIANT_RULES = {
    op: workgroup_row_rule(op) for op in ("softmax", "layer_norm", "rms_norm")
}


def matmul_types(x: Shape, y: Shape) -> tuple[tuple[TensorType, ...], TensorType]:
    """Return the operand types of a matrix product and its result type."""
    inputs = tensor_types(x, y)
    return inputs, registry.get("matmul").output_type(inputs, {})


def test_tiled_matmul_keeps_strides() -> None:
    """A tiled product differs from the plain one in shader and tile only."""
    inputs, out = matmul_types((2, 1, 3, 1, 40, 50), (3, 1, 2, 50, 60))
    tiled = plan_tiled_matmul(inputs, out, {}, Limits())
    plain = op_kernel_plan("matmul", inputs, out, {})
    assert tiled is not None
    assert len(tiled.dispatches) == len(plain.dispatches) == 2
    for tiled_dispatch, plain_dispatch in zip(
        tiled.dispatches, plain.dispatches, strict=True
    ):
        assert tiled_dispatch.uniforms == plain_dispatch.uniforms
        assert [a.size for a in tiled_dispatch.axes] == [
            a.size for a in plain_dispatch.axes
        ]
        assert [(a.ref, a.strides, a.offset) for a in tiled_dispatch.accesses] == [
            (a.ref, a.strides, a.offset) for a in plain_dispatch.accesses
        ]


@pytest.mark.parametrize(("m", "n"), [(31, 60), (60, 31)])
def test_narrow_products_use_plain_shader(m: int, n: int) -> None:
    """A product of fewer than 32 rows or columns is left to the plain shader."""
    inputs, out = matmul_types((m, 50), (50, n))
    assert plan_tiled_matmul(inputs, out, {}, Limits()) is None


def test_shared_tiles_need_64_invocations() -> None:
    """A device limited to 32 invocations is refused before any shader is written."""
    inputs, out = matmul_types((64, 64), (64, 64))
    plan = plan_tiled_matmul(inputs, out, {}, Limits())
    assert plan is not None
    assert plan.dispatches[0].shared_bytes == 4096
    assert plan.dispatches[0].item_unit == "workgroup"
    assert plan_tiled_matmul(inputs, out, {}, tiny_limits()) is None
    narrow = replace(Limits(), max_compute_workgroup_size_x=32)
    assert plan_tiled_matmul(inputs, out, {}, narrow) is None


def norm_types(
    op: str, shape: Shape, axis: int
) -> tuple[tuple[TensorType, ...], TensorType, dict[str, Any]]:
    """Return operand types, result type and attributes of a softmax or norm along an
    axis.
    """
    x, n = tensor_types(shape, (shape[axis],))
    attrs = {"axis": axis} if op == "softmax" else {"axis": axis, "eps": 1e-5}
    return ((x,) if op == "softmax" else (x, n, n)), x, attrs


@pytest.mark.parametrize("op", VARIANT_RULES)
def test_one_workgroup_per_row(op: str) -> None:
    """The kernel runs one workgroup per row, with the strides and uniforms of the op's
    own plan.
    """
    inputs, out, attrs = norm_types(op, (5, 3, 1000), -1)
    plan = VARIANT_RULES[op](inputs, out, attrs, Limits())
    assert plan is not None
    (dispatch,), (plain_dispatch,) = (
        plan.dispatches,
        op_kernel_plan(op, inputs, out, attrs).dispatches,
    )
    assert (dispatch.axes, dispatch.accesses, dispatch.uniforms) == (
        plain_dispatch.axes,
        plain_dispatch.accesses,
        plain_dispatch.uniforms,
    )
    dtypes = [DType.F32] * len(dispatch.accesses)
    (launch,) = build_launches(dispatch, dtypes, Limits())
    assert np.prod(launch.grid) == 15
    assert dict(launch.shader.overrides)["WG"] == 256


@pytest.mark.parametrize("op", VARIANT_RULES)
@pytest.mark.parametrize(("shape", "axis"), [((5, 100), 1), ((1000, 4), 0)])
def test_short_and_strided_rows_use_one_invocation(
    op: str, shape: Shape, axis: int
) -> None:
    """Neighbours in a workgroup should be neighbours in memory."""
    inputs, out, attrs = norm_types(op, shape, axis)
    assert VARIANT_RULES[op](inputs, out, attrs, Limits()) is None
