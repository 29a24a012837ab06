"""Decimation filters: pass band error, aliasing and the choice of the shortest
filter.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.ops.welch.cpu.decimate_rows import decimate_rows
from rlxweb.ops.welch.decimation_filters import (
    MAX_TAPS_PER_SAMPLE,
    DecimationFilter,
    common_divisors,
    design_filter,
    design_filters,
    least_squares_taps,
    symmetric_response,
    white_noise_error,
)
from rlxweb.signal.band_decimation_plan import band_decimation_plans
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.presets import spec_from_preset

MAX_EDGE_BY_ERROR = {1e-2: 0.8, 1e-3: 0.74, 1e-4: 0.67}
"""Error → the largest band edge, as a fraction of the new Nyquist frequency, that
`MAX_TAPS_PER_SAMPLE` reaches.
"""


@settings(max_examples=30)
@given(st.integers(2, 16), st.floats(0.02, 0.8), st.sampled_from([*MAX_EDGE_BY_ERROR]))
def test_filter_is_flat_in_band_and_free_of_aliasing(
    step: int, part: float, error: float
) -> None:
    """A filter keeps its error on the whole band, not only where it was fitted."""
    edge = part * 0.5 / step
    filter_ = design_filter(step, edge, error)
    if filter_ is None:
        assert part > MAX_EDGE_BY_ERROR[error]
        return
    assert filter_.error <= error
    frequencies = np.linspace(0.0, edge, 201)
    assert np.abs(filter_.gain(frequencies) - 1.0).max() <= 0.51 * error
    images = np.arange(1, step)[:, None] / step + frequencies
    alias_power = np.square(filter_.gain(images)).sum(axis=0)
    assert np.sqrt(2 * alias_power.max()) <= 1.05 * error
    np.testing.assert_array_equal(filter_.taps, filter_.taps[::-1])
    assert (len(filter_.taps) - step) % 2 == 0
    assert len(filter_.taps) <= MAX_TAPS_PER_SAMPLE * step


def test_shortest_sufficient_filter_is_designed() -> None:
    for error in (1e-2, 1e-4):
        filter_ = design_filter(4, 0.04, error)
        assert filter_ is not None
        shorter = least_squares_taps(4, 0.04, len(filter_.taps) - 2)
        assert white_noise_error(shorter, 4, 0.04) > 0.5 * error


def test_tones_pass_or_are_removed() -> None:
    """A tone comes out as strong as the filter's gain says."""
    filter_ = design_filter(4, 0.04, 1e-4)
    assert filter_ is not None
    t = np.arange(4000)
    for frequency, max_strength in (
        (0.02, None),
        (0.25 + 0.02, 2e-4),
        (0.5 - 0.01, 2e-4),
    ):
        x = np.cos(2 * np.pi * frequency * t)[None]
        strength = np.abs(decimate_rows(x, filter_)[:, 50:-50]).max()
        gain = abs(float(filter_.gain(frequency)))
        assert strength <= gain * 1.01 + 1e-9
        assert strength >= 0.9 * gain
        assert max_strength is None or strength < max_strength


def test_symmetric_response_is_sum_of_cosines() -> None:
    taps = np.array([1.0, 2.0, 1.0])
    np.testing.assert_allclose(
        symmetric_response(taps, np.array([0.0, 0.25, 0.5])), [4, 2, 0]
    )


def test_band_beyond_new_nyquist_has_no_filter() -> None:
    assert design_filter(4, 0.125, 1e-3) is None
    assert design_filter(4, 0.124, 1e-3) is None  # it would need too many taps
    assert design_filter(1, 0.1, 1e-3) is None
    assert list(common_divisors(256, 128, 256)) == [2, 4, 8, 16, 32, 64, 128]
    assert list(common_divisors(250, 125)) == [5, 25, 125]
    assert design_filters((255, 128), 0.01, 1e-3) == []


def test_error_is_infinite_if_filter_loses_band() -> None:
    assert white_noise_error(np.array([0.2, 0.1, 0.2]), 2, 0.1) == np.inf


@pytest.mark.parametrize("preset", ["rlx", "scipy"])
@pytest.mark.parametrize("error", [1e-2, 1e-3, 1e-4])
def test_band_plans_keep_error_bound(preset: str, error: float) -> None:
    """Plans have as many bins as before, to their own middle, and fewer samples."""
    spec = spec_from_preset(preset, 4096, nperseg=512)
    plans = band_decimation_plans(spec, BinRange(2, 30), error)
    assert not isinstance(plans, str)
    assert {plan.filter.step for plan in plans} >= {2, 4}
    for plan in plans:
        step = plan.filter.step
        assert 0 < plan.error <= error
        assert (plan.spec.nperseg, plan.spec.hop) == (512 // step, spec.hop // step)
        assert plan.factor.shape == (28,)
        assert isinstance(plan.filter, DecimationFilter)
        assert plan.decimate(np.zeros((2, 4096))).shape == (2, 4096 // step)
