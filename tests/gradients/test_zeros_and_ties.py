"""Check first and second derivatives where something is exactly zero, equal or on an
axis.

The right values are JAX's in float64, PyTorch's, or closed forms where JAX has NaN.
Every case runs on the CPU, in compiled code and on WGSL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from tests.suite_tiers import thin_out_cases

ENGINE_PARAMS = [
    pytest.param(("cpu", "", "off"), id="cpu"),
    pytest.param(("cpu", "", "wait"), id="fast", marks=pytest.mark.requires_fast),
    pytest.param(
        ("vulkan", "llvmpipe", "off"), id="lavapipe", marks=pytest.mark.requires_wgpu
    ),
]
ROOT = math.sqrt(5.0)
V = np.array([0.0, 1.0, 0.0])
Y = np.array([0.0, 0.0, 2.0, -1.0])


class PreciseEngine:
    """Engine together with the precision that it computes in."""

    def __init__(self, device: str, adapter: str, jit_mode: str) -> None:
        self.device, self.adapter = device, adapter
        self.is_compiled = jit_mode == "wait"
        self.dtype = np.float64 if device == "cpu" else np.float32
        self.tolerance = 1e-9 if device == "cpu" else 2e-5

    def run(self, f: Callable[..., Any], *args: Any) -> Any:
        arrays = [np.asarray(a, self.dtype) for a in args]
        return rlx.function(f, device=self.device, adapter=self.adapter)(*arrays)

    def check(self, f: Callable[..., Any], args: Any, want: Any) -> None:
        got = np.asarray(self.run(f, *args), np.float64)
        np.testing.assert_allclose(got, want, rtol=self.tolerance, atol=self.tolerance)


@pytest.fixture(params=ENGINE_PARAMS)
def precise_engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> PreciseEngine:
    device, adapter, jit_mode = request.param
    monkeypatch.setenv("RLX_FAST", jit_mode)
    return PreciseEngine(device, adapter, jit_mode)


@pytest.fixture(scope="module")
def jax() -> Any:
    import jax

    with jax.enable_x64(True):
        yield jax


def float_rows(*sequences: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(sequence, np.float64) for sequence in sequences)


AXES = float_rows([2.0, -2.0, 0.0, 0.0, 1.5], [0.0, 0.0, 3.0, -3.0, -0.5])
"""Points on both axes of the plane and next to them, as x and y."""
TIES = float_rows([0.0, 1.0, -3.0, 2.0, 50.0], [0.0, 1.0, 1.0, -40.0, 50.0])


def _sum_complex_parts(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a function of the point x + iy that sums both parts of a complex
    function.
    """

    def sum_parts(xp: Any, x: Any, y: Any) -> Any:
        value = function(xp, x + 1j * y)
        return xp.real(value) + 2.0 * xp.imag(value)

    return sum_parts


