"""Test the API of grad, jvp, vmap and checkpoint: arguments, refusals, and graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import (
    DTypeError,
    GradientRefused,
    GraphError,
    ShapeError,
    TraceError,
    Unsupported,
    UsageError,
)

X = np.random.default_rng(1).normal(size=(4, 3))


def cube(x: Any) -> Any:
    return x**3


def test_numbers_and_orders() -> None:
    """Python floats, and derivatives of derivatives."""
    assert rlx.grad(cube)(2.0) == 12.0
    assert rlx.grad(rlx.grad(cube))(2.0) == 12.0
    third = rlx.grad(rlx.grad(rlx.grad(np.sin)))(0.3)
    np.testing.assert_allclose(third, -np.cos(0.3), rtol=1e-12)
    value, tangent = rlx.jvp(np.sin, (0.5,), (2.0,))
    np.testing.assert_allclose([value, tangent], [np.sin(0.5), 2 * np.cos(0.5)])


def test_piecewise_linear_functions_have_zero_second_derivatives() -> None:
    """Masks made by a derivative do not count as integers the user asked for."""

    def piecewise_linear(x: Any) -> Any:
        return np.sum(np.maximum(x, 0.0)) + np.max(x) + np.sum(np.sort(x)[:2])

    second = rlx.grad(lambda x: np.sum(rlx.grad(piecewise_linear)(x) * X[0]))(X[0])
    np.testing.assert_array_equal(second, 0.0)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.sum(np.argsort(x)) * 1.0,
        lambda x: np.sum(x > 0) * 2.0,
        lambda x: np.sum(np.floor(x).astype(int)) * 0.5,
        lambda x: np.where(np.any(x > 0), 1.0, 2.0),
        lambda x: np.sum(np.where(np.argmax(x) == 0, 1.0, 2.0)),
    ],
)
def test_integers_and_bools_carry_no_gradient(f: Any) -> None:
    """Zero wherever there is a slope, forward and reverse, as in JAX."""
    x, v = X[0], X[1]
    value, grad = rlx.value_and_grad(f)(x)
    assert value == f(x)
    np.testing.assert_array_equal(grad, np.zeros(3))
    value, tangent = rlx.jvp(f, (x,), (v,))
    assert (value, tangent) == (f(x), 0.0)
    np.testing.assert_array_equal(rlx.jvp(rlx.grad(f), (x,), (v,))[1], np.zeros(3))


def test_constant_results_have_zero_tangents() -> None:
    """A Python number and a NumPy number are constants beside an array."""
    value, tangent = rlx.jvp(lambda x: (3.0, [2, x * 2], np.float64(4)), (X,), (X,))
    assert (value[0], value[1][0], value[2]) == (3.0, 2, 4.0)
    assert (tangent[0], tangent[1][0], tangent[2]) == (0.0, 0, 0.0)
    np.testing.assert_array_equal(tangent[1][1], 2 * X)


def test_stop_gradient_is_a_constant() -> None:
    """`stop_gradient` makes a constant of values, and of comparisons with them."""
    grad = rlx.grad(lambda x: np.sum(x * rlx.nn.stop_gradient(x)))(X)
    np.testing.assert_array_equal(grad, X)
    through = rlx.grad(lambda x: np.sum(rlx.nn.stop_gradient(x) > 0) * 1.0)(X)
    np.testing.assert_array_equal(through, 0.0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: rlx.grad(3), UsageError, "a function that accepts arrays"),
        (lambda: rlx.grad(cube)(X), TraceError, r"a scalar result \(shape \[\]\)"),
        (lambda: rlx.grad(np.sum)(np.arange(3)), TraceError, "real floating-point"),
        (lambda: rlx.grad(np.sum)(X + 1j), TraceError, "x.real and x.imag"),
        (lambda: rlx.grad(np.sum, argnums=2)(X), UsageError, "argnums contains 2"),
        (lambda: rlx.grad(np.sum, argnums="x"), UsageError, "argnums"),
        (
            lambda: rlx.grad(lambda x: np.sum(x), has_aux=True)(X),
            TraceError,
            "has_aux",
        ),
        (lambda: rlx.jvp(cube, (X,), ()), UsageError, "one tangent per argument"),
        (lambda: rlx.jvp(cube, (X,), (X[0],)), TraceError, "ing array has shape"),
        (lambda: rlx.vmap(cube, in_axes=2)(X), TraceError, "axis 2"),
        (lambda: rlx.vmap(cube, in_axes=(0, 1))(X), TraceError, "in_axes has 2"),
        (
            lambda: rlx.vmap(lambda x, y: x + y)(X, X[:2]),
            TraceError,
            "2 examples.*has 4",
        ),
        (lambda: rlx.vmap(cube, in_axes="x"), UsageError, "an axis or None"),
        (lambda: rlx.checkpoint(3), UsageError, "a function"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_errors_name_the_users_line() -> None:
    """The error of a refused gradient names the user's line that asked for it."""
    with pytest.raises(TraceError, match=r"test_grad_jvp_vmap_api\.py:\d+ in "):
        rlx.grad(lambda x: x)(X)


