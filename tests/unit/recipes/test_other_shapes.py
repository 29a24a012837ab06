"""Other shapes of matmul and the norms: same box, other tile, refusals where unfit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape import Shape
from rlxweb.kernels.launch import launches
from rlxweb.limits import Limits, shrunk
from rlxweb.recipes.line_variants import group_recipe
from rlxweb.recipes.matmul_variants import matmul_tiled
from tests.unit.ops.alone import recipe_of, types_of

NORMS = {op: group_recipe(op) for op in ("softmax", "layer_norm", "rms_norm")}


def product(x: Shape, y: Shape) -> tuple[tuple[TensorType, ...], TensorType]:
    inputs = types_of(x, y)
    return inputs, registry.get("matmul").output_type(inputs, {})


def test_a_product_keeps_its_strides() -> None:
    """A tiled product differs from the plain one in shader and tile only."""
    inputs, out = product((2, 1, 3, 1, 40, 50), (3, 1, 2, 50, 60))
    made = matmul_tiled(inputs, out, {}, Limits())
    plain = recipe_of("matmul", inputs, out, {})
    assert made is not None
    assert len(made.calls) == len(plain.calls) == 2
    for mine, theirs in zip(made.calls, plain.calls, strict=True):
        assert mine.values == theirs.values
        assert [a.size for a in mine.axes] == [a.size for a in theirs.axes]
        assert [(a.ref, a.strides, a.offset) for a in mine.accesses] == [
            (a.ref, a.strides, a.offset) for a in theirs.accesses
        ]


@pytest.mark.parametrize(("m", "n"), [(31, 60), (60, 31)])
def test_a_tile_that_would_be_mostly_empty_is_left_to_the_plain_shader(
    m: int, n: int
) -> None:
    """A product of fewer than 32 rows or columns is left to the plain shader."""
    inputs, out = product((m, 50), (50, n))
    assert matmul_tiled(inputs, out, {}, Limits()) is None


def test_shared_tiles_need_their_sixty_four_invocations() -> None:
    """A device with 32 is refused before any shader is written."""
    inputs, out = product((64, 64), (64, 64))
    made = matmul_tiled(inputs, out, {}, Limits())
    assert made is not None
    assert made.calls[0].shared_bytes == 4096
    assert made.calls[0].per == "workgroup"
    assert matmul_tiled(inputs, out, {}, shrunk()) is None
    narrow = replace(Limits(), max_compute_workgroup_size_x=32)
    assert matmul_tiled(inputs, out, {}, narrow) is None


def line(
    op: str, shape: Shape, axis: int
) -> tuple[tuple[TensorType, ...], TensorType, dict[str, Any]]:
    x, n = types_of(shape, (shape[axis],))
    attrs = {"axis": axis} if op == "softmax" else {"axis": axis, "eps": 1e-5}
    return ((x,) if op == "softmax" else (x, n, n)), x, attrs


@pytest.mark.parametrize("op", NORMS)
def test_a_workgroup_for_every_line(op: str) -> None:
    """The kernel has a workgroup per line, and walk and values of the op's own."""
    inputs, out, attrs = line(op, (5, 3, 1000), -1)
    made = NORMS[op](inputs, out, attrs, Limits())
    assert made is not None
    (call,), (plain,) = made.calls, recipe_of(op, inputs, out, attrs).calls
    assert (call.axes, call.accesses, call.values) == (
        plain.axes,
        plain.accesses,
        plain.values,
    )
    dtypes = [DType.F32] * len(call.accesses)
    (launch,) = launches(call, dtypes, Limits())
    assert np.prod(launch.grid) == 15
    assert dict(launch.shader.constants)["WG"] == 256


@pytest.mark.parametrize("op", NORMS)
@pytest.mark.parametrize(("shape", "axis"), [((5, 100), 1), ((1000, 4), 0)])
def test_short_and_scattered_lines_stay_with_one_invocation(
    op: str, shape: Shape, axis: int
) -> None:
    """Neighbours in a workgroup should be neighbours in memory."""
    inputs, out, attrs = line(op, shape, axis)
    assert NORMS[op](inputs, out, attrs, Limits()) is None
