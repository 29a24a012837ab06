"""Medians, quantiles and reductions of traced arrays against NumPy: every method, rows
with infinities and NaN, and axes without elements beside the reduced ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import TraceError

INF, NAN = np.inf, np.nan
METHODS = """linear lower higher midpoint nearest inverted_cdf averaged_inverted_cdf
closest_observation interpolated_inverted_cdf hazen weibull median_unbiased
normal_unbiased""".split()
EXTREME_QUANTILES: list[list[Any]] = [[0, 1], [0.0, 1.0]]
QUANTILES: list[Any] = [0.1, 0.25, 0.5, 0.8, [0.2, 0.5], np.float32(0.3)]
RNG = np.random.default_rng(5)
ROWS = {
    "one": RNG.normal(size=(3, 1)),
    "four": RNG.normal(size=(3, 4)),
    "eleven": RNG.normal(size=(3, 11)),
    "float32": RNG.normal(size=(3, 6)).astype(np.float32),
    "integers": RNG.integers(0, 9, (3, 7)),
    "ties": RNG.integers(0, 2, (3, 6)) * 1.5,
    "infinities": np.array([[-INF, 0], [0, INF], [INF, INF], [-INF, INF]]),
    "many infinities": np.array([[-INF, -INF, 0, 3], [0, 1, INF, INF]]),
    "NaN": np.array([[NAN, 1, 2], [NAN, NAN, NAN], [1, 2, 3], [INF, NAN, -INF]]),
}


@pytest.fixture(autouse=True)
def _ignore_warnings() -> Iterator[None]:
    """Ignore NumPy's warnings about NaN and infinities."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check_equal(got: Any, want: Any, message: str) -> None:
    want = np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype), message
    eps = np.finfo(want.dtype).eps if want.dtype.kind == "f" else 0
    np.testing.assert_allclose(got, want, rtol=2 * eps, atol=0, err_msg=message)


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.4.2",
    reason="NumPy before 2.4.2 gave quantiles other types, and NaN beside infinities",
)
@pytest.mark.parametrize("name", ROWS)
def test_quantiles_of_every_method(name: str) -> None:
    """Test all methods, with the extreme quantiles as ints and as floats in turn;
    nanquantile takes fewer quantiles where nothing is NaN.
    """
    x = ROWS[name]
    calls = [
        (function, q, method)
        for function_index, function in enumerate((np.quantile, np.nanquantile))
        for n, method in enumerate(METHODS)
        for q in (
            *EXTREME_QUANTILES[(n + function_index) % 2],
            *(QUANTILES if name == "NaN" or not function_index else QUANTILES[-3:]),
        )
    ]

    def compute_all(x: Any) -> Any:
        quantiles = [f(x, q, axis=1, method=method) for f, q, method in calls]
        medians = [np.median(x, axis=1), np.nanmedian(x, axis=1), np.median(x)]
        others = [np.percentile(x, 37.5), np.nanpercentile(x, [3, 40], axis=0)]
        return [*quantiles, *medians, *others]

    got, want = rlx.function(compute_all, device="cpu")(x), compute_all(x)
    for n, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        check_equal(ours, theirs, str(calls[n : n + 1]))


def test_median_with_infinities() -> None:
    median = rlx.function(np.median, device="cpu")
    assert median(np.array([-INF, 0.0])) == -INF
    assert median(np.array([INF, INF])) == INF
    assert np.isnan(median(np.array([-INF, INF])))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(np, name)
        for name in """sum prod mean var std max min ptp any all count_nonzero argmax
        argmin cumprod cumsum nansum nanprod nanmean nanmax nanmin nanvar nanstd median
        nanmedian sort argsort average""".split()
    },
    "norm": np.linalg.norm,
    "quantile": lambda x, **how: np.quantile(x, 0.3, **how),
    "quantiles": lambda x, **how: np.quantile(x, [0.1, 0.5], **how),
    "quantiles of a table": lambda x, **how: np.quantile(x, np.eye(2), **how),
    "no quantiles": lambda x, **how: np.percentile(x, [], **how),
    "nanpercentile": lambda x, **how: np.nanpercentile(x, 40, **how),
}
NO_KEEPDIMS = ("cumprod", "cumsum", "sort", "argsort")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_with_empty_axes(name: str) -> None:
    """Reductions over other axes, empty or not, have NumPy's shape and values."""
    f = REDUCTIONS[name]
    for shape, axis in [
        ((2, 0), 0),
        ((0, 2), 1),
        ((0, 2), -1),
        ((2, 0, 3), 2),
        ((2, 0, 3), (0, 2)),
        ((2, 3), 0),
        ((2, 3), None),
    ]:
        if name == "average" and 0 in shape:
            continue
        for options in ({}, {"keepdims": True}):
            x = np.arange(float(np.prod(shape))).reshape(shape)
            kwargs = {"axis": axis, **options}
            try:
                want = np.asarray(f(x, **kwargs))
            except (TypeError, ValueError):  # NumPy cannot: several axes, none
                assert isinstance(axis, tuple) or name in NO_KEEPDIMS
                continue
            if want.dtype == np.intp:  # NumPy's places are as wide as pointers
                want = want.astype(np.int64)
            got = rlx.function(lambda x, kwargs=kwargs: f(x, **kwargs), device="cpu")(x)
            check_equal(np.asarray(got), want, f"{name} of {shape}, {kwargs}")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: np.average(x, returned=True), "returned="),
        (lambda x: np.median(x, overwrite_input=True), "overwrite_input="),
        (lambda x: np.median(x[:0]), "at least one"),
        (lambda x: np.quantile(x, 1.5), "between 0 and 1"),
        (lambda x: np.percentile(x, [5, -1]), "between 0 and 100"),
        (lambda x: np.quantile(x, 0.5, method="mean"), "averaged_inverted_cdf"),
    ],
)
def test_invalid_arguments_are_refused(call: Any, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        rlx.function(call, device="cpu")(np.arange(4.0))


@pytest.mark.parametrize("function", [np.cumsum, np.cumprod])
def test_cumulative_functions_refuse_several_axes(function: Any) -> None:
    with pytest.raises(TypeError):
        rlx.function(lambda x: function(x, axis=(0, 1)), device="cpu")(np.ones((2, 2)))
