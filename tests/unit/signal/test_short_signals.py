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
from rlxweb.core.errors import RlxError
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ops.welch.cpu.strongest_bins import PeaksOfPower
from rlxweb.signal.local_maxima import local_maxima
from rlxweb.signal.windows import get_window
from tests.suite_tiers import Sampler
from tests.unit.signal.device_comparison import adapter_arguments

FS = 256.0
SHAPES = [
    *((n,) for n in range(5)),
    *product(range(3), range(5)),
    (2, 0, 3),
    (2, 3, 1),
    (),
]
SEGMENTS = (1, 2, 3, 4)
MIN_OPTIONS_TO_THIN = 10
"""Number of options from which only every other pair of shape and option is tested."""
SignalFunction = Callable[..., Any]
Shape = tuple[int, ...]


def result_or_error(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return a result, or an error of ours; any other error is raised."""
    try:
        return function(*args, **options)
    except RlxError as error:
        return error


def has_clear_message(error: RlxError) -> bool:
    return len(str(error)) > 20


class ShortSignalCase(NamedTuple):
    """Function of ours, its reference, and its options.

    reference  None: there is none, and an answer is only to be finite numbers
    on_device devices have it
    """

    name: str
    function: SignalFunction
    reference: SignalFunction | None
    options: tuple[dict[str, Any], ...]
    on_device: bool = True


def segment_options(**extra: Any) -> tuple[dict[str, Any], ...]:
    variants: list[dict[str, Any]] = [{}, {"noverlap": 0}, {"nfft": 5}]
    variants += [{"detrend": "linear"}, {"detrend": False}, {"window": "boxcar"}]
    options = [{**variant, **extra} for variant in variants]
    for nperseg in SEGMENTS:
        options += [{**variant, **extra, "nperseg": nperseg} for variant in variants]
    return tuple(options)


def _mne_multitaper(x: Any, fs: float, **options: Any) -> Any:
    """Return MNE's multitaper spectrum; MNE has none for 1 sample, or for as many
    tapers as samples.
    """
    import mne  # not there in WebAssembly, where the rest of the file runs

    mne.set_log_level("ERROR")
    samples = np.asarray(x, np.float64)
    power, f = mne.time_frequency.psd_array_multitaper(
        samples, fs, normalization="full", **options
    )
    return f, power


def _scipy_stft(x: Any, fs: float, nperseg: int, **options: Any) -> Any:
    window = scipy.signal.get_window("hann", nperseg)
    hop = nperseg - options.pop("noverlap", nperseg // 2)
    sft = scipy.signal.ShortTimeFFT(window, hop, fs, phase_shift=0, **options)
    n = x.shape[-1]
    return sft.f, sft.t(n), sft.stft(np.asarray(x, np.float64))


def _mne_morlet(x: Any, fs: float, freqs: Any, **options: Any) -> Any:
    import mne  # not there in WebAssembly, where the rest of the file runs

    rows = np.asarray(x, np.float64).reshape(1, -1, x.shape[-1])
    options.setdefault("output", "power")
    transform = mne.time_frequency.tfr_array_morlet(
        rows, fs, freqs, verbose="error", **options
    )
    return transform.reshape(*x.shape[:-1], *transform.shape[-2:])


def _stream_power(x: Any, fs: float, **options: Any) -> Any:
    rows = x[None] if x.ndim == 1 else x
    n_channels = rows.shape[0] if rows.ndim else 0
    stream = rlx.WelchStream(fs, k=1, n_channels=n_channels, **options)
    stream.push(rows)
    power = stream.power
    assert stream.flat.shape == (n_channels,)
    assert repr(stream)
    assert isinstance(stream.peaks, PeaksOfPower)
    return stream.f, power.reshape(*x.shape[:-1], -1)


def _scipy_stream_power(x: Any, fs: float, nperseg: int) -> Any:
    if x.shape[-1] < nperseg or x.ndim > 2:
        return None
    return scipy.signal.welch(x, fs, nperseg=nperseg)


def _band_power(x: Any, fs: float, **options: Any) -> Any:
    bands = rlx.band_power(x, fs, {"all": (0.0, 85.0)}, **options)
    assert repr(bands)
    assert bands._repr_html_()
    return bands.absolute


def _scipy_band_power(x: Any, fs: float, **_: Any) -> Any:
    n = x.shape[-1]
    if n < 4:  # bins lie further apart than the band is wide
        return None
    f, psd = scipy.signal.welch(x, fs, nperseg=n)
    edges = np.concatenate([f[f < 85], [85.0]])
    values = np.stack([np.interp(edges, f, row) for row in psd.reshape(-1, len(f))])
    return np.trapezoid(values, edges).reshape(*x.shape[:-1], 1)


def _strongest_power(x: Any, fs: float, **options: Any) -> Any:
    peaks = rlx.welch_peaks(x, fs, k=1, preset="scipy", window="boxcar", **options)
    assert repr(peaks)
    return np.where(peaks.count > 0, peaks.power[..., 0], np.nan)


def _scipy_strongest_power(x: Any, fs: float, nperseg: int, mode: str = "bins") -> Any:
    """Return the power of the strongest bin; a maximum needs two neighbours, and 4
    samples have 3 bins.
    """
    if mode == "peaks" or nperseg > x.shape[-1]:
        return None
    _, psd = scipy.signal.welch(x, fs, "boxcar", nperseg=nperseg)
    best = psd.max(axis=-1)
    mean_square = np.mean(np.asarray(x, np.float64) ** 2, axis=-1)
    return np.where(best > 1e-8 * mean_square, best, np.nan)


def _use_results(x: Any, fs: float, **options: Any) -> Any:
    """Use the tables and plots of results; they may refuse empty ones."""
    for function in (rlx.welch, rlx.multitaper, rlx.spectrogram):
        result = function(x, fs, **options)
        assert repr(result)
        result._repr_html_()
    for use in (
        lambda: rlx.welch(x, fs).flat,
        lambda: rlx.welch(x, fs).to_pandas(),
        lambda: rlx.welch(x, fs).mean("channel"),
        lambda: rlx.spectrogram(x, fs).to_pandas(),
        lambda: rlx.spectrogram(x, fs).mean("channel"),
        lambda: rlx.aperiodic(rlx.welch(x, fs)),
        lambda: rlx.band_power_of(rlx.welch(x, fs), None, {"a": (0, 100)}),
    ):
        result = result_or_error(use)
        assert not isinstance(result, RlxError) or has_clear_message(result), result
    return np.zeros(1)


def reverse_rows(x: Any) -> Any:
    return x[::-1] if x.ndim else x


PAIR_OPTIONS = segment_options()
CASES = (
    ShortSignalCase("welch", rlx.welch, scipy.signal.welch, segment_options()),
    ShortSignalCase(
        "welch, spectrum",
        rlx.welch,
        scipy.signal.welch,
        segment_options(scaling="spectrum"),
    ),
    ShortSignalCase(
        *("welch, two-sided", rlx.welch, scipy.signal.welch),
        segment_options(return_onesided=False),
        on_device=False,
    ),
    ShortSignalCase(
        *("welch, median", rlx.welch, scipy.signal.welch),
        segment_options(average="median"),
        on_device=False,
    ),
    ShortSignalCase(
        "csd",
        lambda x, fs, **own: rlx.csd(x, reverse_rows(x), fs, **own),
        lambda x, fs, **own: scipy.signal.csd(x, reverse_rows(x), fs, **own),
        PAIR_OPTIONS,
    ),
    ShortSignalCase(
        "coherence",
        lambda x, fs, **own: rlx.coherence(x, reverse_rows(x), fs, **own),
        lambda x, fs, **own: scipy.signal.coherence(x, reverse_rows(x), fs, **own),
        # A straight line leaves rounding of 1 or 2 samples, which SciPy divides.
        tuple(one for one in PAIR_OPTIONS if one.get("detrend") is False),
    ),
    ShortSignalCase(
        "spectrogram",
        lambda x, fs, **own: rlx.spectrogram(x, fs, **{"window": "hann", **own}),
        lambda x, fs, **own: scipy.signal.spectrogram(
            x, fs, **{"window": "hann", **own}
        ),
        segment_options(),
    ),
    ShortSignalCase(
        "multitaper",
        rlx.multitaper,
        _mne_multitaper,
        (
            *({}, {"low_bias": False}, {"remove_dc": False}, {"bandwidth": 300.0}),
            *({"fmin": 0.0, "fmax": 100.0},),
        ),
    ),
    ShortSignalCase(
        "multitaper, adaptive", rlx.multitaper, None, ({"adaptive": True},), False
    ),
    ShortSignalCase(
        "stft",
        rlx.stft,
        _scipy_stft,
        tuple(
            {**one, "nperseg": n} for n in (1, 2, 3, 4) for one in ({}, {"noverlap": 0})
        ),
    ),
    ShortSignalCase(
        "istft",
        lambda x, fs, **own: rlx.istft(x, fs, **own),
        None,
        tuple({"nperseg": n, "window": "boxcar"} for n in (1, 2, 3, 4)),
    ),
    ShortSignalCase(
        "tfr_morlet",
        lambda x, fs, freqs, **own: rlx.tfr_morlet(x, fs, freqs, **own).values,
        _mne_morlet,
        tuple(
            {"freqs": freqs, "n_cycles": n, **own}
            for freqs in ([100.0], [10.0], [60.0, 120.0])
            for n in (7.0, 0.02)
            for own in ({}, {"decim": 2}, {"output": "complex"})
        ),
    ),
    ShortSignalCase(
        "WelchStream",
        _stream_power,
        _scipy_stream_power,
        tuple({"nperseg": n} for n in (1, 2, 3, 4)),
    ),
    ShortSignalCase(
        "band_power", _band_power, _scipy_band_power, ({"nperseg": None}, {})
    ),
    ShortSignalCase(
        "band_power, tapers", _band_power, None, ({"method": "multitaper"},)
    ),
    ShortSignalCase(
        "welch_peaks",
        _strongest_power,
        _scipy_strongest_power,
        tuple(
            {"nperseg": n, "mode": m} for n in (1, 2, 3, 4) for m in ("bins", "peaks")
        ),
    ),
    ShortSignalCase("results", _use_results, None, ({},), on_device=False),
)


def as_arrays(answer: Any) -> list[Any]:
    return [np.asarray(a) for a in answer] if isinstance(answer, tuple) else [answer]


def reference_result(case: ShortSignalCase, x: Any, options: dict[str, Any]) -> Any:
    """Return the reference's result, or None where it has no number."""
    if case.reference is None or not x.size or not x.ndim:
        return None
    try:
        return case.reference(x, FS, **options)
    except (ValueError, RuntimeError, IndexError, ZeroDivisionError):
        return None


def check_case(
    case: ShortSignalCase,
    dtype: Any,
    pairs: Iterable[tuple[Shape, dict[str, Any]]],
    **placement: Any,
) -> None:
    rng, n_checked = np.random.default_rng(11), 0
    for shape, options in pairs:
        x = np.asarray(1.0 + rng.normal(size=shape)).astype(dtype)
        context = f"{case.name}{x.shape} {x.dtype} {options} {placement}"
        want = reference_result(case, x, options)
        got = result_or_error(case.function, x, FS, **options, **placement)
        if isinstance(got, RlxError):
            assert has_clear_message(got), context
            assert want is None, f"{context}: {got}"
        elif case.reference is None:
            n_checked += any(a.size for a in as_arrays(got))
            assert all(np.isfinite(a).all() for a in as_arrays(got)), context
        if want is None:
            continue
        n_checked += 1
        for a, b in zip(as_arrays(got), as_arrays(want), strict=True):
            atol = 1e-5 * max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol, err_msg=context)
    assert n_checked


