"""`stft` and `istft` beside scipy.signal.ShortTimeFFT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.errors import NotFinite, RlxError, ShapeError, Unsupported, UsageError
from rlxweb.gpu.port import Want
from tests.threads import in_a_loop
from tests.unit.signal.near import by_name, close


@st.composite
def transforms(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `stft`."""
    nperseg = draw(st.integers(1, 80))
    return {
        "window": draw(st.sampled_from(("hann", "boxcar", "hamming", ("kaiser", 8)))),
        "nperseg": nperseg,
        "noverlap": draw(st.integers(0, nperseg - 1)),
        "nfft": draw(st.none() | st.integers(nperseg, nperseg + 30)),
        "scaling": draw(st.sampled_from((None, "magnitude", "psd"))),
        "phase_shift": draw(st.none() | st.integers(1 - nperseg, nperseg - 1)),
    }


def theirs(named: dict[str, Any], fs: float, mode: str = "onesided") -> Any:
    """SciPy's object for the same transform."""
    n = named["nperseg"]
    return scipy.signal.ShortTimeFFT(
        scipy.signal.get_window(named["window"], n),
        n - named["noverlap"],
        fs,
        fft_mode=mode,
        mfft=named["nfft"] or n,
        scale_to=named["scaling"],
        phase_shift=named["phase_shift"],
    )


@given(
    transforms(),
    st.integers(40, 300),
    st.sampled_from(("zeros", "edge", "even", "odd")),
    st.booleans(),
)
@settings(max_examples=100)
def test_it_is_scipys(
    named: dict[str, Any], n: int, padding: Any, is_complex: bool
) -> None:
    """Slices, times and values are SciPy's; the way back gives the signal."""
    x = np.random.default_rng(n).standard_normal((2, n))
    x = x + 1j * x[::-1] if is_complex else x
    window = scipy.signal.get_window(named["window"], named["nperseg"])
    # Where nothing is under the window SciPy's own rule of slices has no answer.
    assume(window[len(window) // 2 :].any() and window.sum() > 1e-3)
    other = theirs(named, 10.0, "twosided" if is_complex else "onesided")
    got = rlx.stft(x, 10.0, padding=padding, **named)
    close(got.values, other.stft(x, padding=padding), 1e-11)
    np.testing.assert_allclose(got.t, other.t(n), atol=1e-12)
    np.testing.assert_allclose(got.f, other.f, atol=1e-12)
    if not other.invertible:
        with pytest.raises(UsageError, match="no segment tells of sample"):
            rlx.istft(got.values, 10.0, **named, return_onesided=not is_complex)
        return
    back = rlx.istft(got.values, 10.0, n=n, **named, return_onesided=not is_complex)
    close(back.x, x, 1e-9)
    np.testing.assert_allclose(back.t, np.arange(n) / 10.0)


@pytest.mark.parametrize("shift", [0, None, 7])
def test_on_devices(adapter: Want, shift: int | None, rng: np.random.Generator) -> None:
    """Forward and inverse transforms on devices are SciPy's."""
    x = rng.standard_normal((3, 1000)).astype(np.float32)
    for n, hop, nfft in ((64, 16, None), (101, 50, 128), (30, 30, None)):
        named = {"window": "hamming", "nperseg": n, "noverlap": n - hop, "nfft": nfft}
        named |= {"scaling": None, "phase_shift": shift}
        got = rlx.stft(x, 10.0, **by_name(adapter), **named)
        close(got.values, theirs(named, 10.0).stft(x.astype(float)), 5e-6)
        assert got.values.dtype == np.complex64
        back = rlx.istft(got.values, 10.0, n=1000, **by_name(adapter), **named)
        close(back.x, x, 5e-6)
        assert back.x.dtype == np.float32


def test_the_axes_are_the_callers(rng: np.random.Generator) -> None:
    x = rng.standard_normal((500, 3))
    got = rlx.stft(x, nperseg=40, axis=0)
    assert got.values.shape == (21, 3, len(got.t))
    other = np.moveaxis(got.values, (0, 2), (1, 0))  # segments, bins, channels
    back = rlx.istft(other, nperseg=40, axis=1, time_axis=0, n=500)
    close(back.x, x.T, 1e-12)


def test_more_overlap_than_a_device_adds_up(
    adapter: Want, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((1, 300)).astype(np.float32)
    z = rlx.stft(x, nperseg=64, noverlap=63).values
    with pytest.raises(Unsupported, match="64 segments overlap, and devices add 32"):
        rlx.istft(z, nperseg=64, noverlap=63, **by_name(adapter))
    close(rlx.istft(z, nperseg=64, noverlap=63, n=300).x, x, 1e-5)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda x: rlx.stft(x[:20], nperseg=64), UsageError, "half a segment of 64"),
        (lambda x: rlx.stft(x, padding="wrap"), UsageError, "padding is 'wrap'"),
        (lambda x: rlx.stft(x, scaling="density"), UsageError, "scaling is 'density'"),
        (
            lambda x: rlx.stft(x, nperseg=8, phase_shift=8),
            UsageError,
            "phase_shift is 8; it lies within a segment of 8",
        ),
        (lambda x: rlx.istft(x), ShapeError, r"the spectra have shape \(500,\)"),
        (
            lambda x: rlx.istft(x.reshape(50, 10), nperseg=20),
            ShapeError,
            "50 bins on axis -2; nfft 20 gives 11",
        ),
        (
            lambda x: rlx.istft(x[:44].reshape(11, 4), nperseg=20, n=99),
            UsageError,
            "n is 99; 4 segments, 10 apart, reach 40 samples",
        ),
        (
            lambda x: rlx.istft(x[:44].reshape(11, 4) * np.inf, nperseg=20),
            NotFinite,
            "the spectra are",
        ),
        (
            lambda x: rlx.istft(x[:44].reshape(11, 4), nperseg=20, axis=1),
            ShapeError,
            "axis and time_axis are both 1",
        ),
    ],
)
def test_bad_calls_are_refused(
    call: Callable[[Any], Any],
    error: type[RlxError],
    said: str,
    rng: np.random.Generator,
) -> None:
    with np.errstate(invalid="ignore"), pytest.raises(error, match=said):
        call(rng.standard_normal(500))


def test_beside_an_event_loop(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 600))

    async def there_and_back() -> Any:
        z = (await rlx.stft_async(x, 10.0, nperseg=64)).values
        return (await rlx.istft_async(z, 10.0, nperseg=64, n=600)).x

    close(in_a_loop(there_and_back()), x)
