"""Compare gradients, tangents, second derivatives and maps of functions with JAX's.

JAX compiles each function whole: one by one its steps take longer to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from tests.gradients.numpy_jax_functions import CASES
from tests.suite_tiers import thin_out_cases

pytestmark = pytest.mark.requires_jax


@pytest.fixture(scope="module")
def jax() -> Any:
    import jax

    with jax.enable_x64(True):
        yield jax


def random_arrays(shapes: tuple[tuple[int, ...], ...], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(
        ours, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max()
    )


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients(name: str, jax: Any) -> None:
    """Value and gradients by every argument at once are JAX's."""
    f, shapes = CASES[name]
    args, by = random_arrays(shapes), tuple(range(len(shapes)))
    value, grads = rlx.value_and_grad(lambda *x: f(np, *x), argnums=by)(*args)
    want = jax.jit(jax.value_and_grad(lambda *x: f(jax.numpy, *x), argnums=by))(*args)
    assert_close(np.asarray(value), want[0])
    for ours, theirs in zip(grads, want[1], strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_tangents(name: str, jax: Any) -> None:
    f, shapes = CASES[name]
    args, directions = random_arrays(shapes), random_arrays(shapes, 1)
    value, tangent = rlx.jvp(lambda *x: f(np, *x), args, directions)
    theirs = jax.jit(
        lambda *args_and_directions: jax.jvp(
            lambda *x: f(jax.numpy, *x), *args_and_directions
        )
    )
    want = theirs(args, directions)
    assert_close(np.asarray(value), want[0])
    assert_close(np.asarray(tangent), want[1])


@pytest.mark.parametrize("name", thin_out_cases(CASES, 2))
def test_second_derivatives(name: str, jax: Any) -> None:
    """The gradient of a gradient along a direction, by the first argument."""
    f, shapes = CASES[name]
    args = random_arrays(shapes)
    v = random_arrays(shapes[:1], 2)[0]

    def directional_gradient(xp: Any, grad: Any, *x: Any) -> Any:
        return xp.sum(grad(lambda *y: f(xp, *y))(*x) * v)

    ours = rlx.grad(lambda *x: directional_gradient(np, rlx.grad, *x))(*args)
    assert_close(
        ours,
        jax.jit(jax.grad(lambda *x: directional_gradient(jax.numpy, jax.grad, *x)))(
            *args
        ),
        1e-8,
    )


@pytest.mark.parametrize("name", thin_out_cases(CASES, 2))
def test_vmapped_gradients(name: str, jax: Any) -> None:
    """Compute the gradient for each of three examples; some arguments are the same for
    all.
    """
    f, shapes = CASES[name]
    rng = np.random.default_rng(3)
    first = rng.normal(size=(3, *shapes[0]))
    args = [first, *random_arrays(shapes)[1:]]
    axes = (0, *[None] * (len(shapes) - 1))
    ours = rlx.vmap(rlx.grad(lambda *x: f(np, *x)), in_axes=axes)(*args)
    want = jax.jit(jax.vmap(jax.grad(lambda *x: f(jax.numpy, *x)), in_axes=axes))(*args)
    assert_close(ours, want)


def test_argument_trees_and_auxiliary_outputs(jax: Any) -> None:
    """Dicts and lists of arrays, has_aux, and the same within a compiled function."""
    params = {"w": random_arrays(((3, 2),))[0], "b": [np.ones(2)]}
    x = random_arrays(((4, 3),), 4)[0]

    def loss(xp: Any, p: Any, x: Any) -> Any:
        y = xp.tanh(x @ p["w"] + p["b"][0])
        return xp.mean(y**2), {"y": y}

    value_and_grad = rlx.value_and_grad(lambda p, x: loss(np, p, x), has_aux=True)
    (value, aux), grads = rlx.function(value_and_grad)(params, x)
    (want, want_aux), theirs = jax.value_and_grad(
        lambda p, x: loss(jax.numpy, p, x), has_aux=True
    )(params, x)
    assert_close(np.asarray(value), want)
    assert_close(aux["y"], want_aux["y"])
    assert_close(grads["w"], theirs["w"])
    assert_close(grads["b"][0], theirs["b"][0])
