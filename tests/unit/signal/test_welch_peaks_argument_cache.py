"""Cached calls: a repeated call gives the first result, and no other call is mistaken
for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import DTypeError, NotFinite, RlxError, UsageError
from rlxweb.signal import welch_call_cache
from rlxweb.signal.compiled_welch_single_pass import single_pass_kernel
from rlxweb.signal.row_preparation import prepare_rows

X = np.random.default_rng(3).standard_normal((6, 1024)).astype(np.float32)
OPTIONS: dict[str, Any] = {"fs": 100.0, "nperseg": 128, "k": 5, "device": "cpu"}


def is_same_result(first: rlx.WelchPeaks, second: rlx.WelchPeaks) -> bool:
    names = "bins", "hz", "power", "count"
    return all(
        np.array_equal(getattr(first, n), getattr(second, n), equal_nan=True)
        for n in names
    )


def call_uncached(x: Any, **options: Any) -> rlx.WelchPeaks:
    """Return the result of a process that has not seen this call."""
    welch_call_cache._calls.clear()
    return rlx.welch_peaks(x, **{**OPTIONS, **options})


@pytest.fixture(params=["off", pytest.param("wait", marks=pytest.mark.requires_fast)])
def jit_mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run Welch by NumPy, and by compiled code, which checks its rows itself."""
    monkeypatch.setenv("RLX_FAST", request.param)
    return str(request.param)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": "hamming"},
        {"window": ("kaiser", 5.0)},
        {"window": np.ones(128)},
        {"window": list(np.ones(128))},
        {"mode": "peaks", "prominence": 0.1},
        {"noverlap": 3, "nsegments": 2},
        {"preset": "mne"},
        {"detrend": lambda x: x - 1},
        {"nan": "propagate"},
    ],
)
def test_cached_call_equals_the_first(jit_mode: str, options: dict[str, Any]) -> None:
    """A cached call equals the first, with its own samples."""
    first = call_uncached(X, **options)
    assert is_same_result(rlx.welch_peaks(X, **OPTIONS, **options), first)
    other = rlx.welch_peaks(X[::-1] * 2, **OPTIONS, **options)
    assert is_same_result(other, call_uncached(X[::-1] * 2, **options))
    assert other.bins.shape == first.bins.shape


def test_equal_arguments_of_other_types_are_distinct(jit_mode: str) -> None:
    """True is not 1, and 5.0 is not 5: refused arguments are still refused."""
    options = {**OPTIONS, "fs": 1, "nsegments": 1}

    def outcome(change: dict[str, Any]) -> Any:
        try:
            return rlx.welch_peaks(X, **{**options, **change}).fs
        except RlxError as error:
            return str(error)

    n_refused = 0
    for change in ({"fs": True}, {"nsegments": True}, {"k": 5.0}, {"strict": 0}):
        call_uncached(X, **options)
        cached = outcome(change)
        welch_call_cache._calls.clear()
        assert outcome(change) == cached
        n_refused += isinstance(cached, str)
    assert n_refused


def test_modified_window_is_another_call(jit_mode: str) -> None:
    """A window counts by its samples, not by the array that they lie in."""
    window = np.hanning(128)
    first = call_uncached(X, window=window)
    window[:64] = 0
    assert not is_same_result(rlx.welch_peaks(X, **OPTIONS, window=window), first)
    assert is_same_result(
        rlx.welch_peaks(X, **OPTIONS, window=window), call_uncached(X, window=window)
    )


@pytest.mark.parametrize(
    "x",
    [
        X[0],
        X[:, ::-1],
        X.T.copy().T,
        X.astype(np.float64),
        X.astype(np.float16),
        (X * 100).astype(np.int16),
        X.reshape(2, 3, 1024),
        X.astype(">f4"),
        list(map(list, X[:2])),
    ],
)
def test_arrays_of_every_kind(jit_mode: str, x: Any) -> None:
    """Arrays of every kind give the right result, whatever was called before."""
    rlx.welch_peaks(X, **OPTIONS)
    want = call_uncached(x)
    for _ in range(2):
        assert is_same_result(rlx.welch_peaks(x, **OPTIONS), want)


