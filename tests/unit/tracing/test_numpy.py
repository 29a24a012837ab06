"""Every function of NumPy that can be traced, against NumPy: numbers and dtypes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.tracing.vocabulary import names
from tests.unit.tracing.expressions import FAMILIES, arrays, expressions

ARRAYS = arrays()


def spread(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [one for part in result for one in spread(part)]
    return [result]


def written(every: list[str]) -> Any:
    """A function of the arrays by name that gives all of these."""
    body = ", ".join(f"({one})" for one in every)
    return eval(f"lambda {', '.join(ARRAYS)}: [{body}]", {"np": np})


def check(one: str, got: Any, want: Any) -> None:
    """One expression's results: same shapes and dtypes, near numbers."""
    for mine, theirs in zip(spread(got), spread(want), strict=True):
        if not isinstance(theirs, np.ndarray | np.generic):
            assert mine == theirs, one
            continue
        assert mine.shape == theirs.shape, one
        # NumPy's own integers have 32 bits in WebAssembly; ours have 64 everywhere
        narrow = np.dtype(np.intp).itemsize == 4 and theirs.dtype.kind in "iu"
        if narrow:
            assert mine.dtype.kind == theirs.dtype.kind, one
        else:
            assert mine.dtype == theirs.dtype, one
        near = 4e-3 if theirs.dtype == np.float16 else 1e-5
        if theirs.dtype.kind in "fc":
            np.testing.assert_allclose(mine, theirs, near, near, err_msg=one)
        else:
            np.testing.assert_array_equal(mine, theirs, one)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_give_what_numpy_gives(family: str) -> None:
    """Functions give NumPy's numbers and dtypes, for every expression of a family."""
    every = expressions(family)
    function = written(every)
    got = rlx.function(function, device="cpu")(**ARRAYS)
    for one, mine, theirs in zip(every, got, function(**ARRAYS), strict=True):
        check(one, mine, theirs)


def test_every_function_is_tried() -> None:
    """What the manual lists as traced stands in one of the expressions."""
    text = " ".join(FAMILIES.values())
    assert [n for n in names() if not re.search(rf"{re.escape(n)}\b[.(]", text)] == []


REFUSED = {
    "np.nonzero(x)": "keep the shape",
    "np.unique(x)": "keep the shape",
    "x[x > 0]": "np.where",
    "np.linalg.svd(x)": "no graph form",
    "np.sum(x, where=x > 0)": "use np.where before it",
    "np.sum(x, initial=1)": "initial",
    "np.reshape(x, (4, 3), order='F')": "order",
    "np.add(x, y, where=x > 0)": "where= is not taken.*np.where",
    "np.matmul(x, m, axes=[0, 1, 0])": "axes= is not taken.*leave it out",
    "np.add.at(x, 0, 1)": "no graph form",
    "np.exp(x, out=np.zeros((3, 4)))": "out= is not taken",
    "np.max(z)": "np.abs",
    "np.quantile(x, x[0, 0])": "q is computed",
    "np.asarray(x)": "leave np.asarray out",
    "range(np.argmax(x))": "static_argnames",
    "np.eye(4)[np.argmax(x, 1)]": "passed as an argument",
    "np.take(np.eye(4), np.argmax(x, 1), 0)": "passed as an argument",
    "np.eye(4)[np.argmax(x[0])]": "passed as an argument",
    "float(x.sum())": "static_argnames",
    "int(x[0, 0])": "static_argnames",
    "0.5 in x": "any",
    "x.tolist()": "values are not known",
    "x.sort()": "np.sort",
    "f'{x:.2f}'": "print where the function was called",
    "np.matmul(x, y)": "K mismatch",
    "x + np.ones(5)": "cannot broadcast",
    "np.gcd(i, k)": "no graph form",
    "np.bitwise_and(x, y)": "not supported",
    "x + 'text'": "text",
    "np.sum([x, y], axis=0)": "np.stack",
    "1 if x.sum() > 0 else 0": "np.where",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_graph_form_is_told_with_its_place(text: str) -> None:
    """The error names what was written, the line, and what to do instead."""
    function = eval(f"lambda {', '.join(ARRAYS)}: {text}", {"np": np})
    with pytest.raises((rlx.RlxError, TypeError)) as caught:
        rlx.function(function, device="cpu")(**ARRAYS)
    assert re.search(REFUSED[text], str(caught.value), re.IGNORECASE), caught.value
    assert "<string>:1" in str(caught.value)


@pytest.mark.parametrize("beside", [np.nan, np.inf, -np.inf])
def test_interp_at_a_place_ignores_the_value_beside_it(beside: float) -> None:
    """`interp` ignores the value beside a place, as NumPy does, in the gradient too."""
    places, values = np.arange(4.0), np.array([2.0, beside, 3.0, 5.0])
    x = np.array([0.0, 1.0, 2.0, 2.5, 3.0])

    def f(x: Any) -> Any:
        return np.interp(x, places, values)

    np.testing.assert_array_equal(rlx.function(f, device="cpu")(x), f(x))
    slopes = rlx.grad(lambda x: np.sum(f(x)))(x[2:])
    np.testing.assert_array_equal(slopes, [2.0, 2.0, 2.0])
