"""A few bins by one product of matrices: the whole transform's numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.host import bins_product
from rlxweb.host.bins_product import bins_power, products_per_sample, why_not
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.signal.presets import from_preset


def spec_of(
    nperseg: int, overlaps: int, detrend: str | bool, nfft: int = 0
) -> WelchSpec:
    """Segments that overlap so often."""
    hop = nperseg // overlaps
    made: Any = {"nperseg": nperseg, "noverlap": nperseg - hop, "nfft": nfft or nperseg}
    return from_preset("scipy", None, fs=100.0, detrend=detrend, **made)


@settings(max_examples=60)
@given(
    hop=st.integers(1, 40),
    overlaps=st.integers(1, 4),
    more=st.integers(0, 200),
    rows=st.integers(1, 4),
    detrend=st.sampled_from([False, "constant"]),
    level=st.sampled_from([0.0, 1e4]),
    padded=st.booleans(),
    drawn=st.data(),
)
def test_bins_are_those_of_the_whole_transform(
    hop: int,
    overlaps: int,
    more: int,
    rows: int,
    detrend: Any,
    level: float,
    padded: bool,
    drawn: st.DataObject,
) -> None:
    """Bins are the whole transform's, on a level 10,000 times the signal, too."""
    nperseg = hop * overlaps
    spec = spec_of(nperseg, overlaps, detrend, 2 * nperseg if padded else 0)
    width = nperseg + more
    spec = replace(spec, n_segments=0)
    x = level + np.random.default_rng(width).standard_normal((rows, width))
    first = drawn.draw(st.integers(0, spec.n_freqs - 1))
    stop = drawn.draw(st.integers(first + 1, spec.n_freqs))
    right = welch_power(x, spec)
    found = bins_power(x, spec, first, stop)
    # Without a mean taken out the level's own power leaks into every bin, rounded.
    most = 1e-9 if detrend else 1e-12 * max(1.0, right.max())
    np.testing.assert_allclose(found, right[:, first:stop], rtol=1e-8, atol=most)


def test_rows_are_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(64, 2, "constant")
    x = np.random.default_rng(0).standard_normal((7, 1000)).astype(np.float32)
    whole = bins_power(x, spec, 3, 9)
    monkeypatch.setattr(bins_product, "_BLOCK", 2000)
    np.testing.assert_allclose(bins_power(x, spec, 3, 9), whole, rtol=1e-12)
    assert whole.dtype == np.float64


def test_what_cannot_be_computed_so_says_why() -> None:
    good = spec_of(64, 2, False)
    assert why_not(good) == ""
    assert "does not divide" in why_not(replace(good, hop=33))
    assert "lines" in why_not(replace(good, detrend="linear"))
    assert "median" in why_not(replace(good, average="median"))
    assert "two sides" in why_not(replace(good, one_sided=False))
    assert products_per_sample(good, 10) == 40.0
