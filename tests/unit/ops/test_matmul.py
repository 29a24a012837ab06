"""Matrix products: shape rule, values, and a kernel plan whose box is the product."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import KernelDispatch, KernelPlan, OperandAccess
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape_arithmetic import Shape, numel
from rlxweb.ops.matmul.op import ACTIVATIONS, plan_matmul
from tests.engines_under_test import Array
from tests.unit.ops.single_op_runner import (
    build_op,
    op_decomposition,
    run,
    run_decomposition,
    tensor_types,
)


def product_shape(x: Shape, y: Shape) -> Shape:
    return build_op("matmul", x, y).shape


@pytest.mark.parametrize(
    ("x", "y", "out"),
    [
        ((2, 3), (3, 4), (2, 4)),
        ((5, 2, 3), (3, 4), (5, 2, 4)),
        ((2, 3), (5, 3, 4), (5, 2, 4)),
        ((5, 1, 2, 3), (6, 3, 4), (5, 6, 2, 4)),
        ((2, 0), (0, 4), (2, 4)),
    ],
)
def test_batch_axes_broadcast(x: Shape, y: Shape, out: Shape) -> None:
    """The shape is NumPy's."""
    assert product_shape(x, y) == out
    assert np.matmul(np.zeros(x), np.zeros(y)).shape == out


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        ((3,), (3, 4), ShapeError, "matmul requires rank >= 2, got ranks 1 and 2"),
        (
            (2, 3),
            (4, 5),
            ShapeError,
            r"\[2, 3\] f32, \[4, 5\] f32: .*K mismatch: 3 vs 4",
        ),
        ((2, 3, 4), (3, 4, 5), ShapeError, "cannot broadcast"),
        (((2, 2), "f32"), ((2, 2), "f64"), DTypeError, "operands are"),
        (((2, 2), "i32"), ((2, 2), "f32"), DTypeError, "operands are"),
        (((2, 2), "bool"), ((2, 2), "bool"), DTypeError, "bool"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    x: Any, y: Any, error: type[Exception], message: str
) -> None:
    """Mismatched ranks, inner sizes, batches and dtypes are refused."""
    with pytest.raises(error, match=message):
        build_op("matmul", x, y)


def test_flops_are_two_per_product() -> None:
    """A product has 2 · batches · M · K · N flops, one more an element for a bias."""
    op, fused = registry.get("matmul"), registry.get("fused_matmul_bias_act")
    inputs = tensor_types((5, 2, 3), (3, 4), (4,))
    out = op.output_type(inputs[:2], {})
    assert op.flops(inputs[:2], out, {}) == 2 * 5 * 2 * 3 * 4
    assert fused.flops(inputs, out, {}) == 2 * 5 * 2 * 3 * 4 + 5 * 2 * 4


def operand_in_box(
    dispatch: KernelDispatch, access: OperandAccess, flat: Array, names: str
) -> Array:
    """Return an operand as the dispatch reads it: one axis per name in `names`."""
    strides = dict(zip((a.name for a in dispatch.axes), access.strides, strict=True))
    sizes = {a.name: a.size for a in dispatch.axes}
    indices = access.offset + sum(
        np.arange(sizes[n]).reshape([-1 if n == m else 1 for m in names.split()])
        * strides[n]
        for n in names.split()
    )
    return flat[indices]


def run_plan(plan: KernelPlan, x: Array, y: Array, out: Shape) -> Array:
    """Evaluate the plan's dispatches with NumPy through their own strides."""
    flat = np.full(numel(out), -77, x.dtype)
    write_counts = np.zeros(numel(out), int)
    positions = np.arange(numel(out))
    for dispatch in plan.dispatches:
        box = "b0 b1 b2 m n k"
        assert " ".join(a.name for a in dispatch.axes) == box
        if any(a.size == 0 for a in dispatch.axes[:5]):
            continue
        left = operand_in_box(dispatch, dispatch.accesses[0], x.reshape(-1), box)
        right = operand_in_box(dispatch, dispatch.accesses[1], y.reshape(-1), box)
        written = operand_in_box(
            dispatch, dispatch.accesses[2], positions, "b0 b1 b2 m n"
        )
        flat[written] = (left * right).sum(-1)
        np.add.at(write_counts, written, 1)
    assert (write_counts == 1).all(), "every element is written by exactly one item"
    return flat.reshape(out)


CASES = [
    ((3, 4), (4, 5)),
    ((1, 4), (4, 5)),
    ((3, 1), (1, 1)),
    ((6, 3, 4), (4, 5)),
    ((3, 4), (6, 4, 5)),
    ((6, 3, 4), (6, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 3, 1, 3, 4), (1, 5, 4, 2)),
    ((2, 1, 3, 1, 2, 4), (3, 1, 2, 4, 2)),
    ((2, 1, 3, 1, 2, 1, 3, 4), (3, 1, 2, 1, 5, 4, 2)),
    ((0, 3, 4), (4, 5)),
]