def cross_shapes_and_options(
    shapes: Sequence[Shape],
    options: Sequence[dict[str, Any]],
    parity: int,
    is_full_tier: bool,
) -> list[tuple[Shape, dict[str, Any]]]:
    """Cross all shapes and options; of many, take every other pair, from the first."""
    return [
        (shape, option)
        for row, shape in enumerate(shapes)
        for column, option in enumerate(options)
        if is_full_tier
        or len(options) < MIN_OPTIONS_TO_THIN
        or (row + column) % 2 == parity
    ]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_short_signals(case: ShortSignalCase, dtype: Any, is_full_tier: bool) -> None:
    """Short signals are right: every other pair in float32, the rest in float64."""
    pairs = cross_shapes_and_options(
        SHAPES, case.options, dtype is np.float32, is_full_tier
    )
    check_case(
        case, dtype, pairs, **({} if case.name == "results" else {"device": "cpu"})
    )


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.on_device], ids=lambda case: case.name
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_short_signals_on_devices(
    case: ShortSignalCase, adapter: AdapterRequest, sampled: Sampler, is_full_tier: bool
) -> None:
    shapes = [(n,) for n in range(5)] + [(0, 3), (1, 1), (2, 2), (2, 3)]
    pairs = cross_shapes_and_options(
        sampled(shapes, 5, quick=3), case.options, 0, is_full_tier
    )
    check_case(case, np.float32, pairs, **adapter_arguments(adapter))


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
def test_single_sample_has_no_power_beyond_its_mean(
    x: Any, want: Any, options: dict[str, Any]
) -> None:
    f, power = rlx.multitaper(x, FS, **options)
    np.testing.assert_array_equal(f, [0.0])
    np.testing.assert_array_equal(power, want)
    # One taper of one sample: |x|² / fs, in a single bin.
    _, power_with_mean = rlx.multitaper(x, FS, remove_dc=False, **options)
    np.testing.assert_allclose(power_with_mean, x**2 / FS)


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
    got = result_or_error(get_window, window, n)
    if isinstance(got, RlxError):
        assert n == 0
        return
    want = scipy.signal.get_window(window, n)
    np.testing.assert_allclose(got, want, atol=1e-9)


