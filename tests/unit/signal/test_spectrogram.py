"""`spectrogram`, `csd`, `coherence`: SciPy's own tests, and more than those."""

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
from rlxweb.errors import (
    DTypeError,
    EnvironmentWarning,
    NotFinite,
    RlxError,
    ShapeError,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.port import Want
from rlxweb.host import cross_matrix as matrix
from rlxweb.signal import row_calls
from tests.threads import in_a_loop
from tests.unit.signal.near import by_name, close

THEIRS = {"TestSpectrogram": "spectrogram", "TestCSD": "csd"}
THEIRS |= {"TestCoherence": "coherence"}
TESTS = sorted(
    (kind, name)
    for kind in THEIRS
    for name in dir(getattr(scipys, kind))
    if name.startswith("test_")
)
OTHER_WORDS = {
    ("TestCSD", "test_window_external"): "Regex pattern did not match",
    ("TestSpectrogram", "test_short_data"): "nperseg=1025 is greater than signal",
}
"""They ask for SciPy's very words in an error or a warning → what ends them here."""
MODES = ("psd", "complex", "magnitude", "angle", "phase")


def test_all_of_scipys_tests_are_run() -> None:
    """40 in SciPy 1.17; classes that moved would leave nothing to fail."""
    assert len(TESTS) >= 40


@pytest.mark.parametrize(("kind", "name"), TESTS)
def test_scipys_own_test(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy's classes with our function in them."""
    called = []

    def ours(*args: Any, **named: Any) -> Any:
        called.append(name)
        return getattr(rlx, THEIRS[kind])(*args, **named)

    for module in (scipys, scipys.signal):
        monkeypatch.setattr(module, THEIRS[kind], ours)
    run = getattr(getattr(scipys, kind)(), name)
    if (kind, name) in OTHER_WORDS:
        ends = AssertionError, UserWarning
        with pytest.raises(ends, match=OTHER_WORDS[kind, name]):
            run()
    else:
        run()
    assert called


@st.composite
def cuts(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    """A number of samples, and how they are cut into segments."""
    n = draw(st.integers(2, 400))
    nperseg = draw(st.integers(1, n))
    named: dict[str, Any] = {"nperseg": nperseg}
    named["noverlap"] = draw(st.none() | st.integers(0, nperseg - 1))
    named["nfft"] = draw(st.none() | st.integers(nperseg, 2 * nperseg))
    named["window"] = draw(st.sampled_from(("hann", "boxcar", ("kaiser", 5.0))))
    named["detrend"] = draw(st.sampled_from((False, "constant", "linear")))
    named["scaling"] = draw(st.sampled_from(("density", "spectrum")))
    named["return_onesided"] = draw(st.booleans())
    return n, named


@given(cuts(), st.sampled_from(MODES[:3]), st.sampled_from((0, 1, -1)), st.booleans())
@settings(max_examples=80)
def test_spectrograms_are_scipys(
    cut: tuple[int, dict[str, Any]], mode: str, axis: int, is_complex: bool
) -> None:
    n, named = cut
    x = np.random.default_rng(n).standard_normal((2, n)) + 1.0
    x = x + 1j * x[::-1] if is_complex else x
    x = np.moveaxis(x, 1, axis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = scipy.signal.spectrogram(x, 7.0, axis=axis, mode=mode, **named)
        got = rlx.spectrogram(x, 7.0, axis=axis, mode=mode, **named)
    for one, other in zip(got, want, strict=True):
        close(one, other)
    assert got.values.dtype == want[2].dtype


def test_phases_are_scipys(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 900))
    for mode in ("angle", "phase"):
        *_, want = scipy.signal.spectrogram(x, 5.0, nperseg=64, mode=mode)
        got = rlx.spectrogram(x, 5.0, nperseg=64, mode=mode).values
        # Bins of no power have any phase.
        np.testing.assert_allclose(got[:, 1:-1], want[:, 1:-1], atol=1e-7)


@given(cuts(), st.integers(0, 30), st.sampled_from(("mean", "median")))
@settings(max_examples=80)
def test_cross_spectra_are_scipys(
    cut: tuple[int, dict[str, Any]], shorter: int, average: str
) -> None:
    n, named = cut
    x = np.random.default_rng(n).standard_normal((3, 1, n)) + 1.0
    y = np.random.default_rng(n + 1).standard_normal((2, max(1, n - shorter)))
    filled = np.pad(y, ((0, 0), (0, n - y.shape[1])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, want = scipy.signal.csd(x, filled, 3.0, average=average, **named)
        _, got = rlx.csd(x, y, 3.0, average=average, **named)
        close(got, want)


@pytest.mark.parametrize("x_rows", [1, 12])
def test_all_pairs_at_once_are_each_of_them(
    x_rows: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Pairs by products of matrices, in steps, are as each pair alone."""
    monkeypatch.setattr(matrix, "SPECTRA_BYTES", 1 << 16)
    x, y = rng.standard_normal((x_rows, 1, 700)), rng.standard_normal((11, 700))
    for named in ({}, {"return_onesided": False}):
        f, want = scipy.signal.csd(x, y, 3.0, nperseg=50, **named)
        hz, got = rlx.csd(x, y, 3.0, nperseg=50, **named)
        close(got, want)
        close(hz, f)
    _, want = scipy.signal.coherence(x, y, 3.0, nperseg=50)
    close(rlx.coherence(x, y, 3.0, nperseg=50)[1], want, 1e-11)
    wide = x + 1j * x[::-1]
    _, want = scipy.signal.csd(wide, y + 0j, 3.0, nperseg=50)
    close(rlx.csd(wide, y, 3.0, nperseg=50)[1], want)


@pytest.mark.parametrize("mode", ["psd", "complex", "magnitude"])
def test_spectrograms_on_devices(
    adapter: Want, mode: Any, rng: np.random.Generator
) -> None:
    """Spectrograms on devices are float64's, with any window, overlap and detrend."""
    x = rng.standard_normal((3, 2000)).astype(np.float32)
    for named in (
        {"nperseg": 256},
        {"nperseg": 101, "noverlap": 60, "nfft": 128, "detrend": "linear"},
        {"nperseg": 64, "noverlap": 63, "window": "hann", "detrend": False},
    ):
        *_, want = scipy.signal.spectrogram(x.astype(float), 9.0, mode=mode, **named)
        got = rlx.spectrogram(x, 9.0, mode=mode, **by_name(adapter), **named)
        close(got.values, want, 5e-6)
        assert got.values.dtype in (np.float32, np.complex64)


def test_pairs_on_devices(
    adapter: Want, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Pairs on devices are SciPy's, in batches, too."""
    monkeypatch.setattr(row_calls, "BATCH_BYTES", 1 << 14)
    x, y = (rng.standard_normal((7, 1500)).astype(np.float32) for _ in range(2))
    y += x
    wide = x.astype(float), y.astype(float)
    named = {"nperseg": 64, "noverlap": 20}
    _, want = scipy.signal.csd(*wide, 9.0, **named)
    close(rlx.csd(x, y, 9.0, **by_name(adapter), **named)[1], want, 5e-6)
    _, want = scipy.signal.coherence(*wide, 9.0, **named)
    got = rlx.coherence(x, y, 9.0, **by_name(adapter), **named)[1]
    close(got, want, 5e-5)
    assert got.dtype == np.float32
    *_, want = scipy.signal.spectrogram(wide[0], 9.0, **named)
    close(rlx.spectrogram(x, 9.0, **by_name(adapter), **named).values, want, 5e-6)


def test_what_is_not_finite_costs_its_segments_alone(rng: np.random.Generator) -> None:
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
    far = x * np.float32(size)
    if size > 1:
        with pytest.raises(UsageError, match=r"too large; float32 ends at 3.4e"):
            rlx.spectrogram(far, nperseg=64)
    got = rlx.spectrogram(far, nperseg=64, mode="complex").values
    close(got / size, rlx.spectrogram(x, nperseg=64, mode="complex").values, 1e-6)
    wide = rlx.spectrogram(far, nperseg=64, precision="f64").values
    close(wide / size**2, rlx.spectrogram(x, nperseg=64).values, 1e-5)
    _, flat = rlx.coherence(far, np.roll(far, 3, axis=1), nperseg=64)
    close(flat, rlx.coherence(x, np.roll(x, 3, axis=1), nperseg=64)[1], 1e-4)


def test_a_band_is_the_part_of_the_whole(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 600))
    whole = rlx.spectrogram(x, 100.0, nperseg=64)
    part = rlx.spectrogram(x, 100.0, nperseg=64, fmin=10, fmax=20)
    inside = (whole.f >= 10) & (whole.f <= 20)
    np.testing.assert_array_equal(part.values, whole.values[:, inside])
    np.testing.assert_array_equal(part.f, whole.f[inside])
    _, c = rlx.coherence(x[:1], x[1:], 100.0, nperseg=64, fmin=10, fmax=20)
    assert c.shape == (1, inside.sum())


def test_integers_are_what_they_stand_for(rng: np.random.Generator) -> None:
    counts = rng.integers(-500, 500, (2, 600)).astype(np.int16)
    digital = rlx.Digital(counts, gain=0.25, offset=3)
    want = rlx.spectrogram(0.25 * (counts + 3.0), nperseg=64).values
    np.testing.assert_array_equal(rlx.spectrogram(digital, nperseg=64).values, want)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda x: rlx.spectrogram(x, mode="power"), UsageError, "mode is 'power'"),
        (lambda x: rlx.spectrogram(x, 0.0), UsageError, "fs is 0; it must be above 0"),
        (lambda x: rlx.spectrogram(x, noverlap=256), UsageError, "spectrogram: noverl"),
        (lambda x: rlx.spectrogram(x, nan="drop"), UsageError, "nan is 'drop'"),
        (lambda x: rlx.spectrogram(x, axis=2), ShapeError, "axis 2 is outside rank 2"),
        (lambda x: rlx.spectrogram(x, device="gpu"), DTypeError, "nothing is narrowed"),
        (
            lambda x: rlx.spectrogram(
                x.astype("f4"), device="gpu", return_onesided=False
            ),
            Unsupported,
            "two-sided spectra are computed by NumPy only",
        ),
        (lambda x: rlx.csd(x, x[:2]), ShapeError, "x and y cannot be broad"),
        (lambda x: rlx.csd(x, x, average="mode"), UsageError, "average is 'mode'"),
        (lambda x: rlx.coherence(x, x, fmin=3), UsageError, "no bin lies from 3 Hz on"),
    ],
)
def test_bad_calls_are_refused(
    call: Callable[[Any], Any],
    error: type[RlxError],
    said: str,
    rng: np.random.Generator,
) -> None:
    with pytest.raises(error, match=said):
        call(rng.standard_normal((3, 600)))


def test_beside_an_event_loop(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 600))

    async def all_of_them() -> list[Any]:
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
    for got, one in zip(in_a_loop(all_of_them()), want, strict=True):
        np.testing.assert_array_equal(got, one)


def test_it_says_what_it_is(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 600))
    said = repr(rlx.spectrogram(x, 10.0, nperseg=64))
    assert said == "TimeFrequency(2×33×10 float64, 0 … 5 Hz, 3.2 … 53.6 s)"


def test_a_device_named_from_outside_is_no_other(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    """Forced, what only NumPy computes is refused; asked for, that is told."""
    x = rng.standard_normal((3, 600))
    narrow = x.astype(np.float32)
    with pytest.raises(Unsupported, match="average='median' is computed by NumPy"):
        rlx.csd(narrow, narrow[::-1], average="median", device="vulkan")
    monkeypatch.setenv("RLX_FORCE_DEVICE", "vulkan")
    with pytest.raises(DTypeError, match="nothing is narrowed unasked"):
        rlx.spectrogram(x)
    with pytest.raises(DTypeError, match="nothing is narrowed unasked"):
        rlx.coherence(np.tile(x, (4, 1))[:, None], np.tile(x, (4, 1))[None])
    monkeypatch.delenv("RLX_FORCE_DEVICE")
    monkeypatch.setenv("RLX_DEVICE", "vulkan")
    with pytest.warns(EnvironmentWarning, match="cannot run spectrogram and is not"):
        got = rlx.spectrogram(x)
    monkeypatch.delenv("RLX_DEVICE")
    np.testing.assert_array_equal(got.values, rlx.spectrogram(x).values)
