"""The strategy "learned" of welch_peaks: right for what it was trained for, and refused
for everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.errors import Inexact, UsageError
from rlxweb.gpu.port import Want
from rlxweb.signal.accuracy import spectrum_error
from rlxweb.signal.learned import strategy
from tests.unit.signal.learned.steep import FS, SETTINGS, N, learned, steep
from tests.unit.signal.near import by_name

ASKED: dict[str, Any] = {
    "fs": FS,
    "nperseg": N,
    "preset": "scipy",
    "fmin": 32.0,
    "fmax": 190.0,
    "k": 3,
}
CPU: dict[str, Any] = {**ASKED, "device": "cpu"}


def model() -> rlx.LearnedTransform:
    return learned().transform


def rows(dtype: str = "float32", count: int = 4) -> Any:
    """Rows of the kind that was learned from, and not those."""
    return steep(count, 24_000, seed=5).astype(dtype)


def white(count: int = 4) -> Any:
    drawn = np.random.default_rng(2).standard_normal((count, 12_000))
    return drawn.astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_the_answer_is_right_within_its_error(dtype: str, mode: str) -> None:
    """The answer is right within its error for every type, bins and local maxima."""
    x = rows()
    # Rounded to 24 bits, for what rounding adds is white.
    x = np.round(1e6 * x).astype("int32") if dtype == "int32" else x.astype(dtype)
    asked = {**CPU, "mode": mode}
    found = rlx.welch_peaks(x, **asked, strategy="learned", model=model())
    right = rlx.welch_peaks(x, **asked, strategy="fast")
    assert found.decision.what.startswith("learned on NumPy")
    if mode == "bins":
        np.testing.assert_array_equal(found.bins, right.bins)
    seen = (found.bins == right.bins) & (right.bins >= 0)
    assert seen.sum() >= 0.6 * (right.bins >= 0).sum()
    error = spectrum_error(found.power[seen], right.power[seen])
    assert error <= SETTINGS["max_error"]
    assert found.power.dtype == right.power.dtype


def test_rows_of_any_number_are_the_same_one_by_one() -> None:
    """The parts of many rows and of one are cut otherwise."""
    x = rows(count=70)[:, :3000]
    asked = {**CPU, "strategy": "learned", "model": model()}
    together = rlx.welch_peaks(x, **asked).power
    alone = np.stack([rlx.welch_peaks(row, **asked).power for row in x[::23]])
    np.testing.assert_allclose(together[::23], alone, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"fs": 2000.0}, ("2000 Hz", "2048 Hz")),
        ({"nperseg": 256}, ("256", "128 samples")),
        ({"nperseg": N, "window": "blackman"}, ("window",)),
        ({"detrend": False}, ("detrend is None", "constant")),
        ({"detrend": "linear"}, ("detrend is linear", "constant")),
        ({"fmax": 300.0}, ("bins 2 to 18", "bins 0 to 13")),
        ({"fmax": None, "fmin": 0.0}, ("all bins", "0 to 208 Hz")),
        ({"model": b"no model"}, ("learned transform",)),
        ({"model": None}, ("trained model", "rlxweb learn")),
    ],
    ids=str,
)
def test_what_it_was_not_trained_for_is_refused(
    given: dict[str, Any], words: tuple[str, ...]
) -> None:
    """A refusal names what is asked for and what the transform is for."""
    asked = {**CPU, "strategy": "learned", "model": model(), **given}
    with pytest.raises(rlx.RlxError) as refused:
        rlx.welch_peaks(rows(), **asked)
    assert [word for word in words if word not in str(refused.value)] == []


def test_complex_samples_are_refused() -> None:
    x = rows().astype(np.complex64)
    with pytest.raises(UsageError, match="complex"):
        rlx.welch_peaks(x, **CPU, strategy="learned", model=model())


def test_auto_takes_it_only_within_an_error_that_is_allowed() -> None:
    """However cheap it is."""
    for most in (None, model().error / 2):
        found = rlx.welch_peaks(rows(), **CPU, model=model(), max_error=most)
        (way,) = [c for c in found.decision.candidates if c.strategy == "learned"]
        assert "and max_error is" in way.blocker
        assert not found.decision.what.startswith("learned")
    found = rlx.welch_peaks(rows(), **CPU, model=model(), max_error=0.1)
    (way,) = [c for c in found.decision.candidates if c.strategy == "learned"]
    assert way.blocker == ""
    assert way.off == model().error


def test_recordings_of_another_kind_are_refused_by_name() -> None:
    with pytest.raises(Inexact, match="compared with the exact answer: 1"):
        rlx.welch_peaks(white(), **CPU, strategy="learned", model=model())


def test_auto_goes_the_exact_way_where_it_is_not_exact_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer that is not exact enough is replaced and said so; strict refuses it."""
    monkeypatch.setattr(strategy, "_terms", lambda *of: Terms(launches=1))
    asked = {**CPU, "model": model(), "max_error": 0.1}
    good = rlx.welch_peaks(rows(), **asked)
    assert good.decision.what.startswith("learned")
    assert good.decision.attempts == ()
    found = rlx.welch_peaks(white(), **asked)
    right = rlx.welch_peaks(white(), **CPU, strategy=found.decision.what.split()[0])
    np.testing.assert_allclose(found.power, right.power, rtol=1e-5)
    lost, done = found.decision.attempts
    assert isinstance(lost.cause, Inexact)
    assert (done.device, done.error) == (Device.CPU, "")
    assert "that was not exact enough" in found.decision.why
    with pytest.raises(Inexact):
        rlx.welch_peaks(white(), **asked, strict=True)


def test_rows_without_numbers_are_handed_on() -> None:
    x = rows()
    x[1, 100] = np.nan
    asked = {**CPU, "strategy": "learned", "model": model()}
    with pytest.raises(rlx.RlxError, match="finite"):
        rlx.welch_peaks(x, **asked)
    found = rlx.welch_peaks(x, **asked, nan="propagate")
    assert np.isnan(found.power[1]).all()
    kept = rlx.welch_peaks(np.delete(x, 1, axis=0), **asked)
    np.testing.assert_allclose(np.delete(found.power, 1, axis=0), kept.power, rtol=1e-6)


def test_devices_compute_the_same(adapter: Want) -> None:
    """Devices give NumPy's numbers in float32, for bins and for a part of the band."""
    x = rows()[:, :6000]
    for band in ({}, {"fmin": 64.0, "fmax": 128.0}):
        asked = {**ASKED, **band, "strategy": "learned", "model": model()}
        here = rlx.welch_peaks(x, **asked, device="cpu")
        there = rlx.welch_peaks(x, **asked, **by_name(adapter), strict=True)
        assert there.decision.what.startswith("learned on ")
        np.testing.assert_array_equal(there.bins, here.bins)
        np.testing.assert_allclose(there.power, here.power, rtol=1e-5)
        again = rlx.welch_peaks(x, **asked, **by_name(adapter), strict=True)
        np.testing.assert_array_equal(again.power, there.power)


@pytest.mark.requires_wgpu
def test_devices_refuse_integers_and_what_lies_there() -> None:
    """Devices refuse integers and arrays on the device, with a reason."""
    asked = {**ASKED, "strategy": "learned", "model": model()}
    counts = np.round(1000 * rows()).astype(np.int16)
    with pytest.raises(rlx.RlxError, match="on the CPU only"):
        rlx.welch_peaks(counts, **asked, device="gpu")
    there = rlx.put(rows(), device="gpu")
    with pytest.raises(rlx.RlxError, match="lie on a device already"):
        rlx.welch_peaks(there, **asked)
