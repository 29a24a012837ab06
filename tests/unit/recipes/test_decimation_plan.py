"""Low-pass filters for fewer samples: what they let through, and what falls back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.host.decimated import decimated
from rlxweb.recipes.decimation_plan import (
    MOST_TAPS,
    LowPass,
    error_of,
    filters,
    low_pass,
    response,
    steps_of,
    taps_of,
)
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.band_plan import band_plans
from rlxweb.signal.presets import from_preset

FOUND_TO = {1e-2: 0.8, 1e-3: 0.74, 1e-4: 0.67}
"""Error → the edge, in parts of the new rate's middle, up to which `MOST_TAPS` do."""


@settings(max_examples=30)
@given(st.integers(2, 16), st.floats(0.02, 0.8), st.sampled_from([*FOUND_TO]))
def test_a_filter_is_flat_where_it_counts_and_nothing_falls_back(
    step: int, part: float, error: float
) -> None:
    """A filter keeps its error on the whole band, not only where it was fitted."""
    edge = part * 0.5 / step
    filter_ = low_pass(step, edge, error)
    if filter_ is None:
        assert part > FOUND_TO[error]
        return
    assert filter_.error <= error
    seen = np.linspace(0.0, edge, 201)
    assert np.abs(filter_.gain(seen) - 1.0).max() <= 0.51 * error
    images = np.arange(1, step)[:, None] / step + seen
    fallen = np.square(filter_.gain(images)).sum(axis=0)
    assert np.sqrt(2 * fallen.max()) <= 1.05 * error
    np.testing.assert_array_equal(filter_.taps, filter_.taps[::-1])
    assert (len(filter_.taps) - step) % 2 == 0
    assert len(filter_.taps) <= MOST_TAPS * step


def test_the_shortest_that_is_good_enough_is_taken() -> None:
    for error in (1e-2, 1e-4):
        filter_ = low_pass(4, 0.04, error)
        assert filter_ is not None
        shorter = taps_of(4, 0.04, len(filter_.taps) - 2)
        assert error_of(shorter, 4, 0.04) > 0.5 * error


def test_a_tone_goes_through_or_is_taken_away() -> None:
    """A tone comes out as strong as the filter's gain says."""
    filter_ = low_pass(4, 0.04, 1e-4)
    assert filter_ is not None
    t = np.arange(4000)
    for frequency, most in ((0.02, None), (0.25 + 0.02, 2e-4), (0.5 - 0.01, 2e-4)):
        x = np.cos(2 * np.pi * frequency * t)[None]
        strength = np.abs(decimated(x, filter_)[:, 50:-50]).max()
        gain = abs(float(filter_.gain(frequency)))
        assert strength <= gain * 1.01 + 1e-9
        assert strength >= 0.9 * gain
        assert most is None or strength < most


def test_the_response_is_the_sum_of_cosines() -> None:
    taps = np.array([1.0, 2.0, 1.0])
    np.testing.assert_allclose(response(taps, np.array([0.0, 0.25, 0.5])), [4, 2, 0])


def test_a_band_beyond_the_new_rates_middle_has_no_filter() -> None:
    assert low_pass(4, 0.125, 1e-3) is None
    assert low_pass(4, 0.124, 1e-3) is None  # it would need too many taps
    assert low_pass(1, 0.1, 1e-3) is None
    assert list(steps_of(256, 128, 256)) == [2, 4, 8, 16, 32, 64, 128]
    assert list(steps_of(250, 125)) == [5, 25, 125]
    assert filters((255, 128), 0.01, 1e-3) == []


def test_a_filter_that_loses_the_band_is_off_by_everything() -> None:
    assert error_of(np.array([0.2, 0.1, 0.2]), 2, 0.1) == np.inf


@pytest.mark.parametrize("preset", ["rlx", "scipy"])
@pytest.mark.parametrize("error", [1e-2, 1e-3, 1e-4])
def test_plans_keep_within_the_error_on_white_noise(preset: str, error: float) -> None:
    """Plans have as many bins as before, to their own middle, and fewer samples."""
    spec = from_preset(preset, 4096, nperseg=512)
    plans = band_plans(spec, Band(2, 30), error)
    assert not isinstance(plans, str)
    assert {plan.filter.step for plan in plans} >= {2, 4}
    for plan in plans:
        step = plan.filter.step
        assert 0 < plan.error <= error
        assert (plan.spec.nperseg, plan.spec.hop) == (512 // step, spec.hop // step)
        assert plan.factor.shape == (28,)
        assert isinstance(plan.filter, LowPass)
        assert plan.rows(np.zeros((2, 4096))).shape == (2, 4096 // step)
