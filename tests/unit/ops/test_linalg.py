"""Products: shape rule, meaning, and a recipe whose box is the product itself."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Access, Call, Recipe
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape import Shape, numel
from rlxweb.ops.linalg import ACTIVATIONS, matmul_recipe
from tests.agreement import Array
from tests.unit.ops.alone import added, composed, composition, run, types_of


def shape_of(x: Shape, y: Shape) -> Shape:
    return added("matmul", x, y).shape


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
    assert shape_of(x, y) == out
    assert np.matmul(np.zeros(x), np.zeros(y)).shape == out


@pytest.mark.parametrize(
    ("x", "y", "error", "said"),
    [
        ((3,), (3, 4), ShapeError, "matmul requires rank >= 2, got 1 and 2"),
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
    x: Any, y: Any, error: type[Exception], said: str
) -> None:
    """Ranks, inner sizes, batches and types that do not fit are refused."""
    with pytest.raises(error, match=said):
        added("matmul", x, y)


def test_flops_are_two_per_product() -> None:
    """A product has 2 · batches · M · K · N flops, one more an element for a bias."""
    op, fused = registry.get("matmul"), registry.get("fused_matmul_bias_act")
    inputs = types_of((5, 2, 3), (3, 4), (4,))
    out = op.output_type(inputs[:2], {})
    assert op.flops(inputs[:2], out, {}) == 2 * 5 * 2 * 3 * 4
    assert fused.flops(inputs, out, {}) == 2 * 5 * 2 * 3 * 4 + 5 * 2 * 4


def walked(call: Call, access: Access, flat: Array, names: str) -> Array:
    """An operand as the box sees it: one axis per letter of `names`."""
    strides = dict(zip((a.name for a in call.axes), access.strides, strict=True))
    sizes = {a.name: a.size for a in call.axes}
    picked = access.offset + sum(
        np.arange(sizes[n]).reshape([-1 if n == m else 1 for m in names.split()])
        * strides[n]
        for n in names.split()
    )
    return flat[picked]


def run_recipe(recipe: Recipe, x: Array, y: Array, out: Shape) -> Array:
    """The recipe's boxes summed by NumPy through their own strides."""
    flat = np.full(numel(out), -77, x.dtype)
    seen = np.zeros(numel(out), int)
    ones = np.arange(numel(out))
    for call in recipe.calls:
        box = "b0 b1 b2 m n k"
        assert " ".join(a.name for a in call.axes) == box
        if any(a.size == 0 for a in call.axes[:5]):
            continue
        left = walked(call, call.accesses[0], x.reshape(-1), box)
        right = walked(call, call.accesses[1], y.reshape(-1), box)
        place = walked(call, call.accesses[2], ones, "b0 b1 b2 m n")
        flat[place] = (left * right).sum(-1)
        np.add.at(seen, place, 1)
    assert (seen == 1).all(), "every element is written by exactly one item"
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
def test_the_box_is_the_product(x: Shape, y: Shape) -> None:
    """Strides, offsets and batch axes of the recipe address the right elements."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, x), rng.integers(-9, 9, y)
    out = shape_of(x, y)
    got = run_recipe(recipe_of(x, y), a, b, out)
    np.testing.assert_array_equal(got, np.matmul(a, b))


SIZES = st.integers(1, 4)


@st.composite
def products(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """Two operands whose batch axes broadcast in any pattern."""
    pattern = draw(st.lists(st.tuples(SIZES, st.sampled_from("xyb")), max_size=5))
    m, k, n = draw(SIZES), draw(SIZES), draw(SIZES)
    x = [1 if who == "y" else size for size, who in pattern]
    y = [1 if who == "x" else size for size, who in pattern]
    skip = draw(st.integers(0, len(y)))
    if all(size == 1 for size in y[:skip]):
        y = y[skip:]
    return (*x, m, k), (*y, k, n)


@given(products())
def test_any_broadcast_is_the_product(pair: tuple[Shape, Shape]) -> None:
    """Any batch axes broadcast to the product, however many calls they take."""
    test_the_box_is_the_product(*pair)


def recipe_of(x: Shape, y: Shape, dtype: DType = DType.F32) -> Recipe:
    out = TensorType(shape_of(x, y), dtype)
    return matmul_recipe(types_of(x, y, dtype=dtype), out, {})


def test_batches_of_one_right_matrix_become_rows() -> None:
    """[B, M, K] · [K, N] is one product of B·M rows: full tiles, one call."""
    (call,) = recipe_of((6, 1, 4), (4, 5)).calls
    assert [a.size for a in call.axes] == [1, 1, 1, 6, 5, 4]
    assert call.shader == "matmul"


def test_many_batch_axes_take_several_calls() -> None:
    """The shader knows three batch axes; a fourth becomes one call per index."""
    recipe = recipe_of((2, 1, 3, 1, 2, 4), (3, 1, 2, 4, 2))
    assert len(recipe.calls) == 2
    assert {c.accesses[2].offset for c in recipe.calls} == {0, 3 * 3 * 2 * 2 * 2}


def test_an_empty_sum_reads_nothing() -> None:
    """K = 0: the box points at no element of the empty operands, and still writes."""
    (call,) = recipe_of((3, 0), (0, 5)).calls
    assert all(step == 0 for a in call.accesses[:2] for step in a.strides)
    assert [a.size for a in call.axes] == [1, 1, 1, 3, 5, 0]


def test_only_the_sum_is_serial() -> None:
    """Every axis may be cut; pieces of the sum run in order and the output is carried.

    One turn of the loop takes one term, which bounds how long a piece may be.
    """
    (call,) = recipe_of((3, 4), (4, 5)).calls
    kinds = {a.name: a.kind for a in call.axes}
    assert kinds.pop("k") == "serial"
    assert set(kinds.values()) == {"parallel"}
    assert [a.mode for a in call.accesses] == ["read", "read", "update"]
    assert call.turns == 1.0


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
    (call,) = recipe_of((3, 4), (4, 5), dtype).calls
    assert include in call.uses


def test_half_precision_is_summed_in_single() -> None:
    """3,000 ones add up to 3,000; a sum kept in f16 would stop at 2,048."""
    x, y = np.ones((1, 3000), np.float16), np.ones((3000, 1), np.float16)
    got = run("matmul", x, y)
    assert got.dtype == np.float16
    assert float(got[0, 0]) == 3000.0


@pytest.mark.parametrize("kind", [None, *ACTIVATIONS])
def test_the_fused_layer_is_its_parts(kind: str | None) -> None:
    """activation(x · w + bias), by reference and by composition."""
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(s) for s in ((5, 7), (7, 3), (3,)))
    want = np.einsum("mk,kn->mn", x, w) + b
    if kind is not None:
        want = registry.get(kind).reference(np, {}, want)
    for way in (run, composed):
        got = way("fused_matmul_bias_act", x, w, b, activation=kind)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


def test_the_fused_layer_lowers_to_its_parts() -> None:
    """The fused layer is the product, the sum and the activation, nothing else."""
    g = Graph()
    tensors = (g.input("x", (5, 7)), g.input("w", (7, 3)), g.input("b", (3,)))
    composition("fused_matmul_bias_act").build(g, {"activation": "silu"}, *tensors)
    assert [n.op for n in g.nodes()[3:]] == ["matmul", "add", "silu"]


@pytest.mark.parametrize("bias", [(5,), (5, 3), (1, 3)])
def test_a_bias_is_one_value_per_column(bias: Shape) -> None:
    """A bias of another shape is refused with the size it should have."""
    with pytest.raises(ShapeError, match="one value for each of 3 columns"):
        added("fused_matmul_bias_act", (5, 7), (7, 3), bias)


def test_an_unknown_activation_is_refused() -> None:
    """The message lists the known ones."""
    with pytest.raises(AttributeRefused, match="gelu_approx"):
        added("fused_matmul_bias_act", (2, 2), (2, 2), (2,), activation="softplus")


def test_samples_cover_every_type_and_edge() -> None:
    """Zero sizes on each side, more than 65,535 rows, each dtype."""
    samples = registry.get("matmul").samples
    shapes = [tuple(d.shape for d in s.inputs) for s in samples]
    sizes = set(itertools.chain.from_iterable(itertools.chain.from_iterable(shapes)))
    assert {0, 1} <= sizes
    assert max(sizes) > 65_535
    dtypes = {d.dtype for s in samples for d in s.inputs}
    assert dtypes == set(DType) - {DType.BOOL}
