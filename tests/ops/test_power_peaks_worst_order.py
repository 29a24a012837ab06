"""Test the power peaks op on rows whose bins arrive in the worst order: each is
stronger than the last.
"""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from tests.engines_under_test import engine


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(("bins", "k"), [(20_000, 16), (3_000, 900)])
def test_rising_powers_keep_every_peak(
    adapter: AdapterRequest, bins: int, k: int
) -> None:
    """No peak of rising powers is lost, where each bin shifts the whole list.

    A driver that ends loops early would show.
    """
    power = np.arange(2 * bins, dtype=np.float32).reshape(2, bins)
    g = Graph()
    g.set_outputs([g.apply("power_peaks", g.input("p", power.shape), k=k)])
    got = engine(adapter).run(g, {"p": power})[0]
    want = np.arange(bins - 1, bins - 1 - k, -1)
    for row in range(2):
        np.testing.assert_array_equal(got[row, ::2], want)
        np.testing.assert_array_equal(got[row, 1::2], power[row, want])


@pytest.mark.requires_wgpu
def test_long_peak_lists_rank_special_values_like_numpy(
    adapter: AdapterRequest,
) -> None:
    """NaN stands last; equal powers, the two zeros too, in the order of their bins."""
    rng = np.random.default_rng(1)
    power = rng.choice(
        np.array([np.nan, np.inf, -0.0, 0.0, 1.0, 1e-40, 3e38], np.float32), (5, 700)
    )
    g = Graph()
    g.set_outputs([g.apply("power_peaks", g.input("p", power.shape), k=650)])
    got = engine(adapter).run(g, {"p": power})[0]
    want = np.argsort(-power, axis=1, kind="stable")[:, :650]
    np.testing.assert_array_equal(got[:, ::2], want)
    np.testing.assert_array_equal(got[:, 1::2], np.take_along_axis(power, want, 1))
