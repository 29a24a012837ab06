"""rlxweb.function, grad, jvp and vmap of callables other than plain functions."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import TraceError, UsageError
from rlxweb.trace.numpy_dispatch import REAL_UFUNCS

X = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
Y = np.linspace(0.5, 2.0, 6).reshape(3, 2)


BIAS = np.arange(3.0)


class Layer:
    """A callable object whose attributes have names of a traced function's methods."""

    def __init__(self) -> None:
        self.graph = self.given = self.compiled = Y

    def __call__(self, x: Any, scale: float = 2.0) -> Any:
        return x @ self.graph * scale

    def matmul_or_add(self, x: Any, more: Any = None) -> Any:
        return x @ self.given if more is None else x + more

    @staticmethod
    def add_one(x: Any) -> Any:
        return x + 1

    @classmethod
    def double(cls, x: Any) -> Any:
        return x * 2


def scale_and_add(x: Any, bias: Any = BIAS, /, factor: float = 2.0, *more: Any) -> Any:
    return sum(more, x * factor + bias)


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
    "method": (Layer().matmul_or_add, (X,)),
    "static method": (Layer.add_one, (X,)),
    "class method": (Layer.double, (X,)),
    "operator": (operator.matmul, (X, Y)),
    "item getter": (operator.itemgetter(0), (X,)),
    "method caller": (operator.methodcaller("sum", 0), (X,)),
    "builtin abs": (abs, (X,)),
    "builtin sum": (sum, (X,)),
    "builtin max": (max, (1.0, 2.0)),
    "traced": (rlx.function(np.sin), (X,)),
    "checkpoint": (rlx.checkpoint(np.sin), (X,)),
    "lambda of many": (lambda *each: each[0] + each[1], (X, X)),
    "defaults": (scale_and_add, (X,)),
    "defaults before more": (scale_and_add, (X, X, 2.0, X)),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_a_traced_callable_gives_what_the_call_gives(name: str) -> None:
    function, args = CALLABLES[name]
    got, want = rlx.function(function, device="cpu")(*args), function(*args)
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for ours, theirs in pairs:
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_every_ufunc_can_be_traced() -> None:
    """Ufuncs are functions of floats, of integers, or of both, as NumPy takes them."""
    x, n = np.linspace(1.0, 1.9, 9).reshape(3, 3), np.arange(9).reshape(3, 3)
    for ufunc in REAL_UFUNCS:
        for args in ((x, x.T), (n, n.T), (x, n)):
            try:
                with np.errstate(all="ignore"):
                    want = ufunc(*args[: ufunc.nin])
            except TypeError:
                continue
            got = rlx.function(ufunc, device="cpu")(*args[: ufunc.nin])
            message = f"{ufunc.__name__} of {args[0].dtype}"
            np.testing.assert_allclose(
                np.asarray(got), want, rtol=1e-12, err_msg=message
            )
            break


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (
            np.ndarray.sum,
            UsageError,
            r"ndarray\.sum accepts only NumPy arrays.*lambda x",
        ),
        (3, UsageError, "a function"),
    ],
)
@pytest.mark.parametrize("wrap", [rlx.function, rlx.grad, rlx.vmap])
def test_other_objects_are_refused(
    wrap: Any, function: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        wrap(function)


@pytest.mark.parametrize("function", [math.sin, X.dot, np.frompyfunc(abs, 1, 1)])
def test_callables_that_need_values_are_refused(function: Any) -> None:
    with pytest.raises(TraceError, match="test_callables"):
        rlx.function(function, device="cpu")(Y)


def test_grad_vmap_and_jvp_of_callables() -> None:
    x = np.array([1.0, 5.0, 2.0])
    np.testing.assert_allclose(rlx.grad(np.median)(x), [0, 0, 1])
    np.testing.assert_allclose(
        rlx.grad(functools.partial(np.var, ddof=1))(x), x - 8 / 3
    )
    np.testing.assert_allclose(rlx.vmap(np.median)(X), np.median(X, axis=1))
    np.testing.assert_allclose(rlx.vmap(Layer())(X), Layer()(X))
    assert rlx.jvp(np.tanh, (0.5,), (1.0,))[1] == pytest.approx(1 - np.tanh(0.5) ** 2)


def test_vmap_leaves_defaults_to_the_function() -> None:
    """An axis is asked for each argument that is passed, not for defaults."""
    mapped = rlx.vmap(lambda x, y, scale=2.0: x @ y * scale, in_axes=(0, None))
    np.testing.assert_allclose(mapped(X, Y), X @ Y * 2)


def test_passing_a_default_explicitly_is_accepted() -> None:
    median = rlx.function(np.median, device="cpu")
    assert median(X, overwrite_input=False) == np.median(X)
    assert median(X, None, None, False) == median(X)
    assert "sum" in repr(rlx.function(functools.partial(np.sum, axis=0)))
