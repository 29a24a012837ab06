"""Arguments of a Welch request: defaults and refusals are those of scipy.signal.welch,
and a little stricter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import DTypeError, UsageError
from rlxweb.ops.welch.parameters import segment_count
from rlxweb.ops.welch.spec import sample_dtype
from rlxweb.signal.welch_request import WelchRequest
from tests.unit.ops.welch_spec_factory import resolve_spec


def test_defaults_are_scipys() -> None:
    """Defaults are SciPy's: 256 samples, half overlap, mean removed, one-sided."""
    spec = resolve_spec(1000)
    assert (spec.nperseg, spec.hop, spec.nfft, spec.n_segments) == (256, 128, 256, 6)
    assert (spec.detrend, spec.one_sided, spec.average) == ("constant", True, "mean")
    assert spec.n_freqs == 129
    assert spec.dtype == "float64"


def test_a_spec_is_a_value() -> None:
    """Equal arguments give equal specs, whichever way the window was written."""
    by_name = resolve_spec(1000, window="hamming", nperseg=64)
    by_array = resolve_spec(1000, window=by_name.window_array)
    by_list = resolve_spec(1000, window=list(by_name.window_array), nperseg=64.0)
    assert by_name == by_array == by_list
    assert len({by_name, by_array, by_list}) == 1
    assert by_name != resolve_spec(1000, window="hann", nperseg=64)


def test_the_default_segment_shrinks_to_a_short_row() -> None:
    """A row of 100 samples is one segment of 100, as in SciPy."""
    spec = resolve_spec(100)
    assert (spec.nperseg, spec.hop, spec.n_segments) == (100, 50, 1)


def test_a_stream_has_no_segment_count() -> None:
    """A stream without a length has an open count of segments, or the one asked for."""
    assert resolve_spec(None).n_segments == 0
    assert resolve_spec(None, nsegments=3).n_segments == 3
    assert resolve_spec(None).segments_per_row(1000) == 6


@pytest.mark.parametrize("n_samples", [8, 9, 15, 16, 17, 100])
@pytest.mark.parametrize("hop", [1, 3, 4, 8, 11])
def test_the_counting_rule(n_samples: int, hop: int) -> None:
    """1 + (T - nperseg) // hop is the number of starts at which a segment fits."""
    fitting = [s for s in range(0, n_samples, hop) if s + 8 <= n_samples]
    assert segment_count(n_samples, 8, hop) == len(fitting)
    if hop <= 8:
        spec = resolve_spec(n_samples, nperseg=8, noverlap=8 - hop)
        assert spec.n_segments == len(fitting)


