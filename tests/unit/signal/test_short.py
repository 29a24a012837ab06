"""Every signal function at lengths 0 to 4, with 0 to 2 channels and tiny segments.

The answer is that of SciPy or MNE where these have one, else an error of ours: never a
traceback of NumPy's, and on every engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.errors import RlxError
from rlxweb.gpu.port import Want
from rlxweb.host.strongest import PeaksOfPower
from rlxweb.signal.local_maxima import local_maxima
from rlxweb.signal.windows import get_window
from tests.tiers import Sampler
from tests.unit.signal.near import by_name

FS = 256.0
SHAPES = [
    *((n,) for n in range(5)),
    *product(range(3), range(5)),
    (2, 0, 3),
    (2, 3, 1),
    (),
]
SEGMENTS = (1, 2, 3, 4)
FEW = 10
"""Of fewer options all are taken for each shape and type."""
Answer = Callable[..., Any]
Shape = tuple[int, ...]


def answer_or_refusal(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """An answer, or an error of ours; any other is none of both."""
    try:
        return function(*args, **options)
    except RlxError as error:
        return error


def is_clear(error: RlxError) -> bool:
    return len(str(error)) > 20


class Case(NamedTuple):
    """A function of ours, what it is compared with, and its options.

    other     None: there is none, and an answer is only to be finite numbers
    on_device devices have it
    """

    name: str
    ours: Answer
    other: Answer | None
    options: tuple[dict[str, Any], ...]
    on_device: bool = True


def segmented(**more: Any) -> tuple[dict[str, Any], ...]:
    own: list[dict[str, Any]] = [{}, {"noverlap": 0}, {"nfft": 5}]
    own += [{"detrend": "linear"}, {"detrend": False}, {"window": "boxcar"}]
    found = [{**one, **more} for one in own]
    for nperseg in SEGMENTS:
        found += [{**one, **more, "nperseg": nperseg} for one in own]
    return tuple(found)


def _multitaper(x: Any, fs: float, **options: Any) -> Any:
    """MNE's, and where it gives none (1 sample, or as many tapers as samples) ours."""
    import mne  # not there in WebAssembly, where the rest of the file runs

    mne.set_log_level("ERROR")
    wide = np.asarray(x, np.float64)
    power, f = mne.time_frequency.psd_array_multitaper(
        wide, fs, normalization="full", **options
    )
    return f, power


