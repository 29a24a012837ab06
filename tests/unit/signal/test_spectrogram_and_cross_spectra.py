"""`spectrogram`, `csd` and `coherence`: SciPy's own tests, all pairs, devices and
refusals.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal.tests import test_spectral as scipys

import rlxweb as rlx
from rlxweb.core.errors import (
    DTypeError,
    EnvironmentWarning,
    NotFinite,
    RlxError,
    ShapeError,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ops.welch.cpu import cross_power_matrix as matrix
from rlxweb.signal import row_operation_runner
from tests.run_in_threads import run_in_event_loop
from tests.unit.signal.device_comparison import adapter_arguments, assert_close

SCIPY_FUNCTIONS = {"TestSpectrogram": "spectrogram", "TestCSD": "csd"}
SCIPY_FUNCTIONS |= {"TestCoherence": "coherence"}
TESTS = sorted(
    (kind, name)
    for kind in SCIPY_FUNCTIONS
    for name in dir(getattr(scipys, kind))
    if name.startswith("test_")
)
EXPECTED_FAILURES = {
    ("TestCSD", "test_window_external"): "Regex pattern did not match",
    ("TestSpectrogram", "test_short_data"): "nperseg=1025 is greater than signal",
}
"""SciPy's tests that require its very words in an error or a warning, and the message
they fail with here.
"""
MODES = ("psd", "complex", "magnitude", "angle", "phase")


def test_all_of_scipys_tests_are_run() -> None:
    """40 in SciPy 1.17; classes that moved would leave nothing to fail."""
    assert len(TESTS) >= 40


@pytest.mark.parametrize(("kind", "name"), TESTS)
def test_scipys_own_test(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy's classes with our function in them."""
    called = []

    def recording_function(*args: Any, **options: Any) -> Any:
        called.append(name)
        return getattr(rlx, SCIPY_FUNCTIONS[kind])(*args, **options)

    for module in (scipys, scipys.signal):
        monkeypatch.setattr(module, SCIPY_FUNCTIONS[kind], recording_function)
    run = getattr(getattr(scipys, kind)(), name)
    if (kind, name) in EXPECTED_FAILURES:
        ends = AssertionError, UserWarning
        with pytest.raises(ends, match=EXPECTED_FAILURES[kind, name]):
            run()
    else:
        run()
    assert called


