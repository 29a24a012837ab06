"""NumPy functions that can be traced: each gives NumPy's numbers and dtypes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.trace.supported_functions import supported_function_names
from tests.unit.trace.numpy_expressions import (
    FAMILIES,
    list_expressions,
    sample_arrays,
)

ARRAYS = sample_arrays()


def flatten_results(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [array for part in result for array in flatten_results(part)]
    return [result]


def compile_expressions(expressions: list[str]) -> Any:
    """Return a function of the named arrays that evaluates all of these expressions."""
    body = ", ".join(f"({expression})" for expression in expressions)
    return eval(f"lambda {', '.join(ARRAYS)}: [{body}]", {"np": np})


def check_result(expression: str, got: Any, want: Any) -> None:
    """Check one expression's results: same shapes and dtypes, close numbers."""
    for mine, theirs in zip(flatten_results(got), flatten_results(want), strict=True):
        if not isinstance(theirs, np.ndarray | np.generic):
            assert mine == theirs, expression
            continue
        assert mine.shape == theirs.shape, expression
        # NumPy's own integers have 32 bits in WebAssembly; ours have 64 everywhere
        has_32_bit_integers = (
            np.dtype(np.intp).itemsize == 4 and theirs.dtype.kind in "iu"
        )
        if has_32_bit_integers:
            assert mine.dtype.kind == theirs.dtype.kind, expression
        else:
            assert mine.dtype == theirs.dtype, expression
        tolerance = 4e-3 if theirs.dtype == np.float16 else 1e-5
        if theirs.dtype.kind in "fc":
            np.testing.assert_allclose(
                mine, theirs, tolerance, tolerance, err_msg=expression
            )
        else:
            np.testing.assert_array_equal(mine, theirs, expression)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_give_what_numpy_gives(family: str) -> None:
    """Functions give NumPy's numbers and dtypes, for every expression of a family."""
    texts = list_expressions(family)
    function = compile_expressions(texts)
    got = rlx.function(function, device="cpu")(**ARRAYS)
    for text, mine, theirs in zip(texts, got, function(**ARRAYS), strict=True):
        check_result(text, mine, theirs)


def test_every_supported_function_is_tested() -> None:
    """Each function that the manual lists as traceable is in one of the expressions."""
    text = " ".join(FAMILIES.values())
    assert [
        n
        for n in supported_function_names()
        if not re.search(rf"{re.escape(n)}\b[.(]", text)
    ] == []


REFUSED = {
    "np.nonzero(x)": "keep the shape",
    "np.unique(x)": "keep the shape",
    "x[x > 0]": "np.where",
    "np.linalg.svd(x)": "not supported in a traced function",
    "np.sum(x, where=x > 0)": "apply np.where to the input",
    "np.sum(x, initial=1)": "initial",
    "np.reshape(x, (4, 3), order='F')": "order",
    "np.add(x, y, where=x > 0)": "where= is not supported.*np.where",
    "np.matmul(x, m, axes=[0, 1, 0])": "axes= is not supported.*omit this",
    "np.add.at(x, 0, 1)": "not supported in a traced function",
    "np.exp(x, out=np.zeros((3, 4)))": "out= is not supported",
    "np.max(z)": "np.abs",
    "np.quantile(x, x[0, 0])": "q is a traced array",
    "np.asarray(x)": "omit np.asarray",
    "range(np.argmax(x))": "static_argnames",
    "np.eye(4)[np.argmax(x, 1)]": "if this array is an index into another",
    "np.take(np.eye(4), np.argmax(x, 1), 0)": "if this array is an index into another",
    "np.eye(4)[np.argmax(x[0])]": "if this array is an index into another",
    "float(x.sum())": "static_argnames",
    "int(x[0, 0])": "static_argnames",
    "0.5 in x": "any",
    "x.tolist()": "values are not known",
    "x.sort()": "np.sort",
    "f'{x:.2f}'": "print outside the traced function",
    "np.matmul(x, y)": "K mismatch",
    "x + np.ones(5)": "cannot broadcast",
    "np.gcd(i, k)": "not supported in a traced function",
    "np.bitwise_and(x, y)": "not supported",
    "x + 'text'": "text",
    "np.sum([x, y], axis=0)": "np.stack",
    "1 if x.sum() > 0 else 0": "np.where",
}


@pytest.mark.parametrize("text", REFUSED)
def test_unsupported_expressions_are_refused_with_their_location(text: str) -> None:
    """The error names the expression, its line, and what to do instead."""
    function = eval(f"lambda {', '.join(ARRAYS)}: {text}", {"np": np})
    with pytest.raises((rlx.RlxError, TypeError)) as caught:
        rlx.function(function, device="cpu")(**ARRAYS)
    assert re.search(REFUSED[text], str(caught.value), re.IGNORECASE), caught.value
    assert "<string>:1" in str(caught.value)


@pytest.mark.parametrize("neighbour", [np.nan, np.inf, -np.inf])
def test_interp_at_a_sample_point_ignores_its_neighbour(neighbour: float) -> None:
    """`interp` at a sample point ignores the neighbouring value, as NumPy does, in the
    gradient too.
    """
    points, values = np.arange(4.0), np.array([2.0, neighbour, 3.0, 5.0])
    x = np.array([0.0, 1.0, 2.0, 2.5, 3.0])

    def f(x: Any) -> Any:
        return np.interp(x, points, values)

    np.testing.assert_array_equal(rlx.function(f, device="cpu")(x), f(x))
    slopes = rlx.grad(lambda x: np.sum(f(x)))(x[2:])
    np.testing.assert_array_equal(slopes, [2.0, 2.0, 2.0])