def _short_time(x: Any, fs: float, nperseg: int, **options: Any) -> Any:
    window = scipy.signal.get_window("hann", nperseg)
    hop = nperseg - options.pop("noverlap", nperseg // 2)
    sft = scipy.signal.ShortTimeFFT(window, hop, fs, phase_shift=0, **options)
    n = x.shape[-1]
    return sft.f, sft.t(n), sft.stft(np.asarray(x, np.float64))


def _wavelets(x: Any, fs: float, freqs: Any, **options: Any) -> Any:
    import mne  # not there in WebAssembly, where the rest of the file runs

    rows = np.asarray(x, np.float64).reshape(1, -1, x.shape[-1])
    options.setdefault("output", "power")
    found = mne.time_frequency.tfr_array_morlet(
        rows, fs, freqs, verbose="error", **options
    )
    return found.reshape(*x.shape[:-1], *found.shape[-2:])


def _stream(x: Any, fs: float, **options: Any) -> Any:
    rows = x[None] if x.ndim == 1 else x
    n_channels = rows.shape[0] if rows.ndim else 0
    stream = rlx.WelchStream(fs, k=1, n_channels=n_channels, **options)
    stream.push(rows)
    power = stream.power
    assert stream.flat.shape == (n_channels,)
    assert repr(stream)
    assert isinstance(stream.peaks, PeaksOfPower)
    return stream.f, power.reshape(*x.shape[:-1], -1)


def _stream_of_scipy(x: Any, fs: float, nperseg: int) -> Any:
    if x.shape[-1] < nperseg or x.ndim > 2:
        return None
    return scipy.signal.welch(x, fs, nperseg=nperseg)


def _bands(x: Any, fs: float, **options: Any) -> Any:
    found = rlx.band_power(x, fs, {"all": (0.0, 85.0)}, **options)
    assert repr(found)
    assert found._repr_html_()
    return found.absolute


def _bands_of_scipy(x: Any, fs: float, **_: Any) -> Any:
    n = x.shape[-1]
    if n < 4:  # bins lie further apart than the band is wide
        return None
    f, psd = scipy.signal.welch(x, fs, nperseg=n)
    at = np.concatenate([f[f < 85], [85.0]])
    values = np.stack([np.interp(at, f, row) for row in psd.reshape(-1, len(f))])
    return np.trapezoid(values, at).reshape(*x.shape[:-1], 1)


def _peaks(x: Any, fs: float, **options: Any) -> Any:
    found = rlx.welch_peaks(x, fs, k=1, preset="scipy", window="boxcar", **options)
    assert repr(found)
    return np.where(found.count > 0, found.power[..., 0], np.nan)


def _peaks_of_scipy(x: Any, fs: float, nperseg: int, mode: str = "bins") -> Any:
    """The strongest bin; a maximum needs two neighbours, and 4 samples have 3 bins."""
    if mode == "peaks" or nperseg > x.shape[-1]:
        return None
    _, psd = scipy.signal.welch(x, fs, "boxcar", nperseg=nperseg)
    best = psd.max(axis=-1)
    square = np.mean(np.asarray(x, np.float64) ** 2, axis=-1)
    return np.where(best > 1e-8 * square, best, np.nan)


def _drawn(x: Any, fs: float, **options: Any) -> Any:
    """The tables and pictures of results; they may refuse what holds nothing."""
    for function in (rlx.welch, rlx.multitaper, rlx.spectrogram):
        found = function(x, fs, **options)
        assert repr(found)
        found._repr_html_()
    for use in (
        lambda: rlx.welch(x, fs).flat,
        lambda: rlx.welch(x, fs).to_pandas(),
        lambda: rlx.welch(x, fs).mean("channel"),
        lambda: rlx.spectrogram(x, fs).to_pandas(),
        lambda: rlx.spectrogram(x, fs).mean("channel"),
        lambda: rlx.aperiodic(rlx.welch(x, fs)),
        lambda: rlx.band_power_of(rlx.welch(x, fs), None, {"a": (0, 100)}),
    ):
        found = answer_or_refusal(use)
        assert not isinstance(found, RlxError) or is_clear(found), found
    return np.zeros(1)


def turned(x: Any) -> Any:
    return x[::-1] if x.ndim else x


PAIRS = segmented()
CASES = (
    Case("welch", rlx.welch, scipy.signal.welch, segmented()),
    Case(
        "welch, spectrum", rlx.welch, scipy.signal.welch, segmented(scaling="spectrum")
    ),
    Case(
        *("welch, two-sided", rlx.welch, scipy.signal.welch),
        segmented(return_onesided=False),
        on_device=False,
    ),
    Case(
        *("welch, median", rlx.welch, scipy.signal.welch),
        segmented(average="median"),
        on_device=False,
    ),
    Case(
        "csd",
        lambda x, fs, **own: rlx.csd(x, turned(x), fs, **own),
        lambda x, fs, **own: scipy.signal.csd(x, turned(x), fs, **own),
        PAIRS,
    ),
    Case(
        "coherence",
        lambda x, fs, **own: rlx.coherence(x, turned(x), fs, **own),
        lambda x, fs, **own: scipy.signal.coherence(x, turned(x), fs, **own),
        # A straight line leaves rounding of 1 or 2 samples, which SciPy divides.
        tuple(one for one in PAIRS if one.get("detrend") is False),
    ),
    Case(
        "spectrogram",
        lambda x, fs, **own: rlx.spectrogram(x, fs, **{"window": "hann", **own}),
        lambda x, fs, **own: scipy.signal.spectrogram(
            x, fs, **{"window": "hann", **own}
        ),
        segmented(),
    ),
    Case(
        "multitaper",
        rlx.multitaper,
        _multitaper,
        (
            *({}, {"low_bias": False}, {"remove_dc": False}, {"bandwidth": 300.0}),
            *({"fmin": 0.0, "fmax": 100.0},),
        ),
    ),
    Case("multitaper, adaptive", rlx.multitaper, None, ({"adaptive": True},), False),
    Case(
        "stft",
        rlx.stft,
        _short_time,
        tuple(
            {**one, "nperseg": n} for n in (1, 2, 3, 4) for one in ({}, {"noverlap": 0})
        ),
    ),
    Case(
        "istft",
        lambda x, fs, **own: rlx.istft(x, fs, **own),
        None,
        tuple({"nperseg": n, "window": "boxcar"} for n in (1, 2, 3, 4)),
    ),
    Case(
        "tfr_morlet",
        lambda x, fs, freqs, **own: rlx.tfr_morlet(x, fs, freqs, **own).values,
        _wavelets,
        tuple(
            {"freqs": freqs, "n_cycles": n, **own}
            for freqs in ([100.0], [10.0], [60.0, 120.0])
            for n in (7.0, 0.02)
            for own in ({}, {"decim": 2}, {"output": "complex"})
        ),
    ),
    Case(
        "WelchStream",
        _stream,
        _stream_of_scipy,
        tuple({"nperseg": n} for n in (1, 2, 3, 4)),
    ),
    Case("band_power", _bands, _bands_of_scipy, ({"nperseg": None}, {})),
    Case("band_power, tapers", _bands, None, ({"method": "multitaper"},)),
    Case(
        "welch_peaks",
        _peaks,
        _peaks_of_scipy,
        tuple(
            {"nperseg": n, "mode": m} for n in (1, 2, 3, 4) for m in ("bins", "peaks")
        ),
    ),
    Case("results", _drawn, None, ({},), on_device=False),
)


def arrays(answer: Any) -> list[Any]:
    return [np.asarray(a) for a in answer] if isinstance(answer, tuple) else [answer]


def other_answer(case: Case, x: Any, options: dict[str, Any]) -> Any:
    """The other library's answer, or None where it has no number."""
    if case.other is None or not x.size or not x.ndim:
        return None
    try:
        return case.other(x, FS, **options)
    except (ValueError, RuntimeError, IndexError, ZeroDivisionError):
        return None


def check(
    case: Case, dtype: Any, pairs: Iterable[tuple[Shape, dict[str, Any]]], **on: Any
) -> None:
    rng, judged = np.random.default_rng(11), 0
    for shape, options in pairs:
        x = np.asarray(1.0 + rng.normal(size=shape)).astype(dtype)
        where = f"{case.name}{x.shape} {x.dtype} {options} {on}"
        want = other_answer(case, x, options)
        got = answer_or_refusal(case.ours, x, FS, **options, **on)
        if isinstance(got, RlxError):
            assert is_clear(got), where
            assert want is None, f"{where}: {got}"
        elif case.other is None:
            judged += any(a.size for a in arrays(got))
            assert all(np.isfinite(a).all() for a in arrays(got)), where
        if want is None:
            continue
        judged += 1
        for a, b in zip(arrays(got), arrays(want), strict=True):
            atol = 1e-5 * max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol, err_msg=where)
    assert judged


