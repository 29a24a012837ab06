"""The strategy "band": fewer samples within the error that is allowed, or a product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.decision.terms import Terms
from rlxweb.errors import Inexact, UsageError
from rlxweb.gpu.port import Want
from rlxweb.signal import in_band
from rlxweb.signal.accuracy import spectrum_error
from tests.unit.signal.near import by_name

FS = 1024.0
ASKED: dict[str, Any] = {"fs": FS, "nperseg": 256, "fmin": 16.0, "fmax": 60.0, "k": 4}
CPU: dict[str, Any] = {**ASKED, "device": "cpu"}
ERROR = 1e-3


def noise(dtype: str = "float32", rows: int = 6) -> Any:
    x = np.random.default_rng(rows).standard_normal((rows, 6144))
    return np.round(3000 * x).astype(dtype) if dtype == "int16" else x.astype(dtype)


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make filters free, so that they are taken where they may be."""
    monkeypatch.setattr(in_band, "_filter_terms", lambda *of: Terms(launches=0))
    monkeypatch.setattr(in_band, "_A_PRODUCT", 1e3)


def way_of(found: Any) -> str:
    """Tell which of the ways of "band" was taken."""
    first = found.decision.candidates[0]
    assert first.strategy == "band"
    return str(first.how)


def check(found: Any, right: Any) -> None:
    """The same bins, each with its power but for the error."""
    seen = (found.bins == right.bins) & (right.bins >= 0)
    assert seen.sum() >= 0.9 * (right.bins >= 0).sum()
    assert spectrum_error(found.power[seen], right.power[seen]) <= 2 * ERROR
    assert found.power.dtype == right.power.dtype


