"""Softmax and norms: values on any axis, refusals, strides of the kernel plan,
decompositions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import KernelDispatch
from rlxweb.ir.op import registry
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array
from tests.unit.ops.single_op_runner import (
    build_op,
    op_decomposition,
    op_kernel_plan,
    run,
    run_decomposition,
    tensor_types,
)

NAMES = ("softmax", "layer_norm", "rms_norm")


def normalize_row(name: str, x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Normalize one row by the documented formula."""
    if name == "softmax":
        return np.exp(x) / np.exp(x).sum()
    if name == "layer_norm":
        return (x - x.mean()) / np.sqrt(x.var() + eps) * gamma + beta
    return x / np.sqrt((x**2).mean() + eps) * gamma + beta


def operand_shapes(name: str, shape: Shape, axis: int) -> list[Shape]:
    """Shapes of the rows and, where the op has them, of its scale and shift."""
    n = (shape[axis],)
    return [shape] if name == "softmax" else [shape, n, n]


def operands(name: str, shape: Shape, axis: int) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.uniform(-2, 2, s) for s in operand_shapes(name, shape, axis)]


def op_attrs(name: str, axis: int, eps: float = 1e-3) -> dict[str, Any]:
    return {"axis": axis} if name == "softmax" else {"axis": axis, "eps": eps}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 5), -2)]
)
def test_each_row_along_the_axis_is_normalised(
    name: str, shape: Shape, axis: int
) -> None:
    """Rows are normalized by the formula, in the reference and the decomposition."""
    x, *scale = operands(name, shape, axis)
    gamma, beta = scale or (np.ones(1), np.zeros(1))
    want = np.apply_along_axis(
        lambda row: normalize_row(name, row, gamma, beta, 1e-3), axis, x
    )
    for method in (run, run_decomposition):
        got = method(name, x, *scale, **op_attrs(name, axis))
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_a_float16_decomposition_computes_in_float32(name: str) -> None:
    """f16 operands are cast once on the way in and once on the way out."""
    g = Graph()
    shapes = operand_shapes(name, (3, 5), 1)
    tensors = [g.input(f"x{k}", s, "f16") for k, s in enumerate(shapes)]
    out = op_decomposition(name).build(g, op_attrs(name, 1), *tensors)
    assert out.dtype is DType.F16
    inside = [n for n in g.nodes() if n.op != "input" and n.id != out.id]
    assert {n.type.dtype for n in inside} == {DType.F32}


def test_probabilities_add_up_however_large_the_scores() -> None:
    """Scores near the ends of float32 give a one-hot row, not NaN."""
    x = np.array([[1e38, -1e38, 0], [-3e38, -3e38, -3e38]], np.float32)
    got = run("softmax", x, axis=-1)
    np.testing.assert_allclose(got, [[1, 0, 0], [1 / 3] * 3], rtol=1e-6)


def test_values_far_from_zero_keep_their_spread() -> None:
    """The variance is taken around the mean, so 1e6 + {0, 1} is resolved in float32."""
    x = np.array([[1e6, 1e6 + 1.0]], np.float32)
    one, zero = np.ones(2, np.float32), np.zeros(2, np.float32)
    got = run("layer_norm", x, one, zero, axis=-1, eps=1e-5)
    np.testing.assert_allclose(got, [[-1, 1]], rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("shape", "axis"), [((3, 5), 2), ((3, 5), -3), ((), 0)])
def test_an_axis_outside_the_rank_is_refused(
    name: str, shape: Shape, axis: int
) -> None:
    """Axis 2 of two axes, and any axis of a scalar, are refused."""
    scale = operand_shapes(name, (3, 5), 1)[1:]
    with pytest.raises(ShapeError, match="out of range for rank"):
        build_op(name, shape, *scale, **op_attrs(name, axis))


@pytest.mark.parametrize("name", NAMES)
def test_integers_are_refused(name: str) -> None:
    with pytest.raises(DTypeError, match="only floats"):
        build_op(name, *((s, "i32") for s in operand_shapes(name, (3, 5), 1)))


@pytest.mark.parametrize(("gamma", "beta"), [((4,), (5,)), ((5,), (1,)), ((), (5,))])
def test_gamma_and_beta_have_one_value_per_element(gamma: Shape, beta: Shape) -> None:
    """The message names the operand and the size it should have."""
    with pytest.raises(ShapeError, match=r"expected \[5\] for axis"):
        build_op("layer_norm", (3, 5), gamma, beta)


@pytest.mark.parametrize("eps", [-1e-5, float("nan"), float("inf"), 1e39])
def test_an_invalid_eps_is_refused(eps: float) -> None:
    with pytest.raises(AttributeRefused, match="eps must be >= 0 and <= 3"):
        build_op("rms_norm", (3, 5), (5,), (5,), eps=eps)
    with pytest.raises(AttributeRefused, match="is invalid; expected a number"):
        build_op("rms_norm", (3, 5), (5,), (5,), eps=10**400)


def row_dispatch(name: str, shape: Shape, axis: int) -> KernelDispatch:
    inputs = tensor_types(*operand_shapes(name, shape, axis))
    (dispatch,) = op_kernel_plan(
        name, inputs, inputs[0], op_attrs(name, axis)
    ).dispatches
    return dispatch


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((6,), 0), ((3, 5), -1), ((3, 5), 0), ((2, 3, 4), 1)]
)
def test_the_dispatch_reads_each_row_once(name: str, shape: Shape, axis: int) -> None:
    """Strides of the dispatch, and those passed to the shader, are those of the
    axis.
    """
    dispatch = row_dispatch(name, shape, axis)
    x = np.arange(np.prod(shape))
    sizes = [a.size for a in dispatch.axes]
    assert [a.name for a in dispatch.axes] == ["outer", "inner", "n"]
    assert dispatch.axes[2].kind == "whole"
    steps = np.array(dispatch.accesses[0].strides)
    read_elements = (np.indices(sizes).reshape(3, -1).T @ steps).reshape(-1, sizes[2])
    rows = np.moveaxis(x.reshape(shape), axis, -1).reshape(-1, shape[axis])
    np.testing.assert_array_equal(np.sort(read_elements, 0), np.sort(rows, 0))
    assert dispatch.accesses[-1].strides == dispatch.accesses[0].strides
    assert (dispatch.uniforms["outer_step"], 1, dispatch.uniforms["step"]) == tuple(
        steps
    )


@pytest.mark.parametrize("name", NAMES[1:])
def test_scale_and_shift_follow_the_row(name: str) -> None:
    """Gamma and beta advance along n and are constant along the other axes."""
    dispatch = row_dispatch(name, (2, 3, 4), 1)
    assert [a.strides for a in dispatch.accesses[1:3]] == [(0, 0, 1)] * 2
    assert dispatch.uniforms["eps"] == 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_flops_grow_with_the_elements(name: str) -> None:
    op = registry.get(name)
    types = tensor_types((3, 5), (3, 10))
    small, large = (op.flops((k,), k, {"axis": -1}) for k in types)
    assert large == 2 * small > 0