def crossed(
    shapes: Sequence[Shape],
    options: Sequence[dict[str, Any]],
    first: int,
    is_full_tier: bool,
) -> list[tuple[Shape, dict[str, Any]]]:
    """Cross all shapes and options; of many, every other pair, from the first."""
    return [
        (shape, one)
        for row, shape in enumerate(shapes)
        for column, one in enumerate(options)
        if is_full_tier or len(options) < FEW or (row + column) % 2 == first
    ]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_short_signals(case: Case, dtype: Any, is_full_tier: bool) -> None:
    """Short signals are right: every other pair in float32, the rest in float64."""
    pairs = crossed(SHAPES, case.options, dtype is np.float32, is_full_tier)
    check(case, dtype, pairs, **({} if case.name == "results" else {"device": "cpu"}))


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.on_device], ids=lambda case: case.name
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_short_signals_on_devices(
    case: Case, adapter: Want, sampled: Sampler, is_full_tier: bool
) -> None:
    few = [(n,) for n in range(5)] + [(0, 3), (1, 1), (2, 2), (2, 3)]
    pairs = crossed(sampled(few, 5, quick=3), case.options, 0, is_full_tier)
    check(case, np.float32, pairs, **by_name(adapter))


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (np.ones((2, 1)), np.zeros((2, 1))),
        (np.ones(1), np.zeros(1)),
        (np.full((1, 1), 3.0), np.zeros((1, 1))),
    ],
)
@pytest.mark.parametrize("options", [{}, {"adaptive": True}, {"low_bias": False}])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_single_sample_has_no_power_beside_its_mean(
    x: Any, want: Any, options: dict[str, Any]
) -> None:
    f, power = rlx.multitaper(x, FS, **options)
    np.testing.assert_array_equal(f, [0.0])
    np.testing.assert_array_equal(power, want)
    # One taper of one sample: |x|² / fs, in a single bin.
    _, kept = rlx.multitaper(x, FS, remove_dc=False, **options)
    np.testing.assert_allclose(kept, x**2 / FS)