@pytest.mark.parametrize("preset", ["rlx", "scipy"])
@pytest.mark.parametrize("mode", ["bins", "peaks"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.usefixtures("fewer")
def test_fewer_samples_give_the_power_within_the_error(
    dtype: str, mode: str, preset: str
) -> None:
    asked = {**CPU, "preset": preset, "mode": mode}
    x = noise(dtype)
    found = rlx.welch_peaks(x, **asked, strategy="band", max_error=ERROR)
    assert way_of(found).startswith("1 of ")
    check(found, rlx.welch_peaks(x, **asked, strategy="fast"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_the_product_gives_it_exactly(dtype: str) -> None:
    """Bins by the product are exact and need no error to be allowed."""
    x = noise(dtype)
    found = rlx.welch_peaks(x, **CPU, strategy="band")
    right = rlx.welch_peaks(x, **CPU, strategy="fast")
    assert way_of(found) == "bins"
    np.testing.assert_array_equal(found.bins, right.bins)
    np.testing.assert_allclose(found.power, right.power, rtol=1e-5)


@pytest.mark.parametrize("preset", ["rlx", "scipy"])
def test_devices_take_fewer_samples(adapter: Want, preset: str) -> None:
    """Devices run their own strategies on rows that the CPU made fewer."""
    asked = {**ASKED, "preset": preset}
    where = by_name(adapter)
    found = rlx.welch_peaks(
        noise(), **asked, **where, strategy="band", max_error=ERROR, strict=True
    )
    assert way_of(found).startswith("1 of ")
    assert "NumPy" not in found.decision.what
    check(found, rlx.welch_peaks(noise(), **asked, device="cpu", strategy="fast"))


def offered(x: Any, **asked: Any) -> list[Any]:
    """The ways of "band" that a call had."""
    found = rlx.welch_peaks(x, **asked).decision.candidates
    return [way for way in found if way.strategy == "band"]


def test_nothing_of_it_is_offered_unasked() -> None:
    """A band's ways are not offered without a band and an error that is allowed."""
    assert offered(noise(), **CPU) == []
    assert offered(noise(), fs=FS, k=3, device="cpu", max_error=ERROR) == []
    ways = offered(noise(), **CPU, max_error=ERROR)
    assert {way.how for way in ways} >= {"bins", "1 of 2, host", "1 of 4, host"}
    assert all(way.off <= ERROR for way in ways)
    # By name, without an error: the product alone.
    ways = offered(noise(), **CPU, strategy="band")
    assert [way.how for way in ways] == ["bins"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"fmax": None}, "bins up to 128 of 128"),
        ({"fmax": 500.0}, "no filter keeps"),
        ({"window": "boxcar"}, "its error on white noise is"),
        ({"noverlap": 127}, "hop of 129"),
        ({"max_error": 1e-9}, "no filter keeps"),
        ({"max_error": None}, ""),
    ],
    ids=str,
)
def test_where_no_filter_will_do_it_says_why(given: dict[str, Any], words: str) -> None:
    """What is not asked for is not told of."""
    ways = offered(noise(), **{**CPU, "max_error": ERROR, **given})
    told = [way.blocker for way in ways if way.how == "decimated"]
    assert len(told) == bool(words)
    assert all(words in one for one in told)


@pytest.mark.parametrize(
    ("x", "given", "words"),
    [
        (noise(), {"fmin": 0.0, "fmax": None}, "all bins are wanted"),
        (noise("complex64"), {}, "two sides"),
        (noise(), {"noverlap": 127}, "does not divide"),
        (noise(), {"detrend": "linear", "max_error": None}, "lines are removed"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    x: Any, given: dict[str, Any], words: str
) -> None:
    asked = {**CPU, "strategy": "band", "max_error": ERROR, **given}
    with pytest.raises(UsageError, match=words):
        rlx.welch_peaks(x, **asked)


@pytest.mark.parametrize("value", [0, -1e-3, 1.0, 2, float("nan"), "much", True])
def test_an_error_that_is_no_part_of_the_power_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="max_error"):
        rlx.welch_peaks(noise(), **CPU, max_error=value)


def loud_beyond() -> Any:
    """Noise with a tone beyond the band, a hundred thousand times as strong, where
    every 2nd, 4th or 8th sample shows it in the band.
    """
    tone = np.sin(2 * np.pi * (FS / 2 - 20.0) * np.arange(6144) / FS)
    return noise("float64") + 1e5 * tone


@pytest.mark.usefixtures("fewer")
def test_a_strong_tone_beyond_the_band_is_noticed() -> None:
    """An exact way is gone, and what was tried is told."""
    asked = {**CPU, "preset": "scipy", "max_error": ERROR}
    right = rlx.welch_peaks(loud_beyond(), **CPU, preset="scipy", strategy="fast")
    for strategy, taken in (("band", "band (bins)"), ("auto", "fast")):
        found = rlx.welch_peaks(loud_beyond(), **asked, strategy=strategy)
        assert found.decision.what.startswith(taken)
        lost, done = found.decision.attempts
        assert isinstance(lost.cause, Inexact)
        assert "would be wrong by" in lost.error
        assert done.error == ""
        assert f"so {taken}" in found.decision.why
        np.testing.assert_allclose(found.power, right.power, rtol=1e-4)
    with pytest.raises(Inexact, match="compared with the exact answer: 1"):
        rlx.welch_peaks(loud_beyond(), **asked, strategy="band", strict=True)


def test_without_an_exact_way_it_is_an_error(adapter: Want) -> None:
    """A device has no product of a band: named with the strategy it is told."""
    asked = {**ASKED, **by_name(adapter), "strategy": "band", "max_error": ERROR}
    with pytest.raises(Inexact):
        rlx.welch_peaks(loud_beyond().astype(np.float32), **asked)


@pytest.mark.usefixtures("fewer")
def test_rows_without_numbers_are_handed_on() -> None:
    x = noise()
    x[2, 500] = np.nan
    asked = {**CPU, "strategy": "band", "max_error": ERROR}
    with pytest.raises(rlx.RlxError, match="finite"):
        rlx.welch_peaks(x, **asked)
    found = rlx.welch_peaks(x, **asked, nan="propagate")
    assert way_of(found).startswith("1 of ")
    assert np.isnan(found.power[2]).all()
    kept = rlx.welch_peaks(np.delete(x, 2, axis=0), **asked)
    rest = np.delete(found.power, 2, axis=0)
    np.testing.assert_allclose(rest, kept.power, rtol=1e-5)


@pytest.mark.requires_wgpu
def test_rows_on_a_device_are_not_made_fewer_there() -> None:
    there = rlx.put(noise(), device="gpu")
    with pytest.raises(rlx.RlxError, match="lie on a device already"):
        rlx.welch_peaks(there, **ASKED, strategy="band", max_error=ERROR)
    asked = {**ASKED, "strategy": "band", "device": "gpu", "max_error": ERROR}
    with pytest.raises(rlx.RlxError, match="for the CPU only"):
        rlx.welch_peaks(noise("int16"), **asked)