def test_the_time_axis_may_be_the_first(jit_mode: str) -> None:
    """A square array shows which axis was used."""
    square = X[:, :6].repeat(22, 0)[:128, :].repeat(22, 1)[:, :128].copy()
    square += np.random.default_rng(0).standard_normal((128, 128))
    expected = call_uncached(square, axis=0)
    assert is_same_result(rlx.welch_peaks(square, **OPTIONS, axis=0), expected)
    assert is_same_result(rlx.welch_peaks(square.T, **OPTIONS, axis=-1), expected)
    assert not is_same_result(rlx.welch_peaks(square, **OPTIONS), expected)


def test_environment_is_read_at_each_call(
    jit_mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that changes holds from the next call on."""
    options = {**OPTIONS, "device": None}
    assert rlx.welch_peaks(X, **options).device.label == "cpu"
    monkeypatch.setenv("RLX_FORCE_DEVICE", "rocm")
    with pytest.raises(RlxError):
        rlx.welch_peaks(X, **options)
    monkeypatch.delenv("RLX_FORCE_DEVICE")
    engine = rlx.welch_peaks(X, **options).engine
    monkeypatch.setenv("RLX_FAST", "off")
    assert rlx.welch_peaks(X, **options).engine.startswith("NumPy")
    assert engine.startswith("NumPy") == (jit_mode == "off")


ODD_ROWS = {
    "nan": lambda x: x.__setitem__((2, 7), np.nan),
    "infinity": lambda x: x.__setitem__((2, 7), np.inf),
    "nan behind the segments": lambda x: x.__setitem__((2, -1), np.nan),
    "silence": lambda x: x.__setitem__(2, 0),
    "a constant": lambda x: x.__setitem__(2, 3),
    "huge": lambda x: x.__imul__(1e18),
    "tiny": lambda x: x.__imul__(1e-21),
    "one huge row": lambda x: x[2].__imul__(3e37),
    "a tone": lambda x: x.__setitem__(2, np.sin(np.arange(x.shape[1]) / 2)),
}


@pytest.mark.parametrize("name", ODD_ROWS)
@pytest.mark.parametrize("nan", ["raise", "propagate"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["rlx", "scipy"])
def test_odd_rows_give_the_uncached_result(
    jit_mode: str, name: str, nan: str, dtype: str, preset: str
) -> None:
    """Odd rows give a cached call the result or the error of a first one."""
    x = X[:, :1000].astype(dtype)
    options = {**OPTIONS, "nan": nan, "preset": preset}

    def result_or_message() -> Any:
        try:
            return rlx.welch_peaks(odd, **options)
        except RlxError as error:
            return str(error)

    rlx.welch_peaks(x, **options)  # known, and its rows pass
    odd = x.copy()
    with np.errstate(over="ignore"):
        ODD_ROWS[name](odd)
    cached = result_or_message()
    welch_call_cache._calls.clear()
    want = result_or_message()
    if isinstance(want, str):
        assert cached == want
    else:
        assert is_same_result(cached, want)
    assert rlx.welch_peaks(x, **options).bins.shape == (6, 5)


@pytest.mark.requires_fast
def test_ordinary_rows_skip_preparation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ordinary rows are computed in a single pass; after odd ones all are prepared for
    a while.
    """
    row_counts: list[int] = []

    def counting_preparation(x: Any, *args: Any) -> Any:
        row_counts.append(len(x))
        return prepare_rows(x, *args)

    monkeypatch.setenv("RLX_FAST", "wait")
    call_uncached(X)
    single_pass_kernel.cache_clear() if hasattr(
        single_pass_kernel, "cache_clear"
    ) else None
    monkeypatch.setattr("rlxweb.signal.welch_peaks.prepare_rows", counting_preparation)
    rlx.welch_peaks(X, **OPTIONS)
    assert row_counts == []
    with pytest.raises(NotFinite):
        rlx.welch_peaks(np.where(X > 2.5, np.nan, X), **OPTIONS)
    assert len(row_counts) == 1
    for _ in range(20):
        rlx.welch_peaks(X, **OPTIONS)
    assert 1 < len(row_counts) < 20


def test_refused_calls_are_not_cached(jit_mode: str) -> None:
    """A refused call leaves nothing in the cache."""
    welch_call_cache._calls.clear()
    for _ in range(2):
        with pytest.raises(UsageError, match="k is 900"):
            rlx.welch_peaks(X, **{**OPTIONS, "k": 900})
        with pytest.raises(DTypeError):
            rlx.welch_peaks(X.astype("M8[s]"), **OPTIONS)
    assert not welch_call_cache._calls