def layer(w: Any, x: Any) -> Any:
    return np.tanh(x @ w) * np.sin(x) + x


def test_checkpoint_takes_less_memory_for_the_same_bits(
    rng: np.random.Generator,
) -> None:
    weights = [rng.normal(size=(32, 32)) / 6 for _ in range(6)]
    x = rng.normal(size=(512, 32))

    def loss(weights: Any, x: Any, wrap: Any) -> Any:
        for w in weights:
            x = wrap(layer)(w, x)
        return np.mean(x * x)

    plain = rlx.grad(lambda w, x: loss(w, x, lambda f: f))
    checkpointed = rlx.grad(lambda w, x: loss(w, x, rlx.checkpoint))
    for a, b in zip(plain(weights, x), checkpointed(weights, x), strict=True):
        np.testing.assert_array_equal(a, b)
    sizes = [sum(f.compiled(weights, x).plan.slot_bytes) for f in (plain, checkpointed)]
    assert sizes[1] < 0.75 * sizes[0]


def test_nested_checkpoints_with_several_results(
    rng: np.random.Generator,
) -> None:
    """Nested checkpoints of several results leave the gradient as it is.

    They take values from around the function; one result is used and one not.
    """
    w = rng.normal(size=(3, 3))

    def two_results(x: Any) -> Any:
        inner = rlx.checkpoint(lambda x: (np.sin(x @ w), np.exp(x)))
        a, _ = inner(x)
        return a, np.cos(a) * x

    def loss(x: Any, wrap: Any) -> Any:
        a, b = wrap(two_results)(x)
        return np.sum(a * b) + np.sum(wrap(two_results)(b)[1])

    plain = rlx.grad(lambda x: loss(x, lambda f: f))(X)
    checkpointed = rlx.grad(lambda x: loss(x, rlx.checkpoint))(X)
    np.testing.assert_allclose(checkpointed, plain, rtol=1e-12)
    np.testing.assert_array_equal(rlx.checkpoint(cube)(X), X**3)


def layer_graph() -> rlx.Graph:
    g = rlx.Graph("layer")
    x, w = g.input("x", (4, 3)), g.param("w", (3, 2))
    g.set_outputs([g.mean(g.tanh(x @ w))])
    return g


def run_graph(g: rlx.Graph, **feeds: Any) -> list[Any]:
    compiled = rlx.Session("cpu").compile(g)
    for name in g.named("param"):
        compiled.set_param(name, feeds[name])
    outs: list[Any] = compiled.run({n: feeds[n] for n in g.named("input")})
    return outs