@pytest.mark.parametrize(
    ("n_samples", "arguments", "message"),
    [
        (
            200,
            {"nperseg": 256},
            "nperseg is 256; must be at most the length of the signal, 200 samples",
        ),
        (0, {}, "the signal has 0 samples; at least 1 is required"),
        (200, {"nperseg": 0}, "nperseg is 0; must be at least 1"),
        (200, {"nperseg": 12.5}, "nperseg is 12.5; it must be a whole number"),
        (200, {"nperseg": "12"}, "nperseg is '12'; it must be a whole number"),
        (200, {"nperseg": 64, "noverlap": 64}, "0 or more and below nperseg, 64"),
        (200, {"nperseg": 64, "nfft": 63}, "nfft is 63; must be at least nperseg"),
        (200, {"nperseg": 64, "nsegments": 6}, "nsegments is 6; 200 samples contain 5"),
        (200, {"nsegments": 0}, "nsegments is 0; must be at least 1"),
        (
            200,
            {"nperseg": 64, "window": np.ones(63)},
            "must be the length of the window, 63 samples",
        ),
        (
            60,
            {"window": np.ones(64)},
            "nperseg is 64; must be at most the length of the signal, 60 samples",
        ),
        (200, {"window": np.ones((2, 2))}, "a 1-D array"),
        (200, {"window": 8.6}, "must be a name, a tuple"),
        (200, {"window": np.ones(8) * 1j}, "real number"),
        (200, {"window": np.zeros(8)}, "the window is 0 at all 8 of its samples; "),
        (200, {"window": np.zeros(8), "scaling": "none"}, "the window is 0 at all 8"),
        (200, {"nperseg": 2, "preset": "rlx"}, "the window is 0 at all 2 of its"),
        (200, {"window": np.full(8, 1e-200)}, "energy is 0; "),
        (200, {"window": [1, -1], "scaling": "spectrum"}, "sum is 0; "),
        (200, {"fs": 0}, "fs is 0; must be above 0"),
        (200, {"fs": float("nan")}, "fs is nan"),
        (200, {"fs": "fast"}, "fs is 'fast'; it must be a number"),
        (200, {"scaling": "loud"}, "it must be 'density' or 'spectrum'"),
        (200, {"average": "mode"}, "it must be 'mean' or 'median'"),
        (200, {"detrend": "cubic"}, "'constant', 'linear', 'none', None or False"),
        (200, {"detrend": np.mean}, "use rlxweb.welch, which accepts a function"),
        (200, {"noverlap": -100}, "noverlap is -100; must be 0 or more"),
        (200, {"nperseg": True}, "nperseg is True; it must be a whole number"),
        (200, {"nfft": [256]}, r"nfft is \[256\]; it must be a whole number"),
        (200, {"fs": "256"}, "fs is '256'; it must be a number"),
        (200, {"fs": True}, "fs is True; it must be a number"),
        (200, {"fs": 2**2000}, "fs is 11481.*…; it must be finite"),
        (
            200,
            {"fs": 2**20000},
            "fs is an int with too many digits to print; it must be finite",
        ),
        (200, {"fs": -1}, "fs is -1; must be above 0"),
        (200, {"fs": np.array([1.0])}, "it must be a number"),
        (200, {"fs": 1j}, "fs is 1j; it must be a number"),
        (200, {"fs": np.complex64(2 + 1j)}, "it must be a number"),
        (200, {"fs": np.ma.masked}, "it must be a number"),
        (200, {"nperseg": np.ma.array(64, mask=True)}, "it must be a whole number"),
        (200, {"fs": 1e-320}, "density"),
        (200, {"window": np.full(64, np.nan)}, "is nan at sample 0; 64 of 64 samples"),
        (200, {"window": [1, 2, np.inf]}, "is inf at sample 2; 1 of 3 samples"),
        (200, {"window": ("kaiser", np.nan)}, "the window is nan"),
        (200, {"window": ("kaiser", 1e9)}, "the window is nan"),
        (200, {"window": ("gaussian", 0)}, "not finite"),
        (
            200,
            {"window": ("general_cosine", [[1, 2]])},
            r"a window parameter is \[\[1, 2\]\]",
        ),
        (200, {"preset": ["rlx"]}, "preset is .*it must be 'rlx' or 'scipy'"),
        (200, {"average": np.ones(2)}, "average is array"),
        (200, {"return_onesided": "no"}, "it must be True or False"),
        (200, {"detrend": True}, "detrend=True is not supported"),
    ],
)
def test_invalid_arguments_are_refused(
    n_samples: int, arguments: dict[str, object], message: str
) -> None:
    """Errors give the value and the rule with its number."""
    with pytest.raises(UsageError, match=message):
        resolve_spec(n_samples, **arguments)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [({}, "got a dict"), (np.ma.masked, "1 of 1 values masked")],
)
def test_a_parameter_of_a_window_is_a_number(parameter: object, message: str) -> None:
    with pytest.raises(DTypeError, match=f"a parameter of the window: .*{message}"):
        WelchRequest(window=("kaiser", parameter)).spec(512)
    array = WelchRequest(window=("kaiser", np.array(8.6))).spec(512)
    assert array == WelchRequest(window=("kaiser", 8.6)).spec(512)


@pytest.mark.parametrize("call", [rlx.welch, rlx.welch_peaks, rlx.WelchStream])
def test_two_samples_under_the_symmetric_hann_window_are_refused(call: Any) -> None:
    """Its two samples are 0: every signal would be flat under it."""
    options = {"k": 1} if call is not rlx.welch else {}
    argument = 128.0 if call is rlx.WelchStream else np.ones(16)
    message = rf"^{call.__name__}: the window is 0 at all 2 of its samples"
    with pytest.raises(UsageError, match=message):
        call(argument, nperseg=2, preset="rlx", **options)


def test_a_row_shorter_than_the_spec_is_refused() -> None:
    """A spec resolved for a long row does not silently average fewer segments."""
    with pytest.raises(
        UsageError, match="6 segments need 896 samples; the signal has 8"
    ):
        resolve_spec(1000).segments_per_row(800)


@pytest.mark.parametrize(
    ("dtype", "computed_dtype"),
    [
        ("bool", "int24"),
        ("int8", "int24"),
        (">u2", "int24"),
        ("int24", "int24"),
        ("int32", "float64"),
        ("uint64", "float64"),
        ("float16", "float32"),
        (">f4", "float32"),
        ("float64", "float64"),
        ("complex64", "complex64"),
        (">c16", "complex128"),
    ],
)
def test_sample_dtypes(dtype: str, computed_dtype: str) -> None:
    """Single precision stays single and short integers stay integers; all else real is
    double.
    """
    assert sample_dtype(dtype) == computed_dtype


@pytest.mark.parametrize("dtype", ["object", "U3", "datetime64[s]"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    """Text, dates and objects are no samples."""
    with pytest.raises(DTypeError, match="are not supported"):
        sample_dtype(dtype)


def test_wider_than_double_is_refused() -> None:
    """Extended precision would be demoted, so the caller has to say so."""
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(DTypeError, match="the conversion may lose precision"):
            sample_dtype(np.longdouble)
    else:
        assert sample_dtype(np.longdouble) == "float64"