SMOOTH_CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "logaddexp": (lambda xp, x, y: xp.logaddexp(x, y), TIES),
    "logaddexp2": (lambda xp, x, y: xp.logaddexp2(x, y), TIES),
    "hypot": (lambda xp, x, y: xp.hypot(x, y), AXES),
    "abs of complex": (lambda xp, x, y: xp.abs(x + 1j * y), AXES),
    "power of complex": (lambda xp, x, y: xp.abs(x + 1j * y) ** 2, AXES),
    "angle": (lambda xp, x, y: xp.angle(x + 1j * y), AXES),
    "log of complex": (_sum_complex_parts(lambda xp, z: xp.log(z)), AXES),
    "sqrt of complex": (_sum_complex_parts(lambda xp, z: xp.sqrt(z)), AXES),
    "cube of complex": (
        _sum_complex_parts(lambda xp, z: z**3),
        float_rows([0.0, 2, 0], [0.0, 0, 1]),
    ),
    "reciprocal square": (_sum_complex_parts(lambda xp, z: z**-2), AXES),
    "root power of complex": (_sum_complex_parts(lambda xp, z: z**0.75), AXES),
    "var": (lambda xp, x: xp.var(x), float_rows([1.0, 1.5, 2.0])),
    "std": (lambda xp, x: xp.std(x), float_rows([1.0, 1.5, 2.0])),
    "var along": (
        lambda xp, x: xp.var(x, axis=1, ddof=1),
        float_rows([[1.0, 1.5, 2.0], [0.0, 0.0, 0.0]]),
    ),
    "nanvar": (lambda xp, x: xp.nanvar(x), float_rows([1.0, 1.5, 2.0])),
    "nanstd": (lambda xp, x: xp.nanstd(x), float_rows([1.0, 1.5, 2.0])),
    "norm": (lambda xp, x: xp.linalg.norm(x), float_rows([1.0, 0.0, 2.0])),
    "norm of rows": (
        lambda xp, x: xp.linalg.norm(x, axis=-1),
        float_rows([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]),
    ),
    "norm of matrix": (
        lambda xp, x: xp.linalg.norm(x, "fro", (0, 1)),
        float_rows([[1.0, 0.0], [0.0, 0.0]]),
    ),
    "norm of order 3": (
        lambda xp, x: xp.linalg.norm(x, 3),
        float_rows([1.0, 0.0, 2.0]),
    ),
    "norm of order 4": (
        lambda xp, x: xp.linalg.norm(x, 4),
        float_rows([1.0, 0.0, 2.0]),
    ),
    "norm of complex": (
        lambda xp, x, y: xp.linalg.norm(x + 1j * y),
        float_rows([1.0, 0.0, 2.0], [0.0, 0.0, 0.0]),
    ),
    "var of complex": (
        lambda xp, x, y: xp.var(x + 1j * y),
        float_rows([1.0, 0.0, 2.0], [0.0, 3.0, 0.0]),
    ),
    "sinc": (lambda xp, x: xp.sinc(x), float_rows([0.0, -0.0, 0.25, 1.0, -2.5])),
    "modf": (
        lambda xp, x: xp.sin(xp.modf(x)[0]) + xp.modf(x)[1],
        float_rows([0.0, 2.0, -3.0, 0.25, -1.75]),
    ),
    "cbrt": (lambda xp, x: xp.cbrt(x), float_rows([8.0, -1.0, 1e-6, 3.0])),
    "logsumexp": (
        lambda xp, x: xp.log(xp.sum(xp.exp(x - xp.max(x)))) + xp.max(x),
        float_rows([1.0, 1.0, 0.0]),
    ),
}


