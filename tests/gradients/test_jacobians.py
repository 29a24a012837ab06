"""Compare Jacobians, Hessian-vector products and higher orders with JAX's.

JAX compiles each function whole: one by one its steps take longer to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import GraphError, ShapeError, TraceError, UsageError
from tests.suite_tiers import thin_out_cases

pytestmark = pytest.mark.requires_jax
RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 4))
X, V = RNG.normal(size=(2, 4))
W, U = RNG.normal(size=(2, 4, 2))

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "vector": (lambda np, x: np.tanh(A @ x), (X,), 0),
    "number": (lambda np, x: np.sum(x**3), (X,), 0),
    "of a number": (lambda np, s: np.stack([s, s * s]), (np.float64(2.0),), 0),
    "of a float": (lambda np, s: s * s, (2.0,), 0),
    "matrix": (lambda np, w: w.T @ w, (W,), 0),
    "by both": (lambda np, x, w: np.sin(x @ w) * 2, (X, W), (0, 1)),
    "by the second": (lambda np, x, w: np.sin(x @ w) * 2, (X, W), 1),
    "by the last": (lambda np, x, w: x @ w, (X, W), -1),
    "of a dict": (lambda np, p: p["a"] @ p["b"], ({"a": X, "b": W},), 0),
    "several results": (lambda np, x, w: (x @ w, {"a": np.sum(w)}), (X, W), (0, 1)),
    "constant": (lambda np, x: np.ones(3) + 0 * np.sum(x), (X,), 0),
    "a plain number": (lambda np, x: 3.0, (X,), 0),
    "nothing given": (lambda np, x: x * 2, (np.zeros(0),), 0),
    "nothing returned": (lambda np, x: x[:0] * 2, (X,), 0),
    "single precision": (lambda np, x: np.exp(x), (X.astype(np.float32),), 0),
}


@pytest.fixture(scope="module")
def jax() -> Any:
    import jax

    with jax.enable_x64(True):
        yield jax


def assert_same(ours: Any, theirs: Any, jax: Any) -> None:
    """Check that both have the same structure, shapes, dtypes and numbers."""
    tree = jax.tree_util
    assert tree.tree_structure(ours) == tree.tree_structure(theirs)
    for a, b in zip(tree.tree_leaves(ours), tree.tree_leaves(theirs), strict=True):
        assert (np.shape(a), a.dtype) == (b.shape, b.dtype)
        tolerance = 1e-9 if b.dtype.itemsize >= 8 else 1e-5
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_jacobians(name: str, jax: Any) -> None:
    """Jacobians in forward and in reverse mode are JAX's."""
    f, args, by = CASES[name]
    theirs = jax.jit(jax.jacrev(lambda *a: f(jax.numpy, *a), by))(*args)
    for mode in (rlx.jacfwd, rlx.jacrev):
        assert_same(mode(lambda *a: f(np, *a), by)(*args), theirs, jax)


def energy(np: Any, x: Any) -> Any:
    return np.sum(np.tanh(A @ x) ** 2) + np.sum(x) ** 3


def test_second_derivatives(jax: Any) -> None:
    """Second derivatives are JAX's, whichever two modes are combined."""
    hessian = jax.hessian(lambda x: energy(jax.numpy, x))
    want = jax.jit(hessian)(X)
    f = lambda x: energy(np, x)  # noqa: E731
    for our_hessian in (
        rlx.jacfwd(rlx.jacrev(f)),
        rlx.jacrev(rlx.jacfwd(f)),
        rlx.jacfwd(rlx.grad(f)),
        rlx.function(lambda x: rlx.jacrev(rlx.grad(f))(x)),
    ):
        assert_same(our_hessian(X), want, jax)
    rows = np.stack([X, V])
    want_rows = jax.jit(jax.vmap(hessian))(rows)
    assert_same(rlx.vmap(rlx.jacfwd(rlx.grad(f)))(rows), want_rows, jax)


def test_complex_results_and_auxiliary_outputs(jax: Any) -> None:
    """A complex result has a forward Jacobian, which is complex."""
    assert_same(
        rlx.jacfwd(lambda x: np.fft.rfft(x))(X),
        jax.jacfwd(lambda x: jax.numpy.fft.rfft(x))(X),
        jax,
    )
    for mode in (rlx.jacfwd, rlx.jacrev):
        jacobian, aux = mode(lambda x: (np.sin(x), "cosine"), has_aux=True)(X)
        np.testing.assert_allclose(jacobian, np.diag(np.cos(X)), rtol=1e-12)
        assert aux == "cosine"


