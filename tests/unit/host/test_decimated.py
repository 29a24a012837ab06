"""Rows through a filter that keeps one sample of so many, against a plain sum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.host import decimated as module
from rlxweb.host.decimated import decimated, decimation_kernels
from rlxweb.recipes.decimation_plan import LowPass, low_pass, taps_of

WAYS = ["product", pytest.param("code", marks=pytest.mark.requires_fast)]
WITHIN = {"float32": 3e-6, "float64": 1e-13}


@contextmanager
def going(way: str) -> Iterator[None]:
    """Decimate by the product of matrices, or by code that is compiled first."""
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        if way == "product":
            patched.setenv("RLX_FAST", "off")
        else:
            patched.setenv("RLX_FAST", "wait")
            stack.enter_context(decimation_kernels.waiting())
        yield


def plain(x: Any, filter_: LowPass) -> Any:
    """Outputs as plain sums in float64; beyond an end the row goes on, turned."""
    x = x.astype(np.float64)
    width, step = x.shape[1], filter_.step

    def at(place: int) -> Any:
        turned = abs(place)
        if turned >= width:
            turned = max(0, 2 * (width - 1) - turned)
        if 0 <= place < width:
            return x[:, place]
        end = x[:, 0] if place < 0 else x[:, -1]
        return 2 * end - x[:, turned]

    out = np.zeros((len(x), width // step))
    for j in range(out.shape[1]):
        for t, tap in enumerate(filter_.taps):
            out[:, j] += tap * at(j * step + t - filter_.before)
    return out


def filter_of(step: int, more: int) -> LowPass:
    return LowPass(step, taps_of(step, 0.2 / step, step + 2 * more), 0.0)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40)
@given(
    step=st.integers(2, 9),
    more=st.integers(0, 30),
    rows=st.integers(1, 5),
    width=st.integers(1, 500),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_it_is_the_sum_over_the_taps(
    way: str, step: int, more: int, rows: int, width: int, dtype: str
) -> None:
    """An output is the sum over the taps, for rows shorter than the filter, too."""
    filter_ = filter_of(step, more)
    drawn = np.random.default_rng(width).standard_normal((rows, width))
    x = drawn.astype(dtype)
    with going(way):
        found = decimated(x, filter_)
    assert found.dtype == x.dtype
    assert found.shape == (rows, width // step)
    np.testing.assert_allclose(found, plain(x, filter_), atol=6 * WITHIN[dtype])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_rows_are_cut_into_tasks(
    way: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are cut into tasks give what whole rows give: no seam is seen."""
    filter_ = low_pass(4, 0.05, 1e-4)
    assert filter_ is not None
    x = np.random.default_rng(1).standard_normal((3, 20_000)).astype(dtype)
    with going(way):
        whole = decimated(x, filter_)
        monkeypatch.setattr(module, "_TASK", 1000)
        monkeypatch.setattr(module, "_THREADED", 1)
        cut = decimated(x, filter_)
    np.testing.assert_allclose(cut, whole, atol=WITHIN[dtype])
    few = decimated(x[:, :2000], filter_)[:, :450]
    np.testing.assert_allclose(few, whole[:, :450], atol=WITHIN[dtype])


@pytest.mark.parametrize("way", WAYS)
def test_a_level_and_a_slope_go_on_at_the_ends(way: str) -> None:
    """Nothing rings there: the filter's gain at 0 Hz is 1, but for its error."""
    filter_ = low_pass(8, 0.02, 1e-4)
    assert filter_ is not None
    t = np.arange(2000.0)
    x = np.stack([np.full(2000, 5.0), 0.01 * t - 3.0])
    with going(way):
        found = decimated(x, filter_)
    middle = t[: len(found[0]) * 8].reshape(-1, 8).mean(axis=1)
    np.testing.assert_allclose(found[0], 5.0, rtol=1e-4)
    np.testing.assert_allclose(found[1], 0.01 * middle - 3.0, atol=1e-3)


def test_rows_shorter_than_a_step_have_no_output() -> None:
    assert decimated(np.zeros((3, 3)), filter_of(4, 2)).shape == (3, 0)
    assert decimated(np.zeros((0, 100)), filter_of(4, 2)).shape == (0, 25)
