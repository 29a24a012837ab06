"""Compare second derivatives of random programs full of conditions, positions and
orders with JAX's.

What depends on an argument through bools and integers alone has slope zero. The
gradient of a function with a condition is such a thing: it must be differentiable
again, in every order of forward, reverse and map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx

SIZE = 6
PROGRAMS = 8
DEPTH = 3
Step = Callable[[Any, Any, float], Any]

# (module, vector, random number) → vector. Random values are never at a corner.
STEPS: dict[str, Step] = {
    "where": lambda xp, x, c: xp.where(x > c, x * x, 3 * x),
    "where of constants": lambda xp, x, c: x * xp.where(x < c, 2.0, -1.0),
    "where of a function": lambda xp, x, c: xp.where(xp.sin(x) > c, x, -x),
    "median": lambda xp, x, c: x * xp.median(x),
    "quantile": lambda xp, x, c: x + xp.quantile(x, abs(c) / 2),
    "interp": lambda xp, x, c: xp.interp(
        x, xp.array([-2.0, -0.5, 0.3, 2.0]), xp.array([0.0, c, 1.0, -2.0])
    ),
    "nan_to_num": lambda xp, x, c: xp.nan_to_num(x) * x,
    "clip": lambda xp, x, c: xp.clip(x, c - 1.03, c + 0.57) * x,
    "maximum": lambda xp, x, c: xp.maximum(x, c) * xp.minimum(x, 2 * x[::-1] + 0.1),
    "sort": lambda xp, x, c: xp.sort(x) * xp.arange(SIZE) + x,
    "argsort": lambda xp, x, c: x**2 * xp.argsort(x),
    "argmax": lambda xp, x, c: x * x[xp.argmax(x)],
    "take along": lambda xp, x, c: xp.take_along_axis(x, xp.argsort(x), 0) * x,
    "searchsorted": lambda xp, x, c: (
        x * xp.searchsorted(xp.array([-1.0, c, 1.5]), x) + x**3
    ),
    "count": lambda xp, x, c: x * xp.sum(x > c),
    "mask as floats": lambda xp, x, c: (x > c).astype(x.dtype) * x + x,
    "integers": lambda xp, x, c: x * xp.floor(2 * x).astype(int) + xp.sin(x),
    "rounded": lambda xp, x, c: xp.round(3 * x) + xp.sign(x) * xp.abs(x),
    "isfinite": lambda xp, x, c: xp.where(xp.isfinite(x), xp.sin(x), 0.0),
    "any": lambda xp, x, c: xp.where(xp.any(x > 2 + c), x, x * x),
    "ptp": lambda xp, x, c: x * (xp.max(x) - xp.min(x)),
    "remainder": lambda xp, x, c: xp.mod(x, 0.7) * x,
    "smooth": lambda xp, x, c: xp.tanh(x) + c * x,
}


def programs(seed: int) -> list[tuple[str, Callable[[Any, Any], Any]]]:
    """Return named random programs, each a function of a vector to one float; the
    chains use each step at least once.
    """
    rng = np.random.default_rng(seed)
    unused_steps = list(rng.permutation(list(STEPS)))
    named_programs = []
    for _ in range(PROGRAMS):
        names = [unused_steps.pop() for _ in range(min(DEPTH, len(unused_steps)))]
        names += list(rng.choice(list(STEPS), DEPTH - len(names)))
        numbers = rng.uniform(-1, 1, DEPTH)
        named_programs.append(
            (", ".join(names), chain_steps([STEPS[n] for n in names], numbers))
        )
    for name in rng.choice(list(STEPS), PROGRAMS, replace=False):
        named_programs.append((name, single_step(STEPS[name], rng.uniform(-1, 1))))
    return named_programs


def chain_steps(steps: list[Step], numbers: Any) -> Callable[[Any, Any], Any]:
    def program(xp: Any, x: Any) -> Any:
        for step, number in zip(steps, numbers, strict=True):
            # Bounded, so that no chain of squares outgrows the tolerance.
            x = 2 * xp.sin(step(xp, x, float(number)))
        return xp.sum(x * xp.cos(xp.arange(SIZE)))

    return program


def single_step(step: Step, number: float) -> Callable[[Any, Any], Any]:
    """Return a program of one step alone: for many steps its gradient depends on x only
    through conditions.
    """

    def program(xp: Any, x: Any) -> Any:
        return xp.sum(step(xp, x, float(number)) * xp.cos(xp.arange(SIZE)))

    return program


def all_derivatives(xp: Any, lib: Any, f: Any, x: Any, v: Any, rows: Any) -> Any:
    """Compute the value, the gradient, and the second derivatives in every order."""
    grad = lib.grad(f)
    return (
        f(x),
        grad(x),
        lib.jvp(grad, (x,), (v,))[1],
        lib.grad(lambda x: lib.jvp(f, (x,), (v,))[1])(x),
        lib.grad(lambda x: xp.sum(grad(x) * v))(x),
        lib.jvp(lambda x: lib.jvp(f, (x,), (v,))[1], (x,), (v,))[1],
        lib.vmap(grad)(rows),
        lib.vmap(lambda row: lib.jvp(grad, (row,), (v,))[1])(rows),
        lib.jvp(lib.vmap(grad), (rows,), (rows[::-1],))[1],
    )


@pytest.mark.requires_jax
@pytest.mark.parametrize("seed", range(1))
def test_second_derivatives_of_programs_with_conditions(
    seed: int, is_full_tier: bool
) -> None:
    import jax

    cases = programs(seed)[:: 1 if is_full_tier else 4]
    rng = np.random.default_rng(100 + seed)
    x, v, rows = rng.normal(size=SIZE), rng.normal(size=SIZE), rng.normal(size=(3, 6))

    def derivatives_of(xp: Any, lib: Any, program: Any) -> Any:
        return lambda *a: all_derivatives(xp, lib, lambda x: program(xp, x), *a)

    ours = rlx.function(lambda *a: [derivatives_of(np, rlx, p)(*a) for _, p in cases])(
        x, v, rows
    )
    with jax.enable_x64(True):  # each alone: XLA gives NaN for some of all in one
        wanted = [
            jax.jit(derivatives_of(jax.numpy, jax, p))(x, v, rows) for _, p in cases
        ]
    for (name, _), got, want in zip(cases, ours, wanted, strict=True):
        for order, (a, b) in enumerate(zip(got, want, strict=True)):
            size = max(1.0, float(np.abs(b).max()))
            np.testing.assert_allclose(
                a, b, rtol=1e-8, atol=1e-9 * size, err_msg=f"{name}, output {order}"
            )