def weighted_sum(f: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    """Return the sum of the function's result with a different weight for each
    element.
    """

    def sum_result(*x: Any) -> Any:
        result = f(xp, *x)
        weights = 1.0 + 0.5 * np.arange(float(result.size)).reshape(result.shape)
        return xp.sum(result * weights.astype(result.dtype))

    return sum_result


def directions(args: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(7)
    return tuple(np.round(rng.normal(size=a.shape), 1) for a in args)


@cache
def jax_derivatives(jax: Any, name: str) -> tuple[Any, Any, Any]:
    """Return the gradients, the directional derivative and that of the gradients."""
    f, args = SMOOTH_CASES[name]
    theirs = weighted_sum(f, jax.numpy)
    v = directions(args)
    by = tuple(range(len(args)))
    grad = jax.grad(theirs, argnums=by)

    def all_derivatives(args: Any, v: Any) -> tuple[Any, Any, Any]:
        wanted, second = jax.jvp(grad, args, v)
        return wanted, jax.jvp(theirs, args, v)[1], second

    return jax.jit(all_derivatives)(args, v)


@pytest.mark.requires_jax
@pytest.mark.parametrize("name", thin_out_cases(SMOOTH_CASES, 4))
def test_jax_agrees_at_both_orders(
    name: str, precise_engine: PreciseEngine, jax: Any
) -> None:
    """Check reverse, forward, forward over reverse and reverse over reverse."""
    f, args = SMOOTH_CASES[name]
    ours = weighted_sum(f, np)
    by, v = tuple(range(len(args))), directions(args)
    ours_v = tuple(array.astype(precise_engine.dtype) for array in v)

    def directional_gradient(*x: Any) -> Any:
        grads = rlx.grad(ours, argnums=by)(*x)
        return sum(np.sum(g * w) for g, w in zip(grads, ours_v, strict=True))

    wanted, tangent, second = jax_derivatives(jax, name)
    assert all(np.isfinite(np.asarray(array)).all() for array in (*wanted, *second))
    for argnum in by:
        precise_engine.check(rlx.grad(ours, argnums=argnum), args, wanted[argnum])
        gradient = rlx.grad(ours, argnums=argnum)
        precise_engine.check(
            lambda *x, m=gradient: rlx.jvp(m, x, ours_v)[1], args, second[argnum]
        )
        precise_engine.check(
            rlx.grad(directional_gradient, argnums=argnum), args, second[argnum]
        )
    precise_engine.check(lambda *x: rlx.jvp(ours, x, ours_v)[1], args, tangent)


CLOSED_FORMS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    # One bin is 8, the others are 0 exactly: Parseval's sum of squares.
    "power spectrum": (
        lambda x: np.sum(np.abs(np.fft.rfft(x)) ** 2),
        np.ones(8),
        np.full(8, 16.0),
    ),
    "silence": (
        lambda x: np.sum(np.abs(np.fft.rfft(x)) ** 2),
        np.zeros(8),
        np.zeros(8),
    ),
    "magnitude of silence": (
        lambda x: np.sum(np.abs(np.fft.rfft(x))),
        np.zeros(8),
        np.zeros(8),
    ),
    "equal infinities": (lambda x: np.logaddexp(x, x), -np.inf, 1.0),
    "one infinity": (lambda x: np.logaddexp(x, -np.inf), 0.5, 1.0),
    "hypot at the origin": (lambda x: np.hypot(x, 0 * x), 0.0, 0.0),
    "small hypot": (lambda x: np.hypot(x, 0 * x), 1e-30, 1.0),
    "cube root at 0": (np.cbrt, 0.0, np.inf),
    "copysign at 0": (lambda x: np.copysign(x, -1.0), 0.0, -1.0),
    "norm at 0": (np.linalg.norm, np.zeros(3), np.zeros(3)),
    "square of a norm": (lambda x: np.linalg.norm(x) ** 2, np.zeros(3), np.zeros(3)),
    "norm of order 3 at 0": (
        lambda x: np.linalg.norm(x, 3),
        np.zeros(3),
        np.zeros(3),
    ),
    "norm of order 1.5": (
        lambda x: np.linalg.norm(x, 1.5),
        np.array([0.0, 4.0, 0.0]),
        V,
    ),
    "norm of order 1/2": (
        lambda x: np.linalg.norm(x, 0.5),
        np.array([0.0, 4.0, 0.0]),
        V,
    ),
    "std of constants": (np.std, np.ones(3), np.zeros(3)),
    "nanstd of constants": (np.nanstd, np.ones(3), np.zeros(3)),
    "nanvar of too few": (
        lambda x: np.nanvar(
            np.stack([x, np.array([np.nan, 5.0], x.dtype)]), axis=0, ddof=1
        )[1],
        np.array([1.0, 2.0]),
        np.array([0.0, -3.0]),
    ),
    "nn.std of constants": (rlx.nn.std, np.ones(3), np.zeros(3)),
    "nn.norm at 0": (rlx.nn.norm, np.zeros(3), np.zeros(3)),
    "nn.logsumexp of equals": (rlx.nn.logsumexp, np.ones(4), np.full(4, 0.25)),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_gradients_in_closed_form(name: str, precise_engine: PreciseEngine) -> None:
    f, x, want = CLOSED_FORMS[name]
    precise_engine.check(rlx.grad(f), (x,), want)


SECOND_CLOSED_FORMS: dict[str, tuple[Callable[..., Any], Any, Any, Any]] = {
    "var": (np.var, [1.0, 1.5, 2.0], V, np.array([-2.0, 4.0, -2.0]) / 9.0),
    "norm": (np.linalg.norm, [1.0, 0.0, 2.0], V, V / ROOT),
    # The bins' magnitudes have kinks at 0; the squares have none.
    "power spectrum": (
        lambda x: np.sum(np.abs(np.fft.fft(x)) ** 2),
        np.zeros(3),
        V,
        6.0 * V,
    ),
    "part of a power spectrum": (
        lambda x: np.sum(np.abs(np.fft.fft(x))[1:].reshape(2, 1) ** 2),
        np.zeros(3),
        V,
        np.array([-2.0, 4.0, -2.0]),
    ),
    "square of an absolute value": (
        lambda x: np.sum(np.abs(x) ** 2),
        [0.0, 1.0, -1.0],
        V + 1.0,
        2.0 * (V + 1.0),
    ),
    "product of an absolute value": (
        lambda x: np.sum(np.abs(x) * np.abs(x)),
        [1.0, 1.0, -1.0],
        V,
        2.0 * V,
    ),
    "square of a norm": (lambda x: np.linalg.norm(x) ** 2, np.zeros(3), V, 2.0 * V),
    "square of a deviation": (
        lambda x: np.std(x) ** 2,
        np.ones(3),
        V,
        np.array([-2.0, 4.0, -2.0]) / 9.0,
    ),
    "sinc": (
        lambda x: np.sum(np.sinc(x)),
        [0.0, 0.0, 1.0],
        np.array([1.0, 2.0, 1.0]),
        np.array([-(np.pi**2) / 3, -2 * np.pi**2 / 3, 2.0]),
    ),
    "logaddexp": (
        lambda x: np.sum(np.logaddexp(x, 0.0)),
        np.zeros(3),
        V,
        0.25 * V,
    ),
}


@pytest.mark.parametrize("name", SECOND_CLOSED_FORMS)
def test_second_derivatives_in_closed_form(
    name: str, precise_engine: PreciseEngine
) -> None:
    f, x, v, want = SECOND_CLOSED_FORMS[name]
    direction = np.asarray(v, precise_engine.dtype)
    precise_engine.check(
        lambda x: rlx.jvp(rlx.grad(f), (x,), (direction,))[1], (x,), want
    )
    precise_engine.check(
        rlx.grad(lambda x: np.sum(rlx.grad(f)(x) * direction)), (x,), want
    )


@pytest.mark.parametrize(
    "order", [*range(5), *(pytest.param(n, marks=pytest.mark.full) for n in (5, 6))]
)
def test_sinc_at_zero_has_derivatives_of_every_order(order: int) -> None:
    """The n-th is (-1)^(n/2) pi^n / (n + 1) for even n, else 0."""
    f: Any = rlx.function(np.sinc)
    for _ in range(order):
        f = rlx.grad(f)
    sign = {0: 1.0, 2: -1.0}.get(order % 4, 0.0)
    assert f(0.0) == pytest.approx(sign * np.pi**order / (order + 1), rel=1e-14)


def test_logistic_regression_moves_from_zero_weights() -> None:
    """The gradient is -1/(2n) times the sum of y x, which no tie may stop."""
    x = np.random.default_rng(0).normal(size=(50, 3))
    y = np.sign(x @ [1.0, -2.0, 0.5])

    def loss(w: Any) -> Any:
        return np.mean(np.logaddexp(0.0, -y * (x @ w)))

    grad = rlx.grad(loss)(np.zeros(3))
    np.testing.assert_allclose(grad, -(y @ x) / 100, rtol=1e-12)
    np.testing.assert_allclose(grad, [-0.130, 0.319, -0.035], atol=5e-4)


def test_reformulated_functions_match_numpy() -> None:
    """Values of reformulated functions are NumPy's at the ends, zeros' signs too.

    The ends are signed zeros, infinities, NaN and the ends of the range.
    """
    ends = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324]
    x = np.array(ends)
    pairs = [np.repeat(x, len(x)), np.tile(x, len(x))]
    unary: dict[str, Callable[..., Any]] = {
        "cbrt": np.cbrt,
        "sinc": np.sinc,
        "fraction": lambda x: np.modf(x)[0],
        "whole": lambda x: np.modf(x)[1],
    }
    binary = (np.logaddexp, np.logaddexp2, np.hypot, np.copysign)
    with np.errstate(all="ignore"):
        for f, args in (
            *((f, [x]) for f in unary.values()),
            *((f, pairs) for f in binary),
        ):
            got, want = rlx.function(lambda *a, f=f: f(*a))(*args), f(*args)
            np.testing.assert_allclose(got, want, rtol=4e-16)
            zeros = want == 0
            np.testing.assert_array_equal(
                np.signbit(got[zeros]), np.signbit(want[zeros])
            )


@pytest.mark.parametrize("power", [-3, -1, 0, 1, 2, 3, 7, 2.5])
def test_complex_powers_match_numpy(power: float) -> None:
    z = np.array([1 + 2j, -0.5 + 0j, 2j, 1.0 + 0j])
    got = rlx.function(lambda z: z**power)(z)
    np.testing.assert_allclose(got, z**power, rtol=1e-14)


ORDERS = (1.0, 1.5, 2.0, 3.0, 4.0)


@pytest.mark.requires_torch
@pytest.mark.parametrize("p", ORDERS)
def test_pytorch_agrees_for_zeros(p: float, precise_engine: PreciseEngine) -> None:
    """PyTorch agrees on normalize, lp_pool and norms of rows and windows of zeros."""
    import torch
    from torch.nn import functional

    x = np.zeros((2, 3, 4))
    x[1] = 1.0 + np.arange(12.0).reshape(3, 4)
    t = torch.tensor(x, requires_grad=True)
    weights = (1.0 + np.arange(24.0).reshape(2, 3, 4)).astype(precise_engine.dtype)
    torch_weights = torch.tensor(weights, dtype=torch.float64)
    cases: tuple[tuple[Any, Any], ...] = (
        (
            lambda x: np.sum(rlx.nn.normalize(x, p, 1, eps=1e-3) * weights),
            (functional.normalize(t, p, 1, eps=1e-3) * torch_weights).sum(),
        ),
        (
            lambda x: np.sum(rlx.nn.lp_pool1d(x, p, 2) * weights[..., :2]),
            (functional.lp_pool1d(t, p, 2) * torch_weights[..., :2]).sum(),
        ),
        (
            lambda x: np.sum(rlx.nn.norm(x, p, (1,)) * weights[:, 0]),
            (torch.linalg.vector_norm(t, p, 1) * torch_weights[:, 0]).sum(),
        ),
        (
            lambda x: np.sum(rlx.nn.std(x, (1,), 1.0) * weights[:, 0]),
            (torch.std(t, 1) * torch_weights[:, 0]).sum(),
        ),
    )
    for ours, loss in cases:
        (want,) = torch.autograd.grad(loss, t)
        assert np.isfinite(want.numpy()).all()
        precise_engine.check(rlx.grad(lambda x, f=ours: f(x) * 1.0), (x,), want.numpy())


def _weighted_sum(xp: Any, result: Any) -> Any:
    return xp.sum(xp.sin(result) * xp.arange(result.size).reshape(result.shape))


@pytest.mark.requires_jax
@pytest.mark.parametrize("rank", thin_out_cases([3, 1, 2, 5, 8], 5))
def test_tile_repeat_and_kron_of_every_rank(rank: int, jax: Any) -> None:
    """tile, repeat and kron of up to 8 axes have the right first and second
    derivatives.
    """
    rng = np.random.default_rng(rank)
    x = rng.normal(size=rng.integers(1, 3, rank))
    y = rng.normal(size=rng.integers(1, 3, rank))
    times = tuple(int(n) for n in rng.integers(1, 3, rank))
    if rank > 4:
        times = (2, 3, 1, 2, 1, 2, 1, 2)[:rank]

    def tiled(xp: Any, x: Any) -> Any:
        return _weighted_sum(xp, xp.tile(x, times))

    def repeated(xp: Any, x: Any, axis: int) -> Any:
        return _weighted_sum(xp, xp.repeat(x, 3, axis=axis))

    def product(xp: Any, x: Any) -> Any:
        return _weighted_sum(xp, xp.kron(x, y)) + _weighted_sum(xp, xp.kron(y, x))

    np.testing.assert_array_equal(rlx.function(np.kron)(x, y), np.kron(x, y))
    functions: list[Any] = [tiled, product]
    functions += [lambda xp, x, n=n: repeated(xp, x, n) for n in (0, rank - 1)]
    for f in functions:
        ours = rlx.grad(lambda x, f=f: f(np, x))
        theirs = jax.grad(lambda x, f=f: f(jax.numpy, x))
        first, second = jax.jit(lambda x, f=theirs: jax.jvp(f, (x,), (x,)))(x)
        np.testing.assert_allclose(ours(x), first, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(
            rlx.jvp(ours, (x,), (x,))[1], second, rtol=1e-10, atol=1e-10
        )


def test_kron_of_dynamic_sizes() -> None:
    """One function of `kron` serves every number of rows."""
    rng = np.random.default_rng(3)
    f = rlx.function(lambda a, b: np.kron(a, b), dims={"a": ("n", 2)})
    for n in (1, 3):
        a, b = rng.normal(size=(n, 2)), rng.normal(size=(2, 3))
        np.testing.assert_allclose(f(a, b), np.kron(a, b), rtol=1e-12)