@pytest.mark.parametrize("n", range(5))
@pytest.mark.parametrize("rows", range(3))
def test_maxima_of_few_bins(n: int, rows: int) -> None:
    power = np.random.default_rng(n).random((rows, n))
    peaks = result_or_error(local_maxima, power, np.arange(float(n)), 3)
    if isinstance(peaks, RlxError):
        assert not n or not rows
        return
    for row, bins, count in zip(power, peaks.bins, peaks.count, strict=True):
        want = scipy.signal.find_peaks(row)[0]
        assert sorted(bins[:count]) == sorted(want)


@pytest.mark.parametrize(
    "values", [np.zeros((3, 0)), np.zeros((2, 3, 0)), np.zeros((0, 0))]
)
def test_spectra_without_a_segment_have_no_signal(values: Any) -> None:
    with pytest.raises(RlxError, match=r"no segments on axis -1|0 bins"):
        rlx.istft(values, FS, nperseg=4)


def test_errors_name_the_missing_part() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(RlxError, match="band_power: the spectrum has 1 frequency"):
            rlx.band_power([1.0], FS)
        with pytest.raises(RlxError, match="band_power: the spectrum is empty"):
            rlx.band_power(np.zeros((2, 0)), FS)
        with pytest.raises(RlxError, match="aperiodic: the spectrum is empty"):
            rlx.aperiodic(rlx.welch(np.zeros((0, 4)), FS))
    with pytest.raises(
        RlxError,
        match=r"f\[1\] is 2 Hz, but f\[2\] is 1 Hz; frequencies must increase",
    ):
        rlx.band_power_of([0.0, 2.0, 1.0], [1.0, 1.0, 1.0], {"a": (0, 1)})