def test_graphs_in_graphs_out(rng: np.random.Generator) -> None:
    """Transforms of graphs give graphs: gradients by params and by name, tangents, many
    examples.
    """
    x, w = X.astype("f4"), rng.normal(size=(3, 2)).astype("f4")
    value, by_w = run_graph(rlx.value_and_grad(layer_graph()), x=x, w=w)
    np.testing.assert_allclose(value, np.tanh(x @ w).mean(), rtol=1e-5)
    (by_x,) = run_graph(rlx.grad(layer_graph(), wrt="x"), x=x, w=w)
    slope = (1 - np.tanh(x @ w) ** 2) / 8
    np.testing.assert_allclose(by_w, x.T @ slope, rtol=1e-5)
    np.testing.assert_allclose(by_x, slope @ w.T, rtol=1e-5)
    _, tangent = run_graph(rlx.jvp(layer_graph(), wrt="x"), x=x, w=w, d_x=x)
    np.testing.assert_allclose(tangent, (by_x * x).sum(), rtol=1e-5)
    examples = np.stack([x, 2 * x])
    (values,) = run_graph(rlx.vmap(layer_graph(), count=2), x=examples, w=w)
    np.testing.assert_allclose(values, np.tanh(examples @ w).mean((1, 2)), rtol=1e-5)
    with pytest.raises(GraphError, match="its inputs and params are x, w"):
        rlx.grad(layer_graph(), wrt="v")
    with pytest.raises(UsageError, match="count=8"):
        rlx.vmap(layer_graph())
    multi_output = layer_graph()
    multi_output.set_outputs([multi_output.tensor(2)])
    with pytest.raises(ShapeError, match="exactly one output, with one element"):
        rlx.grad(multi_output)


def test_dynamic_sizes(tmp_path: Path, rng: np.random.Generator) -> None:
    """A graph with dims has a gradient, and can be saved with it."""
    g = rlx.Graph("layer")
    x, w = g.input("x", (rlx.Dim("batch"), 3)), g.param("w", (3, 2))
    y = g.sum(g.tanh(x @ w))
    g.set_outputs([y, *g.gradients([y], [w])])
    value = rng.normal(size=(3, 2)).astype("f4")
    compiled = rlx.Session("cpu").compile(g)
    compiled.set_param("w", value)
    g.save(tmp_path / "layer.rlxg", {"w": value})
    for rows in (2, 5):
        x = rng.normal(size=(rows, 3)).astype("f4")
        want = x.T @ (1 - np.tanh(x @ value) ** 2)
        np.testing.assert_allclose(compiled.run({"x": x})[1], want, rtol=1e-5)


def test_gradients_of_other_types_are_refused() -> None:
    g = rlx.Graph("g")
    x, n = g.input("x", (3,)), g.input("n", (3,), "i32")
    y = g.exp(x)
    with pytest.raises(DTypeError, match="require floating-point tensors"):
        g.gradients([y], [n])
    with pytest.raises(ShapeError, match="shape and dtype of its output"):
        g.gradients([y], [x], [g.sum(x)])
    with pytest.raises(ShapeError, match="wholes"):
        g.vectorized([y], [x], [])
    (zeros,) = g.gradients([g.exp(g.input("z", (2,)))], [x])
    assert tuple(zeros.shape) == (3,)


def test_custom_ops(rng: np.random.Generator) -> None:
    """A custom op is differentiated by its rule, and refused without one.

    Without one it is mapped all the same.
    """
    from rlxweb.ir.derivative import slopes
    from rlxweb.ir.op import registry

    rlx.register_custom(
        "own_square",
        arity=1,
        reference=lambda xp, attrs, x: x * x,
        vjp=slopes(lambda g, x, y: 2.0 * x),
    )
    rlx.register_custom("own_cube", arity=1, reference=lambda xp, a, x: x * x * x)
    try:
        g = rlx.Graph("own")
        x = g.input("x", (3,), "f64")
        g.set_outputs(g.gradients([g.custom_op("own_square", x)], [x]))
        np.testing.assert_array_equal(run_graph(g, x=X[0])[0], 2 * X[0])
        with pytest.raises(GradientRefused, match=r"own_cube.*no derivative"):
            g.gradients([g.custom_op("own_cube", x)], [x])
        y = g.custom_op("own_cube", x)
        batched_input = g.input("many", (5, 3), "f64")
        g.set_outputs(g.vectorized([y], [x], [batched_input]))
        examples = rng.normal(size=(5, 3))
        np.testing.assert_allclose(run_graph(g, x=X[0], many=examples)[0], examples**3)
        oversized_input = g.input("far", (300, 3), "f64")
        with pytest.raises(Unsupported, match="300 examples"):
            g.vectorized([y], [x], [oversized_input])
    finally:
        for name in ("own_square", "own_cube"):
            registry.unregister(name)
