"""Slepian tapers compared with SciPy's, multitaper spectra and wavelets with MNE's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mne
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import windows

import rlxweb as rlx
from rlxweb.core.errors import NotFinite, RlxError, UsageError
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal import tapers
from rlxweb.signal.tapers import dpss
from tests.run_in_threads import run_in_event_loop
from tests.unit.signal.device_comparison import adapter_arguments, assert_close

mne.set_log_level("ERROR")


@given(st.integers(2, 700), st.floats(0.5, 60.0), st.integers(1, 130), st.booleans())
@settings(max_examples=40)
def test_tapers_agree_with_scipy(n: int, nw: float, k: int, periodic: bool) -> None:
    """Tapers agree with SciPy's to the digits that their eigenvectors of n² / 4
    allow.
    """
    nw = min(nw, n / 2 * 0.98)
    k = min(k, n, max(1, int(2 * nw)))
    got = dpss(n, nw, k, periodic=periodic)
    want, ratios = windows.dpss(n, nw, k, sym=not periodic, norm=2, return_ratios=True)
    np.testing.assert_allclose(got.values, want, atol=2e-11)
    np.testing.assert_allclose(got.ratios, ratios, atol=1e-11)


def test_long_tapers_satisfy_the_concentration_problem() -> None:
    """Long tapers are concentrated and orthogonal where LAPACK's are off by 1e-8."""
    n, nw, k = 153_600, 4.0, 7
    got = dpss(n, nw, k, periodic=False)
    np.testing.assert_allclose(got.values @ got.values.T, np.eye(k), atol=1e-12)
    # By the Toeplitz matrix of the concentration problem, applied through the FFT.
    lags = np.arange(1 - n, n)
    kernel = 2 * nw / n * np.sinc(2 * nw / n * lags)
    size = 1 << 19
    spectrum = np.fft.rfft(np.roll(np.pad(kernel, (0, size - len(kernel))), 1 - n))
    for taper, ratio in zip(got.values, got.ratios, strict=True):
        concentrated = np.fft.irfft(np.fft.rfft(taper, size) * spectrum, size)[:n]
        np.testing.assert_allclose(concentrated, ratio * taper, atol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 5.0, 2), "nw is 5; must be above 0 and below 4.5"),
        ((8, 0.0, 2), "nw is 0"),
        ((8, 2.0, 9), "9 tapers of 8 samples"),
        ((0, 2.0, 1), "1 tapers of 0 samples"),
    ],
)
def test_invalid_tapers_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    """Impossible bandwidths, counts and lengths are refused."""
    with pytest.raises(UsageError, match=message):
        dpss(*arguments)


def test_tapers_too_large_for_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tapers, "MAX_BASIS_VALUES", 10_000)
    with pytest.raises(UsageError, match="cut the signal into epochs"):
        dpss(1237, 4.0, 3)


MULTITAPER_OPTIONS: list[dict[str, Any]] = [
    {},
    {"bandwidth": 8.0},
    {"adaptive": True},
    {"low_bias": False, "remove_dc": False},
    {"fmin": 3.0, "fmax": 20.0},
    {"normalization": "length"},
]


@pytest.mark.parametrize("options", MULTITAPER_OPTIONS, ids=str)
@pytest.mark.parametrize("n", [30, 501, 1000])
def test_multitaper_spectra_agree_with_mne(
    n: int, options: dict[str, Any], rng: np.random.Generator
) -> None:
    x = rng.standard_normal((3, 2, n)) + 2.0
    options = {"normalization": "full", **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, f = mne.time_frequency.psd_array_multitaper(x, 100.0, **options)
        hz, got = rlx.multitaper(x, 100.0, **options)
    assert_close(got, want)
    np.testing.assert_allclose(hz, f)


def test_multitaper_spectra_on_devices(
    adapter: AdapterRequest, rng: np.random.Generator
) -> None:
    x = (rng.standard_normal((5, 700)) + 2.0).astype(np.float32)
    x_float64 = x.astype(float)
    want, _ = mne.time_frequency.psd_array_multitaper(
        x_float64, 100.0, normalization="full"
    )
    _, got = rlx.multitaper(x, 100.0, **adapter_arguments(adapter))
    assert_close(got, want, 5e-6)
    assert got.dtype == np.float32


@pytest.mark.parametrize(
    "options",
    [{}, {"decim": 3}, {"n_cycles": [3.0, 5.0, 7.0]}, {"zero_mean": False}],
    ids=str,
)
@pytest.mark.parametrize("output", ["power", "complex", "phase"])
def test_wavelets_agree_with_mne(
    output: Any, options: dict[str, Any], rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 3, 401)) + 1.0
    mne_options = {"n_cycles": 7.0, "zero_mean": True, **options}
    if isinstance(mne_options["n_cycles"], list):
        mne_options["n_cycles"] = np.array(mne_options["n_cycles"])
    freqs = [5.0, 10.0, 40.0]
    want = mne.time_frequency.tfr_array_morlet(
        x, 100.0, np.array(freqs), output=output, **mne_options
    )
    got = rlx.tfr_morlet(x, 100.0, freqs, output=output, **options)
    assert_close(got.values, want, 1e-9 if output == "phase" else 1e-12)
    np.testing.assert_allclose(got.t, np.arange(0, 401, options.get("decim", 1)) / 100)


