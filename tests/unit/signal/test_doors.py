"""What is given to a signal function is taken as it is meant, or refused by name."""

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
from rlxweb.errors import DTypeError, NotFinite, RlxError, ShapeError, UsageError
from rlxweb.signal.presets import from_preset
from rlxweb.signal.stream import WelchAverage
from tests.threads import in_a_loop

X = np.random.default_rng(3).standard_normal((2, 600))
MASKED = np.ma.MaskedArray(X, np.zeros(X.shape, bool))
MASKED[0, 5] = 1e9
MASKED[0, 5] = np.ma.masked


def awaited(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return in_a_loop(call(*args, **named))


def streamed(x: Any, **named: Any) -> Any:
    stream = WelchAverage(from_preset("scipy", None), 2, **named)
    stream.feed(x)
    return stream.result()


CALLS: dict[str, Callable[..., Any]] = {
    "welch": rlx.welch,
    "welch_async": partial(awaited, rlx.welch_async),
    "welch_peaks": rlx.welch_peaks,
    "welch_peaks_async": partial(awaited, rlx.welch_peaks_async),
    "stream": streamed,
}
FUNCTIONS = [name for name in CALLS if name != "stream"]


def numbers(found: Any) -> np.ndarray:
    """The power in any answer."""
    power = getattr(found, "power", found[1] if isinstance(found, tuple) else found)
    return np.asarray(power)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (MASKED, "masked array with 1 of 1200 values masked"),
        (list(MASKED), "masked"),
        ([[1.0, 2.0], [1.0]], "row 0 has 2 values, row 1 has 1 value"),
        ("night.edf", r"'night.edf'.*open_recording"),
        (Path("night.edf"), r"'night.edf'.*open_recording"),
        ({"x": X}, "a dict was given; .*'x'"),
        (None, "None was given"),
        (X.astype(object), "numpy.ndarray of objects"),
        (np.array(["1", "2"]), "of text"),
        (b"\0" * 64, "64 bytes were given"),
        (X.astype("datetime64[s]"), "of dates"),
        (rlx.welch, "a function was given"),
        (iter([1.0, 2.0]), r"list\(x\)"),
        (float("nan"), "single number|shape"),
    ],
)
def test_what_holds_no_numbers_is_named(name: str, given: Any, said: str) -> None:
    """Input without numbers is named with what to do, in every function."""
    with pytest.raises((DTypeError, ShapeError, UsageError), match=said):
        CALLS[name](given)


def test_a_recording_of_mne_is_told_how_to_be_read() -> None:
    """A recording of MNE is told how to be read, where it is not taken itself."""
    info = mne.create_info(2, 100.0, verbose="error")
    raw = mne.io.RawArray(X, info, verbose="error")
    with pytest.raises(DTypeError, match=r"RawArray.*x\.get_data\(\)"):
        CALLS["stream"](raw)


@pytest.mark.parametrize("name", CALLS)
def test_what_holds_numbers_is_taken(name: str) -> None:
    """Lists, a matrix, an empty mask and any order or byte order are taken."""
    wanted = numbers(CALLS[name](X))
    for given in (
        X.tolist(),
        [row for row in X],
        X.view(np.matrix),
        np.ma.MaskedArray(X),
        np.asfortranarray(X),
        X.astype(">f8"),
        memoryview(X),
    ):
        np.testing.assert_array_equal(numbers(CALLS[name](given)), wanted)


ODD: tuple[Any, ...] = (
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
def test_any_value_of_any_argument_is_taken_or_refused_by_us(
    name: str, argument: str
) -> None:
    """No traceback of another kind, and nothing that is no number in the answer."""
    known = rlx.welch_peaks if "peaks" in name else rlx.welch
    if argument not in known.__annotations__:
        with pytest.raises(TypeError, match=rf"{name}\(\) .*{argument}"):
            CALLS[name](X, **{argument: 1})
        return
    for value in ODD:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                found = CALLS[name](X, **{argument: value})
            except RlxError as error:
                found = str(error)
        if isinstance(found, str):
            assert len(found) < 800
        elif isinstance(found, tuple) or found.count.all():
            assert np.isfinite(numbers(found)).all(), value


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("named", "said"),
    [
        (
            {"noverlap": -100},
            "noverlap is -100; it must be 0 or more and below nperseg",
        ),
        ({"fs": "256"}, "fs is '256'; it must be a number"),
        ({"fs": 0}, "fs is 0; it must be above 0"),
        ({"fs": 2**2000}, "it must be finite"),
        ({"axis": 0.0}, "axis is 0.0; it must be a whole number"),
        ({"axis": True}, "axis is True; it must be a whole number"),
        ({"axis": 2}, "axis 2 is outside rank 2"),
        ({"window": np.full(64, np.nan), "nperseg": 64}, "nan at sample 0; 64 of 64"),
        ({"window": np.r_[1, np.inf], "nperseg": 2}, "inf at sample 1; 1 of 2"),
        ({"adapter": 3}, "adapter: it is 3"),
        ({"window": b"hann"}, "the window: 4 bytes were given"),
        ({"nperseg": True}, "nperseg is True; it must be a whole number"),
    ],
)
def test_what_was_taken_in_silence_is_refused(
    name: str, named: dict[str, Any], said: str
) -> None:
    with pytest.raises(RlxError, match=said):
        CALLS[name](X, **named)


