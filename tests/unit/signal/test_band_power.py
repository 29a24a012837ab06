"""Band power: known signals give their power, and adjacent bands add up."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import NotFinite, RlxError
from rlxweb.signal.band_power import BAND_PRESETS

T = np.arange(60 * 256) / 256


def test_sines_are_found_with_their_power() -> None:
    """A sine of amplitude a has a²/2, all of it in its band."""
    x = np.stack(
        [
            3.0 * np.sin(2 * np.pi * 10.3 * T),
            np.sin(2 * np.pi * 6 * T) + 2 * np.sin(2 * np.pi * 20 * T),
        ]
    )
    for method in ("welch", "multitaper"):
        got = rlx.band_power(x, 256, method=method)
        assert got.names == ("delta", "theta", "alpha", "beta", "gamma")
        np.testing.assert_allclose(got["alpha"], [4.5, 0.0], atol=0.02)
        np.testing.assert_allclose(got["theta"], [0.0, 0.5], atol=0.02)
        np.testing.assert_allclose(got["beta"], [0.0, 2.0], atol=0.02)
        np.testing.assert_allclose(got.ratio("beta", "theta")[1], 4.0, rtol=0.02)
    welch = rlx.band_power(x, 256)
    np.testing.assert_allclose(welch.peak_hz[0, 2], 10.3, atol=0.02)
    np.testing.assert_allclose(welch.peak_hz[1, [1, 3]], [6.0, 20.0], atol=0.02)


@given(
    st.lists(st.floats(0.1, 60.0), min_size=2, max_size=9, unique=True),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_adjacent_bands_add_up(edges: list[float], seed: int) -> None:
    """Adjacent bands add up wherever they meet, between bins too."""
    cuts = np.sort(edges)
    cuts = cuts[np.concatenate([[True], np.diff(cuts) > 0.6])]
    assume(len(cuts) >= 2)
    bands = {f"b{k}": pair for k, pair in enumerate(pairwise(cuts))}
    rng = np.random.default_rng(seed)
    f, psd = scipy.signal.welch(rng.standard_normal((3, 4000)), 128.0)
    got = rlx.band_power_of(f, psd, bands)
    np.testing.assert_allclose(got.absolute.sum(axis=-1), got.total, rtol=1e-12)
    np.testing.assert_allclose(got.relative.sum(axis=-1), 1.0, rtol=1e-12)
    share = rlx.band_power_of(f, psd, bands, relative=True, log=True)
    np.testing.assert_allclose(share.values, np.log10(got.relative))


def test_the_whole_band_is_the_trapezoidal_integral(rng: np.random.Generator) -> None:
    f, psd = scipy.signal.welch(rng.standard_normal(4000), 100.0)
    got = rlx.band_power_of(f, psd, {"all": (0.0, 50.0)})
    np.testing.assert_allclose(got.absolute, [np.trapezoid(psd, f)], rtol=1e-12)


def test_the_axes_are_the_callers(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4000, 2, 3))
    got = rlx.band_power(x, 128.0, axis=0)
    assert got.values.shape == (2, 3, 5)
    assert got.total.shape == (2, 3)
    want = rlx.band_power(np.moveaxis(x, 0, -1), 128.0)
    np.testing.assert_array_equal(got.values, want.values)


def test_segments_are_long_enough_for_the_lowest_band(rng: np.random.Generator) -> None:
    """Segments have two cycles of the lowest band and 4 s, at most the signal."""
    x = rng.standard_normal(4 * 3600)
    assert len(rlx.band_power(x, 4.0, "hrv").f) == round(4 * 2 / 0.0033) // 2 + 1
    assert len(rlx.band_power(x, 128.0).f) == 4 * 128 // 2 + 1
    with pytest.warns(UserWarning, match="nperseg=512 is greater than"):
        assert len(rlx.band_power(x[:300], 128.0).f) == 151
    assert len(rlx.band_power(x, 128.0, nperseg=256).f) == 129


def test_bands_of_a_preset_beyond_half_the_rate_are_left_out(
    rng: np.random.Generator,
) -> None:
    with pytest.warns(
        UserWarning, match="gamma .* skipped: half the sampling rate is 32 Hz"
    ):
        got = rlx.band_power(rng.standard_normal(2000), 64.0)
    assert got.names == tuple(BAND_PRESETS["eeg"])[:-1]


def test_flat_and_missing_rows(rng: np.random.Generator) -> None:
    """A row without power has no share and no peak; a row with a NaN is NaN, and no
    other.
    """
    x = rng.standard_normal((3, 2000))
    x[0] = 5.0
    x[1, 9] = np.nan
    with pytest.raises(NotFinite):
        rlx.band_power(x, 128.0)
    with pytest.warns(UserWarning, match="1 of 3 rows is flat from 0.5 to 45 Hz"):
        got = rlx.band_power(x, 128.0, nan="propagate")
    assert np.isnan(got.peak_hz[:2]).all()
    assert np.isnan(got.relative[:2]).all()
    assert np.isnan(got.absolute[1]).all()
    assert np.isfinite(got.absolute[[0, 2]]).all()
    document = got.as_json(["a", "b", "c"])
    assert document["rows"][1]["alpha"] == dict.fromkeys(
        ("absolute", "relative", "peak_hz")
    )
    json.dumps(document, allow_nan=False)
    assert repr(got).startswith("BandPower(3 rows)\n  delta")


@pytest.mark.parametrize(
    ("bands", "message"),
    [
        ({"a": (50, 70)}, "band 'a' ends at 70 Hz; half the sampling rate is 64 Hz"),
        ({"a": (3, 2)}, r"band 'a' is \(3, 2\); expected two edges in Hz"),
        ({"a": 5}, "band 'a' is 5; expected two edges in Hz"),
        (
            {"a": (1, 1.01)},
            "0.01 Hz wide; must be at least as wide as the spacing of the bins, "
            "0.25 Hz",
        ),
        ("ecg", "bands is 'ecg'; it must be 'eeg' or 'hrv'"),
        ({}, "expected the name of a preset, or a dict of edges in Hz by band name"),
    ],
)
def test_invalid_bands_are_refused(
    bands: Any, message: str, rng: np.random.Generator
) -> None:
    with pytest.raises(RlxError, match=message):
        rlx.band_power(rng.standard_normal(2000), 128.0, bands)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: rlx.band_power(x, 128.0)["alfa"], "no band is named 'alfa'.*alpha"),
        (lambda x: rlx.band_power(x, 128.0, method="fft"), "method is 'fft'"),
        (lambda x: rlx.band_power(x, 0), "fs is 0"),
        (lambda x: rlx.band_power_of(x[:5], x[:4]), "the last axis of psd"),
        (lambda x: rlx.band_power_of(-np.sort(x), x), "frequencies must increase"),
    ],
)
def test_bad_calls_are_refused(
    call: Callable[[Any], Any], message: str, rng: np.random.Generator
) -> None:
    with pytest.raises(RlxError, match=message):
        call(rng.standard_normal(2000))
