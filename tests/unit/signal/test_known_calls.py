"""A call that was made before is the same call again, and no other is taken for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import DTypeError, NotFinite, RlxError, UsageError
from rlxweb.signal import known_calls
from rlxweb.signal.at_once import at_once
from rlxweb.signal.scaled import ready_rows

X = np.random.default_rng(3).standard_normal((6, 1024)).astype(np.float32)
HOW: dict[str, Any] = {"fs": 100.0, "nperseg": 128, "k": 5, "device": "cpu"}


def same(one: rlx.WelchPeaks, other: rlx.WelchPeaks) -> bool:
    names = "bins", "hz", "power", "count"
    return all(
        np.array_equal(getattr(one, n), getattr(other, n), equal_nan=True)
        for n in names
    )


def anew(x: Any, **how: Any) -> rlx.WelchPeaks:
    """What a process that has not seen this call says."""
    known_calls._known.clear()
    return rlx.welch_peaks(x, **{**HOW, **how})


@pytest.fixture(params=["off", pytest.param("wait", marks=pytest.mark.requires_fast)])
def fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Welch by NumPy, and by compiled code, which looks its rows over itself."""
    monkeypatch.setenv("RLX_FAST", request.param)
    return str(request.param)


@pytest.mark.parametrize(
    "how",
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
def test_the_second_call_is_the_first_again(fast: str, how: dict[str, Any]) -> None:
    """A second call is the first again, with the samples of its own."""
    first = anew(X, **how)
    assert same(rlx.welch_peaks(X, **HOW, **how), first)
    other = rlx.welch_peaks(X[::-1] * 2, **HOW, **how)
    assert same(other, anew(X[::-1] * 2, **how))
    assert other.bins.shape == first.bins.shape


def test_arguments_that_are_equal_and_not_the_same(fast: str) -> None:
    """True is not 1, and 5.0 is not 5: what was refused is refused still."""
    how = {**HOW, "fs": 1, "nsegments": 1}

    def outcome(like: dict[str, Any]) -> Any:
        try:
            return rlx.welch_peaks(X, **{**how, **like}).fs
        except RlxError as error:
            return str(error)

    refused = 0
    for like in ({"fs": True}, {"nsegments": True}, {"k": 5.0}, {"strict": 0}):
        anew(X, **how)
        known = outcome(like)
        known_calls._known.clear()
        assert outcome(like) == known
        refused += isinstance(known, str)
    assert refused


def test_a_window_that_was_written_into_is_another(fast: str) -> None:
    """A window counts by its samples, not by the array that they lie in."""
    window = np.hanning(128)
    first = anew(X, window=window)
    window[:64] = 0
    assert not same(rlx.welch_peaks(X, **HOW, window=window), first)
    assert same(rlx.welch_peaks(X, **HOW, window=window), anew(X, window=window))


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
def test_arrays_of_every_kind(fast: str, x: Any) -> None:
    """Arrays of every kind are right, whatever was called before."""
    rlx.welch_peaks(X, **HOW)
    want = anew(x)
    for _ in range(2):
        assert same(rlx.welch_peaks(x, **HOW), want)


def test_the_time_axis_may_be_the_first(fast: str) -> None:
    """A square array tells which."""
    square = X[:, :6].repeat(22, 0)[:128, :].repeat(22, 1)[:, :128].copy()
    square += np.random.default_rng(0).standard_normal((128, 128))
    one = anew(square, axis=0)
    assert same(rlx.welch_peaks(square, **HOW, axis=0), one)
    assert same(rlx.welch_peaks(square.T, **HOW, axis=-1), one)
    assert not same(rlx.welch_peaks(square, **HOW), one)


def test_the_environment_is_asked_each_time(
    fast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that changes holds from the next call on."""
    how = {**HOW, "device": None}
    assert rlx.welch_peaks(X, **how).device.label == "cpu"
    monkeypatch.setenv("RLX_FORCE_DEVICE", "rocm")
    with pytest.raises(RlxError):
        rlx.welch_peaks(X, **how)
    monkeypatch.delenv("RLX_FORCE_DEVICE")
    engine = rlx.welch_peaks(X, **how).engine
    monkeypatch.setenv("RLX_FAST", "off")
    assert rlx.welch_peaks(X, **how).engine.startswith("NumPy")
    assert engine.startswith("NumPy") == (fast == "off")


ODD = {
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


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("nan", ["raise", "propagate"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["rlx", "scipy"])
def test_rows_that_need_a_second_look_get_it(
    fast: str, name: str, nan: str, dtype: str, preset: str
) -> None:
    """Odd rows give a known call the answer or the error of a first one."""
    x = X[:, :1000].astype(dtype)
    how = {**HOW, "nan": nan, "preset": preset}

    def asked() -> Any:
        try:
            return rlx.welch_peaks(odd, **how)
        except RlxError as error:
            return str(error)

    rlx.welch_peaks(x, **how)  # known, and its rows pass
    odd = x.copy()
    with np.errstate(over="ignore"):
        ODD[name](odd)
    known = asked()
    known_calls._known.clear()
    want = asked()
    if isinstance(want, str):
        assert known == want
    else:
        assert same(known, want)
    assert rlx.welch_peaks(x, **how).bins.shape == (6, 5)


@pytest.mark.requires_fast
def test_ordinary_rows_are_not_looked_over_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ordinary rows are computed at once; after odd ones all are checked a while."""
    looked: list[int] = []

    def looking(x: Any, *more: Any) -> Any:
        looked.append(len(x))
        return ready_rows(x, *more)

    monkeypatch.setenv("RLX_FAST", "wait")
    anew(X)
    at_once.cache_clear() if hasattr(at_once, "cache_clear") else None
    monkeypatch.setattr("rlxweb.signal.welch_peaks.ready_rows", looking)
    rlx.welch_peaks(X, **HOW)
    assert looked == []
    with pytest.raises(NotFinite):
        rlx.welch_peaks(np.where(X > 2.5, np.nan, X), **HOW)
    assert len(looked) == 1
    for _ in range(20):
        rlx.welch_peaks(X, **HOW)
    assert 1 < len(looked) < 20


def test_errors_name_what_they_named(fast: str) -> None:
    """A call that is refused leaves nothing behind."""
    known_calls._known.clear()
    for _ in range(2):
        with pytest.raises(UsageError, match="k is 900"):
            rlx.welch_peaks(X, **{**HOW, "k": 900})
        with pytest.raises(DTypeError):
            rlx.welch_peaks(X.astype("M8[s]"), **HOW)
    assert not known_calls._known
