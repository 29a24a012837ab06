"""Slepian's tapers beside SciPy's, multitaper spectra and wavelets beside MNE's."""

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
from rlxweb.errors import NotFinite, RlxError, UsageError
from rlxweb.gpu.port import Want
from rlxweb.signal import tapers
from rlxweb.signal.tapers import dpss
from tests.threads import in_a_loop
from tests.unit.signal.near import by_name, close

mne.set_log_level("ERROR")


@given(st.integers(2, 700), st.floats(0.5, 60.0), st.integers(1, 130), st.booleans())
@settings(max_examples=40)
def test_tapers_are_scipys(n: int, nw: float, k: int, periodic: bool) -> None:
    """Tapers are SciPy's to the digits that eigenvectors of n² / 4 leave to both."""
    nw = min(nw, n / 2 * 0.98)
    k = min(k, n, max(1, int(2 * nw)))
    got = dpss(n, nw, k, periodic=periodic)
    want, ratios = windows.dpss(n, nw, k, sym=not periodic, norm=2, return_ratios=True)
    np.testing.assert_allclose(got.values, want, atol=2e-11)
    np.testing.assert_allclose(got.ratios, ratios, atol=1e-11)


def test_long_tapers_belong_to_slepians_operator() -> None:
    """Long tapers are concentrated and orthogonal where LAPACK's are off by 1e-8."""
    n, nw, k = 153_600, 4.0, 7
    got = dpss(n, nw, k, periodic=False)
    np.testing.assert_allclose(got.values @ got.values.T, np.eye(k), atol=1e-12)
    # By the Toeplitz matrix of the concentration problem, applied through the FFT.
    lags = np.arange(1 - n, n)
    kernel = 2 * nw / n * np.sinc(2 * nw / n * lags)
    size = 1 << 19
    spectrum = np.fft.rfft(np.roll(np.pad(kernel, (0, size - len(kernel))), 1 - n))
    for one, ratio in zip(got.values, got.ratios, strict=True):
        held = np.fft.irfft(np.fft.rfft(one, size) * spectrum, size)[:n]
        np.testing.assert_allclose(held, ratio * one, atol=1e-13)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ((8, 5.0, 2), "nw is 5; it lies between 0 and half the length"),
        ((8, 0.0, 2), "nw is 0"),
        ((8, 2.0, 9), "9 tapers of 8 samples"),
        ((0, 2.0, 1), "1 tapers of 0 samples"),
    ],
)
def test_tapers_that_are_none(given_: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        dpss(*given_)


def test_tapers_that_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapers, "MOST_VALUES", 10_000)
    with pytest.raises(UsageError, match="cut the signal into epochs"):
        dpss(1237, 4.0, 3)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"bandwidth": 8.0},
    {"adaptive": True},
    {"low_bias": False, "remove_dc": False},
    {"fmin": 3.0, "fmax": 20.0},
    {"normalization": "length"},
]


@pytest.mark.parametrize("named", SETTINGS, ids=str)
@pytest.mark.parametrize("n", [30, 501, 1000])
def test_multitaper_spectra_are_mnes(
    n: int, named: dict[str, Any], rng: np.random.Generator
) -> None:
    x = rng.standard_normal((3, 2, n)) + 2.0
    named = {"normalization": "full", **named}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, f = mne.time_frequency.psd_array_multitaper(x, 100.0, **named)
        hz, got = rlx.multitaper(x, 100.0, **named)
    close(got, want)
    np.testing.assert_allclose(hz, f)


def test_multitaper_spectra_on_devices(adapter: Want, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((5, 700)) + 2.0).astype(np.float32)
    wide = x.astype(float)
    want, _ = mne.time_frequency.psd_array_multitaper(wide, 100.0, normalization="full")
    _, got = rlx.multitaper(x, 100.0, **by_name(adapter))
    close(got, want, 5e-6)
    assert got.dtype == np.float32