@pytest.mark.parametrize("n", range(5))
@pytest.mark.parametrize(
    "window",
    [
        *("boxcar", "hann", "hamming", "blackman", "bartlett", "flattop", "parzen"),
        *("bohman", "nuttall", "blackmanharris", "barthann", "cosine", "triang"),
        *("tukey", ("kaiser", 5.0), ("gaussian", 2.0), ("dpss", 0.45)),
    ],
    ids=str,
)
def test_windows_of_few_samples(window: Any, n: int) -> None:
    got = answer_or_refusal(get_window, window, n)
    if isinstance(got, RlxError):
        assert n == 0
        return
    want = scipy.signal.get_window(window, n)
    np.testing.assert_allclose(got, want, atol=1e-9)


@pytest.mark.parametrize("n", range(5))
@pytest.mark.parametrize("rows", range(3))
def test_maxima_of_few_bins(n: int, rows: int) -> None:
    power = np.random.default_rng(n).random((rows, n))
    found = answer_or_refusal(local_maxima, power, np.arange(float(n)), 3)
    if isinstance(found, RlxError):
        assert not n or not rows
        return
    for row, bins, count in zip(power, found.bins, found.count, strict=True):
        want = scipy.signal.find_peaks(row)[0]
        assert sorted(bins[:count]) == sorted(want)


@pytest.mark.parametrize(
    "values", [np.zeros((3, 0)), np.zeros((2, 3, 0)), np.zeros((0, 0))]
)
def test_spectra_without_a_segment_have_no_signal(values: Any) -> None:
    with pytest.raises(RlxError, match=r"no segments on axis -1|0 bins"):
        rlx.istft(values, FS, nperseg=4)


def test_messages_say_what_is_missing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(RlxError, match="band_power: the spectrum has 1 frequency"):
            rlx.band_power([1.0], FS)
        with pytest.raises(RlxError, match="band_power: the spectrum holds nothing"):
            rlx.band_power(np.zeros((2, 0)), FS)
        with pytest.raises(RlxError, match="aperiodic: the spectrum holds nothing"):
            rlx.aperiodic(rlx.welch(np.zeros((0, 4)), FS))
    with pytest.raises(
        RlxError, match="frequency 2 is 1 Hz after 2 Hz; frequencies rise"
    ):
        rlx.band_power_of([0.0, 2.0, 1.0], [1.0, 1.0, 1.0], {"a": (0, 1)})
