"""Softmax and norms: meaning on any axis, refusals, the recipe's walk, compositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.errors import AttributeRefused, DTypeError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Call
from rlxweb.ir.op import registry
from rlxweb.ir.shape import Shape
from tests.agreement import Array
from tests.unit.ops.alone import (
    added,
    composed,
    composition,
    recipe_of,
    run,
    types_of,
)

NAMES = ("softmax", "layer_norm", "rms_norm")


def along(name: str, x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """One line, computed by the formula in the doc."""
    if name == "softmax":
        return np.exp(x) / np.exp(x).sum()
    if name == "layer_norm":
        return (x - x.mean()) / np.sqrt(x.var() + eps) * gamma + beta
    return x / np.sqrt((x**2).mean() + eps) * gamma + beta


def shapes_of(name: str, shape: Shape, axis: int) -> list[Shape]:
    """Shapes of the rows and, where the op has them, of its scale and shift."""
    n = (shape[axis],)
    return [shape] if name == "softmax" else [shape, n, n]


def operands(name: str, shape: Shape, axis: int) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.uniform(-2, 2, s) for s in shapes_of(name, shape, axis)]


def attrs_of(name: str, axis: int, eps: float = 1e-3) -> dict[str, Any]:
    return {"axis": axis} if name == "softmax" else {"axis": axis, "eps": eps}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 5), -2)]
)
def test_each_line_along_the_axis_is_normalised(
    name: str, shape: Shape, axis: int
) -> None:
    """Lines are normalised by the formula, in the reference and the composition."""
    x, *scale = operands(name, shape, axis)
    gamma, beta = scale or (np.ones(1), np.zeros(1))
    want = np.apply_along_axis(
        lambda line: along(name, line, gamma, beta, 1e-3), axis, x
    )
    for way in (run, composed):
        got = way(name, x, *scale, **attrs_of(name, axis))
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_a_composition_of_halves_keeps_no_half_inside(name: str) -> None:
    """f16 operands are cast once on the way in and once on the way out."""
    g = Graph()
    shapes = shapes_of(name, (3, 5), 1)
    tensors = [g.input(f"x{k}", s, "f16") for k, s in enumerate(shapes)]
    out = composition(name).build(g, attrs_of(name, 1), *tensors)
    assert out.dtype is DType.F16
    inside = [n for n in g.nodes() if n.op != "input" and n.id != out.id]
    assert {n.type.dtype for n in inside} == {DType.F32}


def test_probabilities_add_up_however_large_the_scores() -> None:
    """Scores near the ends of float32 give a one-hot row, not NaN."""
    x = np.array([[1e38, -1e38, 0], [-3e38, -3e38, -3e38]], np.float32)
    got = run("softmax", x, axis=-1)
    np.testing.assert_allclose(got, [[1, 0, 0], [1 / 3] * 3], rtol=1e-6)


def test_values_far_from_zero_keep_their_spread() -> None:
    """The variance is taken around the mean: 1e6 + {0, 1} is told apart in float32."""
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
    scale = shapes_of(name, (3, 5), 1)[1:]
    with pytest.raises(ShapeError, match="outside rank"):
        added(name, shape, *scale, **attrs_of(name, axis))


@pytest.mark.parametrize("name", NAMES)
def test_integers_are_refused(name: str) -> None:
    with pytest.raises(DTypeError, match="floats only"):
        added(name, *((s, "i32") for s in shapes_of(name, (3, 5), 1)))


@pytest.mark.parametrize(("gamma", "beta"), [((4,), (5,)), ((5,), (1,)), ((), (5,))])
def test_gamma_and_beta_have_one_value_per_element(gamma: Shape, beta: Shape) -> None:
    """The message says which of the two, and the size it should have."""
    with pytest.raises(ShapeError, match=r"wants \[5\]"):
        added("layer_norm", (3, 5), gamma, beta)


@pytest.mark.parametrize("eps", [-1e-5, float("nan"), float("inf"), 1e39])
def test_an_eps_that_makes_no_sense_is_refused(eps: float) -> None:
    with pytest.raises(AttributeRefused, match="finite and >= 0"):
        added("rms_norm", (3, 5), (5,), (5,), eps=eps)
    with pytest.raises(AttributeRefused, match="is not of kind float"):
        added("rms_norm", (3, 5), (5,), (5,), eps=10**400)


def call_of(name: str, shape: Shape, axis: int) -> Call:
    inputs = types_of(*shapes_of(name, shape, axis))
    (call,) = recipe_of(name, inputs, inputs[0], attrs_of(name, axis)).calls
    return call


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((6,), 0), ((3, 5), -1), ((3, 5), 0), ((2, 3, 4), 1)]
)
def test_the_box_walks_each_line_once(name: str, shape: Shape, axis: int) -> None:
    """The strides of the box, and those the shader is told, are the axis's own."""
    call = call_of(name, shape, axis)
    x = np.arange(np.prod(shape))
    sizes = [a.size for a in call.axes]
    assert [a.name for a in call.axes] == ["outer", "inner", "n"]
    assert call.axes[2].kind == "whole"
    steps = np.array(call.accesses[0].strides)
    seen = (np.indices(sizes).reshape(3, -1).T @ steps).reshape(-1, sizes[2])
    lines = np.moveaxis(x.reshape(shape), axis, -1).reshape(-1, shape[axis])
    np.testing.assert_array_equal(np.sort(seen, 0), np.sort(lines, 0))
    assert call.accesses[-1].strides == call.accesses[0].strides
    assert (call.values["outer_step"], 1, call.values["step"]) == tuple(steps)


@pytest.mark.parametrize("name", NAMES[1:])
def test_scale_and_shift_follow_the_line(name: str) -> None:
    """Gamma and beta are walked along n and stand still along the other axes."""
    call = call_of(name, (2, 3, 4), 1)
    assert [a.strides for a in call.accesses[1:3]] == [(0, 0, 1)] * 2
    assert call.values["eps"] == 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_flops_grow_with_the_elements(name: str) -> None:
    op = registry.get(name)
    kinds = types_of((3, 5), (3, 10))
    small, large = (op.flops((k,), k, {"axis": -1}) for k in kinds)
    assert large == 2 * small > 0