@pytest.mark.parametrize(
    "named",
    [{}, {"decim": 3}, {"n_cycles": [3.0, 5.0, 7.0]}, {"zero_mean": False}],
    ids=str,
)
@pytest.mark.parametrize("output", ["power", "complex", "phase"])
def test_wavelets_are_mnes(
    output: Any, named: dict[str, Any], rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 3, 401)) + 1.0
    theirs = {"n_cycles": 7.0, "zero_mean": True, **named}
    if isinstance(theirs["n_cycles"], list):
        theirs["n_cycles"] = np.array(theirs["n_cycles"])
    freqs = [5.0, 10.0, 40.0]
    want = mne.time_frequency.tfr_array_morlet(
        x, 100.0, np.array(freqs), output=output, **theirs
    )
    got = rlx.tfr_morlet(x, 100.0, freqs, output=output, **named)
    close(got.values, want, 1e-9 if output == "phase" else 1e-12)
    np.testing.assert_allclose(got.t, np.arange(0, 401, named.get("decim", 1)) / 100)


@pytest.mark.parametrize("decim", [1, 4])
def test_wavelets_on_devices(
    adapter: Want, decim: int, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((4, 601)).astype(np.float32)
    freqs = [5.0, 11.0, 30.0]
    for output in ("power", "complex"):
        want = rlx.tfr_morlet(
            x.astype(float), 100.0, freqs, output=output, decim=decim
        ).values
        got = rlx.tfr_morlet(
            x, 100.0, freqs, output=output, decim=decim, **by_name(adapter)
        ).values
        close(got, want, 5e-6)
        assert got.dtype in (np.float32, np.complex64)


def test_what_is_not_finite_costs_its_row_alone(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 401))
    x[1, 7] = np.inf
    for call in (
        lambda **more: rlx.multitaper(x, 100.0, **more)[1],
        lambda **more: rlx.tfr_morlet(x, 100.0, [10.0], **more).values,
    ):
        with pytest.raises(NotFinite, match="channel 1 is inf at sample 7"):
            call()
        got = call(nan="propagate")
        assert np.isnan(got[1]).all()
        assert np.isfinite(got[[0, 2]]).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: rlx.multitaper(x, 100.0, bandwidth=0.1), "no less than 0.25 Hz"),
        (lambda x: rlx.multitaper(x, -1.0), "fs is -1"),
        (lambda x: rlx.multitaper(x + 1j, 1.0), "samples of complex128; real ones"),
        (lambda x: rlx.multitaper(x, 1.0, normalization="no"), "normalization is 'no'"),
        (lambda x: rlx.tfr_morlet(x, 100.0, [60.0]), "freqs has 60 in it; above 0 and"),
        (lambda x: rlx.tfr_morlet(x, 100.0, []), r"freqs have shape \(0,\)"),
        (
            lambda x: rlx.tfr_morlet(x, 100.0, [5.0, 6.0], [1, 2, 3]),
            r"n_cycles has shape \(3,\)",
        ),
        (lambda x: rlx.tfr_morlet(x, 100.0, [1.0]), "of 1 Hz has 1115 samples; the si"),
        (lambda x: rlx.tfr_morlet(x, 100.0, [20.0], decim=0), "decim is 0"),
        (lambda x: rlx.tfr_morlet(x, 100.0, [20.0], output="x"), "output is 'x'"),
    ],
)
def test_bad_calls_are_refused(
    call: Callable[[Any], Any], said: str, rng: np.random.Generator
) -> None:
    with pytest.raises(RlxError, match=said):
        call(rng.standard_normal((2, 400)))


def test_too_few_tapers_for_weights_of_their_own(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 400))
    with pytest.warns(UserWarning, match="1 tapers are too few for adaptive weights"):
        _, got = rlx.multitaper(x, 100.0, bandwidth=0.6, adaptive=True)
    close(got, rlx.multitaper(x, 100.0, bandwidth=0.6)[1])


def test_beside_an_event_loop(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 400))

    async def both() -> Any:
        return (
            (await rlx.multitaper_async(x, 100.0))[1],
            (await rlx.tfr_morlet_async(x, 100.0, [20.0])).values,
        )

    power, waves = in_a_loop(both())
    np.testing.assert_array_equal(power, rlx.multitaper(x, 100.0)[1])
    np.testing.assert_array_equal(waves, rlx.tfr_morlet(x, 100.0, [20.0]).values)
