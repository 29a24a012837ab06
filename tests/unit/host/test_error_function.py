"""The error function by one quotient: as near as the reference, and never beyond 1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlxweb.host.error_function import _END, _PART, erf

RIGHT = np.vectorize(math.erf)


def test_it_is_right_to_its_own_size_everywhere() -> None:
    """The relative error is bounded, also in a short last part of a strided array."""
    x = np.linspace(-7, 7, 2 * (_PART + 100), dtype=np.float32)[::2]
    np.testing.assert_allclose(erf({}, x), RIGHT(x.astype(np.float64)), 6e-7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_its_ends_are_exact() -> None:
    """A gate of 1 + erf(x) is 0 far below, not nearly so."""
    edge = [float(_END), 5.0, 1e30, math.inf]
    x = np.array([*edge, *(-one for one in edge), 0.0, -0.0, math.nan], np.float32)
    found = erf({}, x)
    assert found[:8].tolist() == [1.0] * 4 + [-1.0] * 4
    assert np.signbit(found[8:10]).tolist() == [False, True]
    assert np.isnan(found[10])
    assert erf({}, x[:0].reshape(0, 3)).shape == (0, 3)
