"""`rlxweb.welch` in place of scipy.signal.welch: SciPy's own tests, and more."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.signal.tests import test_spectral as scipys

import rlxweb as rlx

TESTS = sorted(n for n in dir(scipys.TestWelch) if n.startswith("test_"))


def test_all_of_scipys_tests_are_run() -> None:
    """32 in SciPy 1.14; a class that moved would leave nothing to fail."""
    assert len(TESTS) >= 32


@pytest.mark.parametrize("name", TESTS)
def test_scipys_own_test(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy's TestWelch with our function in it."""
    called = []

    def recording_welch(*args: Any, **options: Any) -> Any:
        called.append(name)
        return rlx.welch(*args, **options)

    monkeypatch.setattr(scipys, "welch", recording_welch)
    getattr(scipys.TestWelch(), name)()
    assert called


def remove_line(segment: np.ndarray) -> np.ndarray:
    return scipy.signal.detrend(segment, type="linear")


def remove_half_the_mean(segment: np.ndarray) -> np.ndarray:
    return segment - 0.5 * segment.mean(axis=-1, keepdims=True)


DTYPES = (
    *(f"int{n}" for n in (8, 16, 32, 64)),
    *(f"uint{n}" for n in (8, 16, 32, 64)),
    *("bool", "float16", "float32", "float64", ">f4", "complex64", "complex128"),
)
WINDOWS = ("hann", "boxcar", "hamming", ("kaiser", 6.0), ("tukey", 0.3), "array")


@st.composite
def welch_calls(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """Draw a signal, and arguments that SciPy takes for it."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    n_samples = draw(st.integers(2, 300))
    shape = tuple(
        n_samples if i == axis % len(shape) else n for i, n in enumerate(shape)
    )
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    x = rng.standard_normal(shape) * 50
    x = (x + 1j * rng.standard_normal(shape)) if dtype.kind == "c" else x
    x = np.abs(x).astype(dtype) if dtype.kind in "ub" else x.astype(dtype)
    options: dict[str, Any] = {"axis": axis}
    window = draw(st.sampled_from(WINDOWS))
    nperseg = draw(st.none() | st.integers(2, 400))
    if window == "array":
        length = draw(st.integers(2, n_samples))
        window, nperseg = scipy.signal.get_window("nuttall", length), None
        segment_length = length
    else:
        options["nperseg"] = nperseg
        segment_length = min(n_samples, nperseg or 256)
    options["window"] = (
        draw(st.sampled_from([window, list(window)]))
        if (isinstance(window, np.ndarray))
        else window
    )
    options["noverlap"] = draw(st.none() | st.integers(0, segment_length - 1))
    options["nfft"] = draw(st.none() | st.integers(segment_length, segment_length + 70))
    options["detrend"] = draw(
        st.sampled_from(
            [
                "constant",
                "linear",
                "l",
                "c",
                False,
                None,
                remove_line,
                remove_half_the_mean,
            ]
        )
    )
    options["return_onesided"] = draw(st.booleans())
    options["scaling"] = draw(st.sampled_from(["density", "spectrum"]))
    options["average"] = draw(st.sampled_from(["mean", "median"]))
    options["fs"] = draw(st.sampled_from([1, 1.0, 256, 0.01, np.float64(44100)]))
    return x, options


def call_without_warnings(
    function: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return function(*args, **options)


@pytest.mark.skipif(
    np.lib.NumpyVersion(scipy.__version__) < "1.16.0",
    reason="SciPy before 1.16 gives a caller's detrend another axis than the last",
)
@settings(max_examples=250, deadline=None)
@given(call=welch_calls())
def test_every_argument_acts_as_in_scipy(
    call: tuple[np.ndarray, dict[str, Any]],
) -> None:
    """Frequencies, shape, dtype and values agree for anything that SciPy accepts."""
    x, options = call
    hz, power = call_without_warnings(scipy.signal.welch, x, **options)
    our_hz, our_power = call_without_warnings(rlx.welch, x, device="cpu", **options)
    np.testing.assert_allclose(our_hz, hz, rtol=1e-12)
    assert our_power.shape == power.shape
    if x.dtype.kind in "fc":  # small integers keep their digits here
        assert our_power.dtype == power.dtype
    # SciPy removes a mean in the type of the samples, which for float16 is 3 digits.
    wide_x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    _, power = call_without_warnings(scipy.signal.welch, wide_x, **options)
    energy = float((np.abs(wide_x) ** 2).mean()) * max(1.0, 1 / options["fs"])
    # A function of the caller's works in the samples' own type. A rounded sample moves
    # |X| by so much, and |X|² in proportion to |X|.
    epsilon = 6e-8 if our_power.dtype == np.float32 else 1e-15
    rounding_power = (30 * epsilon) ** 2 * energy
    assert (
        abs(our_power - power)
        <= 4 * epsilon * power + 2 * np.sqrt(power * rounding_power) + rounding_power
    ).all()
