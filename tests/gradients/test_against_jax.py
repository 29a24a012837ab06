"""Gradients, tangents, second derivatives and maps of functions, against JAX's.

JAX compiles each function whole: one by one its steps take longer to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from tests.gradients.functions import CASES
from tests.tiers import thinned

pytestmark = pytest.mark.requires_jax


@pytest.fixture(scope="module")
def jax() -> Any:
    import jax

    with jax.enable_x64(True):
        yield jax


def drawn(shapes: tuple[tuple[int, ...], ...], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


def close(ours: Any, theirs: Any, at: float = 1e-9) -> None:
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=at, atol=at * np.abs(theirs).max())


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients(name: str, jax: Any) -> None:
    """Value and gradients by every argument at once are JAX's."""
    f, shapes = CASES[name]
    args, by = drawn(shapes), tuple(range(len(shapes)))
    value, grads = rlx.value_and_grad(lambda *x: f(np, *x), argnums=by)(*args)
    want = jax.jit(jax.value_and_grad(lambda *x: f(jax.numpy, *x), argnums=by))(*args)
    close(np.asarray(value), want[0])
    for ours, theirs in zip(grads, want[1], strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_tangents(name: str, jax: Any) -> None:
    f, shapes = CASES[name]
    args, along = drawn(shapes), drawn(shapes, 1)
    value, tangent = rlx.jvp(lambda *x: f(np, *x), args, along)
    theirs = jax.jit(lambda *both: jax.jvp(lambda *x: f(jax.numpy, *x), *both))
    want = theirs(args, along)
    close(np.asarray(value), want[0])
    close(np.asarray(tangent), want[1])


@pytest.mark.parametrize("name", thinned(CASES, 2))
def test_second_derivatives(name: str, jax: Any) -> None:
    """The gradient of a gradient along a direction, by the first argument."""
    f, shapes = CASES[name]
    args = drawn(shapes)
    v = drawn(shapes[:1], 2)[0]

    def bent(xp: Any, grad: Any, *x: Any) -> Any:
        return xp.sum(grad(lambda *y: f(xp, *y))(*x) * v)

    ours = rlx.grad(lambda *x: bent(np, rlx.grad, *x))(*args)
    close(
        ours, jax.jit(jax.grad(lambda *x: bent(jax.numpy, jax.grad, *x)))(*args), 1e-8
    )


@pytest.mark.parametrize("name", thinned(CASES, 2))
def test_maps(name: str, jax: Any) -> None:
    """The gradient for each of three examples, some arguments the same for all."""
    f, shapes = CASES[name]
    rng = np.random.default_rng(3)
    first = rng.normal(size=(3, *shapes[0]))
    args = [first, *drawn(shapes)[1:]]
    axes = (0, *[None] * (len(shapes) - 1))
    ours = rlx.vmap(rlx.grad(lambda *x: f(np, *x)), in_axes=axes)(*args)
    want = jax.jit(jax.vmap(jax.grad(lambda *x: f(jax.numpy, *x)), in_axes=axes))(*args)
    close(ours, want)


def test_argument_trees_and_what_else_is_returned(jax: Any) -> None:
    """Dicts and lists of arrays, has_aux, and the same within a compiled function."""
    params = {"w": drawn(((3, 2),))[0], "b": [np.ones(2)]}
    x = drawn(((4, 3),), 4)[0]

    def loss(xp: Any, p: Any, x: Any) -> Any:
        y = xp.tanh(x @ p["w"] + p["b"][0])
        return xp.mean(y**2), {"y": y}

    both = rlx.value_and_grad(lambda p, x: loss(np, p, x), has_aux=True)
    (value, aux), grads = rlx.function(both)(params, x)
    (want, told), theirs = jax.value_and_grad(
        lambda p, x: loss(jax.numpy, p, x), has_aux=True
    )(params, x)
    close(np.asarray(value), want)
    close(aux["y"], told["y"])
    close(grads["w"], theirs["w"])
    close(grads["b"][0], theirs["b"][0])