@pytest.mark.parametrize("name", ["welch_peaks", "welch_peaks_async"])
@pytest.mark.parametrize(
    ("named", "said"),
    [
        (
            {"prominence": "1", "mode": "peaks"},
            "prominence is '1'; it must be a number",
        ),
        ({"prominence": -1.0, "mode": "peaks"}, "prominence is -1; .* at least 0"),
        ({"prominence": np.inf, "mode": "peaks"}, "prominence is inf; .* finite"),
        ({"prominence": 1.0}, "prominence=1.0 was given for mode='bins'"),
        ({"k": True}, "k is True; it must be a whole number"),
        ({"k": 0}, "k is 0; it must be 1 to 129"),
        ({"min_segments": True}, "min_segments is True; it must be a whole number"),
        ({"nperseg": 601}, "nperseg is 601; the signal has 600 samples"),
    ],
)
def test_peaks_refuse_what_they_cannot_mean(
    name: str, named: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        CALLS[name](X, **named)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_unknown_keyword_is_told_with_the_functions_name(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected .*'nperseq'"):
        CALLS[name](X, nperseq=64)


@pytest.mark.parametrize("call", [rlx.welch, CALLS["welch_async"]])
def test_a_short_signal_shortens_the_segments_with_a_warning(call: Any) -> None:
    """A short signal shortens segments as in SciPy, but not a window of samples."""
    for named in ({}, {"nperseg": 256}, {"window": ("kaiser", 6.0)}):
        with pytest.warns(UserWarning, match="nperseg=256 is greater than .* 100"):
            hz, power = call(X[:, :100], **named)
        same = named | {"nperseg": 100}
        _, wanted = scipy.signal.welch(X[:, :100], **same)
        np.testing.assert_allclose(power, wanted, rtol=1e-9, atol=1e-20)
        assert len(hz) == 51
    with pytest.raises(UsageError, match="nperseg is 256; the signal has 100 samples"):
        call(X[:, :100], window=np.ones(256))


@pytest.mark.parametrize("call", [rlx.welch, CALLS["welch_async"]])
def test_a_band_is_a_part_of_the_whole(call: Any) -> None:
    """A band has both its ends, and both halves of a two-sided spectrum."""
    hz, power = rlx.welch(X, 256.0)
    some, part = call(X, 256.0, fmin=8, fmax=12.0)
    assert some.tolist() == [8.0, 9.0, 10.0, 11.0, 12.0]
    np.testing.assert_array_equal(part, power[:, 8:13])
    np.testing.assert_array_equal(
        call(X.T, 256.0, fmin=8, fmax=12.0, axis=0)[1], part.T
    )
    np.testing.assert_array_equal(call(X, 256.0, fmin=100.5)[0], hz[101:])
    both, _ = call(X, 256.0, fmin=8, fmax=9, return_onesided=False)
    assert both.tolist() == [8.0, 9.0, -9.0, -8.0]
    wanted, f = mne.time_frequency.psd_array_welch(
        X, 256.0, fmin=8, fmax=12.0, n_fft=256, verbose="error"
    )
    some, part = call(X, 256.0, preset="mne", fmin=8, fmax=12.0)
    np.testing.assert_allclose(part, wanted, rtol=1e-9)
    np.testing.assert_allclose(some, f)
    for named, said in (
        (
            {"fmin": 9.2, "fmax": 9.8},
            "no bin lies between 9.2 and 9.8 Hz; the bins are 1",
        ),
        ({"fmin": 20, "fmax": 10}, "fmin is 20 Hz; fmax is 10 Hz"),
        ({"fmax": "12"}, "fmax is '12'; it must be a number"),
        ({"fmin": np.nan}, "fmin is nan; it must be finite"),
        ({"fmin": 500}, "end at 128 Hz"),
    ):
        with pytest.raises(UsageError, match=said):
            call(X, 256.0, **named)


@pytest.mark.parametrize("preset", ["rlx", "scipy", "mne"])
def test_a_preset_fills_in_what_is_left_out(preset: str) -> None:
    """What the caller gives goes before it, though it is SciPy's default."""
    _, power = rlx.welch(X, 256.0, preset=preset)
    found = rlx.welch_peaks(X, 256.0, k=129, preset=preset)
    order = np.argsort(found.bins, axis=1)
    rows = np.take_along_axis(found.power, order, axis=1)
    np.testing.assert_allclose(power, rows, rtol=1e-12)
    scipys = {"window": "hann", "noverlap": 128, "detrend": "constant"}
    _, power = rlx.welch(X, 256.0, preset=preset, scaling="density", **scipys)
    np.testing.assert_allclose(power, scipy.signal.welch(X, 256.0)[1], rtol=1e-9)


def test_a_detrend_of_ones_own() -> None:
    """A function that detrends gets segments, time last; its result is checked."""
    seen = []

    def own(segment: np.ndarray) -> np.ndarray:
        seen.append(segment.shape)
        segment -= 1.0  # in place, on a copy
        return segment

    before = X.copy()
    _, power = rlx.welch(X[None], detrend=own, nperseg=200)
    assert seen == [(1, 2, 200)] * 5
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(
        power[0], scipy.signal.welch(X - 1, detrend=False, nperseg=200)[1], rtol=1e-9
    )
    found = rlx.welch_peaks(X, nperseg=200, k=5, detrend=own, preset="scipy")
    top = -np.sort(-power[0], axis=1)[:, :5]
    np.testing.assert_allclose(found.power, top / (1 / found.fs), rtol=1e-9)
    for broken, said in (
        (lambda s: s[..., 1:], r"it made \[2, 199\] of \[2, 200\]"),
        (lambda s: s * 1j, "made complex128 of float64"),
        (lambda s: None, "the detrend function: None was given"),
        (lambda s: s * np.nan, "after the detrend function: channel 0 is nan"),
    ):
        with pytest.raises(RlxError, match=said):
            rlx.welch(X, nperseg=200, detrend=broken)
    with pytest.raises(NotFinite, match="sample 7;"):
        rlx.welch(np.where(np.arange(600) == 7, np.nan, X), detrend=own)


def test_a_stream_refuses_what_welch_refuses() -> None:
    """NaN by row and sample of the whole stream; nothing of the block is taken."""
    spec = from_preset("scipy", None, nperseg=64)
    stream = WelchAverage(spec, 2)
    stream.feed(X[:, :300])
    before = stream.result()
    for at in (301, 470, 599):
        x = X[:, 300:].copy()
        x[1, at - 300] = np.nan
        with pytest.raises(
            NotFinite, match=f"over a stream: channel 1 is nan at sample {at};"
        ):
            stream.feed(x)
        np.testing.assert_array_equal(stream.result(), before)
    stream.feed(X[:, 300:])
    np.testing.assert_allclose(stream.result(), rlx.welch(X, nperseg=64)[1], rtol=1e-9)
    passing = WelchAverage(spec, 2, nan="propagate")
    passing.feed(x)
    assert np.isnan(passing.result()).all(axis=1).tolist() == [False, False]
    passing.feed(x)  # now the NaN lies in a segment
    assert np.isnan(passing.result()).all(axis=1).tolist() == [False, True]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((None, 2), "None was given for the estimate; a WelchSpec is wanted"),
        (("scipy", 2), "a str was given for the estimate"),
        ((from_preset("scipy", None), "2"), "n_rows is '2'; it must be a whole number"),
        ((from_preset("scipy", None), True), "n_rows is True"),
        ((from_preset("scipy", None), 0), "0 channels"),
    ],
)
def test_a_stream_is_made_of_an_estimate(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        WelchAverage(*given)
    with pytest.raises(UsageError, match="nan is 'maybe'"):
        WelchAverage(from_preset("scipy", None), 2, nan="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 3, 8192])
def test_a_result_is_shown_in_a_few_lines(rows: int) -> None:
    """Shapes, the engine, the strongest of the first rows; a decision in one line."""
    x = np.random.default_rng(0).standard_normal((rows, 300)).astype("f4")
    found = rlx.welch_peaks(x, 256.0, 64, 33, device="cpu")
    shown = repr(found)
    assert shown == str(found)
    assert len(shown) < 500
    assert f"{rows}×33" in shown
    assert found.engine in shown
    assert f"{found.hz[0, 0]:g}" in shown
    assert len(repr(found.decision)) < 300
    assert len(repr(found.spec)) < 300
    dead = rlx.welch_peaks(0 * x, preset="scipy", device="cpu")
    assert "0: none" in repr(dead)
    many = rlx.welch_peaks(x.reshape(1, rows, 300), k=2, device="cpu")
    assert f"1×{rows}×2" in repr(many)


@pytest.mark.parametrize("call", [rlx.welch, rlx.welch_peaks])
def test_strict_is_true_or_false(call: Any) -> None:
    """Text would mean True whatever it says."""
    with pytest.raises(UsageError, match="strict is 'no'; it must be True or False"):
        call(np.ones(300), fs=256.0, strict="no")


def test_integers_with_a_gain_are_read_like_all_arrays() -> None:
    """A mask is not lost with them either, nor is text a gain."""
    counts = np.ma.masked_equal(np.arange(600, dtype=np.int16), 5)
    with pytest.raises(DTypeError, match="1 of 600 values masked"):
        rlx.Digital(counts)
    with pytest.raises(DTypeError, match="None was given"):
        rlx.Digital(None)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="gain: a str was given"):
        rlx.Digital(counts.data, gain="2")
    assert rlx.Digital(counts.filled(0), 0.5).gain == 0.5
