"""Welch presets: each gives the estimate of the library it is named after."""

from __future__ import annotations

from typing import Any

import mne
import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.core.errors import UsageError
from rlxweb.ops.welch.cpu.spectrum import frequencies, welch_power
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_request import PRESETS
from tests.numpy_welch_peaks_reference import reference_welch

X = np.random.default_rng(5).standard_normal((3, 2000)) + 3.0


@pytest.mark.parametrize("nperseg", [64, 101, 256])
def test_scipy(nperseg: int) -> None:
    """`scipy` is scipy.signal.welch with its defaults."""
    spec = spec_from_preset("scipy", 2000, fs=250.0, nperseg=nperseg)
    f, expected = scipy.signal.welch(X, 250.0, nperseg=nperseg)
    np.testing.assert_allclose(welch_power(X, spec), expected, rtol=1e-11)
    np.testing.assert_allclose(frequencies(spec, 250.0), f)


@pytest.mark.parametrize("n_fft", [64, 101, 256])
@pytest.mark.parametrize("average", ["mean", "median"])
def test_mne(n_fft: int, average: str) -> None:
    """`mne` is psd_array_welch with its defaults."""
    spec = spec_from_preset("mne", 2000, fs=250.0, nperseg=n_fft, average=average)
    expected, f = mne.time_frequency.psd_array_welch(
        X, 250.0, n_fft=n_fft, average=average, verbose="error"
    )
    np.testing.assert_allclose(welch_power(X, spec), expected, rtol=1e-11)
    np.testing.assert_allclose(frequencies(spec, 250.0), f)


@pytest.mark.parametrize("n", [1, 3, 8, 9, 256])
def test_rlx_by_its_definition(n: int) -> None:
    """Symmetric Hann, hop n // 2, re² + im², all bins doubled but DC and Nyquist."""
    spec = spec_from_preset("rlx", X.shape[1], nperseg=n)
    assert spec.n_segments == 1 + (X.shape[1] - n) // max(1, n // 2)
    np.testing.assert_allclose(
        welch_power(X, spec), reference_welch(X, n), rtol=1e-10, atol=1e-20
    )


@pytest.mark.parametrize(
    ("preset", "quantity"),
    [("scipy", "density"), ("mne", "density"), ("rlx", "squares")],
)
def test_no_scaling_is_that_of_the_preset(preset: str, quantity: str) -> None:
    """`scaling=None`, as `WelchRequest` has it, is told like one that is left out."""
    options: dict[str, Any] = {"preset": preset, "nperseg": 64}
    left_out = rlx.welch(X, 250.0, **options)
    none = rlx.welch(X, 250.0, **options, scaling=None)
    assert none.quantity == left_out.quantity == quantity
    np.testing.assert_array_equal(none.power, left_out.power)


def test_arguments_override_the_preset() -> None:
    """Window, overlap, detrend and segment count override the preset."""
    spec = spec_from_preset(
        "rlx",
        2000,
        nperseg=100,
        noverlap=0,
        nsegments=7,
        window=("kaiser", 8.6),
        detrend="linear",
    )
    expected = scipy.signal.get_window(("kaiser", 8.6), 100)
    np.testing.assert_allclose(spec.window_array, expected, atol=1e-12)
    assert (spec.hop, spec.n_segments, spec.detrend) == (100, 7, "linear")
    assert spec_from_preset("scipy", 2000, detrend=None).detrend is None


@pytest.mark.parametrize("preset", PRESETS)
def test_default_segment_length(preset: str) -> None:
    """nperseg=None takes the window's length, or 256, or a shorter row's length."""
    assert spec_from_preset(preset, 100, nperseg=None).nperseg == 100
    assert spec_from_preset(preset, None, nperseg=None).nperseg == 256
    assert spec_from_preset(preset, 100, nperseg=None, window=np.ones(7)).nperseg == 7


def test_an_unknown_preset_is_refused() -> None:
    """An unknown preset is refused, and the nearest name is offered."""
    with pytest.raises(UsageError, match=r"preset is 'sci-py'; .*mean 'scipy'"):
        spec_from_preset("sci-py", 1000)
