"""The error function by one rational function: as accurate as the reference, never
beyond 1.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlxweb.ops.elementwise.cpu import _BLOCK_ELEMENTS, _SATURATION, erf

EXACT_ERF = np.vectorize(math.erf)


def test_relative_error_is_bounded_everywhere() -> None:
    """The relative error is bounded, also in a short last block of a strided array."""
    x = np.linspace(-7, 7, 2 * (_BLOCK_ELEMENTS + 100), dtype=np.float32)[::2]
    np.testing.assert_allclose(erf({}, x), EXACT_ERF(x.astype(np.float64)), 6e-7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_limits_are_exact() -> None:
    """A gate of 1 + erf(x) is 0 far below, not nearly so."""
    edge = [float(_SATURATION), 5.0, 1e30, math.inf]
    x = np.array([*edge, *(-value for value in edge), 0.0, -0.0, math.nan], np.float32)
    actual = erf({}, x)
    assert actual[:8].tolist() == [1.0] * 4 + [-1.0] * 4
    assert np.signbit(actual[8:10]).tolist() == [False, True]
    assert np.isnan(actual[10])
    assert erf({}, x[:0].reshape(0, 3)).shape == (0, 3)
