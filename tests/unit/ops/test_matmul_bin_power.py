"""Power of a few bins by one matrix product equals that of the whole transform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.ops.welch.cpu import matmul_bin_power
from rlxweb.ops.welch.cpu.matmul_bin_power import (
    compute_bin_power,
    multiplications_per_sample,
    unsupported_reason,
)
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.presets import spec_from_preset


def spec_with_overlaps(
    nperseg: int, overlaps: int, detrend: str | bool, nfft: int = 0
) -> WelchSpec:
    """Return the spec of segments with this many overlaps."""
    hop = nperseg // overlaps
    lengths: Any = {
        "nperseg": nperseg,
        "noverlap": nperseg - hop,
        "nfft": nfft or nperseg,
    }
    return spec_from_preset("scipy", None, fs=100.0, detrend=detrend, **lengths)


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
def test_bins_equal_those_of_the_whole_transform(
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
    spec = spec_with_overlaps(nperseg, overlaps, detrend, 2 * nperseg if padded else 0)
    width = nperseg + more
    spec = replace(spec, n_segments=0)
    x = level + np.random.default_rng(width).standard_normal((rows, width))
    first = drawn.draw(st.integers(0, spec.n_freqs - 1))
    stop = drawn.draw(st.integers(first + 1, spec.n_freqs))
    expected = welch_power(x, spec)
    actual = compute_bin_power(x, spec, first, stop)
    # Without a mean taken out the level's own power leaks into every bin, rounded.
    tolerance = 1e-9 if detrend else 1e-12 * max(1.0, expected.max())
    np.testing.assert_allclose(
        actual, expected[:, first:stop], rtol=1e-8, atol=tolerance
    )


def test_rows_are_processed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_with_overlaps(64, 2, "constant")
    x = np.random.default_rng(0).standard_normal((7, 1000)).astype(np.float32)
    expected = compute_bin_power(x, spec, 3, 9)
    monkeypatch.setattr(matmul_bin_power, "_BLOCK_SAMPLES", 2000)
    np.testing.assert_allclose(compute_bin_power(x, spec, 3, 9), expected, rtol=1e-12)
    assert expected.dtype == np.float64


def test_unsupported_specs_give_a_reason() -> None:
    spec = spec_with_overlaps(64, 2, False)
    assert unsupported_reason(spec) == ""
    assert "does not divide" in unsupported_reason(replace(spec, hop=33))
    assert "detrend='linear'" in unsupported_reason(replace(spec, detrend="linear"))
    assert "median" in unsupported_reason(replace(spec, average="median"))
    assert "two-sided" in unsupported_reason(replace(spec, one_sided=False))
    assert multiplications_per_sample(spec, 10) == 40.0