@pytest.mark.parametrize("decim", [1, 4])
def test_wavelets_on_devices(
    adapter: AdapterRequest, decim: int, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((4, 601)).astype(np.float32)
    freqs = [5.0, 11.0, 30.0]
    for output in ("power", "complex"):
        want = rlx.tfr_morlet(
            x.astype(float), 100.0, freqs, output=output, decim=decim
        ).values
        got = rlx.tfr_morlet(
            x, 100.0, freqs, output=output, decim=decim, **adapter_arguments(adapter)
        ).values
        assert_close(got, want, 5e-6)
        assert got.dtype in (np.float32, np.complex64)


def test_a_non_finite_sample_affects_only_its_row(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 401))
    x[1, 7] = np.inf
    for transform in (
        lambda **options: rlx.multitaper(x, 100.0, **options)[1],
        lambda **options: rlx.tfr_morlet(x, 100.0, [10.0], **options).values,
    ):
        with pytest.raises(NotFinite, match="channel 1 is inf at sample 7"):
            transform()
        got = transform(nan="propagate")
        assert np.isnan(got[1]).all()
        assert np.isfinite(got[[0, 2]]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: rlx.multitaper(x, 100.0, bandwidth=0.1), "must be at least 0.25 Hz"),
        (lambda x: rlx.multitaper(x, -1.0), "fs is -1"),
        (
            lambda x: rlx.multitaper(x + 1j, 1.0),
            "the samples are complex128; must be real",
        ),
        (lambda x: rlx.multitaper(x, 1.0, normalization="no"), "normalization is 'no'"),
        (
            lambda x: rlx.tfr_morlet(x, 100.0, [60.0]),
            "freqs contains 60; must be above 0 and",
        ),
        (lambda x: rlx.tfr_morlet(x, 100.0, []), r"freqs has shape \(0,\)"),
        (
            lambda x: rlx.tfr_morlet(x, 100.0, [5.0, 6.0], [1, 2, 3]),
            r"n_cycles has shape \(3,\)",
        ),
        (
            lambda x: rlx.tfr_morlet(x, 100.0, [1.0]),
            "of 1 Hz has 1115 samples; must be at most",
        ),
        (lambda x: rlx.tfr_morlet(x, 100.0, [20.0], decim=0), "decim is 0"),
        (lambda x: rlx.tfr_morlet(x, 100.0, [20.0], output="x"), "output is 'x'"),
    ],
)
def test_invalid_calls_are_refused(
    call: Callable[[Any], Any], message: str, rng: np.random.Generator
) -> None:
    with pytest.raises(RlxError, match=message):
        call(rng.standard_normal((2, 400)))


def test_too_few_tapers_for_adaptive_weights_give_a_warning(
    rng: np.random.Generator,
) -> None:
    x = rng.standard_normal((2, 400))
    with pytest.warns(
        UserWarning, match="adaptive weights need at least 3 tapers, got 1"
    ):
        _, got = rlx.multitaper(x, 100.0, bandwidth=0.6, adaptive=True)
    assert_close(got, rlx.multitaper(x, 100.0, bandwidth=0.6)[1])


def test_async_calls_in_an_event_loop(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 400))

    async def run_both() -> Any:
        return (
            (await rlx.multitaper_async(x, 100.0))[1],
            (await rlx.tfr_morlet_async(x, 100.0, [20.0])).values,
        )

    power, waves = run_in_event_loop(run_both())
    np.testing.assert_array_equal(power, rlx.multitaper(x, 100.0)[1])
    np.testing.assert_array_equal(waves, rlx.tfr_morlet(x, 100.0, [20.0]).values)