def test_hessian_vector_products(jax: Any) -> None:
    def two_argument_energy(np: Any, x: Any, w: Any) -> Any:
        return np.sum(np.sin(x @ w) ** 2)

    f = lambda x: energy(np, x)  # noqa: E731
    hessian = jax.jit(jax.hessian(lambda x: energy(jax.numpy, x)))(X)
    np.testing.assert_allclose(rlx.hvp(f, (X,), (V,)), hessian @ V, rtol=1e-9)
    ours = rlx.hvp(lambda *a: two_argument_energy(np, *a), (X, W), (V, U))
    slopes = jax.grad(lambda *a: two_argument_energy(jax.numpy, *a), (0, 1))
    theirs = jax.jit(
        lambda *points_and_directions: jax.jvp(slopes, *points_and_directions)[1]
    )((X, W), (V, U))
    assert_same(ours, theirs, jax)


def polynomial_graph(rank: int) -> rlx.Graph:
    """Return the graph of the sum of x⁴ - 2 x³ over an array of that rank."""
    graph = rlx.Graph("cubes")
    x = graph.input("x", (3,) * rank, "f64")
    y = x * x * x * x - x * x * x * 2
    graph.set_outputs([graph.sum(y, tuple(range(rank))) if rank else y])
    return graph


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("order", thin_out_cases([1, 2, 3, 4, 5], 2))
def test_higher_orders_of_graphs(order: int, rank: int, jax: Any) -> None:
    """Higher orders are JAX's grad of grad, element by element for an array."""
    jnp = jax.numpy
    x = np.random.default_rng(rank).normal(size=(3,) * rank)
    derivative = lambda v: v**4 - 2 * v**3  # noqa: E731
    for _ in range(order):
        derivative = jax.grad(derivative)
    want = jax.jit(derivative if not rank else jnp.vectorize(derivative))(x)
    session = rlx.Session("cpu")
    compiled = session.compile(rlx.nth_order_grad(polynomial_graph(rank), "x", order))
    (got,) = compiled.run({"x": x})
    assert got.shape == x.shape
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)

    def polynomial_sum(v: Any) -> Any:
        return jnp.sum(v**4 - 2 * v**3)

    directions = [
        np.random.default_rng(index).normal(size=x.shape) for index in range(order)
    ]

    def derivative_along(f: Any, direction: Any, v: Any) -> Any:
        return jax.jvp(f, (v,), (direction,))[1]

    directional: Any = polynomial_sum
    for direction in directions:
        directional = partial(derivative_along, directional, direction)
    compiled = session.compile(
        rlx.directional_nth_grad(polynomial_graph(rank), "x", order)
    )
    (got,) = compiled.run(
        {"x": x, **{f"dir_{index}": w for index, w in enumerate(directions)}}
    )
    assert got.shape == ()
    np.testing.assert_allclose(got, jax.jit(directional)(x), rtol=1e-9, atol=1e-12)


def test_hessian_vector_product_of_a_graph() -> None:
    """The value, the gradient and the tangents of both are right for sum(x³)."""
    graph = rlx.Graph("cube")
    x = graph.input("x", (4,), "f64")
    graph.set_outputs([graph.sum(x * x * x, 0)])
    hvp_graph = rlx.hvp(graph, wrt="x")
    outputs = rlx.Session("cpu").compile(hvp_graph).run({"x": X, "d_x": V})
    for got, want in zip(
        outputs, (np.sum(X**3), 3 * X**2, 3 * X**2 @ V, 6 * X * V), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="jacfwd: got an int"):
        rlx.jacfwd(3)
    with pytest.raises(UsageError, match="argnums is 'a'"):
        rlx.jacrev(np.sin, argnums="a")
    for mode in (rlx.jacfwd, rlx.jacrev):
        with pytest.raises(TraceError, match="is int64"):
            mode(np.sin)(np.arange(3))
        for result in (lambda x: 3, lambda x: np.argmax(x), lambda x: (x, True)):
            with pytest.raises(TraceError, match=r"the function returned (int|bool)"):
                mode(result)(X)
    with pytest.raises(
        TraceError, match=r"returned complex128; .* a real floating-point dtype"
    ):
        rlx.jacrev(lambda x: np.fft.rfft(x))(X)
    with pytest.raises(
        UsageError, match="a tuple of arguments and a tuple of tangents"
    ):
        rlx.hvp(energy, X, V)
    with pytest.raises(TraceError, match="the corresponding array has shape"):
        rlx.hvp(np.sum, (X,), (V[:2],))
    for make in (rlx.nth_order_grad, rlx.directional_nth_grad):
        with pytest.raises(UsageError, match="order is 0; order must be >= 1"):
            make(polynomial_graph(1), "x", 0)
        with pytest.raises(GraphError, match="no input or param 'y'"):
            make(polynomial_graph(1), "y", 1)
        wide = rlx.Graph("wide")
        wide.set_outputs([wide.input("x", (3,)) * 2])
        with pytest.raises(
            ShapeError, match="requires exactly one output, with one element"
        ):
            make(wide, "x", 1)
