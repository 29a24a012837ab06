"""Decimation of rows (low-pass filter and downsampling) against a plain sum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.ops.welch.cpu import decimate_rows as module
from rlxweb.ops.welch.cpu.decimate_rows import decimate_rows, decimation_kernels
from rlxweb.ops.welch.decimation_filters import (
    DecimationFilter,
    design_filter,
    least_squares_taps,
)

METHODS = ["product", pytest.param("code", marks=pytest.mark.requires_fast)]
TOLERANCES = {"float32": 3e-6, "float64": 1e-13}


@contextmanager
def decimating_by(method: str) -> Iterator[None]:
    """Decimate by the matrix product, or by code that is compiled first."""
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        if method == "product":
            patched.setenv("RLX_FAST", "off")
        else:
            patched.setenv("RLX_FAST", "wait")
            stack.enter_context(decimation_kernels.wait_for_kernels())
        yield


def reference_decimation(x: Any, filter_: DecimationFilter) -> Any:
    """Return the outputs as plain sums in float64; beyond an end the row is reflected
    in its end point.
    """
    x = x.astype(np.float64)
    width, step = x.shape[1], filter_.step

    def sample_at(index: int) -> Any:
        reflected = abs(index)
        if reflected >= width:
            reflected = max(0, 2 * (width - 1) - reflected)
        if 0 <= index < width:
            return x[:, index]
        end = x[:, 0] if index < 0 else x[:, -1]
        return 2 * end - x[:, reflected]

    out = np.zeros((len(x), width // step))
    for j in range(out.shape[1]):
        for t, tap in enumerate(filter_.taps):
            out[:, j] += tap * sample_at(j * step + t - filter_.lead_samples)
    return out


def design_test_filter(step: int, more: int) -> DecimationFilter:
    return DecimationFilter(
        step, least_squares_taps(step, 0.2 / step, step + 2 * more), 0.0
    )


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)
@given(
    step=st.integers(2, 9),
    more=st.integers(0, 30),
    rows=st.integers(1, 5),
    width=st.integers(1, 500),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_outputs_are_sums_over_the_taps(
    method: str, step: int, more: int, rows: int, width: int, dtype: str
) -> None:
    """An output is the sum over the taps, for rows shorter than the filter, too."""
    filter_ = design_test_filter(step, more)
    noise = np.random.default_rng(width).standard_normal((rows, width))
    x = noise.astype(dtype)
    with decimating_by(method):
        actual = decimate_rows(x, filter_)
    assert actual.dtype == x.dtype
    assert actual.shape == (rows, width // step)
    np.testing.assert_allclose(
        actual, reference_decimation(x, filter_), atol=6 * TOLERANCES[dtype]
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_rows_are_split_into_tasks(
    method: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows split into tasks give the same as whole rows, without seams."""
    filter_ = design_filter(4, 0.05, 1e-4)
    assert filter_ is not None
    x = np.random.default_rng(1).standard_normal((3, 20_000)).astype(dtype)
    with decimating_by(method):
        whole = decimate_rows(x, filter_)
        monkeypatch.setattr(module, "_TASK_SAMPLES", 1000)
        monkeypatch.setattr(module, "_MIN_THREADED_SAMPLES", 1)
        tiled = decimate_rows(x, filter_)
    np.testing.assert_allclose(tiled, whole, atol=TOLERANCES[dtype])
    few = decimate_rows(x[:, :2000], filter_)[:, :450]
    np.testing.assert_allclose(few, whole[:, :450], atol=TOLERANCES[dtype])


@pytest.mark.parametrize("method", METHODS)
def test_constants_and_slopes_have_no_edge_artifacts(method: str) -> None:
    """The ends do not ring: the filter's gain at 0 Hz is 1 within its tolerance."""
    filter_ = design_filter(8, 0.02, 1e-4)
    assert filter_ is not None
    t = np.arange(2000.0)
    x = np.stack([np.full(2000, 5.0), 0.01 * t - 3.0])
    with decimating_by(method):
        actual = decimate_rows(x, filter_)
    middle = t[: len(actual[0]) * 8].reshape(-1, 8).mean(axis=1)
    np.testing.assert_allclose(actual[0], 5.0, rtol=1e-4)
    np.testing.assert_allclose(actual[1], 0.01 * middle - 3.0, atol=1e-3)


def test_rows_shorter_than_a_step_have_no_output() -> None:
    assert decimate_rows(np.zeros((3, 3)), design_test_filter(4, 2)).shape == (3, 0)
    assert decimate_rows(np.zeros((0, 100)), design_test_filter(4, 2)).shape == (0, 25)
