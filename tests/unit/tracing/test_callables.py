"""rlxweb.function, grad, jvp and vmap of callables that are no plain functions."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import TraceError, UsageError
from rlxweb.tracing.table import REAL

X = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
Y = np.linspace(0.5, 2.0, 6).reshape(3, 2)


BIAS = np.arange(3.0)


class Layer:
    """A callable object; its attributes bear names of a traced function's methods."""

    def __init__(self) -> None:
        self.graph = self.given = self.compiled = Y

    def __call__(self, x: Any, scale: float = 2.0) -> Any:
        return x @ self.graph * scale

    def method(self, x: Any, more: Any = None) -> Any:
        return x @ self.given if more is None else x + more

    @staticmethod
    def static(x: Any) -> Any:
        return x + 1

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * 2


def spread(x: Any, bias: Any = BIAS, /, by: float = 2.0, *more: Any) -> Any:
    return sum(more, x * by + bias)


CALLABLES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cos": (np.cos, (X,)),
    "matmul": (np.matmul, (X, Y)),
    "divmod": (np.divmod, (X, 0.3)),
    "modf": (np.modf, (X,)),
    "sum": (np.sum, (X, 1)),
    "nansum": (np.nansum, (X,)),
    "median": (np.median, (X,)),
    "quantile": (np.quantile, (X, 0.3)),
    "where": (np.where, (X > 0, X, -X)),
    "concatenate": (np.concatenate, ((X, X),)),
    "einsum": (np.einsum, ("ij,jk", X, Y)),
    "rfft": (np.fft.rfft, (X,)),
    "inv": (np.linalg.inv, (np.eye(3) * 2,)),
    "reduce": (np.add.reduce, (X,)),
    "outer": (np.multiply.outer, (X, Y)),
    "partial": (functools.partial(np.sum, axis=0), (X,)),
    "partial ufunc": (functools.partial(np.power, 2.0), (X,)),
    "partial object": (functools.partial(Layer(), scale=3.0), (X,)),
    "object": (Layer(), (X,)),
    "method": (Layer().method, (X,)),
    "static method": (Layer.static, (X,)),
    "class method": (Layer.of_class, (X,)),
    "operator": (operator.matmul, (X, Y)),
    "item getter": (operator.itemgetter(0), (X,)),
    "method caller": (operator.methodcaller("sum", 0), (X,)),
    "builtin abs": (abs, (X,)),
    "builtin sum": (sum, (X,)),
    "builtin max": (max, (1.0, 2.0)),
    "traced": (rlx.function(np.sin), (X,)),
    "checkpoint": (rlx.checkpoint(np.sin), (X,)),
    "lambda of many": (lambda *each: each[0] + each[1], (X, X)),
    "defaults": (spread, (X,)),
    "defaults before more": (spread, (X, X, 2.0, X)),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_a_callable_is_traced_as_it_is_called(name: str) -> None:
    function, args = CALLABLES[name]
    got, want = rlx.function(function, device="cpu")(*args), function(*args)
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for ours, theirs in pairs:
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_every_ufunc_is_a_function() -> None:
    """Ufuncs are functions of floats, of integers, or of both, as NumPy takes them."""
    x, n = np.linspace(1.0, 1.9, 9).reshape(3, 3), np.arange(9).reshape(3, 3)
    for ufunc in REAL:
        for args in ((x, x.T), (n, n.T), (x, n)):
            try:
                with np.errstate(all="ignore"):
                    want = ufunc(*args[: ufunc.nin])
            except TypeError:
                continue
            got = rlx.function(ufunc, device="cpu")(*args[: ufunc.nin])
            said = f"{ufunc.__name__} of {args[0].dtype}"
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, err_msg=said)
            break


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (np.ndarray.sum, UsageError, r"ndarray\.sum takes NumPy's own.*lambda x"),
        (3, UsageError, "a function"),
    ],
)
@pytest.mark.parametrize("wrap", [rlx.function, rlx.grad, rlx.vmap])
def test_no_function_on_arrays(
    wrap: Any, function: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        wrap(function)


@pytest.mark.parametrize("function", [math.sin, X.dot, np.frompyfunc(abs, 1, 1)])
def test_what_needs_values_is_refused_with_a_way_out(function: Any) -> None:
    with pytest.raises(TraceError, match="test_callables"):
        rlx.function(function, device="cpu")(Y)


def test_derivatives_and_maps_of_callables() -> None:
    x = np.array([1.0, 5.0, 2.0])
    np.testing.assert_allclose(rlx.grad(np.median)(x), [0, 0, 1])
    np.testing.assert_allclose(
        rlx.grad(functools.partial(np.var, ddof=1))(x), x - 8 / 3
    )
    np.testing.assert_allclose(rlx.vmap(np.median)(X), np.median(X, axis=1))
    np.testing.assert_allclose(rlx.vmap(Layer())(X), Layer()(X))
    assert rlx.jvp(np.tanh, (0.5,), (1.0,))[1] == pytest.approx(1 - np.tanh(0.5) ** 2)


def test_a_map_leaves_defaults_to_the_function() -> None:
    """An axis is asked for each argument that is passed, not for defaults."""
    mapped = rlx.vmap(lambda x, y, scale=2.0: x @ y * scale, in_axes=(0, None))
    np.testing.assert_allclose(mapped(X, Y), X @ Y * 2)


def test_a_default_that_is_passed_is_no_fault() -> None:
    median = rlx.function(np.median, device="cpu")
    assert median(X, overwrite_input=False) == np.median(X)
    assert median(X, None, None, False) == median(X)
    assert "sum" in repr(rlx.function(functools.partial(np.sum, axis=0)))
