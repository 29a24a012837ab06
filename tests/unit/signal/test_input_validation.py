"""Inputs of signal functions are accepted as they are meant, or refused with a message
that names them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import DTypeError, NotFinite, RlxError, ShapeError, UsageError
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.spectrum_peaks import PeakSearch
from rlxweb.signal.welch_blockwise_average import WelchAverage
from rlxweb.signal.welch_request import WelchRequest
from tests.run_in_threads import run_in_event_loop

X = np.random.default_rng(3).standard_normal((2, 600))
MASKED = np.ma.MaskedArray(X, np.zeros(X.shape, bool))
MASKED[0, 5] = 1e9
MASKED[0, 5] = np.ma.masked


def run_async(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return run_in_event_loop(function(*args, **options))


def stream_power(x: Any, **options: Any) -> Any:
    stream = WelchAverage(spec_from_preset("scipy", None), 2, **options)
    stream.feed(x)
    return stream.result()


CALLS: dict[str, Callable[..., Any]] = {
    "welch": rlx.welch,
    "welch_async": partial(run_async, rlx.welch_async),
    "welch_peaks": rlx.welch_peaks,
    "welch_peaks_async": partial(run_async, rlx.welch_peaks_async),
    "stream": stream_power,
}
FUNCTIONS = [name for name in CALLS if name != "stream"]


def power_array(result: Any) -> np.ndarray:
    """Return the power of any result."""
    power = getattr(result, "power", result[1] if isinstance(result, tuple) else result)
    return np.asarray(power)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (MASKED, "masked array with 1 of 1200 values masked"),
        (list(MASKED), "masked"),
        ([[1.0, 2.0], [1.0]], "row 0 has 2 values, row 1 has 1 value"),
        ("night.edf", r"'night.edf'.*open_recording"),
        (Path("night.edf"), r"'night.edf'.*open_recording"),
        ({"x": X}, "got a dict; .*'x'"),
        (None, "got None"),
        (X.astype(object), "numpy.ndarray of objects"),
        (np.array(["1", "2"]), "of text"),
        (b"\0" * 64, "got 64 bytes"),
        (X.astype("datetime64[s]"), "of dates"),
        (rlx.welch, "got a function"),
        (iter([1.0, 2.0]), r"list\(x\)"),
        (float("nan"), "single number|shape"),
    ],
)
def test_non_numeric_input_is_refused(name: str, value: Any, message: str) -> None:
    """Non-numeric input is refused with advice, in every function."""
    with pytest.raises((DTypeError, ShapeError, UsageError), match=message):
        CALLS[name](value)


def test_mne_raw_error_says_how_to_read_it() -> None:
    """The error for an MNE recording says how to read it, where it is not accepted
    itself.
    """
    info = mne.create_info(2, 100.0, verbose="error")
    raw = mne.io.RawArray(X, info, verbose="error")
    with pytest.raises(DTypeError, match=r"RawArray.*x\.get_data\(\)"):
        CALLS["stream"](raw)


@pytest.mark.parametrize("name", CALLS)
def test_numeric_containers_are_accepted(name: str) -> None:
    """Lists, a matrix, an empty mask and any order or byte order are accepted."""
    expected = power_array(CALLS[name](X))
    for samples in (
        X.tolist(),
        [row for row in X],
        X.view(np.matrix),
        np.ma.MaskedArray(X),
        np.asfortranarray(X),
        X.astype(">f8"),
        memoryview(X),
    ):
        np.testing.assert_array_equal(power_array(CALLS[name](samples)), expected)


ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    "1",
    b"1",
    -3,
    2.5,
    0,
    2**2000,
    -(2**20000),
    float("nan"),
    float("inf"),
    1j,
    [],
    [1, 2],
    {},
    (),
    object(),
    np.ones((2, 2)),
    np.array("x"),
    np.ma.masked,
    np.datetime64("now"),
    Fraction(1, 3),
    int,
)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "argument",
    "fs nperseg noverlap nfft k nsegments window detrend scaling average axis mode "
    "return_onesided prominence min_segments precision nan preset strategy device "
    "adapter fmin fmax".split(),
)
def test_odd_values_are_accepted_or_refused_with_our_errors(
    name: str, argument: str
) -> None:
    """No foreign exception escapes, and results hold finite numbers only."""
    function = rlx.welch_peaks if "peaks" in name else rlx.welch
    if argument not in function.__annotations__:
        with pytest.raises(TypeError, match=rf"{name}\(\) .*{argument}"):
            CALLS[name](X, **{argument: 1})
        return
    for value in ODD_VALUES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                result = CALLS[name](X, **{argument: value})
            except RlxError as error:
                result = str(error)
        if isinstance(result, str):
            assert len(result) < 800
        elif isinstance(result, tuple) or result.count.all():
            assert np.isfinite(power_array(result)).all(), value


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"noverlap": -100},
            "noverlap is -100; must be 0 or more and below nperseg",
        ),
        ({"fs": "256"}, "fs is '256'; it must be a number"),
        ({"fs": 0}, "fs is 0; must be above 0"),
        ({"fs": 2**2000}, "it must be finite"),
        ({"axis": 0.0}, "axis is 0.0; it must be a whole number"),
        ({"axis": True}, "axis is True; it must be a whole number"),
        ({"axis": 2}, "axis 2 does not exist in an array of rank 2"),
        ({"window": np.full(64, np.nan), "nperseg": 64}, "nan at sample 0; 64 of 64"),
        ({"window": np.r_[1, np.inf], "nperseg": 2}, "inf at sample 1; 1 of 2"),
        ({"adapter": 3}, "adapter: got 3"),
        ({"window": b"hann"}, "the window: got 4 bytes"),
        ({"nperseg": True}, "nperseg is True; it must be a whole number"),
    ],
)
def test_invalid_arguments_are_refused(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RlxError, match=message):
        CALLS[name](X, **options)


ESTIMATES: dict[str, Callable[..., Any]] = {
    "welch": lambda **options: rlx.welch(X, **options),
    "welch_peaks": lambda **options: rlx.welch_peaks(X, **options),
    "WelchStream": lambda **options: rlx.WelchStream(100.0, **options),
    "band_power": lambda **options: rlx.band_power(X, 100.0, {"a": (1, 4)}, **options),
    "spectrogram": lambda **options: rlx.spectrogram(X, **options),
    "stft": lambda **options: rlx.stft(X, **options),
    "csd": lambda **options: rlx.csd(X, X, **options),
    "export_welch": lambda **options: rlx.export_welch("page", 2, 512, **options),
}


@pytest.mark.parametrize("name", ESTIMATES)
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nperseg": 64, "noverlap": 64}, "noverlap is 64; "),
        ({"window": np.zeros((2, 2))}, r"the window has shape \(2, 2\)"),
    ],
)
def test_an_estimate_is_refused_by_the_name_that_was_called(
    name: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=f"^{name}: {problem}"):
        ESTIMATES[name](**options)


@pytest.mark.parametrize("field", PeakSearch._fields)
def test_every_field_of_a_search_is_checked_by_all_that_take_it(field: str) -> None:
    """A field that `checked` leaves out, or a stream does not have, fails here."""
    options: dict[str, Any] = {"k": 2, "mode": "peaks", field: "wrong"}
    calls: list[Callable[[], object]] = [
        lambda: PeakSearch(**options).checked("search", 9),
        lambda: rlx.welch_peaks(X, **options),
        lambda: rlx.WelchStream(100.0, **options),
        lambda: Settings(**options).peak_search(WelchRequest().spec(512)),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=f"{field} is 'wrong'; "):
            call()


@pytest.mark.parametrize("name", ["welch_peaks", "welch_peaks_async"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"prominence": "1", "mode": "peaks"},
            "prominence is '1'; it must be a number",
        ),
        ({"prominence": -1.0, "mode": "peaks"}, "prominence is -1; .* at least 0"),
        ({"prominence": np.inf, "mode": "peaks"}, "prominence is inf; .* finite"),
        ({"prominence": 1.0}, "prominence=1.0 does not apply to mode='bins'"),
        ({"k": True}, "k is True; it must be a whole number"),
        ({"k": 0}, "k is 0; must be 1 to 129, the number of bins$"),
        ({"k": 130}, "k is 130; must be 1 to 129, .*; request fewer peaks"),
        ({"min_segments": True}, "min_segments is True; it must be a whole number"),
        (
            {"nperseg": 601},
            "nperseg is 601; must be at most the length of the signal, 600 samples",
        ),
    ],
)
def test_welch_peaks_refuses_invalid_arguments(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        CALLS[name](X, **options)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unknown_keyword_error_names_the_function(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected .*'nperseq'"):
        CALLS[name](X, nperseq=64)


@pytest.mark.parametrize("call", [rlx.welch, CALLS["welch_async"]])
def test_a_short_signal_shortens_the_segments_with_a_warning(call: Any) -> None:
    """A short signal shortens segments as in SciPy, but not a window of samples."""
    for options in ({}, {"nperseg": 256}, {"window": ("kaiser", 6.0)}):
        with pytest.warns(UserWarning, match="nperseg=256 is greater than .* 100"):
            hz, power = call(X[:, :100], **options)
        same = options | {"nperseg": 100}
        _, expected = scipy.signal.welch(X[:, :100], **same)
        np.testing.assert_allclose(power, expected, rtol=1e-9, atol=1e-20)
        assert len(hz) == 51
    with pytest.raises(
        UsageError,
        match="nperseg is 256; must be at most the length of the signal, 100 samples",
    ):
        call(X[:, :100], window=np.ones(256))


@pytest.mark.parametrize("call", [rlx.welch, CALLS["welch_async"]])
def test_band_is_a_slice_of_the_spectrum(call: Any) -> None:
    """A band includes both its ends, and both halves of a two-sided spectrum."""
    hz, power = rlx.welch(X, 256.0)
    band_hz, band_power = call(X, 256.0, fmin=8, fmax=12.0)
    assert band_hz.tolist() == [8.0, 9.0, 10.0, 11.0, 12.0]
    np.testing.assert_array_equal(band_power, power[:, 8:13])
    np.testing.assert_array_equal(
        call(X.T, 256.0, fmin=8, fmax=12.0, axis=0)[1], band_power.T
    )
    np.testing.assert_array_equal(call(X, 256.0, fmin=100.5)[0], hz[101:])
    two_sided_hz, _ = call(X, 256.0, fmin=8, fmax=9, return_onesided=False)
    assert two_sided_hz.tolist() == [8.0, 9.0, -9.0, -8.0]
    expected, f = mne.time_frequency.psd_array_welch(
        X, 256.0, fmin=8, fmax=12.0, n_fft=256, verbose="error"
    )
    band_hz, band_power = call(X, 256.0, preset="mne", fmin=8, fmax=12.0)
    np.testing.assert_allclose(band_power, expected, rtol=1e-9)
    np.testing.assert_allclose(band_hz, f)
    for options, message in (
        (
            {"fmin": 9.2, "fmax": 9.8},
            "there is no bin between 9.2 and 9.8 Hz; the bins are 1",
        ),
        ({"fmin": 20, "fmax": 10}, "fmin is 20 Hz; must be at most fmax, 10 Hz"),
        ({"fmax": "12"}, "fmax is '12'; it must be a number"),
        ({"fmin": np.nan}, "fmin is nan; it must be finite"),
        ({"fmin": 500}, "end at 128 Hz"),
    ):
        with pytest.raises(UsageError, match=message):
            call(X, 256.0, **options)


@pytest.mark.parametrize("preset", ["rlx", "scipy", "mne"])
def test_preset_fills_in_missing_arguments(preset: str) -> None:
    """The caller's arguments override the preset, even where they are SciPy's
    defaults.
    """
    _, power = rlx.welch(X, 256.0, preset=preset)
    result = rlx.welch_peaks(X, 256.0, k=129, preset=preset)
    order = np.argsort(result.bins, axis=1)
    rows = np.take_along_axis(result.power, order, axis=1)
    np.testing.assert_allclose(power, rows, rtol=1e-12)
    scipy_options = {"window": "hann", "noverlap": 128, "detrend": "constant"}
    _, power = rlx.welch(X, 256.0, preset=preset, scaling="density", **scipy_options)
    np.testing.assert_allclose(power, scipy.signal.welch(X, 256.0)[1], rtol=1e-9)


def test_custom_detrend_function() -> None:
    """A custom detrend function gets segments, time last; its result is checked."""
    shapes = []

    def subtract_one(segment: np.ndarray) -> np.ndarray:
        shapes.append(segment.shape)
        segment -= 1.0  # in place, on a copy
        return segment

    original = X.copy()
    _, power = rlx.welch(X[None], detrend=subtract_one, nperseg=200)
    assert shapes == [(1, 2, 200)] * 5
    np.testing.assert_array_equal(X, original)
    np.testing.assert_allclose(
        power[0], scipy.signal.welch(X - 1, detrend=False, nperseg=200)[1], rtol=1e-9
    )
    result = rlx.welch_peaks(X, nperseg=200, k=5, detrend=subtract_one, preset="scipy")
    top = -np.sort(-power[0], axis=1)[:, :5]
    np.testing.assert_allclose(result.power, top / (1 / result.fs), rtol=1e-9)
    for bad_detrend, message in (
        (
            lambda s: s[..., 1:],
            r"it returned shape \[2, 199\] for a segment of shape \[2, 200\]",
        ),
        (lambda s: s * 1j, "returned complex128 for samples of float64"),
        (lambda s: None, "the detrend function: got None"),
        (lambda s: s * np.nan, "after the detrend function: channel 0 is nan"),
    ):
        with pytest.raises(RlxError, match=message):
            rlx.welch(X, nperseg=200, detrend=bad_detrend)
    with pytest.raises(NotFinite, match="sample 7;"):
        rlx.welch(np.where(np.arange(600) == 7, np.nan, X), detrend=subtract_one)


def test_stream_refuses_nan_like_welch() -> None:
    """The error names row and sample of the whole stream; nothing of the block is
    added.
    """
    spec = spec_from_preset("scipy", None, nperseg=64)
    stream = WelchAverage(spec, 2)
    stream.feed(X[:, :300])
    before = stream.result()
    for sample in (301, 470, 599):
        x = X[:, 300:].copy()
        x[1, sample - 300] = np.nan
        with pytest.raises(
            NotFinite, match=f"over a stream: channel 1 is nan at sample {sample};"
        ):
            stream.feed(x)
        np.testing.assert_array_equal(stream.result(), before)
    stream.feed(X[:, 300:])
    np.testing.assert_allclose(stream.result(), rlx.welch(X, nperseg=64)[1], rtol=1e-9)
    propagating = WelchAverage(spec, 2, nan="propagate")
    propagating.feed(x)
    assert np.isnan(propagating.result()).all(axis=1).tolist() == [False, False]
    propagating.feed(x)  # now the NaN lies in a segment
    assert np.isnan(propagating.result()).all(axis=1).tolist() == [False, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, 2), "spec is None; expected a WelchSpec"),
        (("scipy", 2), "spec is a str"),
        (
            (spec_from_preset("scipy", None), "2"),
            "n_rows is '2'; it must be a whole number",
        ),
        ((spec_from_preset("scipy", None), True), "n_rows is True"),
        ((spec_from_preset("scipy", None), 0), "n_rows is 0"),
    ],
)
def test_stream_refuses_invalid_estimates(
    arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        WelchAverage(*arguments)
    with pytest.raises(UsageError, match="nan is 'maybe'"):
        WelchAverage(spec_from_preset("scipy", None), 2, nan="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 3, 8192])
def test_result_repr_is_short(rows: int) -> None:
    """The repr shows shapes, the engine and the strongest of the first rows; a decision
    takes one line.
    """
    x = np.random.default_rng(0).standard_normal((rows, 300)).astype("f4")
    result = rlx.welch_peaks(x, 256.0, 64, 33, device="cpu")
    text = repr(result)
    assert text == str(result)
    assert len(text) < 500
    assert f"{rows}×33" in text
    assert result.engine in text
    assert f"{result.hz[0, 0]:g}" in text
    assert len(repr(result.decision)) < 300
    assert len(repr(result.spec)) < 300
    silent = rlx.welch_peaks(0 * x, preset="scipy", device="cpu")
    assert "0: none" in repr(silent)
    batched = rlx.welch_peaks(x.reshape(1, rows, 300), k=2, device="cpu")
    assert f"1×{rows}×2" in repr(batched)


@pytest.mark.parametrize("call", [rlx.welch, rlx.welch_peaks])
def test_strict_is_true_or_false(call: Any) -> None:
    """Text for `strict` is refused: it would mean True whatever it says."""
    with pytest.raises(UsageError, match="strict is 'no'; it must be True or False"):
        call(np.ones(300), fs=256.0, strict="no")


def test_digital_validates_its_arrays() -> None:
    """Masked values are refused in `Digital` too, and so is text for a gain."""
    counts = np.ma.masked_equal(np.arange(600, dtype=np.int16), 5)
    with pytest.raises(DTypeError, match="1 of 600 values masked"):
        rlx.Digital(counts)
    with pytest.raises(DTypeError, match="got None"):
        rlx.Digital(None)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="gain: got a str"):
        rlx.Digital(counts.data, gain="2")
    assert rlx.Digital(counts.filled(0), 0.5).gain == 0.5
