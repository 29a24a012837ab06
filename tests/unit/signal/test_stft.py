"""`stft` and `istft` compared with scipy.signal.ShortTimeFFT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import NotFinite, RlxError, ShapeError, Unsupported, UsageError
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.run_in_threads import run_in_event_loop
from tests.unit.signal.device_comparison import adapter_arguments, assert_close


@st.composite
def stft_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw arguments of `stft`."""
    nperseg = draw(st.integers(1, 80))
    return {
        "window": draw(st.sampled_from(("hann", "boxcar", "hamming", ("kaiser", 8)))),
        "nperseg": nperseg,
        "noverlap": draw(st.integers(0, nperseg - 1)),
        "nfft": draw(st.none() | st.integers(nperseg, nperseg + 30)),
        "scaling": draw(st.sampled_from((None, "magnitude", "psd"))),
        "phase_shift": draw(st.none() | st.integers(1 - nperseg, nperseg - 1)),
    }


def scipy_stft(options: dict[str, Any], fs: float, mode: str = "onesided") -> Any:
    """Return SciPy's object for the same transform."""
    n = options["nperseg"]
    return scipy.signal.ShortTimeFFT(
        scipy.signal.get_window(options["window"], n),
        n - options["noverlap"],
        fs,
        fft_mode=mode,
        mfft=options["nfft"] or n,
        scale_to=options["scaling"],
        phase_shift=options["phase_shift"],
    )


@given(
    stft_options(),
    st.integers(40, 300),
    st.sampled_from(("zeros", "edge", "even", "odd")),
    st.booleans(),
)
@settings(max_examples=100)
def test_stft_matches_scipy(
    options: dict[str, Any], n: int, padding: Any, is_complex: bool
) -> None:
    """Slices, times and values are SciPy's; the inverse gives the signal."""
    x = np.random.default_rng(n).standard_normal((2, n))
    x = x + 1j * x[::-1] if is_complex else x
    window = scipy.signal.get_window(options["window"], options["nperseg"])
    # Where nothing is under the window SciPy's own rule of slices has no answer.
    assume(window[len(window) // 2 :].any() and window.sum() > 1e-3)
    reference = scipy_stft(options, 10.0, "twosided" if is_complex else "onesided")
    got = rlx.stft(x, 10.0, padding=padding, **options)
    assert_close(got.values, reference.stft(x, padding=padding), 1e-11)
    np.testing.assert_allclose(got.t, reference.t(n), atol=1e-12)
    np.testing.assert_allclose(got.f, reference.f, atol=1e-12)
    if not reference.invertible:
        with pytest.raises(
            UsageError, match=r"of each hop of .* cannot be reconstructed"
        ):
            rlx.istft(got.values, 10.0, **options, return_onesided=not is_complex)
        return
    restored = rlx.istft(
        got.values, 10.0, n=n, **options, return_onesided=not is_complex
    )
    assert_close(restored.x, x, 1e-9)
    np.testing.assert_allclose(restored.t, np.arange(n) / 10.0)


@pytest.mark.parametrize("shift", [0, None, 7])
def test_on_devices(
    adapter: AdapterRequest, shift: int | None, rng: np.random.Generator
) -> None:
    """Forward and inverse transforms on devices are SciPy's."""
    x = rng.standard_normal((3, 1000)).astype(np.float32)
    for n, hop, nfft in ((64, 16, None), (101, 50, 128), (30, 30, None)):
        options = {"window": "hamming", "nperseg": n, "noverlap": n - hop, "nfft": nfft}
        options |= {"scaling": None, "phase_shift": shift}
        got = rlx.stft(x, 10.0, **adapter_arguments(adapter), **options)
        assert_close(got.values, scipy_stft(options, 10.0).stft(x.astype(float)), 5e-6)
        assert got.values.dtype == np.complex64
        restored = rlx.istft(
            got.values, 10.0, n=1000, **adapter_arguments(adapter), **options
        )
        assert_close(restored.x, x, 5e-6)
        assert restored.x.dtype == np.float32


def test_any_axes(rng: np.random.Generator) -> None:
    x = rng.standard_normal((500, 3))
    got = rlx.stft(x, nperseg=40, axis=0)
    assert got.values.shape == (21, 3, len(got.t))
    transposed = np.moveaxis(got.values, (0, 2), (1, 0))  # segments, bins, channels
    restored = rlx.istft(transposed, nperseg=40, axis=1, time_axis=0, n=500)
    assert_close(restored.x, x.T, 1e-12)


def test_more_overlap_than_a_device_adds_up(
    adapter: AdapterRequest, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((1, 300)).astype(np.float32)
    z = rlx.stft(x, nperseg=64, noverlap=63).values
    with pytest.raises(
        Unsupported,
        match="64 segments overlap at each sample, but every device except the CPU "
        "supports at most 32 overlapping segments",
    ):
        rlx.istft(z, nperseg=64, noverlap=63, **adapter_arguments(adapter))
    assert_close(rlx.istft(z, nperseg=64, noverlap=63, n=300).x, x, 1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: rlx.stft(x[:20], nperseg=64), UsageError, "half of a segment of 64"),
        (lambda x: rlx.stft(x, padding="wrap"), UsageError, "padding is 'wrap'"),
        (lambda x: rlx.stft(x, scaling="density"), UsageError, "scaling is 'density'"),
        (
            lambda x: rlx.stft(x, nperseg=8, phase_shift=8),
            UsageError,
            "phase_shift is 8; must be above -8 and below 8",
        ),
        (lambda x: rlx.istft(x), ShapeError, r"the spectra have shape \(500,\)"),
        (
            lambda x: rlx.istft(x.reshape(50, 10), nperseg=20),
            ShapeError,
            "got 50 bins on axis -2; expected 11 for nfft 20",
        ),
        (
            lambda x: rlx.istft(x[:44].reshape(11, 4), nperseg=20, n=99),
            UsageError,
            "n is 99; must be 1 to 40, the length that 4 segments with a hop of 10",
        ),
        (
            lambda x: rlx.istft(x[:44].reshape(11, 4) * np.inf, nperseg=20),
            NotFinite,
            "the value at",
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
    message: str,
    rng: np.random.Generator,
) -> None:
    with np.errstate(invalid="ignore"), pytest.raises(error, match=message):
        call(rng.standard_normal(500))


def test_in_an_event_loop(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 600))

    async def round_trip() -> Any:
        z = (await rlx.stft_async(x, 10.0, nperseg=64)).values
        return (await rlx.istft_async(z, 10.0, nperseg=64, n=600)).x

    assert_close(run_in_event_loop(round_trip()), x)
