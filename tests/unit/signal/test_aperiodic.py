"""Aperiodic (1/f) fits of synthetic spectra with known lines and peaks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import NotFinite, RlxError
from rlxweb.results.svg_charts import log_tick_exponents

F = np.arange(1.0, 45.01, 0.25)


def make_spectrum(line_parameters: Any, peaks: Any, noise: float = 0.0) -> Any:
    """Return the power of the model: (offset, knee, exponent) and (hz, height, width)
    of the peaks.
    """
    offset, knee, exponent = line_parameters
    level = offset - np.log10(knee + F**exponent)
    for hz, height, width in peaks:
        level = level + height * np.exp(-((F - hz) ** 2) / (2 * (width / 2) ** 2))
    return 10 ** (level + noise * np.random.default_rng(0).standard_normal(F.size))


@given(
    st.floats(-3, 3),
    st.floats(0.3, 2.5),
    st.lists(st.tuples(st.floats(0.3, 1.5), st.floats(1.5, 4.0)), max_size=3),
)
@settings(max_examples=60)
def test_fit_recovers_line_and_peaks(
    offset: float, exponent: float, peaks: list[tuple[float, float]]
) -> None:
    """A fit recovers the line and the peaks of the model where the peaks lie well
    apart.
    """
    expected_peaks = [(8 + 12 * index, *shape) for index, shape in enumerate(peaks)]
    got = rlx.aperiodic(F, make_spectrum((offset, 0.0, exponent), expected_peaks))
    assert got.r_squared > 0.99
    np.testing.assert_allclose(got.exponent, exponent, atol=0.25)
    np.testing.assert_allclose(got.offset, offset, atol=0.25)
    for hz, height, width in expected_peaks:
        index = int(np.nanargmin(np.abs(got.peak_hz - hz)))
        np.testing.assert_allclose(got.peak_hz[index], hz, atol=0.3)
        np.testing.assert_allclose(got.peak_height[index], height, atol=0.25)
        np.testing.assert_allclose(got.peak_width[index], width, rtol=0.35)


def test_knee_mode_with_noise() -> None:
    power = make_spectrum((1.0, 40.0, 1.8), [(10, 0.8, 2.0)], 0.03)
    knee_fit = rlx.aperiodic(F, power, mode="knee", peak_width=(1.5, 8))
    fixed_fit = rlx.aperiodic(F, power, peak_width=(1.5, 8))
    assert knee_fit.error < fixed_fit.error
    np.testing.assert_allclose(knee_fit.exponent, 1.8, atol=0.3)
    assert np.abs(knee_fit.peak_hz - 10).min() < 0.2
    assert knee_fit.knee > 5
    assert fixed_fit.knee == 0
    np.testing.assert_allclose(
        np.log10(knee_fit.fitted), np.log10(power), atol=5 * 0.03
    )


def test_rows_of_a_real_estimate() -> None:
    """Fits have the shape of the batch; rows with fewer peaks end in NaN; a line has
    none.
    """
    rng = np.random.default_rng(4)
    t = np.arange(120 * 128) / 128
    x = np.cumsum(rng.standard_normal((2, 3, t.size)), axis=-1)
    x[0] += 8 * np.sin(2 * np.pi * 10 * t + rng.standard_normal(t.size).cumsum() / 60)
    f, psd = scipy.signal.welch(x, 128, nperseg=512)
    fit = rlx.aperiodic(f, psd, fmin=2, fmax=40)
    assert fit.offset.shape == (2, 3)
    np.testing.assert_allclose(fit.exponent, 2.0, atol=0.25)
    assert fit.fitted.shape == (2, 3, fit.f.size)
    assert np.nanmin(np.abs(fit.peak_hz[0] - 10), axis=-1).max() < 0.5
    assert (np.isfinite(fit.peak_hz).sum(axis=-1) == fit.count).all()
    assert repr(fit).startswith("AperiodicFit(2×3 rows, exponent ")
    line_fit = rlx.aperiodic(F, make_spectrum((1.0, 0.0, 1.2), []))
    assert line_fit.count == 0
    assert line_fit.peak_hz.shape == (0,)
    fit_without_peaks = rlx.aperiodic(
        F, make_spectrum((1.0, 0.0, 1.2), [(10, 1, 2)]), max_peaks=0
    )
    assert fit_without_peaks.count == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "bent"}, "mode is 'bent'"),
        ({"max_peaks": -1}, "max_peaks is -1"),
        ({"peak_width": (3, 1)}, "peak_width is 3 to 1 Hz"),
        ({"fmin": 44}, "the band contains 5 bins above 0 Hz; at least 8"),
        ({"fmin": 100}, "there is no bin at or above 100 Hz"),
    ],
)
def test_bad_calls_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RlxError, match=message):
        rlx.aperiodic(F, make_spectrum((1.0, 0.0, 1.2), []), **options)


def test_power_without_a_logarithm_is_refused() -> None:
    power = np.stack([make_spectrum((1.0, 0.0, 1.2), [])] * 2)
    power[1, 8] = 0.0
    with pytest.raises(NotFinite, match=r"the power of row \[1\] is 0.0 at 3 Hz"):
        rlx.aperiodic(F, power)
    with pytest.raises(RlxError, match="the last axis of psd"):
        rlx.aperiodic(F[:-1], power)
    with pytest.raises(RlxError, match="frequencies must increase"):
        rlx.aperiodic(F[::-1], power)


def test_plot_of_a_fit_has_hertz_on_its_axis() -> None:
    """Ticks are 1, 2 and 5 times powers of ten, in their logarithmic places."""
    f = np.linspace(1.0, 60.0, 119)
    fit = rlx.aperiodic(f, 100 / f**1.5, fmin=2, fmax=45)
    picture = fit._repr_html_()
    labels = re.findall(r'<text x="([\d.]+)" y="130.0" [^>]*>([\d.]+)</text>', picture)
    assert [number for _, number in labels] == ["2", "5", "10", "20"]
    label_x = [float(x) for x, _ in labels]
    assert label_x[3] - label_x[2] == pytest.approx(label_x[2] - label_x[1], abs=0.2)
    assert log_tick_exponents(-0.1, 2.0) == pytest.approx(
        np.log10([1, 2, 5, 10, 20, 50, 100]).tolist()
    )
    assert log_tick_exponents(0.5, 0.5) == [0.5]