@pytest.mark.parametrize(("x", "y"), CASES)
def test_dispatches_compute_the_product(x: Shape, y: Shape) -> None:
    """Strides, offsets and batch axes of the plan address the right elements."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, x), rng.integers(-9, 9, y)
    out = product_shape(x, y)
    got = run_plan(matmul_plan(x, y), a, b, out)
    np.testing.assert_array_equal(got, np.matmul(a, b))


SIZES = st.integers(1, 4)


@st.composite
def product_shapes(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """Draw the shapes of two operands whose batch axes broadcast in any pattern."""
    pattern = draw(st.lists(st.tuples(SIZES, st.sampled_from("xyb")), max_size=5))
    m, k, n = draw(SIZES), draw(SIZES), draw(SIZES)
    x = [1 if owner == "y" else size for size, owner in pattern]
    y = [1 if owner == "x" else size for size, owner in pattern]
    skip = draw(st.integers(0, len(y)))
    if all(size == 1 for size in y[:skip]):
        y = y[skip:]
    return (*x, m, k), (*y, k, n)


@given(product_shapes())
def test_any_broadcast_is_the_product(pair: tuple[Shape, Shape]) -> None:
    """Any batch axes broadcast to the product, however many dispatches they take."""
    test_dispatches_compute_the_product(*pair)


def matmul_plan(x: Shape, y: Shape, dtype: DType = DType.F32) -> KernelPlan:
    out = TensorType(product_shape(x, y), dtype)
    return plan_matmul(tensor_types(x, y, dtype=dtype), out, {})


def test_batches_of_one_right_matrix_become_rows() -> None:
    """[B, M, K] · [K, N] is one product of B·M rows: full tiles, one dispatch."""
    (dispatch,) = matmul_plan((6, 1, 4), (4, 5)).dispatches
    assert [a.size for a in dispatch.axes] == [1, 1, 1, 6, 5, 4]
    assert dispatch.shader == "matmul"


def test_many_batch_axes_take_several_dispatches() -> None:
    """The shader supports three batch axes; a fourth becomes one dispatch per index."""
    plan = matmul_plan((2, 1, 3, 1, 2, 4), (3, 1, 2, 4, 2))
    assert len(plan.dispatches) == 2
    assert {dispatch.accesses[2].offset for dispatch in plan.dispatches} == {
        0,
        3 * 3 * 2 * 2 * 2,
    }


def test_an_empty_sum_reads_nothing() -> None:
    """K = 0: the box points at no element of the empty operands, and still writes."""
    (dispatch,) = matmul_plan((3, 0), (0, 5)).dispatches
    assert all(step == 0 for a in dispatch.accesses[:2] for step in a.strides)
    assert [a.size for a in dispatch.axes] == [1, 1, 1, 3, 5, 0]


def test_only_the_sum_is_serial() -> None:
    """Every axis may be split; chunks of the sum run in order and carry the output.

    One turn of the loop takes one term, which bounds how long a piece may be.
    """
    (dispatch,) = matmul_plan((3, 4), (4, 5)).dispatches
    kinds = {a.name: a.kind for a in dispatch.axes}
    assert kinds.pop("k") == "serial"
    assert set(kinds.values()) == {"parallel"}
    assert [a.mode for a in dispatch.accesses] == ["read", "read", "update"]
    assert dispatch.iterations == 1.0


@pytest.mark.parametrize(
    ("dtype", "include"),
    [
        (DType.F32, "matmul_f32"),
        (DType.F16, "matmul_f32"),
        (DType.I32, "matmul_i32"),
        (DType.U32, "matmul_u32"),
    ],
)
def test_the_shader_computes_in_the_type_of_the_operands(
    dtype: DType, include: str
) -> None:
    """f16 is storage only: its sums are f32."""
    (dispatch,) = matmul_plan((3, 4), (4, 5), dtype).dispatches
    assert include in dispatch.uses


def test_half_precision_is_summed_in_single() -> None:
    """3,000 ones add up to 3,000; a sum kept in f16 would stop at 2,048."""
    x, y = np.ones((1, 3000), np.float16), np.ones((3000, 1), np.float16)
    got = run("matmul", x, y)
    assert got.dtype == np.float16
    assert float(got[0, 0]) == 3000.0


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_the_fused_layer_is_its_parts(activation: str | None) -> None:
    """The fused layer is activation(x · w + bias), by reference and decomposition."""
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(s) for s in ((5, 7), (7, 3), (3,)))
    want = np.einsum("mk,kn->mn", x, w) + b
    if activation is not None:
        want = registry.get(activation).reference(np, {}, want)
    for method in (run, run_decomposition):
        got = method("fused_matmul_bias_act", x, w, b, activation=activation)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


def test_the_fused_layer_lowers_to_its_parts() -> None:
    """The fused layer is the product, the sum and the activation, nothing else."""
    g = Graph()
    tensors = (g.input("x", (5, 7)), g.input("w", (7, 3)), g.input("b", (3,)))
    op_decomposition("fused_matmul_bias_act").build(g, {"activation": "silu"}, *tensors)
    assert [n.op for n in g.nodes()[3:]] == ["matmul", "add", "silu"]


@pytest.mark.parametrize("bias", [(5,), (5, 3), (1, 3)])
def test_a_bias_is_one_value_per_column(bias: Shape) -> None:
    """A bias of another shape is refused with the size it should have."""
    with pytest.raises(ShapeError, match="one value for each of the 3 columns"):
        build_op("fused_matmul_bias_act", (5, 7), (7, 3), bias)


def test_an_unknown_activation_is_refused() -> None:
    """The message lists the known ones."""
    with pytest.raises(AttributeRefused, match="gelu_approx"):
        build_op("fused_matmul_bias_act", (2, 2), (2, 2), (2,), activation="softplus")


def test_samples_cover_every_type_and_edge() -> None:
    """Samples have zero sizes on each side, more than 65,535 rows, and each dtype."""
    samples = registry.get("matmul").samples
    shapes = [tuple(d.shape for d in s.inputs) for s in samples]
    sizes = set(itertools.chain.from_iterable(itertools.chain.from_iterable(shapes)))
    assert {0, 1} <= sizes
    assert max(sizes) > 65_535
    dtypes = {d.dtype for s in samples for d in s.inputs}
    assert dtypes == set(DType) - {DType.BOOL}