@st.composite
def segmentations(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    """Draw a number of samples, and how they are cut into segments."""
    n = draw(st.integers(2, 400))
    nperseg = draw(st.integers(1, n))
    options: dict[str, Any] = {"nperseg": nperseg}
    options["noverlap"] = draw(st.none() | st.integers(0, nperseg - 1))
    options["nfft"] = draw(st.none() | st.integers(nperseg, 2 * nperseg))
    options["window"] = draw(st.sampled_from(("hann", "boxcar", ("kaiser", 5.0))))
    options["detrend"] = draw(st.sampled_from((False, "constant", "linear")))
    options["scaling"] = draw(st.sampled_from(("density", "spectrum")))
    options["return_onesided"] = draw(st.booleans())
    return n, options


@given(
    segmentations(),
    st.sampled_from(MODES[:3]),
    st.sampled_from((0, 1, -1)),
    st.booleans(),
)
@settings(max_examples=80)
def test_spectrograms_are_scipys(
    segmentation: tuple[int, dict[str, Any]], mode: str, axis: int, is_complex: bool
) -> None:
    n, options = segmentation
    x = np.random.default_rng(n).standard_normal((2, n)) + 1.0
    x = x + 1j * x[::-1] if is_complex else x
    x = np.moveaxis(x, 1, axis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = scipy.signal.spectrogram(x, 7.0, axis=axis, mode=mode, **options)
        got = rlx.spectrogram(x, 7.0, axis=axis, mode=mode, **options)
    for actual, expected in zip(got, want, strict=True):
        assert_close(actual, expected)
    assert got.values.dtype == want[2].dtype


def test_phases_are_scipys(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 900))
    for mode in ("angle", "phase"):
        *_, want = scipy.signal.spectrogram(x, 5.0, nperseg=64, mode=mode)
        got = rlx.spectrogram(x, 5.0, nperseg=64, mode=mode).values
        # Bins of no power have any phase.
        np.testing.assert_allclose(got[:, 1:-1], want[:, 1:-1], atol=1e-7)


@given(segmentations(), st.integers(0, 30), st.sampled_from(("mean", "median")))
@settings(max_examples=80)
def test_cross_spectra_are_scipys(
    segmentation: tuple[int, dict[str, Any]], shorter: int, average: str
) -> None:
    n, options = segmentation
    x = np.random.default_rng(n).standard_normal((3, 1, n)) + 1.0
    y = np.random.default_rng(n + 1).standard_normal((2, max(1, n - shorter)))
    filled = np.pad(y, ((0, 0), (0, n - y.shape[1])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, want = scipy.signal.csd(x, filled, 3.0, average=average, **options)
        _, got = rlx.csd(x, y, 3.0, average=average, **options)
        assert_close(got, want)


@pytest.mark.parametrize("x_rows", [1, 12])
def test_all_pairs_equal_single_pairs(
    x_rows: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Pairs by matrix products, in chunks, equal each pair computed alone."""
    monkeypatch.setattr(matrix, "MAX_SPECTRA_BYTES", 1 << 16)
    x, y = rng.standard_normal((x_rows, 1, 700)), rng.standard_normal((11, 700))
    for options in ({}, {"return_onesided": False}):
        f, want = scipy.signal.csd(x, y, 3.0, nperseg=50, **options)
        hz, got = rlx.csd(x, y, 3.0, nperseg=50, **options)
        assert_close(got, want)
        assert_close(hz, f)
    _, want = scipy.signal.coherence(x, y, 3.0, nperseg=50)
    assert_close(rlx.coherence(x, y, 3.0, nperseg=50)[1], want, 1e-11)
    wide = x + 1j * x[::-1]
    _, want = scipy.signal.csd(wide, y + 0j, 3.0, nperseg=50)
    assert_close(rlx.csd(wide, y, 3.0, nperseg=50)[1], want)


@pytest.mark.parametrize("mode", ["psd", "complex", "magnitude"])
def test_spectrograms_on_devices(
    adapter: AdapterRequest, mode: Any, rng: np.random.Generator
) -> None:
    """Spectrograms on devices are float64's, with any window, overlap and detrend."""
    x = rng.standard_normal((3, 2000)).astype(np.float32)
    for options in (
        {"nperseg": 256},
        {"nperseg": 101, "noverlap": 60, "nfft": 128, "detrend": "linear"},
        {"nperseg": 64, "noverlap": 63, "window": "hann", "detrend": False},
    ):
        *_, want = scipy.signal.spectrogram(x.astype(float), 9.0, mode=mode, **options)
        got = rlx.spectrogram(
            x, 9.0, mode=mode, **adapter_arguments(adapter), **options
        )
        assert_close(got.values, want, 5e-6)
        assert got.values.dtype in (np.float32, np.complex64)


def test_pairs_on_devices(
    adapter: AdapterRequest, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Pairs on devices are SciPy's, in batches, too."""
    monkeypatch.setattr(row_operation_runner, "MAX_BATCH_BYTES", 1 << 14)
    x, y = (rng.standard_normal((7, 1500)).astype(np.float32) for _ in range(2))
    y += x
    wide = x.astype(float), y.astype(float)
    options = {"nperseg": 64, "noverlap": 20}
    _, want = scipy.signal.csd(*wide, 9.0, **options)
    assert_close(
        rlx.csd(x, y, 9.0, **adapter_arguments(adapter), **options)[1], want, 5e-6
    )
    _, want = scipy.signal.coherence(*wide, 9.0, **options)
    got = rlx.coherence(x, y, 9.0, **adapter_arguments(adapter), **options)[1]
    assert_close(got, want, 5e-5)
    assert got.dtype == np.float32
    *_, want = scipy.signal.spectrogram(wide[0], 9.0, **options)
    assert_close(
        rlx.spectrogram(x, 9.0, **adapter_arguments(adapter), **options).values,
        want,
        5e-6,
    )


def test_non_finite_samples_affect_only_their_segments(
    rng: np.random.Generator,
) -> None:
    x = rng.standard_normal((2, 1000))
    x[1, 300] = np.nan
    with pytest.raises(NotFinite, match="channel 1 is nan at sample 300"):
        rlx.spectrogram(x, nperseg=100, noverlap=0)
    got = rlx.spectrogram(x, nperseg=100, noverlap=0, nan="propagate").values
    assert np.isnan(got[1, :, 3]).all()
    assert np.isfinite(np.delete(got[1], 3, axis=1)).all()
    assert np.isfinite(got[0]).all()
    _, pairs = rlx.csd(x, x[:1], nperseg=100, nan="propagate")
    assert np.isfinite(pairs[0]).all()
    assert np.isnan(pairs[1]).all()


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_samples_of_any_size_keep_their_digits(
    size: float, rng: np.random.Generator
) -> None:
    """Squares beyond float32 are refused; those between are right."""
    x = rng.standard_normal((2, 600)).astype(np.float32)
    scaled = x * np.float32(size)
    if size > 1:
        with pytest.raises(UsageError, match=r"too large; the largest float32 is 3.4e"):
            rlx.spectrogram(scaled, nperseg=64)
    got = rlx.spectrogram(scaled, nperseg=64, mode="complex").values
    assert_close(
        got / size, rlx.spectrogram(x, nperseg=64, mode="complex").values, 1e-6
    )
    wide = rlx.spectrogram(scaled, nperseg=64, precision="f64").values
    assert_close(wide / size**2, rlx.spectrogram(x, nperseg=64).values, 1e-5)
    _, flat = rlx.coherence(scaled, np.roll(scaled, 3, axis=1), nperseg=64)
    assert_close(flat, rlx.coherence(x, np.roll(x, 3, axis=1), nperseg=64)[1], 1e-4)


def test_band_is_a_slice_of_the_spectrogram(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 600))
    full = rlx.spectrogram(x, 100.0, nperseg=64)
    cropped = rlx.spectrogram(x, 100.0, nperseg=64, fmin=10, fmax=20)
    in_band = (full.f >= 10) & (full.f <= 20)
    np.testing.assert_array_equal(cropped.values, full.values[:, in_band])
    np.testing.assert_array_equal(cropped.f, full.f[in_band])
    _, c = rlx.coherence(x[:1], x[1:], 100.0, nperseg=64, fmin=10, fmax=20)
    assert c.shape == (1, in_band.sum())


def test_integers_count_as_physical_values(rng: np.random.Generator) -> None:
    counts = rng.integers(-500, 500, (2, 600)).astype(np.int16)
    digital = rlx.Digital(counts, gain=0.25, offset=3)
    want = rlx.spectrogram(0.25 * (counts + 3.0), nperseg=64).values
    np.testing.assert_array_equal(rlx.spectrogram(digital, nperseg=64).values, want)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: rlx.spectrogram(x, mode="power"), UsageError, "mode is 'power'"),
        (lambda x: rlx.spectrogram(x, 0.0), UsageError, "fs is 0; must be above 0"),
        (lambda x: rlx.spectrogram(x, noverlap=256), UsageError, "spectrogram: noverl"),
        (lambda x: rlx.spectrogram(x, nan="drop"), UsageError, "nan is 'drop'"),
        (lambda x: rlx.spectrogram(x, axis=2), ShapeError, "axis 2 does not exist"),
        (lambda x: rlx.spectrogram(x, device="gpu"), DTypeError, "never converted"),
        (
            lambda x: rlx.spectrogram(
                x.astype("f4"), device="gpu", return_onesided=False
            ),
            Unsupported,
            "only NumPy supports two-sided spectra",
        ),
        (lambda x: rlx.csd(x, x[:2]), ShapeError, "x and y cannot be broad"),
        (lambda x: rlx.csd(x, x, average="mode"), UsageError, "average is 'mode'"),
        (
            lambda x: rlx.coherence(x, x, fmin=3),
            UsageError,
            "there is no bin at or above 3 Hz",
        ),
    ],
)
def test_bad_calls_are_refused(
    call: Callable[[Any], Any],
    error: type[RlxError],
    message: str,
    rng: np.random.Generator,
) -> None:
    with pytest.raises(error, match=message):
        call(rng.standard_normal((3, 600)))


def test_in_an_event_loop(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 600))

    async def compute_all() -> list[Any]:
        return [
            (await rlx.spectrogram_async(x, 10.0, nperseg=64)).values,
            (await rlx.csd_async(x, x[::-1], 10.0, nperseg=64))[1],
            (await rlx.coherence_async(x, x[::-1], 10.0, nperseg=64))[1],
        ]

    want = [
        rlx.spectrogram(x, 10.0, nperseg=64).values,
        rlx.csd(x, x[::-1], 10.0, nperseg=64)[1],
        rlx.coherence(x, x[::-1], 10.0, nperseg=64)[1],
    ]
    for got, expected in zip(run_in_event_loop(compute_all()), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_repr_of_a_spectrogram(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 600))
    text = repr(rlx.spectrogram(x, 10.0, nperseg=64))
    assert text == "TimeFrequency(2×33×10 float64, 0 … 5 Hz, 3.2 … 53.6 s)"


def test_device_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    """A forced device refuses estimates of NumPy alone; a requested one is warned
    about.
    """
    x = rng.standard_normal((3, 600))
    narrow = x.astype(np.float32)
    with pytest.raises(Unsupported, match="only NumPy supports average='median'"):
        rlx.csd(narrow, narrow[::-1], average="median", device="vulkan")
    monkeypatch.setenv("RLX_FORCE_DEVICE", "vulkan")
    with pytest.raises(
        DTypeError, match="samples are never converted to float32 automatically"
    ):
        rlx.spectrogram(x)
    with pytest.raises(
        DTypeError, match="samples are never converted to float32 automatically"
    ):
        rlx.coherence(np.tile(x, (4, 1))[:, None], np.tile(x, (4, 1))[None])
    monkeypatch.delenv("RLX_FORCE_DEVICE")
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    with pytest.warns(
        EnvironmentWarning, match="cannot run spectrogram and is ignored"
    ):
        got = rlx.spectrogram(x)
    monkeypatch.delenv("RLX_DEVICE")
    np.testing.assert_array_equal(got.values, rlx.spectrogram(x).values)
